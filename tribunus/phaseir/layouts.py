"""Layouts: where each element of a tensor lies in memory, as an exact index map.

Imported by: every room, the runtime included.  Imports: canon, errors, dims, numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tribunus.canon import Json, int_of, ints_of, list_of, object_of
from tribunus.errors import SchemaError
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

_LAYOUT_KEYS: Final = frozenset(("order", "blocks", "pitch"))


@dataclass(frozen=True, slots=True)
class Layout:
    """Dim order plus blocking plus pitch.

    order: the axes from slowest to fastest varying, each once.  blocks: (axis, size) pairs appended behind the outer
    axes, slowest first; a blocked axis is padded up to a multiple of its size and its outer extent is divided by it.
    pitch: elements from one run of the fastest physical axis to the next where that is more than the axis is long
    (a tensor that is a strided part of a larger one); None: dense.

    ``Layout((0, 1))`` is row-major for rank 2, ``Layout((0, 2, 3, 1))`` is NHWC for NCHW indices,
    ``Layout((0, 1, 2, 3), ((1, 16),))`` is nChw16c, ``Layout((1, 0), ((1, 48),))`` packs a (K, N) weight into panels
    ``[N/48][K][48]``.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()
    pitch: int | None = None

    def __post_init__(self) -> None:
        if self.order != tuple(range(len(self.order))) and sorted(self.order) != list(range(len(self.order))):
            raise SchemaError(f"layout order {self.order} is no permutation")
        if not self.blocks:
            return
        if any(not 0 <= axis < len(self.order) or size < 1 for axis, size in self.blocks):
            raise SchemaError(f"layout blocks {self.blocks} do not fit rank {len(self.order)}")
        if len({axis for axis, _ in self.blocks}) != len(self.blocks):
            raise SchemaError(f"layout blocks {self.blocks} name an axis twice")

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len(self.order)

    @property
    def is_row_major(self) -> bool:
        """Whether this is the plain dense row-major layout."""
        return self.order == tuple(range(self.rank)) and not self.blocks and self.pitch is None

    def physical_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Extents of the physical axes, slowest first, padding included; the last one is the pitch if there is one."""
        block_of = dict(self.blocks)
        extents: list[Dim] = [
            dims.ceildiv(shape[axis], block_of[axis]) if axis in block_of else shape[axis] for axis in self.order
        ]
        extents.extend(size for _, size in self.blocks)
        if self.pitch is not None and extents:
            extents[-1] = self.pitch
        return tuple(extents)

    def elements(self, shape: Sequence[Dim]) -> Dim:
        """Elements of memory from the first to the last, padding included.

        With a pitch the run behind the last row is not part of the tensor, so it is not counted.
        """
        if not self.blocks and self.pitch is None:
            return dims.product(shape)
        physical = self.physical_shape(shape)
        total = dims.product(physical)
        if self.pitch is None or not physical:
            return total
        dense = Layout(self.order, self.blocks).physical_shape(shape)
        return dims.maximum(0, dims.sub(total, dims.sub(self.pitch, dense[-1])))

    def offset(self, index: Sequence[int], shape: Sequence[int]) -> int:
        """Position, in elements, of the element with these logical indices."""
        block_of = dict(self.blocks)
        digits = [index[axis] // block_of[axis] if axis in block_of else index[axis] for axis in self.order]
        digits.extend(index[axis] % size for axis, size in self.blocks)
        position = 0
        for digit, extent in zip(digits, self.physical_shape(shape), strict=True):
            if not isinstance(extent, int):
                raise SchemaError("offset needs a static shape")
            position = position * extent + digit
        return position

    def pack(self, array: npt.NDArray[np.generic], fill: int | float | bool = 0) -> npt.NDArray[np.generic]:
        """``array`` in this layout as a flat array of ``elements`` entries; padding holds ``fill``."""
        if array.ndim != self.rank:
            raise SchemaError(f"layout of rank {self.rank} for an array of rank {array.ndim}")
        if self.rank == 0:
            return np.ascontiguousarray(array).reshape(1)
        block_of = dict(self.blocks)
        pads = [(0, -array.shape[axis] % block_of.get(axis, 1)) for axis in range(self.rank)]
        padded = np.pad(array, pads, constant_values=fill) if any(after for _, after in pads) else array
        split: list[int] = []
        outer: dict[int, int] = {}
        inner: dict[int, int] = {}
        for axis in range(self.rank):
            outer[axis] = len(split)
            if axis in block_of:
                inner[axis] = len(split) + 1
                split += [padded.shape[axis] // block_of[axis], block_of[axis]]
            else:
                split.append(padded.shape[axis])
        permutation = [outer[axis] for axis in self.order] + [inner[axis] for axis, _ in self.blocks]
        physical = padded.reshape(split).transpose(permutation)
        if self.pitch is None:
            return np.ascontiguousarray(physical).reshape(-1)
        rows = int(np.prod(physical.shape[:-1], dtype=np.int64))
        width = physical.shape[-1]
        flat = np.full(rows * self.pitch, fill, dtype=array.dtype)
        flat.reshape(rows, self.pitch)[:, :width] = physical.reshape(rows, width)
        return flat[: max(0, rows * self.pitch - (self.pitch - width))]

    def unpack(self, flat: npt.NDArray[np.generic], shape: Sequence[int]) -> npt.NDArray[np.generic]:
        """Inverse of ``pack``: the logical array of ``shape``."""
        if self.rank == 0:
            return flat.reshape(())
        dense_layout = Layout(self.order, self.blocks)
        extents = [e for e in dense_layout.physical_shape(shape) if isinstance(e, int)]
        if self.pitch is not None:
            rows, width = int(np.prod(extents[:-1], dtype=np.int64)), extents[-1]
            whole = np.zeros(rows * self.pitch, dtype=flat.dtype)
            whole[: flat.size] = flat
            flat = whole.reshape(rows, self.pitch)[:, :width].reshape(-1)
        block_of = dict(self.blocks)
        positions = {("outer", axis): i for i, axis in enumerate(self.order)}
        positions |= {("inner", axis): self.rank + i for i, (axis, _) in enumerate(self.blocks)}
        permutation: list[int] = []
        merged: list[int] = []
        for axis in range(self.rank):
            permutation.append(positions["outer", axis])
            size = extents[positions["outer", axis]]
            if axis in block_of:
                permutation.append(positions["inner", axis])
                size *= block_of[axis]
            merged.append(size)
        array = flat.reshape(extents).transpose(permutation).reshape(merged)
        return array[tuple(slice(0, extent) for extent in shape)]

    def __str__(self) -> str:
        if self.is_row_major:
            return "row-major"
        text = "order(" + ",".join(map(str, self.order)) + ")"
        text += "".join(f" block({axis},{size})" for axis, size in self.blocks)
        return text if self.pitch is None else f"{text} pitch({self.pitch})"


def row_major(rank: int) -> Layout:
    """The plain layout: last axis fastest, no padding."""
    return Layout(tuple(range(rank)))


def channels_last(rank: int) -> Layout:
    """Axis 1 fastest: NHWC for NCHW indices.  Rank 2 and less: row-major."""
    return row_major(rank) if rank < 3 else Layout((0, *range(2, rank), 1))


def layout_to_json(layout: Layout) -> Json:
    """Document form."""
    return {
        "order": list(layout.order),
        "blocks": [[axis, size] for axis, size in layout.blocks],
        "pitch": layout.pitch,
    }


def layout_from_json(value: Json, where: str) -> Layout:
    """Inverse of ``layout_to_json``.  Raises SchemaError."""
    document = object_of(value, where, _LAYOUT_KEYS)
    order = ints_of(document["order"], where, 0, 63)
    blocks: list[tuple[int, int]] = []
    for pair in list_of(document["blocks"], where):
        numbers = ints_of(pair, where)
        if len(numbers) != 2:
            raise SchemaError(f"{where}: a block is [axis, size]")
        blocks.append((numbers[0], numbers[1]))
    pitch = document["pitch"]
    if not blocks and pitch is None:
        return _dense(order)
    return Layout(order, tuple(blocks), None if pitch is None else int_of(pitch, where, 1))


@functools.lru_cache(maxsize=256)
def _dense(order: tuple[int, ...]) -> Layout:
    """The layout without blocks and pitch: nearly every tensor of a plan has one of a few."""
    return Layout(order)
