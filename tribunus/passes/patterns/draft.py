"""What a pattern finds: a group of ops with its label, and the ways to cut a region into groups.

Imported by: the patterns and partition.  Imports: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tribunus.passes.view import PhaseView


@dataclass(frozen=True, slots=True)
class Draft:
    """A group that will be a use.  ops: indices into the phase's ops, ascending."""

    label: str
    ops: tuple[int, ...]

    @staticmethod
    def of(label: str, ops: Iterable[int]) -> Draft:
        """A draft with its ops in order."""
        return Draft(label, tuple(sorted(ops)))


Alternatives: TypeAlias = "tuple[tuple[Draft, ...], ...]"
"""Ways to cut one region, the most fused first."""


def single(view: PhaseView, op: int) -> Draft:
    """The group of one op."""
    return Draft(own_label(view, op), (op,))


def finest(view: PhaseView, ops: Iterable[int]) -> tuple[Draft, ...]:
    """Every op its own group."""
    return tuple(single(view, op) for op in sorted(ops))


def own_label(view: PhaseView, op: int) -> str:
    """Label of a group that is this op alone: its kind, with ``+bias`` where a convolution brings one."""
    kind = view.kind(op)
    with_bias = kind in ("conv", "conv_transpose") and len(view.operands(op)) == 3
    return f"{kind}+bias" if with_bias else kind


def distinct(alternatives: Iterable[tuple[Draft, ...]]) -> Alternatives:
    """Alternatives without repetition, each in the order of its ops, in the order given."""
    ordered = (tuple(sorted(a, key=lambda d: d.ops)) for a in alternatives)
    return tuple(dict.fromkeys(ordered))
