"""A phase seen with its producers and users: what pattern matching asks.

Imported by: passes.  Imports: phaseir.  Read only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tribunus.phaseir.dims import DimScope
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Op, Phase, Program, Role
from tribunus.phaseir.types import TensorType


def kept_values(program: Program, phase: Phase) -> frozenset[int]:
    """Values of a phase that are read from outside: its outputs, what states become, what edges decide on."""
    written = (state.write for state in program.states)
    predicates = (edge.predicate for edge in program.edges if edge.predicate >= 0)
    return frozenset((*phase.outputs, *written, *predicates))


class PhaseView:
    """One phase with its def-use chains.

    kept: values that are read outside the phase.  Ops are named by their index in the phase, which is a topological
    order.
    """

    def __init__(self, program: Program, phase: Phase, constants: Constants) -> None:
        self.program = program
        self.phase = phase
        self.constants = constants
        self.scope: DimScope = program.scope
        self.kept = kept_values(program, phase)
        self._producers = program.producers(phase)
        self._users = program.consumers(phase)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops of the phase."""
        return self.phase.ops

    def kind(self, op: int) -> str:
        """The op's kind."""
        return self.phase.ops[op].kind

    def family(self, op: int) -> Family:
        """The op's family."""
        return spec_of(self.phase.ops[op].kind).family

    def result(self, op: int) -> int:
        """The first result of an op."""
        return self.phase.ops[op].outputs[0]

    def type_of(self, value: int) -> TensorType:
        """Type of a value."""
        return self.program.values[value].type

    def producer(self, value: int) -> int | None:
        """The op that computes a value, or None for what comes from outside."""
        return self._producers.get(value)

    def users(self, value: int) -> tuple[int, ...]:
        """The ops that read a value, ascending."""
        return tuple(self._users.get(value, ()))

    def only_user(self, value: int) -> int | None:
        """The one op that reads a value which nothing outside the phase reads; else None."""
        users = self._users.get(value, ())
        return users[0] if len(users) == 1 and value not in self.kept else None

    def is_constant(self, value: int) -> bool:
        """Whether the bytes of a value are the model's."""
        return self.program.values[value].role in (Role.CONSTANT, Role.WEIGHT)

    def is_vector(self, value: int, along: TensorType) -> bool:
        """Whether a constant varies along at most one axis of ``along``, and broadcasts to it."""
        shape = self.type_of(value).shape
        if not self.is_constant(value) or len(shape) > along.rank:
            return False
        pairs = zip(reversed(shape), reversed(along.shape), strict=False)
        return sum(d != 1 for d in shape) <= 1 and all(d in (1, e) for d, e in pairs)

    def scalar(self, value: int) -> float | None:
        """The number that a constant of one element holds; None for anything else."""
        held = self.program.values[value]
        if held.constant is None or any(d != 1 for d in held.type.shape):
            return None
        array: object = np.asarray(self.constants.get(held.constant)).reshape(-1)[0].item()
        return float(array) if isinstance(array, int | float) else None

    def same_shape(self, left: int, right: int) -> bool:
        """Whether two values have one shape for all values of the symbols."""
        a, b = self.type_of(left).shape, self.type_of(right).shape
        return len(a) == len(b) and all(self.scope.equal(x, y) for x, y in zip(a, b, strict=True))

    def operands(self, op: int) -> tuple[int, ...]:
        """The operands of an op that are present."""
        return tuple(v for v in self.phase.ops[op].inputs if v >= 0)

    def escapes(self, ops: Iterable[int]) -> tuple[int, ...]:
        """Results of ``ops`` that something else reads; where nothing is read at all, the results of the last op."""
        inside = frozenset(ops)
        found = tuple(
            v
            for i in sorted(inside)
            for v in self.phase.ops[i].outputs
            if v in self.kept or any(user not in inside for user in self._users.get(v, ()))
        )
        return found or self.phase.ops[max(inside)].outputs

    def has_one_exit(self, ops: Iterable[int]) -> bool:
        """Whether results of only one op leave the group.

        Groups with one exit can be contracted without ever making a cycle: an edge between two of them means that one
        exit reaches the other.
        """
        chosen = tuple(ops)
        return len({self._producers[v] for v in self.escapes(chosen)}) == 1


Admit = Callable[[int], bool]


def closure(view: PhaseView, start: int, admit: Admit, cap: int, owns_start: bool) -> tuple[int, ...] | None:
    """The smallest group of admitted ops that computes everything from ``start`` and has one exit, its last op.

    Every operand of the group is ``start``, a constant, or computed inside.  owns_start: whether all users of
    ``start`` must belong to the group; otherwise users that are not admitted stay outside.
    """
    inside: list[int] = []
    known = {start}
    pending = set(view.users(start))
    while pending and len(inside) < cap:
        op = min(pending)
        pending.discard(op)
        closed = all(v in known or view.is_constant(v) for v in view.operands(op))
        if not closed or not admit(op) or len(view.ops[op].outputs) != 1:
            if not owns_start and not any(v in known and v != start for v in view.operands(op)):
                continue
            return None
        inside.append(op)
        result = view.result(op)
        if not pending:
            return tuple(inside)
        if result in view.kept:
            return None
        known.add(result)
        pending.update(view.users(result))
    return None
