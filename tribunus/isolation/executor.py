"""The Executor: the only thing a check may touch.  It owns buffers, poison, guards and clock.

Imported by: admission, certification, tests.  Imports: candidates, phaseir.  Types and the protocol; the worker that
serves it is beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from tribunus.candidates.model import Artifact
from tribunus.canon import Digest
from tribunus.phaseir.program import Array

Inputs: TypeAlias = "Mapping[int, Array]"
"""Logical arrays by signature value id: every INPUT and every WEIGHT, in NumPy storage of their dtype."""
DimValues: TypeAlias = "Mapping[str, int]"


class ExecutorKind(StrEnum):
    """What ran the candidate."""

    DEVICE = "device"
    ISA_INTERPRETER = "isa-interpreter"
    POCL = "pocl"
    MSL_SHIM = "msl-shim"
    MOCK = "mock"
    QEMU = "qemu"


class Guard(StrEnum):
    """Where the unmapped page stands: a read or write past that side of a buffer is a crash."""

    AFTER = "after"  # the buffer's last byte is the page's last (as far as the declared alignment allows)
    BEFORE = "before"  # the buffer's first byte is the page's first


class Poison(StrEnum):
    """What outputs, workspace, padding and surroundings hold before a call."""

    A5 = "a5"  # every byte 0xA5
    NAN = "nan"  # 0xFF in every byte: NaN in every float format, -1 in integers
    ZERO = "zero"
    RANDOM = "random"  # from a fixed seed


@dataclass(frozen=True, slots=True)
class RunTerms:
    """How to run a case.

    guard: side of the guard page.  poison: see Poison.  shift: bytes by which every input and output address is moved
    beyond its declared alignment (a multiple of it).  calls: consecutive calls on the same buffers.
    snapshots: which calls (counted from 1) to return outputs of.  in_place: let the recipe's in-place pairs share
    memory.  repoison: write the poison again before every call.
    """

    guard: Guard = Guard.AFTER
    poison: Poison = Poison.A5
    shift: int = 0
    calls: int = 1
    snapshots: tuple[int, ...] = (1,)
    in_place: bool = False
    repoison: bool = True


class Fate(StrEnum):
    """How the child that ran a candidate ended."""

    RETURNED = "returned"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Death:
    """Why a child did not return: the signal or limit, and where the fault lies relative to which buffer, in words."""

    cause: str
    signal: int
    where: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did.

    outputs: per snapshot, logical output arrays by value id.  unwritten: (value id, elements) that still held the
    poison when the first call returned (two poisons agree on it).  changed_inputs: value ids of inputs or positions of
    weights (negative, -1 - position) whose bytes changed.  damage: surroundings or padding that changed, in words.
    control_before, control_after: floating point control word (MXCSR on x86-64, FPCR on aarch64).  threads_before,
    threads_after: of the child.  late_writes: bytes of the outputs that changed after the call had returned.
    cpu_ns, process_cpu_ns, wall_ns: of the calls together.
    """

    fate: Fate
    death: Death | None
    outputs: tuple[Mapping[int, Array], ...]
    unwritten: tuple[tuple[int, int], ...]
    changed_inputs: tuple[int, ...]
    damage: tuple[str, ...]
    control_before: int
    control_after: int
    threads_before: int
    threads_after: int
    late_writes: int
    cpu_ns: int
    process_cpu_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class TimingProtocol:
    """How to time.

    rounds: each times every artifact once, order reversed every second round.  sample_ns: shortest sample; calls are
    repeated within one to reach it.  cold: weights rotate over more memory than the last-level cache holds.
    deadline_ns: longest wait for a sample beyond what is expected.  singles: artifacts, from the first on, whose calls
    are also timed one by one.  rest_ns: wait so long before the first sample; other work comes in bursts, and a
    measurement that is repeated at once falls into the same one.
    """

    rounds: int
    sample_ns: int
    cold: bool
    deadline_ns: int
    singles: int = 0
    rest_ns: int = 0


@dataclass(frozen=True, slots=True)
class TimingSamples:
    """Samples of one artifact, one entry a round; all in ns per call.

    wall: clock of the child around the calls of the sample.  cpu: its thread's CPU time.  process_cpu: of all its
    threads.  parent_wall: the parent's clock around the same batch, divided by the calls.  preempted: whether the
    sample lost the processor.  calls: per sample.  first_ns: the very first call, wall and CPU.
    outputs_fresh: whether the outputs of every sample were written by it (poisoned before, compared after).
    single_call_preempted: whether a call of those timed one by one lost the processor, or lost it right before.
    """

    artifact: Digest
    wall: tuple[int, ...]
    cpu: tuple[int, ...]
    process_cpu: tuple[int, ...]
    parent_wall: tuple[int, ...]
    preempted: tuple[bool, ...]
    calls: int
    first_wall_ns: int
    first_cpu_ns: int
    outputs_fresh: bool
    single_call_cpu: tuple[int, ...]
    fate: Fate
    death: Death | None
    single_call_preempted: tuple[bool, ...] = ()


class Axis(StrEnum):
    """One way to perturb a replay that must not change a bit."""

    REPEAT = "repeat"  # same process, back to back
    PROCESS = "process"  # a process of its own (exec'd), another environment and address layout
    ADDRESS = "address"  # buffers at other legal addresses
    POISON = "poison"  # other surroundings and workspace contents
    COLD = "cold"  # caches thrashed before
    LOAD = "load"  # a busy neighbour on another core
    INTERLEAVE = "interleave"  # other inputs in between
    PREFILL = "prefill"  # outputs hold NaN, then the previous result


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One replay: the axis, its position, the digest of all outputs' bytes, and how it ended."""

    axis: Axis
    index: int
    outputs: Digest
    control_after: int
    fate: Fate
    death: Death | None


@dataclass(frozen=True, slots=True)
class ReplayRuns:
    """All replays of one artifact on one case; ``reference`` is the first, in a fresh process.

    arrays: the reference's outputs; differing: the first run whose digest differs, with its outputs.
    """

    reference: Digest
    runs: tuple[ReplayRun, ...]
    arrays: Mapping[int, Array]
    differing: Mapping[int, Array] | None


class Executor(Protocol):
    """Runs artifacts where they cannot hurt, and reports what happened; judges nothing."""

    @property
    def kind(self) -> ExecutorKind:
        """What it is; a field of every receipt."""
        ...

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        """One case under ``terms``."""
        ...

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        """Interleaved timing of several artifacts (of one or of different signatures), each on its own inputs."""
        ...

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        """Replays along each axis, so many times; ``others`` are the inputs to interleave."""
        ...

    def renew(self) -> None:
        """A virgin child for whatever is next; called between checks."""
        ...

    def close(self) -> None:
        """End every child."""
        ...
