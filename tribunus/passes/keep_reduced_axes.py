"""Reductions keep their axes with extent 1; dropping them is a reshape after.

Imported by: pipeline.

What follows elementwise then broadcasts by itself, and patterns see one spelling.
"""

from __future__ import annotations

from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.passes.sink_movement import only_elementwise_readers
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Op, Program


def keep_reduced_axes(program: Program, constants: Constants) -> Program:
    """``program`` in which reductions that feed elementwise ops keep their axes."""
    readers = only_elementwise_readers(program)

    def rule(rewriter: Rewriter, op: Op) -> bool:
        if spec_of(op.kind).family is not Family.REDUCE or op.kind == "cumsum" or op.attributes.flag("keepdims"):
            return False
        result = op.outputs[0]
        if result in rewriter.kept or result not in readers:
            return False
        attributes = Attributes.of({"axes": op.attributes.integers("axes"), "keepdims": 1})
        whole = rewriter.emit(op.kind, op.inputs, attributes, op.source)
        shape = Attributes.of({"shape": rewriter.type_of(result).shape})
        rewriter.keep(Op("reshape", (whole,), op.outputs, shape, op.source))
        return True

    return rewrite(program, constants, rule)
