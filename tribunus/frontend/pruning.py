"""Removal of what lowering left behind: ops whose results nothing reads, and the values only they used.

Imported by: lower.  Imports: phaseir.
"""

from __future__ import annotations

from dataclasses import replace

from tribunus.phaseir.program import Op, Program


def prune(program: Program) -> Program:
    """``program`` without dead ops, unused values and unused source nodes; ids are renumbered in order."""
    phase = program.only_phase
    needed = set(phase.outputs)
    kept: list[Op] = []
    for op in reversed(phase.ops):
        if needed.intersection(op.outputs):
            needed.update(i for i in op.inputs if i >= 0)
            kept.append(op)
    kept.reverse()
    used = needed | set(phase.inputs) | {o for op in kept for o in op.outputs}
    number = {old: new for new, old in enumerate(i for i in range(len(program.values)) if i in used)}
    number[-1] = -1
    sources = sorted({s for op in kept for s in op.source})
    source_number = {old: new for new, old in enumerate(sources)}
    ops = tuple(
        replace(
            op,
            inputs=tuple(number[i] for i in op.inputs),
            outputs=tuple(number[o] for o in op.outputs),
            source=tuple(source_number[s] for s in op.source),
        )
        for op in kept
    )
    renumbered = replace(
        phase,
        inputs=tuple(number[i] for i in phase.inputs),
        outputs=tuple(number[o] for o in phase.outputs),
        ops=ops,
    )
    return replace(
        program,
        values=tuple(v for i, v in enumerate(program.values) if i in used),
        phases=(renumbered,),
        sources=tuple(program.sources[s] for s in sources),
    )
