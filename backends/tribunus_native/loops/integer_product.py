"""Matrix products of 8-bit integers of any operands: exact int32 sums, two products an instruction.

Imported by: stages.  Imports: frame, product (zero points).

Both operands are first centred into 16-bit numbers, neighbours along k side by side: the left one into rows, the right
one into column panels [panel][k / 2][WIDTH][2].  A pair of centred products is below 2^18: nothing saturates, and the
sum is exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE
from tribunus_native.loops.frame import Frame, Tensor, plus, times
from tribunus_native.loops.product import Zero, zero_of

Emitter = Callable[[Group, Op], None]

_PAIRS = """
#if defined(__AVX512BW__) && LANES == 16
typedef short native_pairs __attribute__((__vector_size__(64)));
INLINE vec_i32 add_pairs(vec_i32 sum, vec_i32 a, vec_i32 b) {
  return sum + (vec_i32)__builtin_ia32_pmaddwd512((native_pairs)a, (native_pairs)b);
}
#elif defined(__AVX2__) && LANES == 8
typedef short native_pairs __attribute__((__vector_size__(32)));
INLINE vec_i32 add_pairs(vec_i32 sum, vec_i32 a, vec_i32 b) {
  return sum + (vec_i32)__builtin_ia32_pmaddwd256((native_pairs)a, (native_pairs)b);
}
#else
INLINE vec_i32 add_pairs(vec_i32 sum, vec_i32 a, vec_i32 b) {
  return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
}
#endif
"""


def _matmul_integer(group: Group, op: Op) -> None:
    frame, code = group.frame, group.frame.code
    a, b, out = group.tensor(op.inputs[0]), group.tensor(op.inputs[1]), group.result(op.outputs[0])
    a_zero, b_zero = zero_of(group, op, 2), zero_of(group, op, 3)
    b_rank = b.rank
    if a.rank == 1:
        a, out = a.inserted(0), out.inserted(max(0, out.rank - (1 if b_rank > 1 else 0)))
    if b_rank == 1:
        b, out = b.inserted(1), out.inserted(out.rank)
    batch = out.shape[:-2]
    a, b = a.expanded((*batch, *a.shape[-2:])), b.expanded((*batch, *b.shape[-2:]))
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    vectors = 1 if isinstance(columns, int) and columns <= frame.lanes else 2
    width, pairs = vectors * frame.lanes, dims.ceildiv(depth, 2)
    frame.dtypes.update((DType.I32, out.dtype))
    frame.helper("add_pairs", _PAIRS)
    size = dims.mul(dims.mul(dims.ceildiv(columns, width), 2 * width), pairs)
    panels = frame.space("int16_t", 2, size, "panels")
    left = frame.space("int16_t", 2, dims.mul(rows, dims.mul(2, pairs)), "left")
    shared = all(s == 0 for s, e in zip(b.strides[:-2], batch, strict=False) if e != 1)
    heights = _heights(frame, rows)
    prefix = frame.name("pair_tile")
    for height in heights:
        frame.helper(f"{prefix}_{height}", _tile(f"{prefix}_{height}", height, vectors))
    if shared:
        _pack_right(frame, b, ["0"] * len(batch), panels, width, b_zero)
    with frame.loops(list(enumerate(batch)), "b", len(batch), split=False) as at:
        if not shared:
            _pack_right(frame, b, at, panels, width, b_zero)
        _pack_left(frame, a, at, left, a_zero)
        row, step = frame.c(out.strides[-2]), frame.c(out.strides[-1])
        m, n, k = frame.c(rows), frame.c(columns), frame.c(pairs)
        code.line(f"int32_t *const y = {plus(out.pointer, frame.offset(out.strides[:-2], at))};")
        with code.block(f"for (int64_t j = 0; j < {n}; j += {width})"):
            code.line(f"const int16_t *const panel = {panels} + j * 2 * {k};")
            code.line(f"const int64_t count = {n} - j < {width} ? {n} - j : {width};", "int64_t i = 0;")
            for height in heights:
                with code.block(f"for (; i + {height} <= {m}; i += {height})"):
                    place = plus("y", times("i", row), times("j", step))
                    x = f"{left} + i * 2 * {k}"
                    code.line(f"{prefix}_{height}({x}, panel, {place}, {k}, count, {row}, {step});")


def _heights(frame: Frame, rows: Dim) -> list[int]:
    most = 8 if frame.lanes >= 16 else 4
    found = [h for h in (most, most // 2, 2, 1) if not isinstance(rows, int) or h <= rows]
    return list(dict.fromkeys(found))


def _tile(name: str, height: int, vectors: int) -> str:
    each, across = f"UNROLLED for (int i = 0; i < {height}; i++)", f"UNROLLED for (int v = 0; v < {vectors}; v++)"
    return f"""
static void {name}(const int16_t *x, const int16_t *panel, int32_t *y, int64_t pairs, int64_t count, int64_t y_row,
                   int64_t y_step) {{
  vec_i32 acc[{height}][{vectors}];
  {each} {across} acc[i][v] = (vec_i32)0;
  for (int64_t k = 0; k < pairs; k++, panel += {vectors} * 2 * LANES) {{
    vec_i32 b[{vectors}];
    {across} b[v] = load_i32((const int32_t *)(panel + v * 2 * LANES));
    {each} {{
      int32_t pair;
      __builtin_memcpy(&pair, x + (i * pairs + k) * 2, 4);
      {across} acc[i][v] = add_pairs(acc[i][v], (vec_i32)pair, b[v]);
    }}
  }}
  if (y_step == 1 && count == {vectors} * LANES) {{
    {each} {across} store_i32(y + i * y_row + v * LANES, acc[i][v]);
    return;
  }}
  {each} {across} {{
    const int64_t left = count - v * LANES;
    if (left > 0) store_part_i32(y + i * y_row + v * LANES * y_step, y_step, left, acc[i][v]);
  }}
}}
"""


def _pack_left(frame: Frame, a: Tensor, at: Sequence[str], left: str, zero: Zero) -> None:
    """One left operand, rows of pairs; an odd last one beside a zero."""
    code = frame.code
    rows, depth = frame.c(a.shape[-2]), frame.c(a.shape[-1])
    whole = frame.c(dims.mul(2, dims.ceildiv(a.shape[-1], 2)))
    place = plus(a.pointer, frame.offset(a.strides[:-2], at))
    with code.block(""):
        code.line(f"const {STORAGE[a.dtype]} *const from = {place};")
        with code.block(f"for (int64_t i = 0; i < {rows}; i++)"):
            code.line(f"int16_t *restrict to = {left} + i * {whole};", f"const int zero = 0{zero.at('i')};")
            source = plus(times("i", frame.c(a.strides[-2])), times("k", frame.c(a.strides[-1])))
            code.line(f"for (int64_t k = 0; k < {depth}; k++) to[k] = (int16_t)(from[{source}] + zero);")
            code.line(f"for (int64_t k = {depth}; k < {whole}; k++) to[k] = 0;")


def _pack_right(frame: Frame, b: Tensor, at: Sequence[str], panels: str, width: int, zero: Zero) -> None:
    """One right operand into panels, absent columns and an odd last row as zeros."""
    code = frame.code
    columns, pairs = frame.c(b.shape[-1]), frame.c(dims.ceildiv(b.shape[-2], 2))
    place = plus(b.pointer, frame.offset(b.strides[:-2], at))
    with code.block(""):
        code.line(f"const {STORAGE[b.dtype]} *const from = {place};")
        with code.block(f"for (int64_t j = 0; j < {columns}; j += {width})"):
            code.line(f"int16_t *restrict to = {panels} + j * 2 * {pairs};")
            code.line(f"const int64_t count = {columns} - j < {width} ? {columns} - j : {width};")
            for whole in (True, False):
                with code.block(f"if (count == {width})" if whole else "else"):
                    _pack_panel(frame, b, zero, str(width) if whole else "count", width)


def _pack_panel(frame: Frame, b: Tensor, zero: Zero, count: str, width: int) -> None:
    """``count`` columns from ``j``: whole pairs, then an odd row beside zeros; absent columns are zeros."""
    code, depth = frame.code, b.shape[-2]
    column, row, n = frame.c(b.strides[-1]), frame.c(b.strides[-2]), frame.c(depth)
    here = plus(times("(j + c)", column), times("2 * k", row))
    columns = f"for (int64_t c = 0; c < {count}; c++)"
    loops = [f"for (int64_t k = 0; k < {n} / 2; k++)", columns]
    if b.strides[-2] == 1:
        loops.reverse()
    with code.block(loops[0]), code.block(loops[1]):
        code.line(f"const int zero = 0{zero.at('(j + c)')};")
        code.line(f"to[(k * {width} + c) * 2] = (int16_t)(from[{here}] + zero);")
        code.line(f"to[(k * {width} + c) * 2 + 1] = (int16_t)(from[{plus(here, row)}] + zero);")
    if not isinstance(depth, int) or depth % 2:
        with code.block(f"for (int64_t k = {n} / 2; 2 * k < {n}; k++)"), code.block(columns):
            code.line(f"to[(k * {width} + c) * 2] = (int16_t)(from[{here}]{zero.at('(j + c)')});")
            code.line(f"to[(k * {width} + c) * 2 + 1] = 0;")
    if count != str(width):
        code.line(f"for (int64_t k = 0; 2 * k < {n}; k++)")
        code.line(f"  for (int64_t c = 2 * count; c < {2 * width}; c++) to[k * {2 * width} + c] = 0;")


EMITTERS: Mapping[str, Emitter] = {"matmul_integer": _matmul_integer}
