"""Budgets of reductions, running sums and extremal indices.

Imported by: the rule table, norms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from tribunus.numerics.ulp import F64
from tribunus.oracle.rules.elementwise import selected
from tribunus.oracle.rules.sums import LAMBDA, summed
from tribunus.oracle.value import Exactness, Rule, RuleCall, V, finite, worst, zero_error


def _count(x: F64, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _fit(rule: RuleCall, error: F64) -> F64:
    return np.asarray(error).reshape(rule.results[0].shape)


def _integer(rule: RuleCall) -> tuple[V, ...]:
    result = rule.results[0]
    if worst(*rule.operands).rank <= Exactness.VALUE.rank:
        return (V(result, zero_error(result), Exactness.VALUE),)
    carried = np.asarray(rule.operand(0).err).sum(axis=rule.call.axes(), keepdims=True)
    return (V(result, _fit(rule, carried), Exactness.DISCRETE),)


def centred_square(rule: RuleCall) -> F64 | None:
    """Error of the terms when they are squares of differences from their own mean over the same axes, else None.

    With d = x - mean, the terms d**2 carry 2|d| e_d where e_d holds the error of the mean; those parts add up to
    2 e_mean * sum(d) = 0, so only its square is left.
    """
    square = rule.producer(0)
    if square is None:
        return None
    same = square.call.kind == "mul" and square.op.inputs[0] == square.op.inputs[1]
    power = square.call.kind == "pow" and bool(np.all(square.operand(1).real == 2.0))
    difference = square.producer(0) if same or power else None
    if difference is None or difference.call.kind != "sub":
        return None
    mean = difference.producer(1)
    axes = rule.call.axes()
    if mean is None or mean.call.kind != "reduce_mean" or mean.call.axes() != axes:
        return None
    if mean.op.inputs[0] != difference.op.inputs[0]:
        return None
    d, u = np.abs(square.operand(0).real), rule.u
    own = 2.0 * d * (u * d + difference.operand(0).err) + u * d * d
    return np.asarray(own + np.asarray(difference.operand(1).err) ** 2, dtype=np.float64)


def _sum(rule: RuleCall) -> tuple[V, ...]:
    if not rule.call.result_dtype().is_float:
        return _integer(rule)
    x, axes = rule.operand(0), rule.call.axes()
    known = centred_square(rule)
    carried = np.broadcast_to(np.asarray(x.err), x.value.shape) if known is None else known
    error = summed(rule, x.real, carried, axes, products=False)
    return (V(rule.results[0], finite(_fit(rule, error)), Exactness.ULP),)


def _mean(rule: RuleCall) -> tuple[V, ...]:
    if not rule.call.result_dtype().is_float:
        return _integer(rule)
    (total,) = _sum(rule)
    x = rule.operand(0)
    result = np.asarray(rule.results[0], dtype=np.float64)
    error = total.err / max(1, _count(x.real, rule.call.axes())) + rule.rounding(result, 5.0)
    return (V(rule.results[0], error, Exactness.ULP),)


def _magnitudes(rule: RuleCall) -> tuple[V, ...]:
    if not rule.call.result_dtype().is_float:
        return _integer(rule)
    x = rule.operand(0)
    error = summed(rule, np.abs(x.real), np.asarray(x.err), rule.call.axes(), products=False)
    return (V(rule.results[0], finite(_fit(rule, error)), Exactness.ULP),)


def _squares(rule: RuleCall) -> tuple[V, ...]:
    if not rule.call.result_dtype().is_float:
        return _integer(rule)
    x = rule.operand(0)
    carried = finite(2.0 * np.abs(x.real) * x.err)
    error = _fit(rule, finite(summed(rule, x.real * x.real, carried, rule.call.axes(), products=True)))
    if rule.call.kind == "reduce_l2":
        root = np.asarray(rule.results[0], dtype=np.float64)
        error = finite(np.minimum(error / (2.0 * root), np.sqrt(error))) + rule.rounding(root, 4.0)
    return (V(rule.results[0], error, Exactness.ULP),)


def _products(rule: RuleCall) -> tuple[V, ...]:
    if not rule.call.result_dtype().is_float:
        return _integer(rule)
    x, axes = rule.operand(0), rule.call.axes()
    result = np.abs(np.asarray(rule.results[0], dtype=np.float64))
    relative = finite(np.asarray(x.err) / np.abs(x.real)).sum(axis=axes, keepdims=True)
    error = result * (_fit(rule, relative) + _count(x.real, axes) * rule.u)
    return (V(rule.results[0], finite(error), Exactness.ULP),)


def _extreme(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    error = np.asarray(x.err).max(axis=rule.call.axes(), keepdims=True, initial=0.0)
    return (selected(rule, _fit(rule, error)),)


def _cumsum(rule: RuleCall) -> tuple[V, ...]:
    """Element k is a sum of k terms: ``6 u sqrt(k) sqrt(y**2/3 + sum t**2 / 6)``, and at most ``k u sum |t|``."""
    if not rule.call.result_dtype().is_float:
        exact = worst(*rule.operands).rank <= Exactness.VALUE.rank
        doubt = zero_error(rule.results[0]) if exact else np.full(rule.results[0].shape, np.inf)
        return (V(rule.results[0], doubt, Exactness.VALUE if exact else Exactness.DISCRETE),)
    x, call, axis = rule.operand(0), rule.call, rule.call.attributes.integer("axis")

    def running(terms: F64) -> F64:
        seen = np.flip(terms, axis) if call.attributes.flag("reverse") else terms
        total = np.cumsum(seen, axis=axis)
        if call.attributes.flag("exclusive"):
            # Shifted, not subtracted: an infinity must not reach the sums before it.
            total = np.roll(total, 1, axis=axis)
            total[(slice(None),) * axis + (slice(0, 1),)] = 0.0
        return np.asarray(np.flip(total, axis) if call.attributes.flag("reverse") else total, dtype=np.float64)

    value = np.asarray(rule.results[0], dtype=np.float64)
    k = running((x.real != 0).astype(np.float64))
    provable = np.maximum(k - 1.0, 0.0) * rule.u * running(np.abs(x.real))
    model = np.sqrt(np.maximum(value**2 / 3.0 + running(x.real**2) / 6.0, running(value**2) / np.maximum(k, 1.0)))
    error = np.minimum(provable, LAMBDA * rule.u * np.sqrt(k) * model)
    if rule.setting.family.is_adversarial:
        error = provable
    if rule.setting.is_probe:
        error = np.zeros(value.shape)
    return (V(rule.results[0], finite(error + running(np.broadcast_to(x.err, value.shape))), Exactness.ULP),)


def _arg(rule: RuleCall) -> tuple[V, ...]:
    """Exact on exact numbers; else any index whose number is within twice the error of the best."""
    x, axis = rule.operand(0), rule.call.attributes.integer("axis")
    result = rule.results[0]
    if x.exactness.rank <= Exactness.VALUE.rank:
        return (V(result, zero_error(result), Exactness.VALUE),)
    sign = 1.0 if rule.call.kind == "arg_max" else -1.0
    best = (sign * x.real).max(axis=axis, keepdims=True)
    near = sign * x.real >= best - 2.0 * np.asarray(x.err).max(axis=axis, keepdims=True)
    doubt = near.sum(axis=axis, keepdims=True) > 1
    error = np.where(doubt, float(x.value.shape[axis]), 0.0).reshape(result.shape)
    return (V(result, error, Exactness.DISCRETE),)


RULES: Final[Mapping[str, Rule]] = {
    "reduce_sum": _sum,
    "reduce_mean": _mean,
    "reduce_l1": _magnitudes,
    "reduce_l2": _squares,
    "reduce_sum_square": _squares,
    "reduce_prod": _products,
    "reduce_max": _extreme,
    "reduce_min": _extreme,
    "cumsum": _cumsum,
    "arg_max": _arg,
    "arg_min": _arg,
}
