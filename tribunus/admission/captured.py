"""Captured inputs: cases that the user gives, and what flows inside the program on them.

Imported by: certification.  Imports: phaseir, oracle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tribunus.canon import Digest
from tribunus.oracle.golden import evaluate
from tribunus.oracle.ops.call import Call
from tribunus.passes.groups import Use
from tribunus.phaseir import dims
from tribunus.phaseir.program import Array, Constants, Op, Program

USES_A_SIGNATURE = 2
ELEMENT_LIMIT = 40_000_000
"""Operands of a run are kept only up to this many elements in all."""


@dataclass(frozen=True, slots=True)
class CapturedCase:
    """Inputs of a model by label, and outputs of a witness by label where there are any."""

    name: str
    inputs: Mapping[str, Array]
    witness: Mapping[str, Array] | None


def program_inputs(program: Program, case: CapturedCase) -> dict[int, Array]:
    """The case's arrays by the program's input value ids."""
    return {value: case.inputs[program.values[value].label] for value in program.only_phase.inputs}


def try_bindings(program: Program, case: CapturedCase) -> dict[str, int] | None:
    """Values of the program's symbols in a case; None if its shapes are outside the program's dims."""
    bindings: dict[str, int] = {}
    for value in program.only_phase.inputs:
        array = case.inputs.get(program.values[value].label)
        shape = program.type_of(value).shape
        if array is None or array.ndim != len(shape):
            return None
        for dim, extent in zip(shape, array.shape, strict=True):
            if isinstance(dim, dims.Sym):
                bindings.setdefault(dim.name, extent)
    for symbol in program.symbols:
        if bindings.setdefault(symbol.name, symbol.opt) not in symbol.values():
            return None
    for value in program.only_phase.inputs:
        shape = dims.evaluate_shape(program.type_of(value).shape, bindings)
        if shape != case.inputs[program.values[value].label].shape:
            return None
    return bindings


def capture_operands(
    program: Program,
    constants: Constants,
    case: CapturedCase,
    bindings: Mapping[str, int],
    uses: Sequence[tuple[Use, Digest]],
) -> dict[Digest, list[dict[int, Array]]]:
    """For each signature, real operands (by its value ids) from up to two of its uses: the first and the last.

    Intermediates come from the float64 evaluation of the program with the true weights, rounded once to their dtype.
    """
    by_signature: dict[Digest, list[Use]] = {}
    for use, digest in uses:
        by_signature.setdefault(digest, []).append(use)
    chosen = {
        digest: (members if len(members) == 1 else [members[0], members[-1]])[:USES_A_SIGNATURE]
        for digest, members in by_signature.items()
    }
    needed = frozenset(value for members in chosen.values() for use in members for value in use.inputs)
    if sum(dims.evaluate(program.type_of(value).elements, bindings) for value in needed) > ELEMENT_LIMIT:
        return {}
    values = _rounded_values(program, constants, program_inputs(program, case), bindings, needed)
    return {
        digest: [_operands(program, constants, use, values) for use in members] for digest, members in chosen.items()
    }


def _rounded_values(
    program: Program,
    constants: Constants,
    inputs: Mapping[int, Array],
    bindings: Mapping[str, int],
    needed: frozenset[int],
) -> dict[int, Array]:
    """The ``needed`` values as stored; those in float64 are let go as soon as they were read."""
    stored: dict[int, Array] = {}

    def hold(op: Op, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        for out, array in zip(op.outputs, results, strict=True):
            if out in needed:
                stored[out] = array.astype(program.type_of(out).dtype.numpy)
        return results

    made = frozenset(out for op in program.only_phase.ops for out in op.outputs)
    return evaluate(program, inputs, constants, bindings=bindings, keep=needed - made, hook=hold) | stored


def _operands(program: Program, constants: Constants, use: Use, values: Mapping[int, Array]) -> dict[int, Array]:
    phase = use.signature.only_phase
    weights = [i for i, v in enumerate(use.signature.values) if v.role.value == "weight"]
    operands: dict[int, Array] = {}
    for own, theirs in zip(phase.inputs, use.inputs, strict=True):
        dtype = program.type_of(theirs).dtype.numpy
        operands[own] = values[theirs].astype(dtype, copy=False)
    for own, theirs in zip(weights, use.weights, strict=True):
        operands[own] = constants.of(program, theirs)
    return operands
