"""Goldens of data movement, generation and indexing.

Imported by: the golden table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.errors import InputError, InternalError
from tribunus.oracle.ops.call import Array, Call, Golden, as_array
from tribunus.phaseir.attributes import F32


def indices_within(call: Call, position: int, extents: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Indices counted from the front.  ``extents`` broadcasts against them.  Raises InputError outside."""
    found = call.operand(position).astype(np.int64)
    extent = np.asarray(extents, dtype=np.int64)
    if extent.size == 1:
        extent = extent.reshape(())
    if found.size and not np.all((found >= -extent) & (found < extent)):
        raise InputError(f"{call.kind}: an index of operand {position} is outside of {extents}")
    return np.asarray(np.where(found < 0, found + extent, found), dtype=np.int64)


def _copy(call: Call) -> tuple[Array, ...]:
    return (call.operand(0),)


def _reshape(call: Call) -> tuple[Array, ...]:
    return (call.operand(0).reshape(call.result_shape()),)


def _transpose(call: Call) -> tuple[Array, ...]:
    return (np.transpose(call.operand(0), call.attributes.integers("perm")),)


def _slice(call: Call) -> tuple[Array, ...]:
    x = call.operand(0)
    starts, sizes, steps = call.dims("starts"), call.dims("sizes"), call.attributes.integers("steps")
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        x = (
            np.take(x, range(start, start + step * size, step), axis)
            if step != 1
            else _plain_slice(x, axis, start, size)
        )
    return (x,)


def _plain_slice(x: Array, axis: int, start: int, size: int) -> Array:
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, start + size)
    return x[tuple(index)]


def _concat(call: Call) -> tuple[Array, ...]:
    parts = [call.operand(i) for i in range(len(call.operands))]
    return (np.concatenate(parts, axis=call.attributes.integer("axis")),)


def _pad(call: Call) -> tuple[Array, ...]:
    x, before, after = call.operand(0), call.dims("before"), call.dims("after")
    # Negative entries crop first, then the rest pads what is left.
    crop = tuple(slice(max(0, -b), d - max(0, -a)) for b, a, d in zip(before, after, x.shape, strict=True))
    x = x[crop]
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    mode = call.attributes.text("mode")
    if mode == "constant":
        value = call.optional(1)
        fill = np.zeros((), x.dtype) if value is None else value.reshape(())
        return (np.pad(x, widths, constant_values=fill.astype(x.dtype).item()),)
    if mode == "edge":
        return (np.pad(x, widths, mode="edge"),)
    return (np.pad(x, widths, mode="reflect" if mode == "reflect" else "wrap"),)


def _expand(call: Call) -> tuple[Array, ...]:
    return (np.broadcast_to(call.operand(0), call.result_shape()),)


def _tile(call: Call) -> tuple[Array, ...]:
    return (np.tile(call.operand(0), call.dims("repeats")),)


def _fill(call: Call) -> tuple[Array, ...]:
    value = call.attributes.get("value")
    if isinstance(value, F32):
        number: float | int = value.value
    elif isinstance(value, int):
        number = value
    else:
        raise InternalError(f"fill: value {value!r} is no number")
    dtype = np.dtype(np.float64) if call.result_dtype().is_float else call.result_dtype().numpy
    return (np.full(call.result_shape(), number, dtype=dtype),)


def _iota(call: Call) -> tuple[Array, ...]:
    shape, axis = call.result_shape(), call.attributes.integer("axis")
    line = call.attributes.integer("start") + call.attributes.integer("step") * np.arange(shape[axis], dtype=np.int64)
    view = line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    dtype = np.dtype(np.float64) if call.result_dtype().is_float else call.result_dtype().numpy
    return (np.broadcast_to(view, shape).astype(dtype),)


def _extents(call: Call) -> tuple[Array, ...]:
    dtype = np.dtype(np.float64) if call.result_dtype().is_float else call.result_dtype().numpy
    return (np.asarray(call.dims("values"), dtype=dtype).reshape(call.result_shape()),)


def _gather(call: Call) -> tuple[Array, ...]:
    x, axis = call.operand(0), call.attributes.integer("axis")
    return (np.take(x, indices_within(call, 1, (x.shape[axis],)), axis=axis),)


def _gather_elements(call: Call) -> tuple[Array, ...]:
    x, axis = call.operand(0), call.attributes.integer("axis")
    index = indices_within(call, 1, (x.shape[axis],))
    crop = tuple(slice(None) if a == axis else slice(0, e) for a, e in enumerate(index.shape))
    return (np.take_along_axis(x[crop], index, axis),)


def _gather_nd(call: Call) -> tuple[Array, ...]:
    x, batch = call.operand(0), call.attributes.integer("batch_dims")
    depth = call.operand(1).shape[-1]
    index = indices_within(call, 1, x.shape[batch : batch + depth])
    count = math.prod(x.shape[:batch])
    flat_x = x.reshape(count, *x.shape[batch:])
    flat_i = index.reshape(count, -1, depth)
    rows = np.broadcast_to(np.arange(count)[:, None], flat_i.shape[:2])
    taken = flat_x[(rows, *(flat_i[..., d] for d in range(depth)))]
    return (taken.reshape(call.result_shape()),)


def _one_hot(call: Call) -> tuple[Array, ...]:
    indices, values = call.operand(0).astype(np.int64), call.operand(1)
    axis, (depth,) = call.attributes.integer("axis"), call.dims("depth")
    front = np.where(indices < 0, indices + depth, indices)
    line = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    return (np.where(np.expand_dims(front, axis) == line, values[1], values[0]),)


def _combine(target: Array, index: tuple[npt.NDArray[np.int64], ...], updates: Array, reduction: str) -> None:
    if reduction == "none":
        target[index] = updates
        return
    ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
    ufunc.at(target, index, updates)


def _scatter_elements(call: Call) -> tuple[Array, ...]:
    result, axis = np.array(call.operand(0)), call.attributes.integer("axis")
    index = indices_within(call, 1, (result.shape[axis],))
    grid = list(np.meshgrid(*(np.arange(e) for e in index.shape), indexing="ij"))
    grid[axis] = index
    flat = tuple(g.reshape(-1) for g in grid)
    _combine(result, flat, call.operand(2).reshape(-1), call.attributes.text("reduction"))
    return (result,)


def _scatter_nd(call: Call) -> tuple[Array, ...]:
    result = np.array(call.operand(0))
    depth = call.operand(1).shape[-1]
    index = indices_within(call, 1, result.shape[:depth])
    columns = tuple(index[..., d] for d in range(depth))
    _combine(result, columns, call.operand(2), call.attributes.text("reduction"))
    return (result,)


def _top_k(call: Call) -> tuple[Array, ...]:
    x, axis = call.operand(0), call.attributes.integer("axis")
    (k,) = call.dims("k")
    # A stable ascending sort of the reversed order keeps the lower index first among equals in both directions.
    if call.attributes.flag("largest"):
        order = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    index = _plain_slice(as_array(order), axis, 0, k).astype(np.int64)
    return (np.take_along_axis(x, index, axis), index)


GOLDENS: Final[Mapping[str, Golden]] = {
    "copy": _copy,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "expand": _expand,
    "tile": _tile,
    "fill": _fill,
    "iota": _iota,
    "extents": _extents,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "top_k": _top_k,
}
