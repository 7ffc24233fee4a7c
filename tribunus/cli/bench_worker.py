"""The process in which one subject is timed: ``python -m tribunus.cli.bench_worker SUBJECT PLACE INPUTS.npz ...``.

Imported by: bench_turns (names of subjects).  Imports: runtime; onnxruntime or openvino, when one is the subject.

Protocol, one JSON object a line.  First the worker says {"version", "load_ns", "open_ns", "first_ns", "clock_ns"}, or
{"refused", "exit_code"}.  Then {"calls": N} is answered by {"wall_ns": [...], "cpu_ns": [...]}, and {"outputs": PATH}
by {"outputs": PATH} once the outputs of the last call are in that file.  The end of its input ends it.  A worker that
waits sleeps in a read: it takes nothing from the one that is being timed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Final, Protocol

import numpy as np

from tribunus.errors import TribunusError
from tribunus.image.arrays import Array, read_arrays, write_arrays

EMPTY_CALLS: Final = 500


class Subject(StrEnum):
    """What can be timed."""

    IMAGE = "image"
    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


class Opened(Protocol):
    """A subject with its inputs in place."""

    version: str
    load_ns: int

    def call(self) -> None:
        """Compute once."""

    def settle(self) -> None:
        """Called once after the first call: outputs have their shapes, so they can get fixed places."""

    def outputs(self) -> dict[str, Array]:
        """Outputs of the last call by name."""


class ImageSubject:
    """An image: zero copy, inputs written before, outputs read after."""

    def __init__(self, place: Path, feeds: Mapping[str, Array], trust: Path | None) -> None:
        begin = perf_counter_ns()
        import tribunus
        from tribunus.cli.opening import opened_image

        self.load_ns = perf_counter_ns() - begin
        self.version = tribunus.__version__
        self._context = opened_image(place, trust)
        self._session = self._context.__enter__().session(feeds)

    def settle(self) -> None:
        """Nothing to do: a session's memory has its place from the start."""

    def call(self) -> None:
        self._session.replay()

    def outputs(self) -> dict[str, Array]:
        return {name: view.copy() for name, view in self._session.outputs.items()}


class OnnxRuntimeSubject:
    """onnxruntime with all optimisations, no spinning threads, inputs and outputs bound once."""

    def __init__(self, place: Path, feeds: Mapping[str, Array], threads: int, outputs: Sequence[str]) -> None:
        begin = perf_counter_ns()
        import onnxruntime

        self.load_ns = perf_counter_ns() - begin
        self.version = str(onnxruntime.__version__)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(place), options, providers=["CPUExecutionProvider"])
        self._names = tuple(outputs)
        self._binding = self._session.io_binding()
        # the binding holds addresses only: the values must live as long as it does
        self._inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name in self._names:
            self._binding.bind_output(name, "cpu")

    def settle(self) -> None:
        self._outputs = self._binding.get_outputs()
        self._binding.clear_binding_outputs()
        for name, value in zip(self._names, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def call(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> dict[str, Array]:
        return {name: value.numpy().copy() for name, value in zip(self._names, self._outputs, strict=True)}


class OpenVinoSubject:
    """OpenVINO for latency, float32 throughout, inputs shared with the caller's memory."""

    def __init__(self, place: Path, feeds: Mapping[str, Array], threads: int, outputs: Sequence[str]) -> None:
        begin = perf_counter_ns()
        import openvino

        self.load_ns = perf_counter_ns() - begin
        self.version = str(openvino.__version__)
        core = openvino.Core()
        network = core.read_model(str(place))
        network.reshape({name: list(array.shape) for name, array in feeds.items()})
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            # without this, float32 activations of int8 weights are quantized behind the f32 hint
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        self._request = core.compile_model(network, "CPU", settings).create_infer_request()
        self._inputs = {name: openvino.Tensor(array, shared_memory=True) for name, array in feeds.items()}
        for name, tensor in self._inputs.items():
            self._request.set_tensor(name, tensor)
        self._names = tuple(outputs)

    def settle(self) -> None:
        """Nothing to do: a request owns the memory of its outputs from the start."""

    def call(self) -> None:
        self._request.infer(share_outputs=True)

    def outputs(self) -> dict[str, Array]:
        tensors = (self._request.get_output_tensor(index) for index in range(len(self._names)))
        return {name: np.array(tensor.data) for name, tensor in zip(self._names, tensors, strict=True)}


def open_subject(subject: Subject, place: Path, feeds: Mapping[str, Array], words: Sequence[str]) -> Opened:
    """words: of an image the trust policy, if any; of an engine the number of threads, then the output names."""
    if subject is Subject.IMAGE:
        return ImageSubject(place, feeds, Path(words[0]) if words else None)
    kind = OnnxRuntimeSubject if subject is Subject.ONNXRUNTIME else OpenVinoSubject
    return kind(place, feeds, int(words[0]), words[1:])


def main(words: Sequence[str]) -> int:
    """Open, call once, then answer requests until the input ends."""
    # libraries print as they please; what they print goes to standard error, the answers to the real output
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def answer(fields: Mapping[str, object]) -> None:
        answers.write(json.dumps(fields) + "\n")

    begin = perf_counter_ns()
    try:
        feeds = read_arrays(Path(words[2]))
        begin = perf_counter_ns()
        subject = open_subject(Subject(words[0]), Path(words[1]), feeds, words[3:])
        opened = perf_counter_ns()
        subject.call()
        called = perf_counter_ns()
        subject.settle()
    except TribunusError as error:
        answer({"refused": error.detail, "remedy": error.remedy, "name": error.name})
        return error.exit_code
    except Exception as error:
        answer({"refused": f"{type(error).__name__}: {error}"[:400], "remedy": "", "name": ""})
        raise
    answer(
        {
            "version": subject.version,
            "load_ns": subject.load_ns,
            "open_ns": opened - begin - subject.load_ns,
            "first_ns": called - opened,
            "clock_ns": sorted(time_calls(lambda: None, EMPTY_CALLS)[1])[EMPTY_CALLS // 2],
        }
    )
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        if "calls" in request:
            wall, cpu = time_calls(subject.call, int(request["calls"]))
            answer({"wall_ns": wall, "cpu_ns": cpu})
        else:
            write_arrays(Path(request["outputs"]), subject.outputs())
            answer({"outputs": request["outputs"]})
    return 0


def time_calls(call: Callable[[], None], calls: int) -> tuple[list[int], list[int]]:
    """Wall and process CPU time of each of ``calls`` calls, after one that is not counted."""
    wall, cpu = [0] * calls, [0] * calls
    call()  # brings caches back after the other subjects' turns
    for index in range(calls):
        cpu_before, wall_before = process_time_ns(), perf_counter_ns()
        call()
        wall[index] = perf_counter_ns() - wall_before
        cpu[index] = process_time_ns() - cpu_before
    return wall, cpu


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
