"""Stages that search along one axis: arg_max, arg_min, top_k, cumsum.

Imported by: stages.  Imports: frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import INTEGER_RANGE
from tribunus.phaseir import dims
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE, compute_dtype, literal, splat, vector
from tribunus_native.loops.frame import Frame, Tensor, plus, times

Emitter = Callable[[Group, Op], None]


def value_at(frame: Frame, tensor: Tensor, text: str) -> str:
    """A stored element as the scalar it is computed with."""
    frame.dtypes.add(tensor.dtype)
    return f"from_bf16((vec_u16)({text}))[0]" if tensor.dtype is DType.BF16 else text


def _others(frame: Frame, tensor: Tensor, axis: int) -> list[int]:
    top = frame.scope.optimum()
    return sorted((a for a in range(tensor.rank) if a != axis), key=lambda a: -dims.evaluate(tensor.strides[a], top))


def _arg(group: Group, op: Op) -> None:
    """NaN is extreme: the first one (the last with select_last) wins over every number.

    Elements become signed integers that grow with what is looked for, NaN largest, so that vectors compare them
    without branches: along the axis where that is contiguous, else across it.
    """
    frame, axis = group.frame, op.attributes.integer("axis")
    source, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    if not op.attributes.flag("keepdims"):
        out = out.inserted(axis)
    computed = compute_dtype(source.dtype)
    key = DType.I64 if computed.itemsize == 8 or computed is DType.U32 else DType.I32
    frame.dtypes.update((source.dtype, key, DType.I64))
    search = _Search(frame, source, out, axis, key, last=op.attributes.flag("select_last"))
    search.key_of = frame.helper(f"key_{op.kind}_{computed.value}", _key_text(op.kind == "arg_max", computed, key))
    others = _others(frame, source, axis)
    if source.strides[axis] == 1 or not others or source.shape[others[-1]] == 1:
        search.along(others)
    else:
        search.across(others)


def _key_text(largest: bool, dtype: DType, key: DType) -> str:
    """A vector of elements as integers that order them; -0 equals 0."""
    own, most = vector(key), literal(INTEGER_RANGE[key][1], key)
    name = f"key_{'arg_max' if largest else 'arg_min'}_{dtype.value}"
    lines = [f"INLINE {own} {name}({vector(dtype)} x) {{"]
    if dtype.is_float:
        lines.append(f"  const {own} bits = ({own})(x + {splat('0', dtype)});")
        lines.append(f"  const {own} order = bits ^ ((bits >> {key.bits - 1}) & {splat(most, key)});")
        nan = f"({own})(x != x)"
        chosen = "order" if largest else "~order"
        lines.append(f"  return ({nan} & {splat(most, key)}) | (~{nan} & {chosen});")
    else:
        if dtype is DType.U64:
            lines.append(f"  const {own} order = ({own})(x ^ {splat('0x8000000000000000ULL', dtype)});")
        else:
            lines.append(f"  const {own} order = __builtin_convertvector(x, {own});")
        lines.append(f"  return {'order' if largest else '~order'};")
    return "\n".join((*lines, "}"))


class _Search:
    """Writes one search.  key: integer dtype that elements are compared as; key_of: the function that makes it."""

    def __init__(self, frame: Frame, source: Tensor, out: Tensor, axis: int, key: DType, *, last: bool) -> None:
        self.frame, self.source, self.out, self.axis, self.key, self.last = frame, source, out, axis, key, last
        self.key_of = ""
        self.extent = frame.c(source.shape[axis])
        self.better = ">=" if last else ">"

    def _update(self, index: str, keys: str) -> None:
        own = vector(self.key)
        self.frame.code.line(
            f"const {own} keys = {self.key_of}({keys});",
            f"const {own} wins = ({own})(keys {self.better} best);",
            "best = (wins & keys) | (~wins & best);",
            f"found = (wins & {index}) | (~wins & found);",
        )

    def _begin(self) -> None:
        own, low = vector(self.key), literal(INTEGER_RANGE[self.key][0], self.key)
        self.frame.code.line(f"{own} best = {splat(low, self.key)}, found = {splat('0', self.key)};")

    def along(self, others: list[int]) -> None:
        """Every lane looks at each LANES-th element; the lanes are compared at the end."""
        frame, code, axis, scalar = self.frame, self.frame.code, self.axis, STORAGE[self.key]
        kind = "u8" if self.source.dtype is DType.BOOL else self.source.dtype.value
        step = frame.c(self.source.strides[axis])
        load = "load_{kind}({place})" if step == "1" else "load_part_{kind}({place}, {step}, LANES)"
        with frame.loops([(a, self.source.shape[a]) for a in others], "a", self.source.rank) as at:
            first = frame.at(self.source, [*at[:axis], "0", *at[axis + 1 :]])
            code.line(f"const {STORAGE[self.source.dtype]} *const from = &{first};")
            self._begin()
            lanes = ", ".join(str(lane) for lane in range(frame.lanes))
            code.line(f"{vector(self.key)} index = {{{lanes}}};", "int64_t k = 0;")
            with code.block(f"for (; k + LANES <= {self.extent}; k += LANES)"):
                self._update("index", load.format(kind=kind, place=plus("from", times("k", step)), step=step))
                code.line(f"index += {splat('LANES', self.key)};")
            with code.block(f"if (k < {self.extent})"):
                # Absent lanes repeat the first element of the rest, its index included.
                place, left = plus("from", times("k", step)), f"{self.extent} - k"
                code.line(
                    f"const {vector(self.key)} absent = ({vector(self.key)})(index >= {splat(self.extent, self.key)});"
                )
                code.line(f"index = (absent & {splat('k', self.key)}) | (~absent & index);")
                element = vector(compute_dtype(self.source.dtype))
                code.line(f"const {element} part = load_part_{kind}({place}, {step}, {left});")
                code.line(f"{element} filled = part;")
                code.line("for (int lane = 1; lane < LANES; lane++) if (absent[lane]) filled[lane] = part[0];")
                self._update("index", "filled")
            code.line(f"{scalar} top = best[0], place = found[0];")
            with code.block("for (int lane = 1; lane < LANES; lane++)"):
                tie = ">" if self.last else "<"
                code.line(f"if (best[lane] > top || (best[lane] == top && found[lane] {tie} place))")
                code.line("  { top = best[lane]; place = found[lane]; }")
            code.line(f"{frame.at(self.out, [*at[:axis], '0', *at[axis + 1 :]])} = place;")

    def across(self, others: list[int]) -> None:
        """Lanes lie along the fastest other axis."""
        frame, code, axis = self.frame, self.frame.code, self.axis
        inner = others[-1]
        kind = "u8" if self.source.dtype is DType.BOOL else self.source.dtype.value
        step, width = frame.c(self.source.strides[inner]), frame.c(self.source.shape[inner])
        with (
            frame.loops([(a, self.source.shape[a]) for a in others[:-1]], "a", self.source.rank) as at,
            code.block(f"for (int64_t j = 0; j < {width}; j += LANES)"),
        ):
            code.line(f"const int64_t count = {width} - j < LANES ? {width} - j : LANES;")
            self._begin()
            for whole in (True, False):
                with (
                    code.block("if (count == LANES)" if whole else "else"),
                    code.block(f"for (int64_t k = 0; k < {self.extent}; k++)"),
                ):
                    place = list(at)
                    place[inner], place[axis] = "j", "k"
                    pointer = f"&{frame.at(self.source, place)}"
                    plain = whole and step == "1"
                    keys = f"load_{kind}({pointer})" if plain else f"load_part_{kind}({pointer}, {step}, count)"
                    self._update(splat("k", self.key), keys)
            place = list(at)
            place[inner], place[axis] = "j", "0"
            to, wide = f"&{frame.at(self.out, place)}", "__builtin_convertvector(found, vec_i64)"
            code.line(f"store_part_i64({to}, {frame.c(self.out.strides[inner])}, count, {wide});")


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
