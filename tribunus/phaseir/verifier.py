"""The verifier: the laws that every program obeys, checked between all passes.

Imported by: frontend, passes, certification.  Imports: phaseir.  Pure.

A program that breaks a law is our own mistake, never the user's: the message names phase, op and law.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tribunus.errors import DimError, InternalError, LoweringError, SchemaError, VerifierError
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.dims import DimScope
from tribunus.phaseir.ops import OPS
from tribunus.phaseir.program import Condition, Op, Phase, Program, Role
from tribunus.phaseir.types import TensorType

_INFERENCE_ERRORS: Final = (LoweringError, InternalError, DimError, SchemaError, ValueError, LookupError, TypeError)
"""What a type rule raises on operands or attributes that do not fit, however badly."""


def verify(program: Program) -> None:
    """Check every law.  Raises VerifierError that names the place and the law."""
    scope = program.scope
    _verify_symbols(program)
    for i, value in enumerate(program.values):
        _law((value.constant is not None) == (value.role is Role.CONSTANT), f"value {i}", "constants have a digest")
        _verify_type(value.type, scope, f"value {i}")
        if value.role is Role.CONSTANT:
            _law(value.type.is_static, f"value {i}", "constants have a static shape")
    writers: dict[int, list[int]] = {}
    for index, phase in enumerate(program.phases):
        for value_id in _verify_phase(program, index, phase, scope):
            writers.setdefault(value_id, []).append(index)
    _verify_definitions(program, writers)
    _verify_control(program)
    _verify_states(program)


def _verify_symbols(program: Program) -> None:
    names = [s.name for s in program.symbols]
    _law(len(set(names)) == len(names), "symbols", f"names are distinct: {names}")


def _verify_type(type_: TensorType, scope: DimScope, where: str) -> None:
    names = {s.name for s in scope.symbols}
    for dim in type_.shape:
        _law(dims.symbols_of(dim) <= names, where, f"symbols of {dim} are declared")
        try:
            high = scope.bounds(dim)[1]
        except DimError as error:
            raise VerifierError(f"{where}: {error.detail}") from None
        _law(high >= 0, where, f"extent {dim} is not negative")
    q = type_.quantization
    if q is not None and q.axis is not None:
        _law(q.axis < type_.rank, where, f"quantization axis {q.axis} is an axis of rank {type_.rank}")


def _verify_phase(program: Program, index: int, phase: Phase, scope: DimScope) -> Iterable[int]:
    """Check one phase; returns the values that its ops define."""
    place = f"phase {index} ({phase.name})"
    count = len(program.values)
    for what, ids in (("inputs", phase.inputs), ("outputs", phase.outputs)):
        _law(all(0 <= v < count for v in ids), f"{place} {what}", "ids are values of the program")
    _law(len(set(phase.inputs)) == len(phase.inputs), f"{place} inputs", "each is named once")
    readable = set(phase.inputs)
    for value in phase.inputs:
        role = program.values[value].role
        _law(role in (Role.INPUT, Role.STATE, Role.TEMP), f"{place} input {value}", f"a {role.value} is no phase input")
    defined: set[int] = set()
    for position, op in enumerate(phase.ops):
        where = f"{place} op {position} ({op.kind})"
        _verify_ids(program, op, where)
        for value in op.inputs:
            if value < 0:
                continue
            known = program.values[value].role in (Role.CONSTANT, Role.WEIGHT, Role.STATE)
            _law(known or value in readable, where, f"value {value} is defined before its use")
        for value in op.outputs:
            _law(program.values[value].role is Role.TEMP, where, f"output {value} has the role temp")
            _law(value not in readable, where, f"value {value} is defined once")
            readable.add(value)
            defined.add(value)
        _verify_op(program, op, scope, where)
    for value in phase.outputs:
        known = value in readable or program.values[value].role in (Role.CONSTANT, Role.WEIGHT, Role.STATE)
        _law(known, f"{place} output {value}", "outputs are defined in their phase")
    return defined


def _verify_ids(program: Program, op: Op, where: str) -> None:
    count = len(program.values)
    _law(all(-1 <= v < count for v in op.inputs), where, f"inputs {op.inputs} are values of the program")
    _law(all(0 <= v < count for v in op.outputs), where, f"outputs {op.outputs} are values of the program")
    _law(all(0 <= s < len(program.sources) for s in op.source), where, f"sources {op.source} are known")


def _verify_op(program: Program, op: Op, scope: DimScope, where: str) -> None:
    _law(op.kind in OPS, where, "the op is known")
    spec = OPS[op.kind]
    low, high = spec.inputs
    _law(low <= len(op.inputs) <= high, where, f"{low} to {high} operands, not {len(op.inputs)}")
    _law(all(v >= 0 for v in op.inputs[:low]), where, f"the first {low} operands are present")
    found, wanted = tuple(k for k, _ in op.attributes), tuple(sorted(spec.attributes))
    _law(found == wanted, where, f"attributes are {', '.join(wanted) or 'none'}, not {', '.join(found) or 'none'}")
    names = {s.name for s in scope.symbols}
    for name, attribute in op.attributes:
        if isinstance(attribute, tuple):
            used = {s for d in attribute if not isinstance(d, F32) for s in dims.symbols_of(d)}
            _law(used <= names, where, f"symbols of attribute {name} are declared")
    operands = tuple(None if v < 0 else program.type_of(v) for v in op.inputs)
    try:
        inferred = spec.infer(operands, op.attributes, scope)
    except _INFERENCE_ERRORS as error:
        detail = error.detail if isinstance(error, LoweringError | InternalError) else f"{error}"
        raise VerifierError(f"{where}: type rule: {detail}") from error
    stored = tuple(program.type_of(v) for v in op.outputs)
    _law(same_types(inferred, stored, scope), where, f"results are {_show(inferred)}, stored as {_show(stored)}")


def same_types(left: Sequence[TensorType], right: Sequence[TensorType], scope: DimScope) -> bool:
    """Whether the types are equal for every value of the symbols."""
    return len(left) == len(right) and all(same_type(a, b, scope) for a, b in zip(left, right, strict=True))


def same_type(left: TensorType, right: TensorType, scope: DimScope) -> bool:
    """Whether the types are equal for every value of the symbols."""
    if left == right:
        return True
    if left.dtype is not right.dtype or left.quantization != right.quantization or left.rank != right.rank:
        return False
    return all(scope.equal(a, b) for a, b in zip(left.shape, right.shape, strict=True))


def _verify_definitions(program: Program, writers: dict[int, list[int]]) -> None:
    for i, value in enumerate(program.values):
        if value.role is Role.TEMP:
            _law(i in writers, f"value {i}", "a temp is defined by an op")
    for value_id, phases in writers.items():
        merged = len(phases) == 1 or all(value_id in program.phases[p].outputs for p in phases)
        _law(merged, f"value {value_id}", f"phases {phases} that define it all give it as an output")
    for index, phase in enumerate(program.phases):
        for value_id in phase.inputs:
            if program.values[value_id].role is Role.TEMP:
                given = any(value_id in program.phases[p].outputs for p in writers.get(value_id, []) if p != index)
                _law(given, f"phase {index} input {value_id}", "a temp that a phase reads is another phase's output")


def _verify_control(program: Program) -> None:
    count = len(program.phases)
    for i, edge in enumerate(program.edges):
        where = f"edge {i}"
        _law(0 <= edge.source < count and 0 <= edge.target < count, where, "source and target are phases")
        _law((edge.condition is Condition.ALWAYS) == (edge.predicate == -1), where, "only ALWAYS has no predicate")
        if edge.condition is not Condition.ALWAYS:
            source = program.phases[edge.source]
            known = (*source.inputs, *(v for op in source.ops for v in op.outputs))
            _law(edge.predicate in known, where, f"predicate {edge.predicate} is a value of phase {edge.source}")


def _verify_states(program: Program) -> None:
    reads = [s.read for s in program.states]
    _law(len(set(reads)) == len(reads), "states", "each is read as a value of its own")
    for i, state in enumerate(program.states):
        where = f"state {i} ({state.label})"
        for value_id in (state.read, state.write):
            _law(0 <= value_id < len(program.values), where, f"{value_id} is a value of the program")
        _law(program.values[state.read].role is Role.STATE, where, f"value {state.read} has the role state")
        same = same_type(program.type_of(state.read), program.type_of(state.write), program.scope)
        _law(same, where, f"reads {program.type_of(state.read)}, writes {program.type_of(state.write)}")
    for i, value in enumerate(program.values):
        if value.role is Role.STATE:
            _law(i in reads, f"value {i}", "a value of the role state belongs to a state")


def _show(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


def _law(holds: bool, where: str, text: str) -> None:
    if not holds:
        raise VerifierError(f"{where}: law broken: {text}")
