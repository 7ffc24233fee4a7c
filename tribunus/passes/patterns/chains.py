"""Chains: maximal groups of elementwise ops with one result, whatever they broadcast.

Imported by: partition.  Imports: view, draft.

What jumps (rounding to integers, comparisons) reads values from outside its group or exact ones, so that a rounding
error inside a group never decides on which side of a jump a result lies.  Only a quantization may end a chain that
rounds, as it may end a product: there one step of difference is what its budget is about.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from tribunus.passes.patterns.draft import Alternatives, Draft, distinct, finest
from tribunus.passes.view import PhaseView
from tribunus.phaseir.ops import Contract, Family, spec_of

_JUMPS: Final = frozenset(
    (
        "floor",
        "ceil",
        "round",
        "sign",
        "equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "is_nan",
        "quantize_linear",
    )
)
_MEMBERS: Final = frozenset(("quantize_linear", "dequantize_linear"))
MAX_OPS: Final = 64
Free = Callable[[int], bool]


class _Reach(Enum):
    """How far a chain goes up from its last op."""

    TO_QUANTIZATION = 1  # up to jumps, but through the quantization that ends a chain
    TO_JUMPS = 2
    SAME_SHAPE = 3  # and not to what is smaller than its reader: fusing that repeats its work


def is_chainable(view: PhaseView, op: int) -> bool:
    """Whether an op may be part of a chain."""
    return view.family(op) is Family.ELEMENTWISE or view.kind(op) in _MEMBERS


def find_chains(view: PhaseView, free: Free) -> tuple[Alternatives, ...]:
    """Chains over all free elementwise ops; each such op is in exactly one."""
    found: list[Alternatives] = []
    taken: set[int] = set()
    for root in reversed(range(len(view.ops))):
        if root in taken or not free(root) or not is_chainable(view, root):
            continue
        ops = _collect(view, root, lambda op: free(op) and op not in taken, _Reach.TO_QUANTIZATION)
        taken.update(ops)
        found.append(_alternatives(view, root, ops))
    return tuple(reversed(found))


def chain_label(view: PhaseView, ops: tuple[int, ...]) -> str:
    """``chain``, or ``qdq_chain`` where quantized values go in or come out."""
    return "qdq_chain" if any(view.kind(op) in _MEMBERS for op in ops) else "chain"


def _alternatives(view: PhaseView, root: int, ops: tuple[int, ...]) -> Alternatives:
    """Fused with a final quantization, without it, without what is smaller than its reader, every op on its own."""
    whole = (Draft(chain_label(view, ops), ops),) if len(ops) > 1 else finest(view, ops)
    return distinct((whole, _cut(view, ops, _Reach.TO_JUMPS), _cut(view, ops, _Reach.SAME_SHAPE), finest(view, ops)))


def _cut(view: PhaseView, ops: tuple[int, ...], reach: _Reach) -> tuple[Draft, ...]:
    pieces: list[Draft] = []
    left = set(ops)
    while left:
        piece = _collect(view, max(left), left.__contains__, reach)
        left.difference_update(piece)
        pieces.extend(finest(view, piece) if len(piece) == 1 else (Draft(chain_label(view, piece), piece),))
    return tuple(pieces)


def _collect(view: PhaseView, root: int, free: Free, reach: _Reach) -> tuple[int, ...]:
    """``root`` and all producers whose results only this group reads."""
    inside = {root}
    frontier = sorted({p for v in view.operands(root) if (p := view.producer(v)) is not None})
    while frontier and len(inside) < MAX_OPS:
        op = frontier.pop()
        if op in inside or not free(op) or not _joins(view, op, inside, reach):
            continue
        inside.add(op)
        producers = {p for v in view.operands(op) if (p := view.producer(v)) is not None}
        frontier = sorted({*frontier, *producers})
    return tuple(sorted(inside))


def _joins(view: PhaseView, op: int, inside: set[int], reach: _Reach) -> bool:
    if not is_chainable(view, op) or view.kind(op) == "quantize_linear":
        return False
    result = view.result(op)
    users = view.users(result)
    if result in view.kept or not all(user in inside for user in users):
        return False
    if reach is _Reach.SAME_SHAPE and not all(view.same_shape(result, view.result(user)) for user in users):
        return False
    if spec_of(view.kind(op)).contract is Contract.EXACT or not view.type_of(result).dtype.is_float:
        return True
    jumps = [user for user in users if _jumps(view, user)]
    return all(reach is _Reach.TO_QUANTIZATION and view.kind(user) == "quantize_linear" for user in jumps)


def _jumps(view: PhaseView, op: int) -> bool:
    if view.kind(op) == "cast":
        return not view.type_of(view.result(op)).dtype.is_float
    return view.kind(op) in _JUMPS
