"""Budgets of quantization ops.

Imported by: the rule table.

A quantized number may differ from golden only where the real quotient lies within 2**-20 max(1, |t|) of a tie, or
within what its operands are in doubt; both neighbours pass there, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import is_representable
from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array
from tribunus.oracle.ops.quantize import along, dynamic_scale, dynamic_zero_point, quantized
from tribunus.oracle.rules.elementwise import rounded
from tribunus.oracle.value import Exactness, Rule, RuleCall, V, finite, zero_error

TIE_WIDTH: Final = 2.0**-20
"""Distance from a tie, relative to max(1, |t|), within which either neighbour passes."""


def _powers_of_two(scale: F64) -> bool:
    fraction, _ = np.frexp(scale)
    return bool(np.all((fraction == 0.5) & (scale > 0)))


def interval(t: F64, doubt: F64, zero: F64, dtype: DType, *, exact: bool) -> tuple[Array, Array]:
    """Smallest and largest integer that may come out for quotient ``t`` known to ``doubt``.

    exact: the quotient needs no rounding at all, so that even ties are decided.
    """
    reach = doubt if exact else doubt + TIE_WIDTH * np.maximum(1.0, np.abs(np.where(np.isfinite(t), t, 0.0)))
    return quantized(t - reach, zero, dtype), quantized(t + reach, zero, dtype)


def _doubtful(value: Array, low: Array, high: Array) -> V:
    wide = value.astype(np.float64)
    error = np.maximum(high.astype(np.float64) - wide, wide - low.astype(np.float64))
    return V(value, np.asarray(error, dtype=np.float64), Exactness.DISCRETE, low, high)


def _quantize_linear(rule: RuleCall) -> tuple[V, ...]:
    call, x, scale, zero = rule.call, rule.operand(0), rule.operand(1), rule.optional(2)
    axis, rank = call.attributes.integer("axis"), x.value.ndim
    s = along(scale.value, axis, rank)
    shift = np.zeros(()) if zero is None else along(zero.value, axis, rank)
    t = x.real / s
    doubt = finite((x.err + np.abs(t) * along(np.asarray(scale.err), axis, rank)) / np.abs(s))
    exact = x.is_exact and scale.is_exact and _powers_of_two(s)
    low, high = interval(t, doubt, shift, call.result_dtype(), exact=exact)
    if zero is not None and not zero.is_exact:
        low, high = _shifted(low, -1, call.result_dtype()), _shifted(high, 1, call.result_dtype())
    if exact:
        return (V(rule.results[0], zero_error(rule.results[0]), Exactness.VALUE),)
    return (_doubtful(rule.results[0], low, high),)


def _shifted(value: Array, by: int, dtype: DType) -> Array:
    return quantized(value.astype(np.float64) + by, np.zeros(()), dtype)


def _dequantize_linear(rule: RuleCall) -> tuple[V, ...]:
    call, x, scale, zero = rule.call, rule.operand(0), rule.operand(1), rule.optional(2)
    axis, rank = call.attributes.integer("axis"), x.value.ndim
    s = along(scale.value, axis, rank)
    shift = np.zeros(()) if zero is None else along(zero.value, axis, rank)
    doubt = np.asarray(x.err) + (0.0 if zero is None else along(np.asarray(zero.err), axis, rank))
    error = np.abs(s) * doubt + np.abs(x.real - shift) * along(np.asarray(scale.err), axis, rank)
    result = np.asarray(rule.results[0], dtype=np.float64)
    return (rounded(rule, error + rule.rounding(result)),)


def _dynamic_quantize_linear(rule: RuleCall) -> tuple[V, ...]:
    """The scale within 2 units in the last place; zero point and elements follow from it."""
    x, u = rule.operand(0), rule.setting.facts.accumulator_roundoff
    value = x.real
    scale = dynamic_scale(value)
    range_doubt = 2.0 * float(np.max(x.err, initial=0.0)) / 255.0
    relative = 4.0 * u + range_doubt / scale
    zero = dynamic_zero_point(value, scale)
    none = np.zeros(())
    zero_doubt = np.asarray(zero * relative + float(np.max(x.err, initial=0.0)) / scale)
    zero_low, zero_high = interval(np.asarray(zero), zero_doubt, none, DType.U8, exact=bool(zero in (0.0, 255.0)))
    t = value / scale
    doubt = np.abs(t) * relative + np.asarray(x.err) / scale
    low, _ = interval(t, doubt, zero_low.astype(np.float64), DType.U8, exact=False)
    _, high = interval(t, doubt, zero_high.astype(np.float64), DType.U8, exact=False)
    y, step, point = rule.results
    settled = bool(is_representable(scale, DType.F32)) and x.is_exact
    step_error = np.zeros(()) if settled and scale == 1.0 else np.asarray(scale * relative)
    return (
        _doubtful(y, low, high),
        V(step, step_error, Exactness.ULP),
        _doubtful(point, zero_low, zero_high),
    )


RULES: Final[Mapping[str, Rule]] = {
    "quantize_linear": _quantize_linear,
    "dequantize_linear": _dequantize_linear,
    "dynamic_quantize_linear": _dynamic_quantize_linear,
}
