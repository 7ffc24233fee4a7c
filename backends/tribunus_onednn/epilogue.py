"""What follows an anchor op, as steps that oneDNN applies before it stores: functions and second operands.

Imported by: match.  Imports: candidates, phaseir.  Pure.

A step is taken only where oneDNN's definition is, in real arithmetic, that of the primitive ops with their constants as
stored: a constant must be the binary32 number that the definition names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from tribunus.candidates.model import Signature
from tribunus.phaseir.program import Op, Role

MAX_ACTIVATION_OPS: Final = 12


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function of the value so far."""

    alg: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Combine:
    """``value OP operand``; operand: a value id of the signature."""

    alg: str
    operand: int


@dataclass(frozen=True, slots=True)
class Affine:
    """Batch normalization by constants: per channel ``value * s + t``.  sources: scale, bias, mean, variance."""

    sources: tuple[int, int, int, int]
    eps: float


Step: TypeAlias = "Function | Combine | Affine"


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Why there are no steps, in words."""

    reason: str


_INFINITY: Final = math.inf
_UNARY: Final[dict[str, Function]] = {
    "relu": Function("eltwise_relu"),
    "sigmoid": Function("eltwise_logistic"),
    "tanh": Function("eltwise_tanh"),
    "exp": Function("eltwise_exp"),
    "log": Function("eltwise_log"),
    "sqrt": Function("eltwise_sqrt"),
    "abs": Function("eltwise_abs"),
    "round": Function("eltwise_round"),
    "neg": Function("eltwise_linear", -1.0, 0.0),
}
_COMBINE: Final = {
    "add": "binary_add",
    "mul": "binary_mul",
    "maximum": "binary_max",
    "minimum": "binary_min",
    "sub": "binary_sub",
    "div": "binary_div",
}
_COMMUTES: Final = frozenset(("add", "mul", "maximum", "minimum"))


def read_steps(signature: Signature, value: int, position: int) -> tuple[Step, ...] | Unmatched:
    """Steps from ``value`` to the only output; ``position``: index of the first op behind ``value``."""
    ops = signature.phase.ops
    steps: list[Step] = []
    while position < len(ops):
        found = _simple(signature, value, ops[position]) if _reads_all(ops[position:], value) == 1 else None
        taken = 1
        if found is None:
            activation = _activation(signature, value, ops[position:])
            if activation is None:
                kinds = ", ".join(op.kind for op in ops[position : position + 4])
                return Unmatched(f"oneDNN has no post-op for {kinds} in this form")
            found, taken = ((activation[0],), activation[1])
        steps += found
        position += taken
        value = ops[position - 1].outputs[0]
    if signature.outputs != (value,):
        return Unmatched("the group has other results than its last")
    return tuple(_merged(steps))


def scalar_of(signature: Signature, value: int) -> float | None:
    """The number that a constant of one element holds, None for any other value."""
    array = signature.constant(value) if value >= 0 else None
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _reads_all(ops: Sequence[Op], value: int) -> int:
    return sum(value in op.inputs for op in ops)


def _simple(signature: Signature, value: int, op: Op) -> tuple[Step, ...] | None:
    """One op as steps."""
    if value not in op.inputs or signature.type_of(op.outputs[0]).shape != signature.type_of(value).shape:
        return None
    if op.kind in _UNARY:
        return (_UNARY[op.kind],)
    if op.kind == "leaky_relu":
        return (Function("eltwise_relu", op.attributes.f32("alpha")),)
    if op.kind == "hard_sigmoid":
        return (Function("eltwise_hardsigmoid", op.attributes.f32("alpha"), op.attributes.f32("beta")),)
    if op.kind == "batch_norm" and op.inputs[0] == value:
        roles = [signature.program.values[v].role for v in op.inputs[1:]]
        if all(role in (Role.WEIGHT, Role.CONSTANT) for role in roles):
            scale, bias, mean, variance = op.inputs[1:]
            return (Affine((scale, bias, mean, variance), op.attributes.f32("eps")),)
        return None
    if len(op.inputs) != 2 or op.inputs[0] == op.inputs[1]:
        return None
    first = op.inputs[0] == value
    other = op.inputs[1] if first else op.inputs[0]
    number = scalar_of(signature, other)
    if number is not None and (step := _with_number(op.kind, number, first)) is not None:
        return (step,)
    if op.kind in _COMBINE and (first or op.kind in _COMMUTES):
        return (Combine(_COMBINE[op.kind], other),)
    if op.kind == "sub":
        return (_UNARY["neg"], Combine("binary_add", other))
    return None


def _with_number(kind: str, number: float, first: bool) -> Function | None:
    """``value kind number``, or the other way round."""
    if not math.isfinite(number):
        return None
    match kind:
        case "add":
            return Function("eltwise_linear", 1.0, number)
        case "sub":
            return Function("eltwise_linear", 1.0, -number) if first else Function("eltwise_linear", -1.0, number)
        case "mul":
            return Function("eltwise_linear", number, 0.0)
        case "maximum":
            return Function("eltwise_relu") if number == 0.0 else Function("eltwise_clip", number, _INFINITY)
        case "minimum":
            return Function("eltwise_clip", -_INFINITY, number)
        case "pow" if first:
            return Function("eltwise_square") if number == 2.0 else Function("eltwise_pow", 1.0, number)
    return None


def _merged(steps: Sequence[Step]) -> list[Step]:
    """A lower and an upper bound in a row are one clip."""
    found: list[Step] = []
    for step in steps:
        last = found[-1] if found else None
        if isinstance(step, Function) and step.alg == "eltwise_clip" and isinstance(last, Function):
            low = 0.0 if last == _UNARY["relu"] else last.alpha
            if last.alg in ("eltwise_clip", "eltwise_relu") and (last.alg == "eltwise_clip" or last.alpha == 0.0):
                high = last.beta if last.alg == "eltwise_clip" else _INFINITY
                bounds = max(low, step.alpha), min(high, step.beta)
                if bounds[0] <= bounds[1]:
                    found[-1] = Function("eltwise_clip", *bounds)
                    continue
        found.append(step)
    return found


# Activations that are spelt with several ops ------------------------------------------------------------------------

Expression: TypeAlias = "tuple[object, ...]"
_X: Final[Expression] = ("x",)


def _f32(value: float) -> float:
    return float(np.float32(value))


def _number(value: float) -> Expression:
    return ("number", _f32(value))


def _apply(kind: str, *operands: Expression) -> Expression:
    """``kind`` of expressions; products and sums are flat and sorted."""
    if kind not in ("mul", "add", "maximum", "minimum"):
        return (kind, *operands)
    parts: list[Expression] = []
    for operand in operands:
        nested = [part for part in operand[1:] if isinstance(part, tuple)] if operand[0] == kind else [operand]
        parts += nested
    return (kind, *sorted(parts, key=repr))


def _templates() -> dict[Expression, Function]:
    mul, add = "mul", "add"
    half, one = _number(0.5), _number(1.0)
    found: dict[Expression, Function] = {}
    scaled = (
        _apply(mul, _X, _number(math.sqrt(0.5))),
        _apply("div", _X, _number(math.sqrt(2.0))),
    )
    for inner in scaled:
        found[_apply(mul, _X, half, _apply(add, one, _apply("erf", inner)))] = Function("eltwise_gelu_erf")
    root = _number(math.sqrt(2.0 / math.pi))
    cubic = _number(0.044715)
    arguments = (
        _apply(mul, root, _apply(add, _X, _apply(mul, cubic, _X, _X, _X))),
        _apply(mul, root, _apply(add, _X, _apply(mul, cubic, _apply("pow", _X, _number(3.0))))),
        _apply(mul, root, _X, _apply(add, one, _apply(mul, cubic, _X, _X))),
        _apply(mul, root, _X, _apply(add, one, _apply(mul, cubic, _apply("pow", _X, _number(2.0))))),
    )
    for inner in arguments:
        found[_apply(mul, _X, half, _apply(add, one, _apply("tanh", inner)))] = Function("eltwise_gelu_tanh")
    found[_apply(mul, _X, _apply("sigmoid", _X))] = Function("eltwise_swish", 1.0)
    sixth = _f32(1.0 / 6.0)
    hard = Function("eltwise_hardswish", sixth, 0.5)
    found[_apply(mul, _X, ("hard_sigmoid", sixth, 0.5, _X))] = hard
    shifted = _apply(add, _X, _number(3.0))
    clipped = (
        _apply("minimum", _apply("maximum", shifted, _number(0.0)), _number(6.0)),
        _apply("maximum", _apply("minimum", shifted, _number(6.0)), _number(0.0)),
        _apply("minimum", _apply("relu", shifted), _number(6.0)),
    )
    for inner in clipped:
        found[_apply("div", _apply(mul, _X, inner), _number(6.0))] = hard
        found[_apply(mul, _X, inner, _number(sixth))] = hard
        found[_apply(mul, _X, _apply("div", inner, _number(6.0)))] = hard
    return found


_TEMPLATES: Final = _templates()


def _activation(signature: Signature, value: int, ops: Sequence[Op]) -> tuple[Function, int] | None:
    """The function that the next ops spell, and how many they are."""
    known: dict[int, Expression] = {value: _X}
    best: tuple[Function, int] | None = None
    for count, op in enumerate(ops[:MAX_ACTIVATION_OPS], 1):
        operands: list[Expression] = []
        for operand in op.inputs:
            number = scalar_of(signature, operand)
            expression = known.get(operand) if number is None else _number(number)
            if expression is None:
                return best
            operands.append(expression)
        if op.kind == "hard_sigmoid":
            made: Expression = (op.kind, op.attributes.f32("alpha"), op.attributes.f32("beta"), *operands)
        else:
            made = _apply(op.kind, *operands)
        known[op.outputs[0]] = made
        inside = set(known) - {op.outputs[0]}
        function = _TEMPLATES.get(made)
        outside = any(v in inside for later in ops[count:] for v in later.inputs)
        if function is not None and not outside and not inside & set(signature.outputs):
            best = function, count
    return best
