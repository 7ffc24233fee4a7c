"""Stages that index with data: gather, gather_elements, gather_nd, scatter_elements, scatter_nd, one_hot.

Imported by: stages.  Imports: frame, movement.

Negative indices count from the end.  Scatters apply their updates one after the other, in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE
from tribunus_native.loops.frame import Frame, Tensor, plus
from tribunus_native.loops.movement import copy

Emitter = Callable[[Group, Op], None]


def _index(frame: Frame, indices: Tensor, at: Sequence[str], extent: Dim, name: str) -> None:
    """``const int64_t name``: an index counted from the front."""
    code = frame.code
    code.line(f"int64_t {name} = {frame.at(indices, at)};")
    code.line(f"if ({name} < 0) {name} += {frame.c(extent)};")


def _gather(group: Group, op: Op) -> None:
    frame, axis = group.frame, op.attributes.integer("axis")
    source, indices, out = (
        group.tensor(op.inputs[0]).raw(),
        group.tensor(op.inputs[1]),
        group.result(op.outputs[0]).raw(),
    )
    between = range(axis, axis + indices.rank)
    order = [*range(axis), *between]
    rest = list(range(axis + indices.rank, out.rank))
    with frame.loops([(a, out.shape[a]) for a in order], "g", out.rank) as at:
        _index(frame, indices, [at[a] for a in between], source.shape[axis], "row")
        mine = [*at[:axis], "row", *("0" for _ in rest)]
        place_from = plus(source.pointer, frame.offset(source.strides, mine))
        place_to = plus(out.pointer, frame.offset(out.strides, [*at[: axis + indices.rank], *("0" for _ in rest)]))
        c_type = STORAGE[out.dtype]
        frame.code.line(f"const {c_type} *const from = {place_from};", f"{c_type} *const to = {place_to};")
        shape = tuple(out.shape[a] for a in rest)
        part = Tensor("from", out.dtype, shape, source.strides[axis + 1 :])
        target = Tensor("to", out.dtype, shape, out.strides[axis + indices.rank :])
        _plain_copy(frame, part, target)


def _plain_copy(frame: Frame, source: Tensor, out: Tensor) -> None:
    """A copy inside a loop that already splits the work; the compiler makes vectors of the innermost loop."""
    top = frame.scope.optimum()
    order = sorted(range(out.rank), key=lambda a: -dims.evaluate(out.strides[a], top))
    with frame.loops([(a, out.shape[a]) for a in order], "c", out.rank, split=False) as at:
        frame.code.line(f"{frame.at(out, at)} = {frame.at(source, at)};")


def _gather_elements(group: Group, op: Op) -> None:
    frame, axis = group.frame, op.attributes.integer("axis")
    source, indices, out = (
        group.tensor(op.inputs[0]).raw(),
        group.tensor(op.inputs[1]),
        group.result(op.outputs[0]).raw(),
    )
    with frame.loops(list(enumerate(out.shape)), "g", out.rank) as at:
        _index(frame, indices, at, source.shape[axis], "row")
        mine = [*at[:axis], "row", *at[axis + 1 :]]
        frame.code.line(f"{frame.at(out, at)} = {frame.at(source, mine)};")


def _gather_nd(group: Group, op: Op) -> None:
    frame, batch = group.frame, op.attributes.integer("batch_dims")
    source, indices, out = (
        group.tensor(op.inputs[0]).raw(),
        group.tensor(op.inputs[1]),
        group.result(op.outputs[0]).raw(),
    )
    depth = _depth(indices)
    front = indices.rank - 1
    with frame.loops([(a, e) for a, e in enumerate(out.shape)][:front], "g", out.rank) as at:
        for d in range(depth):
            _index(frame, indices, [*at[:front], str(d)], source.shape[batch + d], f"row{d}")
        rest = out.rank - front
        mine = [*at[:batch], *(f"row{d}" for d in range(depth)), *("0" for _ in range(rest))]
        c_type = STORAGE[out.dtype]
        place = plus(source.pointer, frame.offset(source.strides, mine))
        target = plus(out.pointer, frame.offset(out.strides, [*at[:front], *("0" for _ in range(rest))]))
        frame.code.line(f"const {c_type} *const from = {place};", f"{c_type} *const to = {target};")
        shape = out.shape[front:]
        _plain_copy(
            frame,
            Tensor("from", out.dtype, shape, source.strides[batch + depth :]),
            Tensor("to", out.dtype, shape, out.strides[front:]),
        )


def _depth(indices: Tensor) -> int:
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise InternalError("the last extent of indices must be a number")
    return depth


_FLOAT_COMBINE = {
    "add": "a + b",
    "mul": "a * b",
    "min": "a != a ? a : (a < b ? a : b)",
    "max": "a != a ? a : (a > b ? a : b)",
}


def _combine(frame: Frame, dtype: DType, reduction: str) -> str:
    """Name of a scalar function of (old, update)."""
    storage = STORAGE[dtype]
    if reduction == "none":
        text = f"INLINE {storage} combine({storage} a, {storage} b) {{ (void)a; return b; }}"
    elif dtype in (DType.F16, DType.BF16):
        frame.dtypes.add(dtype)
        load = "(float)({})" if dtype is DType.F16 else "from_bf16((vec_u16)({}))[0]"
        store = "(_Float16)({})" if dtype is DType.F16 else "to_bf16(splat({}))[0]"
        text = (
            f"INLINE {storage} combine({storage} x, {storage} y) {{ const float a = {load.format('x')}, "
            f"b = {load.format('y')}; return {store.format(_FLOAT_COMBINE[reduction])}; }}"
        )
    else:
        wide = "" if dtype.is_float else f"({storage})(uint64_t)"
        formula = _FLOAT_COMBINE[reduction]
        if not dtype.is_float and reduction in ("add", "mul"):
            formula = f"{wide}((uint64_t)a {'+' if reduction == 'add' else '*'} (uint64_t)b)"
        text = f"INLINE {storage} combine({storage} a, {storage} b) {{ return {formula}; }}"
    return frame.helper("combine", text)


def _scatter_elements(group: Group, op: Op) -> None:
    frame, axis, reduction = group.frame, op.attributes.integer("axis"), op.attributes.text("reduction")
    source, indices, updates = (group.tensor(v) for v in op.inputs)
    out = group.result(op.outputs[0])
    copy(frame, source, out)
    function = _combine(frame, out.dtype, reduction)
    with frame.loops(list(enumerate(indices.shape)), "s", out.rank) as at:
        _index(frame, indices, at, out.shape[axis], "row")
        mine = [*at[:axis], "row", *at[axis + 1 :]]
        place = frame.at(out, mine)
        frame.code.line(f"{place} = {function}({place}, {frame.at(updates, at)});")


def _scatter_nd(group: Group, op: Op) -> None:
    frame, reduction = group.frame, op.attributes.text("reduction")
    source, indices, updates = (group.tensor(v) for v in op.inputs)
    out = group.result(op.outputs[0])
    copy(frame, source, out)
    function = _combine(frame, out.dtype, reduction)
    depth, front = _depth(indices), indices.rank - 1
    with frame.loops(list(enumerate(updates.shape)), "s", updates.rank) as at:
        for d in range(depth):
            _index(frame, indices, [*at[:front], str(d)], out.shape[d], f"row{d}")
        mine = [*(f"row{d}" for d in range(depth)), *at[front:]]
        place = frame.at(out, mine)
        frame.code.line(f"{place} = {function}({place}, {frame.at(updates, at)});")


def _one_hot(group: Group, op: Op) -> None:
    frame, axis = group.frame, op.attributes.integer("axis")
    indices, values, out = (
        group.tensor(op.inputs[0]),
        group.tensor(op.inputs[1]).raw(),
        group.result(op.outputs[0]).raw(),
    )
    (depth,) = op.attributes.dims("depth")
    top = frame.scope.optimum()
    order = sorted(range(out.rank), key=lambda a: -dims.evaluate(out.strides[a], top))
    c_type = STORAGE[out.dtype]
    frame.code.line(f"const {c_type} off = {values.pointer}[0], on = {values.pointer}[{frame.c(values.strides[0])}];")
    with frame.loops([(a, out.shape[a]) for a in order], "h", out.rank) as at:
        _index(frame, indices, [*at[:axis], *at[axis + 1 :]], depth, "row")
        frame.code.line(f"{frame.at(out, at)} = row == {at[axis]} ? on : off;")


EMITTERS: Mapping[str, Emitter] = {
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "one_hot": _one_hot,
}
MOVES = frozenset(("gather", "gather_elements", "gather_nd"))
SERIAL = frozenset(("scatter_elements", "scatter_nd"))
