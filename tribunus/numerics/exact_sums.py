"""Error-free transformations: what float64 loses in a sum, and how coarse the grid of some numbers is.

Imported by: oracle.  Imports: numpy.

Used where float64 alone is not enough: to print a correctly rounded golden of a cancelling sum, and to prove that a
sum is exact in a narrower accumulator whatever its order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.ulp import F64

_SPLITTER: Final = 134217729.0
"""2**27 + 1: Veltkamp's constant for binary64."""


def two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    """``s + e == a + b`` exactly, ``s`` the rounded sum (Knuth)."""
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def two_product(a: F64, b: F64) -> tuple[F64, F64]:
    """``p + e == a * b`` exactly unless something over- or underflows (Dekker, Veltkamp)."""
    p = a * b
    high_a = _SPLITTER * a - (_SPLITTER * a - a)
    high_b = _SPLITTER * b - (_SPLITTER * b - b)
    low_a, low_b = a - high_a, b - high_b
    return p, ((high_a * high_b - p) + high_a * low_b + low_a * high_b) + low_a * low_b


def accurate_sum(terms: F64, axis: int) -> F64:
    """Sum along ``axis`` as if computed with twice the precision, then rounded once (compensated pairwise).

    Relative error about 2**-53 + n 2**-106 cond (Ogita, Rump, Oishi: Accurate sum and dot product, 2005).
    """
    high = np.moveaxis(np.asarray(terms, dtype=np.float64), axis, 0)
    low = np.zeros_like(high)
    while high.shape[0] > 1:
        odd = high.shape[0] % 2
        tail_high, tail_low = high[high.shape[0] - odd :], low[low.shape[0] - odd :]
        s, e = two_sum(high[0 : high.shape[0] - odd : 2], high[1::2])
        low = np.concatenate((low[0 : low.shape[0] - odd : 2] + low[1::2] + e, tail_low))
        high = np.concatenate((s, tail_high))
    if high.shape[0] == 0:
        return np.zeros(high.shape[1:])
    return np.asarray(high[0] + low[0], dtype=np.float64)


def accurate_dot(a: F64, b: F64) -> F64:
    """``sum(a * b)`` over the last axis with twice the precision, rounded once."""
    product, error = two_product(*np.broadcast_arrays(a, b))
    return accurate_sum(np.concatenate((product, error), axis=-1), -1)


def granularity(values: npt.ArrayLike) -> float:
    """Largest power of two that divides every finite element; 0 where an element is not finite, infinity if all are 0.

    All sums and differences of such elements are multiples of it, so a sum is exact in an accumulator of precision p
    in any order as long as the magnitudes add up to at most ``2**p`` times the granularity.
    """
    y = np.asarray(values, dtype=np.float64).ravel()
    if not np.all(np.isfinite(y)):
        return 0.0
    y = np.abs(y[y != 0.0])
    if y.size == 0:
        return float("inf")
    fraction, exponent = np.frexp(y)
    integer = np.ldexp(fraction, 53).astype(np.int64)
    lowest = (integer & -integer).astype(np.float64)
    return float(np.min(np.ldexp(lowest, exponent - 53)))
