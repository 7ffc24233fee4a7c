"""Functions that NumPy lacks or computes badly: erf, erfc and the logistic function over float64 arrays.

Imported by: oracle.  Imports: numpy.

Accuracy against 120-bit arithmetic is part of the tests: erf and sigmoid within 4 units of 2**-53 relative, erfc
within 16 down to where it leaves the normal numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.ulp import F64

# 2/sqrt(pi) * (-1)**n / (n! (2n+1)): Taylor series of erf(x)/x in x**2, for |x| <= 1.
_ERF_TAYLOR: Final = (
    1.1283791670955126,
    -0.37612638903183754,
    0.11283791670955126,
    -0.026866170645131252,
    0.005223977625442188,
    -0.0008548327023450853,
    0.00012055332981789664,
    -1.492565035840625e-05,
    1.6462114365889248e-06,
    -1.6365844691234924e-07,
    1.4807192815879218e-08,
    -1.2290555301717928e-09,
    9.422759064650411e-11,
    -6.7113668551641105e-12,
    4.4632242632864775e-13,
    -2.7835162072109215e-14,
    1.6342614095367152e-15,
    -9.063970842808673e-17,
    4.763348040515068e-18,
    -2.3784598852774293e-19,
)

# Chebyshev series of (1 + 2x) exp(x**2) erfc(x) in t = (x - 3.75)/(x + 3.75), for x >= 0 (the form of Shepherd and
# Laframboise, Math. Comp. 36, 1981; coefficients computed with 50 digits).
_ERFC_CHEBYSHEV: Final = (
    1.1775789345674017,
    -0.004590054580646478,
    -0.08424913336651792,
    0.05920993999819189,
    -0.026658668435305753,
    0.009074997670705265,
    -0.002413163540417608,
    0.0004907758365258085,
    -6.916973302501214e-05,
    4.139027986072943e-06,
    7.740383066197823e-07,
    -2.1886401049241027e-07,
    1.0764999465605055e-08,
    4.521959811152942e-09,
    -7.754400209479305e-10,
    -6.318088347307379e-11,
    2.868795004572692e-11,
    1.9455862254345154e-13,
    -9.654697370543114e-13,
    3.2525420011347877e-14,
    3.3478058790583824e-14,
    -1.8646227582894835e-15,
    -1.2508540804567878e-15,
    7.412421121645586e-17,
    5.0624268758490195e-17,
    -2.2933214212304932e-18,
)
_ERFC_ZERO_FROM: Final = 27.5
"""erfc of this and anything larger is below the smallest binary64."""


def erf(x: npt.ArrayLike) -> F64:
    """Error function, elementwise."""
    y = np.asarray(x, dtype=np.float64)
    magnitude = np.abs(y)
    with np.errstate(under="ignore", invalid="ignore", over="ignore"):
        result = np.array(_erf_small(np.where(magnitude <= 1.0, y, 0.0)))
        large = magnitude > 1.0
        result[large] = np.copysign(1.0 - _erfc_positive(magnitude[large]), y[large])
        return np.where(np.isnan(y), y, result)


def erfc(x: npt.ArrayLike) -> F64:
    """Complementary error function ``1 - erf(x)``, without the cancellation, elementwise."""
    y = np.asarray(x, dtype=np.float64)
    with np.errstate(under="ignore", invalid="ignore", over="ignore"):
        result = np.array(1.0 - _erf_small(np.where(np.abs(y) < 0.5, y, 0.0)))
        high, low = y >= 0.5, y <= -0.5
        result[high] = _erfc_positive(y[high])
        result[low] = 2.0 - _erfc_positive(-y[low])
        return np.where(np.isnan(y), y, result)


def sigmoid(x: npt.ArrayLike) -> F64:
    """Logistic function, with full relative accuracy in both tails."""
    y = np.asarray(x, dtype=np.float64)
    with np.errstate(under="ignore", over="ignore"):
        small = np.exp(-np.abs(y))
        return np.asarray(np.where(y >= 0, 1.0, small) / (1.0 + small), dtype=np.float64)


def _erf_small(x: F64) -> F64:
    square = x * x
    total = np.full_like(square, _ERF_TAYLOR[-1])
    for coefficient in _ERF_TAYLOR[-2::-1]:
        total *= square
        total += coefficient
    return x * total


def _erfc_positive(x: F64) -> F64:
    bounded = np.minimum(x, _ERFC_ZERO_FROM)
    t = (bounded - 3.75) / (bounded + 3.75)
    following = np.zeros_like(bounded)
    current = np.zeros_like(bounded)
    for coefficient in _ERFC_CHEBYSHEV[:0:-1]:
        current, following = 2.0 * t * current - following + coefficient, current
    series = t * current - following + _ERFC_CHEBYSHEV[0]
    # exp(-x**2) of a rounded square would lose x**2 units; the leading half of x has an exact square.
    leading = (bounded.view(np.int64) & np.int64(-(1 << 27))).view(np.float64)
    tail = np.exp(-(bounded - leading) * (bounded + leading))
    value = np.exp(-leading * leading) * tail * series / (1.0 + 2.0 * bounded)
    return np.asarray(np.where(x >= _ERFC_ZERO_FROM, 0.0, value), dtype=np.float64)
