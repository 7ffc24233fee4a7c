"""Goldens of elementwise ops, comparisons, selection and casts.

Imported by: the golden table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.dtypes import DType
from tribunus.numerics.functions import erf, sigmoid
from tribunus.numerics.rounding import INTEGER_RANGE, round_value, saturate
from tribunus.oracle.ops.call import Array, Call, Golden, as_array

# NumPy's stubs do not type ufuncs over arrays of any dtype.
_FLOOR_DIVIDE: Final[Callable[..., npt.ArrayLike]] = np.floor_divide
_SUBTRACT: Final[Callable[..., npt.ArrayLike]] = np.subtract
_MULTIPLY: Final[Callable[..., npt.ArrayLike]] = np.multiply
_LESS: Final[Callable[..., npt.ArrayLike]] = np.less
_NEGATIVE: Final[Callable[..., npt.ArrayLike]] = np.negative
_F8: Final = (DType.F8E4M3FN, DType.F8E5M2)


def cast(value: Array, source: DType, target: DType) -> Array:
    """ONNX Cast: floats round once to nearest even, f8 saturates, float to integer truncates toward zero."""
    if target is DType.BOOL:
        return as_array(value != 0)
    if target.is_float:
        if not source.is_float:
            # int64 -> float64 would round once already; f64 aside, go by way of exact halves to round only once.
            return _integer_to_float(value, target)
        wide = value.astype(np.float64)
        return as_array(round_value(saturate(wide, target) if target in _F8 else wide, target))
    if source.is_float:
        low, high = INTEGER_RANGE[target]
        whole = np.trunc(value.astype(np.float64))
        inside = (whole >= low) & (whole <= high) & (whole < 2.0**63 if target is DType.I64 else True)
        # Out of range has no defined answer; vectors stay away from it, this keeps NumPy quiet about it.
        return as_array(np.where(inside, whole, 0.0).astype(target.numpy))
    return as_array(value.astype(target.numpy))


def _integer_to_float(value: Array, target: DType) -> Array:
    if value.dtype.itemsize < 8 or value.dtype == np.bool_:
        return as_array(round_value(value.astype(np.float64), target))
    if target in (DType.F64, DType.F32):
        return as_array(value.astype(target.numpy).astype(np.float64))
    return as_array(round_value(value.astype(np.float64), target))


def _cast(call: Call) -> tuple[Array, ...]:
    return (cast(call.operand(0), call.operand_dtype(0), call.result_dtype()),)


def _unary(function: Callable[[Array], npt.ArrayLike]) -> Golden:
    def golden(call: Call) -> tuple[Array, ...]:
        return (as_array(function(call.operand(0))),)

    return golden


def _floats(function: Callable[[npt.NDArray[np.float64]], npt.ArrayLike]) -> Golden:
    def golden(call: Call) -> tuple[Array, ...]:
        return (as_array(function(call.floats(0))),)

    return golden


def _binary(function: Callable[[Array, Array], npt.ArrayLike]) -> Golden:
    def golden(call: Call) -> tuple[Array, ...]:
        return (as_array(function(call.operand(0), call.operand(1))),)

    return golden


def _divide(a: Array, b: Array) -> npt.ArrayLike:
    if a.dtype == np.float64:
        return a.astype(np.float64) / b.astype(np.float64)
    # Integer division truncates toward zero as in C; NumPy's floors.
    divisor = np.where(b == 0, np.ones_like(b), b)
    quotient = as_array(_FLOOR_DIVIDE(a, divisor))
    remainder = as_array(_SUBTRACT(a, _MULTIPLY(quotient, divisor)))
    adjust = (remainder != 0) & (as_array(_LESS(a, 0)) != as_array(_LESS(divisor, 0)))
    return np.where(b == 0, np.zeros_like(quotient), quotient + adjust.astype(quotient.dtype))


def _power(a: Array, b: Array) -> npt.ArrayLike:
    if a.dtype == np.float64:
        return np.power(a.astype(np.float64), b.astype(np.float64))
    exact = np.power(a.astype(object), np.maximum(b, 0).astype(object))
    return as_array(np.vectorize(lambda v: int(v) & (2**64 - 1), otypes=[np.uint64])(exact)).astype(a.dtype)


def _leaky_relu(call: Call) -> tuple[Array, ...]:
    x, alpha = call.floats(0), call.attributes.f32("alpha")
    return (as_array(np.where(x >= 0, x, alpha * x)),)


def _hard_sigmoid(call: Call) -> tuple[Array, ...]:
    alpha, beta = call.attributes.f32("alpha"), call.attributes.f32("beta")
    return (as_array(np.maximum(0.0, np.minimum(1.0, alpha * call.floats(0) + beta))),)


def _where(call: Call) -> tuple[Array, ...]:
    return (as_array(np.where(call.operand(0), call.operand(1), call.operand(2))),)


def _relu(x: Array) -> npt.ArrayLike:
    return np.maximum(x, np.zeros((), dtype=x.dtype))


def _negate(x: Array) -> npt.ArrayLike:
    return as_array(_NEGATIVE(x))


GOLDENS: Final[Mapping[str, Golden]] = {
    "abs": _unary(np.abs),
    "neg": _unary(_negate),
    "sign": _unary(np.sign),
    "relu": _unary(_relu),
    "floor": _floats(np.floor),
    "ceil": _floats(np.ceil),
    "round": _floats(np.rint),
    "sqrt": _floats(np.sqrt),
    "reciprocal": _floats(lambda x: 1.0 / x),
    "exp": _floats(np.exp),
    "log": _floats(np.log),
    "tanh": _floats(np.tanh),
    "sigmoid": _floats(sigmoid),
    "erf": _floats(erf),
    "sin": _floats(np.sin),
    "cos": _floats(np.cos),
    "leaky_relu": _leaky_relu,
    "hard_sigmoid": _hard_sigmoid,
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(_divide),
    "pow": _binary(_power),
    "minimum": _binary(np.minimum),
    "maximum": _binary(np.maximum),
    "equal": _binary(np.equal),
    "less": _binary(np.less),
    "less_equal": _binary(np.less_equal),
    "greater": _binary(np.greater),
    "greater_equal": _binary(np.greater_equal),
    "and": _binary(np.logical_and),
    "or": _binary(np.logical_or),
    "xor": _binary(np.logical_xor),
    "not": _unary(np.logical_not),
    "where": _where,
    "cast": _cast,
    "is_nan": _floats(np.isnan),
}
