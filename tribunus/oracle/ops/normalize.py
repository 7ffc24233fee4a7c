"""Goldens of normalizations and softmax: two-pass statistics, shifted exponentials.

Imported by: the golden table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, Call, Golden, Order
from tribunus.oracle.ops.reduce import ordered_sum


def mean_of(x: F64, axes: tuple[int, ...], order: Order) -> F64:
    """Mean over ``axes``, kept as extent 1."""
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    return ordered_sum(x, axes, True, order) / count


def trailing(x: F64, axis: int) -> tuple[int, ...]:
    """Axes from ``axis`` to the last."""
    return tuple(range(axis, x.ndim))


def per_channel(vector: F64, rank: int) -> F64:
    """One number a channel, shaped to broadcast over (batch, channels, spatial ...)."""
    return vector.reshape(1, -1, *([1] * (rank - 2)))


def grouped(x: F64, groups: int) -> F64:
    """(batch, channels, spatial ...) as (batch, groups, everything else)."""
    return x.reshape(x.shape[0], groups, -1)


def _batch_norm(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    scale, bias, mean, variance = (per_channel(call.floats(i), x.ndim) for i in range(1, 5))
    return ((x - mean) / np.sqrt(variance + call.attributes.f32("eps")) * scale + bias,)


def standardised(x: F64, axes: tuple[int, ...], eps: float, order: Order) -> F64:
    """``(x - mean) / sqrt(variance + eps)``, the variance from the differences."""
    difference = x - mean_of(x, axes, order)
    variance = mean_of(difference * difference, axes, order)
    return np.asarray(difference / np.sqrt(variance + eps), dtype=np.float64)


def _layer_norm(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    axes = trailing(x, call.attributes.integer("axis"))
    result = standardised(x, axes, call.attributes.f32("eps"), call.order)
    scale, bias = call.optional_floats(1), call.optional_floats(2)
    result = result if scale is None else result * scale
    return (result if bias is None else result + bias,)


def _rms_norm(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    axes = trailing(x, call.attributes.integer("axis"))
    result = x / np.sqrt(mean_of(x * x, axes, call.order) + call.attributes.f32("eps"))
    scale = call.optional_floats(1)
    return (result if scale is None else result * scale,)


def _group_norm(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    groups = call.attributes.integer("groups")
    result = standardised(grouped(x, groups), (2,), call.attributes.f32("eps"), call.order).reshape(x.shape)
    return (result * per_channel(call.floats(1), x.ndim) + per_channel(call.floats(2), x.ndim),)


def _softmax(call: Call) -> tuple[Array, ...]:
    x, axis = call.floats(0), call.attributes.integer("axis")
    if x.size == 0:
        return (x,)
    exponential = np.exp(x - x.max(axis=axis, keepdims=True))
    return (exponential / ordered_sum(exponential, (axis,), True, call.order),)


def _log_softmax(call: Call) -> tuple[Array, ...]:
    x, axis = call.floats(0), call.attributes.integer("axis")
    if x.size == 0:
        return (x,)
    shifted = x - x.max(axis=axis, keepdims=True)
    return (shifted - np.log(ordered_sum(np.exp(shifted), (axis,), True, call.order)),)


GOLDENS: Final[Mapping[str, Golden]] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
