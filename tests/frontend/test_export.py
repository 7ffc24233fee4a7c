"""Export back to ONNX: a foreign runtime gives what the original model gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from tests.frontend.models import Array, build_model, lower_model
from tribunus.errors import DimError
from tribunus.frontend.export import export_onnx, to_onnx
from tribunus.frontend.export_rules import EXPORTS
from tribunus.phaseir.ops import OPS

F = TensorProto.FLOAT


def run(model: onnx.ModelProto | Path, **inputs: Array) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    data = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options)
    return [np.asarray(a) for a in session.run(None, inputs)]


def a_digit_reader() -> onnx.ModelProto:
    rng = np.random.default_rng(7)

    def weights(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return build_model(
        [
            ("Conv", ["x", "w1", "b1"], ["c"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
            ("Relu", ["c"], ["r"], {}),
            ("GlobalAveragePool", ["r"], ["p"], {}),
            ("Flatten", ["p"], ["f"], {}),
            ("Gemm", ["f", "w2", "b2"], ["g"], {"transB": 1, "alpha": 0.5}),
            ("Softmax", ["g"], ["y"], {"axis": 1}),
        ],
        {"x": (F, ["n", 1, 8, 8])},
        ["y"],
        {"w1": weights(4, 1, 3, 3), "b1": weights(4), "w2": weights(10, 4), "b2": weights(10)},
    )


def test_every_op_has_an_onnx_form() -> None:
    assert set(EXPORTS) == set(OPS)


def test_a_small_network_gives_the_same_in_a_foreign_runtime(tmp_path: Path) -> None:
    model = a_digit_reader()
    found = lower_model(model, dims=["n=1:2:9"])
    export_onnx(found.program, found.constants, tmp_path / "out.onnx")
    onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)
    for batch in (1, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 1, 8, 8)).astype(np.float32)
        np.testing.assert_allclose(run(tmp_path / "out.onnx", x=x)[0], run(model, x=x)[0], rtol=1e-5)


def test_exports_are_deterministic() -> None:
    found = lower_model(a_digit_reader(), dims=["n=1:2:9"])
    first, second = (to_onnx(found.program, found.constants) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_shapes_that_are_expressions_are_computed_from_inputs() -> None:
    model = build_model(
        [
            ("Shape", ["x"], ["s"], {"start": 1}),
            ("Div", ["s", "three"], ["third"], {}),
            ("Slice", ["x", "third", "end", "axis", "step"], ["back"], {}),
            ("Cast", ["s"], ["n"], {"to": F}),
            ("Mul", ["back", "n"], ["y"], {}),
        ],
        {"x": (F, [1, "n"])},
        ["y"],
        {n: np.array([v]) for n, v in (("three", 3), ("end", -(2**40)), ("axis", 1), ("step", -1))},
    )
    found = lower_model(model, dims=["n=3:6:12"])
    exported = to_onnx(found.program, found.constants)
    for n in (3, 7, 12):
        x = np.arange(n, dtype=np.float32).reshape(1, n)
        np.testing.assert_array_equal(run(exported, x=x)[0], run(model, x=x)[0])


def test_generated_values_are_exported() -> None:
    model = build_model(
        [
            ("Shape", ["x"], ["s"], {}),
            ("ConstantOfShape", ["s"], ["zeros"], {}),
            ("Squeeze", ["s"], ["n"], {}),
            ("Range", ["zero", "n", "two"], ["r"], {}),
            ("Cast", ["r"], ["f"], {"to": F}),
            ("Sum", ["x", "zeros", "f"], ["y"], {}),
        ],
        {"x": (F, ["n"])},
        ["y"],
        {"zero": np.array(0), "two": np.array(1)},
    )
    found = lower_model(model, dims=["n=1:6:12"])
    assert {"fill", "iota"} <= set(found.kinds)
    assert run(to_onnx(found.program, found.constants), x=np.zeros(4, np.float32))[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("opset", [21])
def test_group_norm_of_several_channels_is_exported(opset: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 6, 5)).astype(np.float32)
    scale, bias = np.arange(1, 7, dtype=np.float32), np.arange(6, dtype=np.float32)
    model = build_model(
        [("GroupNormalization", ["x", "s", "b"], ["y"], {"num_groups": 2})],
        {"x": (F, [2, 6, 5])},
        ["y"],
        {"s": scale, "b": bias},
        opset,
    )
    found = lower_model(model, {"x": x.shape})
    exported = run(to_onnx(found.program, found.constants), x=x)[0]
    np.testing.assert_allclose(exported, found.run(x=x)[0], rtol=1e-5, atol=1e-6)


def test_a_symbol_that_no_input_shows_alone_is_refused() -> None:
    from dataclasses import replace

    from tribunus.phaseir.dims import Symbol

    found = lower_model(a_digit_reader(), dims=["n=1:2:9"])
    stray = replace(found.program, symbols=(*found.program.symbols, Symbol("s1", "stray", 1, 1, 2)))
    with pytest.raises(DimError, match="stray"):
        to_onnx(stray, found.constants)
