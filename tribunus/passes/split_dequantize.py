"""Give each reader of a dequantized value a dequantization of its own.

Imported by: pipeline.

Dequantizing is exact to one rounding and cheap; a matrix product that has its own can work on the integers.
"""

from __future__ import annotations

from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.phaseir.program import Constants, Op, Program


def split_dequantize(program: Program, constants: Constants) -> Program:
    """``program`` in which no dequantized value has two readers."""
    claimed: set[int] = set()

    def rule(rewriter: Rewriter, op: Op) -> bool:
        inputs: dict[int, int] = {}
        for value in dict.fromkeys(op.inputs):
            before = None if value < 0 else rewriter.producer(value)
            if before is None or before.kind != "dequantize_linear":
                continue
            if value in claimed:
                inputs[value] = rewriter.emit("dequantize_linear", before.inputs, before.attributes, before.source)
            claimed.add(value)
        if not inputs:
            return False
        rewriter.keep(Op(op.kind, tuple(inputs.get(v, v) for v in op.inputs), op.outputs, op.attributes, op.source))
        return True

    return rewrite(program, constants, rule)
