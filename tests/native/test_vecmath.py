"""Vector functions against float64: units in the last place over the whole range, classes, equal bits everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.templates.csource import Param
from tribunus_native.templates.elementwise import MapParams, MapPoint, elementwise
from tribunus_native.templates.epilogue import Activate, Activation, Combine, Epilogue, Scalar, WithTensor
from tribunus_native.toolchain import Contraction, Cpu

from .conftest import Lab

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
STEP = 20011  # every so many of the 2^32 bit patterns


def _logistic(x: F64) -> F64:
    z = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, z, 1.0) / (1 + z), dtype=np.float64)


def _softplus(x: F64) -> F64:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _erf(x: F64) -> F64:
    return np.array([math.erf(value) for value in x.tolist()])


# function, float64 value, largest error in ulp, domain |x|
CASES: list[tuple[Activation, Callable[[F64], F64], float, float]] = [
    (Activation.EXP, np.exp, 1.1, np.inf),
    (Activation.LOG, np.log, 0.9, np.inf),
    (Activation.TANH, np.tanh, 1.4, np.inf),
    (Activation.SIGMOID, _logistic, 2.5, np.inf),
    (Activation.SILU, lambda x: x * _logistic(x), 3.4, np.inf),
    (Activation.ERF, _erf, 1.2, np.inf),
    (Activation.SOFTPLUS, _softplus, 2.2, np.inf),
    (Activation.MISH, lambda x: x * np.tanh(_softplus(x)), 4.5, np.inf),
    (Activation.SIN, np.sin, 2.0, 2.0**15),
    (Activation.COS, np.cos, 2.0, 2.0**15),
    (Activation.SQRT, np.sqrt, 0.5, np.inf),
    (Activation.RECIPROCAL, lambda x: 1 / x, 0.5, np.inf),
    (Activation.RELU, lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)), 0, np.inf),
    (Activation.ROUND, np.rint, 0, np.inf),
    (Activation.SIGN, np.sign, 0, np.inf),
]


def dense_inputs() -> F32:
    patterns = np.arange(0, 2**32, STEP, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4e38, -3.4e38, 1.0, -1.0,
         88.72, 88.73, -87.34, -103.97, -104.0, 0.625, -0.625, 9.02, 4.2],
        dtype=np.float32,
    )  # fmt: skip
    return np.concatenate([patterns, special])


def apply(
    lab: Lab,
    steps: Epilogue,
    x: F32,
    others: tuple[F32, ...] = (),
    *,
    cpu: Cpu | None = None,
    lanes: int | None = None,
    contraction: Contraction = Contraction.FUSED,
    parts: int = 1,
) -> F32:
    cpu = cpu or lab.cpu
    point = MapPoint(lanes=lanes or cpu.native_lanes, unroll=2, contraction=contraction)
    params = MapParams(rows=Param(0), channels=1, steps=steps, point=point, avx512=cpu.has_avx512)
    y = np.full(x.shape, 12345.0, dtype=np.float32)
    lab.run(elementwise(params), [x, *others, y], params=(x.size,), cpu=cpu, contraction=contraction, parts=parts)
    return y


def ulp(y: F64) -> F64:
    exponent = np.floor(np.log2(np.maximum(np.abs(y), 1e-300)))
    return np.asarray(2.0 ** (np.maximum(exponent, -126) - 23), dtype=np.float64)


@pytest.mark.parametrize(("function", "golden", "limit", "domain"), CASES, ids=[case[0].name for case in CASES])
def test_error_and_classes(
    lab: Lab, function: Activation, golden: Callable[[F64], F64], limit: float, domain: float
) -> None:
    x = dense_inputs()
    x = x[(np.abs(x) <= domain) | ~np.isfinite(x)]
    y = apply(lab, (Activate(function),), x)
    with np.errstate(all="ignore"):
        exact = golden(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isnan(y), np.isnan(exact))
    assert np.array_equal(np.isinf(y), np.isinf(rounded))
    assert np.array_equal(y[np.isinf(y)], rounded[np.isinf(y)])
    finite = np.isfinite(rounded)
    error = np.abs(y[finite].astype(np.float64) - exact[finite]) / ulp(exact[finite])
    worst = int(error.argmax())
    assert error[worst] <= limit, f"{error[worst]:.2f} ulp at {x[finite][worst]!r}"


@pytest.mark.parametrize("function", [Activation.ERF, Activation.SILU])
def test_bits_do_not_depend_on_lanes_or_instruction_set(lab: Lab, function: Activation) -> None:
    x = dense_inputs()[::7]
    first = apply(lab, (Activate(function),), x)
    number = ~np.isnan(first)
    for cpu, lanes in ((lab.cpus[0], 8), (lab.cpus[-1], 4)):
        again = apply(lab, (Activate(function),), x, cpu=cpu, lanes=lanes)
        assert np.array_equal(first[number].view(np.uint32), again[number].view(np.uint32))


def test_odd_functions_keep_the_sign_of_zero(lab: Lab) -> None:
    x = np.array([-0.0, 0.0], dtype=np.float32)
    for function in (Activation.TANH, Activation.ERF, Activation.SIN, Activation.SIGN):
        assert np.signbit(apply(lab, (Activate(function),), x)).tolist() == [True, False]


def test_gelu_stays_within_the_conditioning_of_its_definition(lab: Lab) -> None:
    x = np.linspace(-6, 6, 20001, dtype=np.float32)
    wide = x.astype(np.float64)
    erf = _erf(wide / math.sqrt(2))
    y = apply(lab, (Activate(Activation.GELU),), x)
    budget = 2.0**-24 * np.abs(wide) * (16 * np.abs(erf) + 6 * np.abs(1 + erf)) + ulp(0.5 * wide * (1 + erf))
    assert np.all(np.abs(y - 0.5 * wide * (1 + erf)) <= budget)
    tanh = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    y = apply(lab, (Activate(Activation.GELU_TANH),), x)
    assert np.abs(y - 0.5 * wide * (1 + tanh)).max() < 1e-6


def test_pow_special_values_and_error(lab: Lab) -> None:
    rng = np.random.default_rng(1)
    base = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-45, 1e38], dtype=np.float32)
    power = np.array(
        [0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e9, -7, 16777217, 0.3], dtype=np.float32
    )
    base = np.concatenate([base, np.exp(3 * rng.standard_normal(40)).astype(np.float32)])
    power = np.concatenate([power, (5 * rng.standard_normal(60)).astype(np.float32)])
    x, t = (np.ascontiguousarray(grid.ravel()) for grid in np.meshgrid(base, power))
    y = apply(lab, (WithTensor(Combine.POWER),), x, (t,))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), t.astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isnan(y), np.isnan(exact))
    assert np.array_equal(np.isinf(y), np.isinf(rounded))
    finite = np.isfinite(rounded)
    assert (np.abs(y[finite] - exact[finite]) / ulp(exact[finite])).max() <= 1.6


def test_a_chain_applies_its_steps_in_order_for_any_split(lab: Lab) -> None:
    rng = np.random.default_rng(2)
    x, t = (rng.standard_normal(1001).astype(np.float32) for _ in range(2))
    steps: Epilogue = (
        Scalar(Combine.MULTIPLY, 0.5),
        WithTensor(Combine.SUBTRACT_FROM),
        Activate(Activation.LEAKY_RELU, (0.1,)),
        Activate(Activation.CLIP, (-0.25, 1.5)),
        Scalar(Combine.DIVIDE_INTO, 3.0),
        WithTensor(Combine.MAXIMUM),
    )
    exact = t.astype(np.float64) - 0.5 * x
    exact = np.clip(np.where(exact < 0, 0.1 * exact, exact), -0.25, 1.5)
    exact = np.maximum(3.0 / exact, t)
    for parts in (1, 3):
        y = apply(lab, steps, x, (t, t), parts=parts)
        assert np.allclose(y, exact, rtol=1e-5, atol=0)


def test_constants_of_activations_reach_the_code(lab: Lab) -> None:
    x = np.array([-3.0, -0.1, 0.0, 0.2, 5.0, np.nan], dtype=np.float32)
    wide = x.astype(np.float64)
    elu = apply(lab, (Activate(Activation.ELU, (1.5,)),), x)
    assert np.allclose(elu, np.where(wide < 0, 1.5 * np.expm1(wide), wide), rtol=2e-7, atol=0, equal_nan=True)
    hard = apply(lab, (Activate(Activation.HARD_SIGMOID, (0.2, 0.5)),), x)
    assert np.allclose(hard, np.clip(0.2 * wide + 0.5, 0, 1), rtol=2e-7, atol=0, equal_nan=True)
    swish = apply(lab, (Activate(Activation.HARD_SWISH),), x)
    assert np.allclose(swish, wide * np.clip(wide / 6 + 0.5, 0, 1), rtol=4e-7, atol=0, equal_nan=True)
