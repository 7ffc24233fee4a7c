"""Units in the last place, always measured at a float64 golden value, and integer distances between stored numbers.

Imported by: oracle, admission, reports of errors.  Imports: dtypes, rounding.

``ulp`` is the spacing of a format in the binade that holds the unrounded value: a candidate cannot enlarge its own
budget by being large.  Zero has the spacing of the subnormals (``frexp(0)`` answers exponent 0, which would be wrong).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import FLOAT_FORMATS, DType

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_SIGNED: Final[dict[DType, type[np.signedinteger]]] = {
    DType.F64: np.int64,
    DType.F32: np.int32,
    DType.F16: np.int16,
    DType.BF16: np.int16,
    DType.F8E4M3FN: np.int8,
    DType.F8E5M2: np.int8,
}

_FIELD: Final = 0x7FF
_BIAS: Final = 1023
_SMALLEST_NORMAL: Final = -1022


def ulp(value: npt.ArrayLike, dtype: DType) -> F64:
    """Spacing of ``dtype`` at each element: ``2**(max(floor(log2|y|), emin) - p + 1)``.

    value: float64, any shape.  Returns the same shape, > 0.  Zero, infinities and NaN have the smallest spacing.
    """
    fmt = FLOAT_FORMATS[dtype]
    y = np.asarray(value, dtype=np.float64)
    if fmt.emin - fmt.precision + 1 > _SMALLEST_NORMAL:
        # Exponents by their bits, several times faster: 0 and what is not finite go to the smallest.
        field = (y.view(np.int64) >> 52) & _FIELD
        field = np.maximum(np.where(field == _FIELD, 0, field), fmt.emin + _BIAS) - (fmt.precision - 1)
        return np.asarray((field << 52).view(np.float64), dtype=np.float64)
    _, exponent = np.frexp(y)
    usable = np.isfinite(y) & (y != 0.0)
    binade = np.where(usable, exponent - 1, fmt.emin)
    return np.asarray(np.ldexp(1.0, np.maximum(binade, fmt.emin) - fmt.precision + 1), dtype=np.float64)


def ordered(stored: npt.NDArray[np.generic], dtype: DType) -> I64:
    """Integers that ascend with the value; +0 and -0 both map to 0.

    stored: elements as NumPy holds ``dtype`` (bf16 and f8 as bit patterns).  NaN has no meaningful place.
    """
    if dtype not in _SIGNED:
        raise InternalError(f"{dtype} is no floating point format")
    bits = np.ascontiguousarray(stored).view(_SIGNED[dtype]).astype(np.int64)
    lowest = -(1 << (dtype.bits - 1))
    # INT64_MIN - bits stays inside int64 because bits is negative there.
    return np.asarray(np.where(bits < 0, lowest - bits, bits), dtype=np.int64)


def ulp_distance(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic], dtype: DType) -> npt.NDArray[np.uint64]:
    """Representable numbers between two stored arrays: 0 for +0 and -0.  Infinities are one past the largest."""
    left, right = ordered(a, dtype), ordered(b, dtype)
    high, low = np.maximum(left, right), np.minimum(left, right)
    # The difference of two int64 needs 64 unsigned bits; wrap-around subtraction yields exactly that.
    return np.asarray(high.astype(np.uint64) - low.astype(np.uint64), dtype=np.uint64)


def checker_keeps_subnormals() -> bool:
    """Whether this thread computes with subnormals; a library built with fast math may have switched them off."""
    tiny = np.float32(1e-45)
    return bool((np.asarray([tiny]) + np.float32(0.0))[0] != 0.0)
