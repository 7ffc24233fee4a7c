from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import WEIGHT, Said
from tribunus.cli.image_programs import bindings_of
from tribunus.frontend.bindings import parse_dim_options
from tribunus.frontend.model import import_model, inspect_model
from tribunus.phaseir.parser import parse

Tool = Callable[..., Said]
Maker = Callable[..., Path]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"], name="mm"), helper.make_node("Relu", ["t"], ["y"])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 13)]
    )
    made.ir_version = 8
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_a_model_is_printed_as_text_that_parses_back(tribunus: Tool, model: Path, tmp_path: Path) -> None:
    said = tribunus("phaseir", model, "--dim", "rows=1:2:8", "--output", tmp_path / "m.pir")
    assert said.code == 0, said.err
    program = parse((tmp_path / "m.pir").read_text())
    assert [op.kind for op in program.only_phase.ops] == ["matmul", "relu"]
    assert program.symbols[0].label == "rows"


def test_groups_are_shown_after_the_passes(tribunus: Tool, model: Path, inputs: Path) -> None:
    said = tribunus("phaseir", model, "--inputs", inputs, "--passes", wide=True)
    assert said.code == 0 and "# groups of phase" in said.out and "matmul" in said.out


def test_a_dim_without_bounds_is_asked_for(tribunus: Tool, model: Path) -> None:
    said = tribunus("phaseir", model)
    assert said.code == 42 and said.err.startswith("refused: E_DIM: ") and "rows" in said.err


@pytest.mark.parametrize("content", [None, b"not protobuf at all"])
def test_a_file_that_is_no_model_is_refused(tribunus: Tool, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "m.onnx").write_bytes(content)
    assert tribunus("phaseir", tmp_path / "m.onnx").code == 40


def test_an_exported_model_computes_the_same(tribunus: Tool, model: Path, inputs: Path, tmp_path: Path) -> None:
    said = tribunus("export", model, tmp_path / "out.onnx", "--dim", "rows=1:2:8")
    assert said.code == 0, said.err
    with np.load(inputs) as given:
        feeds = {"x": given["x"]}
    results = [
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(["y"], feeds)[0]
        for path in (model, tmp_path / "out.onnx")
    ]
    np.testing.assert_array_equal(results[0], results[1])


def test_an_export_never_overwrites_its_source(tribunus: Tool, model: Path) -> None:
    before = model.read_bytes()
    assert tribunus("export", model, model, "--dim", "rows=2").code == 4
    assert model.read_bytes() == before


def test_a_program_is_never_written_over_its_model(tribunus: Tool, model: Path) -> None:
    before = model.read_bytes()
    said = tribunus("phaseir", model, "--dim", "rows=2", "--output", model)
    assert said.code == 4 and "would overwrite" in said.err
    assert model.read_bytes() == before


def test_an_image_is_exported_with_its_model_only(tribunus: Tool, image: Path, model: Path, tmp_path: Path) -> None:
    said = tribunus("export", image, tmp_path / "out.onnx")
    assert said.code == 4 and "--model" in said.err
    said = tribunus("export", image, tmp_path / "out.onnx", "--model", model)
    assert said.code == 1 and said.err.startswith("refused: E_DIFFERS: ")
    assert not (tmp_path / "out.onnx").exists()


def test_the_bindings_of_a_program_are_found_again(model: Path) -> None:
    facts = inspect_model(model)
    options = ("rows=1:2:8", "rows=2:4:8:2", "rows=5", "x[0]=1:2:8")
    programs = import_model(model, [parse_dim_options([option], facts) for option in options]).programs
    again = import_model(model, [bindings_of(facts, program) for program in programs]).programs
    for first, second in zip(programs, again, strict=True):
        assert [s.values() for s in second.symbols] == [s.values() for s in first.symbols]
        assert second.type_of(second.only_phase.inputs[0]) == first.type_of(first.only_phase.inputs[0])


def test_an_image_of_a_model_is_exported_with_its_weights(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    """The fixture's image computes (x + w) + w; a model of the same program gives it the value of w."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])
    nodes = [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 8
    path = tmp_path / "adds.onnx"
    path.write_bytes(made.SerializeToString())
    signed = make_image(tmp_path / "adds.tci", model=inspect_model(path).digest)
    said = tribunus("export", signed, tmp_path / "out.onnx", "--model", path)
    assert said.code == 0, said.err
    assert [node.op_type for node in onnx.load(str(tmp_path / "out.onnx")).graph.node] == ["Add", "Add"]


def test_the_programs_of_an_image_are_printed(tribunus: Tool, image: Path) -> None:
    said = tribunus("phaseir", image, wide=True)
    assert said.code == 0
    (program,) = [parse(text) for text in said.out.split("# region ") if text for text in [text.split("\n", 1)[1]]]
    assert [op.kind for op in program.only_phase.ops] == ["add", "add"]
    assert tribunus("phaseir", image, "--passes").code == 4
