"""Rules: LSTM and GRU with ONNX's default activations.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site
from tribunus.phaseir.attributes import AttributeValue

_BATCHED: Final = (0, 5, 6)
"""Operands with a batch axis: x, initial h, initial c."""


def _common(to: Lowering, site: Site, activations: tuple[str, ...]) -> dict[str, AttributeValue]:
    direction = site.text("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    given = site.value("activations")
    if given is not None and tuple(str(a).lower() for a in _texts(given)) != activations * count:
        raise LoweringError(f"activations {given} are not supported, only {', '.join(activations)}")
    for name in ("clip", "activation_alpha", "activation_beta"):
        if site.value(name) not in (None, (), 0.0):
            raise LoweringError(f"attribute {name} is not supported")
    hidden = site.x(2).shape[-1]
    if not isinstance(hidden, int):
        raise LoweringError("the hidden size is symbolic")
    return {"direction": direction, "hidden": hidden}


def _texts(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _emit(to: Lowering, kind: str, site: Site, count: int, attributes: dict[str, AttributeValue]) -> Outputs:
    operands: list[Operand | None] = [site.optional(i) for i in range(count)]
    while operands[-1] is None:
        operands.pop()
    if not site.integer("layout", 0):
        return to.emit(kind, operands, attributes)
    # layout 1 has the batch first in x, in the initial states, and in every result
    first = [None if o is None else to.transpose(o, (1, 0, 2)) if i in _BATCHED else o for i, o in enumerate(operands)]
    y, *last = to.emit(kind, first, attributes)
    return (to.transpose(y, (2, 0, 1, 3)), *(to.transpose(h, (1, 0, 2)) for h in last))


def _lstm(to: Lowering, site: Site) -> Outputs:
    if site.optional(7) is not None:
        raise LoweringError("peepholes are not supported")
    if site.integer("input_forget", 0):
        raise LoweringError("a coupled input and forget gate is not supported")
    return _emit(to, "lstm", site, 7, _common(to, site, ("sigmoid", "tanh", "tanh")))


def _gru(to: Lowering, site: Site) -> Outputs:
    attributes = _common(to, site, ("sigmoid", "tanh"))
    return _emit(to, "gru", site, 6, {**attributes, "linear_before_reset": site.integer("linear_before_reset", 0)})


RULES: Final[Mapping[str, Rule]] = MappingProxyType({"LSTM": _lstm, "GRU": _gru})
