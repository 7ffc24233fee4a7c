"""Replays along every axis that must not change a bit: process, address, poison, caches, load, order, old contents.

Imported by: worker.  Imports: children, run_buffers, candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tribunus.candidates.model import Artifact
from tribunus.canon import Digest, digest_bytes
from tribunus.devices.cpu import STICKY_BITS, usable_cpus
from tribunus.isolation import wire
from tribunus.isolation.children import Child, Died
from tribunus.isolation.executor import (
    Axis,
    Death,
    DimValues,
    Fate,
    Guard,
    Inputs,
    Poison,
    ReplayRun,
    ReplayRuns,
    RunTerms,
)
from tribunus.isolation.placement import Bytes
from tribunus.isolation.run_buffers import PackedWeights, RunBuffers
from tribunus.phaseir.program import Array

_SHIFTS: Final = (4, 16, 32, 60, 8, 128, 12, 2048)
_POISONS: Final = (Poison.ZERO, Poison.NAN, Poison.RANDOM, Poison.A5)
_BUSY_BYTES: Final = 64 << 20
_PATIENCE_NS: Final = 30 * 10**9
_BASE: Final = RunTerms()


class Host(Protocol):
    """What replays need of the executor."""

    def buffers(self, artifact: Artifact, dims: DimValues, terms: RunTerms) -> RunBuffers:
        """Memory for a run of this geometry."""
        ...

    def weights(self, artifact: Artifact, inputs: Inputs, guard: Guard) -> PackedWeights:
        """Packed weights in shared memory."""
        ...

    def forked(self, artifacts: Sequence[Artifact], pin: Sequence[int] = ()) -> Child:
        """A forked child with ``artifacts`` loaded."""
        ...

    def executed(self, artifact: Artifact, extra: Mapping[str, str]) -> Child:
        """A child in a process of its own."""
        ...

    def deadline(self, calls: int) -> int:
        """Until when so many calls must have returned."""
        ...


@dataclass(frozen=True, slots=True)
class _Case:
    host: Host
    artifact: Artifact
    dims: DimValues
    inputs: Inputs
    others: Sequence[Inputs]
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class _Answer:
    raw: tuple[Bytes, ...]
    arrays: Mapping[int, Array]
    control: int

    @property
    def digest(self) -> Digest:
        """Of all outputs' bytes in logical order."""
        return digest_bytes(b"".join(self.arrays[v].tobytes() for v in sorted(self.arrays)))


@dataclass(slots=True)
class _Runner:
    """A child that replays one artifact."""

    case: _Case
    child: Child
    mapped: tuple[RunBuffers, PackedWeights] | None = field(default=None)

    def once(self, inputs: Inputs, terms: RunTerms = _BASE, outputs: Sequence[Bytes] | None = None) -> _Answer:
        """One call on freshly poisoned buffers; outputs: what the outputs hold before instead of poison."""
        case = self.case
        buffers = case.host.buffers(case.artifact, case.dims, terms)
        weights = case.host.weights(case.artifact, inputs, terms.guard)
        if self.mapped is None or self.mapped[0] is not buffers or self.mapped[1] is not weights:
            plan = buffers.mapping(weights)
            self.child.map(0, plan.message, plan.files, plan.regions)
            self.mapped = (buffers, weights)
        buffers.fill(inputs, terms.poison)
        if outputs is not None:
            buffers.write_outputs(outputs)
        answer = self.child.ask({"op": "go", "slot": 0, "calls": 1}, case.host.deadline(1))
        raw = buffers.raw_outputs()
        before = self.child.control & ~STICKY_BITS
        words = [word & ~STICKY_BITS for word in wire.integers(answer, "after")]
        return _Answer(raw, buffers.read(raw), next((w for w in words if w != before), before))


def replay_all(
    host: Host,
    artifact: Artifact,
    dims: DimValues,
    inputs: Inputs,
    others: Sequence[Inputs],
    axes: Mapping[Axis, int],
    cache_bytes: int,
) -> ReplayRuns:
    """Every replay that ``axes`` ask for, after a reference run in a fresh process; the first death ends them."""
    case = _Case(host, artifact, dims, inputs, others, cache_bytes)
    try:
        reference = _in_fresh_process(case, 0)
    except Died as end:
        dead = ReplayRun(Axis.PROCESS, 0, digest_bytes(b""), 0, end.fate, end.death)
        return ReplayRuns(dead.outputs, (dead,), {}, None)
    runs: list[ReplayRun] = []
    differing: Mapping[int, Array] | None = None
    for axis, count in axes.items():
        position = 0
        try:
            for answer in _AXES[axis](case, count):
                runs.append(ReplayRun(axis, position, answer.digest, answer.control, Fate.RETURNED, None))
                position += 1
                if differing is None and answer.digest != reference.digest:
                    differing = answer.arrays
        except Died as end:
            runs.append(_died(axis, position, end.fate, end.death))
            break
    return ReplayRuns(reference.digest, tuple(runs), reference.arrays, differing)


def _died(axis: Axis, position: int, fate: Fate, death: Death) -> ReplayRun:
    return ReplayRun(axis, position, digest_bytes(b""), 0, fate, death)


def _in_fresh_process(case: _Case, number: int) -> _Answer:
    """A run in an exec'd process; another number is another environment, hence another stack and heap."""
    extra = {
        "TZ": ("UTC", "Asia/Kolkata", "America/St_Johns")[number % 3],
        "LANG": ("C", "de_DE.UTF-8", "tr_TR.UTF-8")[number % 3],
        "HOME": f"/nonexistent/{number}",
        "TRIBUNUS_PADDING": "x" * (937 * number % 8191),
    }
    child = case.host.executed(case.artifact, extra)
    try:
        return _Runner(case, child).once(case.inputs)
    finally:
        child.close()


def _with_child(case: _Case, run: Callable[[_Runner, int], _Answer], count: int) -> Iterator[_Answer]:
    """``count`` runs in one forked child."""
    if count < 1:
        return
    child = case.host.forked([case.artifact])
    try:
        runner = _Runner(case, child)
        for number in range(count):
            yield run(runner, number)
    finally:
        child.close()


def _repeat(case: _Case, count: int) -> Iterator[_Answer]:
    return _with_child(case, lambda runner, _: runner.once(case.inputs), count)


def _process(case: _Case, count: int) -> Iterator[_Answer]:
    return (_in_fresh_process(case, 1 + number) for number in range(count))


def _address(case: _Case, count: int) -> Iterator[_Answer]:
    def run(runner: _Runner, number: int) -> _Answer:
        guard = Guard.AFTER if number % 2 else Guard.BEFORE
        return runner.once(case.inputs, RunTerms(guard=guard, shift=_SHIFTS[number % len(_SHIFTS)]))

    return _with_child(case, run, count)


def _poison(case: _Case, count: int) -> Iterator[_Answer]:
    def run(runner: _Runner, number: int) -> _Answer:
        return runner.once(case.inputs, RunTerms(poison=_POISONS[number % len(_POISONS)]))

    return _with_child(case, run, count)


def _cold(case: _Case, count: int) -> Iterator[_Answer]:
    def run(runner: _Runner, _: int) -> _Answer:
        runner.child.ask({"op": "thrash", "bytes": 2 * case.cache_bytes}, time.monotonic_ns() + _PATIENCE_NS)
        return runner.once(case.inputs)

    return _with_child(case, run, count)


def _load(case: _Case, count: int) -> Iterator[_Answer]:
    """Beside a child that keeps the memory and, where there are several, another processor busy."""
    if count < 1:
        return
    busy = case.host.forked([], usable_cpus()[:1])
    try:
        busy.ask({"op": "spin", "bytes": _BUSY_BYTES}, time.monotonic_ns() + _PATIENCE_NS)
        yield from _repeat(case, count)
    finally:
        busy.close()


def _interleave(case: _Case, count: int) -> Iterator[_Answer]:
    others = case.others or (case.inputs,)

    def run(runner: _Runner, number: int) -> _Answer:
        runner.once(others[number % len(others)])
        return runner.once(case.inputs)

    return _with_child(case, run, count)


def _prefill(case: _Case, count: int) -> Iterator[_Answer]:
    """Outputs hold NaN, then the result of other inputs, in turn."""
    others = case.others or (case.inputs,)

    def run(runner: _Runner, number: int) -> _Answer:
        if number % 2 == 0:
            return runner.once(case.inputs, RunTerms(poison=Poison.NAN))
        return runner.once(case.inputs, outputs=runner.once(others[number % len(others)]).raw)

    return _with_child(case, run, count)


_AXES: Final[dict[Axis, Callable[[_Case, int], Iterator[_Answer]]]] = {
    Axis.REPEAT: _repeat,
    Axis.PROCESS: _process,
    Axis.ADDRESS: _address,
    Axis.POISON: _poison,
    Axis.COLD: _cold,
    Axis.LOAD: _load,
    Axis.INTERLEAVE: _interleave,
    Axis.PREFILL: _prefill,
}
