"""Every golden against onnxruntime on generated cases; both read the same operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from tests.oracle.nodes import Array, one_op, onnx_node
from tribunus.oracle.golden import evaluate
from tribunus.oracle.ops import GOLDENS
from tribunus.phaseir.ops import OPS
from tribunus.phaseir.program import Constants

_R = np.random.default_rng


def f32(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return _R(seed).standard_normal(shape).astype(np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """kind and values name our op, op_type and onnx the ONNX node; extra: operands that only the node has."""

    kind: str
    op_type: str
    operands: Sequence[npt.ArrayLike | None]
    values: dict[str, object] = field(default_factory=dict)
    onnx: dict[str, object] | None = None
    extra: Sequence[npt.ArrayLike | None] = ()
    outputs: int = 1
    tolerance: float = 2e-6
    opset: int = 20
    depth: int | None = None


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5, -1.5, 3.25, -7.75], np.float32)
X, Y = f32(0, 3, 1, 5), f32(1, 4, 5)
POSITIVE = np.abs(f32(2, 40)) + np.float32(0.01)
CONV = {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2), "group": 2}
POOL = {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "dilations": (1, 1)}
POOL_ONNX = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
LENGTHS = np.array([5, 2, 3], np.int32)
U8 = _R(3).integers(0, 256, (3, 7)).astype(np.uint8)
I8 = _R(4).integers(-128, 128, (7, 4)).astype(np.int8)


def unary(kind: str, op_type: str, x: npt.ArrayLike, tolerance: float = 2e-6) -> Case:
    return Case(kind, op_type, [x], tolerance=tolerance)


def rnn(kind: str, gates: int, direction: str, lengths: Array | None, **values: object) -> Case:
    d, h, i, t, b = (2 if direction == "bidirectional" else 1), 6, 4, 5, 3
    operands: list[Array | None] = [f32(1, t, b, i), f32(2, d, gates * h, i), f32(3, d, gates * h, h)]
    operands += [f32(4, d, 2 * gates * h), lengths, f32(5, d, b, h)]
    operands += [f32(6, d, b, h)] if kind == "lstm" else []
    return Case(
        kind,
        kind.upper(),
        operands,
        {"direction": direction, "hidden": h, **values},
        {"direction": direction, "hidden_size": h, **values},
        outputs=3 if kind == "lstm" else 2,
        tolerance=2e-5,
    )


def resize(mode: str, coordinate: str, nearest: str, out: tuple[int, int], exclude: int = 0) -> Case:
    x = f32(7, 1, 2, 5, 6)
    scales = (1.0, 1.0, out[0] / 5, out[1] / 6)
    sizes = (1, 2, *out)
    values: dict[str, object] = {
        "mode": mode,
        "coordinate": coordinate,
        "nearest": nearest,
        "sizes": sizes,
        "scales": scales,
    }
    attributes: dict[str, object] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinate,
        "nearest_mode": nearest,
    }
    attributes |= {"nearest_mode": nearest, "cubic_coeff_a": -0.75, "exclude_outside": exclude}
    return Case(
        "resize",
        "Resize",
        [x],
        {**values, "cubic_a": -0.75, "exclude_outside": exclude},
        attributes,
        extra=[None, None, i64(*sizes)],
        tolerance=1e-5,
    )


def reduce(kind: str, op_type: str, axes: tuple[int, ...], keep: int, x: Array | None = None) -> Case:
    return Case(
        kind,
        op_type,
        [f32(8, 3, 4, 5) if x is None else x],
        {"axes": axes, "keepdims": keep},
        {"keepdims": keep},
        extra=[i64(*axes)],
    )


def scatter(reduction: str) -> Case:
    index = _R(9).permuted(np.tile(np.arange(4), (3, 1)), axis=1).astype(np.int64)[:, :3] - np.int64(2)
    return Case(
        "scatter_elements", "ScatterElements", [f32(1, 3, 4), index, f32(2, 3, 3)], {"axis": 1, "reduction": reduction}
    )


CASES = [
    *(
        unary(k, o, x)
        for k, o in (
            ("abs", "Abs"), ("neg", "Neg"), ("relu", "Relu"), ("floor", "Floor"), ("ceil", "Ceil"), ("round", "Round"),
            ("exp", "Exp"), ("tanh", "Tanh"), ("is_nan", "IsNaN"),
        )
        for x in (SPECIAL, f32(1, 50))
    ),
    *(unary(k, o, POSITIVE) for k, o in (("sqrt", "Sqrt"), ("log", "Log"), ("reciprocal", "Reciprocal"))),
    *(unary(k, o, f32(1, 50)) for k, o in (("sign", "Sign"), ("erf", "Erf"), ("sin", "Sin"), ("cos", "Cos"))),
    unary("sigmoid", "Sigmoid", f32(1, 50)),
    Case("leaky_relu", "LeakyRelu", [f32(1, 50)], {"alpha": 0.1}),
    Case("hard_sigmoid", "HardSigmoid", [f32(1, 50)], {"alpha": 0.3, "beta": 0.4}),
    *(Case(k, o, [X, Y]) for k, o in (("add", "Add"), ("sub", "Sub"), ("mul", "Mul"), ("div", "Div"))),
    *(Case(k, o, [SPECIAL, SPECIAL[::-1].copy()]) for k, o in (("minimum", "Min"), ("maximum", "Max"))),
    *(
        Case(k, o, [np.array([7, -7, 7, -7, 5], dt), np.array([2, 2, -2, -2, 5], dt)])
        for dt in (np.int32, np.int64)
        for k, o in (("div", "Div"), ("add", "Add"), ("mul", "Mul"), ("sub", "Sub"))
    ),
    Case("pow", "Pow", [POSITIVE, f32(3, 40)], tolerance=1e-5),
    Case("pow", "Pow", [np.array([2, -3, 5], np.int64), np.array([10, 3, 0], np.int64)]),
    *(
        Case(k, o, [np.round(X * 2), np.round(Y * 2)])
        for k, o in (
            ("equal", "Equal"), ("less", "Less"), ("less_equal", "LessOrEqual"), ("greater", "Greater"),
            ("greater_equal", "GreaterOrEqual"),
        )
    ),
    *(Case(k, o, [X > 0, Y > 0]) for k, o in (("and", "And"), ("or", "Or"), ("xor", "Xor"))),
    unary("not", "Not", X > 0),
    Case("where", "Where", [X > 0, X, Y]),
    Case("cast", "Cast", [f32(1, 30) * np.float32(50)], {"to": "i32"}, {"to": 6}),
    Case("cast", "Cast", [f32(1, 30) * np.float32(50)], {"to": "f16"}, {"to": 10}),
    Case("cast", "Cast", [np.array([0, 1, -3], np.int64)], {"to": "bool"}, {"to": 9}),
    Case("cast", "Cast", [np.array([2**40 + 1, 16777217], np.int64)], {"to": "f32"}, {"to": 1}),
    *(
        reduce(k, o, axes, keep)
        for k, o in (
            ("reduce_sum", "ReduceSum"), ("reduce_mean", "ReduceMean"), ("reduce_prod", "ReduceProd"),
            ("reduce_l1", "ReduceL1"), ("reduce_l2", "ReduceL2"), ("reduce_sum_square", "ReduceSumSquare"),
            ("reduce_max", "ReduceMax"), ("reduce_min", "ReduceMin"),
        )
        for axes, keep in (((1,), 1), ((0, 2), 0))
    ),
    reduce("reduce_sum", "ReduceSum", (0,), 0, np.arange(12, dtype=np.int64).reshape(3, 4)),
    *(
        Case(k, o, [np.round(f32(1, 4, 9))], {"axis": 1, "keepdims": 0, "select_last": last},
             {"axis": 1, "keepdims": 0, "select_last_index": last})
        for k, o in (("arg_max", "ArgMax"), ("arg_min", "ArgMin"))
        for last in (0, 1)
    ),
    *(
        Case("cumsum", "CumSum", [f32(1, 3, 130)], {"axis": 1, "exclusive": e, "reverse": r},
             {"exclusive": e, "reverse": r}, extra=[i64(1)], tolerance=2e-5)
        for e in (0, 1)
        for r in (0, 1)
    ),
    *(
        Case("matmul", "MatMul", [f32(1, *a), f32(2, *b)])
        for a, b in (
            ((4, 7), (7, 5)), ((2, 3, 4, 7), (7, 5)), ((2, 1, 4, 7), (3, 7, 5)), ((7,), (7, 5)), ((4, 7), (7,))
        )
    ),
    Case("matmul_integer", "MatMulInteger", [U8, I8, np.array(7, np.uint8), np.array(-3, np.int8)]),
    Case("matmul_integer", "MatMulInteger", [U8, I8, np.array(7, np.uint8), np.array([1, -2, 3, 0], np.int8)]),
    Case("conv", "Conv", [f32(1, 2, 4, 9, 8), f32(2, 6, 2, 3, 3), f32(3, 6)], CONV, tolerance=1e-5),
    Case("conv", "Conv", [f32(1, 2, 4, 9), f32(2, 4, 1, 3)],
         {"strides": (1,), "pads": (1, 1), "dilations": (1,), "group": 4}, tolerance=1e-5),
    Case("conv", "Conv", [f32(1, 1, 2, 4, 5, 6), f32(2, 3, 2, 2, 3, 1)],
         {"strides": (1, 2, 1), "pads": (0, 1, 0, 0, 1, 0), "dilations": (1, 1, 1), "group": 1}, tolerance=1e-5),
    Case("conv_transpose", "ConvTranspose", [f32(1, 2, 4, 5, 6), f32(2, 4, 3, 3, 2), f32(3, 6)],
         {"strides": (2, 3), "pads": (1, 0, 0, 1), "dilations": (1, 2), "group": 2, "output_padding": (1, 0)},
         tolerance=1e-5),
    Case("conv_transpose", "ConvTranspose", [f32(1, 1, 2, 5), f32(2, 2, 3, 2)],
         {"strides": (2,), "pads": (2, 2), "dilations": (1,), "group": 1, "output_padding": (0,)}, tolerance=1e-5),
    Case("conv_integer", "ConvInteger",
         [_R(1).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8), _R(2).integers(0, 256, (3, 2, 3, 3)).astype(np.uint8),
          np.array(100, np.uint8), np.array(3, np.uint8)],
         {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}),
    *(
        Case("max_pool", "MaxPool", [f32(1, 2, 3, 8, 9)], {**POOL, "ceil_mode": c}, {**POOL_ONNX, "ceil_mode": c})
        for c in (0, 1)
    ),
    *(
        Case("average_pool", "AveragePool", [f32(1, 2, 3, 8, 9)], {**POOL, "ceil_mode": c, "count_include_pad": p},
             {**POOL_ONNX, "ceil_mode": c, "count_include_pad": p})
        for c in (0, 1)
        for p in (0, 1)
    ),
    Case("batch_norm", "BatchNormalization", [f32(1, 2, 3, 4), f32(2, 3), f32(3, 3), f32(4, 3), np.abs(f32(5, 3))],
         {"eps": 1e-5}, {"epsilon": 1e-5}, tolerance=1e-5),
    Case("layer_norm", "LayerNormalization", [f32(1, 2, 3, 8), f32(2, 8), f32(3, 8)], {"axis": 2, "eps": 1e-5},
         {"axis": 2, "epsilon": 1e-5}, tolerance=1e-5),
    Case("group_norm", "GroupNormalization", [f32(1, 2, 6, 4, 3), f32(2, 6), f32(3, 6)], {"groups": 3, "eps": 1e-5},
         {"num_groups": 3, "epsilon": 1e-5}, tolerance=1e-5, opset=21),
    Case("group_norm", "InstanceNormalization", [f32(1, 2, 3, 4, 3), f32(2, 3), f32(3, 3)], {"groups": 3, "eps": 1e-5},
         {"epsilon": 1e-5}, tolerance=1e-5),
    *(Case(k, o, [f32(1, 2, 7, 3)], {"axis": 1}) for k, o in (("softmax", "Softmax"), ("log_softmax", "LogSoftmax"))),
    *(rnn("lstm", 4, d, n) for d in ("forward", "reverse", "bidirectional") for n in (None, LENGTHS)),
    *(
        rnn("gru", 3, d, n, linear_before_reset=b)
        for d in ("forward", "reverse", "bidirectional")
        for n in (None, LENGTHS)
        for b in (0, 1)
    ),
    *(
        resize("nearest", c, n, (9, 11) if c == "asymmetric" else (8, 8))
        for c in ("asymmetric", "half_pixel", "align_corners")
        for n in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    *(
        resize(m, c, "floor", out)
        for m in ("linear", "cubic")
        for c in ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
        for out in ((8, 13), (3, 1))
    ),
    resize("cubic", "half_pixel", "floor", (8, 13), exclude=1),
    Case("copy", "Identity", [SPECIAL]),
    Case("transpose", "Transpose", [f32(1, 2, 3, 4)], {"perm": (2, 0, 1)}),
    Case("concat", "Concat", [f32(1, 2, 3), f32(2, 2, 1)], {"axis": 1}),
    Case("reshape", "Reshape", [f32(1, 2, 6)], {"shape": (3, 4)}, {}, extra=[i64(3, 4)]),
    Case("slice", "Slice", [f32(1, 6, 7)], {"starts": (4, 1), "sizes": (2, 3), "steps": (-2, 2)}, {},
         extra=[i64(4, 1), i64(0, 7), i64(0, 1), i64(-2, 2)]),
    *(
        Case("pad", "Pad", [f32(1, 4, 5)], {"mode": m, "before": (1, 2), "after": (2, 0)}, {"mode": m},
             extra=[i64(1, 2, 2, 0)])
        for m in ("constant", "reflect", "edge", "wrap")
    ),
    Case("pad", "Pad", [f32(1, 4, 5)], {"mode": "constant", "before": (-1, 2), "after": (2, -2)}, {},
         extra=[i64(-1, 2, 2, -2)]),
    Case("expand", "Expand", [f32(1, 3, 1)], {"shape": (2, 3, 4)}, {}, extra=[i64(2, 3, 4)]),
    Case("tile", "Tile", [f32(1, 3, 2)], {"repeats": (2, 3)}, {}, extra=[i64(2, 3)]),
    Case("fill", "ConstantOfShape", [], {"dtype": "f32", "shape": (2, 3), "value": 0.0}, {}, extra=[i64(2, 3)]),
    Case("iota", "Range", [], {"dtype": "i64", "shape": (4,), "axis": 0, "start": 3, "step": 2}, {},
         extra=[np.array(v, np.int64) for v in (3, 10, 2)]),
    Case("gather", "Gather", [f32(1, 4, 5, 2), np.array([[0, -1], [4, 2]], np.int64)], {"axis": 1}),
    Case("gather_elements", "GatherElements", [f32(1, 4, 5), np.array([[0, -1, 4], [1, 1, 2]], np.int64)], {"axis": 1}),
    Case("gather_nd", "GatherND", [f32(1, 2, 3, 4), np.array([[[0], [2]], [[1], [-1]]], np.int64)], {"batch_dims": 1}),
    *(scatter(r) for r in ("none", "add", "mul", "min", "max")),
    *(
        Case("scatter_nd", "ScatterND", [f32(1, 4, 5), np.array([[1], [-1], [1]], np.int64), f32(2, 3, 5)],
             {"reduction": r})
        for r in ("add", "mul", "min", "max")
    ),
    Case("one_hot", "OneHot", [np.array([[0, -1], [3, 9]], np.int64), f32(1, 2)], {"axis": 1, "depth": (4,)},
         {"axis": 1}, depth=4),
    *(
        Case("top_k", "TopK", [np.round(f32(1, 3, 12) * 2)], {"axis": 1, "k": (5,), "largest": g, "sorted": 1},
             {"axis": 1, "largest": g}, extra=[i64(5)], outputs=2)
        for g in (0, 1)
    ),
    Case("quantize_linear", "QuantizeLinear", [f32(1, 40) * np.float32(90), np.float32(0.5), np.int8(3)],
         {"axis": -1, "to": "i8"}, {}),
    Case("quantize_linear", "QuantizeLinear", [f32(1, 3, 40), np.array([0.5, 0.01, 2], np.float32),
         np.array([1, 2, 3], np.uint8)], {"axis": 0, "to": "u8"}, {"axis": 0}),
    Case("dequantize_linear", "DequantizeLinear", [I8, np.array([0.1, 0.2, 0.3, 0.4], np.float32),
         np.array([1, -2, 3, 4], np.int8)], {"axis": 1}),
    Case("dynamic_quantize_linear", "DynamicQuantizeLinear", [f32(1, 60)], outputs=3),
]  # fmt: skip


def _onnx_values(case: Case) -> dict[str, int | float | str | list[int]]:
    found: dict[str, int | float | str | list[int]] = {}
    for name, value in (case.values if case.onnx is None else case.onnx).items():
        if isinstance(value, tuple | list):
            found[name] = [int(v) for v in value]
        else:
            assert isinstance(value, int | float | str)
            found[name] = value
    return found


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c.op_type}" for i, c in enumerate(CASES)])
def test_a_golden_agrees_with_onnxruntime(case: Case) -> None:
    operands = [None if a is None else np.asarray(a) for a in case.operands]
    program, inputs = one_op(case.kind, operands, **case.values)
    values = evaluate(program, inputs, Constants())
    node_operands = [*operands, *(None if a is None else np.asarray(a) for a in case.extra)]
    if case.depth is not None:
        node_operands.insert(1, np.array(case.depth, np.int64))
    witness = onnx_node(case.op_type, node_operands, case.outputs, _onnx_values(case), case.opset)
    for value, expected in zip(program.only_phase.outputs, witness, strict=True):
        wide = np.float64 if expected.dtype.kind == "f" else np.int64
        scale = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=1.0)) if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(
            np.asarray(values[value], dtype=wide),
            np.asarray(expected, dtype=wide),
            rtol=case.tolerance,
            atol=case.tolerance * scale,
            equal_nan=True,
        )


def test_every_op_of_the_table_has_a_golden_and_no_other() -> None:
    assert set(GOLDENS) == set(OPS)


def test_every_op_of_the_table_is_compared_here() -> None:
    witnessed = {case.kind for case in CASES}
    assert set(OPS) - witnessed == {"extents", "rms_norm"}, "these two have tests of their own"
