"""Goldens of matrix products.

Imported by: the golden table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tribunus.numerics.ulp import F64
from tribunus.oracle.dots import accumulate, matmul_blocks, plain, reversed_terms
from tribunus.oracle.ops.call import Array, Call, Golden, Order, as_array


def product(a: F64, b: F64, shape: tuple[int, ...], order: Order) -> F64:
    """``a @ b`` in float64."""
    if a.size == 0 or b.size == 0:
        return np.zeros(shape)
    blocks, filled = matmul_blocks(a, b, shape)
    return accumulate(blocks, filled, plain if order is Order.NATURAL else reversed_terms)[0].reshape(shape)


def centred(x: Array, zero_point: Array | None, axis: int) -> F64:
    """Integers minus their zero point, which is one number or one an index of ``axis``."""
    values = x.astype(np.float64)
    if zero_point is None:
        return values
    zero = zero_point.astype(np.float64)
    if zero.ndim == 1 and zero.size > 1:
        shape = [1] * values.ndim
        shape[axis] = zero.size
        zero = zero.reshape(shape)
    elif zero.size == 1:
        zero = zero.reshape(())
    return values - zero


def wrapped(total: F64) -> Array:
    """Exact integer sums as int32, wrapping as two's complement hardware does."""
    return as_array(total.astype(np.int64).astype(np.int32))


def _matmul(call: Call) -> tuple[Array, ...]:
    return (product(call.floats(0), call.floats(1), call.result_shape(), call.order),)


def _matmul_integer(call: Call) -> tuple[Array, ...]:
    a, b = call.operand(0), call.operand(1)
    left, right = centred(a, call.optional(2), a.ndim - 2), centred(b, call.optional(3), b.ndim - 1)
    # Below 2**53 every partial sum of 8-bit products is a float64 number: K would have to exceed 2**36.
    return (wrapped(product(left, right, call.result_shape(), call.order)),)


GOLDENS: Final[Mapping[str, Golden]] = {"matmul": _matmul, "matmul_integer": _matmul_integer}
