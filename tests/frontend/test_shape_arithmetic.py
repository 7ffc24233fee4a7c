"""Integer tensors that come from shapes fold into dims."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import build_model, lower_model, run_node
from tribunus.errors import LoweringError
from tribunus.frontend.lower import UnsupportedNodes
from tribunus.phaseir import dims
from tribunus.phaseir.dims import DimScope, Sym, Symbol

F = TensorProto.FLOAT


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_the_reshape_that_exporters_write_needs_no_op_but_itself() -> None:
    model = build_model(
        [
            ("Shape", ["x"], ["s"], {}),
            ("Gather", ["s", "zero"], ["b"], {"axis": 0}),
            ("Gather", ["s", "one"], ["t"], {"axis": 0}),
            ("Mul", ["b", "t"], ["bt"], {}),
            ("Unsqueeze", ["bt", "axes"], ["bt1"], {}),
            ("Concat", ["bt1", "rest"], ["target"], {"axis": 0}),
            ("Reshape", ["x", "target"], ["y"], {}),
        ],
        {"x": (F, ["batch", "time", 8])},
        ["y"],
        {"zero": np.array(0), "one": np.array(1), "axes": i64(0), "rest": i64(2, -1)},
    )
    found = lower_model(model, dims=["batch=1:2:4", "time=1:5:9"])
    assert found.kinds == ["reshape"]
    assert str(found.program.type_of(found.program.only_phase.outputs[0])) == "f32[(s0 * s1), 2, 4]"
    x = np.arange(48, dtype=np.float32).reshape(2, 3, 8)
    assert np.array_equal(found.run(x=x)[0], x.reshape(6, 2, 4))


def test_halves_floors_and_casts_through_floating_point_fold() -> None:
    model = build_model(
        [
            ("Shape", ["x"], ["s"], {"start": 1, "end": 2}),
            ("Cast", ["s"], ["f"], {"to": F}),
            ("Div", ["f", "two"], ["h"], {}),
            ("Floor", ["h"], ["g"], {}),
            ("Cast", ["g"], ["n"], {"to": TensorProto.INT64}),
            ("Slice", ["x", "start", "n", "axes"], ["y"], {}),
        ],
        {"x": (F, [1, "time"])},
        ["y"],
        {"two": np.array([2], np.float32), "start": i64(0), "axes": i64(1)},
        opset=15,
    )
    found = lower_model(model, dims=["time=1:5:9"])
    assert found.kinds == ["slice"]
    assert found.run(x=np.arange(7, dtype=np.float32).reshape(1, 7))[0].tolist() == [[0, 1, 2]]


def test_a_shape_that_is_used_as_data_is_extents() -> None:
    model = build_model(
        [("Shape", ["x"], ["s"], {}), ("Cast", ["s"], ["f"], {"to": F}), ("Mul", ["f", "f"], ["y"], {})],
        {"x": (F, ["n", 3])},
        ["y"],
    )
    found = lower_model(model, dims=["n=1:2:5"])
    assert found.kinds == ["extents", "cast", "mul"]
    values = found.program.only_phase.ops[0].attributes.dims("values")
    assert values == (Sym("s0"), 3)


def test_minus_one_is_recognised_in_an_expand_target() -> None:
    """Exporters replace -1 in a target by 1 with Equal and Where."""
    model = build_model(
        [
            ("Shape", ["x"], ["s"], {}),
            ("Concat", ["minus", "s"], ["t"], {"axis": 0}),
            ("ConstantOfShape", ["three"], ["ones"], {"value": helper.make_tensor("v", TensorProto.INT64, [1], [1])}),
            ("Mul", ["ones", "minus"], ["negative"], {}),
            ("Equal", ["t", "negative"], ["eq"], {}),
            ("Where", ["eq", "ones", "t"], ["target"], {}),
            ("Expand", ["row", "target"], ["y"], {}),
        ],
        {"x": (F, ["n", "m"])},
        ["y"],
        {"minus": i64(-1), "three": i64(3), "row": np.ones(1, np.float32)},
    )
    found = lower_model(model, dims=["n=1:2:5", "m=2:2:7"])
    assert found.kinds == ["expand"]
    assert found.program.only_phase.ops[0].attributes.dims("shape") == (1, Sym("s0"), Sym("s1"))


def test_range_and_slice_limits_beyond_the_end_are_clamped() -> None:
    x = np.arange(10, dtype=np.float32)
    limits = {"s": i64(-100), "e": i64(2**62), "a": i64(0), "t": i64(3)}
    values, kinds = run_node("Slice", {"x": x, **limits}, constants=list(limits))
    assert values[0].tolist() == x[::3].tolist()
    assert kinds == ["slice"]
    back = {"s": i64(2**31 - 1), "e": i64(-(2**63)), "a": i64(0), "t": i64(-2)}
    values, _ = run_node("Slice", {"x": x, **back}, constants=list(back))
    assert values[0].tolist() == x[::-2].tolist()


def test_an_integer_range_of_symbolic_length_is_iota() -> None:
    model = build_model(
        [
            ("Shape", ["x"], ["s"], {}),
            ("Squeeze", ["s"], ["n"], {}),
            ("Range", ["zero", "n", "two"], ["r"], {}),
            ("Cast", ["r"], ["y"], {"to": F}),
        ],
        {"x": (F, ["n"])},
        ["y"],
        {"zero": np.array(0), "two": np.array(2)},
    )
    found = lower_model(model, dims=["n=1:5:9"])
    assert found.kinds == ["iota", "cast"]
    assert found.run(x=np.zeros(7, np.float32))[0].tolist() == [0, 2, 4, 6]


def test_integer_division_truncates_towards_zero() -> None:
    model = build_model(
        [("Div", ["a", "b"], ["q"], {}), ("Add", ["q", "x"], ["y"], {})],
        {"x": (TensorProto.INT64, [4])},
        ["y"],
        {"a": i64(7, -7, 7, -7), "b": i64(2, 2, -2, -2)},
    )
    found = lower_model(model, {"x": (4,)})
    assert found.kinds == ["add"]
    assert found.run(x=i64(0, 0, 0, 0))[0].tolist() == [3, -3, -3, 3]


def test_a_shape_that_depends_on_data_is_refused_by_name() -> None:
    model = build_model([("Reshape", ["x", "t"], ["y"], {})], {"x": (F, [4]), "t": (TensorProto.INT64, [2])}, ["y"])
    with pytest.raises(UnsupportedNodes, match=r"n0: Reshape of ai.onnx: the target shape \(t\) depends on data"):
        lower_model(model, {"x": (4,), "t": (2,)})


def test_a_constant_of_absurd_size_is_refused() -> None:
    model = build_model(
        [("ConstantOfShape", ["s"], ["y"], {})], {"x": (F, [1])}, ["y"], {"s": i64(2**20, 2**20, 2**20)}
    )
    with pytest.raises(LoweringError, match="larger than"):
        lower_model(model, {"x": (1,)})


def test_a_float_range_of_absurd_size_is_refused() -> None:
    numbers = {n: np.array(v, np.float32) for n, v in (("a", 0), ("b", 1e30), ("c", 1))}
    model = build_model([("Range", ["a", "b", "c"], ["y"], {})], {"x": (F, [1])}, ["y"], numbers)
    with pytest.raises(LoweringError, match="larger than"):
        lower_model(model, {"x": (1,)})


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 256])
def test_bounds_by_lines_are_sound(divisor: int) -> None:
    """What ``at_least`` claims holds at every value of the symbol."""
    scope = DimScope((Symbol("s0", "n", 3, 50, 300),))
    s = Sym("s0")
    parts = [dims.floordiv(dims.add(dims.mul(s, a), b), divisor) for a in (1, 2) for b in (-3, 0, 5)]
    parts += [dims.ceildiv(dims.add(s, 1), divisor), dims.minimum(s, 40), dims.maximum(dims.floordiv(s, divisor), 9)]
    for left in parts:
        for right in parts:
            difference = dims.sub(left, right)
            least = min(dims.evaluate(difference, {"s0": v}) for v in scope.symbols[0].values())
            assert not scope.at_least(difference, least + 1)
