"""Budgets of elementwise ops: first-order running error of the defining formula.

Imported by: the rule table.

Constants are in u, half a unit in the last place, and come from what full-precision device libraries promise: div 5,
sqrt 4, exp 4 + 2|x| (a rounded product with log2 e), log 4, tanh 8, erf 16, sin and cos 8, pow 16 + 2|y ln x|.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, as_array
from tribunus.oracle.ops.elementwise import cast as cast_value
from tribunus.oracle.rules.sums import sum_with_dot
from tribunus.oracle.value import Exactness, Rule, RuleCall, V, finite, worst, zero_error

_MONOTONE: Final = frozenset(("relu", "minimum", "maximum", "abs", "neg", "reduce_max", "reduce_min", "max_pool"))
"""Selections that give the same number whether operands are rounded before or after."""


def selected(rule: RuleCall, error: F64) -> V:
    """Result of a selection: exact on exact operands, rounded on rounded ones."""
    found = worst(*rule.operands)
    if found.rank <= Exactness.VALUE.rank:
        return V(rule.results[0], zero_error(rule.results[0]), Exactness.VALUE)
    keeps = found is Exactness.ROUNDED and rule.call.kind in _MONOTONE
    return V(rule.results[0], finite(error), Exactness.ROUNDED if keeps else Exactness.ULP)


def rounded(rule: RuleCall, error: F64) -> V:
    """Result of one operation that backends round correctly: exactness ROUNDED while operands are exact numbers."""
    result = rule.results[0]
    if not rule.call.result_dtype().is_float:
        inexact = worst(*rule.operands).rank > Exactness.VALUE.rank
        return V(result, error, Exactness.DISCRETE) if inexact else V(result, zero_error(result), Exactness.VALUE)
    alone = worst(*rule.operands).rank <= Exactness.VALUE.rank and rule.call.result_dtype() is DType.F32
    return V(result, finite(error), Exactness.ROUNDED if alone else Exactness.ULP)


def _real(rule: RuleCall) -> F64:
    return np.asarray(rule.results[0], dtype=np.float64)


def _sum(rule: RuleCall) -> tuple[V, ...]:
    a, b = rule.operand(0), rule.operand(1)
    return (rounded(rule, a.err + b.err + rule.rounding(_real(rule)) + sum_with_dot(rule)),)


def _product(rule: RuleCall) -> tuple[V, ...]:
    a, b = rule.operand(0), rule.operand(1)
    error = finite(np.abs(a.real) * b.err) + finite(np.abs(b.real) * a.err)
    return (rounded(rule, error + rule.rounding(_real(rule))),)


def _quotient(rule: RuleCall) -> tuple[V, ...]:
    a, b, value = rule.operand(0), rule.operand(1), _real(rule)
    brought = finite((a.err + np.abs(value) * b.err) / np.abs(b.real))
    return (_division(rule, brought),)


def _reciprocal(rule: RuleCall) -> tuple[V, ...]:
    b, value = rule.operand(0), _real(rule)
    return (_division(rule, finite(np.abs(value) * b.err / np.abs(b.real))),)


def _division(rule: RuleCall, brought: F64) -> V:
    if not rule.call.result_dtype().is_float or rule.setting.is_strict:
        return rounded(rule, brought + rule.rounding(_real(rule)))
    return V(rule.results[0], brought + rule.rounding(_real(rule), 5.0), Exactness.ULP)


def _sqrt(rule: RuleCall) -> tuple[V, ...]:
    a, value = rule.operand(0), _real(rule)
    # Near zero the first-order term a.err / (2 v) overstates; sqrt(e) bounds the change there.
    brought = finite(np.minimum(a.err / (2.0 * value), np.sqrt(a.err)))
    if rule.setting.is_strict:
        return (rounded(rule, brought + rule.rounding(value)),)
    return (V(rule.results[0], brought + rule.rounding(value, 4.0), Exactness.ULP),)


def _function(
    rule: RuleCall, slope: Callable[[F64, F64], F64], units: Callable[[F64, F64], F64 | float]
) -> tuple[V, ...]:
    x, value = rule.operand(0), _real(rule)
    argument = np.where(np.isfinite(x.real), x.real, 0.0)
    brought = finite(np.abs(slope(argument, value)) * x.err)
    own = rule.own(value, units(argument, value))
    return (V(rule.results[0], brought + finite(own), Exactness.ULP),)


def _of(slope: Callable[[F64, F64], F64], units: Callable[[F64, F64], F64 | float]) -> Rule:
    def rule_of(rule: RuleCall) -> tuple[V, ...]:
        return _function(rule, slope, units)

    return rule_of


def _exp(rule: RuleCall) -> tuple[V, ...]:
    def units(x: F64, v: F64) -> F64 | float:
        return 4.0 if rule.setting.is_strict else 4.0 + 2.0 * np.abs(x)

    return _function(rule, lambda x, v: v, units)


def _pow(rule: RuleCall) -> tuple[V, ...]:
    x, y, value = rule.operand(0), rule.operand(1), _real(rule)
    if not rule.call.result_dtype().is_float:
        return (rounded(rule, zero_error(rule.results[0])),)
    magnitude = np.abs(x.real)
    if y.is_exact and bool(np.all(y.real == 2.0)):
        return (V(rule.results[0], finite(2.0 * magnitude * x.err) + rule.rounding(value), Exactness.ULP),)
    logarithm = np.log(np.where(magnitude > 0, magnitude, 1.0))
    brought = np.abs(value) * (np.abs(y.real) * x.err / magnitude + np.abs(logarithm) * y.err)
    own = rule.own(value, 16.0 + 2.0 * np.abs(y.real * logarithm))
    return (V(rule.results[0], finite(brought) + finite(own), Exactness.ULP),)


def _leaky_relu(rule: RuleCall) -> tuple[V, ...]:
    x, value = rule.operand(0), _real(rule)
    alpha = abs(rule.call.attributes.f32("alpha"))
    negative = alpha * x.err + rule.rounding(value)
    error = np.where(x.real >= 0, np.where(x.real >= x.err, x.err, np.maximum(x.err, negative)), negative)
    return (V(rule.results[0], error, Exactness.ULP),)


def _hard_sigmoid(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    alpha, beta = rule.call.attributes.f32("alpha"), rule.call.attributes.f32("beta")
    line = alpha * x.real + beta
    error = finite(np.abs(alpha) * x.err + rule.u * (np.abs(alpha * x.real) + np.abs(line)))
    outside = (line - error >= 1.0) | (line + error <= 0.0)
    return (V(rule.results[0], np.where(outside, 0.0, error), Exactness.ULP),)


def _relu(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    return (selected(rule, np.where(x.real + x.err < 0, 0.0, x.err)),)


def _carry(rule: RuleCall) -> tuple[V, ...]:
    return (selected(rule, np.asarray(rule.operand(0).err)),)


def _sign(rule: RuleCall) -> tuple[V, ...]:
    x = rule.operand(0)
    return (selected(rule, np.where(np.abs(x.real) <= x.err, np.where(x.err > 0, 2.0, 0.0), 0.0)),)


def _extreme(rule: RuleCall) -> tuple[V, ...]:
    a, b = rule.operand(0), rule.operand(1)
    sign = 1.0 if rule.call.kind == "maximum" else -1.0
    gap = sign * (a.real - b.real)
    close = np.abs(gap) <= a.err + b.err
    return (selected(rule, np.where(close, np.maximum(a.err, b.err), np.where(gap > 0, a.err, b.err))),)


def _step(function: Callable[[F64], F64]) -> Rule:
    def rule_of(rule: RuleCall) -> tuple[V, ...]:
        x = rule.operand(0)
        if x.is_exact and x.exactness.rank <= Exactness.VALUE.rank:
            return (selected(rule, zero_error(rule.results[0])),)
        # A rounded operand may already have landed on the other side of the step.
        reach = np.asarray(x.err + rule.u * np.abs(np.where(np.isfinite(x.real), x.real, 0.0)))
        value = _real(rule)
        error = np.maximum(function(x.real + reach) - value, value - function(x.real - reach))
        return (V(rule.results[0], finite(error), Exactness.ULP),)

    return rule_of


def undecided(rule: RuleCall, doubt: Array) -> V:
    """A bool result: exact, or open where ``doubt``."""
    result = rule.results[0]
    if worst(*rule.operands).rank <= Exactness.VALUE.rank:
        return V(result, zero_error(result), Exactness.VALUE)
    open_ = np.broadcast_to(doubt, result.shape).astype(np.bool_)
    value = result.astype(np.bool_)
    return V(result, open_.astype(np.float64), Exactness.DISCRETE, as_array(value & ~open_), as_array(value | open_))


def _compare(rule: RuleCall) -> tuple[V, ...]:
    a, b = rule.operand(0), rule.operand(1)
    own = rule.setting.facts.accumulator_roundoff * (finite(np.abs(a.real)) + finite(np.abs(b.real)))
    return (undecided(rule, as_array(np.abs(a.real - b.real) <= a.err + b.err + own)),)


def _logic(rule: RuleCall) -> tuple[V, ...]:
    doubt = np.zeros(rule.results[0].shape, np.bool_)
    for operand in rule.operands:
        if operand is not None:
            doubt = doubt | (np.asarray(operand.err) > 0)
    return (undecided(rule, as_array(doubt)),)


def _is_nan(rule: RuleCall) -> tuple[V, ...]:
    return (V(rule.results[0], zero_error(rule.results[0]), Exactness.VALUE),)


def _where(rule: RuleCall) -> tuple[V, ...]:
    condition, a, b = rule.operand(0), rule.operand(1), rule.operand(2)
    chosen = np.where(condition.value, a.err, b.err)
    found = worst(a, b)
    if not condition.is_exact:
        open_ = np.asarray(condition.err) > 0
        chosen = np.where(open_, finite(np.abs(a.real - b.real)) + np.maximum(a.err, b.err), chosen)
        loose = Exactness.ULP if rule.call.result_dtype().is_float else Exactness.DISCRETE
        found = max(found, loose, key=lambda e: e.rank)
    return (V(rule.results[0], np.broadcast_to(chosen, rule.results[0].shape), found),)


def _cast(rule: RuleCall) -> tuple[V, ...]:
    x, call = rule.operand(0), rule.call
    source, target = call.operand_dtype(0), call.result_dtype()
    result = rule.results[0]
    if x.exactness.rank <= Exactness.VALUE.rank:
        same = source is target or (target.is_float and source.is_float and target.bits > source.bits)
        return (V(result, zero_error(result), x.exactness if same else Exactness.VALUE),)
    if target is DType.BOOL:
        return (undecided(rule, as_array(np.abs(x.real) <= x.err)),)
    reach = np.asarray(
        x.err + (rule.setting.facts.accumulator_roundoff * finite(np.abs(x.real)) if source.is_float else 0)
    )
    if target.is_float and (source.is_float and target.bits >= source.bits):
        return (V(result, np.asarray(x.err), x.exactness),)
    high = cast_value(as_array(x.real + reach), DType.F64, target)
    low = cast_value(as_array(x.real - reach), DType.F64, target)
    value = _real(rule)
    error = finite(np.maximum(high.astype(np.float64) - value, value - low.astype(np.float64)))
    if target.is_float:
        return (V(result, error, Exactness.ULP),)
    return (V(result, error, Exactness.DISCRETE, low, high),)


RULES: Final[Mapping[str, Rule]] = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _quotient,
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _of(lambda x, v: 1.0 / x, lambda x, v: 4.0),
    "tanh": _of(lambda x, v: 1.0 - v * v, lambda x, v: 8.0),
    "sigmoid": _of(lambda x, v: v * (1.0 - v), lambda x, v: 10.0 + 2.0 * np.abs(x) * (1.0 - v)),
    "erf": _of(lambda x, v: 1.1283791670955126 * np.exp(-x * x), lambda x, v: 16.0),
    "sin": _of(lambda x, v: np.cos(x), lambda x, v: 8.0),
    "cos": _of(lambda x, v: np.sin(x), lambda x, v: 8.0),
    "pow": _pow,
    "leaky_relu": _leaky_relu,
    "hard_sigmoid": _hard_sigmoid,
    "relu": _relu,
    "abs": _carry,
    "neg": _carry,
    "sign": _sign,
    "minimum": _extreme,
    "maximum": _extreme,
    "floor": _step(np.floor),
    "ceil": _step(np.ceil),
    "round": _step(np.rint),
    **dict.fromkeys(("equal", "less", "less_equal", "greater", "greater_equal"), _compare),
    **dict.fromkeys(("and", "or", "xor", "not"), _logic),
    "is_nan": _is_nan,
    "where": _where,
    "cast": _cast,
}
