"""Interleaved timing: several artifacts in one child, sampled in turn, by the child's clocks and by the parent's.

Imported by: worker.  Imports: children, placement, candidates, targets.

Round by round every artifact is sampled once, in an order that is reversed every second round.  Before a sample some
elements of the outputs are spoilt, afterwards all of them must be what the first call wrote.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tribunus.candidates.backend import Backend, packed_weights
from tribunus.candidates.model import Artifact
from tribunus.isolation import wire
from tribunus.isolation.children import GUARD, Child, Died, Region, timing_cpus
from tribunus.isolation.executor import Death, DimValues, Fate, Inputs, Poison, TimingProtocol, TimingSamples
from tribunus.isolation.placement import (
    WORKSPACE_ALIGN,
    Bytes,
    SharedMemory,
    Span,
    evaluate_params,
    lay_out_dense,
    pattern,
    shaped_inputs,
    shaped_outputs,
    weight_requests,
    workspace_bytes,
)
from tribunus.isolation.wire import Message

_SHORTEST_BATCH_NS: Final = 2_000_000  # below it the parent's clock is too coarse
_MOST_CALLS: Final = 1 << 20
_MOST_ROTATING_CALLS: Final = 4096
_MOST_COPIES: Final = 4096
_MOST_COLD_BYTES: Final = 512 << 20
_SPOILT: Final = 64
_MARKS: Final = 250
_SINGLE_CALLS: Final = 400
_SINGLE_CALLS_NS: Final = 250_000_000
_FEWEST_SINGLES: Final = 100  # of calls so short that a sample needs several
_BUSY_FACTOR: Final = 20  # how much longer than expected a batch may take before the deadline counts

Launcher = Callable[[Sequence[Artifact], Sequence[int]], Child]


class TimedBuffers:
    """Memory of one timed artifact, laid out as in the runtime's arena; copies of its weights (or inputs) if cold."""

    def __init__(self, artifact: Artifact, backend: Backend, dims: DimValues, inputs: Inputs, cold_bytes: int) -> None:
        ins, outs = shaped_inputs(artifact, dims), shaped_outputs(artifact, dims)
        in_requests = [(f"input {i}", item.nbytes, item.align, True) for i, item in enumerate(ins)]
        out_requests = [(f"output {i}", item.nbytes, item.align, True) for i, item in enumerate(outs)]
        work = [("workspace", workspace_bytes(artifact, dims), WORKSPACE_ALIGN, True)]
        work = work if artifact.recipe.has_workspace else []
        weights = weight_requests(artifact)
        moving = weights if weights else in_requests
        fixed = [*(in_requests if weights else []), *out_requests, *work]
        unit = sum(nbytes for _, nbytes, _, _ in moving)
        self.copies = _copies(unit, cold_bytes)
        spans, size = lay_out_dense([*fixed, *(r for _ in range(self.copies) for r in moving)])
        self.memory = SharedMemory(size)
        fixed_ins = len(in_requests) if weights else 0
        self._outputs = spans[fixed_ins : fixed_ins + len(outs)]
        self._items = [item.dtype.itemsize for item in outs]
        # Padding and gaps need not be written: they are neither spoilt nor compared.
        self._places = [None if (p := item.padding()) is None else np.flatnonzero(~p) for item in outs]
        flats = [item.flat(inputs[item.value]).view(np.uint8) for item in ins]
        packed = [np.frombuffer(data, np.uint8) for data in packed_weights(backend, artifact, inputs)]
        order: list[list[int]] = []
        for copy in range(self.copies):
            start = len(fixed) + copy * len(moving)
            mine = spans[start : start + len(moving)]
            for span, data in zip(mine, packed if weights else flats, strict=True):
                self._view(span)[:] = data
            kept = spans[: len(in_requests)] if weights else mine
            last = mine if weights else ()
            tail = spans[len(fixed) - 1 : len(fixed)] if work else ()
            order.append([GUARD + span.offset for span in (*kept, *self._outputs, *last, *tail)])
        if weights:
            for span, data in zip(spans, flats, strict=False):
                self._view(span)[:] = data
        for span in self._outputs:
            self._view(span)[:] = pattern(Poison.A5, span.nbytes)
        self.message: Message = {
            "size": size + 2 * GUARD,
            "regions": [[GUARD, 0, 0, self.memory.size, 1]],
            "params": list(evaluate_params(artifact, dims)),
            "parts": artifact.recipe.split.parts,
            "launches": [list(row) for row in order],
            "populate": True,
        }
        self.regions = [Region(s.name, GUARD + s.offset, s.nbytes, GUARD, GUARD + size, True) for s in spans]
        self._expected: list[Bytes] = []
        self._random = np.random.Generator(np.random.Philox(key=0x74696D65))

    def remember(self) -> None:
        """What the outputs hold now is what every later call must write."""
        self._expected = [self._view(span).copy() for span in self._outputs]

    def spoil(self) -> None:
        """Invert some elements of every output, drawn anew each time."""
        rows = zip(self._outputs, self._items, self._places, self._expected, strict=True)
        for span, size, places, expected in rows:
            count = span.nbytes // size
            if count:
                chosen = self._random.integers(0, count if places is None else len(places), _SPOILT)
                chosen = chosen if places is None else places[chosen]
                view = self._view(span).reshape(count, size)
                view[chosen] = ~expected.reshape(count, size)[chosen]

    def fresh(self) -> bool:
        """Whether the outputs are what the first call wrote."""
        for span, size, places, expected in zip(self._outputs, self._items, self._places, self._expected, strict=True):
            seen, wanted = self._view(span).reshape(-1, size), expected.reshape(-1, size)
            if not np.array_equal(*((seen, wanted) if places is None else (seen[places], wanted[places]))):
                return False
        return True

    def _view(self, span: Span) -> Bytes:
        return self.memory.bytes[span.offset : span.offset + span.nbytes]


def _copies(unit: int, cold_bytes: int) -> int:
    if cold_bytes == 0 or unit == 0:
        return 1
    return max(2, min(-(-cold_bytes // unit), _MOST_COPIES, max(2, _MOST_COLD_BYTES // unit)))


@dataclass(slots=True)
class _Series:
    """Samples of one artifact while they are taken."""

    calls: int = 1
    expected_ns: int = 1
    position: int = 0
    first_wall: int = 0
    first_cpu: int = 0
    fresh: bool = True
    wall: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    preempted: list[bool] = field(default_factory=list)
    singles: tuple[int, ...] = ()
    singles_preempted: tuple[bool, ...] = ()


@dataclass(slots=True)
class _Session:
    """A child with all artifacts loaded and mapped."""

    child: Child
    buffers: list[TimedBuffers]
    series: list[_Series]
    protocol: TimingProtocol
    samples: int = 0

    def sample(self, slot: int, calls: int) -> tuple[Message, int]:
        """The child's answer and the parent's time from start to end."""
        series = self.series[slot]
        self.samples += 1
        mark = self.samples % _MARKS + 1  # never what the last program wrote
        message: Message = {"op": "prepare", "slot": slot, "calls": calls, "start": series.position, "mark": mark}
        series.position += calls
        patience = self.protocol.deadline_ns + _BUSY_FACTOR * calls * series.expected_ns
        self.child.ask(message, time.monotonic_ns() + patience)
        expected = calls * series.expected_ns
        return self.child.watch({"op": "start"}, mark, expected, time.monotonic_ns() + patience)

    def begin(self, slot: int) -> None:
        """First call, then as many calls a sample as the protocol wants."""
        series, buffers = self.series[slot], self.buffers[slot]
        answer, _ = self.sample(slot, 1)
        series.first_wall, series.first_cpu = wire.integer(answer, "wall"), wire.integer(answer, "cpu")
        buffers.remember()
        most = _MOST_CALLS if buffers.copies == 1 else _MOST_ROTATING_CALLS
        goal = max(self.protocol.sample_ns, _SHORTEST_BATCH_NS)
        calls = 1
        while True:
            wall = max(1, min(wire.integer(self.sample(slot, calls)[0], "wall") for _ in range(2)))
            series.expected_ns = -(-wall // calls)
            if wall >= goal or calls >= most:
                break
            calls = min(most, max(calls + 1, -(-calls * goal // wall)))
        series.calls = calls

    def round(self, slot: int) -> None:
        """One sample of one artifact."""
        series, buffers = self.series[slot], self.buffers[slot]
        buffers.spoil()
        answer, parent = self.sample(slot, series.calls)
        series.fresh &= buffers.fresh()
        wall = wire.integer(answer, "wall")
        series.wall.append(_per_call(wall, series.calls))
        series.cpu.append(_per_call(wire.integer(answer, "cpu"), series.calls))
        series.process.append(_per_call(wire.integer(answer, "process"), series.calls))
        # Rounded after the comparison: of a call of ten nanoseconds one is a tenth.
        series.parent.append(round(series.wall[-1] * parent / max(1, wall)))
        series.preempted.append(wire.integer(answer, "preempted") != 0)

    def single_calls(self, slot: int) -> None:
        """CPU time of calls one by one, for the tail; where a sample is one call, samples are what is wanted."""
        series = self.series[slot]
        if series.calls == 1:
            series.singles, series.singles_preempted = tuple(series.cpu), tuple(series.preempted)
            return
        count = min(_SINGLE_CALLS, max(_FEWEST_SINGLES, _SINGLE_CALLS_NS // series.expected_ns))
        until = time.monotonic_ns() + self.protocol.deadline_ns + _BUSY_FACTOR * count * series.expected_ns
        answer = self.child.ask({"op": "singles", "slot": slot, "calls": count}, until)
        series.singles = tuple(wire.integers(answer, "cpu"))
        series.singles_preempted = tuple(lost != 0 for lost in wire.integers(answer, "preempted"))


def measure(
    launch: Launcher,
    backend_of: Callable[[Artifact], Backend],
    artifacts: Sequence[Artifact],
    dims: DimValues,
    inputs: Sequence[Inputs],
    protocol: TimingProtocol,
    last_level_cache: int,
) -> tuple[TimingSamples, ...]:
    """Samples of every artifact; one that dies is reported so, and the others are timed without it.

    launch: a child with these artifacts loaded, on these processors.
    """
    time.sleep(protocol.rest_ns / 1e9)
    found: dict[int, TimingSamples] = {}
    alive = list(range(len(artifacts)))
    cold_bytes = 3 * last_level_cache // 2 if protocol.cold else 0
    while alive:
        chosen = [artifacts[i] for i in alive]
        cpus = timing_cpus(max(a.recipe.split.parts for a in chosen))
        try:
            child = launch(chosen, cpus)
        except Died as end:
            victim = alive.pop(0) if len(alive) == 1 else _culprit(launch, artifacts, alive)
            found[victim] = _dead(artifacts[victim], end.fate, end.death)
            continue
        try:
            buffers = [TimedBuffers(artifacts[i], backend_of(artifacts[i]), dims, inputs[i], cold_bytes) for i in alive]
            with _elsewhere(cpus):
                found.update(zip(alive, _timed(child, chosen, buffers, protocol), strict=True))
            alive = []
        except Died as end:
            victim = alive.pop(min(end.slot, len(alive) - 1))
            found[victim] = _dead(artifacts[victim], end.fate, end.death)
        finally:
            child.close()
    return tuple(found[i] for i in range(len(artifacts)))


@contextlib.contextmanager
def _elsewhere(cpus: Sequence[int]) -> Iterator[None]:
    """Keeps this thread, which watches, off the processors of the child while there are others."""
    before = os.sched_getaffinity(0)
    others = before - set(cpus)
    if others:
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _culprit(launch: Launcher, artifacts: Sequence[Artifact], alive: list[int]) -> int:
    """Removes and returns the first artifact that cannot be loaded alone; the first one if each can."""
    for i in alive:
        try:
            launch([artifacts[i]], ()).close()
        except Died:
            alive.remove(i)
            return i
    return alive.pop(0)


def _timed(
    child: Child, artifacts: Sequence[Artifact], buffers: list[TimedBuffers], protocol: TimingProtocol
) -> list[TimingSamples]:
    session = _Session(child, buffers, [_Series() for _ in buffers], protocol)
    slots = range(len(buffers))
    for slot in slots:
        child.map(slot, buffers[slot].message, (buffers[slot].memory.file,), buffers[slot].regions)
    for slot in slots:
        session.begin(slot)
    for number in range(protocol.rounds):
        for slot in slots if number % 2 == 0 else reversed(slots):
            session.round(slot)
    for slot in slots[: protocol.singles]:
        session.single_calls(slot)
    return [_finished(artifact, series) for artifact, series in zip(artifacts, session.series, strict=True)]


def _finished(artifact: Artifact, series: _Series) -> TimingSamples:
    return TimingSamples(
        artifact=artifact.digest,
        wall=tuple(series.wall),
        cpu=tuple(series.cpu),
        process_cpu=tuple(series.process),
        parent_wall=tuple(series.parent),
        preempted=tuple(series.preempted),
        calls=series.calls,
        first_wall_ns=series.first_wall,
        first_cpu_ns=series.first_cpu,
        outputs_fresh=series.fresh,
        single_call_cpu=series.singles,
        fate=Fate.RETURNED,
        death=None,
        single_call_preempted=series.singles_preempted,
    )


def _per_call(ns: int, calls: int) -> int:
    return (ns + calls // 2) // calls


def _dead(artifact: Artifact, fate: Fate, death: Death) -> TimingSamples:
    return TimingSamples(artifact.digest, (), (), (), (), (), 0, 0, 0, False, (), fate, death)
