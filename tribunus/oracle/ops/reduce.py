"""Goldens of reductions, running sums and extremal indices.

Imported by: the golden table, normalize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, Call, Golden, Order, as_array

_PRODUCT: Final[Callable[..., npt.ArrayLike]] = np.prod


def ordered_sum(x: F64, axes: tuple[int, ...], keepdims: bool, order: Order) -> F64:
    """Sum over ``axes`` in the natural or the reversed order of the terms."""
    terms = np.flip(x, axes) if order is Order.REVERSED and axes else x
    if order is Order.REVERSED and axes:
        # A copy gives NumPy another blocking of its pairwise sum; a flipped view would be summed the same way.
        terms = np.ascontiguousarray(terms)
    return np.asarray(np.sum(terms, axis=axes, keepdims=keepdims), dtype=np.float64)


def _integer_aware(function: Callable[[F64], F64], finish: Callable[[F64, int], F64]) -> Golden:
    def golden(call: Call) -> tuple[Array, ...]:
        x, axes, keep = call.operand(0), call.axes(), call.attributes.flag("keepdims")
        count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64)) if axes else 1
        if x.dtype == np.float64:
            total = ordered_sum(function(x.astype(np.float64)), axes, keep, call.order)
            return (as_array(finish(total, count)),)
        return (_integer_reduce(call.kind, x, axes, keep, count),)

    return golden


def _integer_reduce(kind: str, x: Array, axes: tuple[int, ...], keepdims: bool, count: int) -> Array:
    wide = x.astype(np.int64 if x.dtype.kind == "i" else np.uint64)
    if kind == "reduce_l1":
        wide = np.abs(wide)
    if kind in ("reduce_l2", "reduce_sum_square"):
        wide = wide * wide
    total = np.sum(wide, axis=axes, keepdims=keepdims)
    if kind == "reduce_mean":
        quotient = np.floor_divide(np.abs(total.astype(np.int64)), max(count, 1))
        return as_array((np.sign(total.astype(np.int64)) * quotient).astype(x.dtype))
    if kind == "reduce_l2":
        return as_array(np.sqrt(total.astype(np.float64)).astype(x.dtype))
    return as_array(total.astype(x.dtype))


def _product(call: Call) -> tuple[Array, ...]:
    x = call.operand(0)
    terms = np.ascontiguousarray(np.flip(x, call.axes())) if call.order is Order.REVERSED and call.axes() else x
    found = _PRODUCT(terms, axis=call.axes(), dtype=x.dtype, keepdims=call.attributes.flag("keepdims"))
    return (as_array(found).astype(x.dtype),)


def _extreme(function: Callable[..., npt.ArrayLike]) -> Golden:
    def golden(call: Call) -> tuple[Array, ...]:
        return (as_array(function(call.operand(0), axis=call.axes(), keepdims=call.attributes.flag("keepdims"))),)

    return golden


def _arg(largest: bool) -> Golden:
    def golden(call: Call) -> tuple[Array, ...]:
        x, axis = call.operand(0), call.attributes.integer("axis")
        last = call.attributes.flag("select_last")
        seen = np.flip(x, axis) if last else x
        index = np.argmax(seen, axis=axis) if largest else np.argmin(seen, axis=axis)
        if last:
            index = x.shape[axis] - 1 - index
        if call.attributes.flag("keepdims"):
            index = np.expand_dims(index, axis)
        return (as_array(index).astype(np.int64),)

    return golden


def _cumsum(call: Call) -> tuple[Array, ...]:
    x, axis = call.operand(0), call.attributes.integer("axis")
    reverse, exclusive = call.attributes.flag("reverse"), call.attributes.flag("exclusive")
    seen = np.flip(x, axis) if reverse else x
    total = np.cumsum(seen, axis=axis, dtype=x.dtype)
    if call.order is Order.REVERSED and x.dtype == np.float64 and x.shape[axis] > 0:
        # Another evaluation: in blocks, block totals added first.
        total = _blocked_cumsum(seen.astype(np.float64), axis)
    if exclusive:
        total = (
            np.concatenate(
                (np.zeros_like(np.take(total, [0], axis)), np.take(total, range(x.shape[axis] - 1), axis)), axis
            )
            if x.shape[axis]
            else total
        )
    return (as_array(np.flip(total, axis) if reverse else total),)


def _blocked_cumsum(x: F64, axis: int) -> F64:
    extent = x.shape[axis]
    parts: list[F64] = []
    before = np.zeros_like(np.take(x, [0], axis))
    for start in range(0, extent, 64):
        block = np.cumsum(np.take(x, range(start, min(extent, start + 64)), axis), axis=axis)
        parts.append(before + block)
        before = before + np.take(block, [-1], axis)
    return np.concatenate(parts, axis)


def _identity(x: F64) -> F64:
    return x


def _square(x: F64) -> F64:
    return x * x


def _magnitude(x: F64) -> F64:
    return np.abs(x)


def _plain(total: F64, count: int) -> F64:
    return total


def _divided(total: F64, count: int) -> F64:
    return total / count


def _root(total: F64, count: int) -> F64:
    return np.sqrt(total)


GOLDENS: Final[Mapping[str, Golden]] = {
    "reduce_sum": _integer_aware(_identity, _plain),
    "reduce_mean": _integer_aware(_identity, _divided),
    "reduce_l1": _integer_aware(_magnitude, _plain),
    "reduce_l2": _integer_aware(_square, _root),
    "reduce_sum_square": _integer_aware(_square, _plain),
    "reduce_prod": _product,
    "reduce_max": _extreme(np.max),
    "reduce_min": _extreme(np.min),
    "arg_max": _arg(largest=True),
    "arg_min": _arg(largest=False),
    "cumsum": _cumsum,
}
