"""Make every output a value that an op of its phase computes, and no two outputs the same.

Imported by: pipeline.

Outputs have memory of their own; one that is an input, a constant or another output needs a copy.
"""

from __future__ import annotations

from dataclasses import replace

from tribunus.phaseir.program import Constants, Op, Phase, Program, Role, Value


def materialise_outputs(program: Program, constants: Constants) -> Program:
    """``program`` with a ``copy`` before every output that is no result of its own."""
    values = list(program.values)
    phases = tuple(_materialise(phase, values) for phase in program.phases)
    return replace(program, values=tuple(values), phases=phases)


def _materialise(phase: Phase, values: list[Value]) -> Phase:
    free = {v for op in phase.ops for v in op.outputs}
    ops, outputs = list(phase.ops), []
    for value in phase.outputs:
        if value in free:
            free.discard(value)
            outputs.append(value)
            continue
        held = values[value]
        values.append(Value(held.type, Role.TEMP, held.label))
        outputs.append(len(values) - 1)
        ops.append(Op("copy", (value,), (len(values) - 1,)))
    return replace(phase, ops=tuple(ops), outputs=tuple(outputs))
