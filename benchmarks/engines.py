"""The engines we are measured against, each set up as well as we know how for one thread and float32.

Imported by: benchmarks.worker, benchmarks.baselines.  Imports: onnxruntime or openvino, when one is opened.

Both get the model with fixed dims, so that they may fold all shape arithmetic, keep inputs and outputs in place
between calls, and have no thread that spins while nothing is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Final

import numpy as np

from benchmarks.zoo.archive import Array


class OnnxRuntime:
    """onnxruntime: all optimisations, one thread, no spinning, inputs and outputs bound once."""

    def __init__(self, model: Path, feeds: dict[str, Array], outputs: Sequence[str]) -> None:
        begin = perf_counter_ns()
        import onnxruntime

        self.load_library_ns = perf_counter_ns() - begin
        self.version = str(onnxruntime.__version__)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._names = outputs
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


class OpenVino:
    """OpenVINO: CPU, latency hint, float32, one stream on one thread, inputs shared with the caller's memory."""

    def __init__(self, model: Path, feeds: dict[str, Array], outputs: Sequence[str]) -> None:
        begin = perf_counter_ns()
        import openvino

        self.load_library_ns = perf_counter_ns() - begin
        self.version = str(openvino.__version__)
        core = openvino.Core()
        network = core.read_model(str(model))
        network.reshape({name: list(array.shape) for name, array in feeds.items()})
        compiled = core.compile_model(
            network,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": "f32",
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": 1,
                "NUM_STREAMS": 1,
                # without this, float32 activations of int8 weights are quantized behind the f32 hint
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
            },
        )
        self._request = compiled.create_infer_request()
        self._inputs = {name: openvino.Tensor(array, shared_memory=True) for name, array in feeds.items()}
        for name, tensor in self._inputs.items():
            self._request.set_tensor(name, tensor)
        self._names = outputs

    def settle(self) -> None:
        """Nothing to do: a request owns the memory of its outputs from the start."""

    def call(self) -> None:
        self._request.infer(share_outputs=True)

    def outputs(self) -> dict[str, Array]:
        tensors = (self._request.get_output_tensor(index) for index in range(len(self._names)))
        return {name: np.array(tensor.data) for name, tensor in zip(self._names, tensors, strict=True)}


ENGINES: Final[Mapping[str, Callable[[Path, dict[str, Array], Sequence[str]], OnnxRuntime | OpenVino]]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}
