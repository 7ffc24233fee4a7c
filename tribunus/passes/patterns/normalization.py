"""Normalizations and softmax: one op, or spelt with reductions.

Imported by: partition, attention.  Imports: view, draft.

The label decides the budget, so ``layer_norm`` is only what subtracts the mean before it squares: the difference of
the moments E[x^2] - E[x]^2 is another computation with other errors, and is called ``layer_norm_moments``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.passes.view import PhaseView, closure
from tribunus.phaseir.ops import Family

MAX_OPS: Final = 16
NORM_OPS: Final = frozenset(("layer_norm", "rms_norm", "group_norm", "softmax", "log_softmax"))
_SUMS: Final = ("reduce_mean", "reduce_sum", "reduce_sum_square")
_FIRST: Final = frozenset((*_SUMS, "reduce_max", "mul"))
_DIVIDED: Final = (("div",), ("mul", "reciprocal"))
_SQUARES: Final = ("mul", "pow")
_RMS: Final = tuple(sorted((s, "reduce_mean", "add", "sqrt", *d)) for s in _SQUARES for d in _DIVIDED)
_TWO_PASS: Final = tuple(
    sorted(("reduce_mean", "sub", s, "reduce_mean", "add", "sqrt", *d)) for s in _SQUARES for d in _DIVIDED
)
Free = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalization.  source: the value it normalizes.  ops: ascending.  value: its result."""

    label: str
    source: int
    ops: tuple[int, ...]
    value: int


def find_norms(view: PhaseView, free: Free) -> tuple[Norm, ...]:
    """All normalizations of a phase, none sharing an op with another."""
    found: list[Norm] = []
    taken: set[int] = set()
    for op in range(len(view.ops)):
        if op in taken or not free(op):
            continue
        norm = _match(view, op)
        if norm is not None and all(free(i) and i not in taken for i in norm.ops):
            found.append(norm)
            taken.update(norm.ops)
    return tuple(found)


def _match(view: PhaseView, op: int) -> Norm | None:
    kind = view.kind(op)
    if kind in NORM_OPS:
        return Norm(kind, view.ops[op].inputs[0], (op,), view.result(op))
    if (
        kind not in ("reduce_mean", "reduce_max", "reduce_sum", "reduce_sum_square", "mul")
        or view.type_of(view.result(op)).rank == 0
    ):
        return None
    source = view.ops[op].inputs[0]
    found = _grow(view, op, _start_centred(view, op)) or _grow(view, op, _start_open(view, op))
    if found is None:
        return None
    label, ops = found
    ops = ops if label == "softmax" else _with_affine(view, ops)
    if not view.has_one_exit(ops) or not view.same_shape(view.result(max(ops)), source):
        return None
    return Norm(label, source, tuple(sorted(ops)), view.result(max(ops)))


def _grow(view: PhaseView, first: int, start: tuple[int, ...] | None) -> tuple[str, tuple[int, ...]] | None:
    """Extend a start from exit to exit until it is a known normalization that ``first`` belongs to."""
    ops = start
    while ops is not None and len(ops) < MAX_OPS:
        label = _classify(view, view.ops[first].inputs[0], ops)
        if label is not None:
            return (label, ops) if first in ops else None
        value = view.result(ops[-1])
        rest = None if value in view.kept else closure(view, value, lambda i: _admits(view, i), MAX_OPS, True)
        ops = None if rest is None else (*ops, *rest)
    return None


def _start_open(view: PhaseView, op: int) -> tuple[int, ...] | None:
    """Everything from the source up to the first exit; other readers of the source stay outside."""
    return closure(view, view.ops[op].inputs[0], lambda i: _admits(view, i), MAX_OPS, False)


def _admits(view: PhaseView, op: int) -> bool:
    """Elementwise ops with constants that are vectors, and reductions that keep their axes."""
    if view.family(op) is Family.ELEMENTWISE:
        result = view.type_of(view.result(op))
        return all(view.is_vector(v, result) for v in view.operands(op) if view.is_constant(v))
    return view.family(op) is Family.REDUCE and view.kind(op) != "cumsum" and view.ops[op].attributes.flag("keepdims")


def _start_centred(view: PhaseView, reduce: int) -> tuple[int, ...] | None:
    """A reduction and the subtraction from its source that is all that reads it."""
    if view.kind(reduce) not in ("reduce_mean", "reduce_max") or not _admits(view, reduce):
        return None
    result = view.result(reduce)
    subtract = view.only_user(result)
    if subtract is None or view.kind(subtract) != "sub":
        return None
    return (reduce, subtract) if view.ops[subtract].inputs == (view.ops[reduce].inputs[0], result) else None


def _classify(view: PhaseView, source: int, ops: Sequence[int]) -> str | None:
    """The label, or None for what is no known normalization."""
    kinds = [view.kind(op) for op in ops]
    reduces = [op for op in ops if view.family(op) is Family.REDUCE]
    axes = {view.ops[op].attributes.integers("axes") for op in reduces}
    if len(axes) != 1:
        return None
    if sorted(kinds) == ["div", "exp", "reduce_max", "reduce_sum", "sub"]:
        return "softmax" if len(next(iter(axes))) == 1 else None
    if "sqrt" not in kinds or any(view.kind(op) not in _SUMS for op in reduces):
        return None
    rank = view.type_of(source).rank
    trailing = next(iter(axes)) == tuple(range(rank - len(next(iter(axes))), rank))
    if len(reduces) == 1:
        squares = _squared(view, view.ops[reduces[0]].inputs[0]) == source
        return "rms_norm" if trailing and squares and sorted(kinds) in _RMS else None
    if len(reduces) != 2:
        return None
    prefix = "layer_norm" if trailing else "instance_norm"
    two_pass = sorted(kinds) in _TWO_PASS and _is_two_pass(view, source, reduces)
    return prefix if two_pass else f"{prefix}_moments"


def _is_two_pass(view: PhaseView, source: int, reduces: Sequence[int]) -> bool:
    """Whether the variance is the mean of the squared difference to the mean, and that difference is what is scaled."""
    mean, variance = (view.ops[op] for op in reduces)
    if mean.kind != "reduce_mean" or variance.kind != "reduce_mean" or mean.inputs[0] != source:
        return False
    squared = _squared(view, variance.inputs[0])
    difference = None if squared is None else view.producer(squared)
    if difference is None or view.kind(difference) != "sub":
        return False
    return view.ops[difference].inputs == (source, mean.outputs[0]) and len(view.users(mean.outputs[0])) == 1


def _squared(view: PhaseView, value: int) -> int | None:
    """The value whose square ``value`` is."""
    op = view.producer(value)
    if op is None:
        return None
    inputs = view.ops[op].inputs
    if view.kind(op) == "mul" and inputs[0] == inputs[1]:
        return inputs[0]
    return inputs[0] if view.kind(op) == "pow" and view.scalar(inputs[1]) == 2.0 else None


def _with_affine(view: PhaseView, ops: tuple[int, ...]) -> tuple[int, ...]:
    """Scale and shift by vectors belong to the normalization."""
    found = list(ops)
    for kinds in (("mul",), ("add", "sub")):
        value = view.result(found[-1])
        op = view.only_user(value)
        if op is None or view.kind(op) not in kinds or not view.same_shape(view.result(op), value):
            continue
        others = [v for v in view.ops[op].inputs if v != value]
        if len(others) == 1 and view.is_vector(others[0], view.type_of(value)):
            found.append(op)
    return tuple(found)
