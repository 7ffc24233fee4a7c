from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import WEIGHT, Said
from tribunus.cli import bench
from tribunus.cli.bench_model import bind_model
from tribunus.cli.bench_turns import Measured, percentile
from tribunus.cli.bench_worker import Subject
from tribunus.errors import InputError, OnnxSyntaxError

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
