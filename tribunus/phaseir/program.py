"""Programs: a model, or one signature of it, in canonical, lossless, backend-neutral form.

Imported by: every compile-time room.  Imports: canon, numerics, dims, types, attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.canon import Digest, Json, digest_bytes, digest_of
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import NO_ATTRIBUTES, Attributes, attributes_to_json
from tribunus.phaseir.dims import Dim, DimScope, Symbol
from tribunus.phaseir.ops import spec_of
from tribunus.phaseir.types import TensorType, type_to_json

SCHEMA: Final = "tribunus.phaseir/1"
INLINE_ELEMENTS: Final = 16
"""Constants of up to this many elements belong to a signature by value."""


class Role(StrEnum):
    """What a value is to its program."""

    INPUT = "input"  # given by the caller
    CONSTANT = "constant"  # known bytes
    WEIGHT = "weight"  # in a signature only: known bytes of the model that the signature does not name
    STATE = "state"  # outlives a replay
    TEMP = "temp"  # computed by an op; an output is one too


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor.  ``label`` is the model's name for it: opaque, for people, never a key; empty in signatures.

    constant: digest of the bytes for a CONSTANT, else None.
    """

    type: TensorType
    role: Role
    label: str = ""
    constant: Digest | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.  ``kind`` names an OpSpec; inputs are value ids, -1 where an optional one is absent.

    source: indices into ``Program.sources`` of the model nodes it came from; empty in signatures.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Attributes = NO_ATTRIBUTES
    source: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """A straight-line region: ops in execution order.  Replay is one call a phase."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ops: tuple[Op, ...]


class Condition(StrEnum):
    """When control passes along an edge."""

    ALWAYS = "always"
    IF_TRUE = "if-true"
    IF_FALSE = "if-false"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Edge:
    """Control passes from one phase to another.  ``predicate`` is a value of ``source`` unless the edge is ALWAYS."""

    source: int
    target: int
    condition: Condition = Condition.ALWAYS
    predicate: int = -1


@dataclass(frozen=True, slots=True)
class State:
    """A value that outlives a replay: read as ``read``, and replaced by ``write`` when the phase ends."""

    read: int
    write: int
    label: str


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node of the model: where an op came from."""

    name: str
    op_type: str
    domain: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a program came from.  model: SHA-256 of the model file.  rounding_passes: passes that changed rounding."""

    model: str
    producer: str
    opset: int
    converter: str
    rounding_passes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """Phases over values.  Value ids are positions in ``values``.

    symbols: with their bounds, named s0, s1, ... in a model and d0, d1, ... in a signature.
    """

    values: tuple[Value, ...]
    phases: tuple[Phase, ...]
    symbols: tuple[Symbol, ...] = ()
    edges: tuple[Edge, ...] = ()
    states: tuple[State, ...] = ()
    sources: tuple[SourceNode, ...] = ()
    provenance: Provenance | None = None

    @property
    def scope(self) -> DimScope:
        """Decides equalities and bounds of this program's dims."""
        return DimScope(self.symbols)

    @property
    def only_phase(self) -> Phase:
        """The single phase.  Raises InternalError if there are several."""
        if len(self.phases) != 1:
            raise InternalError(f"a program of one phase was expected, this has {len(self.phases)}")
        return self.phases[0]

    def type_of(self, value: int) -> TensorType:
        """Type of a value id."""
        return self.values[value].type

    def producers(self, phase: Phase) -> dict[int, int]:
        """Value id -> index of the op in ``phase`` that computes it."""
        return {out: i for i, op in enumerate(phase.ops) for out in op.outputs}

    def consumers(self, phase: Phase) -> dict[int, list[int]]:
        """Value id -> indices of the ops in ``phase`` that read it, ascending, each once."""
        found: dict[int, list[int]] = {}
        for i, op in enumerate(phase.ops):
            for value in dict.fromkeys(op.inputs):
                if value >= 0:
                    found.setdefault(value, []).append(i)
        return found

    def with_phase(self, phase: Phase) -> Program:
        """This program of one phase with that phase replaced."""
        if len(self.phases) != 1:
            raise InternalError("with_phase needs a program of one phase")
        return replace(self, phases=(phase,))


def program_to_json(program: Program) -> Json:
    """Document form, the source of the canonical bytes.  Its size grows with values and ops only."""
    index = {s.name: i for i, s in enumerate(program.symbols)}
    return {
        "schema": SCHEMA,
        "symbols": [
            {"label": s.label, "lo": s.lo, "opt": s.opt, "hi": s.hi, "step": s.step, "name": s.name}
            for s in program.symbols
        ],
        "values": [
            {
                "type": type_to_json(v.type, index),
                "role": v.role.value,
                "label": v.label,
                "constant": v.constant,
            }
            for v in program.values
        ],
        "phases": [
            {
                "name": p.name,
                "inputs": list(p.inputs),
                "outputs": list(p.outputs),
                "ops": [
                    {
                        "kind": op.kind,
                        "inputs": list(op.inputs),
                        "outputs": list(op.outputs),
                        "attributes": attributes_to_json(op.attributes, index),
                        "source": list(op.source),
                    }
                    for op in p.ops
                ],
            }
            for p in program.phases
        ],
        "edges": [
            {"source": e.source, "target": e.target, "condition": e.condition.value, "predicate": e.predicate}
            for e in program.edges
        ],
        "states": [{"read": s.read, "write": s.write, "label": s.label} for s in program.states],
        "sources": [[n.name, n.op_type, n.domain] for n in program.sources],
        "provenance": None
        if program.provenance is None
        else {
            "model": program.provenance.model,
            "producer": program.provenance.producer,
            "opset": program.provenance.opset,
            "converter": program.provenance.converter,
            "rounding_passes": list(program.provenance.rounding_passes),
        },
    }


def program_digest(program: Program) -> Digest:
    """Identity of a program: SHA-256 of its canonical bytes."""
    return digest_of(program_to_json(program))


Array = npt.NDArray[np.generic]


@dataclass(slots=True)
class Constants:
    """Payloads of constants by digest.  A room of its own beside the program, so that programs stay small.

    The digest covers dtype, shape and bytes, so that equal bytes of different types are different constants.
    """

    _arrays: dict[Digest, Array] = field(default_factory=dict)

    def add(self, array: Array, dtype: DType) -> Digest:
        """Store ``array`` (C order, NumPy storage of ``dtype``) and return its digest."""
        contiguous = np.asarray(array, dtype=dtype.numpy, order="C")
        header = f"{dtype.value}:{','.join(map(str, contiguous.shape))}:".encode()
        key = digest_bytes(header + contiguous.tobytes())
        if key not in self._arrays:
            frozen = contiguous.copy()
            frozen.flags.writeable = False
            self._arrays[key] = frozen
        return key

    def get(self, digest: Digest) -> Array:
        """The array of this digest, read-only.  Raises InternalError if it was never added."""
        if digest not in self._arrays:
            raise InternalError(f"constant {digest[:12]} is unknown")
        return self._arrays[digest]

    def of(self, program: Program, value: int) -> Array:
        """The array of a CONSTANT value."""
        digest = program.values[value].constant
        if digest is None:
            raise InternalError(f"value {value} is no constant")
        return self.get(digest)

    def view(self) -> Mapping[Digest, Array]:
        """Everything stored, read-only."""
        return MappingProxyType(self._arrays)


class ProgramBuilder:
    """Collects values and ops of one phase; the passes and the frontend make programs with it.

    The builder infers output types from the ops' type rules, so what it builds is well typed.
    """

    def __init__(self, constants: Constants, symbols: tuple[Symbol, ...] = ()) -> None:
        self.constants = constants
        self.symbols = symbols
        self._values: list[Value] = []
        self._ops: list[Op] = []
        self._sources: list[SourceNode] = []

    def input(self, type_: TensorType, label: str) -> int:
        """A value given by the caller."""
        return self._add(Value(type_, Role.INPUT, label))

    def weight(self, type_: TensorType) -> int:
        """A weight operand of a signature."""
        return self._add(Value(type_, Role.WEIGHT))

    def constant(self, array: Array, dtype: DType, label: str = "") -> int:
        """A constant; equal constants get equal digests."""
        stored = np.asarray(array, dtype=dtype.numpy)
        return self._add(
            Value(TensorType(dtype, stored.shape), Role.CONSTANT, label, self.constants.add(stored, dtype))
        )

    def source(self, node: SourceNode) -> int:
        """Register a model node; returns its index for ``op(source=...)``."""
        self._sources.append(node)
        return len(self._sources) - 1

    def op(
        self,
        kind: str,
        inputs: tuple[int, ...],
        attributes: Attributes = NO_ATTRIBUTES,
        labels: tuple[str, ...] = (),
        source: tuple[int, ...] = (),
    ) -> tuple[int, ...]:
        """Append an op; returns the ids of its outputs, typed by the op's rule."""
        scope = DimScope(self.symbols)
        types = tuple(None if i < 0 else self._values[i].type for i in inputs)
        results = spec_of(kind).infer(types, attributes, scope)
        names = labels + ("",) * (len(results) - len(labels))
        outputs = tuple(self._add(Value(t, Role.TEMP, n)) for t, n in zip(results, names, strict=True))
        self._ops.append(Op(kind, inputs, outputs, attributes, source))
        return outputs

    def type_of(self, value: int) -> TensorType:
        """Type of a value built so far."""
        return self._values[value].type

    def value(self, value: int) -> Value:
        """A value built so far."""
        return self._values[value]

    def array(self, value: int) -> Array | None:
        """The payload if the value is a constant, else None."""
        digest = self._values[value].constant
        return None if digest is None else self.constants.get(digest)

    def relabel(self, value: int, label: str) -> None:
        """Give a value another label (an output that the model names differently)."""
        self._values[value] = replace(self._values[value], label=label)

    def finish(
        self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], provenance: Provenance | None = None
    ) -> Program:
        """The program of one phase."""
        phase = Phase(name, inputs, outputs, tuple(self._ops))
        return Program(tuple(self._values), (phase,), self.symbols, sources=tuple(self._sources), provenance=provenance)

    def _add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1


def rename_symbols(program: Program, replacements: Mapping[str, Dim], symbols: tuple[Symbol, ...]) -> Program:
    """``program`` with every dim rewritten and the symbol table replaced."""

    def retype(t: TensorType) -> TensorType:
        return TensorType(t.dtype, tuple(dims.substitute(d, replacements) for d in t.shape), t.quantization)

    values = tuple(replace(v, type=retype(v.type)) for v in program.values)
    phases = tuple(
        replace(p, ops=tuple(replace(op, attributes=op.attributes.substitute(replacements)) for op in p.ops))
        for p in program.phases
    )
    return replace(program, values=values, phases=phases, symbols=symbols)
