"""Convolutions with constant weights and static images, channels last, by the ``conv`` and ``depthwise`` templates.

Imported by: table.  Imports: templates.conv, templates.depthwise.

One spatial axis is an image of height 1; so is an image of width 1, whose bytes are the same with its axes swapped:
tiles lie along the width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Op, Role
from tribunus.plan.code import PackedWeight, Packing, WorkSplit
from tribunus.targets.target import Target
from tribunus_native.match.epilogues import Parsed, Vector, parse_epilogue
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_channels_last
from tribunus_native.match.operands import rebind
from tribunus_native.match.packing import panels_weight, vector_weight
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.conv import ConvParams, ConvPoint, Window, conv, conv_points
from tribunus_native.templates.depthwise import (
    ChannelLoop,
    DepthwiseParams,
    DepthwisePoint,
    depthwise,
    depthwise_points,
)
from tribunus_native.templates.gemm import Order, Split
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over one or two spatial axes of fixed size.  x, weight: value ids.  groups: of channels."""

    op: Op
    x: int
    weight: int
    batch: Dim
    window: Window
    channels_in: int
    channels_out: int
    groups: int
    parsed: Parsed

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.channels_in == self.channels_out and self.groups > 1

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]


def window_of(op: Op, image: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window of an op on an image of one or two axes, lying along the width if it slides along one axis only."""
    strides, pads, dilations = (op.attributes.integers(k) for k in ("strides", "pads", "dilations"))
    if len(image) == 1:
        image, kernel, strides, dilations = (1, *image), (1, *kernel), (1, *strides), (1, *dilations)
        pads = (0, pads[0], 0, pads[1])
    upright = Window(
        height=image[0],
        width=image[1],
        kernel=(kernel[0], kernel[1]),
        stride=(strides[0], strides[1]),
        pads=(pads[0], pads[1], pads[2], pads[3]),
        dilation=(dilations[0], dilations[1]),
    )
    return _lying(upright)


def _lying(window: Window) -> Window:
    """An image of width 1 under a kernel of width 1 as an image of height 1; any other window as it is.

    Bytes of images and order of taps stay the same.
    """
    if window.width != 1 or window.kernel[1] != 1 or window.pads[1] or window.pads[3]:
        return window
    return Window(
        height=1,
        width=window.height,
        kernel=(1, window.kernel[0]),
        stride=(1, window.stride[0]),
        pads=(0, window.pads[0], 0, window.pads[2]),
        dilation=(1, window.dilation[0]),
    )


def out_of(window: Window, out: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the output of a window of ``window_of``; ``out``: its spatial extents."""
    if window.height == window.kernel[0] == 1 and not window.pads[0] and not window.pads[2]:
        return 1, math.prod(out)
    return out[0], out[1]


def image_of(signature: Signature, value: int) -> tuple[int, ...] | None:
    """Spatial extents if there are one or two and all are numbers above 0."""
    type_ = signature.type_of(value)
    spatial = tuple(d for d in type_.shape[2:] if isinstance(d, int))
    if len(spatial) != type_.rank - 2 or len(spatial) not in (1, 2) or min(spatial) < 1:
        return None
    return spatial


def match_convolution(signature: Signature) -> Convolution | None:
    """A float32 convolution with constant weights, and an epilogue; None for anything else."""
    ops = signature.phase.ops
    if not ops or ops[0].kind != "conv" or len(signature.outputs) != 1:
        return None
    op = ops[0]
    x, weight = op.inputs[0], op.inputs[1]
    program = signature.program
    if program.values[x].role is not Role.INPUT or signature.type_of(x).dtype is not DType.F32:
        return None
    if program.values[weight].role not in (Role.WEIGHT, Role.CONSTANT):
        return None
    image, out_image = image_of(signature, x), image_of(signature, op.outputs[0])
    channels_in, kernel = signature.type_of(x).shape[1], signature.type_of(weight).numbers()
    if image is None or out_image is None or not isinstance(channels_in, int) or min(kernel) < 1:
        return None
    bias = None
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        if program.values[op.inputs[2]].role not in (Role.WEIGHT, Role.CONSTANT):
            return None
        bias = Vector("plain", (op.inputs[2],))
    parsed = parse_epilogue(signature, ops[1:], op.outputs[0], 1, bias)
    if parsed is None:
        return None
    return Convolution(
        op, x, weight, signature.type_of(x).shape[0], window_of(op, image, kernel[2:]), channels_in, kernel[0],
        op.attributes.integer("group"), parsed,
    )  # fmt: skip


def required(found: Convolution | None, signature: Signature) -> Convolution:
    """A match that must be there.  Raises InternalError."""
    if found is None:
        raise InternalError(f"{signature.name} is no convolution for this template")
    return found


class Conv:
    """Direct convolution."""

    @property
    def name(self) -> str:
        return "conv"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        found = match_convolution(signature)
        if found is None:
            return "no float32 convolution with constant weights and a static image"
        return "depthwise has a template of its own" if found.is_depthwise else ""

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_convolution(signature), all_channels_last(signature)
        if found is None or border is None or layouts not in (None, border):
            return
        strict = signature.policy is ComputePolicy.FP32_STRICT
        split = Split.PANELS if found.window.out_height < 8 and found.batch == 1 else Split.ROWS
        if found.window.is_pointwise:
            split = Split.ROWS
        for point in conv_points(found.window, found.channels_out, found.groups, cpu):
            if strict and point.contraction is not Contraction.SEPARATE and found.parsed.steps:
                continue
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "nv": point.nv,
                "order": point.order.value,
                "contraction": point.contraction.value,
                "split": split.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = required(match_convolution(signature), signature)
        sizes, parsed = Sizes(), found.parsed
        point = ConvPoint(
            lanes=config.integer("lanes"),
            mr=config.integer("mr"),
            nv=config.integer("nv"),
            order=Order(config.text("order")),
            contraction=Contraction(config.text("contraction")),
        )
        params = ConvParams(
            batch=sizes.size(found.batch),
            window=found.window,
            channels_in=found.channels_in,
            channels_out=found.channels_out,
            point=point,
            avx512=cpu.has_avx512,
            groups=found.groups,
            bias=parsed.bias is not None,
            epilogue=parsed.steps,
            split=Split(config.text("split")),
        )
        source = conv(params)
        depth = found.taps * found.channels_in // found.groups
        weights = [panels_weight(found.weight, params.panels, depth, found.groups, "conv")]
        vectors = ([parsed.bias] if parsed.bias else []) + list(parsed.vectors)
        weights += [vector_weight(v, found.channels_out, point.lanes, found.groups) for v in vectors]
        return Kernel(
            text=rebind(source, signature, (found.x, *parsed.tensors), signature.outputs),
            contraction=point.contraction,
            weights=tuple(weights),
            workspace=sizes.workspace(source.workspace, target.threads),
            params=sizes.params,
            split=WorkSplit(params.split.value if target.threads > 1 else "none", target.threads),
        )


class Depthwise:
    """Every channel with its own kernel."""

    @property
    def name(self) -> str:
        return "depthwise"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        found = match_convolution(signature)
        return "" if found is not None and found.is_depthwise else "no depthwise convolution"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_convolution(signature), all_channels_last(signature)
        if found is None or border is None or layouts not in (None, border):
            return
        strict = signature.policy is ComputePolicy.FP32_STRICT
        for point in depthwise_points(found.window, found.channels_in, cpu):
            if strict and point.contraction is not Contraction.SEPARATE and found.parsed.steps:
                continue
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "channels": point.channels.value,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = required(match_convolution(signature), signature)
        sizes, parsed = Sizes(), found.parsed
        point = DepthwisePoint(
            lanes=config.integer("lanes"),
            mr=config.integer("mr"),
            channels=ChannelLoop(config.text("channels")),
            contraction=Contraction(config.text("contraction")),
        )
        params = DepthwiseParams(
            batch=sizes.size(found.batch),
            window=found.window,
            channels=found.channels_in,
            point=point,
            avx512=cpu.has_avx512,
            bias=parsed.bias is not None,
            epilogue=parsed.steps,
        )
        source = depthwise(params)
        rank = signature.type_of(found.weight).rank
        packing = Packing("layout", layout=Layout((*range(2, rank), 1, 0)))
        weights = [PackedWeight((found.weight,), packing, found.taps * found.channels_in * 4)]
        vectors = ([parsed.bias] if parsed.bias else []) + list(parsed.vectors)
        weights += [vector_weight(v, found.channels_in, 1) for v in vectors]
        return Kernel(
            text=rebind(source, signature, (found.x, *parsed.tensors), signature.outputs),
            contraction=point.contraction,
            weights=tuple(weights),
            params=sizes.params,
            split=WorkSplit("rows" if target.threads > 1 else "none", target.threads),
        )
