"""Recurrent ops.

Imported by: the op table.  Sequences are (time, batch, features); gate orders are ONNX's: i, o, f, c and z, r, h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Dim, DimScope
from tribunus.phaseir.ops.spec import (
    Contract,
    Family,
    OpSpec,
    Types,
    operand,
    require,
    require_equal,
    require_float,
)
from tribunus.phaseir.types import TensorType


def _infer(kind: str, gates: int, types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, w, r = (operand(types, i, kind) for i in range(3))
    require_float(kind, x)
    hidden = attributes.integer("hidden")
    direction = attributes.text("direction")
    require(kind, direction in ("forward", "reverse", "bidirectional"), f"direction {direction}")
    count = 2 if direction == "bidirectional" else 1
    require_equal(kind, "directions", scope, w.shape[0], count)
    require_equal(kind, "gate rows", scope, w.shape[1], gates * hidden)
    require_equal(kind, "input features", scope, w.shape[2], x.shape[2])
    require_equal(kind, "recurrent columns", scope, r.shape[2], hidden)
    y = TensorType(x.dtype, (x.shape[0], count, x.shape[1], hidden))
    last = TensorType(x.dtype, (count, x.shape[1], hidden))
    return (y, last, last) if kind == "lstm" else (y, last)


def _infer_lstm(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return _infer("lstm", 4, types, attributes, scope)


def _infer_gru(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return _infer("gru", 3, types, attributes, scope)


def _flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
    x, w, r = (operand(types, i, "recurrent") for i in range(3))
    steps = dims.mul(x.shape[0], x.shape[1])
    return dims.mul(2, dims.mul(steps, dims.add(w.elements, r.elements)))


SPECS: Final[tuple[OpSpec, ...]] = (
    # operands: x, w, r, bias?, lengths?, h0?, c0?; results: y, last h, last c
    OpSpec(
        "lstm", Family.RECURRENT, (3, 7), ("direction", "hidden"), Contract.RUNNING, _infer_lstm, _flops, "ONNX LSTM"
    ),
    # operands: x, w, r, bias?, lengths?, h0?; results: y, last h
    OpSpec(
        "gru",
        Family.RECURRENT,
        (3, 6),
        ("direction", "hidden", "linear_before_reset"),
        Contract.RUNNING,
        _infer_gru,
        _flops,
        "ONNX GRU",
    ),
)
