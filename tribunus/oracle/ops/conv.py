"""Goldens of convolutions and pooling windows.

Imported by: the golden table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from tribunus.numerics.rounding import INTEGER_RANGE
from tribunus.numerics.ulp import F64
from tribunus.oracle.dots import Block, Window, accumulate, conv_blocks, plain, reversed_terms, transposed_operands
from tribunus.oracle.ops.call import Array, Call, Golden, Order, as_array
from tribunus.oracle.ops.matmul import centred, wrapped


def window_of(call: Call) -> Window:
    """Geometry from the attributes."""
    a = call.attributes
    return Window(a.integers("strides"), a.integers("pads"), a.integers("dilations"), a.integer("group"))


def operands_of(call: Call) -> tuple[F64, F64, Window]:
    """Operands of any convolution as those of a plain one."""
    window = window_of(call)
    if call.kind == "conv_transpose":
        extra = call.attributes.integers("output_padding")
        return transposed_operands(call.floats(0), call.floats(1), window, extra)
    if call.kind == "conv_integer":
        return centred(call.operand(0), call.optional(2), 1), centred(call.operand(1), call.optional(3), 0), window
    return call.floats(0), call.floats(1), window


def blocks_of(call: Call) -> Iterator[Block]:
    """Blocks of the convolution of a call, without its bias."""
    x, w, window = operands_of(call)
    return conv_blocks(x, w, window, call.result_shape())


def with_bias(total: F64, bias: F64 | None) -> F64:
    """Add one number a channel."""
    return total if bias is None else total + bias.reshape(1, -1, *([1] * (total.ndim - 2)))


def _total(call: Call) -> F64:
    shape = call.result_shape()
    if int(np.prod(shape)) == 0:
        return np.zeros(shape)
    return accumulate(blocks_of(call), shape, plain if call.order is Order.NATURAL else reversed_terms)[0]


def _conv(call: Call) -> tuple[Array, ...]:
    return (with_bias(_total(call), call.optional_floats(2)),)


def _conv_integer(call: Call) -> tuple[Array, ...]:
    return (wrapped(_total(call)),)


def pool_windows(x: Array, call: Call, fill: float | int) -> Iterator[Array]:
    """For each tap, the elements under it at all positions: arrays of the result's shape, ``fill`` outside of ``x``."""
    a = call.attributes
    kernel, strides, dilations, pads = (a.integers(k) for k in ("kernel", "strides", "dilations", "pads"))
    n, spatial = len(kernel), call.result_shape()[2:]
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(spatial, strides, kernel, dilations, strict=True)]
    after = [max(0, r - e - p) for r, e, p in zip(reach, x.shape[2:], pads[:n], strict=True)]
    padded = np.pad(
        x, ((0, 0), (0, 0), *zip(pads[:n], after, strict=True)), constant_values=np.asarray(fill, x.dtype).item()
    )
    for tap in itertools.product(*(range(k) for k in kernel)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        index = tuple(
            slice(start, start + (o - 1) * s + 1, s) for start, o, s in zip(starts, spatial, strides, strict=True)
        )
        yield padded[(slice(None), slice(None), *index)]


def _max_pool(call: Call) -> tuple[Array, ...]:
    x, dtype = call.operand(0), call.result_dtype()
    lowest = -np.inf if dtype.is_float else INTEGER_RANGE[dtype][0]
    best: Array | None = None
    for part in pool_windows(x, call, lowest):
        best = part if best is None else np.maximum(best, part)
    return (as_array(np.full(call.result_shape(), lowest, x.dtype) if best is None else best),)


def pool_counts(call: Call) -> F64:
    """Elements that an average divides by: those inside ``x``, or inside its padded extent with count_include_pad.

    A last window that ceil_mode lets hang over the padded extent never counts what lies beyond it.
    """
    a, shape = call.attributes, call.result_shape()
    n = len(shape) - 2
    pads, include = a.integers("pads"), a.flag("count_include_pad")
    x = call.operand(0)
    inside = np.ones((1, 1, *x.shape[2:]))
    if include:
        inside = np.pad(inside, ((0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)), constant_values=1.0)
    counts = np.zeros((1, 1, *shape[2:]))
    from_edge = call.with_operands(inside)
    windows = _windows_without_pads(inside, from_edge) if include else pool_windows(inside, call, 0.0)
    for part in windows:
        counts = counts + part.astype(np.float64)
    return counts


def _windows_without_pads(padded: Array, call: Call) -> Iterator[Array]:
    a = call.attributes
    kernel, strides, dilations = (a.integers(k) for k in ("kernel", "strides", "dilations"))
    spatial = call.result_shape()[2:]
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(spatial, strides, kernel, dilations, strict=True)]
    after = [(0, max(0, r - e)) for r, e in zip(reach, padded.shape[2:], strict=True)]
    whole = np.pad(padded, ((0, 0), (0, 0), *after))
    for tap in itertools.product(*(range(k) for k in kernel)):
        index = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, dilations, spatial, strides, strict=True)
        )
        yield whole[(slice(None), slice(None), *index)]


def _average_pool(call: Call) -> tuple[Array, ...]:
    parts = list(pool_windows(call.operand(0), call, 0.0))
    if call.order is Order.REVERSED:
        parts.reverse()
    total = np.zeros(call.result_shape())
    for part in parts:
        total = total + part.astype(np.float64)
    return (as_array(total / pool_counts(call)),)


GOLDENS: Final[Mapping[str, Golden]] = {
    "conv": _conv,
    "conv_integer": _conv_integer,
    "conv_transpose": _conv,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
}
