"""The plan: everything that replay does on one target, as data.

Imported by: planning (writes it), image (checks it), runtime (reads it).  Imports: canon, phaseir, code.  Types only;
documents are in ``plan.document``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tribunus.canon import Digest
from tribunus.phaseir.dims import Dim, Symbol
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import CodeFormat, Recipe, Slot
from tribunus.records import dataclass

SCHEMA: Final = "tribunus.plan/1"
KERNEL_ALIGN: Final = 256
TENSOR_ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class ContentKey:
    """The fields of a kernel's cache key that depend on content alone, so that a reproducible plan may hold them."""

    backend: str
    op: str  # label of the signature
    dtype: str
    shape: str
    batch: str
    quantization: str
    policy: str
    layouts: str
    arch: str
    threads: int


@dataclass(frozen=True, slots=True)
class PlanKernel:
    """One kernel of the pack.  id: signature name / candidate name.  offset, size: bytes in the kernel pack.

    symbols: names of the signature's symbols, in the order in which launches bind them.
    """

    id: str
    signature: Digest
    candidate: Digest
    format: CodeFormat
    offset: int
    size: int
    digest: Digest
    facts: tuple[tuple[str, int | str], ...]
    symbols: tuple[str, ...]
    recipe: Recipe
    key: ContentKey


@dataclass(frozen=True, slots=True)
class HostCode:
    """Code that serves the plan and computes no op: in the pack, signed, audited, without admission."""

    role: str
    format: CodeFormat
    offset: int
    size: int
    digest: Digest
    facts: tuple[tuple[str, int | str], ...]


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """Packed weight bytes.  blob: index of the weight shard; offset, size: bytes in it.

    kernel, operand: for whose weight operand they were packed.  sources: digests of the constants they come from.
    """

    blob: int
    offset: int
    size: int
    kernel: int
    operand: int
    sources: tuple[Digest, ...]


class BufferRole(StrEnum):
    """What a buffer is to its profile."""

    INPUT = "input"
    OUTPUT = "output"
    TEMP = "temp"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A range of the profile's arena, in bytes; planned at the upper bounds of the dims.

    Buffers whose ranges intersect must never be live at once, unless ``view_of`` says that this one *is* (a part of)
    another buffer's memory: then offset and size lie inside that one's range.
    """

    offset: int
    size: int
    role: BufferRole
    view_of: int | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a profile as the caller sees it.  label: the model's name, opaque."""

    label: str
    buffer: int
    type: TensorType
    layout: Layout


@dataclass(frozen=True, slots=True)
class StateBinding:
    """A state: its buffer survives replays; ``initial`` is the tensor that ``reset`` copies, None for zeros.

    type: over the profile's symbols; row-major.
    """

    label: str
    buffer: int
    type: TensorType
    initial: int | None


@dataclass(frozen=True, slots=True)
class Launch:
    """One entry of the list that replay walks.

    kernel: index.  bind: values of the kernel's symbols as dims over the profile's symbols.  args: one slot for each
    entry of the kernel's buffers array.  parts: threads that take a share.  wait: earlier launches whose results are
    read; the sequencer puts a barrier where threads differ.
    """

    kernel: int
    bind: tuple[Dim, ...]
    args: tuple[Slot, ...]
    parts: int
    wait: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Golden:
    """Outputs recorded at certification, for ``selftest``: inputs by seed or by digest, bytes of the outputs.

    dims: value of each symbol.  inputs: (offset, size) of each input's bytes in the goldens blob; outputs likewise.
    """

    case: str
    dims: tuple[int, ...]
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """One range of dims with its own list of launches.

    symbols: with bounds; a static profile has none.  arena: bytes.  representatives: dims at which it was certified.
    """

    name: str
    symbols: tuple[Symbol, ...]
    arena: int
    buffers: tuple[Buffer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StateBinding, ...]
    launches: tuple[Launch, ...]
    representatives: tuple[tuple[int, ...], ...]
    goldens: tuple[Golden, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One region's plan.

    target: the region's name, e.g. ``cpu-x86-64-v4``.  arch, features: what the machine must have.  threads: parts the
    static partition was made for.
    """

    target: str
    arch: str
    features: tuple[str, ...]
    threads: int
    kernels: tuple[PlanKernel, ...]
    host: tuple[HostCode, ...]
    tensors: tuple[PlanTensor, ...]
    profiles: tuple[Profile, ...]
