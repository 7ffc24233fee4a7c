"""Activations: one elementwise op, or the usual spellings of several that compute a function of one value.

Imported by: epilogue.  Imports: view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.passes.view import PhaseView, closure
from tribunus.phaseir.ops import Family

MAX_OPS: Final = 12
_UNARY: Final = frozenset(("relu", "leaky_relu", "sigmoid", "hard_sigmoid", "tanh"))


@dataclass(frozen=True, slots=True)
class Step:
    """One part of an epilogue: its name in the label, its ops, the value that it yields."""

    label: str
    ops: tuple[int, ...]
    value: int


def match_activation(view: PhaseView, value: int) -> Step | None:
    """The activation that is applied to ``value`` and is all that reads it."""

    def admit(op: int) -> bool:
        if view.family(op) is not Family.ELEMENTWISE:
            return False
        constants = [v for v in view.operands(op) if view.is_constant(v)]
        kept_dtype = view.type_of(view.result(op)).dtype is view.type_of(value).dtype
        return kept_dtype and all(view.scalar(v) is not None for v in constants)

    if value in view.kept:
        return None
    ops = closure(view, value, admit, MAX_OPS, owns_start=True)
    if ops is None or not view.same_shape(view.result(ops[-1]), value):
        return None
    if len(ops) == 1:
        return _single(view, value, ops[0])
    ops = _with_scaling(view, ops)
    return Step(activation_name(view, ops), ops, view.result(ops[-1]))


def activation_name(view: PhaseView, ops: Sequence[int]) -> str:
    """What people call a function that is spelt with these ops."""
    kinds = sorted(view.kind(op) for op in ops)
    if "erf" in kinds:
        return "gelu"
    if "tanh" in kinds and kinds.count("mul") >= 3:
        return "gelu_tanh"
    if kinds == ["mul", "sigmoid"]:
        return "silu"
    if kinds == ["hard_sigmoid", "mul"]:
        return "hardswish"
    clipped = kinds.count("maximum") + kinds.count("minimum") + kinds.count("relu")
    return "hardswish" if clipped in (1, 2) and "add" in kinds and "mul" in kinds else "activation"


def _single(view: PhaseView, value: int, op: int) -> Step | None:
    kind = view.kind(op)
    if kind in _UNARY:
        return Step(kind, (op,), view.result(op))
    if kind in ("minimum", "maximum"):
        then = view.only_user(view.result(op))
        other = {"minimum": "maximum", "maximum": "minimum"}[kind]
        if then is not None and view.kind(then) == other and _scalar_operand(view, then):
            return Step("clip", (op, then), view.result(then))
        return Step("clip", (op,), view.result(op))
    return None


def _scalar_operand(view: PhaseView, op: int) -> bool:
    return any(view.scalar(v) is not None for v in view.operands(op))


def _with_scaling(view: PhaseView, ops: tuple[int, ...]) -> tuple[int, ...]:
    """A trailing product with a number belongs to the spelling: ``x * (1 + erf(x / sqrt 2)) * 0.5``."""
    then = view.only_user(view.result(ops[-1]))
    if then is not None and view.kind(then) in ("mul", "div") and _scalar_operand(view, then):
        kinds = {view.kind(op) for op in ops}
        if kinds & {"erf", "tanh", "maximum", "minimum", "relu"}:
            return (*ops, then)
    return ops
