"""Element types: width, range and storage of every dtype that PhaseIR knows.

Imported by: every room.  Imports: numpy.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np

from tribunus.records import dataclass


class DType(StrEnum):
    """Element type of a tensor.  The value is the name in text form and in documents."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3FN = "f8e4m3fn"
    F8E5M2 = "f8e5m2"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    I4 = "i4"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    U4 = "u4"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Width of one element in memory, in bits (bool takes a byte)."""
        return _BITS[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element as NumPy stores it; i4 and u4 take a byte each there."""
        return max(1, _BITS[self] // 8)

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point numbers."""
        return self in FLOAT_FORMATS

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; bool is not."""
        return not self.is_float and self is not DType.BOOL

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """NumPy dtype that holds the elements; bf16 and f8 are held as their bit patterns (uint16, uint8)."""
        return _NUMPY[self]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating point format.

    precision: significand bits p with the hidden one; unit roundoff is 2**-p.  emin: exponent of the smallest normal
    number.  max_finite: largest finite value.  overflow_at: smallest magnitude that rounds past it, to nearest even.
    """

    precision: int
    emin: int
    max_finite: float
    overflow_at: float

    @property
    def unit_roundoff(self) -> float:
        """Half the relative spacing, 2**-precision."""
        return 2.0**-self.precision

    @property
    def smallest_subnormal(self) -> float:
        """Spacing below the smallest normal number."""
        return 2.0 ** (self.emin - self.precision + 1)


FLOAT_FORMATS: Final[dict[DType, FloatFormat]] = {
    # The largest binary64 plus half a spacing is not a binary64, so f64 overflow can only be seen as an infinity.
    DType.F64: FloatFormat(53, -1022, 1.7976931348623157e308, float("inf")),
    DType.F32: FloatFormat(24, -126, float(np.finfo(np.float32).max), 3.4028235677973366e38),
    DType.F16: FloatFormat(11, -14, 65504.0, 65520.0),
    DType.BF16: FloatFormat(8, -126, 3.3895313892515355e38, 3.39617752923046e38),
    DType.F8E4M3FN: FloatFormat(4, -6, 448.0, 464.0),
    DType.F8E5M2: FloatFormat(3, -14, 57344.0, 61440.0),
}

_BITS: Final[dict[DType, int]] = {
    DType.F64: 64,
    DType.F32: 32,
    DType.F16: 16,
    DType.BF16: 16,
    DType.F8E4M3FN: 8,
    DType.F8E5M2: 8,
    DType.I64: 64,
    DType.I32: 32,
    DType.I16: 16,
    DType.I8: 8,
    DType.I4: 4,
    DType.U64: 64,
    DType.U32: 32,
    DType.U16: 16,
    DType.U8: 8,
    DType.U4: 4,
    DType.BOOL: 8,
}

_NUMPY: Final[dict[DType, np.dtype[np.generic]]] = {
    DType.F64: np.dtype(np.float64),
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.F8E4M3FN: np.dtype(np.uint8),
    DType.F8E5M2: np.dtype(np.uint8),
    DType.I64: np.dtype(np.int64),
    DType.I32: np.dtype(np.int32),
    DType.I16: np.dtype(np.int16),
    DType.I8: np.dtype(np.int8),
    DType.I4: np.dtype(np.int8),
    DType.U64: np.dtype(np.uint64),
    DType.U32: np.dtype(np.uint32),
    DType.U16: np.dtype(np.uint16),
    DType.U8: np.dtype(np.uint8),
    DType.U4: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
}


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The DType whose elements NumPy holds natively as ``dtype``; None if there is none."""
    return _FROM_NUMPY.get(dtype)


_FROM_NUMPY: Final[dict[np.dtype[np.generic], DType]] = {
    _NUMPY[d]: d for d in DType if d not in (DType.BF16, DType.F8E4M3FN, DType.F8E5M2, DType.I4, DType.U4)
}
