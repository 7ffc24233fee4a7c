"""Transposed convolutions with constant weights, channels last, by the ``transposed`` template.

Imported by: table.  Imports: templates.transposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Array, Op, Role
from tribunus.plan.code import PackedWeight, Packing
from tribunus.targets.target import Target
from tribunus_native.loops.stages import split_of
from tribunus_native.match.conv import settled, values_of
from tribunus_native.match.epilogues import Parsed, Vector, parse_epilogue
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_channels_last
from tribunus_native.match.operands import rebind
from tribunus_native.match.packing import Options, integer_option, vector_weight
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.conv import Extents
from tribunus_native.templates.epilogue import Epilogue
from tribunus_native.templates.transposed import (
    TransposedParams,
    TransposedPoint,
    pack_transposed,
    transposed,
    transposed_points,
)
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True)
class Upward:
    """One transposed convolution of one group."""

    op: Op
    x: int
    weight: int
    batch: Dim
    image: tuple[Dim, Dim]
    out: tuple[Dim, Dim]
    expected: tuple[int, int]
    widths: range | None
    kernel: tuple[int, int]
    channels_in: int
    channels_out: int
    parsed: Parsed

    @property
    def line(self) -> int | None:
        """Width of the image, None where it varies."""
        return self.expected[1] if self.widths is None else None


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def _dim_pair(values: tuple[Dim, ...]) -> tuple[Dim, Dim]:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def match_transposed(signature: Signature) -> Upward | None:
    """A float32 conv_transpose with constant weights, and an epilogue; None for anything else."""
    ops = signature.phase.ops
    if not ops or ops[0].kind != "conv_transpose" or len(signature.outputs) != 1:
        return None
    op, program = ops[0], signature.program
    x, weight = op.inputs[0], op.inputs[1]
    constant = program.values[weight].role in (Role.WEIGHT, Role.CONSTANT)
    if program.values[x].role is not Role.INPUT or not constant or op.attributes.integer("group") != 1:
        return None
    if signature.type_of(x).dtype is not DType.F32 or not 3 <= signature.type_of(x).rank <= 4:
        return None
    image, out = (
        _dim_pair(tuple(settled(signature, dim) for dim in signature.type_of(value).shape[2:]))
        for value in (x, op.outputs[0])
    )
    scope = signature.program.scope
    # images that vary have a pixel of every output phase
    least = _pair(op.attributes.integers("strides"))
    if not all(scope.at_least(dim, 1) for dim in image) or not all(
        scope.at_least(dim, 1 if isinstance(dim, int) else low) for dim, low in zip(out, least, strict=True)
    ):
        return None
    channels_in, channels_out, *kernel = signature.type_of(weight).numbers()
    bias = None
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        if program.values[op.inputs[2]].role not in (Role.WEIGHT, Role.CONSTANT):
            return None
        bias = Vector("plain", (op.inputs[2],))
    parsed = parse_epilogue(signature, ops[1:], op.outputs[0], 1, bias)
    if parsed is None:
        return None
    batch = signature.type_of(x).shape[0]
    expected = dims.evaluate_shape(image, scope.optimum())
    return Upward(
        op, x, weight, batch, image, out, (expected[0], expected[1]), values_of(signature, image[1]),
        _pair(tuple(kernel)), channels_in, channels_out, parsed,
    )  # fmt: skip


def _params(
    found: Upward, point: TransposedPoint, sizes: Sizes, epilogue: Epilogue, bias: bool, avx512: bool
) -> TransposedParams:
    attributes = found.op.attributes
    strides, pads = attributes.integers("strides"), attributes.integers("pads")
    return TransposedParams(
        batch=sizes.size(found.batch),
        height=found.expected[0],
        width=found.expected[1],
        channels_in=found.channels_in,
        channels_out=found.channels_out,
        kernel=found.kernel,
        stride=_pair(strides),
        point=point,
        avx512=avx512,
        pads=(0, pads[0], 0, pads[1]) if len(pads) == 2 else (pads[0], pads[1], pads[2], pads[3]),
        dilation=_pair(attributes.integers("dilations")),
        output_padding=(0, attributes.integers("output_padding")[0])
        if len(pads) == 2
        else _pair(attributes.integers("output_padding")),
        bias=bias,
        epilogue=epilogue,
        widths=found.widths,
        extents=None
        if dims.is_static((*found.image, *found.out))
        else Extents(
            height=sizes.size(found.image[0]),
            width=sizes.size(found.image[1]),
            out_height=sizes.size(found.out[0]),
            out_width=sizes.size(found.out[1]),
        ),
    )


def _weights(found: Upward, params: TransposedParams) -> PackedWeight:
    p = params
    options: dict[str, int | str] = {
        "height": p.height, "width": p.width, "cin": p.channels_in, "cout": p.channels_out,
        "kh": p.kernel[0], "kw": p.kernel[1], "sh": p.stride[0], "sw": p.stride[1],
        "dh": p.dilation[0], "dw": p.dilation[1], "top": p.pads[0], "left": p.pads[1], "bottom": p.pads[2],
        "right": p.pads[3], "oh": p.output_padding[0], "ow": p.output_padding[1],
        "lanes": p.point.lanes, "mr": p.point.mr, "nv": p.point.nv,
    }  # fmt: skip
    shape = (p.channels_in, p.channels_out, *p.kernel)
    nbytes = pack_transposed(np.zeros(shape, dtype=np.float32), p).nbytes
    return PackedWeight((found.weight,), Packing("transposed", tuple(sorted(options.items()))), nbytes)


def pack(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``transposed``."""

    def of(name: str) -> int:
        return integer_option(options, name)

    params = TransposedParams(
        batch=1, height=of("height"), width=of("width"), channels_in=of("cin"), channels_out=of("cout"),
        kernel=(of("kh"), of("kw")), stride=(of("sh"), of("sw")),
        point=TransposedPoint(lanes=of("lanes"), mr=of("mr"), nv=of("nv"), contraction=Contraction.FUSED),
        avx512=False, pads=(of("top"), of("left"), of("bottom"), of("right")), dilation=(of("dh"), of("dw")),
        output_padding=(of("oh"), of("ow")),
    )  # fmt: skip
    weights = np.asarray(arrays[0], dtype=np.float32)
    return pack_transposed(weights.reshape(*weights.shape[:2], of("kh"), of("kw")), params)


class Transposed:
    """One ordinary convolution per output phase."""

    @property
    def name(self) -> str:
        return "transposed"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return (
            ""
            if match_transposed(signature) is not None
            else "no transposed convolution of one group over one or two axes"
        )

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_transposed(signature), all_channels_last(signature)
        if found is None or border is None or layouts not in (None, border):
            return
        probe = TransposedPoint(lanes=4, mr=1, nv=1, contraction=Contraction.FUSED)
        merged = _params(found, probe, Sizes(), (), False, False).merged
        strict = signature.policy is ComputePolicy.FP32_STRICT and found.parsed.steps
        for point in transposed_points(found.line, found.channels_out, found.kernel, merged, cpu):
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "nv": point.nv,
                "contraction": Contraction.SEPARATE.value if strict else point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_transposed(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no transposed convolution for this template")
        sizes, parsed = Sizes(), found.parsed
        contraction = Contraction(config.text("contraction"))
        point = TransposedPoint(
            lanes=config.integer("lanes"), mr=config.integer("mr"), nv=config.integer("nv"), contraction=contraction
        )
        params = _params(found, point, sizes, parsed.steps, parsed.bias is not None, cpu.has_avx512)
        source = transposed(params)
        repeat = found.kernel[1] if params.merged else 1
        vectors = ([parsed.bias] if parsed.bias else []) + list(parsed.vectors)
        return Kernel(
            text=rebind(source, signature, (found.x, *parsed.tensors), signature.outputs),
            contraction=contraction,
            weights=(
                _weights(found, params),
                *(vector_weight(v, found.channels_out, point.lanes, repeat=repeat) for v in vectors),
            ),
            params=sizes.params,
            split=split_of(target.threads),
        )
