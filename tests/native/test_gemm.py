"""Matrix products: odd shapes, symbolic rows, epilogues, strides, splits, and one set of bits for every point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.templates.csource import Param
from tribunus_native.templates.epilogue import Activate, Activation, Combine, Epilogue, ScaleShift, WithTensor
from tribunus_native.templates.gemm import (
    GemmParams,
    GemmPoint,
    Order,
    Split,
    gemm,
    gemm_points,
    gemm_rule,
    pack_gemm,
    pack_gemm_vector,
)
from tribunus_native.toolchain import Contraction, Cpu

from .conftest import Lab

F32 = npt.NDArray[np.float32]
NORMAL = np.random.default_rng(7)


def normal(*shape: int) -> F32:
    return NORMAL.standard_normal(shape).astype(np.float32)


def product(
    lab: Lab,
    params: GemmParams,
    x: F32,
    w: F32,
    bias: F32,
    y: F32,
    *,
    rows: int,
    parts: int = 1,
    cpu: Cpu | None = None,
) -> None:
    arrays = [x, y, pack_gemm(w, params), pack_gemm_vector(bias, params)]
    lab.run(gemm(params), arrays, params=(rows,), parts=parts, cpu=cpu, contraction=params.point.contraction)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("rows", "n", "k", "parts"), [(1, 1, 1, 1), (3, 17, 5, 2), (57, 100, 33, 3), (31, 130, 8, 4)])
def test_product_of_odd_shapes(lab: Lab, rows: int, n: int, k: int, parts: int, symbolic: bool) -> None:
    size = Param(0) if symbolic else rows
    params = GemmParams(rows=size, n=n, k=k, point=gemm_rule(size, n, k, lab.cpu), avx512=lab.cpu.has_avx512)
    x, w, bias, y = normal(rows, k), normal(k, n), normal(n), np.full((rows, n), np.nan, dtype=np.float32)
    product(lab, params, x, w, bias, y, rows=rows, parts=parts)
    exact = x.astype(np.float64) @ w + bias
    scale = np.abs(x.astype(np.float64)) @ np.abs(w) + np.abs(bias)
    assert np.all(np.abs(y - exact) <= (k + 1) * 2.0**-24 * scale)


def test_every_point_gives_the_same_bits(lab: Lab) -> None:
    rows, n, k = 21, 70, 600
    x, w, bias = normal(rows, k), normal(k, n), normal(n)
    fused = [p for p in gemm_points(rows, n, k, lab.cpu) if p.contraction is Contraction.FUSED]
    chosen = [
        *fused[:2],
        next(p for p in fused if p.kc == 256 and p.pack_a),
        next(p for p in fused if p.order is Order.ROWS and p.kc == 512),
        next(p for p in fused if p.nv == 1),
        fused[-1],
    ]
    digests = set()
    for point in chosen:
        params = GemmParams(rows=rows, n=n, k=k, point=point, avx512=lab.cpu.has_avx512)
        y = np.full((rows, n), np.nan, dtype=np.float32)
        product(lab, replace(params, split=Split.PANELS), x, w, bias, y, rows=rows, parts=2)
        digests.add(y.tobytes())
    assert len(digests) == 1


def test_other_instruction_sets_give_the_same_bits(lab: Lab) -> None:
    if len(lab.cpus) < 2:
        pytest.skip("this machine runs one instruction set only")
    rows, n, k = 10, 37, 64
    x, w, bias = normal(rows, k), normal(k, n), normal(n)
    results = []
    for cpu in lab.cpus:
        params = GemmParams(rows=rows, n=n, k=k, point=gemm_rule(rows, n, k, cpu), avx512=cpu.has_avx512)
        y = np.zeros((rows, n), dtype=np.float32)
        product(lab, params, x, w, bias, y, rows=rows, cpu=cpu)
        results.append(y.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("kc", [0, 20])
def test_epilogue_steps_run_in_order_and_outputs_go_into_a_wider_tensor(lab: Lab, kc: int) -> None:
    rows, n, k = 13, 35, 50
    steps: Epilogue = (
        ScaleShift(),
        WithTensor(Combine.ADD, stride=40, offset=2),
        Activate(Activation.SILU),
        WithTensor(Combine.MULTIPLY),
    )
    point = replace(gemm_rule(Param(0), n, k, lab.cpu), kc=kc)
    params = GemmParams(
        rows=Param(0), n=n, k=k, point=point, avx512=lab.cpu.has_avx512, epilogue=steps,
        x_stride=60, x_offset=4, y_stride=64, y_offset=5,
    )  # fmt: skip
    source = gemm(params)
    assert [slot.name for slot in source.buffers] == [
        "x", "tensor1", "tensor3", "y", "weights", "bias", "scale0", "shift0"
    ]  # fmt: skip
    x, w, bias, scale, shift = normal(rows, 60), normal(k, n), normal(n), normal(n), normal(n)
    residual, factor = normal(rows, 40), normal(rows, n)
    y = np.full((rows, 64), 9.0, dtype=np.float32)
    vectors = [pack_gemm_vector(v, params) for v in (bias, scale, shift)]
    lab.run(source, [x, residual, factor, y, pack_gemm(w, params), *vectors], params=(rows,), parts=2)
    exact = (x[:, 4 : 4 + k].astype(np.float64) @ w + bias) * scale + shift + residual[:, 2 : 2 + n]
    exact = exact / (1 + np.exp(-exact)) * factor
    assert np.allclose(y[:, 5 : 5 + n], exact, rtol=1e-4, atol=1e-5)
    assert np.all(y[:, :5] == 9.0) and np.all(y[:, 5 + n :] == 9.0)


def test_special_values_travel_through_a_product(lab: Lab) -> None:
    rows, n, k = 4, 20, 6
    params = GemmParams(rows=rows, n=n, k=k, point=gemm_rule(rows, n, k, lab.cpu), avx512=lab.cpu.has_avx512)
    relu = replace(params, epilogue=(Activate(Activation.RELU),))
    x = normal(rows, k)
    x[0, 1], x[1, 2], x[2, :] = np.nan, np.inf, 1e-42
    w, bias = np.abs(normal(k, n)) + np.float32(1), np.zeros(n, dtype=np.float32)
    for variant in (params, relu):
        y = np.zeros((rows, n), dtype=np.float32)
        product(lab, variant, x, w, bias, y, rows=rows)
        assert np.isnan(y[0]).all() and np.isposinf(y[1]).all()
        assert np.allclose(y[2], x[2].astype(np.float64) @ w, rtol=0, atol=2.0**-148)


def test_the_packed_form_is_the_documented_index_map() -> None:
    point = GemmPoint(lanes=8, mr=4, nv=2, kc=0, order=Order.PANELS, pack_a=False, contraction=Contraction.FUSED)
    params = GemmParams(rows=1, n=37, k=5, point=point, avx512=False)
    w = normal(5, 37)
    packed = pack_gemm(w, params)
    assert packed.size == 5 * 40
    places = [params.panels.offset(k, n, 5) for k in range(5) for n in range(37)]
    assert len(set(places)) == len(places)
    assert np.array_equal(packed[places], w.ravel())
    assert np.count_nonzero(packed) == np.count_nonzero(w)
    assert params.panels.vectors == (2, 2, 1)


@pytest.mark.parametrize("cpu", list(Cpu))
def test_the_search_space_is_large_starts_with_the_rule_and_repeats_nothing(cpu: Cpu) -> None:
    points = gemm_points(128, 384, 1536, cpu)
    assert points[0] == gemm_rule(128, 384, 1536, cpu)
    assert len(points) == len(set(points)) > 100
    assert points == gemm_points(128, 384, 1536, cpu)
    for point in points:
        # accumulators, one row of weights and one broadcast value; the last may come straight from memory
        assert point.mr * point.nv + point.nv <= cpu.vector_registers


def test_source_text_depends_on_parameters_only() -> None:
    params = GemmParams(rows=8, n=48, k=16, point=gemm_rule(8, 48, 16, Cpu.ZNVER4), avx512=True)
    assert gemm(params).text == gemm(params).text
    assert "constexpr int64_t K = 16;" in gemm(params).text
