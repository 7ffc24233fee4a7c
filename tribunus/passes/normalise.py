"""Data movement in its shortest form: what moves nothing goes, chains of one kind become one op.

Imported by: pipeline.
"""

from __future__ import annotations

from tribunus.errors import LoweringError
from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Op, Program
from tribunus.phaseir.types import TensorType


def normalise(program: Program, constants: Constants) -> Program:
    """``program`` with data movement in its shortest form."""
    return rewrite(program, constants, _normalise)


def _normalise(rewriter: Rewriter, op: Op) -> bool:
    if spec_of(op.kind).family is Family.ELEMENTWISE and len(op.inputs) > 1:
        return _without_expansion(rewriter, op)
    if spec_of(op.kind).family is Family.ELEMENTWISE and _before_expansion(rewriter, op):
        return True
    if len(op.outputs) != 1 or not op.inputs:
        return False
    if _moves_nothing(rewriter, op) and rewriter.put(op.outputs[0], op.inputs[0]):
        return True
    if op.kind in ("reshape", "transpose") and _before_dequantization(rewriter, op):
        return True
    if op.kind == "reshape":
        return _merge_reshape(rewriter, op)
    if op.kind == "transpose":
        return _merge_transpose(rewriter, op) or _as_reshape(rewriter, op)
    if op.kind == "expand":
        return _as_reshape(rewriter, op)
    if op.kind == "slice":
        return _merge_slice(rewriter, op)
    return False


def _moves_nothing(rewriter: Rewriter, op: Op) -> bool:
    """Whether an op whose result has the type of its operand gives that operand."""
    attributes, source = op.attributes, rewriter.type_of(op.inputs[0])
    if op.kind in ("copy", "expand", "tile"):
        return True
    if op.kind == "reshape":
        return source.rank == rewriter.type_of(op.outputs[0]).rank
    if op.kind == "concat":
        return len(op.inputs) == 1
    if op.kind == "cast":
        return attributes.dtype("to") is source.dtype
    if op.kind == "transpose":
        return attributes.integers("perm") == tuple(range(source.rank))
    if op.kind == "slice":
        forward = all(step == 1 for step in attributes.integers("steps"))
        return forward and all(start == 0 for start in attributes.dims("starts"))
    if op.kind == "pad":
        return all(d == 0 for name in ("before", "after") for d in attributes.dims(name))
    return False


def _merge_reshape(rewriter: Rewriter, op: Op) -> bool:
    before = rewriter.producer(op.inputs[0])
    if before is None or before.kind != "reshape":
        return False
    merged = Op("reshape", before.inputs, op.outputs, op.attributes, tuple(dict.fromkeys((*before.source, *op.source))))
    return _keep_if_typed(rewriter, merged)


def _merge_transpose(rewriter: Rewriter, op: Op) -> bool:
    before = rewriter.producer(op.inputs[0])
    if before is None or before.kind != "transpose":
        return False
    inner = before.attributes.integers("perm")
    perm = tuple(inner[p] for p in op.attributes.integers("perm"))
    source = tuple(dict.fromkeys((*before.source, *op.source)))
    if perm == tuple(range(len(perm))) and rewriter.put(op.outputs[0], before.inputs[0]):
        return True
    return _keep_if_typed(rewriter, Op("transpose", before.inputs, op.outputs, Attributes.of({"perm": perm}), source))


def _merge_slice(rewriter: Rewriter, op: Op) -> bool:
    before = rewriter.producer(op.inputs[0])
    if before is None or before.kind != "slice":
        return False
    steps, inner = op.attributes.integers("steps"), before.attributes.integers("steps")
    pairs = zip(before.attributes.dims("starts"), op.attributes.dims("starts"), inner, strict=True)
    merged = Attributes.of(
        {
            "starts": tuple(dims.add(first, dims.mul(second, step)) for first, second, step in pairs),
            "sizes": op.attributes.dims("sizes"),
            "steps": tuple(a * b for a, b in zip(steps, inner, strict=True)),
        }
    )
    source = tuple(dict.fromkeys((*before.source, *op.source)))
    return _keep_if_typed(rewriter, Op("slice", before.inputs, op.outputs, merged, source))


def _as_reshape(rewriter: Rewriter, op: Op) -> bool:
    """A transposition that moves only extents of 1, or an expansion that only adds such, is a reshape."""
    source, result = rewriter.type_of(op.inputs[0]), rewriter.type_of(op.outputs[0])
    if op.kind == "transpose":
        moved = [p for p in op.attributes.integers("perm") if source.shape[p] != 1]
        if moved != sorted(moved):
            return False
    elif not _same_elements(source, result):
        return False
    shape = Attributes.of({"shape": result.shape})
    return _keep_if_typed(rewriter, Op("reshape", op.inputs, op.outputs, shape, op.source))


def _same_elements(source: TensorType, result: TensorType) -> bool:
    extra = result.rank - source.rank
    return all(d == 1 for d in result.shape[:extra]) and source.shape == result.shape[extra:]


def _without_expansion(rewriter: Rewriter, op: Op) -> bool:
    """An elementwise op broadcasts by itself: it may read what was expanded for it."""
    inputs: list[int] = []
    for value in op.inputs:
        before = None if value < 0 else rewriter.producer(value)
        inputs.append(before.inputs[0] if before is not None and before.kind == "expand" else value)
    if tuple(inputs) == op.inputs:
        return False
    return _keep_if_typed(rewriter, Op(op.kind, tuple(inputs), op.outputs, op.attributes, op.source))


def _before_expansion(rewriter: Rewriter, op: Op) -> bool:
    """A function of an expanded tensor is the expanded function of the tensor."""
    before = rewriter.producer(op.inputs[0])
    if before is None or before.kind != "expand":
        return False
    small = rewriter.emit(op.kind, before.inputs, op.attributes, op.source)
    rewriter.keep(Op("expand", (small,), op.outputs, before.attributes, before.source))
    return True


def _before_dequantization(rewriter: Rewriter, op: Op) -> bool:
    """Integers are moved before they are dequantized: they are smaller, and the reader sees the dequantization."""
    before = rewriter.producer(op.inputs[0])
    if before is None or before.kind != "dequantize_linear":
        return False
    axis = before.attributes.integer("axis")
    if op.kind == "transpose" and axis >= 0:
        axis = op.attributes.integers("perm").index(axis)
    elif axis >= 0:
        return False
    moved = rewriter.emit(op.kind, before.inputs[:1], op.attributes, op.source)
    attributes = Attributes.of({"axis": axis})
    rewriter.keep(Op("dequantize_linear", (moved, *before.inputs[1:]), op.outputs, attributes, before.source))
    return True


def _keep_if_typed(rewriter: Rewriter, op: Op) -> bool:
    try:
        fits = rewriter.infers(op)
    except LoweringError:
        return False
    if fits:
        rewriter.keep(op)
    return fits
