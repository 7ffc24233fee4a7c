"""Rounding float64 once to any storage format, and reading stored elements back exactly.

Imported by: oracle, frontend, tests.  Imports: dtypes, ulp.

float64 to bf16 by way of float32 rounds twice and differs at ties; here every format is reached in one step.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.dtypes import FLOAT_FORMATS, DType
from tribunus.numerics.ulp import F64, ulp

Array = npt.NDArray[np.generic]

INTEGER_RANGE: Final[dict[DType, tuple[int, int]]] = {
    DType.I64: (-(2**63), 2**63 - 1),
    DType.I32: (-(2**31), 2**31 - 1),
    DType.I16: (-(2**15), 2**15 - 1),
    DType.I8: (-128, 127),
    DType.I4: (-8, 7),
    DType.U64: (0, 2**64 - 1),
    DType.U32: (0, 2**32 - 1),
    DType.U16: (0, 2**16 - 1),
    DType.U8: (0, 255),
    DType.U4: (0, 15),
}
"""Smallest and largest integer of every integer dtype."""

_F8_BIAS: Final = {DType.F8E4M3FN: 7, DType.F8E5M2: 15}


def round_value(value: npt.ArrayLike, dtype: DType) -> F64:
    """``value`` rounded to nearest even in a float ``dtype``, kept in float64.  Past the range: infinity, or NaN for
    f8e4m3fn, which has no infinity."""
    y = np.asarray(value, dtype=np.float64)
    if dtype is DType.F64:
        return y
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype is DType.F32:
            return y.astype(np.float32).astype(np.float64)
        if dtype is DType.F16:
            return y.astype(np.float16).astype(np.float64)
        fmt = FLOAT_FORMATS[dtype]
        spacing = ulp(y, dtype)
        rounded = np.rint(y / spacing) * spacing
        past = np.nan if dtype is DType.F8E4M3FN else np.inf
        rounded = np.where(np.abs(rounded) > fmt.max_finite, np.copysign(past, y), rounded)
        special = np.copysign(np.nan, y) if dtype is DType.F8E4M3FN else y
        return np.asarray(np.where(np.isfinite(y), np.copysign(rounded, y), special), dtype=np.float64)


def encode(value: npt.ArrayLike, dtype: DType) -> Array:
    """``value`` as stored elements of ``dtype``: floats rounded once, integers and bools converted exactly.

    NaN payloads survive where the format has room, so that moved data keeps its bytes.
    """
    y = np.asarray(value)
    if not dtype.is_float:
        return y.astype(dtype.numpy)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype in (DType.F64, DType.F32, DType.F16):
            return y.astype(dtype.numpy)
        rounded = round_value(y.astype(np.float64), dtype)
        if dtype is DType.BF16:
            bits = rounded.astype(np.float32).view(np.uint32)
            quiet = np.isnan(rounded)
            return np.asarray(np.where(quiet, (bits >> 16) | 0x40, bits >> 16), dtype=np.uint16)
        return _encode_f8(rounded, dtype)


def decode(stored: Array, dtype: DType) -> Array:
    """Exact values of stored elements: float64 for floats, the array itself for integers and bools."""
    if not dtype.is_float:
        return stored
    if dtype is DType.BF16:
        # Widening a signalling NaN raises the invalid flag; its bits are what they should be.
        with np.errstate(invalid="ignore"):
            return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if dtype in _F8_BIAS:
        return _f8_table(dtype)[stored.astype(np.intp)]
    with np.errstate(invalid="ignore"):
        return stored.astype(np.float64)


def saturate(value: npt.ArrayLike, dtype: DType) -> F64:
    """``value`` with magnitudes past the largest finite one replaced by it; NaN stays (ONNX Cast to f8)."""
    y = np.asarray(value, dtype=np.float64)
    largest = FLOAT_FORMATS[dtype].max_finite
    return np.asarray(np.clip(y, -largest, largest), dtype=np.float64)


def is_representable(value: npt.ArrayLike, dtype: DType) -> npt.NDArray[np.bool_]:
    """Whether each element is a number of ``dtype`` exactly; NaN is."""
    y = np.asarray(value, dtype=np.float64)
    return np.asarray((round_value(y, dtype) == y) | np.isnan(y), dtype=np.bool_)


def _f8_table(dtype: DType) -> F64:
    codes = np.arange(256)
    mantissa_bits = FLOAT_FORMATS[dtype].precision - 1
    bias = _F8_BIAS[dtype]
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = (codes & 0x7F) >> mantissa_bits
    fraction = codes & ((1 << mantissa_bits) - 1)
    scale = 1 << mantissa_bits
    normal = np.ldexp(1.0 + fraction / scale, exponent - bias)
    subnormal = np.ldexp(fraction / scale, 1 - bias)
    value = sign * np.where(exponent == 0, subnormal, normal)
    if dtype is DType.F8E4M3FN:
        value[(codes & 0x7F) == 0x7F] = np.nan
    else:
        top = exponent == 31
        value[top] = np.where(fraction[top] == 0, sign[top] * np.inf, np.nan)
    return np.asarray(value, dtype=np.float64)


def _encode_f8(rounded: F64, dtype: DType) -> Array:
    fmt = FLOAT_FORMATS[dtype]
    mantissa_bits = fmt.precision - 1
    magnitude = np.abs(rounded)
    finite = np.isfinite(rounded)
    safe = np.where(finite, magnitude, 0.0)
    spacing = ulp(safe, dtype)
    steps = (safe / spacing).astype(np.int64)
    _, exponent = np.frexp(np.where(safe > 0, safe, 2.0**fmt.emin))
    binade = np.maximum(exponent - 1, fmt.emin) - fmt.emin
    # A subnormal has steps < 2**mantissa_bits and code = steps; a normal adds its binade and drops the hidden bit.
    code = steps + binade * (1 << mantissa_bits)
    if dtype is DType.F8E4M3FN:
        code = np.where(finite, code, 0x7F)
    else:
        code = np.where(np.isnan(rounded), 0x7E, np.where(finite, code, 0x7C))
    sign = np.where(np.signbit(rounded), 0x80, 0)
    return np.asarray(code | sign, dtype=np.uint8)
