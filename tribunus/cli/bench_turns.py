"""Timing of several subjects against each other: a process each, in turns.

Imported by: bench.  Imports: errors, bench_worker (names).  Judges nothing but whether a worker answered.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tribunus.certification.scratch import Scratch
from tribunus.cli.bench_worker import Subject
from tribunus.errors import InternalError, ToolError, TribunusError, UsageError, all_leaves
from tribunus.image.arrays import Array, read_arrays

_POOLS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Rounds:
    """``calls`` in a row, then the other subjects' turn, ``count`` times over."""

    count: int
    calls: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.calls < 1:
            raise UsageError(f"{self.count} rounds of {self.calls} calls measure nothing", remedy="at least 1 of each")


@dataclass(frozen=True, slots=True)
class Measured:
    """One subject.  wall_ns, cpu_ns: of each call, by rounds; CPU time is that of the whole process, all its threads.

    load_ns, open_ns, first_ns: of its fresh process, from library to first answer.  clock_ns: what the clocks
    themselves add to a call; reported, not subtracted.
    """

    subject: Subject
    version: str
    load_ns: int
    open_ns: int
    first_ns: int
    clock_ns: int
    wall_ns: tuple[tuple[int, ...], ...]
    cpu_ns: tuple[tuple[int, ...], ...]

    def wall(self, share: int) -> int:
        """Percentile of the wall time of a call."""
        return percentile([ns for times in self.wall_ns for ns in times], share)

    def cpu(self, share: int) -> int:
        """Percentile of the CPU time of a call."""
        return percentile([ns for times in self.cpu_ns for ns in times], share)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median of the rounds' CPU medians: how far a difference can be trusted."""
        medians = sorted(percentile(times, 50) for times in self.cpu_ns)
        middle = medians[len(medians) // 2]
        return (medians[-1] - medians[0]) / middle if middle else 0.0


def percentile(times: Sequence[int], share: int) -> int:
    """Nearest rank: the smallest time that at least ``share`` per cent of them do not exceed."""
    return sorted(times)[max(0, math.ceil(share * len(times) / 100) - 1)]


class Worker:
    """A running subject.  Use it in a ``with`` statement.

    Raises the error that the subject refused with, or ToolError if it died, with what it said last.
    """

    def __init__(self, subject: Subject, place: Path, inputs: Path, words: Sequence[str], threads: int) -> None:
        self.subject = subject
        self._folder = Scratch("bench")
        self._log = self._folder.path / "said.txt"
        command = [sys.executable, "-m", "tribunus.cli.bench_worker", subject, str(place), str(inputs), *words]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env=worker_environment(os.environ, threads),
            )
        try:
            hello = self._receive()
            if "refused" in hello:
                raise _refusal(subject, hello)
            self._hello = hello
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def round(self, calls: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Wall and CPU times of some calls, ns."""
        answer = self._ask({"calls": calls})
        return _integers(answer["wall_ns"]), _integers(answer["cpu_ns"])

    def outputs(self) -> dict[str, Array]:
        """Outputs of the last call."""
        place = self._folder.path / "outputs.npz"
        self._ask({"outputs": str(place)})
        return read_arrays(place)

    def measured(self, rounds: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> Measured:
        """What came of all rounds."""
        load, opened, first, clock = (
            _integers([self._hello[name]])[0] for name in ("load_ns", "open_ns", "first_ns", "clock_ns")
        )
        wall, cpu = tuple(r[0] for r in rounds), tuple(r[1] for r in rounds)
        return Measured(self.subject, str(self._hello["version"]), load, opened, first, clock, wall, cpu)

    def close(self) -> None:
        """End the process: it leaves when its input ends, and is killed if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.close()

    def _ask(self, request: Mapping[str, object]) -> dict[str, object]:
        if self._process.stdin is None:
            raise InternalError("a worker was started without an input")
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ToolError(
                f"{self.subject} has ended: {self._last_words()}", remedy="measure another engine"
            ) from None
        return self._receive()

    def _receive(self) -> dict[str, object]:
        if self._process.stdout is None:
            raise InternalError("a worker was started without an output")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            words = self._last_words()
            raise ToolError(f"{self.subject} ended with status {code}: {words}", remedy="measure another engine")
        answer: dict[str, object] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or "it said nothing"


def _refusal(subject: Subject, hello: Mapping[str, object]) -> TribunusError:
    for leaf in all_leaves():
        if leaf.name == hello.get("name"):
            return leaf(str(hello["refused"]), remedy=str(hello["remedy"]))
    return ToolError(f"{subject} does not run the model: {hello['refused']}", remedy="measure another engine")


def worker_environment(outer: Mapping[str, str], threads: int) -> dict[str, str]:
    """``outer`` with every pool that reads the environment held to ``threads`` threads that do not spin."""
    pools = dict.fromkeys(_POOLS, str(threads))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**outer, **pools, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": path}


def measure_in_turns(workers: Sequence[Worker], rounds: Rounds) -> tuple[Measured, ...]:
    """Every worker has one turn a round; who begins moves on by one, so that nobody always follows the same other."""
    taken: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = [[] for _ in workers]
    for number in range(rounds.count):
        for place in range(len(workers)):
            index = (number + place) % len(workers)
            taken[index].append(workers[index].round(rounds.calls))
    return tuple(worker.measured(times) for worker, times in zip(workers, taken, strict=True))


def _integers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise InternalError(f"a worker said {str(value)[:80]} where times belong")
    return tuple(value)
