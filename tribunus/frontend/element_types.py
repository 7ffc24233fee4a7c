"""ONNX element types by number, and the numbers of our dtypes.

Imported by: tensors, rules, export.  Knows no protobuf.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tribunus.errors import OnnxFieldError
from tribunus.numerics.dtypes import DType

DTYPES: Final = MappingProxyType(
    {
        1: DType.F32,
        2: DType.U8,
        3: DType.I8,
        4: DType.U16,
        5: DType.I16,
        6: DType.I32,
        7: DType.I64,
        9: DType.BOOL,
        10: DType.F16,
        11: DType.F64,
        12: DType.U32,
        13: DType.U64,
        16: DType.BF16,
        17: DType.F8E4M3FN,
        19: DType.F8E5M2,
        21: DType.U4,
        22: DType.I4,
    }
)
"""ONNX element types by number; the others (strings, complex numbers, other 8-bit and 4-bit floats) are refused."""


def dtype_of(number: int, what: str) -> DType:
    """The DType of an ONNX element type.  Raises OnnxFieldError for one that PhaseIR does not know."""
    if number not in DTYPES:
        raise OnnxFieldError(f"{what} has the element type {number}, which is refused")
    return DTYPES[number]


def integer_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype, or of the words that hold another one."""
    bits = dtype.numpy.itemsize * 8
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.numpy.kind == "i" else (0, 2**bits - 1)


def number_of(dtype: DType) -> int:
    """The ONNX element type of a dtype."""
    return next(number for number, known in DTYPES.items() if known is dtype)
