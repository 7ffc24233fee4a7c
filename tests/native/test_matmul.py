"""Batched products of two activations: both layouts, shared operand, symbolic sizes, splits, equal bits."""

from __future__ import annotations

import numpy as np
import pytest
from tribunus_native.templates.csource import Param
from tribunus_native.templates.epilogue import Activate, Activation, Combine, Epilogue, Scalar
from tribunus_native.templates.matmul import MatmulParams, Second, matmul, matmul_points, matmul_rule, takes_steps

from .conftest import Lab

STEPS: Epilogue = (Scalar(Combine.MULTIPLY, 0.25), Activate(Activation.RELU))


@pytest.mark.parametrize("second", list(Second))
@pytest.mark.parametrize(
    ("batch", "rows", "n", "k", "shared", "symbolic"),
    [(3, 7, 20, 33, False, True), (2, 13, 70, 17, True, True), (1, 9, 5, 3, False, False)],
)
def test_batched_product(
    lab: Lab, batch: int, rows: int, n: int, k: int, shared: bool, symbolic: bool, second: Second
) -> None:
    rng = np.random.default_rng(29)
    x = rng.standard_normal((batch, rows, k)).astype(np.float32)
    w = rng.standard_normal((1 if shared else batch, k, n)).astype(np.float32)
    exact = np.maximum(x.astype(np.float64) @ w * 0.25, 0)
    stored = np.ascontiguousarray(w.transpose(0, 2, 1)) if second is Second.ROWS_OF_K else w
    dims = (Param(0), Param(1), Param(2), Param(3)) if symbolic else (batch, rows, n, k)
    points = matmul_points(dims[1], dims[2], lab.cpu)
    assert points[0] == matmul_rule(dims[1], dims[2], lab.cpu)
    digests = set()
    for point in (points[0], next(p for p in points if p.nv == 1)):
        params = MatmulParams(
            batch=dims[0], rows=dims[1], n=dims[2], k=dims[3], second=second, shared=shared, point=point,
            avx512=lab.cpu.has_avx512, steps=STEPS,
        )  # fmt: skip
        y = np.full((batch, rows, n), np.nan, dtype=np.float32)
        lab.run(matmul(params), [x, stored, y], params=(batch, rows, n, k), parts=2)
        assert np.allclose(y, exact, rtol=1e-5, atol=1e-5)
        digests.add(y.tobytes())
    assert len(digests) == 1
    assert takes_steps(STEPS)
