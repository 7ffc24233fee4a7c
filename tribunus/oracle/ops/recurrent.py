"""Goldens of LSTM and GRU, all directions, with sequence lengths.

Imported by: the golden table.  Gate orders are ONNX's: i, o, f, c and z, r, h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.functions import sigmoid
from tribunus.numerics.ulp import F64
from tribunus.oracle.ops.call import Array, Call, Golden, Order

Step = Callable[[F64, F64, F64], tuple[F64, F64]]
"""(gate inputs, hidden, cell) -> (hidden, cell)."""


def directions_of(call: Call) -> tuple[bool, ...]:
    """Whether each direction runs backwards."""
    return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[call.attributes.text("direction")]


def lengths_of(call: Call) -> npt.NDArray[np.int64]:
    """Steps of each sequence."""
    steps, batch = call.operand(0).shape[:2]
    found = call.optional(4)
    return np.full(batch, steps, np.int64) if found is None else found.astype(np.int64)


def initial(call: Call, position: int, direction: int) -> F64:
    """A state before the first step: zero where absent."""
    found = call.optional_floats(position)
    if found is not None:
        return np.asarray(found[direction], dtype=np.float64)
    return np.zeros((call.operand(0).shape[1], call.attributes.integer("hidden")))


def bias_of(call: Call, direction: int, gates: int) -> tuple[F64, F64]:
    """Input and recurrent bias of a direction."""
    found, width = call.optional_floats(3), gates * call.attributes.integer("hidden")
    if found is None:
        return np.zeros(width), np.zeros(width)
    return found[direction, :width], found[direction, width:]


def step_order(lengths: npt.NDArray[np.int64], steps: int, backward: bool) -> npt.NDArray[np.int64]:
    """(steps, batch) time index that each sequence reads at each step; -1 once it has ended."""
    index = np.arange(steps)[:, None]
    active = index < lengths[None, :]
    time = lengths[None, :] - 1 - index if backward else np.broadcast_to(index, active.shape)
    return np.where(active, time, -1)


def dot(a: F64, b: F64, order: Order) -> F64:
    """``a @ b.T``."""
    if order is Order.REVERSED:
        return np.asarray(np.ascontiguousarray(a[:, ::-1]) @ np.ascontiguousarray(b[:, ::-1]).T, dtype=np.float64)
    return np.asarray(a @ b.T, dtype=np.float64)


def _run(call: Call, gates: int, step_of: Callable[[int], Step]) -> tuple[F64, F64, F64]:
    x, w = call.floats(0), call.floats(1)
    steps, batch, _ = x.shape
    hidden, lengths = call.attributes.integer("hidden"), lengths_of(call)
    rows = np.arange(batch)
    y = np.zeros(call.result_shape(0))
    last_h, last_c = [], []
    for direction, backward in enumerate(directions_of(call)):
        bias = bias_of(call, direction, gates)[0]
        h = initial(call, 5, direction)
        c = initial(call, 6, direction) if gates == 4 else np.zeros((batch, hidden))
        projected = dot(x.reshape(steps * batch, -1), w[direction], call.order).reshape(steps, batch, -1) + bias
        step = step_of(direction)
        for time in step_order(lengths, steps, backward):
            active = time >= 0
            if not active.any():
                break
            new_h, new_c = step(projected[np.maximum(time, 0), rows], h, c)
            h, c = np.where(active[:, None], new_h, h), np.where(active[:, None], new_c, c)
            y[time[active], direction, rows[active]] = h[active]
        last_h.append(h)
        last_c.append(c)
    return y, np.stack(last_h), np.stack(last_c)


def _lstm(call: Call) -> tuple[Array, ...]:
    r = call.floats(2)

    def step_of(direction: int) -> Step:
        recurrent, bias = r[direction], bias_of(call, direction, 4)[1]

        def step(gate_input: F64, h: F64, c: F64) -> tuple[F64, F64]:
            i, o, f, g = np.split(gate_input + dot(h, recurrent, call.order) + bias, 4, axis=1)
            cell = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            return sigmoid(o) * np.tanh(cell), cell

        return step

    return _run(call, 4, step_of)


def _gru(call: Call) -> tuple[Array, ...]:
    r, after = call.floats(2), call.attributes.flag("linear_before_reset")
    width = call.attributes.integer("hidden")

    def step_of(direction: int) -> Step:
        recurrent, bias = r[direction], bias_of(call, direction, 3)[1]

        def step(gate_input: F64, h: F64, c: F64) -> tuple[F64, F64]:
            zr = sigmoid(gate_input[:, : 2 * width] + dot(h, recurrent[: 2 * width], call.order) + bias[: 2 * width])
            z, reset = zr[:, :width], zr[:, width:]
            if after:
                memory = reset * (dot(h, recurrent[2 * width :], call.order) + bias[2 * width :])
            else:
                memory = dot(reset * h, recurrent[2 * width :], call.order) + bias[2 * width :]
            candidate = np.tanh(gate_input[:, 2 * width :] + memory)
            return (1.0 - z) * candidate + z * h, c

        return step

    y, h, _ = _run(call, 3, step_of)
    return y, h


GOLDENS: Final[Mapping[str, Golden]] = {"lstm": _lstm, "gru": _gru}
