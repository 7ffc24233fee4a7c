"""Times of onnxruntime and OpenVINO on a model, each in a process of its own, in turns.

    python -m benchmarks.baselines MODEL.onnx INPUTS.npz

Imported by: other benchmarks.  Imports: benchmarks.samples, worker, rebind, zoo.archive; tribunus.errors.

``measure`` times one engine, ``measure_in_turns`` several subjects against each other.  A subject of another kind
(an image under test) joins by speaking the protocol of benchmarks.worker: ``Worker`` starts any such command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.rebind import bound_model
from benchmarks.samples import CallTimes, Samples, Start
from benchmarks.zoo.archive import Array, read_arrays, write_arrays
from tribunus.errors import InputError, InternalError, ToolError, TribunusError

ROOT = Path(__file__).resolve().parents[1]


class Engine(StrEnum):
    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often to measure: ``calls`` in a row, then the other subjects' turn, ``count`` times over."""

    count: int
    calls: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.calls < 1:
            raise ValueError(f"{self.count} rounds of {self.calls} calls measure nothing")


class Worker:
    """A running process that speaks the protocol of benchmarks.worker.  Use it in a ``with`` statement.

    Raises ToolError if the process refuses the model or dies, with what it said last.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "said.txt"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                cwd=ROOT,
                env=one_thread_environment(os.environ),
            )
        try:
            hello = self._receive()
            if "refused" in hello:
                raise ToolError(f"{name} does not run the model: {hello['refused']}", remedy="measure another engine")
            self.version = str(hello["version"])
            self.start = Start(
                load_library_ns=_integer(hello["load_library_ns"]),
                open_model_ns=_integer(hello["open_model_ns"]),
                first_call_ns=_integer(hello["first_call_ns"]),
            )
            self.clock_ns = _integer(hello["clock_ns"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def round(self, calls: int) -> CallTimes:
        answer = self._ask({"calls": calls})
        return CallTimes(wall_ns=_integers(answer["wall_ns"]), cpu_ns=_integers(answer["cpu_ns"]))

    def outputs(self) -> dict[str, Array]:
        """Outputs of the last call by name."""
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "outputs.npz"
            self._ask({"outputs": str(path)})
            found = read_arrays(path)
        if found is None:
            raise InternalError(f"{self.name} wrote no outputs")
        return found

    def close(self) -> None:
        """End the process; it leaves by itself when its input ends, and is killed if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def _ask(self, request: Mapping[str, object]) -> dict[str, object]:
        if self._process.stdin is None:
            raise InternalError(f"{self.name} was started without an input")
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ToolError(f"{self.name} has ended: {self._last_words()}") from error
        return self._receive()

    def _receive(self) -> dict[str, object]:
        if self._process.stdout is None:
            raise InternalError(f"{self.name} was started without an output")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise ToolError(f"{self.name} ended with status {code}: {self._last_words()}")
        answer: dict[str, object] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or "it said nothing"


def one_thread_environment(outer: Mapping[str, str]) -> dict[str, str]:
    """``outer`` with every thread pool that reads the environment held to one thread that does not spin."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**outer, **one, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": os.pathsep.join(_import_path(outer))}


def _import_path(outer: Mapping[str, str]) -> list[str]:
    return [str(ROOT), *filter(None, outer.get("PYTHONPATH", "").split(os.pathsep))]


@dataclass(frozen=True, slots=True)
class Bound:
    """Files for a worker: a model with fixed dims and its inputs; and the names of its outputs."""

    model: Path
    inputs: Path
    outputs: tuple[str, ...]


@contextmanager
def prepared(model: Path, inputs: Mapping[str, Array]) -> Iterator[Bound]:
    """The model with its dims bound to the shapes of ``inputs``, for as long as the context lasts."""
    bound = bound_model(model, {name: array.shape for name, array in inputs.items()})
    with tempfile.TemporaryDirectory() as scratch:
        files = Bound(Path(scratch) / "model.onnx", Path(scratch) / "inputs.npz", bound.outputs)
        files.model.write_bytes(bound.content)
        write_arrays(files.inputs, inputs)
        yield files


def engine_worker(engine: Engine, bound: Bound) -> Worker:
    """A worker of ``engine`` on what ``prepared`` made."""
    files = (str(bound.model), str(bound.inputs))
    return Worker(engine, [sys.executable, "-m", "benchmarks.worker", engine, *files, *bound.outputs])


def measure(model: Path, inputs: Mapping[str, Array], engine: Engine, rounds: Rounds) -> Samples:
    """Times of one engine, alone.  inputs: by input name, of the dtypes and shapes to be measured."""
    with prepared(model, inputs) as bound, engine_worker(engine, bound) as worker:
        return measure_in_turns([worker], rounds)[0]


def compare(model: Path, inputs: Mapping[str, Array], engines: Sequence[Engine], rounds: Rounds) -> tuple[Samples, ...]:
    """Times of several engines, in turns."""
    with ExitStack() as stack:
        bound = stack.enter_context(prepared(model, inputs))
        workers = [stack.enter_context(engine_worker(engine, bound)) for engine in engines]
        return measure_in_turns(workers, rounds)


def measure_in_turns(workers: Sequence[Worker], rounds: Rounds) -> tuple[Samples, ...]:
    """Every worker has one turn a round; who begins moves on by one, so that no one always follows the same other."""
    times: list[list[CallTimes]] = [[] for _ in workers]
    for number in range(rounds.count):
        for place in range(len(workers)):
            index = (number + place) % len(workers)
            times[index].append(workers[index].round(rounds.calls))
    return tuple(
        Samples(
            subject=worker.name,
            version=worker.version,
            start=worker.start,
            rounds=tuple(taken),
            clock_ns=worker.clock_ns,
        )
        for worker, taken in zip(workers, times, strict=True)
    )


def measure_starts(model: Path, inputs: Mapping[str, Array], engine: Engine, processes: int) -> tuple[Start, ...]:
    """From nothing to the first answer, in fresh processes, one after the other."""
    with prepared(model, inputs) as bound:
        starts: list[Start] = []
        for _ in range(processes):
            with engine_worker(engine, bound) as worker:
                starts.append(worker.start)
        return tuple(starts)


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise InternalError(f"a worker said {value!r} where a number belongs")
    return value


def _integers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InternalError(f"a worker said {value!r} where a list belongs")
    return tuple(_integer(item) for item in value)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 4
    try:
        inputs = read_arrays(Path(arguments[1]))
        if inputs is None:
            raise InputError(f"{arguments[1]} is not a readable .npz file")
        for samples in compare(Path(arguments[0]), inputs, list(Engine), Rounds(20, 20)):
            print(
                f"{samples.subject} {samples.version}: CPU {samples.cpu_p50_ns / 1e3:.1f} us a call "
                f"(p99 {samples.cpu_p99_ns / 1e3:.1f}), wall {samples.wall_p50_ns / 1e3:.1f} "
                f"(p99 {samples.wall_p99_ns / 1e3:.1f}); opened in {samples.start.open_model_ns / 1e6:.1f} ms, "
                f"first call {samples.start.first_call_ns / 1e6:.2f} ms"
            )
    except TribunusError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
