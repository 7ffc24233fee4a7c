"""Products of dequantized operands as exact integer products: the same numbers with the scales taken out of the sum.

Imported by: lower.  Imports: candidates, phaseir.

    matmul(dequantize(x, sx, zx), dequantize(w, sw, zw))  ->  dequantize(matmul_integer(x, w, zx, zw), sw) * sx

The sum is exact then, and what is rounded is rounded once behind it.
"""

from __future__ import annotations

from dataclasses import replace

from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.program import Op, Role, Value
from tribunus.phaseir.types import TensorType

_BYTES = (DType.I8, DType.U8)


def with_integer_products(signature: Signature) -> Signature:
    """``signature`` with every product of dequantized bytes rewritten; itself if there is none."""
    program, phase = signature.program, signature.phase
    producers, readers = program.producers(phase), program.consumers(phase)
    values = list(program.values)
    ops: list[Op] = []
    dropped: set[int] = set()
    for op in phase.ops:
        sources = [producers.get(v) for v in op.inputs[:2]]
        found = [phase.ops[s] if s is not None else None for s in sources]
        x, w = (found[0], found[1]) if len(found) == 2 else (None, None)
        if op.kind not in ("matmul", "conv") or x is None or w is None:
            ops.append(op)
            continue
        private = all(readers.get(v) == [phase.ops.index(op)] for v in op.inputs[:2])
        if not private or not _fits(signature, op, x, w):
            ops.append(op)
            continue
        dropped.update(phase.ops.index(o) for o in (x, w))
        result = signature.type_of(op.outputs[0])
        exact = len(values)
        values.append(Value(TensorType(DType.I32, result.shape), Role.TEMP))
        values.append(Value(TensorType(DType.F32, result.shape), Role.TEMP))
        zeros = [o.inputs[2] if len(o.inputs) > 2 else -1 for o in (x, w)]
        ops.append(Op(f"{op.kind}_integer", (x.inputs[0], w.inputs[0], *zeros), (exact,), op.attributes))
        axis = result.rank - 1 if op.kind == "matmul" else 1
        many = signature.type_of(w.inputs[1]).elements != 1
        attributes = Attributes.of({"axis": axis if many else -1})
        ops.append(Op("dequantize_linear", (exact, w.inputs[1]), (exact + 1,), attributes))
        biased = len(op.inputs) > 2 and op.inputs[2] >= 0
        scaled = op.outputs[0]
        if biased:
            scaled = len(values)
            values.append(Value(TensorType(DType.F32, result.shape), Role.TEMP))
        ops.append(Op("mul", (exact + 1, x.inputs[1]), (scaled,)))
        if biased:
            ops += _bias(signature, op, scaled, values)
    if not dropped:
        return signature
    gone = {id(phase.ops[i]) for i in dropped}
    kept = tuple(op for op in ops if id(op) not in gone)
    changed = replace(program, values=tuple(values), phases=(replace(phase, ops=kept),))
    return Signature(changed, signature.policy, signature.constants)


def _bias(signature: Signature, op: Op, scaled: int, values: list[Value]) -> list[Op]:
    """The bias of a convolution behind its sum, as a column over the spatial axes."""
    bias = op.inputs[2]
    result = signature.type_of(op.outputs[0])
    shape = (result.shape[1], *([1] * (result.rank - 2)))
    values.append(Value(TensorType(DType.F32, shape), Role.TEMP))
    column = len(values) - 1
    reshape = Op("reshape", (bias,), (column,), Attributes.of({"shape": shape}))
    return [reshape, Op("add", (scaled, column), op.outputs)]


def _fits(signature: Signature, op: Op, x: Op, w: Op) -> bool:
    for source in (x, w):
        if source.kind != "dequantize_linear" or signature.type_of(source.inputs[0]).dtype not in _BYTES:
            return False
    if signature.type_of(op.outputs[0]).dtype is not DType.F32 or signature.type_of(x.inputs[1]).elements != 1:
        return False
    if len(x.inputs) > 2 and x.inputs[2] >= 0 and signature.type_of(x.inputs[2]).elements != 1:
        return False
    vectors = [v for v in w.inputs[1:] if v >= 0 and signature.type_of(v).elements != 1]
    if not vectors:
        return True
    rank, axis = signature.type_of(w.inputs[0]).rank, w.attributes.integer("axis")
    return axis == (0 if op.kind == "conv" else rank - 1) and (op.kind == "conv" or rank == 2)
