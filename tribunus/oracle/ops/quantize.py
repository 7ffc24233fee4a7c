"""Goldens of quantization ops.

Imported by: the golden table, the budgets of quantize ops, verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import INTEGER_RANGE
from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, Call, Golden, as_array


def along(vector: Array, axis: int, rank: int) -> F64:
    """A scale or zero point shaped to broadcast: one number, or one an index of ``axis``."""
    values = vector.astype(np.float64)
    if axis < 0 or values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def quantized(quotient: F64, zero_point: F64, dtype: DType) -> Array:
    """``clip(round_half_even(quotient) + zero_point)`` as stored integers; NaN becomes the zero point."""
    low, high = INTEGER_RANGE[dtype]
    whole = np.nan_to_num(np.rint(quotient), nan=0.0, posinf=2.0**62, neginf=-(2.0**62)) + zero_point
    return as_array(np.clip(whole, low, high).astype(dtype.numpy))


def _quantize_linear(call: Call) -> tuple[Array, ...]:
    x, axis = call.floats(0), call.attributes.integer("axis")
    zero = call.optional(2)
    shift = np.zeros(()) if zero is None else along(zero, axis, x.ndim)
    return (quantized(x / along(call.operand(1), axis, x.ndim), shift, call.result_dtype()),)


def _dequantize_linear(call: Call) -> tuple[Array, ...]:
    x, axis = call.operand(0).astype(np.float64), call.attributes.integer("axis")
    zero = call.optional(2)
    shift = np.zeros(()) if zero is None else along(zero, axis, x.ndim)
    return (as_array((x - shift) * along(call.operand(1), axis, x.ndim)),)


def dynamic_scale(x: F64) -> float:
    """Step of DynamicQuantizeLinear: the range of ``x`` with 0 in 255 parts; 1 where that range is empty."""
    if x.size == 0:
        return 1.0
    high, low = max(0.0, float(x.max())), min(0.0, float(x.min()))
    return (high - low) / 255.0 if high > low else 1.0


def dynamic_zero_point(x: F64, scale: float) -> float:
    """Real zero point before it is rounded."""
    low = min(0.0, float(x.min())) if x.size else 0.0
    return min(255.0, max(0.0, -low / scale))


def _dynamic_quantize_linear(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    scale = dynamic_scale(x)
    zero = np.rint(dynamic_zero_point(x, scale))
    y = quantized(x / scale, np.asarray(zero), DType.U8)
    return y, np.asarray(scale), np.asarray(zero).astype(np.uint8)


GOLDENS: Final[Mapping[str, Golden]] = {
    "quantize_linear": _quantize_linear,
    "dequantize_linear": _dequantize_linear,
    "dynamic_quantize_linear": _dynamic_quantize_linear,
}
