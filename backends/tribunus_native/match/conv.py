"""Convolutions with constant weights, channels last, by the ``conv`` and ``depthwise`` templates.

Imported by: table, the families of windows.  Imports: templates.conv, templates.depthwise.

Sizes of images may be numbers or symbols with bounds.  One spatial axis is an image of height 1; so is an image of
width 1, whose bytes are the same with its axes swapped: tiles lie along the width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir import dims
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
from tribunus_native.templates.conv import ConvParams, ConvPoint, Extents, Window, conv, conv_points
from tribunus_native.templates.depthwise import (
    ChannelLoop,
    DepthwiseParams,
    DepthwisePoint,
    depthwise,
    depthwise_points,
)
from tribunus_native.templates.gemm import Order, Split
from tribunus_native.templates.rows import MOST_KINDS
from tribunus_native.toolchain import Contraction, Cpu

MOST_BINDINGS: Final = 4096  # of the symbols of one dim, so that its values are listed


@dataclass(frozen=True, slots=True)
class Image:
    """Spatial extents of an input and of a result on two axes, as the window sees them."""

    window: Window
    height: Dim
    width: Dim
    out_height: Dim
    out_width: Dim

    @property
    def out_numbers(self) -> tuple[int, int] | None:
        """Rows and columns of the result where both are numbers."""
        if isinstance(self.out_height, int) and isinstance(self.out_width, int):
            return self.out_height, self.out_width
        return None

    def extents(self, sizes: Sizes, batch: Dim) -> Extents | None:
        """What a template gets where some size is no number."""
        if self.window.is_fixed and isinstance(batch, int):
            return None
        return Extents(
            height=sizes.size(self.height),
            width=sizes.size(self.width),
            out_height=sizes.size(self.out_height),
            out_width=sizes.size(self.out_width),
            pixels=sizes.size(dims.product((batch, self.height, self.width))) if self.window.is_pointwise else 0,
        )


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over one or two spatial axes.  x, weight: value ids.  groups: of channels."""

    op: Op
    x: int
    weight: int
    batch: Dim
    image: Image
    channels_in: int
    channels_out: int
    groups: int
    parsed: Parsed

    @property
    def window(self) -> Window:
        return self.image.window

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.channels_in == self.channels_out and self.groups > 1

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]


def window_of(op: Op, image: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window of an op on an image of one or two axes, lying along the width if it slides along one axis only."""
    window = _upright(op, image, kernel)
    return _lying(window) if _may_lie(window) else window


def _upright(op: Op, image: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window on two axes in their own order."""
    strides, pads, dilations = (op.attributes.integers(k) for k in ("strides", "pads", "dilations"))
    if len(image) == 1:
        image, kernel, strides, dilations = (1, *image), (1, *kernel), (1, *strides), (1, *dilations)
        pads = (0, pads[0], 0, pads[1])
    return Window(
        height=image[0],
        width=image[1],
        kernel=(kernel[0], kernel[1]),
        stride=(strides[0], strides[1]),
        pads=(pads[0], pads[1], pads[2], pads[3]),
        dilation=(dilations[0], dilations[1]),
    )


def _may_lie(window: Window) -> bool:
    """Whether the image has width 1 under a kernel of width 1."""
    return window.width == window.kernel[1] == 1 and not window.pads[1] and not window.pads[3]


def _lying(window: Window) -> Window:
    """An image of width 1 as one of height 1: bytes of images and order of taps stay the same."""
    return Window(
        height=1,
        width=window.height,
        kernel=(1, window.kernel[0]),
        stride=(1, window.stride[0]),
        pads=(0, window.pads[0], 0, window.pads[2]),
        dilation=(1, window.dilation[0]),
    )


def image_of(signature: Signature, value: int) -> tuple[int, ...] | None:
    """Spatial extents if there are one or two and all are numbers above 0."""
    type_ = signature.type_of(value)
    spatial = tuple(d for d in type_.shape[2:] if isinstance(d, int))
    if len(spatial) != type_.rank - 2 or len(spatial) not in (1, 2) or min(spatial) < 1:
        return None
    return spatial


def values_of(signature: Signature, dim: Dim) -> range | None:
    """Every value of a dim, perhaps with some between them; None for a number."""
    if isinstance(dim, int):
        return None
    scope = signature.program.scope
    names = sorted(dims.symbols_of(dim))
    if math.prod(len(scope.symbol(name).values()) for name in names) > MOST_BINDINGS:
        low, high = scope.bounds(dim)
        return range(low, high + 1)
    found = sorted({dims.evaluate(dim, bindings) for bindings in scope.bindings(names)})
    step = math.gcd(*(value - found[0] for value in found)) or 1
    return range(found[0], found[-1] + 1, step)


def settled(signature: Signature, dim: Dim) -> Dim:
    """A dim; the number where it has one value only."""
    values = values_of(signature, dim)
    return dim if values is None or len(values) > 1 else values[0]


def seen_through(signature: Signature, op: Op, x: int, kernel: tuple[int, ...]) -> Image | None:
    """Images of one or two axes, none of them empty, and the window that an op slides over them."""
    spatial, out = (
        tuple(settled(signature, dim) for dim in signature.type_of(value).shape[2:]) for value in (x, op.outputs[0])
    )
    scope = signature.program.scope
    if len(spatial) not in (1, 2) or min(kernel) < 1 or not all(scope.at_least(dim, 1) for dim in (*spatial, *out)):
        return None
    window = _upright(op, dims.evaluate_shape(spatial, scope.optimum()), kernel)
    rows, columns = (1, spatial[0]) if len(spatial) == 1 else spatial
    out_rows, out_columns = (1, out[0]) if len(out) == 1 else out
    if columns == 1 and _may_lie(window):
        window, rows, columns, out_rows, out_columns = _lying(window), columns, rows, out_columns, out_rows
    window = replace(window, heights=values_of(signature, rows), widths=values_of(signature, columns))
    return Image(window, rows, columns, out_rows, out_columns)


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
    channels_in, kernel = signature.type_of(x).shape[1], signature.type_of(weight).numbers()
    image = seen_through(signature, op, x, kernel[2:]) if min(kernel) > 0 else None
    if image is None or not isinstance(channels_in, int):
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
        op, x, weight, signature.type_of(x).shape[0], image, channels_in, kernel[0],
        op.attributes.integer("group"), parsed,
    )  # fmt: skip


def required(found: Convolution | None, signature: Signature) -> Convolution:
    """A match that must be there.  Raises InternalError."""
    if found is None:
        raise InternalError(f"{signature.name} is no convolution for this template")
    return found


def has_too_many_tiles(window: Window, most: int) -> bool:
    """Whether the widths that may come need more kinds of tiles than one text should hold."""
    return window.widths is not None and not window.is_pointwise and len(window.rows(most).kinds()) > MOST_KINDS


class Conv:
    """Direct convolution."""

    @property
    def name(self) -> str:
        return "conv"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        found = match_convolution(signature)
        if found is None:
            return "no float32 convolution with constant weights over one or two axes"
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
            if has_too_many_tiles(found.window, point.mr):
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
            extents=found.image.extents(sizes, found.batch),
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
            if has_too_many_tiles(found.window, point.mr):
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
            extents=found.image.extents(sizes, found.batch),
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
