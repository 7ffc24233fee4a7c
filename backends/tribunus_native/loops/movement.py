"""Stages that move or generate elements: copy, reshape, transpose, slice, concat, pad, expand, tile, fill, iota.

Imported by: stages.  Imports: frame, nest, transpose.

Most of them are views of their operand, copied only where the result leaves the group.  Bytes move as integers: NaN
payloads and -0 survive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tribunus.errors import InternalError
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.dims import Dim, Sym
from tribunus.phaseir.layouts import row_major
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE, compute_dtype, literal
from tribunus_native.loops.frame import Frame, Tensor, dense, plus, times
from tribunus_native.loops.nest import emit_copy
from tribunus_native.loops.transpose import emit_transpose, transposes, vanishing

Emitter = Callable[[Group, Op], None]


def copy(frame: Frame, source: Tensor, out: Tensor) -> None:
    """Copy by whatever suits the strides; where a symbol decides what that is, 1 has a version of its own."""
    source = source.expanded(out.shape)
    if not transposes(source, out):
        emit_copy(frame, source, out)
        return
    symbol = vanishing(frame, source, out)
    if symbol is None:
        emit_transpose(frame, source, out)
        return
    with frame.code.block(f"if ({frame.c(symbol)} == 1)"):
        copy(frame, _at_one(source, symbol), _at_one(out, symbol))
    with frame.code.block("else"):
        emit_transpose(frame, source, out)


def _at_one(tensor: Tensor, symbol: Sym) -> Tensor:
    """The same memory where the symbol is 1."""
    shape, strides = (
        tuple(dims.substitute(d, {symbol.name: 1}) for d in each) for each in (tensor.shape, tensor.strides)
    )
    return replace(tensor, shape=shape, strides=strides)


def _deliver(group: Group, value: int, view: Tensor) -> None:
    """A view as the value: copied where the value leaves the group."""
    if value in group.outputs:
        copy(group.frame, view, group.result(value))
    else:
        group.define(value, view)


def _copy(group: Group, op: Op) -> None:
    _deliver(group, op.outputs[0], group.tensor(op.inputs[0]))


def _transpose(group: Group, op: Op) -> None:
    _deliver(group, op.outputs[0], group.tensor(op.inputs[0]).permuted(op.attributes.integers("perm")))


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements lie row-major."""
    step: Dim = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step = dims.mul(step, extent)
    return True


def flat(tensor: Tensor) -> Tensor:
    """A row-major tensor as one axis."""
    return Tensor(tensor.pointer, tensor.dtype, (dims.product(tensor.shape),), (1,))


def _reshape(group: Group, op: Op) -> None:
    """Row-major memory seen with another shape; other memory is brought into that order first."""
    source, value = group.tensor(op.inputs[0]), op.outputs[0]
    type_ = group.type_of(value)
    if not is_dense(source):
        ordered = group.frame.temp(source.dtype, source.shape)
        copy(group.frame, source, ordered)
        source = ordered
    view = dense(source.pointer, type_.dtype, type_.shape, row_major(type_.rank))
    if value not in group.outputs:
        group.define(value, view)
        return
    out = group.result(value)
    if is_dense(out):
        copy(group.frame, flat(view), flat(out))
    else:
        copy(group.frame, view, out)


def shifted(frame: Frame, tensor: Tensor, starts: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Tensor:
    """The part of a tensor that begins at ``starts``."""
    offset = frame.offset(tensor.strides, [frame.c(s) for s in starts])
    return replace(tensor, pointer=f"({plus(tensor.pointer, offset)})", shape=shape)


def _slice(group: Group, op: Op) -> None:
    steps, sizes = op.attributes.integers("steps"), op.attributes.dims("sizes")
    part = shifted(group.frame, group.tensor(op.inputs[0]), op.attributes.dims("starts"), sizes)
    strides = tuple(dims.mul(s, k) for s, k in zip(part.strides, steps, strict=True))
    _deliver(group, op.outputs[0], replace(part, strides=strides))


def _concat(group: Group, op: Op) -> None:
    axis, out = op.attributes.integer("axis"), group.result(op.outputs[0])
    start: Dim = 0
    for value in op.inputs:
        source = group.tensor(value)
        starts = tuple(start if a == axis else 0 for a in range(out.rank))
        copy(group.frame, source, shifted(group.frame, out, starts, source.shape))
        start = dims.add(start, source.shape[axis])


def _expand(group: Group, op: Op) -> None:
    _deliver(group, op.outputs[0], group.tensor(op.inputs[0]).expanded(group.type_of(op.outputs[0]).shape))


def _tile(group: Group, op: Op) -> None:
    source, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    for axis in reversed(range(source.rank)):
        repeats = op.attributes.dims("repeats")[axis]
        out = out.split(axis, repeats, source.shape[axis])
        source = source.inserted(axis)
    copy(group.frame, source, out)


def fill(frame: Frame, out: Tensor, value: str) -> None:
    """Every element of ``out`` becomes a C value of its storage type."""
    order = sorted(range(out.rank), key=lambda a: -dims.evaluate(out.strides[a], frame.scope.optimum()))
    with frame.loops([(a, out.shape[a]) for a in order], "f", out.rank) as indices:
        frame.code.line(f"{frame.at(out, indices)} = {value};")


def _number(value: float | int, tensor: Tensor) -> str:
    dtype = tensor.dtype
    text = literal(value, compute_dtype(dtype))
    return f"to_bf16(splat({text}))[0]" if dtype.value == "bf16" else f"({STORAGE[dtype]})({text})"


def _fill(group: Group, op: Op) -> None:
    value = op.attributes.get("value")
    out = group.result(op.outputs[0])
    group.frame.dtypes.add(out.dtype)
    if isinstance(value, F32):
        fill(group.frame, out, _number(value.value, out))
    elif isinstance(value, int):
        fill(group.frame, out, _number(value, out))
    else:
        raise InternalError(f"fill: value {value!r} is no number")


def _iota(group: Group, op: Op) -> None:
    out, axis = group.result(op.outputs[0]), op.attributes.integer("axis")
    start, step = op.attributes.integer("start"), op.attributes.integer("step")
    frame = group.frame
    frame.dtypes.add(out.dtype)
    with frame.loops([(a, e) for a, e in enumerate(out.shape)], "f", out.rank) as indices:
        number = f"({start}LL + {step}LL * {indices[axis]})"
        text = f"to_bf16(splat((float){number}))[0]" if out.dtype.value == "bf16" else number
        frame.code.line(f"{frame.at(out, indices)} = ({STORAGE[out.dtype]}){text};")


def _extents(group: Group, op: Op) -> None:
    out, frame = group.result(op.outputs[0]), group.frame
    shape = op.attributes.integers("shape")
    for number, value in enumerate(op.attributes.dims("values")):
        indices: list[str] = []
        rest = number
        for extent in reversed(shape):
            indices.insert(0, str(rest % extent))
            rest //= extent
        guard = "if (part == 0) " if frame.parallel else ""
        frame.code.line(f"{guard}{frame.at(out, indices)} = ({STORAGE[out.dtype]}){frame.c(value)};")


def _pad(group: Group, op: Op) -> None:
    mode = op.attributes.text("mode")
    before, after = op.attributes.dims("before"), op.attributes.dims("after")
    source, out, frame = group.tensor(op.inputs[0]), group.result(op.outputs[0]), group.frame
    if mode == "constant":
        value = "0"
        if len(op.inputs) > 1 and op.inputs[1] >= 0:
            value = f"*{group.tensor(op.inputs[1]).pointer}"
        fill(frame, out.raw() if value == "0" else out, value)
        crop = tuple(dims.maximum(0, dims.sub(0, b)) for b in before)
        place = tuple(dims.maximum(0, b) for b in before)
        kept = tuple(
            dims.sub(dims.sub(extent, c), dims.maximum(0, dims.sub(0, a)))
            for extent, c, a in zip(source.shape, crop, after, strict=True)
        )
        copy(frame, shifted(frame, source, crop, kept), shifted(frame, out, place, kept))
        return
    crop = tuple(dims.maximum(0, dims.sub(0, b)) for b in before)
    kept = tuple(
        dims.sub(dims.sub(extent, c), dims.maximum(0, dims.sub(0, a)))
        for extent, c, a in zip(source.shape, crop, after, strict=True)
    )
    start = tuple(dims.maximum(0, b) for b in before)
    copy(frame, shifted(frame, source, crop, kept), shifted(frame, out, start, kept))
    _mirror(frame, out.raw(), start, kept, mode)


def _mirror(frame: Frame, out: Tensor, start: tuple[Dim, ...], kept: tuple[Dim, ...], mode: str) -> None:
    """The borders of ``out`` from its inside, axis by axis: the axes before are whole then, those behind are not."""
    order = sorted(range(out.rank), key=lambda a: -dims.evaluate(out.strides[a], frame.scope.optimum()))
    for axis in range(out.rank):
        origin = (*([0] * axis), *start[axis:])
        part = shifted(frame, out, origin, (*out.shape[:axis], *kept[axis:]))
        near, far = start[axis], dims.sub(dims.sub(out.shape[axis], kept[axis]), start[axis])
        for side, count, first in (("near", near, dims.sub(0, near)), ("far", far, kept[axis])):
            if count == 0:
                continue
            border = [(a, count if a == axis else part.shape[a]) for a in order]
            with frame.loops(border, "d", out.rank) as at:
                source = _mirrored(frame, mode, side, at[axis], near, kept[axis], count)
                here, there = (
                    [*at[:axis], f"({i})", *at[axis + 1 :]] for i in (f"{at[axis]} + {frame.c(first)}", source)
                )
                frame.code.line(f"{frame.at(part, here)} = {frame.at(part, there)};")


def _mirrored(frame: Frame, mode: str, side: str, index: str, near: Dim, kept: Dim, count: Dim) -> str:
    """Where element ``index`` of a border comes from, counted from the first inside."""
    extent = frame.c(kept)
    if mode == "edge":
        return "0" if side == "near" else f"{extent} - 1"
    reach = frame.scope.bounds(count)[1] + (mode == "reflect")
    if reach <= frame.scope.bounds(kept)[0]:
        if mode == "reflect":
            return f"{frame.c(near)} - {index}" if side == "near" else f"{extent} - 2 - {index}"
        return f"{extent} - {frame.c(near)} + {index}" if side == "near" else index
    helper = frame.helper(f"pad_{mode}", _PAD_INDEX[mode])
    place = f"{index} - {frame.c(near)}" if side == "near" else f"{extent} + {index}"
    return f"{helper}({place}, {extent})"


_PAD_INDEX = {
    "wrap": """
INLINE int64_t pad_wrap(int64_t i, int64_t extent) { i %= extent; return i < 0 ? i + extent : i; }
""",
    "reflect": """
// mirrored without repeating the border, as often as needed
INLINE int64_t pad_reflect(int64_t i, int64_t extent) {
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);
  i %= period;
  if (i < 0) i += period;
  return i < extent ? i : period - i;
}
""",
}

EMITTERS: Mapping[str, Emitter] = {
    "copy": _copy,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "expand": _expand,
    "tile": _tile,
    "fill": _fill,
    "iota": _iota,
    "extents": _extents,
}

__all__ = ["EMITTERS", "copy", "dense", "fill", "flat", "is_dense", "shifted", "times"]
