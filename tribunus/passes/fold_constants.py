"""Evaluate what depends on constants alone, where the result is exactly what the op defines.

Imported by: pipeline.
"""

from __future__ import annotations

from typing import Final

from tribunus.passes.evaluator import evaluate_exact
from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Op, Program

MAX_BYTES: Final = 64 << 20
"""Largest constant that folding makes."""
FREE_BYTES: Final = 1 << 16
MAX_GROWTH: Final = 4
"""A result of more than FREE_BYTES may be at most this many times larger than all operands."""


def fold_constants(program: Program, constants: Constants) -> Program:
    """``program`` with exact ops on constants replaced by constants."""
    return rewrite(program, constants, _fold)


def _fold(rewriter: Rewriter, op: Op) -> bool:
    if not op.inputs or len(op.outputs) != 1 or any(v < 0 or not rewriter.is_constant(v) for v in op.inputs):
        return False
    if spec_of(op.kind).family is Family.QUANTIZE or op.outputs[0] in rewriter.kept:
        return False
    result = rewriter.type_of(op.outputs[0])
    if result.quantization is not None or not isinstance(result.nbytes, int):
        return False
    arrays = [a for v in op.inputs if (a := rewriter.array(v)) is not None]
    held = sum(a.nbytes for a in arrays)
    if result.nbytes > min(MAX_BYTES, max(FREE_BYTES, MAX_GROWTH * held)):
        return False
    types = [rewriter.type_of(v) for v in op.inputs]
    found = evaluate_exact(op.kind, arrays, types, op.attributes, result)
    if found is None:
        return False
    return rewriter.put(op.outputs[0], rewriter.constant(found, result.dtype, rewriter.label_of(op.outputs[0])))
