"""Normalizations, softmax and dynamic quantization as stages of folds and maps.

Imported by: stages.  Imports: nest.

Statistics in two passes: the mean, then the mean of the squared differences.  Exponentials are taken of differences to
the maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import NO_ATTRIBUTES, Attributes
from tribunus.phaseir.dims import Shape
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.expression import Call
from tribunus_native.loops.frame import Tensor
from tribunus_native.loops.nest import Apply, Constant, Leaf, Node, Reduction, emit_map, emit_reduce

Emitter = Callable[[Group, Op], None]


class Sketch:
    """Nodes of one nest, written as calls."""

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nodes: list[Node] = []

    def leaf(self, tensor: Tensor) -> int:
        self.nodes.append(Leaf(tensor.expanded(self.shape)))
        return len(self.nodes) - 1

    def number(self, value: float) -> int:
        self.nodes.append(Constant(value, self.dtype))
        return len(self.nodes) - 1

    def apply(self, kind: str, *args: int, to: DType | None = None, operands: tuple[DType, ...] = ()) -> int:
        types = operands or (self.dtype,) * len(args)
        attributes = NO_ATTRIBUTES if kind != "cast" else Attributes.of({"to": (to or self.dtype).value})
        self.nodes.append(Apply(Call(kind, attributes, types, to or self.dtype), args))
        return len(self.nodes) - 1


def fold(group: Group, sketch: Sketch, kind: str, axes: tuple[int, ...], dtype: DType) -> Tensor:
    """A temporary with extent 1 on ``axes``: the fold of the sketch's last node."""
    shape = tuple(1 if a in axes else d for a, d in enumerate(sketch.shape))
    out = group.frame.temp(dtype, shape)
    count = dims.product([sketch.shape[a] for a in axes])
    emit_reduce(group.frame, sketch.nodes, sketch.shape, out, Reduction(kind, axes, count), group.unroll)
    return out


def _wide(dtype: DType) -> DType:
    """dtype of statistics."""
    return DType.F64 if dtype is DType.F64 else DType.F32


def standardise(
    group: Group,
    x: Tensor,
    out: Tensor,
    axes: tuple[int, ...],
    eps: float,
    scale: Tensor | None,
    bias: Tensor | None,
    centred: bool,
) -> None:
    """(x - mean) / sqrt(variance + eps) * scale + bias; without the mean if not centred."""
    dtype = _wide(x.dtype)
    mean = None
    if centred:
        plain = Sketch(x.shape, dtype)
        plain.leaf(x)
        mean = fold(group, plain, "reduce_mean", axes, dtype)

    def difference(sketch: Sketch) -> int:
        value = sketch.leaf(x)
        return value if mean is None else sketch.apply("sub", value, sketch.leaf(mean))

    squares = Sketch(x.shape, dtype)
    d = difference(squares)
    squares.apply("mul", d, d)
    square = fold(group, squares, "reduce_mean", axes, dtype)
    factor = group.frame.temp(dtype, square.shape)
    inverse = Sketch(square.shape, dtype)
    variance = inverse.apply("add", inverse.leaf(square), inverse.number(eps))
    inverse.apply("reciprocal", inverse.apply("sqrt", variance))
    emit_map(group.frame, inverse.nodes, factor, 1)
    result = Sketch(x.shape, dtype)
    value = result.apply("mul", difference(result), result.leaf(factor))
    if scale is not None:
        value = result.apply("mul", value, result.leaf(scale))
    if bias is not None:
        result.apply("add", value, result.leaf(bias))
    emit_map(group.frame, result.nodes, out, group.unroll)


def _layer_norm(group: Group, op: Op) -> None:
    x, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    axes = tuple(range(op.attributes.integer("axis"), x.rank))
    extra = [group.tensor(v) if v >= 0 else None for v in op.inputs[1:]] + [None, None]
    standardise(group, x, out, axes, op.attributes.f32("eps"), extra[0], extra[1], op.kind == "layer_norm")


def _channels(vector: Tensor, rank: int, axis: int = 1) -> Tensor:
    """One number a channel as a tensor of ``rank``."""
    found = vector
    for i in range(rank):
        if i < axis:
            found = found.inserted(0)
        elif i > axis:
            found = found.inserted(found.rank)
    return found


def _group_norm(group: Group, op: Op) -> None:
    x, out, groups = group.tensor(op.inputs[0]), group.result(op.outputs[0]), op.attributes.integer("groups")
    each = dims.floordiv(x.shape[1], groups)
    scale, bias = (_channels(group.tensor(v), x.rank).split(1, groups, each) for v in op.inputs[1:3])
    x, out = x.split(1, groups, each), out.split(1, groups, each)
    standardise(group, x, out, tuple(range(2, x.rank)), op.attributes.f32("eps"), scale, bias, True)


def _batch_norm(group: Group, op: Op) -> None:
    """(x - mean) * (scale / sqrt(variance + eps)) + bias; the factor once a channel."""
    x, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    dtype = _wide(x.dtype)
    scale, bias, mean, variance = (group.tensor(v) for v in op.inputs[1:5])
    factor = group.frame.temp(dtype, scale.shape)
    sketch = Sketch(scale.shape, dtype)
    shifted = sketch.apply("add", sketch.leaf(variance), sketch.number(op.attributes.f32("eps")))
    sketch.apply("div", sketch.leaf(scale), sketch.apply("sqrt", shifted))
    emit_map(group.frame, sketch.nodes, factor, 1)
    result = Sketch(x.shape, dtype)
    difference = result.apply("sub", result.leaf(x), result.leaf(_channels(mean, x.rank)))
    scaled = result.apply("mul", difference, result.leaf(_channels(factor, x.rank)))
    result.apply("add", scaled, result.leaf(_channels(bias, x.rank)))
    emit_map(group.frame, result.nodes, out, group.unroll)


def _softmax(group: Group, op: Op) -> None:
    x, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    axes, dtype = (op.attributes.integer("axis"),), _wide(x.dtype)
    plain = Sketch(x.shape, dtype)
    plain.leaf(x)
    top = fold(group, plain, "reduce_max", axes, dtype)
    logarithm = op.kind == "log_softmax"
    held = out if out.dtype is dtype and not logarithm else None

    def shifted(sketch: Sketch) -> int:
        return sketch.apply("sub", sketch.leaf(x), sketch.leaf(top))

    terms = Sketch(x.shape, dtype)
    terms.apply("exp", shifted(terms))
    if held is not None:
        emit_map(group.frame, terms.nodes, held, group.unroll)
        terms = Sketch(x.shape, dtype)
        terms.leaf(held)
    total = fold(group, terms, "reduce_sum", axes, dtype)
    result = Sketch(x.shape, dtype)
    if logarithm:
        result.apply("sub", shifted(result), result.apply("log", result.leaf(total)))
    elif held is not None:
        result.apply("div", result.leaf(held), result.leaf(total))
    else:
        result.apply("div", result.apply("exp", shifted(result)), result.leaf(total))
    emit_map(group.frame, result.nodes, out, group.unroll)


def _dynamic_quantize(group: Group, op: Op) -> None:
    x = group.tensor(op.inputs[0])
    y, scale, zero = (group.result(v) for v in op.outputs)
    axes = tuple(range(x.rank))
    plain = Sketch(x.shape, DType.F32)
    plain.leaf(x)
    ends = []
    for kind, limit in (("reduce_max", "maximum"), ("reduce_min", "minimum")):
        end = fold(group, plain, kind, axes, DType.F32)
        flat = Tensor(end.pointer, DType.F32, (), ())
        clamped = Sketch((), DType.F32)
        clamped.apply(limit, clamped.leaf(flat), clamped.number(0.0))
        kept = group.frame.temp(DType.F32, ())
        emit_map(group.frame, clamped.nodes, kept, 1)
        ends.append(kept)
    span = Sketch((), DType.F32)
    width = span.apply("sub", span.leaf(ends[0]), span.leaf(ends[1]))
    wide = span.apply("greater", width, span.number(0.0), to=DType.BOOL)
    part = span.apply("div", width, span.number(255.0))
    span.apply("where", wide, part, span.number(1.0), operands=(DType.BOOL, DType.F32, DType.F32))
    emit_map(group.frame, span.nodes, scale, 1)
    lowest = Sketch((), DType.F32)
    shift = lowest.apply("div", lowest.apply("neg", lowest.leaf(ends[1])), lowest.leaf(scale))
    bounded = lowest.apply("minimum", lowest.apply("maximum", shift, lowest.number(0.0)), lowest.number(255.0))
    lowest.apply("cast", lowest.apply("round", bounded), to=DType.U8)
    emit_map(group.frame, lowest.nodes, zero, 1)
    quantized = Sketch(x.shape, DType.F32)
    operands = (DType.F32, DType.F32, DType.U8)
    quantized.apply(
        "quantize_linear",
        quantized.leaf(x), quantized.leaf(scale), quantized.leaf(zero), to=DType.U8, operands=operands,
    )  # fmt: skip
    emit_map(group.frame, quantized.nodes, y, group.unroll)


EMITTERS: Mapping[str, Emitter] = {
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "dynamic_quantize_linear": _dynamic_quantize,
}
