"""Budgets of data movement, indexing, windows that select, resizing and ordering.

Imported by: the rule table.

What is moved keeps its error; errors move with the golden's own definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, Call
from tribunus.oracle.ops.conv import pool_windows
from tribunus.oracle.ops.movement import GOLDENS as MOVEMENT
from tribunus.oracle.ops.resize import AxisTaps, interpolate, nearest_index, taps_of
from tribunus.oracle.rules.elementwise import selected
from tribunus.oracle.value import Exactness, Rule, RuleCall, V, finite, worst, zero_error
from tribunus.phaseir.attributes import Attributes

_DATA: Final[Mapping[str, tuple[int, ...]]] = {
    "gather": (0,),
    "gather_elements": (0,),
    "gather_nd": (0,),
    "one_hot": (1,),
    "scatter_elements": (0, 2),
    "scatter_nd": (0, 2),
}
"""Operands that are data; the others are indices.  Elsewhere all are data."""


def _moved(rule: RuleCall) -> tuple[V, ...]:
    call = rule.call
    positions = _DATA.get(call.kind, tuple(range(len(rule.operands))))
    data = [rule.optional(p) for p in positions]
    kinds = worst(*data)
    error = _errors(call, rule, positions)
    if any(v is not None and not v.is_exact for i, v in enumerate(rule.operands) if i not in positions):
        source = rule.operand(positions[0])
        spread = float(np.ptp(source.real)) if source.value.size else 0.0
        doubt = any(np.any(v.err) for i, v in enumerate(rule.operands) if v is not None and i not in positions)
        error = error + (spread if doubt else 0.0)
        kinds = max(kinds, Exactness.ULP, key=lambda e: e.rank)
    return (V(rule.results[0], error, kinds),)


def _errors(call: Call, rule: RuleCall, positions: tuple[int, ...]) -> F64:
    data = [v for p in positions if (v := rule.optional(p)) is not None]
    if all(v.is_exact for v in data):
        return zero_error(rule.results[0])
    operands: list[Array | None] = []
    for position, operand in enumerate(call.operands):
        held = rule.optional(position)
        moves = position in positions and held is not None
        operands.append(np.ascontiguousarray(held.err) if moves and held is not None else operand)
    return np.asarray(MOVEMENT[call.kind](call.with_operands(*operands))[0], dtype=np.float64)


def _scatter(rule: RuleCall) -> tuple[V, ...]:
    """Repeated indices add in any order: each touched element is a sum of that many terms."""
    reduction = rule.call.attributes.text("reduction")
    if reduction in ("none", "min", "max") or not rule.call.result_dtype().is_float:
        return _moved(rule)
    x, updates = rule.operand(0), rule.operand(2)
    golden, call = MOVEMENT[rule.call.kind], rule.call
    index = call.operand(1)
    others = {name: value for name, value in call.attributes if name != "reduction"}
    added = replace(call, attributes=Attributes.of({**others, "reduction": "add"}))
    count = golden(added.with_operands(np.zeros(x.value.shape), index, np.ones(updates.value.shape)))[0]
    if reduction == "mul":
        error = np.abs(np.asarray(rule.results[0], dtype=np.float64)) * rule.u * count.astype(np.float64)
        return (V(rule.results[0], finite(error), Exactness.ULP),)
    magnitude = golden(added.with_operands(np.abs(x.real), index, np.abs(updates.real)))[0]
    brought = golden(added.with_operands(np.array(x.err), index, np.array(updates.err)))[0]
    own = rule.u * count.astype(np.float64) * magnitude.astype(np.float64)
    if rule.setting.is_probe:
        own = np.zeros(own.shape)
    return (V(rule.results[0], finite(own + brought.astype(np.float64)), Exactness.ULP),)


def _generated(rule: RuleCall) -> tuple[V, ...]:
    return (V(rule.results[0], zero_error(rule.results[0]), Exactness.VALUE),)


def _max_pool(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    error = np.zeros(rule.results[0].shape)
    if not x.is_exact:
        for part in pool_windows(np.asarray(x.err), rule.call, 0.0):
            error = np.maximum(error, part.astype(np.float64))
    return (selected(rule, error),)


def _top_k(rule: RuleCall) -> tuple[V, ...]:
    """Order statistics move by at most the largest error of their line; indices follow the numbers."""
    x, axis = rule.operand(0), rule.call.attributes.integer("axis")
    values, indices = rule.results
    if x.exactness.rank <= Exactness.VALUE.rank:
        return (V(values, zero_error(values), x.exactness), V(indices, zero_error(indices), Exactness.VALUE))
    largest = np.asarray(x.err).max(axis=axis, keepdims=True, initial=0.0)
    error = np.broadcast_to(largest, values.shape)
    near = (np.abs(np.diff(np.sort(x.real, axis=axis), axis=axis)) <= 2.0 * largest).any(axis=axis, keepdims=True)
    doubt = np.broadcast_to(np.where(near, float(x.value.shape[axis]), 0.0), indices.shape)
    return (V(values, error, x.exactness), V(indices, doubt, Exactness.DISCRETE))


def _resize(rule: RuleCall) -> tuple[V, ...]:
    """``A = u (4 sum |w x| + 2 n_in |slope|)``: interpolation, and coordinates that are off by about n_in u."""
    x, call = rule.operand(0), rule.call
    error = np.ascontiguousarray(np.broadcast_to(x.err, x.value.shape))
    value = x.real
    if call.attributes.text("mode") == "nearest":
        return _nearest(rule, value, error)
    for taps in taps_of(call):
        whole = AxisTaps(taps.axis, taps.coordinate, taps.index, np.abs(taps.weight))
        extent = value.shape[taps.axis]
        slope = _spread(value, taps)
        own = rule.u * (4.0 * interpolate(np.abs(value), whole) + 2.0 * extent * slope)
        if call.attributes.text("mode") == "cubic":
            # Weights are cubic polynomials whose terms reach 12 |a| and cancel.
            alike = AxisTaps(taps.axis, taps.coordinate, taps.index, np.ones(taps.weight.shape))
            own = own + 16.0 * rule.u * abs(call.attributes.f32("cubic_a")) * interpolate(np.abs(value), alike)
        error = interpolate(error, whole) + own
        value = interpolate(value, taps)
    if not call.result_dtype().is_float:
        return (V(rule.results[0], np.ceil(error), Exactness.DISCRETE),)
    return (V(rule.results[0], finite(error), Exactness.ULP),)


def _spread(value: F64, taps: AxisTaps) -> F64:
    parts = [np.take(value, taps.index[:, k], axis=taps.axis) for k in range(taps.index.shape[1])]
    return np.asarray(np.max(parts, axis=0) - np.min(parts, axis=0), dtype=np.float64)


def _coordinate_doubt(call: Call, taps: AxisTaps, u: float) -> F64:
    """How far a coordinate computed in the policy's arithmetic may be off: nothing where every step is exact."""
    mode = call.attributes.text("coordinate")
    fraction, _ = np.frexp(call.attributes.f32s("scales")[taps.axis])
    if fraction == 0.5 and mode != "align_corners":
        return np.zeros(taps.coordinate.shape)
    constant = 0.5 if "half_pixel" in mode else 0.0
    return np.asarray(4.0 * u * (np.abs(taps.coordinate) + constant), dtype=np.float64)


def _nearest(rule: RuleCall, value: F64, error: F64) -> tuple[V, ...]:
    call, u = rule.call, rule.setting.facts.accumulator_roundoff
    open_ = False
    for taps in taps_of(call):
        extent = value.shape[taps.axis]
        nudge = _coordinate_doubt(call, taps, u)
        rule_name = call.attributes.text("nearest")
        chosen = np.take(value, taps.index[:, 0], axis=taps.axis)
        carried = np.take(error, taps.index[:, 0], axis=taps.axis)
        for sign in (-1.0, 1.0):
            other = nearest_index(taps.coordinate + sign * nudge, rule_name, extent)
            if np.array_equal(other, taps.index[:, 0]):
                continue
            open_ = True
            rival = np.take(value, other, axis=taps.axis)
            gap = finite(np.abs(rival - chosen)) + np.take(error, other, axis=taps.axis)
            carried = np.maximum(carried, gap)
        value, error = chosen, carried
    if not open_:
        return (V(rule.results[0], error, rule.operand(0).exactness),)
    loose = Exactness.ULP if call.result_dtype().is_float else Exactness.DISCRETE
    return (V(rule.results[0], error, max(loose, rule.operand(0).exactness, key=lambda e: e.rank)),)


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("copy", "reshape", "transpose", "slice", "concat", "pad", "expand", "tile"), _moved),
    **dict.fromkeys(("gather", "gather_elements", "gather_nd", "one_hot"), _moved),
    **dict.fromkeys(("fill", "iota", "extents"), _generated),
    **dict.fromkeys(("scatter_elements", "scatter_nd"), _scatter),
    "max_pool": _max_pool,
    "top_k": _top_k,
    "resize": _resize,
}
