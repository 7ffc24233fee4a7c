"""Budgets of normalizations and softmax.

Imported by: the rule table.

Layer normalization: ``A = |g| r (e_mean + u|d|) + |g d| r (e_var / (2 var) + 9u) + u|y|`` with the variance taken from
the differences, ``e_var = e_sum(d**2) / n + e_mean**2``: one-pass variance, whose error grows with the mean, fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.normalize import grouped, per_channel, trailing
from tribunus.oracle.rules.sums import summed
from tribunus.oracle.value import Exactness, Rule, RuleCall, V, finite


def _standardised(rule: RuleCall, x: F64, err: F64, axes: tuple[int, ...], centre: bool) -> tuple[F64, F64]:
    """Value and error of ``d / sqrt(mean(d**2) + eps)``, d being x or x minus its mean."""
    u, eps = rule.u, rule.call.attributes.f32("eps")
    n = max(1, int(np.prod([x.shape[a] for a in axes], dtype=np.int64)))
    mean = x.mean(axis=axes, keepdims=True) if centre else np.zeros(())
    e_mean: F64 = np.zeros(())
    if centre:
        e_mean = summed(rule, x, err, axes, products=False) / n + 5.0 * u * np.abs(mean)
    d = x - mean
    e_own = u * np.abs(d) * (1.0 if centre else 0.0) + err
    square = d * d
    e_square = 2.0 * np.abs(d) * e_own + u * square
    e_var = summed(rule, square, e_square, axes, products=True) / n + e_mean**2
    variance = square.mean(axis=axes, keepdims=True) + eps
    root = np.sqrt(variance)
    relative = (e_var + u * variance) / (2.0 * variance) + 9.0 * u
    return d / root, (e_mean + e_own) / root + np.abs(d) / root * relative


def _scaled(rule: RuleCall, y: F64, error: F64, scale: V | None, bias: V | None, shaped: bool) -> tuple[V, ...]:
    rank = y.ndim
    result = np.asarray(rule.results[0], dtype=np.float64)
    if scale is not None:
        g = per_channel(scale.real, rank) if shaped else scale.real
        e_g = per_channel(np.asarray(scale.err), rank) if shaped else np.asarray(scale.err)
        error = np.abs(g) * error + np.abs(y) * e_g + rule.own(y * g)
    if bias is not None:
        error = error + (per_channel(np.asarray(bias.err), rank) if shaped else np.asarray(bias.err))
    return (V(rule.results[0], finite(error + rule.own(result)), Exactness.ULP),)


def _layer_norm(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    axes = trailing(x.real, rule.call.attributes.integer("axis"))
    y, error = _standardised(rule, x.real, np.broadcast_to(x.err, x.value.shape), axes, centre=True)
    return _scaled(rule, y, error, rule.optional(1), rule.optional(2), shaped=False)


def _rms_norm(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    axes = trailing(x.real, rule.call.attributes.integer("axis"))
    y, error = _standardised(rule, x.real, np.broadcast_to(x.err, x.value.shape), axes, centre=False)
    return _scaled(rule, y, error, rule.optional(1), None, shaped=False)


def _group_norm(rule: RuleCall) -> tuple[V, ...]:
    x, groups = rule.operand(0), rule.call.attributes.integer("groups")
    err = grouped(np.ascontiguousarray(np.broadcast_to(x.err, x.value.shape)), groups)
    y, error = _standardised(rule, grouped(x.real, groups), err, (2,), centre=True)
    shape = x.value.shape
    return _scaled(rule, y.reshape(shape), error.reshape(shape), rule.operand(1), rule.operand(2), shaped=True)


def _batch_norm(rule: RuleCall) -> tuple[V, ...]:
    """Folding to ``x s + t`` is legal, so ``A = 4u (|x s| + |mean s| + |bias|)``."""
    x, rank = rule.operand(0), rule.operand(0).value.ndim
    scale, bias, mean, variance = (rule.operand(i) for i in range(1, 5))
    inverse = 1.0 / np.sqrt(variance.real + rule.call.attributes.f32("eps"))
    s = per_channel(np.abs(scale.real) * inverse, rank)
    e_s = scale.err * inverse + np.abs(scale.real) * inverse**3 * variance.err / 2.0
    centre = per_channel(np.abs(mean.real), rank)
    own = 4.0 * rule.u * (np.abs(x.real) * s + centre * s + per_channel(np.abs(bias.real), rank))
    brought = s * (x.err + per_channel(np.asarray(mean.err), rank)) + per_channel(np.asarray(bias.err), rank)
    brought = brought + np.abs(x.real - per_channel(mean.real, rank)) * per_channel(np.asarray(e_s), rank)
    return (V(rule.results[0], finite(own + brought), Exactness.ULP),)


def _exponentials(rule: RuleCall) -> tuple[F64, F64, F64, F64]:
    """Shifted operand, its softmax, relative error of the exponentials, relative error of their sum (kept extents)."""
    x, axis, u = rule.operand(0), rule.call.attributes.integer("axis"), rule.u
    shifted = x.real - x.real.max(axis=axis, keepdims=True)
    away = np.where(np.isfinite(shifted), np.abs(shifted), 0.0)
    exponential = finite(np.exp(shifted))
    total = exponential.sum(axis=axis, keepdims=True)
    relative = u * (3.0 * away + 4.0) + finite(np.broadcast_to(x.err, x.value.shape))
    error = summed(rule, exponential, exponential * relative, (axis,), products=False)
    return shifted, exponential / total, relative, error / total


def _softmax(rule: RuleCall) -> tuple[V, ...]:
    """``A = y (e_i + e_sum + 5u)``, and what an exponential and its share lose where they are subnormal; a masked entry
    is exactly 0 and stays so."""
    _, y, relative, total = _exponentials(rule)
    error = y * (relative + total + 5.0 * rule.u) + rule.lost(y, 2)
    return (V(rule.results[0], finite(error), Exactness.ULP),)


def _log_softmax(rule: RuleCall) -> tuple[V, ...]:
    """An absolute bound: no relative claim where the result is near 0."""
    x, axis = rule.operand(0), rule.call.attributes.integer("axis")
    shifted, y, _, total = _exponentials(rule)
    result = np.asarray(rule.results[0], dtype=np.float64)
    away = np.where(np.isfinite(shifted), np.abs(shifted), 0.0)
    logarithm = np.abs(finite(shifted - result))
    brought = np.asarray(x.err) + (y * x.err).sum(axis=axis, keepdims=True)
    error = rule.u * (3.0 * away + 4.0 * logarithm) + total + brought + rule.rounding(result)
    return (V(rule.results[0], finite(error), Exactness.ULP),)


RULES: Final[Mapping[str, Rule]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
