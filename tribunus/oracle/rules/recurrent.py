"""Budgets of LSTM and GRU: running error through time.

Imported by: the rule table.

The recurrent product carries the root of the sum of squares ``sqrt(e_h**2 @ R**2)``: the sum of magnitudes would grow
like the spectral radius of ``|R|`` to the power of time, and judge nothing after thirty steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from tribunus.numerics.functions import sigmoid
from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.recurrent import bias_of, directions_of, initial, lengths_of, step_order
from tribunus.oracle.rules.sums import addend_error, dot_error, matmul_terms
from tribunus.oracle.value import Exactness, Rule, RuleCall, V, finite


def _dot(rule: RuleCall, h: V, r: F64) -> tuple[F64, F64]:
    """``h @ r.T`` and its error; an error of ``h`` enters as a root of squares."""
    right = np.ascontiguousarray(r.T)
    shape = (h.value.shape[0], r.shape[0])
    terms = matmul_terms(h.real, right, shape)
    error = dot_error(terms, h.real, right, rule.setting, rule.u, rule.interior)
    if not h.is_exact:
        error = error + np.sqrt((np.asarray(h.err) ** 2) @ (right**2))
    return terms.total, error


def _sigmoid(rule: RuleCall, z: F64, e: F64) -> tuple[F64, F64]:
    value = sigmoid(z)
    own = rule.u * value * (10.0 + 2.0 * np.abs(np.where(np.isfinite(z), z, 0.0)) * (1.0 - value))
    return value, finite(e) * value * (1.0 - value) + own


def _tanh(rule: RuleCall, z: F64, e: F64) -> tuple[F64, F64]:
    value = np.tanh(z)
    return value, finite(e) * (1.0 - value * value) + 8.0 * rule.u * np.abs(value)


def _times(rule: RuleCall, a: tuple[F64, F64], b: tuple[F64, F64]) -> tuple[F64, F64]:
    value = a[0] * b[0]
    return value, finite(np.abs(a[0]) * b[1]) + finite(np.abs(b[0]) * a[1]) + rule.u * np.abs(value) + rule.underflow


def _plus(rule: RuleCall, a: tuple[F64, F64], b: tuple[F64, F64]) -> tuple[F64, F64]:
    value = a[0] + b[0]
    return value, a[1] + b[1] + rule.u * np.abs(value)


def _started(rule: RuleCall, total: tuple[F64, F64], start: F64, terms: int) -> tuple[F64, F64]:
    """``total`` whose sum of ``terms`` products may have been started with ``start``: every partial sum carries it."""
    return total[0], total[1] + addend_error(None, 0.0, terms, start, rule.setting, rule.u)


def _exact(value: F64, err: F64) -> V:
    return V(value, err, Exactness.ULP)


def _state(rule: RuleCall, position: int, direction: int) -> V:
    value = initial(rule.call, position, direction)
    given = rule.optional(position)
    return _exact(value, np.zeros(value.shape) if given is None else np.array(np.asarray(given.err)[direction]))


Step = Callable[[tuple[F64, F64], V, V], tuple[V, V]]


def _lstm_step(rule: RuleCall, direction: int) -> Step:
    r = rule.operand(2).real[direction]
    bias = bias_of(rule.call, direction, 4)[1]

    def step(gate_input: tuple[F64, F64], h: V, c: V) -> tuple[V, V]:
        total, error = _plus(rule, gate_input, _dot(rule, h, r))
        total, error = _plus(rule, (total, error), (bias, np.zeros(bias.shape)))
        total, error = _started(rule, (total, error), np.abs(gate_input[0]) + np.abs(bias), r.shape[1])
        zi, zo, zf, zg = (list(p) for p in zip(np.split(total, 4, 1), np.split(error, 4, 1), strict=True))
        i, o, f = (_sigmoid(rule, *z) for z in (zi, zo, zf))
        g = _tanh(rule, *zg)
        cell = _plus(rule, _times(rule, f, (c.real, c.err)), _times(rule, i, g))
        hidden = _times(rule, o, _tanh(rule, *cell))
        return _exact(*hidden), _exact(*cell)

    return step


def _gru_step(rule: RuleCall, direction: int) -> Step:
    call, r = rule.call, rule.operand(2).real[direction]
    bias, width = bias_of(call, direction, 3)[1], call.attributes.integer("hidden")
    after = call.attributes.flag("linear_before_reset")
    none = np.zeros(())

    def step(gate_input: tuple[F64, F64], h: V, c: V) -> tuple[V, V]:
        x, e = gate_input
        recurrent = _plus(rule, _dot(rule, h, r[: 2 * width]), (bias[: 2 * width], none))
        zr, e_zr = _plus(rule, (x[:, : 2 * width], e[:, : 2 * width]), recurrent)
        zr, e_zr = _started(rule, (zr, e_zr), np.abs(x[:, : 2 * width]) + np.abs(bias[: 2 * width]), width)
        z = _sigmoid(rule, zr[:, :width], e_zr[:, :width])
        reset = _sigmoid(rule, zr[:, width:], e_zr[:, width:])
        rest = r[2 * width :]
        if after:
            memory = _times(rule, reset, _plus(rule, _dot(rule, h, rest), (bias[2 * width :], none)))
        else:
            kept = _times(rule, reset, (h.real, h.err))
            memory = _plus(rule, _dot(rule, _exact(*kept), rest), (bias[2 * width :], none))
        own = np.abs(bias[2 * width :]) if after else np.abs(x[:, 2 * width :]) + np.abs(bias[2 * width :])
        memory = _started(rule, memory, own, width)
        candidate = _tanh(rule, *_plus(rule, (x[:, 2 * width :], e[:, 2 * width :]), memory))
        open_ = (1.0 - z[0], z[1] + rule.u * np.abs(1.0 - z[0]))
        hidden = _plus(rule, _times(rule, open_, candidate), _times(rule, z, (h.real, h.err)))
        return _exact(*hidden), c

    return step


def _run(rule: RuleCall, gates: int, step_of: Callable[[RuleCall, int], Step]) -> tuple[F64, F64, F64]:
    call, x, w = rule.call, rule.operand(0), rule.operand(1)
    steps, batch = x.value.shape[:2]
    rows, lengths = np.arange(batch), lengths_of(call)
    error = np.zeros(rule.results[0].shape)
    last_h, last_c = [], []
    for direction, backward in enumerate(directions_of(call)):
        bias = bias_of(call, direction, gates)[0]
        flat = x.real.reshape(steps * batch, -1)
        right = np.ascontiguousarray(w.real[direction].T)
        terms = matmul_terms(flat, right, (steps * batch, right.shape[1]))
        e_x = dot_error(terms, flat, right, rule.setting, rule.u, rule.interior)
        if not x.is_exact:
            e_x = e_x + np.asarray(x.err).reshape(steps * batch, -1) @ np.abs(right)
        total, e_x = _plus(rule, (terms.total, e_x), (bias, np.zeros(bias.shape)))
        total, e_x = _started(rule, (total, e_x), np.abs(bias), right.shape[0])
        total, e_x = total.reshape(steps, batch, -1), e_x.reshape(steps, batch, -1)
        h = _state(rule, 5, direction)
        c = _state(rule, 6, direction) if gates == 4 else _exact(np.zeros(()), np.zeros(()))
        step = step_of(rule, direction)
        for time in step_order(lengths, steps, backward):
            active = time >= 0
            if not active.any():
                break
            at = np.maximum(time, 0)
            new_h, new_c = step((total[at, rows], e_x[at, rows]), h, c)
            h = _exact(*(np.where(active[:, None], n, o) for n, o in ((new_h.real, h.real), (new_h.err, h.err))))
            if gates == 4:
                c = _exact(*(np.where(active[:, None], n, o) for n, o in ((new_c.real, c.real), (new_c.err, c.err))))
            error[time[active], direction, rows[active]] = h.err[active]
        last_h.append(h.err)
        last_c.append(c.err)
    return error, np.stack(last_h), np.stack(last_c)


def _lstm(rule: RuleCall) -> tuple[V, ...]:
    errors = _run(rule, 4, _lstm_step)
    return tuple(V(r, finite(e), Exactness.ULP) for r, e in zip(rule.results, errors, strict=True))


def _gru(rule: RuleCall) -> tuple[V, ...]:
    errors = _run(rule, 3, _gru_step)[:2]
    return tuple(V(r, finite(e), Exactness.ULP) for r, e in zip(rule.results, errors, strict=True))


RULES: Final[Mapping[str, Rule]] = {"lstm": _lstm, "gru": _gru}
