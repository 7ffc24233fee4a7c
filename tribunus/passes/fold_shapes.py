"""Turn generated tensors of known extents into constants: extents, index ranges, fills.

Imported by: pipeline.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.program import Array, Constants, Op, Program

MAX_BYTES: Final = 1 << 20
"""Larger index ranges and fills stay ops: generating them is cheaper than storing them."""
_FILLABLE: Final = frozenset(
    (DType.F64, DType.F32, DType.F16, DType.BOOL, *(d for d in DType if d.is_integer and d.bits >= 8))
)


def fold_shapes(program: Program, constants: Constants) -> Program:
    """``program`` with small static ``extents``, ``iota`` and ``fill`` replaced by constants."""
    return rewrite(program, constants, _fold)


def _fold(rewriter: Rewriter, op: Op) -> bool:
    if op.kind not in ("extents", "iota", "fill") or op.outputs[0] in rewriter.kept:
        return False
    result = rewriter.type_of(op.outputs[0])
    if not isinstance(result.nbytes, int) or result.nbytes > MAX_BYTES or result.dtype not in _FILLABLE:
        return False
    array = _generate(op, result.numbers(), result.dtype)
    if array is None:
        return False
    return rewriter.put(op.outputs[0], rewriter.constant(array, result.dtype, rewriter.label_of(op.outputs[0])))


def _generate(op: Op, shape: tuple[int, ...], dtype: DType) -> Array | None:
    if op.kind == "extents":
        values = op.attributes.dims("values")
        if not dims.is_static(values):
            return None
        return np.array(dims.evaluate_shape(values, {}), dtype=dtype.numpy).reshape(shape)
    if op.kind == "fill":
        value = op.attributes.get("value")
        number = value.value if isinstance(value, F32) else op.attributes.integer("value")
        return np.full(shape, number, dtype=dtype.numpy)
    start, step = op.attributes.integer("start"), op.attributes.integer("step")
    axis = op.attributes.integer("axis")
    if not shape:
        return None
    line = np.array([start + step * i for i in range(shape[axis])], dtype=object).astype(dtype.numpy)
    return np.broadcast_to(line.reshape((-1, *(1,) * (len(shape) - axis - 1))), shape)
