"""The baselines compute the right thing, in processes of their own, and say so when they cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchmarks import baselines
from benchmarks.baselines import Engine, Rounds, Worker
from benchmarks.rebind import bound_model
from benchmarks.samples import CallTimes, Start
from benchmarks.zoo.archive import Array, read_arrays
from benchmarks.zoo.witness import make_witness
from tribunus.errors import EnvironmentFault, InputError, OnnxSyntaxError, ToolError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIGITS = EXAMPLES / "digits.onnx"


def digits_inputs(case: str) -> dict[str, Array]:
    found = read_arrays(EXAMPLES / "inputs" / f"{case}.npz")
    assert found is not None
    return found


def numbers(array: Array) -> NDArray[np.float64]:
    return np.asarray(array, np.float64)


@pytest.fixture(scope="module", params=list(Engine))
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with (
        baselines.prepared(DIGITS, digits_inputs("four")) as bound,
        baselines.engine_worker(request.param, bound) as running,
    ):
        yield running


def test_an_engine_computes_what_the_witness_computes(worker: Worker) -> None:
    worker.round(2)
    expected = make_witness(DIGITS, digits_inputs("four"))
    found = worker.outputs()
    assert found.keys() == expected.keys() == {"probabilities"}
    np.testing.assert_allclose(numbers(found["probabilities"]), numbers(expected["probabilities"]), atol=1e-6)


def test_a_round_gives_one_time_a_call(worker: Worker) -> None:
    times = worker.round(7)
    assert len(times.wall_ns) == len(times.cpu_ns) == 7
    assert min(times.wall_ns) > 0


def test_a_start_is_taken_apart(worker: Worker) -> None:
    assert min(worker.start.load_library_ns, worker.start.open_model_ns, worker.start.first_call_ns) > 0
    assert worker.version


def test_measure_gives_all_rounds_of_one_engine() -> None:
    samples = baselines.measure(DIGITS, digits_inputs("one"), Engine.ONNXRUNTIME, Rounds(3, 5))
    assert samples.subject == "onnxruntime"
    assert [len(times.cpu_ns) for times in samples.rounds] == [5, 5, 5]


def test_starts_are_measured_in_as_many_processes() -> None:
    assert len(baselines.measure_starts(DIGITS, digits_inputs("one"), Engine.ONNXRUNTIME, 2)) == 2


class Recorded(Worker):
    """A worker that only writes down whose turn it was."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self.name = name
        self.version = "1"
        self.start = Start(load_library_ns=1, open_model_ns=1, first_call_ns=1)
        self.clock_ns = 1
        self.turns = turns

    def round(self, calls: int) -> CallTimes:
        self.turns.append(self.name)
        return CallTimes(wall_ns=(1,) * calls, cpu_ns=(1,) * calls)


def test_subjects_take_turns_and_the_first_moves_on() -> None:
    turns: list[str] = []
    samples = baselines.measure_in_turns([Recorded(name, turns) for name in "abc"], Rounds(3, 2))
    assert "".join(turns) == "abcbcacab"
    assert [(one.subject, len(one.rounds)) for one in samples] == [("a", 3), ("b", 3), ("c", 3)]


def test_a_worker_that_dies_is_reported_with_its_last_words() -> None:
    with pytest.raises(ToolError, match=r"status 7: no such luck"):
        Worker("broken", [sys.executable, "-c", "import sys; print('no such luck', file=sys.stderr); sys.exit(7)"])


def test_an_engine_that_refuses_the_model_is_reported(tmp_path: Path) -> None:
    node = helper.make_node("NoSuchOp", ["x"], ["y"], domain="nowhere")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    path = tmp_path / "strange.onnx"
    path.write_bytes(a_model([node], opsets).SerializeToString())
    with pytest.raises(ToolError, match="onnxruntime does not run the model"):
        baselines.measure(path, {"x": np.zeros(2, np.float32)}, Engine.ONNXRUNTIME, Rounds(1, 1))


def a_model(nodes: list[onnx.NodeProto], opsets: list[onnx.OperatorSetIdProto]) -> onnx.ModelProto:
    """x (n) and, as IR version 3 demands, the initializer w among the inputs."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [99])]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=3)


def test_binding_fixes_dims_and_drops_initializers_and_stale_shapes(tmp_path: Path) -> None:
    path = tmp_path / "old.onnx"
    opsets = [helper.make_opsetid("", 9)]
    path.write_bytes(a_model([helper.make_node("Mul", ["x", "w"], ["y"])], opsets).SerializeToString())
    bound = bound_model(path, {"x": (3,)})
    assert bound.outputs == ("y",)
    graph = onnx.load_model_from_string(bound.content).graph
    assert [(value.name, [dim.dim_value for dim in value.type.tensor_type.shape.dim]) for value in graph.input] == [
        ("x", [3])
    ]
    assert not graph.output[0].type.tensor_type.HasField("shape")
    found = make_witness(path, {"x": np.array([1, 2, 3], np.float32)})
    assert found["y"].tolist() == [2, 4, 6]


def test_inputs_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has inputs"):
        bound_model(DIGITS, {"picture": (1, 1, 8, 8)})
    with pytest.raises(InputError, match="rank 4"):
        bound_model(DIGITS, {"image": (8, 8)})
    with pytest.raises(EnvironmentFault):
        bound_model(tmp_path / "missing.onnx", {})
    (tmp_path / "noise.onnx").write_bytes(b"\xff" * 64)
    with pytest.raises(OnnxSyntaxError):
        bound_model(tmp_path / "noise.onnx", {})


def test_thread_pools_of_a_worker_are_held_to_one_thread() -> None:
    environment = baselines.one_thread_environment({"OMP_NUM_THREADS": "8", "HOME": "/home/me", "PYTHONPATH": "/a"})
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == "/home/me"
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == "/a"


def test_measuring_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="measure nothing"):
        Rounds(0, 5)
