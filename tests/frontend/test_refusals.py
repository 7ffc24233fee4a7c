"""What cannot be lowered is listed whole, and ranges that do not hold are refused with a step that does."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import build_model, lower_model
from tribunus.errors import DimError
from tribunus.frontend.bindings import parse_dim_options
from tribunus.frontend.child import lower_profile
from tribunus.frontend.loading import load_model
from tribunus.frontend.lower import UnsupportedNodes
from tribunus.phaseir.program import Constants

F = TensorProto.FLOAT


def test_all_unsupported_nodes_are_listed_at_once() -> None:
    branch = helper.make_graph(
        [helper.make_node("Det", ["x"], ["b"])], "b", [], [helper.make_tensor_value_info("b", F, [])]
    )
    model = build_model(
        [
            ("Acosh", ["x"], ["a"], {}),
            ("NonZero", ["a"], ["hidden"], {}),
            ("Custom", ["x"], ["c"], {"domain": "com.example"}),
            ("NonZero", ["x"], ["z"], {}),
            ("If", ["k"], ["i"], {"then_branch": branch, "else_branch": branch}),
            ("Relu", ["x"], ["r"], {}),
        ],
        {"x": (F, [2, 2]), "k": (TensorProto.BOOL, [])},
        ["hidden", "c", "z", "i", "r"],
    )
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedNodes) as caught:
        lower_model(model, {"x": (2, 2), "k": ()})
    assert [(p.node.name, p.node.op_type, p.node.domain) for p in caught.value.problems] == [
        ("n0", "Acosh", ""),
        ("n2", "Custom", "com.example"),
        ("n3", "NonZero", ""),
        ("n4", "If", ""),
    ]
    assert caught.value.name == "E_UNSUPPORTED"
    assert "Det" in caught.value.detail


def test_nodes_that_no_output_needs_are_not_judged() -> None:
    model = build_model([("Acosh", ["x"], ["a"], {}), ("Relu", ["x"], ["y"], {})], {"x": (F, [2])}, ["y"])
    assert lower_model(model, {"x": (2,)}).kinds == ["relu"]


def test_an_attribute_that_a_rule_does_not_know_is_refused() -> None:
    model = build_model(
        [("LSTM", ["x", "w", "r"], ["", "h"], {"hidden_size": 1, "clip": 3.0})],
        {"x": (F, [1, 1, 1])},
        ["h"],
        {"w": np.ones((1, 4, 1), np.float32), "r": np.ones((1, 4, 1), np.float32)},
    )
    with pytest.raises(UnsupportedNodes, match="clip"):
        lower_model(model, {"x": (1, 1, 1)})


def down_and_up() -> bytes:
    """x + upsampled(downsampled(x)): holds for even extents only."""
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    model = build_model(
        [
            ("MaxPool", ["x"], ["p"], pool),
            ("Resize", ["p", "", "scales"], ["u"], {"mode": "nearest"}),
            ("Add", ["x", "u"], ["y"], {}),
        ],
        {"x": (F, [1, 1, "h", 8])},
        ["y"],
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    data: bytes = model.SerializeToString()
    return data


def test_a_range_with_bad_values_names_the_least_and_a_step() -> None:
    loaded = load_model(down_and_up(), None)
    with pytest.raises(DimError) as caught:
        lower_profile(loaded, parse_dim_options(["h=4:8:31"], loaded.facts), Constants())
    assert "h=5 is the least value that fails" in caught.value.detail
    assert "a step of 2 holds throughout: --dim 'h=4:8:30:2'" in caught.value.remedy


def test_a_range_in_the_right_steps_is_lowered() -> None:
    loaded = load_model(down_and_up(), None)
    program = lower_profile(loaded, parse_dim_options(["h=4:8:30:2"], loaded.facts), Constants())
    assert [s.step for s in program.symbols] == [2]


def test_a_shape_error_that_no_dim_cures_stays_a_lowering_error() -> None:
    model = build_model([("Add", ["x", "w"], ["y"], {})], {"x": (F, ["n", 3])}, ["y"], {"w": np.ones(4, np.float32)})
    loaded = load_model(model.SerializeToString(), None)
    with pytest.raises(UnsupportedNodes):
        lower_profile(loaded, parse_dim_options(["n=1:2:3"], loaded.facts), Constants())


def test_ranks_that_an_op_does_not_define_are_a_problem_of_the_node() -> None:
    model = build_model(
        [("Conv", ["x", "w"], ["y"], {})], {"x": (F, [4])}, ["y"], {"w": np.ones((1, 1, 1), np.float32)}
    )
    with pytest.raises(UnsupportedNodes, match="n0: Conv"):
        lower_model(model, {"x": (4,)})


def test_tensors_that_no_memory_holds_are_refused() -> None:
    repeats = np.array([2**62, 2**62], np.int64)
    model = build_model([("Tile", ["x", "r"], ["y"], {})], {"x": (F, [2, 2])}, ["y"], {"r": repeats})
    with pytest.raises(UnsupportedNodes, match="larger than"):
        lower_model(model, {"x": (2, 2)})
