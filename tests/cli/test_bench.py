from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.witness import engine, make_witness
from tests.cli.conftest import WEIGHT, Said
from tribunus.cli import bench
from tribunus.cli.bench_model import bind_model
from tribunus.cli.bench_turns import Measured, Rounds, Worker, measure_in_turns, percentile, worker_environment
from tribunus.cli.bench_worker import Subject
from tribunus.errors import InputError, OnnxSyntaxError, UsageError

Tool = Callable[..., Said]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = (x + w) + w with w listed among the inputs, as old files do."""
    weight = numpy_helper.from_array(WEIGHT, "w")
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]),
    ]
    nodes = [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "w"], ["y"])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])
    graph = helper.make_graph(nodes, "g", inputs, [output], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 3
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_an_image_is_timed_on_its_recorded_case(tribunus: Tool, image: Path) -> None:
    said = tribunus("bench", image, "--rounds", "2", "--calls", "3", "--json")
    assert said.code == 0, said.err
    (subject,) = said.document["subjects"]
    assert subject["subject"] == "image" and [len(times) for times in subject["cpu_ns"]] == [3, 3]
    assert 0 < subject["wall_p50_ns"] <= subject["wall_p99_ns"]
    assert said.document["inputs"] == {"x": [3, 4]}


def test_an_image_is_timed_against_an_engine(tribunus: Tool, image: Path, model: Path, inputs: Path) -> None:
    words = ("--against", model, "--engine", "onnxruntime", "--inputs", inputs, "--rounds", "2", "--calls", "2")
    said = tribunus("bench", image, *words)
    assert said.code == 0, said.err
    assert "onnxruntime" in said.out and "the image needs" in " ".join(said.out.split())
    assert "0.0e+00" in said.out


def test_an_engine_that_is_not_installed_is_named(
    tribunus: Tool, image: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    said = tribunus("bench", image, "--against", model)
    assert said.code == 50 and said.err.startswith("refused: E_TOOL: ") and "pip install" in said.err


def test_a_refusal_of_the_worker_is_the_commands(tribunus: Tool, image: Path, model: Path, tmp_path: Path) -> None:
    broken = onnx.load(str(model))
    broken.graph.node[0].op_type = "NoSuchOp"
    path = tmp_path / "broken.onnx"
    path.write_bytes(broken.SerializeToString())
    said = tribunus("bench", image, "--against", path, "--engine", "onnxruntime")
    assert said.code == 50 and "onnxruntime does not run the model" in said.err


def test_initializers_are_no_inputs_and_dims_are_numbers(model: Path, tmp_path: Path) -> None:
    assert bind_model(model, {"x": (2, 4)}, tmp_path / "bound.onnx") == ("y",)
    bound = onnx.load(str(tmp_path / "bound.onnx"))
    (fed,) = bound.graph.input
    assert fed.name == "x" and [dim.dim_value for dim in fed.type.tensor_type.shape.dim] == [2, 4]
    assert bound.ir_version >= 4
    np.testing.assert_array_equal(numpy_helper.to_array(bound.graph.initializer[0]), WEIGHT)


def test_initializers_that_old_files_list_as_inputs_and_stale_shapes_are_dropped(tmp_path: Path) -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [99])]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", inputs, outputs, weights)
    path = tmp_path / "old.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3).SerializeToString()
    )
    assert bind_model(path, {"x": (3,)}, tmp_path / "bound.onnx") == ("y",)
    bound = onnx.load(str(tmp_path / "bound.onnx")).graph
    assert [value.name for value in bound.input] == ["x"]
    assert not bound.output[0].type.tensor_type.HasField("shape")
    assert make_witness(path, {"x": np.array([1, 2, 3], np.float32)})["y"].tolist() == [2, 4, 6]
    assert str(engine()).startswith("onnxruntime ")
    with pytest.raises(InputError, match="rank 1"):
        bind_model(path, {"x": (3, 1)}, tmp_path / "bound.onnx")
    with pytest.raises(OnnxSyntaxError, match="cannot be read"):
        bind_model(tmp_path / "missing.onnx", {}, tmp_path / "bound.onnx")


def test_another_models_inputs_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        bind_model(model, {"z": (2, 4)}, tmp_path / "bound.onnx")
    model.write_bytes(b"\xff\xff")
    with pytest.raises(OnnxSyntaxError):
        bind_model(model, {"x": (2, 4)}, tmp_path / "bound.onnx")


def test_percentiles_are_nearest_ranks() -> None:
    assert [percentile(range(1, 101), share) for share in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7], 99) == 7


def test_the_spread_is_that_of_the_turns_medians() -> None:
    turns = ((10, 10, 99), (12, 12, 0), (11, 11, 11))
    assert Measured(Subject.IMAGE, "1", 0, 0, 0, 0, turns, turns).spread == pytest.approx(2 / 11)


class Recorded:
    """A worker that writes down whose turn it was."""

    def __init__(self, subject: Subject, turns: list[str]) -> None:
        self.subject = subject
        self.turns = turns

    def round(self, calls: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        self.turns.append(self.subject.value[0])
        return (1,) * calls, (1,) * calls

    def measured(self, rounds: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> Measured:
        wall, cpu = tuple(r[0] for r in rounds), tuple(r[1] for r in rounds)
        return Measured(self.subject, "1", 0, 0, 0, 0, wall, cpu)


def test_subjects_take_turns_and_the_first_moves_on() -> None:
    turns: list[str] = []
    found = measure_in_turns([cast(Worker, Recorded(subject, turns)) for subject in Subject], Rounds(3, 2))
    first = [subject.value[0] for subject in Subject]
    assert turns == first + first[1:] + first[:1] + first[2:] + first[:2]
    assert [len(one.wall_ns) for one in found] == [3, 3, 3]


def test_thread_pools_of_a_worker_are_held_to_what_was_asked() -> None:
    environment = worker_environment({"OMP_NUM_THREADS": "8", "HOME": "/home/me"}, 1)
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == "/home/me"


def test_measuring_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="measure nothing"):
        Rounds(0, 5)
