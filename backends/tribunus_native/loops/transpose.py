"""Copies that exchange the fastest axis: square tiles in registers.

Imported by: movement.  Imports: frame.

The largest tile that fits into both extents covers what it can; the strips that remain at the two far edges are covered
by the smallest tile as wide as they are, moved back to end at the edge: elements may be copied twice, never from or to
anywhere else.  So an extent of 15 costs about what 16 costs, whether it is written into the kernel or given to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Sym
from tribunus_native.loops.ctypes import STORAGE
from tribunus_native.loops.frame import Frame, Tensor, plus, times

WIDEST = 16
"""Rows of the largest tile."""
SMALLEST = 4
"""Rows of the smallest tile; thinner matrices are copied along their longer side."""


def _inner(tensor: Tensor) -> int | None:
    """The axis along which elements are neighbours."""
    return next((a for a in range(tensor.rank) if tensor.strides[a] == 1 and tensor.shape[a] != 1), None)


def transposes(source: Tensor, out: Tensor) -> bool:
    """Whether reading and writing run along different axes, both long enough to be cut into tiles."""
    a, b = _inner(source), _inner(out)
    if a is None or b is None or a == b or source.strides[b] == 0:
        return False
    return all(not isinstance(extent, int) or extent >= SMALLEST for extent in (out.shape[a], out.shape[b]))


def vanishing(frame: Frame, source: Tensor, out: Tensor) -> Sym | None:
    """A symbol that may be 1 and is the extent of an axis that one of the two runs along: at 1 it does not."""
    for axis in (_inner(out), _inner(source)):
        extent = 0 if axis is None else out.shape[axis]
        if isinstance(extent, Sym) and frame.scope.bounds(extent)[0] == 1:
            return extent
    return None


def emit_transpose(frame: Frame, source: Tensor, out: Tensor) -> None:
    """Copy ``source`` to ``out`` (same shape, different fastest axes)."""
    along, across = _inner(source), _inner(out)
    if along is None or across is None:
        return
    code = frame.code
    source, out = source.raw(), out.raw()
    c_type = STORAGE[out.dtype]
    top = frame.scope.optimum()
    others = [x for x in range(out.rank) if x not in (along, across) and out.shape[x] != 1]
    others.sort(key=lambda x: -dims.evaluate(out.strides[x], top))
    matrix = _Matrix(
        frame.c(out.shape[along]),
        frame.c(out.shape[across]),
        frame.c(source.strides[across]),
        frame.c(out.strides[along]),
    )
    tiles = _tiles(frame, out.dtype, (out.shape[along], out.shape[across]))
    with code.block(""), frame.loops([(x, out.shape[x]) for x in others], "t", out.rank, split=False) as indices:
        place = plus(source.pointer, *(times(indices[x], frame.c(source.strides[x])) for x in others))
        code.line(f"const {c_type} *const from = {place};")
        place = plus(out.pointer, *(times(indices[x], frame.c(out.strides[x])) for x in others))
        code.line(f"{c_type} *const to = {place};")
        _emit_matrix(frame, matrix, tiles)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """C expressions of one transposition: ``to[r * to_step + c] = from[r + c * from_step]``."""

    rows: str
    columns: str
    from_step: str
    to_step: str


def _tiles(frame: Frame, dtype: DType, extents: Sequence[Dim]) -> list[_Tile]:
    """Tiles that may be the largest one that fits, or cover a strip beside it; the widest first."""
    itemsize = dtype.itemsize
    widest = WIDEST if itemsize < 4 else min(WIDEST, frame.lanes * 4 // itemsize)
    fits = min(frame.scope.bounds(extent)[1] for extent in extents)
    found: list[_Tile] = []
    while widest >= min(SMALLEST, frame.lanes * 4 // itemsize):
        if widest <= fits:
            tile = _Tile(STORAGE[dtype], itemsize, widest)
            frame.helper(tile.name, tile.text())
            found.append(tile)
        widest //= 2
    return found


def _emit_matrix(frame: Frame, matrix: _Matrix, tiles: Sequence[_Tile]) -> None:
    """One matrix by the largest tile that fits."""
    code = frame.code
    for index, tile in enumerate(tiles):
        fits = f"{matrix.rows} >= {tile.rows} && {matrix.columns} >= {tile.rows}"
        with code.block(f"{'else ' if index else ''}if ({fits})"):
            _emit_tiled(frame, matrix, tiles[index:])
    with code.block("else" if tiles else ""):
        _emit_thin(frame, matrix)


def _emit_thin(frame: Frame, matrix: _Matrix) -> None:
    """A matrix that no tile fits into, along its longer side."""
    code = frame.code
    first, last = _share(frame, matrix.rows)
    code.line(f"const int64_t first = {first}, last = {last};")
    rows, columns = "for (int64_t r = first; r < last; r++)", f"for (int64_t c = 0; c < {matrix.columns}; c++)"
    element = f"to[{times('r', matrix.to_step)} + c] = from[r + {times('c', matrix.from_step)}];"
    if matrix.rows != matrix.columns:
        code.line(f"if ({matrix.columns} <= {matrix.rows})", f"  {columns}", f"    {rows} {element}", "else")
    code.line(f"  {rows}", f"    {columns} {element}")


def _share(frame: Frame, count: str) -> tuple[str, str]:
    return (f"part * {count} / parts", f"(part + 1) * {count} / parts") if frame.parallel else ("0", count)


def _emit_tiled(frame: Frame, matrix: _Matrix, tiles: Sequence[_Tile]) -> None:
    """The part's whole tiles, the strip behind the last column, and in the last part the strip behind the last row."""
    code, main = frame.code, tiles[0]
    first, last = _share(frame, f"({matrix.rows} / {main.rows})")
    code.line(f"const int64_t first = {first} * {main.rows}, last = {last} * {main.rows};")
    code.line(f"const int64_t whole = {matrix.columns} / {main.rows} * {main.rows};")
    code.line(main.call(matrix, "first", "last", "0", "whole"))
    _emit_strip(frame, matrix, tiles, f"{matrix.columns} - whole", ("first", "last", "whole", matrix.columns))
    with code.block("if (part == parts - 1)" if frame.parallel else ""):
        _emit_strip(frame, matrix, tiles, f"{matrix.rows} - last", ("last", matrix.rows, "0", matrix.columns))


def _emit_strip(
    frame: Frame, matrix: _Matrix, tiles: Sequence[_Tile], width: str, bounds: tuple[str, str, str, str]
) -> None:
    for index, tile in enumerate(tiles):
        narrower = f"{width} > {tile.rows // 2}" if index + 1 < len(tiles) else f"{width} > 0"
        with frame.code.block(f"{'else ' if index else ''}if ({narrower})"):
            frame.code.line(tile.call(matrix, *bounds))


@dataclass(frozen=True, slots=True)
class _Tile:
    """A square of elements in registers, one vector a row, and the function that covers a part of a matrix by it."""

    c_type: str
    itemsize: int
    rows: int

    @property
    def name(self) -> str:
        return f"transpose_{self.c_type.removesuffix('_t')}_{self.rows}"

    def call(self, matrix: _Matrix, first: str, last: str, left: str, right: str) -> str:
        """Cover rows first .. last and columns left .. right of a matrix that no extent of is below the tile's."""
        steps = f"from, {matrix.from_step}, to, {matrix.to_step}"
        return f"{self.name}({steps}, {first}, {last}, {left}, {right});"

    def text(self) -> str:
        """Rounds of interleaving the first half of the rows with the second; the loops over tiles."""
        n, element, vector = self.rows, self.c_type, f"{self.name}_row"
        low = ", ".join(f"{i}, {i + n}" for i in range(n // 2))
        high = ", ".join(f"{i + n // 2}, {i + n // 2 + n}" for i in range(n // 2))
        each = f"UNROLLED for (int i = 0; i < {n}; i++)"
        lines = [
            f"typedef {element} {vector} __attribute__((ext_vector_type({n})));",
            f"typedef {element} {vector}_memory __attribute__((ext_vector_type({n}), aligned({self.itemsize})));",
            f"static void {self.name}(const {element} *from, int64_t from_step, {element} *to, int64_t to_step,",
            "    int64_t first, int64_t last, int64_t left, int64_t right) {",
            f"  for (int64_t y = first; y < last; y += {n}) {{",
            f"    const int64_t r = y + {n} <= last ? y : last - {n};",
            f"    for (int64_t x = left; x < right; x += {n}) {{",
            f"      const int64_t c = x + {n} <= right ? x : right - {n};",
            f"      const {element} *const in = from + r + c * from_step;",
            f"      {element} *const out = to + r * to_step + c;",
            f"      {vector} a[{n}], b[{n}];",
            f"      {each} a[i] = *(const {vector}_memory *)(in + i * from_step);",
        ]
        rounds = n.bit_length() - 1
        for index in range(rounds):
            old, new = ("a", "b") if index % 2 == 0 else ("b", "a")
            half = f"{old}[i + {n // 2}]"
            lines += [
                f"      UNROLLED for (int i = 0; i < {n // 2}; i++) {{",
                f"        {new}[2 * i] = __builtin_shufflevector({old}[i], {half}, {low});",
                f"        {new}[2 * i + 1] = __builtin_shufflevector({old}[i], {half}, {high});",
                "      }",
            ]
        last = "b" if rounds % 2 else "a"
        lines += [f"      {each} *({vector}_memory *)(out + i * to_step) = {last}[i];", "    }", "  }", "}"]
        return "\n".join(lines)
