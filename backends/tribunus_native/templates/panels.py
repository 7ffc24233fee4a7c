"""Packed weight panels: how the columns of W[K, N] are grouped, where each element lies, how C walks the panels.

Imported by: the templates of products, match.packing, match.quantized_batch.  Imports: csource, numpy.

Columns are grouped into vectors of ``lanes``, vectors into panels as even as possible.  A panel holds [k][width] with
width = lanes * vectors; panels follow each other; columns past N are zero.  So for column n of panel p (first column
c_p, width w_p):  packed[c_p * K + k * w_p + (n - c_p)] = W[k, n].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tribunus_native.templates.csource import Code, ceil_div, constant, panel_vectors

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Panels:
    """Grouping of ``columns`` columns.  most: the largest number of vectors in one panel."""

    columns: int
    lanes: int
    most: int

    @property
    def vectors(self) -> tuple[int, ...]:
        return panel_vectors(ceil_div(self.columns, self.lanes), self.most)

    @property
    def padded(self) -> int:
        """Columns of the packed form; bias, scale and shift vectors are padded to this too."""
        return ceil_div(self.columns, self.lanes) * self.lanes

    @property
    def tail(self) -> int:
        """Columns of the last vector that exist, 0 if all do."""
        return self.columns % self.lanes

    @property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """Distinct (vectors, tail of the last vector) of the panels, in order of first use."""
        sizes = self.vectors
        found = dict.fromkeys((size, 0) for size in (sizes[:-1] if self.tail else sizes))
        if self.tail:
            found[(sizes[-1], self.tail)] = None
        return tuple(found)

    def offset(self, k: int, n: int, depth: int) -> int:
        """Index of W[k, n] in the packed array of ``depth`` rows."""
        first = 0
        for size in self.vectors:
            width = size * self.lanes
            if n < first + width:
                return first * depth + k * width + (n - first)
            first += width
        raise IndexError(n)

    def pack(self, matrix: F32) -> F32:
        """W[K, N] to the packed, flat form."""
        depth, columns = matrix.shape
        full = np.zeros((depth, self.padded), dtype=matrix.dtype)
        full[:, :columns] = matrix
        parts: list[F32] = []
        first = 0
        for size in self.vectors:
            width = size * self.lanes
            parts.append(full[:, first : first + width].ravel())
            first += width
        return np.concatenate(parts)

    def pack_vector(self, vector: F32) -> F32:
        """A per-column vector (bias, scale, shift), zero padded."""
        full = np.zeros(self.padded, dtype=vector.dtype)
        full[: self.columns] = vector
        return full

    def write_constants(self, code: Code) -> None:
        sizes = self.vectors
        wide = sum(1 for size in sizes if size == sizes[0])
        constant(code, "PANELS", len(sizes))
        constant(code, "WIDE_PANELS", wide, f"panels of {sizes[0]} vectors, the others have {sizes[-1]}")
        constant(code, "WIDE_COLUMNS", sizes[0] * self.lanes)
        constant(code, "NARROW_COLUMNS", sizes[-1] * self.lanes)
        constant(code, "PADDED_COLUMNS", self.padded)
        code.text("""
INLINE int64_t first_column(int64_t panel) {
  if (panel <= WIDE_PANELS) return panel * WIDE_COLUMNS;
  return WIDE_PANELS * WIDE_COLUMNS + (panel - WIDE_PANELS) * NARROW_COLUMNS;
}
""")

    def write_dispatch(self, code: Code, function: str, arguments: str) -> None:
        """``function_NV(arguments)`` or ``function_NV_tail(arguments)`` for the current ``panel``."""
        sizes = self.vectors
        last = len(sizes) - 1
        wide, narrow = sizes[0], sizes[-1]
        options: list[tuple[str, str]] = []
        if self.tail:
            options.append((f"panel == {last}", kind_name(function, narrow, self.tail)))
        body = sizes[:-1] if self.tail else sizes
        if wide in body:
            options.append(("panel < WIDE_PANELS", kind_name(function, wide, 0)))
        if narrow != wide and narrow in body:
            options.append(("", kind_name(function, narrow, 0)))
        for index, (condition, name) in enumerate(options):
            guard = "" if index == len(options) - 1 else f"if ({condition}) "
            code.line(f"{'else ' if index else ''}{guard}{name}({arguments});")


def kind_name(function: str, vectors: int, tail: int) -> str:
    return f"{function}_{vectors}_tail" if tail else f"{function}_{vectors}"
