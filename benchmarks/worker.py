"""The process in which one subject is timed: answers requests on its standard input, one JSON object a line.

    python -m benchmarks.worker ENGINE MODEL INPUTS.npz OUTPUT_NAME...

Imported by: benchmarks.baselines (protocol).  Imports: benchmarks.engines, benchmarks.zoo.archive.

Protocol: first the worker says {"version", "load_library_ns", "open_model_ns", "first_call_ns", "clock_ns"}, or
{"refused": reason}.  Then {"calls": N} is answered by {"wall_ns": [...], "cpu_ns": [...]}, {"outputs": PATH} by
{"outputs": PATH} once the outputs of the last call are in that .npz file; the end of its input ends the worker.  A
worker that waits for a request sleeps in read(): it takes nothing from the one that is being timed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Protocol

from benchmarks.samples import percentile
from benchmarks.zoo.archive import Array, read_arrays, write_arrays

EMPTY_CALLS = 1000


class Subject(Protocol):
    """An opened model whose inputs are in place."""

    version: str
    load_library_ns: int

    def call(self) -> None:
        """Compute once."""

    def settle(self) -> None:
        """Called once, after the first call: shapes are known, so inputs and outputs can be given fixed places."""

    def outputs(self) -> dict[str, Array]:
        """Outputs of the last call by name."""


OpenSubject = Callable[[dict[str, Array]], Subject]


def serve(open_subject: OpenSubject, inputs: Path) -> int:
    """Open the subject, call it once, then answer requests until the input ends."""
    # libraries print as they please; what they print goes to standard error, the answers to the real output
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def answer(**fields: object) -> None:
        answers.write(json.dumps(fields) + "\n")

    feeds = read_arrays(inputs)
    if feeds is None:
        answer(refused=f"{inputs} is not a readable .npz file")
        return 1
    try:
        begin = perf_counter_ns()
        subject = open_subject(feeds)
        opened = perf_counter_ns()
        subject.call()
        called = perf_counter_ns()
        subject.settle()
    except Exception as error:
        answer(refused=f"{type(error).__name__}: {error}")
        raise
    answer(
        version=subject.version,
        load_library_ns=subject.load_library_ns,
        open_model_ns=opened - begin - subject.load_library_ns,
        first_call_ns=called - opened,
        clock_ns=_clock_cost_ns(),
    )
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        if "calls" in request:
            wall_ns, cpu_ns = time_calls(subject.call, int(request["calls"]))
            answer(wall_ns=wall_ns, cpu_ns=cpu_ns)
        else:
            write_arrays(Path(request["outputs"]), subject.outputs())
            answer(outputs=request["outputs"])
    return 0


def time_calls(call: Callable[[], None], calls: int) -> tuple[list[int], list[int]]:
    """Wall and process CPU time of each of ``calls`` calls, after one that is not counted."""
    wall_ns, cpu_ns = [0] * calls, [0] * calls
    call()  # brings caches back after the other subjects' turns
    for index in range(calls):
        cpu = process_time_ns()
        wall = perf_counter_ns()
        call()
        wall_ns[index] = perf_counter_ns() - wall
        cpu_ns[index] = process_time_ns() - cpu
    return wall_ns, cpu_ns


def _clock_cost_ns() -> int:
    return percentile(time_calls(lambda: None, EMPTY_CALLS)[1], 50)


def main() -> int:
    from benchmarks.engines import ENGINES

    engine, model, inputs, *outputs = sys.argv[1:]
    return serve(lambda feeds: ENGINES[engine](Path(model), feeds, outputs), Path(inputs))


if __name__ == "__main__":
    sys.exit(main())
