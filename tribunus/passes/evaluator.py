"""Exact evaluation of ops on constants, and nothing that rounds otherwise than the op itself.

Imported by: fold_constants.  Imports: phaseir, numerics.  Pure.

Data movement, selection, comparison and integers are exact.  A single addition, subtraction, product, quotient or
square root is correctly rounded in NumPy (binary16 through binary32, whose 24 bits suffice for one operation), as
PhaseIR defines it.  Everything else answers None: not foldable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tribunus.numerics.dtypes import DType, from_numpy
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import evaluate
from tribunus.phaseir.program import Array
from tribunus.phaseir.types import TensorType

_NATIVE_FLOATS: Final = frozenset((DType.F64, DType.F32, DType.F16))
Binary = Callable[[Array, Array], Array]
Indices: TypeAlias = "npt.NDArray[np.int64]"
Unary = Callable[[Array], Array]


def evaluate_exact(
    kind: str, arrays: Sequence[Array], types: Sequence[TensorType], attributes: Attributes, result: TensorType
) -> Array | None:
    """The result of an op on constants, or None if it is not exact or not known here."""
    if not result.is_static:
        return None
    with np.errstate(all="ignore"):
        found = _move(kind, arrays, attributes, result)
        if found is None and all(_is_native(t.dtype) for t in (*types, result)):
            found = _compute(kind, arrays, types, attributes, result)
    if found is None:
        return None
    shaped = np.asarray(found, dtype=result.dtype.numpy)
    return shaped if shaped.shape == result.numbers() else None


def _is_native(dtype: DType) -> bool:
    return dtype in _NATIVE_FLOATS or from_numpy(dtype.numpy) is dtype


def _move(kind: str, arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array | None:
    """Bytes moved without looking at them."""
    shape = result.numbers()
    if kind == "copy":
        return arrays[0]
    if kind == "reshape":
        return arrays[0].reshape(shape)
    if kind == "transpose":
        return arrays[0].transpose(attributes.integers("perm"))
    if kind == "expand":
        return np.broadcast_to(arrays[0], shape)
    if kind == "concat":
        return np.concatenate(list(arrays), axis=attributes.integer("axis"))
    if kind == "tile":
        return np.tile(arrays[0], tuple(evaluate(d, {}) for d in attributes.dims("repeats")))
    if kind == "slice":
        starts = (evaluate(d, {}) for d in attributes.dims("starts"))
        sizes = (evaluate(d, {}) for d in attributes.dims("sizes"))
        found = arrays[0]
        for axis, (start, size, step) in enumerate(zip(starts, sizes, attributes.integers("steps"), strict=True)):
            found = found.take(start + step * np.arange(size), axis=axis)
        return found
    if kind == "gather":
        indices = _indices(arrays[1], arrays[0].shape[attributes.integer("axis")])
        return None if indices is None else arrays[0].take(indices, axis=attributes.integer("axis"))
    if kind == "gather_elements":
        axis = attributes.integer("axis")
        return _elements(arrays[0], _indices(arrays[1], arrays[0].shape[axis]), axis)
    if kind == "scatter_elements" and attributes.text("reduction") == "none":
        return _scatter(arrays, attributes.integer("axis"))
    if kind == "where":
        return np.where(arrays[0], arrays[1], arrays[2])
    return None


def _elements(array: Array, indices: Indices | None, axis: int) -> Array | None:
    """``array`` at the indices along ``axis``, the other coordinates being those of the index."""
    if indices is None:
        return None
    places: list[Indices] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return array[tuple(places)]


def _scatter(arrays: Sequence[Array], axis: int) -> Array | None:
    """Updates written where the indices say, if no place is written twice."""
    indices = _indices(arrays[1], arrays[0].shape[axis])
    if indices is None:
        return None
    places: list[Indices] = list(np.broadcast_arrays(*np.indices(indices.shape, sparse=True)))
    places[axis] = indices
    flat = np.ravel_multi_index(tuple(p.reshape(-1) for p in places), arrays[0].shape)
    if len(np.unique(flat)) != flat.size:
        return None
    result = arrays[0].copy()
    result[tuple(places)] = arrays[2]
    return result


def _indices(indices: Array, extent: int) -> Indices | None:
    """Indices counted from the front, or None if one is out of range."""
    wide = indices.astype(np.int64)
    counted = np.where(wide < 0, wide + extent, wide)
    return None if np.any((counted < 0) | (counted >= extent)) else counted


_BINARY: Final[dict[str, Binary]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_UNARY: Final[dict[str, Unary]] = {
    "abs": np.abs,
    "neg": np.negative,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
    "not": np.logical_not,
    "is_nan": np.isnan,
}


def _compute(
    kind: str, arrays: Sequence[Array], types: Sequence[TensorType], attributes: Attributes, result: TensorType
) -> Array | None:
    if kind in _BINARY:
        return _BINARY[kind](*(np.asarray(a) for a in arrays))
    if kind in _UNARY:
        return _UNARY[kind](arrays[0])
    if kind == "relu":
        return np.maximum(arrays[0], np.zeros((), arrays[0].dtype))
    if kind == "div":
        return _divide(arrays[0], arrays[1], types[0].dtype)
    if kind == "reciprocal":
        return np.divide(np.ones((), arrays[0].dtype), arrays[0])
    if kind == "cast":
        return _cast(arrays[0], types[0].dtype, result.dtype)
    if kind in ("reduce_max", "reduce_min") and arrays[0].size:
        reduce = np.max if kind == "reduce_max" else np.min
        found: Array = reduce(arrays[0], axis=attributes.integers("axes"), keepdims=attributes.flag("keepdims"))
        return found
    return None


def _divide(left: Array, right: Array, dtype: DType) -> Array | None:
    """Quotients of floats, and of integers truncated toward zero."""
    if dtype.is_float:
        return np.divide(left, right)
    if np.any(right == 0) or np.any(right == -1):
        return None
    wide_left, wide_right = np.broadcast_arrays(left.astype(object), right.astype(object))
    magnitude = np.abs(wide_left) // np.abs(wide_right)
    negative = np.sign(wide_left) * np.sign(wide_right) < 0
    return np.asarray(np.where(negative, -magnitude, magnitude), dtype=dtype.numpy)


def _cast(array: Array, source: DType, target: DType) -> Array | None:
    """Casts whose result every implementation agrees on: in range, and rounded once."""
    low, high = _integer_range(target)
    if source.is_float and target.is_integer:
        wide = np.trunc(array.astype(np.float64))
        if not np.all(np.isfinite(wide)) or np.any(wide < low) or np.any(wide > min(high, 2**53)):
            return None
    elif source.is_integer and target.is_integer:
        if array.size and (int(array.min()) < low or int(array.max()) > high):
            return None
    elif source.is_integer and target is DType.F16:
        return None  # NumPy may round twice on its way
    return array.astype(target.numpy)


def _integer_range(dtype: DType) -> tuple[int, int]:
    signed = dtype.value.startswith("i")
    return (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if signed else (0, (1 << dtype.bits) - 1)
