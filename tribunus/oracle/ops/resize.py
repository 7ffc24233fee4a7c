"""Golden of resizing: separable interpolation with the coordinates of ONNX Resize.

Imported by: the golden table, the budget of resize.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, Call, Golden, Order, as_array


@dataclass(frozen=True, slots=True)
class AxisTaps:
    """Interpolation along one axis.

    coordinate: (out,) position in the input.  index, weight: (out, taps) clamped positions and their weights.
    """

    axis: int
    coordinate: F64
    index: npt.NDArray[np.int64]
    weight: F64


def coordinates(call: Call, axis: int) -> F64:
    """Position in the input that each output position reads."""
    extent, out = call.operand(0).shape[axis], call.result_shape()[axis]
    scale, mode = call.attributes.f32s("scales")[axis], call.attributes.text("coordinate")
    position = np.arange(out, dtype=np.float64)
    if mode == "asymmetric":
        return position / scale
    if mode == "align_corners":
        return position * (extent - 1) / (out - 1) if out > 1 else np.zeros(out)
    if mode == "pytorch_half_pixel" and out == 1:
        return np.zeros(1)
    return (position + 0.5) / scale - 0.5


def nearest_index(coordinate: F64, rule: str, extent: int) -> npt.NDArray[np.int64]:
    """Index that a nearest rule picks, clamped into the axis."""
    if rule in ("floor", "round_prefer_ceil"):
        picked = np.floor(coordinate if rule == "floor" else coordinate + 0.5)
    else:
        picked = np.ceil(coordinate if rule == "ceil" else coordinate - 0.5)
    return np.asarray(np.clip(picked, 0, extent - 1), dtype=np.int64)


def taps_of(call: Call) -> tuple[AxisTaps, ...]:
    """Interpolation of every axis that changes, or whose scale is not 1."""
    found: list[AxisTaps] = []
    shape, out = call.operand(0).shape, call.result_shape()
    for axis, scale in enumerate(call.attributes.f32s("scales")):
        if shape[axis] != out[axis] or scale != 1.0:
            found.append(_taps(call, axis, shape[axis]))
    return tuple(found)


def _taps(call: Call, axis: int, extent: int) -> AxisTaps:
    coordinate = coordinates(call, axis)
    mode = call.attributes.text("mode")
    if mode == "nearest":
        index = nearest_index(coordinate, call.attributes.text("nearest"), extent)[:, None]
        return AxisTaps(axis, coordinate, index, np.ones(index.shape))
    base = np.floor(coordinate)
    fraction = coordinate - base
    if mode == "linear":
        offsets = np.array([0, 1])
        weight = np.stack((1.0 - fraction, fraction), axis=1)
    else:
        offsets = np.array([-1, 0, 1, 2])
        weight = _cubic(fraction, call.attributes.f32("cubic_a"))
    index = base.astype(np.int64)[:, None] + offsets
    if call.attributes.flag("exclude_outside"):
        weight = np.where((index >= 0) & (index < extent), weight, 0.0)
        weight = weight / weight.sum(axis=1, keepdims=True)
    return AxisTaps(axis, coordinate, np.clip(index, 0, extent - 1), weight)


def _cubic(t: F64, a: float) -> F64:
    """Keys' cubic convolution weights at distances 1+t, t, 1-t, 2-t."""
    near0 = ((a + 2) * t - (a + 3)) * t * t + 1
    s = 1 - t
    near1 = ((a + 2) * s - (a + 3)) * s * s + 1
    far0 = ((a * (1 + t) - 5 * a) * (1 + t) + 8 * a) * (1 + t) - 4 * a
    far1 = ((a * (1 + s) - 5 * a) * (1 + s) + 8 * a) * (1 + s) - 4 * a
    return np.stack((far0, near0, near1, far1), axis=1)


def interpolate(x: F64, taps: AxisTaps, order: Order = Order.NATURAL) -> F64:
    """``x`` interpolated along one axis."""
    shape = [1] * x.ndim
    shape[taps.axis] = -1
    total: F64 | None = None
    count = taps.index.shape[1]
    for k in range(count) if order is Order.NATURAL else reversed(range(count)):
        part = np.take(x, taps.index[:, k], axis=taps.axis) * taps.weight[:, k].reshape(shape)
        total = part if total is None else total + part
    return x if total is None else total


def _resize(call: Call) -> tuple[Array, ...]:
    found = taps_of(call)
    x = call.operand(0)
    if call.attributes.text("mode") == "nearest":
        for taps in found:
            x = np.take(x, taps.index[:, 0], axis=taps.axis)
        return (as_array(x),)
    values = x.astype(np.float64)
    for taps in found if call.order is Order.NATURAL else found[::-1]:
        values = interpolate(values, taps, call.order)
    if not call.result_dtype().is_float:
        return (as_array(np.rint(values)).astype(x.dtype),)
    return (as_array(values),)


GOLDENS: Final[Mapping[str, Golden]] = {"resize": _resize}
