"""Stored tensors: from TensorProto to NumPy storage, with every length checked exactly.

Imported by: loading, external.  Knows protobuf.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tribunus.errors import OnnxFieldError, OnnxTensorError
from tribunus.frontend import limits
from tribunus.frontend.element_types import dtype_of, integer_range
from tribunus.frontend.graph import Tensor
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Array


def raw_bytes(dtype: DType, elements: int) -> int:
    """Bytes of ``elements`` packed elements of ``dtype``."""
    return (elements * dtype.bits + 7) // 8


def element_count(tensor: TensorProto, what: str) -> int:
    """Product of the dims.  Raises OnnxTensorError for negative dims or too many of them."""
    if len(tensor.dims) > limits.RANK:
        raise OnnxTensorError(f"{what} has rank {len(tensor.dims)}, at most {limits.RANK} is allowed")
    if any(d < 0 for d in tensor.dims):
        raise OnnxTensorError(f"{what} has a negative dim")
    return math.prod(int(d) for d in tensor.dims)


def read_tensor(tensor: TensorProto, what: str) -> Tensor:
    """The stored tensor.  Raises OnnxTensorError or OnnxFieldError; external data must have been read before."""
    dtype = dtype_of(tensor.data_type, what)
    elements = element_count(tensor, what)
    if tensor.HasField("segment"):
        raise OnnxFieldError(f"{what} is stored in segments, which are refused")
    if tensor.data_location == TensorProto.EXTERNAL or len(tensor.external_data):
        raise OnnxTensorError(f"{what} still refers to external data")
    if len(tensor.string_data):
        raise OnnxTensorError(f"{what} holds strings")
    flat = _raw(tensor.raw_data, dtype, elements, what) if tensor.HasField("raw_data") else _typed(tensor, dtype, what)
    if flat.size != elements:
        raise OnnxTensorError(f"{what} holds {flat.size} elements, its dims say {elements}")
    return Tensor(dtype, flat.reshape(tuple(int(d) for d in tensor.dims)))


def _raw(data: bytes, dtype: DType, elements: int, what: str) -> Array:
    if len(data) != raw_bytes(dtype, elements):
        raise OnnxTensorError(
            f"{what} holds {len(data)} bytes of raw data, its dims and dtype need {raw_bytes(dtype, elements)}"
        )
    if dtype.bits == 4:
        return _unpack(data, dtype, elements)
    found: Array = np.frombuffer(data, dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)
    if dtype is DType.BOOL and data and max(data) > 1:
        raise OnnxTensorError(f"{what} holds a bool that is neither 0 nor 1")
    return found


def _typed(tensor: TensorProto, dtype: DType, what: str) -> Array:
    fields: dict[str, Array] = {
        "float_data": np.array(tensor.float_data, np.float32),
        "double_data": np.array(tensor.double_data, np.float64),
        "int64_data": np.array(tensor.int64_data, np.int64),
        "uint64_data": np.array(tensor.uint64_data, np.uint64),
        "int32_data": np.array(tensor.int32_data, np.int32),
    }
    wanted = {
        DType.F32: "float_data",
        DType.F64: "double_data",
        DType.I64: "int64_data",
        DType.U64: "uint64_data",
        DType.U32: "uint64_data",
    }.get(dtype, "int32_data")
    if any(array.size for name, array in fields.items() if name != wanted):
        raise OnnxTensorError(f"{what} stores {dtype} elements in a field for another type")
    words = fields[wanted]
    if dtype in (DType.F32, DType.F64, DType.I64, DType.U64):
        return words
    if dtype.bits == 4:
        _require_range(words, 0, 255, what)
        return _unpack(words.astype(np.uint8).tobytes(), dtype, element_count(tensor, what))
    if dtype is DType.F16:
        _require_range(words, 0, 65535, what)
        return words.astype(np.uint16).view(np.float16)
    if dtype is DType.BOOL:
        _require_range(words, 0, 1, what)
        return words.astype(np.bool_)
    _require_range(words, *integer_range(dtype), what)
    return words.astype(dtype.numpy)


def _require_range(words: Array, low: int, high: int, what: str) -> None:
    if words.size and not (low <= int(words.min()) and int(words.max()) <= high):
        raise OnnxTensorError(f"{what} holds an element outside {low}..{high}")


def _unpack(data: bytes, dtype: DType, elements: int) -> Array:
    """4-bit elements, two a byte, the first in the low half."""
    packed = np.frombuffer(data, np.uint8)
    both = np.stack((packed & 0x0F, packed >> 4), axis=-1).reshape(-1)[:elements]
    if dtype is DType.U4:
        return both.astype(np.uint8)
    return np.where(both > 7, both.astype(np.int16) - 16, both).astype(np.int8)
