"""Move reshapes and transpositions below elementwise ops: ``f(move(x)) = move(f(x))``.

Imported by: pipeline, keep_reduced_axes.

Movement that meets its inverse disappears, two movements become one, and what computes stands beside what computes.
Only values that nothing but elementwise ops and further movement reads are moved, so that no op gains a reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Shape
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Op, Program
from tribunus.phaseir.types import TensorType

_MOVES: Final = ("reshape", "transpose")
_COMPUTING: Final = frozenset((Family.ELEMENTWISE, Family.REDUCE, Family.MATMUL, Family.CONV, Family.NORMALIZE))


def sink_movement(program: Program, constants: Constants) -> Program:
    """``program`` with reshapes and transpositions below the elementwise ops that read them."""
    readers = only_elementwise_readers(program)

    def rule(rewriter: Rewriter, op: Op) -> bool:
        if spec_of(op.kind).family is not Family.ELEMENTWISE or len(op.outputs) != 1:
            return False
        moved = [v for v in op.inputs if not rewriter.is_constant(v)]
        if any(v in rewriter.kept or v not in readers for v in moved):
            return False
        moves = [m for v in moved if (m := rewriter.producer(v)) is not None and m.kind in _MOVES]
        if not moves or len(moves) != len(moved) or not _alike(rewriter, moves):
            return False
        if not any(_is_computed(rewriter, m.inputs[0]) for m in moves):
            return False
        inner = _before(rewriter, op, moves[0])
        if inner is None:
            return False
        if not rule(rewriter, inner):
            rewriter.keep(inner)
        shape = Attributes.of({"shape": rewriter.type_of(op.outputs[0]).shape})
        attributes = moves[0].attributes if moves[0].kind == "transpose" else shape
        rewriter.keep(Op(moves[0].kind, inner.outputs, op.outputs, attributes, op.source))
        return True

    return rewrite(program, constants, rule)


def _is_computed(rewriter: Rewriter, value: int) -> bool:
    """Whether something that computes stands above, so that there is company to move to."""
    op = rewriter.producer(value)
    while op is not None and op.kind in _MOVES:
        op = rewriter.producer(op.inputs[0])
    return op is not None and spec_of(op.kind).family in _COMPUTING


def only_elementwise_readers(program: Program) -> frozenset[int]:
    """Values that some op reads, and only elementwise ops and movement do."""
    good: set[int] = set()
    bad: set[int] = set()
    for phase in program.phases:
        for op in phase.ops:
            fits = spec_of(op.kind).family is Family.ELEMENTWISE or op.kind in _MOVES
            (good if fits else bad).update(op.inputs)
    return frozenset(good - bad)


def _alike(rewriter: Rewriter, moves: Sequence[Op]) -> bool:
    """Whether all do the same to tensors of one shape."""
    first = moves[0]
    shape, result = rewriter.type_of(first.inputs[0]).shape, rewriter.type_of(first.outputs[0]).shape
    return all(
        m.kind == first.kind
        and m.attributes == first.attributes
        and rewriter.type_of(m.inputs[0]).shape == shape
        and rewriter.type_of(m.outputs[0]).shape == result
        for m in moves
    )


def _before(rewriter: Rewriter, op: Op, move: Op) -> Op | None:
    """``op`` on what was moved, with a new result; None where a constant operand cannot follow."""
    source, moved = rewriter.type_of(move.inputs[0]).shape, rewriter.type_of(move.outputs[0]).shape
    result = rewriter.type_of(op.outputs[0])
    if result.shape != moved or result.quantization is not None:
        return None
    inputs: list[int] = []
    for value in op.inputs:
        before = rewriter.producer(value)
        operand = _moved_back(rewriter, value, source, moved, move) if before is None else before.inputs[0]
        if operand is None:
            return None
        inputs.append(operand)
    return Op(op.kind, tuple(inputs), (rewriter.temp(TensorType(result.dtype, source)),), op.attributes, op.source)


def _moved_back(rewriter: Rewriter, value: int, source: Shape, moved: Shape, move: Op) -> int | None:
    """A constant operand as it must be before the movement; None where that would store more than its own elements."""
    type_ = rewriter.type_of(value)
    if all(d == 1 for d in type_.shape) and type_.rank <= len(source):
        return value
    array = rewriter.array(value)
    if array is None or type_.rank > len(moved):
        return None
    full = (1,) * (len(moved) - type_.rank) + array.shape
    if move.kind == "transpose":
        perm = move.attributes.integers("perm")
        inverse = tuple(perm.index(axis) for axis in range(len(perm)))
        return rewriter.constant(array.reshape(full).transpose(inverse), type_.dtype)
    if [d for d in source if d != 1] != [d for d in moved if d != 1]:
        return None
    extents = iter(extent for extent, d in zip(full, moved, strict=True) if d != 1)
    shape = tuple(1 if d == 1 else next(extents) for d in source)
    return rewriter.constant(array.reshape(shape), type_.dtype)
