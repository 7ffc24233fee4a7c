"""LSTM and GRU against float64 steps: both directions, tails, initial states, symbolic time and batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.templates.csource import Param
from tribunus_native.templates.recurrent import (
    Cell,
    Direction,
    RecurrentParams,
    pack_recurrent,
    recurrent,
    recurrent_points,
    recurrent_rule,
)

from .conftest import Array, Lab

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
NORMAL = np.random.default_rng(17)


def normal(*shape: int) -> F32:
    return NORMAL.standard_normal(shape).astype(np.float32)


def logistic(x: F64) -> F64:
    return np.asarray(1 / (1 + np.exp(-x)), dtype=np.float64)


def golden(cell: Cell, order: range, x: F32, w: F32, r: F32, bias: F32, h: F64, c: F64) -> tuple[F64, F64, F64]:
    gates, hidden = cell.gates, h.shape[1]
    wide_w, wide_r = (t.astype(np.float64).reshape(gates, hidden, -1) for t in (w, r))
    input_bias, state_bias = bias.astype(np.float64).reshape(2, gates, hidden)
    y = np.zeros((x.shape[0], x.shape[1], hidden))
    for t in order:
        inputs = [x[t] @ wide_w[g].T + input_bias[g] for g in range(gates)]
        states = [h @ wide_r[g].T + state_bias[g] for g in range(gates)]
        if cell is Cell.LSTM:
            i, o, f, g = (a + b for a, b in zip(inputs, states, strict=True))
            c = logistic(f) * c + logistic(i) * np.tanh(g)
            h = logistic(o) * np.tanh(c)
        else:
            z, reset = logistic(inputs[0] + states[0]), logistic(inputs[1] + states[1])
            after = cell is Cell.GRU
            candidate = reset * states[2] if after else (reset * h) @ wide_r[2].T + state_bias[2]
            h = (1 - z) * np.tanh(inputs[2] + candidate) + z * h
        y[t] = h
    return y, h, c


@pytest.mark.parametrize(
    ("cell", "time", "batch", "inputs", "hidden", "direction", "symbolic", "initial"),
    [
        (Cell.LSTM, 5, 3, 7, 9, Direction.FORWARD, False, True),
        (Cell.LSTM, 6, 1, 5, 20, Direction.REVERSE, True, False),
        (Cell.GRU, 5, 2, 7, 9, Direction.FORWARD, True, True),
        (Cell.GRU_RESET_FIRST, 5, 2, 7, 19, Direction.REVERSE, False, True),
        (Cell.GRU_RESET_FIRST, 1, 1, 3, 16, Direction.FORWARD, False, False),
    ],
)
def test_sequence(
    lab: Lab, cell: Cell, time: int, batch: int, inputs: int, hidden: int,
    direction: Direction, symbolic: bool, initial: bool,
) -> None:  # fmt: skip
    x, w, r = normal(time, batch, inputs), normal(cell.gates * hidden, inputs), normal(cell.gates * hidden, hidden)
    r *= np.float32(hidden**-0.5)
    bias, h0, c0 = normal(2 * cell.gates * hidden), normal(batch, hidden), normal(batch, hidden)
    if not initial:
        h0[...], c0[...] = 0, 0
    points = recurrent_points(cell, hidden, lab.cpu)
    assert points[0] == recurrent_rule(cell, hidden, lab.cpu)
    order = range(time) if direction is Direction.FORWARD else range(time - 1, -1, -1)
    exact, h_last, c_last = golden(cell, order, x, w, r, bias, h0.astype(np.float64), c0.astype(np.float64))
    digests = set()
    for point in dict.fromkeys((points[0], points[1])):
        params = RecurrentParams(
            cell=cell, time=Param(0) if symbolic else time, batch=Param(1) if symbolic else batch, inputs=inputs,
            hidden=hidden, direction=direction, initial=initial, point=point, avx512=lab.cpu.has_avx512,
            y_stride=2 * hidden, y_offset=hidden,
        )  # fmt: skip
        packed = pack_recurrent(w, r, bias, params)
        y = np.full((time, batch, 2 * hidden), 4.0, dtype=np.float32)
        h, c = np.empty((batch, hidden), dtype=np.float32), np.empty((batch, hidden), dtype=np.float32)
        lstm = cell is Cell.LSTM
        starts: list[Array] = ([h0, c0] if lstm else [h0]) if initial else []
        weights: list[Array] = [packed.w, packed.r, packed.bias]
        if cell is Cell.GRU:
            weights.append(packed.candidate_bias)
        arrays: list[Array] = [x, *starts, y, h, *([c] if lstm else []), *weights]
        lab.run(recurrent(params), arrays, params=(time, batch), parts=2)
        assert np.abs(y[..., hidden:] - exact).max() < 3e-6
        assert np.all(y[..., :hidden] == 4.0)
        assert np.abs(h - h_last).max() < 3e-6
        if lstm:
            assert np.abs(c - c_last).max() < 6e-6
        if point.contraction is points[0].contraction:
            digests.add(y.tobytes())
    assert len(digests) == 1
