"""CpuExecutor: runs, times and replays artifacts on this machine's processor, in children that may die.

Imported by: certification, certify, tests.  Imports: children, run_buffers, timing, replaying, candidates.

The parent owns buffers, poison, guards, expected values and clock; what a child says of itself is compared with what
the parent sees.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from tribunus.candidates.backend import Backend
from tribunus.candidates.model import Artifact
from tribunus.devices.cpu import STICKY_BITS
from tribunus.errors import InternalError
from tribunus.isolation import wire
from tribunus.isolation.children import FLAT, Child, Died, Limits, Zygote, module_path
from tribunus.isolation.executor import (
    Axis,
    Death,
    DimValues,
    ExecutorKind,
    Fate,
    Guard,
    Inputs,
    Outcome,
    Poison,
    ReplayRuns,
    RunTerms,
    TimingProtocol,
    TimingSamples,
)
from tribunus.isolation.placement import Bytes
from tribunus.isolation.replaying import replay_all
from tribunus.isolation.run_buffers import Geometry, Mask, PackedWeights, RunBuffers, geometry_of, weights_identity
from tribunus.isolation.timing import measure
from tribunus.phaseir.program import Array
from tribunus.runtime.replayers import OWN_FORMATS, replayer_place
from tribunus.targets.detect import machine_facts

_KEPT_BUFFERS: Final = 8
_KEPT_BYTES: Final = 512 << 20
_KEPT_WEIGHTS: Final = 4
_LONGEST_NS: Final = 600 * 10**9
_WATCH_NS: Final = 100 * 10**6
SECOND_POISON: Final = {
    Poison.A5: Poison.NAN,
    Poison.NAN: Poison.A5,
    Poison.ZERO: Poison.A5,
    Poison.RANDOM: Poison.A5,
}


class _Totals:
    """Clocks and control words of a run's calls together."""

    def __init__(self, control: int) -> None:
        self.before = control & ~STICKY_BITS
        self.after = self.before
        self.cpu = self.process = self.wall = 0

    def add(self, answer: wire.Message) -> None:
        self.cpu += wire.integer(answer, "cpu")
        self.process += wire.integer(answer, "process")
        self.wall += wire.integer(answer, "wall")
        for word in wire.integers(answer, "after"):
            if word & ~STICKY_BITS != self.before:
                self.after = word & ~STICKY_BITS


class CpuExecutor:
    """Executor of the kind ``device`` for processors.

    backends: by name, for packing weights.  replayers: code format -> ``module:attribute``; those of the backends'
    other formats are found among what is installed.  deadline_ns: longest that one call may take.  Raises DriverError
    for a format without a replayer.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        replayers: Mapping[str, str] | None = None,
        *,
        deadline_ns: int = 10 * 10**9,
        limits: Limits | None = None,
    ) -> None:
        self._backends = dict(backends)
        self._replayers = {**OWN_FORMATS, **(replayers or {})}
        for format_ in (f for backend in backends.values() for f in backend.formats):
            if format_ not in self._replayers:
                self._replayers[format_] = replayer_place(format_)
        self._deadline_ns = deadline_ns
        self._limits = limits or Limits()
        self._path = module_path(list(self._replayers.values()))
        self._flat_zygote = Zygote([self._replayers[FLAT].partition(":")[0]], self._path)
        self._other_zygote = Zygote(["tribunus.plan.code"], self._path)
        self._cache_bytes = machine_facts().last_level_cache
        self._child: Child | None = None
        self._loaded = ""
        self._mapped: tuple[RunBuffers, PackedWeights] | None = None
        self._buffers: OrderedDict[Geometry, RunBuffers] = OrderedDict()
        self._weights: OrderedDict[tuple[object, ...], PackedWeights] = OrderedDict()

    @property
    def kind(self) -> ExecutorKind:
        """The real thing."""
        return ExecutorKind.DEVICE

    @property
    def child_pid(self) -> int:
        """Pid of the child that runs are served by; 0 while there is none."""
        return 0 if self._child is None else self._child.pid

    def renew(self) -> None:
        """End the child that is alive: the next run gets a virgin one.  To be called between checks."""
        if self._child is not None:
            self._child.close()
        self._forget()

    def close(self) -> None:
        """End every child and the processes that fork them."""
        self.renew()
        self._flat_zygote.close()
        self._other_zygote.close()
        self._buffers.clear()
        self._weights.clear()

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        """One case under ``terms``, in the child that already holds ``artifact`` if there is one."""
        buffers = self.buffers(artifact, dims, terms)
        weights = self.weights(artifact, inputs, terms.guard)
        buffers.fill(inputs, terms.poison)
        snapshots: dict[int, Mapping[int, Array]] = {}
        try:
            child = self._child_for(artifact)
            self._give(child, buffers, weights)
            return self._calls(child, buffers, weights, terms, snapshots)
        except Died as end:
            self._forget()
            return _death_outcome(end, tuple(snapshots[s] for s in terms.snapshots if s in snapshots))

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        """Interleaved timing in one child of its own, on processors of its own where there are enough."""
        self.renew()
        return measure(self.forked, self.backend, artifacts, dims, inputs, protocol, self._cache_bytes)

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        """Replays along each axis, each in children of its own; the reference in a fresh process."""
        self.renew()
        return replay_all(self, artifact, dims, inputs, others, axes, self._cache_bytes)

    def buffers(self, artifact: Artifact, dims: DimValues, terms: RunTerms) -> RunBuffers:
        """Memory for a run of this geometry; the same object for the same geometry while it is kept."""
        key = geometry_of(artifact, dims, terms)
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = RunBuffers(artifact, dims, terms)
            total = sum(buffers.nbytes for buffers in self._buffers.values())
            while len(self._buffers) > 1 and (len(self._buffers) > _KEPT_BUFFERS or total > _KEPT_BYTES):
                total -= self._buffers.popitem(last=False)[1].nbytes
        self._buffers.move_to_end(key)
        return found

    def weights(self, artifact: Artifact, inputs: Inputs, guard: Guard) -> PackedWeights:
        """Packed weights in shared memory; the same object for the same weights while it is kept."""
        key = (artifact.digest, guard, weights_identity(artifact, inputs))
        found = self._weights.get(key)
        if found is None:
            found = self._weights[key] = PackedWeights(artifact, self.backend(artifact), inputs, guard)
            if len(self._weights) > _KEPT_WEIGHTS:
                self._weights.popitem(last=False)
        self._weights.move_to_end(key)
        return found

    def backend(self, artifact: Artifact) -> Backend:
        """The backend that made ``artifact``.  Raises InternalError."""
        found = self._backends.get(artifact.candidate.backend)
        if found is None:
            raise InternalError(f"the executor does not know the backend {artifact.candidate.backend!r}")
        return found

    def forked(self, artifacts: Sequence[Artifact], pin: Sequence[int] = ()) -> Child:
        """A new child with ``artifacts`` loaded.  Raises Died."""
        flat = all(a.code.format == FLAT for a in artifacts)
        child = Child.forked(self._flat_zygote if flat else self._other_zygote)
        child.load(artifacts, self._replayers, self._limits, pin=pin)
        return child

    def executed(self, artifact: Artifact, extra: Mapping[str, str]) -> Child:
        """A child in a process of its own with ``extra`` in its environment.  Raises Died."""
        child = Child.executed(self._path, extra, artifact.code.format == FLAT)
        child.load([artifact], self._replayers, self._limits, environment=True)
        return child

    def deadline(self, calls: int) -> int:
        """Until when, on the monotonic clock, so many calls must have returned."""
        return time.monotonic_ns() + min(self._deadline_ns * max(1, calls), max(self._deadline_ns, _LONGEST_NS))

    def _child_for(self, artifact: Artifact) -> Child:
        if self._child is None or self._loaded != artifact.digest:
            self.renew()
            self._child = self.forked([artifact])
            self._loaded = artifact.digest
        return self._child

    def _give(self, child: Child, buffers: RunBuffers, weights: PackedWeights) -> None:
        if self._mapped is None or self._mapped[0] is not buffers or self._mapped[1] is not weights:
            plan = buffers.mapping(weights)
            child.map(0, plan.message, plan.files, plan.regions)
            self._mapped = (buffers, weights)

    def _forget(self) -> None:
        self._child, self._loaded, self._mapped = None, "", None

    def _calls(
        self,
        child: Child,
        buffers: RunBuffers,
        weights: PackedWeights,
        terms: RunTerms,
        snapshots: dict[int, Mapping[int, Array]],
    ) -> Outcome:
        threads_before = child.threads
        totals = _Totals(child.control)
        stops = range(1, terms.calls + 1) if terms.repoison else sorted({1, *terms.snapshots, terms.calls})
        done = 0
        suspects: dict[int, Mask] = {}
        raw: tuple[Bytes, ...] = ()
        for stop in stops:
            if done and terms.repoison:
                buffers.poison(terms.poison)
            count = stop - done
            totals.add(child.ask({"op": "go", "slot": 0, "calls": count}, self.deadline(count)))
            if stop == 1 or stop in terms.snapshots or stop == terms.calls:
                raw = buffers.raw_outputs()
            if stop in terms.snapshots:
                snapshots[stop] = buffers.read(raw)
            if stop == 1:
                suspects = buffers.untouched(raw, terms.poison)
            done = stop
        threads_after = child.threads
        changed = buffers.changed_inputs()
        if not child.sealed:
            changed += tuple(-1 - position for position in weights.changed())
        damage = buffers.damage(terms.poison)
        late = _late_writes(child, buffers, raw, threads_before)
        unwritten = self._confirm(child, buffers, terms, suspects, totals) if suspects else ()
        return Outcome(
            fate=Fate.RETURNED,
            death=None,
            outputs=tuple(snapshots[s] for s in terms.snapshots),
            unwritten=unwritten,
            changed_inputs=changed,
            damage=damage,
            control_before=totals.before,
            control_after=totals.after,
            threads_before=threads_before,
            threads_after=threads_after,
            late_writes=late,
            cpu_ns=totals.cpu,
            process_cpu_ns=totals.process,
            wall_ns=totals.wall,
        )

    def _confirm(
        self, child: Child, buffers: RunBuffers, terms: RunTerms, suspects: Mapping[int, Mask], totals: _Totals
    ) -> tuple[tuple[int, int], ...]:
        """Elements that hold the poison under a second poison too: a result may equal one by chance, not both."""
        second = SECOND_POISON[terms.poison]
        buffers.poison(second)
        child.ask({"op": "go", "slot": 0, "calls": 1}, self.deadline(1))
        again = buffers.untouched(buffers.raw_outputs(), second)
        found: list[tuple[int, int]] = []
        for position in sorted(suspects.keys() & again.keys()):
            count = int((suspects[position] & again[position]).sum())
            if count:
                found.append((buffers.outputs[position].value, count))
        return tuple(found)


def _late_writes(child: Child, buffers: RunBuffers, raw: Sequence[Bytes], threads: int) -> int:
    """Bytes that changed after the call had returned.

    threads: how many there were before it.  Where there are more now, they are watched for a while, at most until they
    are gone.
    """
    until = time.monotonic_ns() + _WATCH_NS
    while child.threads > threads and time.monotonic_ns() < until:
        time.sleep(0.002)
    return buffers.late_writes(raw)


def _death_outcome(end: Died, outputs: tuple[Mapping[int, Array], ...]) -> Outcome:
    death: Death = end.death
    return Outcome(end.fate, death, outputs, (), (), (), 0, 0, 0, 0, 0, 0, 0, 0)
