"""Rebuilding a program op by op: the one loop that the local passes share.

Imported by: passes.  Imports: phaseir.  Pure but for the constants store, which only ever gains entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.passes.view import kept_values
from tribunus.phaseir.attributes import NO_ATTRIBUTES, Attributes
from tribunus.phaseir.dims import DimScope
from tribunus.phaseir.ops import spec_of
from tribunus.phaseir.program import Array, Constants, Op, Phase, Program, Role, Value
from tribunus.phaseir.types import TensorType
from tribunus.phaseir.verifier import same_type

Rule = Callable[["Rewriter", Op], bool]
"""Sees an op with its operands already rewritten; True: it has dealt with the op, False: the op stays."""


class Rewriter:
    """One phase while it is rebuilt; ``ops`` are those emitted so far."""

    def __init__(self, program: Program, phase: Phase, values: list[Value], constants: Constants) -> None:
        self.scope: DimScope = program.scope
        self.constants = constants
        self.kept = kept_values(program, phase)
        self.ops: list[Op] = []
        self._values = values
        self._producers: dict[int, int] = {}
        self._renamed: dict[int, int] = {}

    def type_of(self, value: int) -> TensorType:
        """Type of a value."""
        return self._values[value].type

    def label_of(self, value: int) -> str:
        """Label of a value."""
        return self._values[value].label

    def producer(self, value: int) -> Op | None:
        """The op emitted in this phase that computes a value, or None."""
        index = self._producers.get(value)
        return None if index is None else self.ops[index]

    def is_constant(self, value: int) -> bool:
        """Whether a value is a constant."""
        return self._values[value].constant is not None

    def array(self, value: int) -> Array | None:
        """The payload of a constant, else None."""
        digest = self._values[value].constant
        return None if digest is None else self.constants.get(digest)

    def scalar(self, value: int) -> float | int | None:
        """The number that every element of a constant is; None for what is no constant or varies."""
        array = self.array(value)
        if array is None or array.size == 0 or self.type_of(value).dtype.numpy.kind not in "fi":
            return None
        if self.type_of(value).dtype in (DType.BF16, DType.F8E4M3FN, DType.F8E5M2):
            return None
        words = np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8).reshape(array.size, -1)
        if not np.array_equal(words, np.broadcast_to(words[0], words.shape)):
            return None
        number: object = array.reshape(-1)[0].item()
        return number if isinstance(number, int | float) else None

    def constant(self, array: Array, dtype: DType, label: str = "") -> int:
        """A new constant."""
        stored = np.asarray(array, dtype=dtype.numpy)
        digest = self.constants.add(stored, dtype)
        self._values.append(Value(TensorType(dtype, stored.shape), Role.CONSTANT, label, digest))
        return len(self._values) - 1

    def temp(self, type_: TensorType) -> int:
        """A new value that an op will compute."""
        self._values.append(Value(type_, Role.TEMP))
        return len(self._values) - 1

    def keep(self, op: Op) -> None:
        """Emit an op as it is."""
        index = len(self.ops)
        self.ops.append(op)
        self._producers.update((value, index) for value in op.outputs)

    def emit(
        self, kind: str, inputs: tuple[int, ...], attributes: Attributes = NO_ATTRIBUTES, source: tuple[int, ...] = ()
    ) -> int:
        """Emit a new op of one result; returns the result."""
        types = [None if v < 0 else self.type_of(v) for v in inputs]
        (result,) = spec_of(kind).infer(types, attributes, self.scope)
        value = self.temp(result)
        self.keep(Op(kind, inputs, (value,), attributes, source))
        return value

    def infers(self, op: Op) -> bool:
        """Whether an op of these operands and attributes has the types that its results are stored with."""
        types = [None if v < 0 else self.type_of(v) for v in op.inputs]
        inferred = spec_of(op.kind).infer(types, op.attributes, self.scope)
        stored = [self.type_of(v) for v in op.outputs]
        return all(same_type(a, b, self.scope) for a, b in zip(inferred, stored, strict=True))

    def put(self, old: int, new: int) -> bool:
        """Let ``new`` stand for ``old`` from here on; False, and nothing done, where that is not possible.

        A value that is read outside the phase keeps its identity, so it can only take over the op of a computed one.
        """
        if not same_type(self.type_of(old), self.type_of(new), self.scope):
            return False
        if old not in self.kept:
            self._renamed[old] = new
            return True
        index = self._producers.get(new)
        if index is None or new in self.kept or self.type_of(old) != self.type_of(new):
            return False
        op = self.ops[index]
        self.ops[index] = replace(op, outputs=tuple(old if v == new else v for v in op.outputs))
        self._producers[old] = index
        self._renamed[new] = old
        for position in range(index + 1, len(self.ops)):
            self.ops[position] = self.resolved(self.ops[position])
        return True

    def resolved(self, op: Op) -> Op:
        """``op`` with its operands replaced by what stands for them."""
        return replace(op, inputs=tuple(self._find(v) for v in op.inputs))

    def _find(self, value: int) -> int:
        while value in self._renamed:
            value = self._renamed[value]
        return value


def rewrite(program: Program, constants: Constants, rule: Rule) -> Program:
    """``program`` with ``rule`` applied to every op in order."""
    values = list(program.values)
    phases: list[Phase] = []
    for phase in program.phases:
        rewriter = Rewriter(program, phase, values, constants)
        for op in phase.ops:
            current = rewriter.resolved(op)
            if not rule(rewriter, current):
                rewriter.keep(current)
        phases.append(replace(phase, ops=tuple(rewriter.ops)))
    return compact(replace(program, values=tuple(values), phases=tuple(phases)))


def compact(program: Program) -> Program:
    """``program`` without values that nothing names; the others keep their order."""
    used: set[int] = set()
    for phase in program.phases:
        used.update(phase.inputs, phase.outputs)
        for op in phase.ops:
            used.update(op.inputs, op.outputs)
    used.update(v for state in program.states for v in (state.read, state.write))
    used.update(edge.predicate for edge in program.edges)
    used.discard(-1)
    order = sorted(used)
    if len(order) == len(program.values):
        return program
    ids = {old: new for new, old in enumerate(order)}
    ids[-1] = -1

    def renumber(found: Sequence[int]) -> tuple[int, ...]:
        return tuple(ids[v] for v in found)

    phases = tuple(
        replace(
            phase,
            inputs=renumber(phase.inputs),
            outputs=renumber(phase.outputs),
            ops=tuple(replace(op, inputs=renumber(op.inputs), outputs=renumber(op.outputs)) for op in phase.ops),
        )
        for phase in program.phases
    )
    return replace(
        program,
        values=tuple(program.values[v] for v in order),
        phases=phases,
        states=tuple(replace(s, read=ids[s.read], write=ids[s.write]) for s in program.states),
        edges=tuple(replace(e, predicate=ids[e.predicate]) for e in program.edges),
    )
