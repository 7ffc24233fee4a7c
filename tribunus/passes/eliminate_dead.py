"""Drop what nothing reads.

Imported by: pipeline.
"""

from __future__ import annotations

from dataclasses import replace

from tribunus.passes.rewrite import compact
from tribunus.passes.view import kept_values
from tribunus.phaseir.program import Constants, Op, Phase, Program


def eliminate_dead(program: Program, constants: Constants) -> Program:
    """``program`` without ops and values that no output, state or edge depends on; inputs stay."""
    return compact(replace(program, phases=tuple(_alive(program, phase) for phase in program.phases)))


def _alive(program: Program, phase: Phase) -> Phase:
    needed = set(kept_values(program, phase))
    ops: list[Op] = []
    for op in reversed(phase.ops):
        if needed.intersection(op.outputs):
            needed.update(op.inputs)
            ops.append(op)
    return replace(phase, ops=tuple(reversed(ops)))
