"""Compute equal things once: ops of equal kind, operands and attributes, and constants of equal bytes.

Imported by: pipeline.

Dequantizations stay apart: each reader has its own, so that it can be computed together with its reader.
"""

from __future__ import annotations

from dataclasses import replace

from tribunus.canon import Digest
from tribunus.passes.rewrite import compact
from tribunus.passes.view import kept_values
from tribunus.phaseir.program import Constants, Op, Phase, Program
from tribunus.phaseir.text import attribute_text
from tribunus.phaseir.types import TensorType


def common_subexpressions(program: Program, constants: Constants) -> Program:
    """``program`` in which no two ops of a phase compute the same."""
    same = _equal_constants(program)
    phases = tuple(_merge(program, phase, dict(same)) for phase in program.phases)
    return compact(replace(program, phases=phases))


def _equal_constants(program: Program) -> dict[int, int]:
    """Constant -> the first constant of equal bytes and type."""
    first: dict[tuple[Digest, TensorType], int] = {}
    found: dict[int, int] = {}
    for i, value in enumerate(program.values):
        if value.constant is not None:
            found[i] = first.setdefault((value.constant, value.type), i)
    return found


def _merge(program: Program, phase: Phase, same: dict[int, int]) -> Phase:
    kept = kept_values(program, phase)
    seen: dict[str, Op] = {}
    ops: list[Op] = []
    for op in phase.ops:
        current = replace(op, inputs=tuple(same.get(v, v) for v in op.inputs))
        first = seen.get(_key(current))
        if first is not None and not any(v in kept for v in op.outputs):
            same.update(zip(op.outputs, first.outputs, strict=True))
            continue
        ops.append(current)
        if current.kind != "dequantize_linear":
            seen.setdefault(_key(current), current)
    return replace(phase, ops=tuple(ops))


def _key(op: Op) -> str:
    """Text that is equal for equal computations; numbers are written exactly, so 0 and -0 differ."""
    attributes = ", ".join(f"{name}={attribute_text(value)}" for name, value in op.attributes)
    return f"{op.kind}{op.inputs}{{{attributes}}}"
