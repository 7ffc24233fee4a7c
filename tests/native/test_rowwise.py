"""Normalisations, softmax and attention: tails, symbolic sizes, masks, classes, ill-conditioned rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.templates.attention import AttentionParams, Mask, Operand, attention, attention_points
from tribunus_native.templates.csource import Param
from tribunus_native.templates.rowwise import (
    Norm,
    NormParams,
    Residual,
    SoftmaxKind,
    SoftmaxParams,
    norm,
    norm_rule,
    softmax,
    softmax_rule,
)
from tribunus_native.toolchain import Contraction

from .conftest import Lab

F32 = npt.NDArray[np.float32]
NORMAL = np.random.default_rng(13)


def normal(*shape: int) -> F32:
    return NORMAL.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("residual", list(Residual))
@pytest.mark.parametrize(("kind", "rows", "n"), [(Norm.LAYER, 7, 83), (Norm.RMS, 5, 3), (Norm.LAYER, 3, 192)])
def test_normalisation(lab: Lab, kind: Norm, rows: int, n: int, residual: Residual) -> None:
    shifts = kind is Norm.LAYER
    params = NormParams(
        rows=Param(0), n=n, epsilon=1e-5, norm=kind, point=norm_rule(n, lab.cpu), residual=residual, shift=shifts
    )
    x, other, scale, shift = normal(rows, n), normal(rows, n), normal(n), normal(n)
    y, total = np.full((rows, n), np.nan, dtype=np.float32), np.full((rows, n), np.nan, dtype=np.float32)
    inputs = [x] if residual is Residual.NONE else [x, other]
    outputs = [y, total] if residual is Residual.KEPT else [y]
    weights = [scale, shift] if shifts else [scale]
    lab.run(norm(params), [*inputs, *outputs, *weights], params=(rows,), parts=2)
    z = (x if residual is Residual.NONE else x + other).astype(np.float64)
    if kind is Norm.LAYER:
        exact = (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + np.float32(1e-5)) * scale + shift
    else:
        exact = z / np.sqrt((z * z).mean(-1, keepdims=True) + np.float32(1e-5)) * scale
    assert np.allclose(y, exact, rtol=2e-6, atol=2e-6)
    if residual is Residual.KEPT:
        assert np.array_equal(total, x + other)


def test_layer_norm_keeps_its_accuracy_where_the_mean_is_a_thousand_deviations(lab: Lab) -> None:
    n = 384
    params = NormParams(
        rows=4, n=n, epsilon=1e-5, norm=Norm.LAYER, point=norm_rule(n, lab.cpu), scale=False, shift=False
    )
    x = (1000 + normal(4, n)).astype(np.float32)
    y = np.empty((4, n), dtype=np.float32)
    lab.run(norm(params), [x, y])
    z = x.astype(np.float64)
    exact = (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + np.float32(1e-5))
    assert np.abs(y - exact).max() < 3e-4  # a one-pass variance is off by 0.1 and more here


@pytest.mark.parametrize("kind", list(SoftmaxKind))
@pytest.mark.parametrize(("rows", "n"), [(7, 5), (6, 37), (9, 64), (1, 1), (5, 1001)])
def test_softmax(lab: Lab, kind: SoftmaxKind, rows: int, n: int) -> None:
    params = SoftmaxParams(
        rows=Param(0), n=Param(1), kind=kind, point=softmax_rule(Param(1), lab.cpu), avx512=lab.cpu.has_avx512
    )
    x = normal(rows, n) * np.float32(5)
    y = np.full((rows, n), np.nan, dtype=np.float32)
    lab.run(softmax(params), [x, y], params=(rows, n), parts=2)
    z = x.astype(np.float64) - x.max(-1, keepdims=True)
    exact = z - np.log(np.exp(z).sum(-1, keepdims=True))
    if kind is SoftmaxKind.SOFTMAX:
        assert np.allclose(y, np.exp(exact), rtol=5e-6, atol=0)
    else:
        assert np.allclose(y, exact, rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("top", [0, 3313, 6624])
def test_what_vanishes_beside_the_largest_exponential_still_counts(top: int, lab: Lab) -> None:
    """Each of the others is below half an ulp of 1, all together are 2e-4 of the sum."""
    n = 6625
    params = SoftmaxParams(
        rows=1, n=n, kind=SoftmaxKind.SOFTMAX, point=softmax_rule(n, lab.cpu), avx512=lab.cpu.has_avx512
    )
    x = np.full((1, n), -17.4, dtype=np.float32)
    x[0, top] = 0
    y = np.zeros((1, n), dtype=np.float32)
    lab.run(softmax(params), [x, y])
    exact = 1 / np.exp(x.astype(np.float64)).sum()
    assert abs(float(y[0, top]) - exact) < 1.5e-6


def test_softmax_of_masked_and_special_rows(lab: Lab) -> None:
    params = SoftmaxParams(
        rows=5, n=21, kind=SoftmaxKind.SOFTMAX, point=softmax_rule(21, lab.cpu), avx512=lab.cpu.has_avx512
    )
    x = normal(5, 21)
    x[0, 7:] = -np.inf  # masked entries are exactly 0
    x[1, :] = -np.inf  # 0/0
    x[2, 20] = np.nan
    x[3, :] = np.linspace(-95, 0, 21)  # small results are subnormal, not 0
    x[4, 20] = np.inf
    y = np.zeros((5, 21), dtype=np.float32)
    lab.run(softmax(params), [x, y])
    assert np.all(y[0, 7:] == 0) and abs(float(y[0].sum()) - 1) < 1e-6
    assert np.isnan(y[1]).all() and np.isnan(y[2]).all() and np.isnan(y[4, 20])
    assert 0 < y[3, 0] < 1.2e-38


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    ("batch", "queries", "keys", "heads", "size", "mask"),
    [
        (2, 7, 7, 3, 5, Mask.NONE),
        (1, 9, 33, 2, 20, Mask.QUERY_KEY),
        (2, 13, 13, 2, 24, Mask.KEY),
        (1, 18, 70, 1, 72, Mask.NONE),
    ],
)
def test_attention(
    lab: Lab, batch: int, queries: int, keys: int, heads: int, size: int, mask: Mask, symbolic: bool
) -> None:
    width = heads * size
    fused = queries == keys
    x = normal(batch, queries, 3 * width)
    q, k, v = (np.ascontiguousarray(x[..., i * width : (i + 1) * width]) for i in range(3))
    if not fused:
        k, v = normal(batch, keys, width), normal(batch, keys, width)
    operands = [Operand(stride=3 * width, head=size, offset=i * width) for i in range(3)]
    if not fused:
        operands = [Operand(stride=width, head=size)] * 3
    dims = (Param(0), Param(1), Param(2)) if symbolic else (batch, queries, keys)
    points = attention_points(dims[1], dims[2], size, lab.cpu)
    bias: F32 | None = None
    scores = np.zeros((1, 1, queries, keys))
    if mask is Mask.KEY:
        bias = np.where(NORMAL.random((batch, keys)) < 0.3, -np.inf, 0).astype(np.float32)
        bias[:, 0] = 0
        scores = bias[:, None, None, :].astype(np.float64)
    elif mask is Mask.QUERY_KEY:
        bias = np.where(np.tril(np.ones((queries, keys))) > 0, 0, -np.inf).astype(np.float32)
        scores = bias[None, None].astype(np.float64)

    def split(t: F32) -> npt.NDArray[np.float64]:
        return t.astype(np.float64).reshape(batch, -1, heads, size).transpose(0, 2, 1, 3)

    scores = scores + split(q) @ split(k).transpose(0, 1, 3, 2) * np.float32(size**-0.5)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    exact = (p / p.sum(-1, keepdims=True) @ split(v)).transpose(0, 2, 1, 3).reshape(batch, queries, width)
    params = AttentionParams(
        batch=dims[0], heads=heads, head_size=size, queries=dims[1], keys=dims[2], scale=size**-0.5,
        q=operands[0], k=operands[1], v=operands[2], y=Operand(stride=width, head=size), mask=mask,
        point=replace(points[0], mr=3, nv=2) if symbolic else points[0], avx512=lab.cpu.has_avx512,
    )  # fmt: skip
    assert points[0].contraction is Contraction.FUSED
    y = np.full((batch, queries, width), np.nan, dtype=np.float32)
    inputs = [x, x, x] if fused else [q, k, v]
    masks = [] if bias is None else [bias]
    lab.run(attention(params), [*inputs, *masks, y], params=(batch, queries, keys), parts=2)
    assert np.abs(y - exact).max() < 2e-6
