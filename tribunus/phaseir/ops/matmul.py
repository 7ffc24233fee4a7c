"""Matrix products.

Imported by: the op table.  Leading axes broadcast; rank 1 operands follow NumPy's matmul.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Dim, DimScope, Shape
from tribunus.phaseir.ops.spec import (
    Contract,
    Family,
    OpSpec,
    Types,
    broadcast,
    operand,
    require,
    require_equal,
    require_float,
    same_dtype,
)
from tribunus.phaseir.types import TensorType


def product_shape(kind: str, a: TensorType, b: TensorType, scope: DimScope) -> Shape:
    """Shape of ``a @ b``.  Raises TypeRuleError."""
    require(kind, a.rank >= 1 and b.rank >= 1, "operands must have an axis")
    left = a.shape if a.rank > 1 else (1, *a.shape)
    right = b.shape if b.rank > 1 else (*b.shape, 1)
    require_equal(kind, "inner extents", scope, left[-1], right[-2])
    shape = broadcast(kind, scope, left[:-2], right[:-2]) if max(len(left), len(right)) > 2 else ()
    rows: Shape = (left[-2],) if a.rank > 1 else ()
    columns: Shape = (right[-1],) if b.rank > 1 else ()
    return (*shape, *rows, *columns)


def _infer_matmul(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    a, b = operand(types, 0, "matmul"), operand(types, 1, "matmul")
    require_float("matmul", a)
    return (TensorType(same_dtype("matmul", a, b), product_shape("matmul", a, b, scope)),)


def _infer_integer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    a, b = operand(types, 0, "matmul_integer"), operand(types, 1, "matmul_integer")
    for t in (a, b):
        require("matmul_integer", t.dtype in (DType.I8, DType.U8), "8-bit operands were expected")
    return (TensorType(DType.I32, product_shape("matmul_integer", a, b, scope)),)


def _flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
    inner = operand(types, 0, "matmul").shape[-1]
    return dims.mul(2, dims.mul(results[0].elements, inner))


SPECS: Final[tuple[OpSpec, ...]] = (
    OpSpec("matmul", Family.MATMUL, (2, 2), (), Contract.SUM, _infer_matmul, _flops, "ONNX MatMul"),
    # operands: a, b, a_zero_point?, b_zero_point?; exact in int32
    OpSpec("matmul_integer", Family.MATMUL, (2, 4), (), Contract.EXACT, _infer_integer, _flops, "ONNX MatMulInteger"),
)
