"""Each rule: what the ONNX definition gives, and the normal form that other rooms rely on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import Array, Attribute, build_model, lower_model, run_node

Arrays = Mapping[str, np.ndarray | None]


def ramp(*shape: int, start: float = -2.0, stop: float = 3.0) -> np.ndarray:
    return np.linspace(start, stop, math.prod(shape), dtype=np.float32).reshape(shape)


def check(
    op: str,
    operands: Arrays,
    expected: np.ndarray,
    kinds: Sequence[str],
    attributes: Mapping[str, Attribute] | None = None,
    constants: Sequence[str] = (),
    opset: int = 17,
) -> None:
    values, found = run_node(op, operands, attributes or {}, constants=constants, opset=opset)
    assert found == list(kinds)
    assert values[0].shape == expected.shape
    np.testing.assert_allclose(values[0], expected, rtol=3e-6, atol=1e-6)


X = ramp(2, 3, 4)
x64 = X.astype(np.float64)


def erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.vectorize(math.erf)(x))


ACTIVATIONS: list[tuple[str, dict[str, Attribute], np.ndarray, list[str], int]] = [
    ("Relu", {}, np.maximum(x64, 0), ["relu"], 17),
    ("LeakyRelu", {"alpha": 0.3}, np.where(x64 < 0, np.float64(np.float32(0.3)) * x64, x64), ["leaky_relu"], 17),
    ("HardSigmoid", {}, np.clip(0.2 * x64 + 0.5, 0, 1), ["hard_sigmoid"], 17),
    ("HardSwish", {}, x64 * np.clip(x64 / 6 + 0.5, 0, 1), ["hard_sigmoid", "mul"], 17),
    ("Softplus", {}, np.log1p(np.exp(x64)), ["abs", "neg", "exp", "relu", "add", "log", "add"], 17),
    (
        "Elu",
        {"alpha": 1.5},
        np.where(x64 < 0, 1.5 * np.expm1(x64), x64),
        ["minimum", "exp", "sub", "mul", "less", "where"],
        17,
    ),
    ("Softsign", {}, x64 / (1 + abs(x64)), ["abs", "add", "div"], 17),
    ("ThresholdedRelu", {"alpha": 1.0}, np.where(x64 > 1, x64, 0), ["greater", "where"], 17),
    ("Gelu", {}, 0.5 * x64 * (1 + erf(x64 / math.sqrt(2))), ["div", "erf", "add", "mul", "mul"], 20),
    (
        "Selu",
        {},
        1.0507009873554805 * np.where(x64 < 0, 1.6732632423543772 * np.expm1(x64), x64),
        ["minimum", "exp", "sub", "mul", "less", "where", "mul"],
        17,
    ),
    ("Reciprocal", {}, 1 / x64, ["reciprocal"], 17),
    ("Identity", {}, x64, ["copy"], 17),
    ("Dropout", {}, x64, ["copy"], 17),
    (
        "Mish",
        {},
        x64 * np.tanh(np.log1p(np.exp(x64))),
        ["abs", "neg", "exp", "relu", "add", "log", "add", "tanh", "mul"],
        18,
    ),
]


@pytest.mark.parametrize(
    ("op", "attributes", "expected", "kinds", "opset"), ACTIVATIONS, ids=[a[0] for a in ACTIVATIONS]
)
def test_activations_are_their_definitions(
    op: str, attributes: dict[str, Attribute], expected: np.ndarray, kinds: list[str], opset: int
) -> None:
    check(op, {"x": X}, expected, kinds, attributes, opset=opset)


def test_softplus_does_not_overflow() -> None:
    values, _ = run_node("Softplus", {"x": np.array([1000, -1000], np.float32)})
    assert values[0].tolist() == [1000.0, 0.0]


@pytest.mark.parametrize(
    ("low", "high", "kinds"),
    [
        (-1.0, 1.0, ["maximum", "minimum"]),
        (-1.0, None, ["maximum"]),
        (None, 1.0, ["minimum"]),
        (None, math.inf, ["copy"]),
    ],
)
def test_clip_is_maximum_then_minimum_with_absent_bounds_skipped(
    low: float | None, high: float | None, kinds: list[str]
) -> None:
    bounds = {n: None if b is None else np.array(b, np.float32) for n, b in (("lo", low), ("hi", high))}
    expected = np.clip(x64, -math.inf if low is None else low, math.inf if high is None else high)
    check("Clip", {"x": X, **bounds}, expected, kinds, constants=["lo", "hi"])


def test_clip_before_opset_11_has_its_bounds_as_attributes() -> None:
    check("Clip", {"x": X}, np.clip(x64, 0, 1), ["maximum", "minimum"], {"min": 0.0, "max": 1.0}, opset=9)


def test_sums_of_many_are_chains() -> None:
    parts = {"a": X, "b": X * 2, "c": X[:, :1]}
    check("Sum", parts, x64 * 3 + x64[:, :1], ["add", "add"])
    check("Max", parts, np.maximum(np.maximum(x64, x64 * 2), x64[:, :1]), ["maximum", "maximum"])
    check("Mean", parts, (x64 * 3 + x64[:, :1]) / 3, ["add", "add", "div"])


def test_pow_takes_an_integer_exponent() -> None:
    check("Pow", {"x": X, "e": np.array(2, np.int64)}, x64**2, ["pow"], constants=["e"], opset=15)


def test_integer_mod_has_the_sign_of_the_divisor() -> None:
    a, b = np.array([7, -7, 7, -7, 6], np.int64), np.array([3, 3, -3, -3, 3], np.int64)
    assert run_node("Mod", {"a": a, "b": b})[0][0].tolist() == np.mod(a, b).tolist()
    assert run_node("Mod", {"a": a, "b": b}, {"fmod": 1})[0][0].tolist() == np.fmod(a, b).tolist()


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_is_matmul_with_scales_of_one_skipped(transposed: int) -> None:
    a, w, c = ramp(2, 3), ramp(3, 4, start=1, stop=2), ramp(4)
    stored = w.T.copy() if transposed else w
    operands = {"a": a, "w": stored, "c": c}
    check("Gemm", operands, a.astype(float) @ w + c, ["matmul", "add"], {"transB": transposed}, ["w", "c"])
    scaled = 0.5 * (a.astype(float) @ w) + 2.0 * c
    attributes = {"transB": transposed, "alpha": 0.5, "beta": 2.0}
    check("Gemm", operands, scaled, ["matmul", "mul", "mul", "add"], attributes, ["w", "c"])


def test_gemm_transposes_what_is_computed() -> None:
    a, b = ramp(3, 2), ramp(3, 4)
    check("Gemm", {"a": a, "b": b}, a.T.astype(float) @ b, ["transpose", "matmul"], {"transA": 1})


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,j->i", [(3, 4), (4,)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 2)]),
        ("bij,bj", [(2, 3, 4), (2, 4)]),
        ("ijk,jk->i", [(2, 3, 4), (3, 4)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = {f"x{i}": ramp(*shape) for i, shape in enumerate(shapes)}
    expected = np.einsum(equation, *(a.astype(float) for a in arrays.values()))
    values, kinds = run_node("Einsum", arrays, {"equation": equation})
    np.testing.assert_allclose(values[0], expected, rtol=1e-9)
    assert set(kinds) <= {"transpose", "reshape", "matmul", "reduce_sum"}


def test_shape_changes_are_one_reshape() -> None:
    check("Flatten", {"x": X}, x64.reshape(2, 12), ["reshape"])
    check("Flatten", {"x": X}, x64.reshape(1, 24), ["reshape"], {"axis": 0})
    axes = np.array([0, -1], np.int64)
    check("Unsqueeze", {"x": X, "a": axes}, x64[None, ..., None], ["reshape"], constants=["a"])
    check("Squeeze", {"x": X[:1, :, :1]}, x64[0, :, 0], ["reshape"])
    check("Squeeze", {"x": X[:1]}, x64[0], ["reshape"], {"axes": [0]}, opset=11)
    target = np.array([0, -1, 2], np.int64)
    check("Reshape", {"x": X, "t": target}, x64.reshape(2, 6, 2), ["reshape"], constants=["t"])


def test_changes_that_change_nothing_vanish() -> None:
    same = np.array([2, 3, 4], np.int64)
    check("Reshape", {"x": X, "t": same}, x64, ["copy"], constants=["t"])
    check("Expand", {"x": X, "t": same}, x64, ["copy"], constants=["t"])
    check("Transpose", {"x": X}, x64, ["copy"], {"perm": [0, 1, 2]})
    check("Cast", {"x": X}, x64, ["copy"], {"to": TensorProto.FLOAT})
    check("Pad", {"x": X, "p": np.zeros(6, np.int64)}, x64, ["copy"], constants=["p"])


def test_split_is_slices() -> None:
    values, kinds = run_node("Split", {"x": X}, {"axis": 2}, outputs=2)
    assert kinds == ["slice", "slice"]
    np.testing.assert_array_equal(values[1], x64[..., 2:])
    sizes = np.array([1, 2], np.int64)
    values, _ = run_node("Split", {"x": X, "s": sizes}, {"axis": 1}, ["s"], outputs=2)
    np.testing.assert_array_equal(values[0], x64[:, :1])
    values, _ = run_node("Split", {"x": X}, {"axis": 1, "num_outputs": 2}, outputs=2, opset=18)
    assert [v.shape for v in values] == [(2, 2, 4), (2, 1, 4)]


def test_softmax_before_opset_13_sees_a_matrix() -> None:
    rows = np.exp(x64.reshape(2, 12))
    expected = (rows / rows.sum(1, keepdims=True)).reshape(X.shape)
    check("Softmax", {"x": X}, expected, ["reshape", "softmax", "reshape"], {"axis": 1}, opset=11)
    last = np.exp(x64) / np.exp(x64).sum(-1, keepdims=True)
    check("Softmax", {"x": X}, last, ["softmax"], {"axis": 2}, opset=11)
    check("Softmax", {"x": X}, last, ["softmax"], opset=13)


def test_reductions_take_axes_from_attribute_or_operand() -> None:
    check("ReduceMean", {"x": X}, x64.mean((0, 2)), ["reduce_mean"], {"axes": [-1, 0], "keepdims": 0})
    axes = np.array([1], np.int64)
    check("ReduceMax", {"x": X, "a": axes}, x64.max(1, keepdims=True), ["reduce_max"], {}, ["a"], 18)
    check("ReduceSum", {"x": X, "a": axes}, x64.sum(1, keepdims=True), ["reduce_sum"], {}, ["a"], 13)
    check("ReduceSum", {"x": X}, x64, ["copy"], {"noop_with_empty_axes": 1}, opset=13)
    check("ReduceLogSumExp", {"x": X}, np.log(np.exp(x64).sum()).reshape(1, 1, 1), ["exp", "reduce_sum", "log"])


def test_global_pools_are_reductions_of_any_rank() -> None:
    check("GlobalMaxPool", {"x": X}, x64.max(2, keepdims=True), ["reduce_max"])
    image = ramp(1, 2, 3, 4)
    check("GlobalAveragePool", {"x": image}, image.astype(float).mean((2, 3), keepdims=True), ["reduce_mean"])


@pytest.mark.parametrize(
    ("mode", "pads"), [("SAME_UPPER", (0, 0, 1, 1)), ("SAME_LOWER", (1, 1, 0, 0)), ("VALID", (0, 0, 0, 0))]
)
def test_automatic_padding_becomes_explicit(mode: str, pads: tuple[int, ...]) -> None:
    model = build_model(
        [("Conv", ["x", "w"], ["y"], {"auto_pad": mode, "strides": [2, 2]})],
        {"x": (TensorProto.FLOAT, [1, 1, 6, "w"])},
        ["y"],
        {"w": np.ones((1, 1, 3, 3), np.float32)},
    )
    found = lower_model(model, dims=["w=4:8:32:2"])
    assert found.program.only_phase.ops[0].attributes.integers("pads") == pads


def test_transposed_convolution_with_a_wanted_shape() -> None:
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    attributes = {"strides": [3, 2], "output_shape": [10, 8]}
    values, _ = run_node("ConvTranspose", {"x": x, "w": w}, attributes, ["w"])
    assert values[0].shape == (1, 1, 10, 8)
    assert values[0].sum() == 81
    assert values[0][..., -1, :].tolist() == [[[0.0] * 8]]


def test_ceil_mode_drops_windows_that_start_in_the_padding() -> None:
    x = ramp(1, 1, 4)
    attributes: dict[str, Attribute] = {"kernel_shape": [1], "strides": [2], "ceil_mode": 1, "pads": [0, 0]}
    check("MaxPool", {"x": x}, x.astype(float)[..., ::2], ["max_pool"], attributes)
    attributes = {"kernel_shape": [2], "strides": [3], "ceil_mode": 1}
    check("MaxPool", {"x": x}, x.astype(float)[..., [1, 3]], ["max_pool"], attributes)


def test_normalizations() -> None:
    ones, eps = np.ones(4, np.float32), float(np.float32(1e-5))
    mean, variance = x64.mean(-1, keepdims=True), x64.var(-1, keepdims=True)
    expected = (x64 - mean) / np.sqrt(variance + eps)
    check("LayerNormalization", {"x": X, "s": ones}, expected, ["layer_norm"], constants=["s"])
    vectors = {n: np.full(3, v, np.float32) for n, v in (("s", 2), ("b", 1), ("m", 0.5), ("v", 4))}
    expected = (x64 - 0.5) / np.sqrt(4 + eps) * 2 + 1
    check("BatchNormalization", {"x": X, **vectors}, expected, ["batch_norm"], {}, list(vectors))
    scale, bias = np.full(3, 2, np.float32), np.full(3, 1, np.float32)
    expected = (x64 - mean) / np.sqrt(variance + eps) * 2 + 1
    check("InstanceNormalization", {"x": X, "s": scale, "b": bias}, expected, ["group_norm"], {}, ["s", "b"])
    zero = np.zeros((1, 2), np.float32)
    check("LpNormalization", {"x": zero}, zero, ["reduce_l2", "equal", "where", "div"])


def test_padding_in_every_version() -> None:
    expected = np.pad(x64, ((0, 0), (1, 0), (0, 2)), constant_values=7)
    pads = np.array([0, 1, 0, 0, 0, 2], np.int64)
    value = np.array(7, np.float32)
    check("Pad", {"x": X, "p": pads, "v": value}, expected, ["pad"], {}, ["p", "v"])
    check("Pad", {"x": X}, expected, ["pad"], {"pads": pads.tolist(), "value": 7.0}, opset=9)
    few: dict[str, Array | None] = {"p": np.array([1, 0, 0, 2], np.int64), "v": value, "a": np.array([1, -1], np.int64)}
    check("Pad", {"x": X, **few}, expected, ["pad"], {}, list(few), 18)
    reflected = np.pad(x64, ((0, 0), (1, 0), (0, 2)), mode="reflect")
    check("Pad", {"x": X, "p": pads}, reflected, ["pad"], {"mode": "reflect"}, ["p"])


def test_indexing() -> None:
    indices = np.array([[2, -1]], np.int64)
    check("Gather", {"x": X, "i": indices}, x64[:, indices], ["gather"], {"axis": 1}, ["i"])
    values, _ = run_node("TopK", {"x": X, "k": np.array([2], np.int64)}, {}, ["k"], outputs=2)
    np.testing.assert_array_equal(values[0], np.sort(x64, -1)[..., :1:-1])
    values, kinds = run_node(
        "OneHot",
        {"i": np.array([1, 3], np.int64), "d": np.array(3, np.int64), "v": np.array([0, 5], np.float32)},
        {"axis": 0},
        ["d"],
    )
    assert kinds == ["one_hot"]
    assert values[0].tolist() == [[0, 0], [5, 0], [0, 0]]
    check("ArgMax", {"x": X}, x64.argmax(1, keepdims=True), ["arg_max"], {"axis": -2})
    axis = np.array(-1, np.int64)
    check("CumSum", {"x": X, "a": axis}, x64.cumsum(-1), ["cumsum"], {}, ["a"])
    keep = np.array(1, np.int64)
    check("Trilu", {"x": X, "k": keep}, np.triu(x64, 1), ["where"], {}, ["k"])


def test_rearrangements_between_depth_and_space() -> None:
    x = ramp(1, 8, 2, 3)
    values, _ = run_node("DepthToSpace", {"x": x}, {"blocksize": 2})
    back, _ = run_node("SpaceToDepth", {"x": values[0].astype(np.float32)}, {"blocksize": 2})
    np.testing.assert_array_equal(back[0], x)


def test_old_resizes_use_asymmetric_coordinates() -> None:
    x, scales = ramp(1, 1, 2, 2), np.array([1, 1, 2, 2], np.float32)
    expected = x.astype(float).repeat(2, 2).repeat(2, 3)
    for op, opset in (("Upsample", 9), ("Resize", 10)):
        check(op, {"x": x, "s": scales}, expected, ["resize"], {}, ["s"], opset)


def test_quantization_of_one_scale_has_rank_0_operands() -> None:
    model = build_model(
        [("QuantizeLinear", ["x", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["y"], {})],
        {"x": (TensorProto.FLOAT, [3])},
        ["y"],
        {"s": np.array([0.5], np.float32), "z": np.array([3], np.int8)},
    )
    found = lower_model(model, {"x": (3,)})
    program = found.program
    assert found.kinds == ["quantize_linear", "dequantize_linear"]
    assert [str(program.type_of(i)) for i in program.only_phase.ops[0].inputs[1:]] == ["f32[]", "i8[]"]
    assert found.run(x=np.array([0.3, 100, -1], np.float32))[0].tolist() == [0.5, 62.0, -1.0]


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_recurrent_layout_1_is_layout_0_transposed(op: str) -> None:
    gates = 4 if op == "LSTM" else 3
    x, w, r = ramp(3, 2, 4), ramp(1, gates * 5, 4), ramp(1, gates * 5, 5, start=-1, stop=1)
    plain, kinds = run_node(op, {"x": x, "w": w, "r": r}, {"hidden_size": 5}, outputs=2)
    assert kinds == [op.lower()]
    swapped = {"x": np.ascontiguousarray(x.transpose(1, 0, 2)), "w": w, "r": r}
    other, _ = run_node(op, swapped, {"hidden_size": 5, "layout": 1}, outputs=2)
    np.testing.assert_array_equal(other[0], plain[0].transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(other[1], plain[1].transpose(1, 0, 2))


def test_absent_optional_operands_in_the_middle_are_marked() -> None:
    model = build_model(
        [("LSTM", ["x", "w", "r", "", "", "h"], ["y"], {"hidden_size": 1})],
        {"x": (TensorProto.FLOAT, [2, 1, 1])},
        ["y"],
        {n: np.ones(s, np.float32) for n, s in (("w", (1, 4, 1)), ("r", (1, 4, 1)), ("h", (1, 1, 1)))},
    )
    op = lower_model(model, {"x": (2, 1, 1)}).program.only_phase.ops[0]
    assert op.inputs[3:5] == (-1, -1) and len(op.inputs) == 6


def test_outputs_that_are_inputs_are_copies_of_their_own() -> None:
    model = build_model(
        [("Identity", ["x"], ["a"], {}), ("Identity", ["a"], ["b"], {}), ("Identity", ["w"], ["c"], {})],
        {"x": (TensorProto.FLOAT, [2]), "unused": (TensorProto.FLOAT, [1])},
        ["a", "b", "c"],
        {"w": np.ones(1, np.float32)},
    )
    program = lower_model(model, {"x": (2,), "unused": (1,)}).program
    assert [op.kind for op in program.only_phase.ops] == ["copy"] * 3
    assert [program.values[o].label for o in program.only_phase.outputs] == ["a", "b", "c"]
    assert [program.values[i].label for i in program.only_phase.inputs] == ["x", "unused"]


def test_ops_know_the_nodes_they_came_from() -> None:
    model = build_model(
        [("HardSwish", ["x"], ["h"], {}), ("Shape", ["h"], ["s"], {}), ("Relu", ["h"], ["y"], {})],
        {"x": (TensorProto.FLOAT, [2])},
        ["y"],
    )
    program = lower_model(model, {"x": (2,)}).program
    assert [(s.name, s.op_type) for s in program.sources] == [("n0", "HardSwish"), ("n2", "Relu")]
    assert [op.source for op in program.only_phase.ops] == [(0,), (0,), (1,)]
    assert program.values[program.only_phase.ops[1].outputs[0]].label == "h"


def test_doubles_stay_doubles() -> None:
    model = build_model(
        [("Cast", ["x"], ["d"], {"to": TensorProto.DOUBLE}), ("Sqrt", ["d"], ["y"], {})],
        {"x": (TensorProto.FLOAT, [2])},
        ["y"],
    )
    program = lower_model(model, {"x": (2,)}).program
    assert str(program.type_of(program.only_phase.outputs[0])) == "f64[2]"


def test_constant_nodes_of_every_kind() -> None:
    stored = helper.make_tensor("t", TensorProto.FLOAT, [1], [4.0])
    model = build_model(
        [
            ("Constant", [], ["a"], {"value": stored}),
            ("Constant", [], ["b"], {"value_float": 0.5}),
            ("Constant", [], ["c"], {"value_floats": [1.0, 2.0]}),
            ("Sum", ["x", "a", "b", "c"], ["y"], {}),
        ],
        {"x": (TensorProto.FLOAT, [2])},
        ["y"],
    )
    assert lower_model(model, {"x": (2,)}).run(x=np.zeros(2, np.float32))[0].tolist() == [5.5, 6.5]
