"""Matrix products of any operands: both computed, batched, broadcast, strided, floating point or integer.

Imported by: stages.  Imports: frame, search (element access).

The right operand of one product is first copied into column panels [panel][k][WIDTH] (offline where it is a weight
matrix); then tiles of MR rows by WIDTH columns accumulate in registers.  Every result is one chain over k, upward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Op
from tribunus.plan.code import Packing
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE, compute_dtype, vector
from tribunus_native.loops.frame import Frame, Tensor, plus, times
from tribunus_native.loops.search import value_at

Emitter = Callable[[Group, Op], None]


@dataclass(frozen=True, slots=True)
class Zero:
    """Zero points of one operand: a pointer expression and the step from row (column) to row; "" for none."""

    pointer: str = ""
    step: str = "0"

    def at(self, index: str) -> str:
        if not self.pointer:
            return ""
        return f" - {self.pointer}[{times(index, self.step)}]" if self.step != "0" else f" - *{self.pointer}"


def zero_of(group: Group, op: Op, position: int) -> Zero:
    """Zero points that an integer product subtracts."""
    value = op.inputs[position] if position < len(op.inputs) else -1
    if value < 0:
        return Zero()
    tensor = group.tensor(value)
    varies = tensor.rank == 1 and tensor.shape[0] != 1
    return Zero(tensor.pointer, group.frame.c(tensor.strides[0]) if varies else "0")


def _matmul(group: Group, op: Op) -> None:
    frame, code = group.frame, group.frame.code
    a, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    b_type = group.type_of(op.inputs[1])
    accumulator = compute_dtype(a.dtype)
    vectors = 1 if accumulator is DType.F64 else 2
    columns = b_type.shape[-1] if b_type.rank > 1 else 1
    if isinstance(columns, int) and columns <= frame.lanes:
        vectors = 1
    width = vectors * frame.lanes
    offline = group.is_weight(op.inputs[1]) and b_type.rank == 2 and b_type.dtype is DType.F32
    if a.rank == 1:
        a, out = a.inserted(0), out.inserted(max(0, out.rank - (1 if b_type.rank > 1 else 0)))
    if b_type.rank == 1:
        out = out.inserted(out.rank)
    batch = out.shape[:-2]
    a = a.expanded((*batch, *a.shape[-2:]))
    rows, depth = a.shape[-2], a.shape[-1]
    panels: str
    b = None
    if offline:
        k, n = b_type.numbers()
        packing = Packing("layout", layout=Layout((1, 0), ((1, width),)))
        panels = frame.weight((op.inputs[1],), packing, -(-n // width) * width * k * 4, "float")
    else:
        b = group.tensor(op.inputs[1])
        if b.rank == 1:
            b = b.inserted(1)
        b = b.expanded((*batch, *b.shape[-2:]))
        columns = b.shape[-1]
        size = dims.mul(dims.mul(dims.ceildiv(columns, width), width), depth)
        panels = frame.space(STORAGE[accumulator], accumulator.itemsize, size, "panels")
    shared = b is None or all(s == 0 for s, e in zip(b.strides[:-2], batch, strict=False) if e != 1)
    frame.dtypes.add(out.dtype)
    tiles = _Tiles(frame, a, out, accumulator, vectors)
    if b is not None and shared:
        _pack(frame, b, ["0"] * len(batch), panels, width, accumulator)
    with frame.loops(list(enumerate(batch)), "b", len(batch), split=False) as at:
        if b is not None and not shared:
            _pack(frame, b, at, panels, width, accumulator)
        place_a = plus(a.pointer, frame.offset(a.strides[:-2], at))
        place_out = plus(out.pointer, frame.offset(out.strides[:-2], at))
        m, n_text, k_text = frame.c(rows), frame.c(columns), frame.c(depth)
        code.line(f"const {STORAGE[a.dtype]} *const x = {place_a};", f"{STORAGE[out.dtype]} *const y = {place_out};")
        with code.block(f"for (int64_t j = 0; j < {n_text}; j += {width})"):
            code.line(f"const {STORAGE[accumulator]} *const panel = {panels} + j * {k_text};")
            code.line(f"const int64_t count = {n_text} - j < {width} ? {n_text} - j : {width};")
            code.line("int64_t i = 0;")
            for height in tiles.heights(rows):
                with code.block(f"for (; i + {height} <= {m}; i += {height})"):
                    code.line(tiles.call(height, "i", "j", k_text))


class _Tiles:
    """Functions tile_MR of one product."""

    def __init__(self, frame: Frame, a: Tensor, out: Tensor, accumulator: DType, vectors: int) -> None:
        self.frame = frame
        self.a = a
        self.out = out
        self.accumulator = accumulator
        self.vectors = vectors
        self.prefix = frame.name("tile")

    def heights(self, rows: Dim) -> list[int]:
        most = 8 if self.frame.lanes >= 16 else 4
        found = [h for h in (most, most // 2, 2, 1) if not isinstance(rows, int) or h <= rows]
        return list(dict.fromkeys(found))

    def call(self, height: int, row: str, column: str, depth: str) -> str:
        frame = self.frame
        frame.helper(f"{self.prefix}_{height}", self.text(height))
        x = plus("x", times(row, frame.c(self.a.strides[-2])))
        y = plus("y", times(row, frame.c(self.out.strides[-2])), times(column, frame.c(self.out.strides[-1])))
        steps = [
            frame.c(s) for s in (self.a.strides[-2], self.a.strides[-1], self.out.strides[-2], self.out.strides[-1])
        ]
        return f"{self.prefix}_{height}({x}, panel, {y}, {depth}, count, {', '.join(steps)});"

    def text(self, height: int) -> str:
        frame, vectors, accumulator = self.frame, self.vectors, self.accumulator
        own, storage = vector(accumulator), STORAGE[accumulator]
        kind = accumulator.value
        load = "load" if accumulator is DType.F32 else f"load_{kind}"
        if accumulator is not DType.F32:
            frame.dtypes.add(accumulator)
        element = value_at(frame, self.a, "x[i * x_row + k * x_step]")
        value = f"({storage})({element})"
        splat = f"splat({value})" if accumulator is DType.F32 else f"({own})({storage})({value})"
        each, across = f"UNROLLED for (int i = 0; i < {height}; i++)", f"UNROLLED for (int v = 0; v < {vectors}; v++)"
        out = self.out.dtype.value
        return "\n".join(
            (
                f"static void {self.prefix}_{height}(const {STORAGE[self.a.dtype]} *x, const {storage} *panel, "
                f"{STORAGE[self.out.dtype]} *y, int64_t depth, int64_t count,",
                "    int64_t x_row, int64_t x_step, int64_t y_row, int64_t y_step) {",
                f"  {own} acc[{height}][{vectors}];",
                f"  {each} {across} acc[i][v] = ({own})({storage})0;",
                f"  for (int64_t k = 0; k < depth; k++, panel += {vectors} * LANES) {{",
                f"    {own} b[{vectors}];",
                f"    {across} b[v] = {load}(panel + v * LANES);",
                f"    {each} {{",
                f"      const {own} a = {splat};",
                f"      {across} acc[i][v] += a * b[v];",
                "    }",
                "  }",
                f"  if (y_step == 1 && count == {vectors} * LANES) {{",
                f"    {each} {across} store_{out}(y + i * y_row + v * LANES, acc[i][v]);",
                "    return;",
                "  }",
                f"  {each} {across} {{",
                "    const int64_t left = count - v * LANES;",
                f"    if (left > 0) store_part_{out}(y + i * y_row + v * LANES * y_step, y_step, left, acc[i][v]);",
                "  }",
                "}",
            )
        )


def _pack(frame: Frame, b: Tensor, at: Sequence[str], panels: str, width: int, accumulator: DType) -> None:
    """One right operand into panels, absent columns as zeros."""
    code = frame.code
    columns, depth = frame.c(b.shape[-1]), frame.c(b.shape[-2])
    storage = STORAGE[accumulator]
    place = plus(b.pointer, frame.offset(b.strides[:-2], at))
    with code.block(""):
        code.line(f"const {STORAGE[b.dtype]} *const from = {place};")
        with code.block(f"for (int64_t j = 0; j < {columns}; j += {width})"):
            code.line(f"{storage} *restrict to = {panels} + j * {depth};")
            code.line(f"const int64_t count = {columns} - j < {width} ? {columns} - j : {width};")
            element = value_at(
                frame, b, f"from[{plus(times('k', frame.c(b.strides[-2])), times('(j + c)', frame.c(b.strides[-1])))}]"
            )
            value = f"({storage})({element})"
            k_loop, full = f"for (int64_t k = 0; k < {depth}; k++)", f"for (int64_t c = 0; c < {width}; c++)"
            with code.block(f"if (count == {width})"):
                order = (full, k_loop) if b.strides[-2] == 1 else (k_loop, full)
                code.line(f"{order[0]} {order[1]} to[k * {width} + c] = {value};")
            with code.block("else"), code.block(k_loop):
                code.line(f"for (int64_t c = 0; c < count; c++) to[k * {width} + c] = {value};")
                code.line(f"for (int64_t c = count; c < {width}; c++) to[k * {width} + c] = 0;")


EMITTERS: Mapping[str, Emitter] = {"matmul": _matmul}
