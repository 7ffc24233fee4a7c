"""Stages that search along one axis: arg_max, arg_min, top_k, cumsum.

Imported by: stages.  Imports: frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE, compute_dtype
from tribunus_native.loops.frame import Frame, Tensor

Emitter = Callable[[Group, Op], None]


def value_at(frame: Frame, tensor: Tensor, text: str) -> str:
    """A stored element as the scalar it is computed with."""
    frame.dtypes.add(tensor.dtype)
    return f"from_bf16((vec_u16)({text}))[0]" if tensor.dtype is DType.BF16 else text


def _others(frame: Frame, tensor: Tensor, axis: int) -> list[int]:
    top = frame.scope.optimum()
    return sorted((a for a in range(tensor.rank) if a != axis), key=lambda a: -dims.evaluate(tensor.strides[a], top))


def _arg(group: Group, op: Op) -> None:
    """NaN is extreme: the first one (the last with select_last) wins over every number."""
    frame, axis = group.frame, op.attributes.integer("axis")
    source, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    if not op.attributes.flag("keepdims"):
        out = out.inserted(axis)
    last = op.attributes.flag("select_last")
    better = (">" if op.kind == "arg_max" else "<") + ("=" if last else "")
    c_type = STORAGE[compute_dtype(source.dtype)]
    with frame.loops([(a, source.shape[a]) for a in _others(frame, source, axis)], "a", source.rank) as at:
        code = frame.code
        first = frame.at(source, [*at[:axis], "0", *at[axis + 1 :]])
        code.line(f"{c_type} best = {value_at(frame, source, first)};", "int64_t found = 0;")
        with code.block(f"for (int64_t k = 1; k < {frame.c(source.shape[axis])}; k++)"):
            here = frame.at(source, [*at[:axis], "k", *at[axis + 1 :]])
            code.line(f"const {c_type} x = {value_at(frame, source, here)};")
            if compute_dtype(source.dtype).is_float:
                rule = f"best != best ? {'x != x' if last else '0'} : (x {better} best || x != x)"
            else:
                rule = f"x {better} best"
            code.line(f"if ({rule}) {{ best = x; found = k; }}")
        code.line(f"{frame.at(out, [*at[:axis], '0', *at[axis + 1 :]])} = found;")


def _cumsum(group: Group, op: Op) -> None:
    frame, axis = group.frame, op.attributes.integer("axis")
    source, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    reverse, exclusive = op.attributes.flag("reverse"), op.attributes.flag("exclusive")
    dtype = compute_dtype(source.dtype)
    c_type = STORAGE[dtype] if dtype.is_float else "uint64_t"
    frame.dtypes.add(out.dtype)
    with frame.loops([(a, source.shape[a]) for a in _others(frame, source, axis)], "s", source.rank) as at:
        code, n = frame.code, frame.c(source.shape[axis])
        code.line(f"{c_type} total = 0;")
        with code.block(f"for (int64_t step = 0; step < {n}; step++)"):
            code.line(f"const int64_t k = {f'{n} - 1 - step' if reverse else 'step'};")
            here = [*at[:axis], "k", *at[axis + 1 :]]
            place, value = frame.at(out, here), value_at(frame, source, frame.at(source, here))
            store = "to_bf16(splat(total))[0]" if out.dtype is DType.BF16 else f"({STORAGE[out.dtype]})total"
            lines = [f"{place} = {store};", f"total += ({c_type}){value};"]
            code.line(*(lines if exclusive else reversed(lines)))


def _top_k(group: Group, op: Op) -> None:
    """The k best so far are kept sorted; NaN counts as larger than every number; of equals the lower index is first."""
    frame, axis = group.frame, op.attributes.integer("axis")
    source, values, indices = group.tensor(op.inputs[0]), group.result(op.outputs[0]), group.result(op.outputs[1])
    (k,) = op.attributes.dims("k")
    dtype = compute_dtype(source.dtype)
    c_type = STORAGE[dtype]
    best = frame.space(c_type, dtype.itemsize, k, "best")
    found = frame.space("int64_t", 8, k, "found")
    largest = op.attributes.flag("largest")
    if dtype.is_float:
        more = "x > y || (x != x && y == y)" if largest else "x < y || (y != y && x == x)"
    else:
        more = "x > y" if largest else "x < y"
    before = frame.helper("before", f"INLINE int before({c_type} x, {c_type} y) {{ return {more}; }}")
    frame.dtypes.add(values.dtype)
    with frame.loops([(a, source.shape[a]) for a in _others(frame, source, axis)], "s", source.rank) as at:
        code, n, count = frame.code, frame.c(source.shape[axis]), frame.c(k)
        code.line("int64_t held = 0;")
        with code.block(f"for (int64_t i = 0; i < {n}; i++)"):
            here = frame.at(source, [*at[:axis], "i", *at[axis + 1 :]])
            code.line(f"const {c_type} x = {value_at(frame, source, here)};")
            code.line(f"if (held == {count} && ({count} == 0 || !{before}(x, {best}[held - 1]))) continue;")
            code.line(f"int64_t place = held < {count} ? held++ : held - 1;")
            with code.block(f"for (; place > 0 && {before}(x, {best}[place - 1]); place--)"):
                code.line(f"{best}[place] = {best}[place - 1];", f"{found}[place] = {found}[place - 1];")
            code.line(f"{best}[place] = x;", f"{found}[place] = i;")
        with code.block(f"for (int64_t i = 0; i < {count}; i++)"):
            there = [*at[:axis], "i", *at[axis + 1 :]]
            stored = f"to_bf16(splat({best}[i]))[0]" if values.dtype is DType.BF16 else f"{best}[i]"
            code.line(f"{frame.at(values, there)} = {stored};", f"{frame.at(indices, there)} = {found}[i];")


EMITTERS: Mapping[str, Emitter] = {"arg_max": _arg, "arg_min": _arg, "cumsum": _cumsum, "top_k": _top_k}
