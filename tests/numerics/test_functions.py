"""Functions and error-free transformations against arithmetic of 120 bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from tribunus.numerics.exact_sums import accurate_dot, accurate_sum, granularity, two_product, two_sum
from tribunus.numerics.functions import erf, erfc, sigmoid

F64 = npt.NDArray[np.float64]


def _logistic(x: object) -> object:
    value: object = mpmath.mpf(1) / (1 + mpmath.exp(-mpmath.mpf(x)))
    return value


def _units(ours: F64, x: F64, exact: Callable[[object], object]) -> float:
    """Largest relative error in units of 2**-53."""
    worst = 0.0
    with mpmath.workprec(120):
        for got, at in zip(ours, x, strict=True):
            true = exact(mpmath.mpf(float(at)))
            worst = max(worst, float(abs((mpmath.mpf(float(got)) - true) / true)))
    return worst * 2.0**53


@pytest.mark.parametrize(
    ("ours", "exact", "low", "high", "units"),
    (
        (erf, mpmath.erf, -6.5, 6.5, 4.0),
        (erf, mpmath.erf, -1e-8, 1e-8, 4.0),
        (erfc, mpmath.erfc, -6.0, 26.0, 16.0),
        (erfc, mpmath.erfc, 0.4, 0.6, 16.0),
        (sigmoid, _logistic, -700.0, 40.0, 4.0),
        (np.exp, mpmath.exp, -700.0, 700.0, 4.0),
        (np.log, mpmath.log, 1e-3, 1e3, 4.0),
        (np.tanh, mpmath.tanh, -20.0, 20.0, 4.0),
        (np.sin, mpmath.sin, -100.0, 100.0, 4.0),
        (np.cos, mpmath.cos, -100.0, 100.0, 4.0),
    ),
)
def test_transcendental_functions_are_accurate_in_f64(
    ours: Callable[[F64], F64], exact: Callable[[object], object], low: float, high: float, units: float
) -> None:
    x = np.random.default_rng(3).uniform(low, high, 1500)
    assert _units(ours(x), x, exact) <= units


def test_limits_and_special_values_of_the_functions() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0])
    np.testing.assert_array_equal(erf(x), [1, -1, np.nan, 0, 0])
    np.testing.assert_array_equal(np.signbit(erf(x)[3:]), [False, True])
    np.testing.assert_array_equal(erfc(x), [0, 2, np.nan, 1, 1])
    np.testing.assert_array_equal(sigmoid(x), [1, 0, np.nan, 0.5, 0.5])
    assert erfc(np.array([30.0]))[0] == 0.0
    assert erf(np.array(0.3)).shape == ()


def test_two_sum_and_two_product_lose_nothing() -> None:
    r = np.random.default_rng(0)
    a, b = r.standard_normal(200) * 1e8, r.standard_normal(200)
    for high, low, p, q in zip(*two_sum(a, b), a, b, strict=True):
        assert Fraction(high) + Fraction(low) == Fraction(p) + Fraction(q)
    for high, low, p, q in zip(*two_product(a, b), a, b, strict=True):
        assert Fraction(high) + Fraction(low) == Fraction(p) * Fraction(q)


def test_a_cancelling_sum_is_correct_where_plain_float64_is_not() -> None:
    r = np.random.default_rng(0)
    x = r.standard_normal(1001) * 1e6
    x = np.concatenate((x, -x[::-1], [1e-9]))
    assert math.fsum(x) == 1e-9
    assert accurate_sum(x, 0) == pytest.approx(1e-9, rel=1e-9)
    np.testing.assert_allclose(accurate_sum(np.stack((x, x[::-1])), 1), [1e-9, 1e-9], rtol=1e-9)
    assert accurate_sum(np.zeros((0, 3)), 0).shape == (3,)


def test_an_accurate_dot_keeps_what_products_lose() -> None:
    a, b = np.array([1.0 + 2.0**-30, -1.0]), np.array([1.0 - 2.0**-30, 1.0])
    assert accurate_dot(a, b) == -(2.0**-60)


def test_granularity_is_the_common_grid() -> None:
    assert granularity([3.0, -6.0, 12.0]) == 1.0 * 1.0
    assert granularity([0.75, 2.0]) == 0.25
    assert granularity([0.0]) == math.inf
    assert granularity([1.0, np.inf]) == 0.0
    assert granularity([2.0**-1074]) == 2.0**-1074
