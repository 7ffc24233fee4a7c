"""Where an artifact's buffers lie: sizes, addresses, pages, guard pages; and the memory itself, shared with the child.

Imported by: worker, timing, replaying.  Imports: candidates, plan, phaseir, isolation.executor.

    | nothing | pages of input 0 | nothing | pages of output 0 | nothing | weights ... | nothing |

Guard AFTER: a buffer ends where its pages end, as far as its alignment allows; BEFORE: it starts where they start.
What is left of the pages holds poison, and is compared afterwards.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.candidates.model import Artifact
from tribunus.devices.cpu import PAGE
from tribunus.errors import InternalError
from tribunus.isolation.children import GUARD, Region
from tribunus.isolation.executor import DimValues, Guard, Poison
from tribunus.isolation.wire import Field, Message
from tribunus.phaseir import dims as dim_algebra
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array
from tribunus.plan.code import Operand

Bytes = npt.NDArray[np.uint8]

A5: Final = 0xA5
NOT_A5: Final = 0x5A
WORKSPACE_ALIGN: Final = 64
TIMING_ALIGN: Final = 256


def pattern(poison: Poison, size: int) -> Bytes:
    """``size`` bytes of poison."""
    match poison:
        case Poison.A5:
            return np.full(size, A5, np.uint8)
        case Poison.NAN:
            return np.full(size, 0xFF, np.uint8)
        case Poison.ZERO:
            return np.zeros(size, np.uint8)
        case Poison.RANDOM:
            words = np.random.Philox(key=0x7472696275).random_raw(-(-size // 8))
            found = words.view(np.uint8)[:size].copy()
            # No byte is the other poison's: an element cannot equal both by chance.
            found[found == A5] = NOT_A5
            return found


@dataclass(frozen=True, slots=True)
class Shaped:
    """An operand at numbers: how its logical array lies in memory."""

    value: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    layout: Layout
    elements: int
    align: int

    @property
    def nbytes(self) -> int:
        """Bytes in memory, padding included."""
        return self.elements * self.dtype.itemsize

    def flat(self, array: Array) -> Array:
        """The array as it lies in memory; padding is zero.  Raises InternalError for another dtype or shape."""
        if array.dtype != self.dtype or array.shape != self.shape:
            raise InternalError(
                f"value {self.value} is {array.dtype}{list(array.shape)}, {self.dtype}{list(self.shape)} was expected"
            )
        if self.layout.is_row_major:
            return np.ascontiguousarray(array).reshape(-1)
        return self.layout.pack(array)

    def logical(self, data: Bytes) -> Array:
        """The logical array from bytes in memory; a copy."""
        flat = data.copy().view(self.dtype)
        if self.layout.is_row_major:
            return flat.reshape(self.shape)
        return np.ascontiguousarray(self.layout.unpack(flat, self.shape))

    def padding(self) -> npt.NDArray[np.bool_] | None:
        """Which elements in memory belong to no logical element; None where all do."""
        if self.elements == int(np.prod(self.shape, dtype=np.int64)):
            return None
        return ~self.layout.pack(np.ones(self.shape, np.bool_)).astype(np.bool_)

    def gaps(self) -> npt.NDArray[np.bool_] | None:
        """Which elements in memory lie between rows, so that they belong to a neighbour; None where none do."""
        if self.layout.pitch is None:
            return None
        dense = Layout(self.layout.order, self.layout.blocks).physical_shape(self.shape)
        width = dense[-1] if dense else 1
        if not isinstance(width, int) or width >= self.layout.pitch:
            return None
        gap: npt.NDArray[np.bool_] = np.arange(self.elements) % self.layout.pitch >= width
        return gap


def shaped(operand: Operand, value: int, dims: DimValues) -> Shaped:
    """``operand`` at these dims."""
    shape = operand.type.at(dims).numbers()
    elements = operand.layout.elements(shape)
    if not isinstance(elements, int):
        raise InternalError(f"the layout {operand.layout} has no size at {dict(dims)}")
    return Shaped(value, operand.type.dtype.numpy, shape, operand.layout, elements, operand.align)


class SharedMemory:
    """A memory file that the parent sees whole as bytes and the child in parts; released with its last user."""

    def __init__(self, size: int) -> None:
        self.size = max(size, PAGE)
        self.file = os.memfd_create("tribunus-buffers", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.file)
        os.ftruncate(self.file, self.size)
        self.bytes: Bytes = np.frombuffer(mmap.mmap(self.file, self.size), np.uint8)


@dataclass(frozen=True, slots=True)
class Span:
    """A buffer in its file: offset and bytes; pages from ``page`` to ``page + length``."""

    name: str
    offset: int
    nbytes: int
    page: int
    length: int
    writable: bool


def lay_out(requests: Sequence[tuple[str, int, int, bool]], guard: Guard, shift: int) -> tuple[tuple[Span, ...], int]:
    """Spans of (name, bytes, alignment, writable) buffers, each on pages of its own; and the bytes of all pages.

    shift is rounded up to a multiple of each buffer's alignment.
    """
    spans: list[Span] = []
    page = 0
    for name, nbytes, align, writable in requests:
        moved = -(-shift // align) * align
        length = (
            -(-(nbytes + moved + align) // PAGE) * PAGE if align > 1 or moved else max(PAGE, -(-nbytes // PAGE) * PAGE)
        )
        start = moved if guard is Guard.BEFORE else (length - nbytes) // align * align - moved
        spans.append(Span(name, page + start, nbytes, page, length, writable))
        page += length
    return tuple(spans), page


def lay_out_dense(requests: Sequence[tuple[str, int, int, bool]]) -> tuple[tuple[Span, ...], int]:
    """Spans side by side as in the runtime's arena, for timing: one range of pages."""
    spans: list[Span] = []
    position = 0
    for name, nbytes, align, writable in requests:
        unit = max(align, TIMING_ALIGN)
        position = -(-position // unit) * unit
        spans.append(Span(name, position, nbytes, position, nbytes, writable))
        position += nbytes
    return tuple(spans), -(-max(position, 1) // PAGE) * PAGE


@dataclass(frozen=True, slots=True)
class BufferMap:
    """What the child is told: a message, the files behind it, and the regions for explaining a fault."""

    message: Message
    files: tuple[int, ...]
    regions: tuple[Region, ...]


def guarded_mapping(
    groups: Sequence[tuple[SharedMemory, Sequence[Span]]],
    order: Sequence[tuple[int, int]],
    params: Sequence[int],
    parts: int,
) -> BufferMap:
    """Every span on its own pages between guards.  order: (group, span) of each entry of the buffers table."""
    rows: list[Field] = []
    regions: list[Region] = []
    addresses: dict[tuple[int, int], int] = {}
    position = GUARD
    for g, (_, spans) in enumerate(groups):
        for s, span in enumerate(spans):
            rows.append([position, g, span.page, span.length, int(span.writable)])
            start = position + span.offset - span.page
            addresses[g, s] = start
            regions.append(Region(span.name, start, span.nbytes, position, position + span.length, span.writable))
            position += span.length + GUARD
    message: Message = {
        "size": position,
        "regions": rows,
        "params": list(params),
        "parts": parts,
        "launches": [[addresses[key] for key in order]],
    }
    return BufferMap(message, tuple(memory.file for memory, _ in groups), tuple(regions))


def evaluate_params(artifact: Artifact, dims: DimValues) -> tuple[int, ...]:
    """Values of the kernel's parameters at these dims."""
    return tuple(dim_algebra.evaluate(p, dims) for p in artifact.recipe.params)


def workspace_bytes(artifact: Artifact, dims: DimValues) -> int:
    """Bytes of the workspace at these dims."""
    return dim_algebra.evaluate(artifact.recipe.workspace, dims)


def shaped_inputs(artifact: Artifact, dims: DimValues) -> tuple[Shaped, ...]:
    """The inputs at these dims, in recipe order."""
    pairs = zip(artifact.recipe.inputs, artifact.signature.inputs, strict=True)
    return tuple(shaped(operand, value, dims) for operand, value in pairs)


def shaped_outputs(artifact: Artifact, dims: DimValues) -> tuple[Shaped, ...]:
    """The outputs at these dims, in recipe order."""
    pairs = zip(artifact.recipe.outputs, artifact.signature.outputs, strict=True)
    return tuple(shaped(operand, value, dims) for operand, value in pairs)


def weight_requests(artifact: Artifact) -> list[tuple[str, int, int, bool]]:
    """Layout requests of the packed weights."""
    return [(f"weight {i}", w.nbytes, w.align, False) for i, w in enumerate(artifact.recipe.weights)]


def in_place_sources(artifact: Artifact, wanted: bool) -> Mapping[int, int]:
    """Output position -> input position whose memory it shares."""
    return dict(artifact.recipe.in_place) if wanted else {}
