"""Loop nests over elementwise expressions: maps, and reductions of a mapped value.

Imported by: lower and the stages.  Imports: frame, expression, run, ctypes.

Axes are put into memory order, neighbours that every operand walks alike are merged, and the innermost axis is cut
into vectors.  What does not change along it is computed once a row.  Order of a sum: ACCUMULATORS vectors in turn,
added pairwise, then lanes by halving where the innermost axis is summed; else index by index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import INTEGER_RANGE
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Shape
from tribunus_native.loops import wide as f64
from tribunus_native.loops.ctypes import STORAGE, compute_dtype, is_signed, literal, splat, vector
from tribunus_native.loops.expression import QUANTIZE_CLIP, Call, expression, function_text
from tribunus_native.loops.frame import Frame, Tensor, plus, times
from tribunus_native.loops.run import copy_run

ACCUMULATORS = 4


@dataclass(frozen=True, slots=True)
class Leaf:
    """An operand, already broadcast to the shape of the nest."""

    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Constant:
    """One number."""

    value: float | int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Apply:
    """An op on earlier nodes."""

    call: Call
    args: tuple[int, ...]


Node = Leaf | Constant | Apply


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop: its extent, whether it is reduced, strides of the result and of each leaf."""

    extent: Dim
    reduced: bool
    strides: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """What folds the values of a nest.  kind: the op's.  count: values in a fold, for means."""

    kind: str
    axes: tuple[int, ...]
    count: Dim


def emit_map(frame: Frame, nodes: Sequence[Node], out: Tensor, unroll: int) -> None:
    """``out[i] = nodes[-1]`` for every index of ``out``."""
    with frame.code.block(""):
        _Nest(frame, nodes, out, None, unroll).emit_map()


def emit_copy(frame: Frame, source: Tensor, out: Tensor, unroll: int = 2) -> None:
    """Move every element; ``source`` broadcasts to ``out``.  No bit changes."""
    emit_map(frame, (Leaf(source.expanded(out.shape).raw()),), out.raw(), unroll)


def emit_reduce(
    frame: Frame, nodes: Sequence[Node], shape: Shape, out: Tensor, reduction: Reduction, unroll: int
) -> None:
    """Fold ``nodes[-1]`` over the reduced axes of ``shape``; ``out`` has extent 1 there."""
    spread = Tensor(
        out.pointer,
        out.dtype,
        shape,
        tuple(0 if i in reduction.axes else s for i, s in enumerate(out.strides)),
    )
    with frame.code.block(""):
        _Nest(frame, nodes, spread, reduction, unroll).emit_reduce()


def reading_order(frame: Frame, nodes: Sequence[Node], out: Tensor, reduced: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes of ``out`` in the order in which the first full operand of a reduction holds them; None where it is that
    of ``out``, or where vectors lie along a reduced axis anyway."""
    leaves = [n.tensor for n in nodes if isinstance(n, Leaf)]
    guide = next((t for t in leaves if _is_full(t)), None)
    if guide is None or any(guide.strides[a] == 1 and guide.shape[a] != 1 for a in reduced):
        return None
    kept = [a for a in range(out.rank) if a not in reduced]
    long = [a for a in kept if out.shape[a] != 1]
    wanted = _by_stride(frame, guide, long)
    if wanted == _by_stride(frame, out, long):
        return None
    return (*(a for a in range(out.rank) if a not in long), *wanted)


def _is_full(tensor: Tensor) -> bool:
    return all(s != 0 for s, e in zip(tensor.strides, tensor.shape, strict=True) if e != 1)


class _Nest:
    def __init__(
        self, frame: Frame, nodes: Sequence[Node], out: Tensor, reduction: Reduction | None, unroll: int
    ) -> None:
        self.frame = frame
        self.code = frame.code
        self.nodes = nodes
        self.out = out
        self.reduction = reduction
        self.unroll = unroll
        self.leaves = [n.tensor for n in nodes if isinstance(n, Leaf)]
        self.axes = self._axes()
        for tensor in (out, *self.leaves):
            frame.dtypes.add(tensor.dtype)
        self.pointers = [frame.name("p") for _ in self.leaves]
        self.target = frame.name("q")
        self.names = [frame.name("v") for _ in nodes]

    # ------------------------------------------------------------------ axes

    def _axes(self) -> list[Axis]:
        """Kept axes in the order of the result, reduced ones in the order of the first full operand, merged."""
        tensors = (self.out, *self.leaves)
        reduced = () if self.reduction is None else self.reduction.axes
        guide = next((t for t in self.leaves if _is_full(t)), None)
        kept = _by_stride(self.frame, self.out, [a for a in range(self.out.rank) if a not in reduced])
        folded = _by_stride(self.frame, guide or self.out, list(reduced))
        merged: list[Axis] = []
        for axis in (*kept, *folded):
            extent = self.out.shape[axis]
            if extent == 1:
                continue
            found = Axis(extent, axis in reduced, tuple(t.strides[axis] for t in tensors))
            last = merged[-1] if merged else None
            if last is not None and last.reduced == found.reduced and _continues(last, found):
                merged[-1] = Axis(dims.mul(last.extent, extent), found.reduced, found.strides)
            else:
                merged.append(found)
        return merged

    # ------------------------------------------------------------------ values

    def varies(self, inner: Axis) -> list[bool]:
        """For each node, whether it changes along the innermost axis."""
        found: list[bool] = []
        leaf = 0
        for node in self.nodes:
            if isinstance(node, Leaf):
                leaf += 1
                found.append(inner.strides[leaf] != 0)
            elif isinstance(node, Constant):
                found.append(False)
            else:
                found.append(any(found[a] for a in node.args))
        return found

    def lines(self, inner: Axis, varying: bool, index: str, count: str) -> list[str]:
        """Statements for the nodes that vary (or do not).  index: C position on the axis.  count: lanes, "" for all."""
        lines: list[str] = []
        leaf = 0
        varies = self.varies(inner)
        for position, node in enumerate(self.nodes):
            name = self.names[position]
            if isinstance(node, Leaf):
                leaf += 1
            if varies[position] != varying:
                continue
            if isinstance(node, Leaf):
                tensor, pointer = node.tensor, self.pointers[leaf - 1]
                dtype = compute_dtype(tensor.dtype)
                value = self._read(tensor.dtype, pointer, inner.strides[leaf] if varying else 0, index, count)
            elif isinstance(node, Constant):
                dtype = compute_dtype(node.dtype)
                value = splat(literal(node.value, dtype), dtype)
            else:
                text = expression(node.call, [self.names[a] for a in node.args])
                dtype, value = compute_dtype(node.call.result), text.expression
                for function in text.functions:
                    if function.startswith("vec_"):
                        self.frame.functions.add(function)
                    else:
                        if function.startswith("wide_"):
                            self.frame.helper("wide", f64.TEXT)
                        self.frame.helper(function, function_text(function))
                if "quantize_clip" in value:
                    self.frame.helper("quantize_clip", QUANTIZE_CLIP)
                self.frame.dtypes.update((*node.call.operands, node.call.result))
            lines.append(f"const {vector(dtype)} {name} = {value};")
        return lines

    def _read(self, dtype: DType, pointer: str, stride: Dim, index: str, count: str) -> str:
        kind = self._kind(dtype)
        if stride == 0:
            if dtype in (DType.F16, DType.BF16):
                return f"load_part_{kind}({pointer}, 0, LANES)"
            return splat(f"*{pointer}", compute_dtype(dtype))
        step = self.frame.c(stride)
        place = plus(pointer, times(index, step))
        if count or stride != 1:
            return f"load_part_{kind}({place}, {step}, {count or 'LANES'})"
        return f"load_{kind}({place})"

    def _kind(self, dtype: DType) -> str:
        return DType.U8.value if dtype is DType.BOOL else dtype.value

    def _write(self, value: str, stride: Dim, index: str, count: str) -> str:
        kind = self._kind(self.out.dtype)
        self.frame.dtypes.add(DType(kind))
        step = self.frame.c(stride)
        place = plus(self.target, times(index, step))
        if count or stride != 1:
            return f"store_part_{kind}({place}, {step}, {count or 'LANES'}, {value});"
        return f"store_{kind}({place}, {value});"

    # ------------------------------------------------------------------ loops

    def _bases(self, outer: Sequence[tuple[Axis, str]], reduced: Sequence[tuple[Axis, str]] = ()) -> None:
        """Pointers at the outer indices."""
        code, frame = self.code, self.frame
        place = plus(self.out.pointer, *(times(i, frame.c(a.strides[0])) for a, i in outer))
        code.line(f"{STORAGE[self.out.dtype]} *const {self.target} = {place};")
        self._leaf_bases((*outer, *reduced))

    def _leaf_bases(self, outer: Sequence[tuple[Axis, str]]) -> None:
        for number, (tensor, pointer) in enumerate(zip(self.leaves, self.pointers, strict=True)):
            place = plus(tensor.pointer, *(times(i, self.frame.c(a.strides[number + 1])) for a, i in outer))
            self.code.line(f"const {STORAGE[tensor.dtype]} *const {pointer} = {place};")

    def _heads(self, axes: Sequence[Axis], *, split: bool) -> list[tuple[Axis, str, str]]:
        """(axis, index, loop head)."""
        found: list[tuple[Axis, str, str]] = []
        for position, axis in enumerate(axes):
            index, n = self.frame.name("i"), self.frame.c(axis.extent)
            share = split and self.frame.parallel and position == 0
            low, high = (f"part * {n} / parts", f"(part + 1) * {n} / parts") if share else ("0", n)
            found.append((axis, index, f"for (int64_t {index} = {low}; {index} < {high}; {index}++)"))
        return found

    def emit_map(self) -> None:
        axes = self.axes or [Axis(1, False, (1,) * (1 + len(self.leaves)))]
        inner = axes[-1]
        heads = self._heads(axes[:-1], split=True)
        self._nested([h for _, _, h in heads], lambda: self._map_row(inner, [(a, i) for a, i, _ in heads]))

    def _map_row(self, inner: Axis, outer: Sequence[tuple[Axis, str]]) -> None:
        code, lanes = self.code, self.frame.lanes
        self._bases(outer)
        code.line(*self.lines(inner, False, "", ""))
        n = self.frame.c(inner.extent)
        last = self.names[-1]
        j = self.frame.name("j")
        if not outer and self.frame.parallel:
            end = self.frame.name("end")
            code.line(f"const int64_t blocks = ({n} + LANES - 1) / LANES;")
            code.line(f"int64_t {j} = part * blocks / parts * LANES, {end} = (part + 1) * blocks / parts * LANES;")
            code.line(f"if ({end} > {n}) {end} = {n};")
        else:
            end = n
            code.line(f"int64_t {j} = 0;")
        if self._moves_runs(inner):
            function = copy_run(self.frame, self.out.dtype, self.unroll)
            code.line(f"{function}({self.pointers[0]} + {j}, {self.target} + {j}, {end} - {j});")
            return
        known = inner.extent if isinstance(inner.extent, int) else None

        def body(index: str, count: str) -> None:
            code.line(*self.lines(inner, True, index, count))
            code.line(self._write(last, inner.strides[0], index, count))

        step = self.unroll * lanes
        if self.unroll > 1 and (known is None or known >= step):
            with (
                code.block(f"for (; {j} + {step} <= {end}; {j} += {step})"),
                code.block(f"UNROLLED for (int64_t u = 0; u < {step}; u += LANES)"),
            ):
                body(f"({j} + u)", "")
        if known is None or known >= lanes:
            with code.block(f"for (; {j} + LANES <= {end}; {j} += LANES)"):
                body(j, "")
        if known is None or known % lanes or self.frame.parallel:
            with code.block(f"if ({j} < {end})"):
                body(j, f"{end} - {j}")

    def _moves_runs(self, inner: Axis) -> bool:
        """Whether a row is moved as it is, and its length leaves open how many vectors it takes."""
        node = self.nodes[0]
        same = len(self.nodes) == 1 and isinstance(node, Leaf) and node.tensor.dtype is self.out.dtype
        known = isinstance(inner.extent, int) and inner.extent >= self.frame.lanes
        return same and inner.strides == (1, 1) and not known

    def emit_reduce(self) -> None:
        axes = self.axes
        reduced = [a for a in axes if a.reduced]
        kept = [a for a in axes if not a.reduced]
        if self._sums_lanes(kept, reduced):
            self._reduce_lanes(kept, reduced or [Axis(1, True, (0,) + (1,) * len(self.leaves))])
        else:
            self._reduce_across(kept, reduced)

    def _sums_lanes(self, kept: Sequence[Axis], reduced: Sequence[Axis]) -> bool:
        """Whether the vectors lie along a reduced axis: where no kept axis is contiguous in what varies."""
        if not kept:
            return True
        inner = kept[-1]
        across = any(s == 1 for s in inner.strides[1:])
        along = bool(reduced) and any(s == 1 for s in reduced[-1].strides[1:])
        return along or not across

    def _fold(self) -> tuple[str, DType]:
        if self.reduction is None:
            raise InternalError("a map has no fold")
        node = self.nodes[-1]
        stored = (
            node.tensor.dtype
            if isinstance(node, Leaf)
            else (node.dtype if isinstance(node, Constant) else node.call.result)
        )
        dtype = compute_dtype(stored)
        if self.reduction.kind in ("reduce_max", "reduce_min"):
            return self.reduction.kind, dtype
        if dtype.is_float:
            return self.reduction.kind, DType.F64 if self.frame.wide_sums else dtype
        return self.reduction.kind, DType.I64 if is_signed(dtype) else DType.U64

    def _folded(self, dtype: DType) -> str:
        """The value of the nest as the fold takes it."""
        kind = self._fold()[0]
        node, value = self.nodes[-1], self.names[-1]
        stored = (
            node.tensor.dtype
            if isinstance(node, Leaf)
            else (node.dtype if isinstance(node, Constant) else node.call.result)
        )
        if compute_dtype(stored) is not dtype:
            value = f"__builtin_convertvector({value}, {vector(dtype)})"
        if kind in ("reduce_l2", "reduce_sum_square"):
            return f"{value} * {value}"
        if kind == "reduce_l1" and (dtype.is_float or is_signed(dtype)):
            return f"__builtin_elementwise_abs({value})"
        return value

    def _combine(self, left: str, right: str) -> str:
        kind = self._fold()[0]
        if kind == "reduce_prod":
            return f"{left} * {right}"
        if kind in ("reduce_max", "reduce_min"):
            sign = ">" if kind == "reduce_max" else "<"
            better = f"{left} {sign} {right} ? {left} : {right}"
            return f"{left} != {left} ? {left} : ({better})" if self._fold()[1].is_float else better
        return f"{left} + {right}"

    def _start(self, dtype: DType) -> str:
        kind = self._fold()[0]
        if kind == "reduce_prod":
            return literal(1, dtype)
        if kind not in ("reduce_max", "reduce_min"):
            return literal(0, dtype)
        lowest = kind == "reduce_max"
        if dtype.is_float:
            return literal(float("-inf") if lowest else float("inf"), dtype)
        return literal(INTEGER_RANGE[dtype][0 if lowest else 1], dtype)

    def _finish(self, value: str, dtype: DType, *, scalar: bool) -> str:
        """From the folded value (a C expression of ``dtype``) to the result."""
        reduction = self.reduction
        if reduction is None:
            raise InternalError("a map has no fold")
        count = self.frame.c(reduction.count)
        c_type = STORAGE[dtype]
        if reduction.kind == "reduce_mean":
            number = f"({c_type})({count})"
            if dtype.is_float:
                return f"{value} / {number}"
            return f"{value} / {number if scalar else splat(count, dtype)}"
        if reduction.kind == "reduce_l2":
            if dtype.is_float:
                if scalar:
                    return f"__builtin_sqrt{'f' if dtype is DType.F32 else ''}({value})"
                return f"__builtin_elementwise_sqrt({value})"
            if scalar:
                return f"({c_type})__builtin_sqrt((double)({value}))"
            roots = f"__builtin_elementwise_sqrt(__builtin_convertvector({value}, vec_f64))"
            return f"__builtin_convertvector({roots}, {vector(dtype)})"
        return value

    def _reduce_lanes(self, kept: Sequence[Axis], reduced: Sequence[Axis]) -> None:
        """Vectors along the innermost reduced axis; lanes are folded at the end."""
        code, frame, lanes = self.code, self.frame, self.frame.lanes
        _, dtype = self._fold()
        kept_heads = self._heads(kept, split=True)
        if not kept_heads and frame.parallel:
            with code.block("if (part == 0)"):
                self._fold_lanes([], reduced, dtype, lanes)
            return
        self._nested(
            [h for _, _, h in kept_heads],
            lambda: self._fold_lanes([(a, i) for a, i, _ in kept_heads], reduced, dtype, lanes),
        )

    def _fold_lanes(self, outer: Sequence[tuple[Axis, str]], reduced: Sequence[Axis], dtype: DType, lanes: int) -> None:
        code, frame = self.code, self.frame
        inner, others = reduced[-1], self._heads(reduced[:-1], split=False)
        own = vector(dtype)
        known = inner.extent if isinstance(inner.extent, int) else None
        count = ACCUMULATORS if known is None or known >= ACCUMULATORS * lanes else 1
        acc = [frame.name("acc") for _ in range(count)]
        start = splat(self._start(dtype), dtype)
        code.line(f"{own} {', '.join(f'{a} = {start}' for a in acc)};")
        j, n = frame.name("j"), frame.c(inner.extent)

        def add(target: str, index: str, part: str) -> None:
            code.line(*self.lines(inner, True, index, part))
            if part:
                code.line(f"{own} folded = {self._folded(dtype)};")
                code.line(
                    f"for (int lane = 0; lane < LANES; lane++) if (lane >= {part}) folded[lane] = {self._start(dtype)};"
                )
            else:
                code.line(f"const {own} folded = {self._folded(dtype)};")
            code.line(f"{target} = {self._combine(target, 'folded')};")

        def row() -> None:
            self._leaf_bases((*outer, *((a, i) for a, i, _ in others)))
            code.line(*self.lines(inner, False, "", ""))
            code.line(f"int64_t {j} = 0;")
            if count > 1:
                with code.block(f"for (; {j} + {count} * LANES <= {n}; {j} += {count} * LANES)"):
                    for number, target in enumerate(acc):
                        with code.block(""):
                            add(target, f"({j} + {number} * LANES)" if number else j, "")
            if known is None or known >= lanes:
                with code.block(f"for (; {j} + LANES <= {n}; {j} += LANES)"):
                    add(acc[0], j, "")
            if known is None or known % lanes:
                with code.block(f"if ({j} < {n})"):
                    add(acc[0], j, f"{n} - {j}")

        self._nested([h for _, _, h in others], row)
        terms = acc
        while len(terms) > 1:
            for left, right in zip(terms[: len(terms) // 2], terms[len(terms) // 2 :], strict=True):
                code.line(f"{left} = {self._combine(left, right)};")
            terms = terms[: len(terms) // 2]
        total = frame.name("total")
        c_type = STORAGE[dtype]
        if dtype is DType.F32 and self._combine("a", "b") == "a + b":
            code.line(f"const float {total} = sum_lanes({terms[0]});")
        else:
            code.line(f"{c_type} {total} = {terms[0]}[0];")
            with code.block("for (int lane = 1; lane < LANES; lane++)"):
                code.line(f"const {c_type} other = {terms[0]}[lane];", f"{total} = {self._combine(total, 'other')};")
        place = plus(self.out.pointer, *(times(i, frame.c(a.strides[0])) for a, i in outer))
        self._store_scalar(place, self._finish(total, dtype, scalar=True))

    def _store_scalar(self, place: str, value: str) -> None:
        out = self.out.dtype
        if out is DType.BF16:
            value = f"to_bf16(splat({value}))[0]"
        self.code.line(f"*({place}) = ({STORAGE[out]})({value});")

    def _reduce_across(self, kept: Sequence[Axis], reduced: Sequence[Axis]) -> None:
        """Vectors along the innermost kept axis; the reduced axes are walked for each block of it."""
        inner = kept[-1]
        heads = self._heads(kept[:-1], split=True)
        self._nested([h for _, _, h in heads], lambda: self._across_row(inner, [(a, i) for a, i, _ in heads], reduced))

    def _across_row(self, inner: Axis, outer: Sequence[tuple[Axis, str]], reduced: Sequence[Axis]) -> None:
        code, frame, lanes = self.code, self.frame, self.frame.lanes
        _, dtype = self._fold()
        n, j = frame.c(inner.extent), frame.name("j")
        known = inner.extent if isinstance(inner.extent, int) else None
        if not outer and frame.parallel:
            end = frame.name("end")
            code.line(f"const int64_t blocks = ({n} + LANES - 1) / LANES;")
            code.line(f"int64_t {j} = part * blocks / parts * LANES, {end} = (part + 1) * blocks / parts * LANES;")
            code.line(f"if ({end} > {n}) {end} = {n};")
        else:
            end = n
            code.line(f"int64_t {j} = 0;")
        place = plus(self.out.pointer, *(times(i, frame.c(a.strides[0])) for a, i in outer))
        code.line(f"{STORAGE[self.out.dtype]} *const {self.target} = {place};")

        def block(vectors: int, count: str) -> None:
            acc = [frame.name("acc") for _ in range(vectors)]
            start = splat(self._start(dtype), dtype)
            code.line(f"{vector(dtype)} {', '.join(f'{a} = {start}' for a in acc)};")
            heads = self._heads(reduced, split=False)

            def fold() -> None:
                self._leaf_bases((*outer, *((a, i) for a, i, _ in heads)))
                code.line(*self.lines(inner, False, "", ""))
                for number, target in enumerate(acc):
                    with code.block(""):
                        code.line(*self.lines(inner, True, f"({j} + {number} * LANES)" if number else j, count))
                        code.line(f"const {vector(dtype)} folded = {self._folded(dtype)};")
                        code.line(f"{target} = {self._combine(target, 'folded')};")

            self._nested([h for _, _, h in heads], fold)
            result = compute_dtype(self.out.dtype)
            for number, target in enumerate(acc):
                value = self._finish(target, dtype, scalar=False)
                if dtype is not result:
                    value = f"__builtin_convertvector({value}, {vector(result)})"
                code.line(self._write(value, inner.strides[0], f"({j} + {number} * LANES)" if number else j, count))

        wide = 4
        if known is None or known >= wide * lanes:
            with code.block(f"for (; {j} + {wide} * LANES <= {end}; {j} += {wide} * LANES)"):
                block(wide, "")
        if known is None or known >= lanes:
            with code.block(f"for (; {j} + LANES <= {end}; {j} += LANES)"):
                block(1, "")
        if known is None or known % lanes or frame.parallel:
            with code.block(f"if ({j} < {end})"):
                block(1, f"{end} - {j}")

    def _nested(self, heads: Sequence[str], body: Callable[[], None]) -> None:
        if heads:
            with self.code.block(heads[0]):
                self._nested(heads[1:], body)
        else:
            body()


def _by_stride(frame: Frame, tensor: Tensor, axes: list[int]) -> list[int]:
    """Axes from slowest to fastest in memory; those with stride 0 first; ties keep their order."""
    top = frame.scope.optimum()
    return sorted(axes, key=lambda a: -dims.evaluate(tensor.strides[a], top) if tensor.strides[a] != 0 else -(1 << 62))


def _continues(outer: Axis, inner: Axis) -> bool:
    """Whether walking both is one walk with the inner strides for every operand."""
    return all(o == dims.mul(inner.extent, i) for o, i in zip(outer.strides, inner.strides, strict=True))
