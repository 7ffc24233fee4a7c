"""Hostile and broken files: each is refused under its own name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tribunus.errors import (
    LoweringError,
    ModelError,
    OnnxFieldError,
    OnnxLimitError,
    OnnxSyntaxError,
    OnnxTensorError,
    TribunusError,
)
from tribunus.frontend import limits
from tribunus.frontend.loading import load_model
from tribunus.numerics.dtypes import DType


def a_model(name: str = "x") -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", [name, "w"], ["y"], name="n")],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="p")
    model.ir_version = 8
    return model


def refuse(model: onnx.ModelProto | bytes, error: type[TribunusError], name: str) -> str:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(error) as caught:
        load_model(data, None)
    assert caught.value.name == name
    return caught.value.detail


def test_a_plain_model_loads_with_its_facts() -> None:
    model = load_model(a_model().SerializeToString(), None)
    assert [str(f) for f in model.facts.inputs] == ["x f32[4]"]
    assert model.facts.parameters == 4
    assert model.facts.opset == 17
    assert model.initializers["w"].array.tolist() == [0, 1, 2, 3]


def test_an_empty_file_is_refused() -> None:
    assert "empty" in refuse(b"", OnnxSyntaxError, "E_ONNX_SYNTAX")


def test_every_truncation_of_a_model_is_refused() -> None:
    data = a_model().SerializeToString()
    for length in range(1, len(data)):
        with pytest.raises(ModelError):
            load_model(data[:length], None)


def test_text_is_refused() -> None:
    refuse(b'{"graph": {}}', OnnxSyntaxError, "E_ONNX_SYNTAX")


def test_two_joined_models_are_refused() -> None:
    data = a_model().SerializeToString()
    assert "joined" in refuse(data + data, OnnxSyntaxError, "E_ONNX_SYNTAX")


def test_a_field_that_onnx_does_not_define_is_refused() -> None:
    unknown = b"\xfa\x07\x03abc"  # field 127
    refuse(a_model().SerializeToString() + unknown, OnnxFieldError, "E_ONNX_FIELD")


def test_an_undefined_field_deep_inside_is_refused() -> None:
    model = a_model()
    node = model.graph.node[0].SerializeToString() + b"\xfa\x07\x03abc"
    model.graph.node[0].ParseFromString(node)
    refuse(model, OnnxFieldError, "E_ONNX_FIELD")


def test_raw_data_longer_than_the_dims_is_refused() -> None:
    model = a_model()
    model.graph.initializer[0].raw_data += b"\0" * 4
    refuse(model, OnnxTensorError, "E_ONNX_TENSOR")


def test_raw_data_shorter_than_the_dims_is_refused() -> None:
    model = a_model()
    model.graph.initializer[0].raw_data = b"\0" * 4
    refuse(model, ModelError, "E_ONNX")


def test_a_negative_dim_of_a_tensor_is_refused() -> None:
    model = a_model()
    model.graph.initializer[0].dims[0] = -4
    refuse(model, ModelError, "E_ONNX")


def test_external_data_without_the_flag_is_refused() -> None:
    model = a_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    assert "another file" in refuse(model, TribunusError, "E_ONNX_EXTERNAL")


def test_a_cycle_is_refused_by_the_checker() -> None:
    model = a_model()
    model.graph.node.append(helper.make_node("Add", ["b", "x"], ["a"]))
    model.graph.node.append(helper.make_node("Add", ["a", "x"], ["b"]))
    refuse(model, ModelError, "E_ONNX")


def nested(depth: int) -> onnx.GraphProto:
    inner = helper.make_node("Identity", ["x"], [f"y{depth}"])
    if depth:
        branch = nested(depth - 1)
        inner = helper.make_node("If", ["c"], [f"y{depth}"], then_branch=branch, else_branch=branch)
    return helper.make_graph(
        [inner], f"g{depth}", [], [helper.make_tensor_value_info(f"y{depth}", TensorProto.FLOAT, [4])]
    )


def test_subgraphs_nested_beyond_the_cap_are_refused() -> None:
    model = a_model()
    branch = nested(limits.SUBGRAPH_DEPTH)
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch))
    assert "nested deeper" in refuse(model, OnnxLimitError, "E_ONNX_LIMIT")


def a_function(name: str, *calls: str) -> onnx.FunctionProto:
    nodes = [helper.make_node(c, [f"v{i}"], [f"v{i + 1}"], domain="f") for i, c in enumerate(calls)]
    if not calls:
        nodes = [helper.make_node("Neg", ["v0"], ["v1"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["v0"], [f"v{len(nodes)}"], nodes, imports)


def calling(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    model = a_model()
    model.opset_import.append(helper.make_opsetid("f", 1))
    model.functions.extend(functions)
    model.graph.node[0].CopyFrom(helper.make_node(functions[0].name, ["x"], ["y"], domain="f"))
    return model


def test_functions_are_inlined() -> None:
    model = load_model(calling(a_function("A", "B", "B"), a_function("B")).SerializeToString(), None)
    assert [n.id.op_type for n in model.nodes] == ["Neg", "Neg"]


@pytest.mark.parametrize("functions", [[("A", "A")], [("A", "B"), ("B", "A")]], ids=["self", "mutual"])
def test_recursive_functions_are_refused(functions: list[tuple[str, str]]) -> None:
    model = calling(*(a_function(name, call) for name, call in functions))
    assert "recursive" in refuse(model, OnnxLimitError, "E_ONNX_LIMIT")


def test_functions_that_multiply_beyond_the_cap_are_refused() -> None:
    levels = [a_function(f"L{i}", *[f"L{i + 1}"] * 10) for i in range(7)]
    assert "inlining" in refuse(calling(*levels, a_function("L7")), OnnxLimitError, "E_ONNX_LIMIT")


@pytest.mark.parametrize("char", ["\n", "\x00", "\x7f", "\x9b", "\u202e", "\u2066"])
def test_control_and_bidi_characters_in_names_are_refused(char: str) -> None:
    refuse(a_model(f"x{char}"), OnnxFieldError, "E_ONNX_FIELD")


@pytest.mark.parametrize("name", [b"\xed\xa0\x80", b"\xff"], ids=["unpaired surrogate", "no UTF-8"])
def test_names_that_are_no_text_are_refused(name: bytes) -> None:
    data = a_model("NAME").SerializeToString()
    with pytest.raises(ModelError):
        load_model(data.replace(b"NAME", name.ljust(4, b"_")), None)


def test_names_of_other_scripts_are_accepted() -> None:
    assert load_model(a_model("入力:0/{x}").SerializeToString(), None).facts.inputs[0].label == "入力:0/{x}"


def test_sparse_initializers_are_refused() -> None:
    model = a_model()
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    refuse(model, OnnxFieldError, "E_ONNX_FIELD")


def test_strings_are_refused() -> None:
    model = a_model()
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.STRING, [1]))
    refuse(model, OnnxFieldError, "E_ONNX_FIELD")


def test_sequences_and_optionals_are_refused() -> None:
    for make in (helper.make_tensor_sequence_value_info,):
        model = a_model()
        model.graph.input.append(make("s", TensorProto.FLOAT, [1]))
        refuse(model, OnnxFieldError, "E_ONNX_FIELD")


def test_an_old_opset_is_refused_with_its_number() -> None:
    model = a_model()
    model.opset_import[0].version = 6
    assert "opset 6" in refuse(model, LoweringError, "E_UNSUPPORTED")


def test_inputs_that_are_initializers_are_constants() -> None:
    model = a_model()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]))
    assert [f.label for f in load_model(model.SerializeToString(), None).facts.inputs] == ["x"]


def test_dims_without_a_usable_label_have_none() -> None:
    model = a_model()
    shape = model.graph.input[0].type.tensor_type.shape
    for text in ("?", "-1", "batch"):
        shape.dim.add(dim_param=text)
    shape.dim.add(dim_value=-1)
    shape.dim.add()
    loaded = load_model(model.SerializeToString(), None)
    assert loaded.facts.inputs[0].dims == (4, None, None, "batch", None, None)


@pytest.mark.parametrize(
    ("kind", "dtype", "values"),
    [
        (TensorProto.INT4, DType.I4, [-8, 7, -1]),
        (TensorProto.UINT4, DType.U4, [15, 0, 9]),
        (TensorProto.INT8, DType.I8, [-128, 127, 0]),
        (TensorProto.BOOL, DType.BOOL, [1, 0, 1]),
        (TensorProto.UINT32, DType.U32, [2**32 - 1, 0, 7]),
        (TensorProto.DOUBLE, DType.F64, [0.1, -0.0, 3.0]),
    ],
)
def test_typed_fields_are_read(kind: int, dtype: DType, values: list[float]) -> None:
    model = a_model()
    model.graph.node.append(helper.make_node("Constant", [], ["k"], value=helper.make_tensor("t", kind, [3], values)))
    stored = load_model(model.SerializeToString(), None).nodes[-1].attributes["value"]
    assert (stored.dtype, stored.array.tolist()) == (dtype, values)  # type: ignore[union-attr]
