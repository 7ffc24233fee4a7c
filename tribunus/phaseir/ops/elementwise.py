"""Elementwise ops, comparisons, selection and casts.

Imported by: the op table.  Operands broadcast against each other from the last axis.
"""

from __future__ import annotations

from typing import Final

from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import DimScope
from tribunus.phaseir.ops.spec import (
    TRANSCENDENTAL_WEIGHT,
    Contract,
    Family,
    OpSpec,
    Types,
    broadcast,
    operand,
    per_element,
    require,
    require_float,
    same_dtype,
)
from tribunus.phaseir.types import TensorType

_ONNX: Final = "ONNX operator definitions"


def _unary(kind: str, types: Types, floats_only: bool) -> tuple[TensorType, ...]:
    x = operand(types, 0, kind)
    if floats_only:
        require_float(kind, x)
    else:
        require(kind, x.dtype is not DType.BOOL, "bool operands are not defined")
    return (TensorType(x.dtype, x.shape),)


def _unary_spec(
    kind: str, contract: Contract, weight: int, *, floats_only: bool, names: tuple[str, ...] = ()
) -> OpSpec:
    def infer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
        return _unary(kind, types, floats_only)

    return OpSpec(kind, Family.ELEMENTWISE, (1, 1), names, contract, infer, per_element(weight), _ONNX)


def _binary_spec(kind: str, contract: Contract, weight: int) -> OpSpec:
    def infer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
        a, b = operand(types, 0, kind), operand(types, 1, kind)
        dtype = same_dtype(kind, a, b)
        require(kind, dtype is not DType.BOOL, "bool operands are not defined")
        return (TensorType(dtype, broadcast(kind, scope, a.shape, b.shape)),)

    return OpSpec(kind, Family.ELEMENTWISE, (2, 2), (), contract, infer, per_element(weight), _ONNX)


def _compare_spec(kind: str) -> OpSpec:
    def infer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
        a, b = operand(types, 0, kind), operand(types, 1, kind)
        same_dtype(kind, a, b)
        return (TensorType(DType.BOOL, broadcast(kind, scope, a.shape, b.shape)),)

    return OpSpec(kind, Family.ELEMENTWISE, (2, 2), (), Contract.EXACT, infer, per_element(1), _ONNX)


def _logic_spec(kind: str, operands: int) -> OpSpec:
    def infer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
        found = [operand(types, i, kind) for i in range(operands)]
        require(kind, same_dtype(kind, *found) is DType.BOOL, "bool operands were expected")
        return (TensorType(DType.BOOL, broadcast(kind, scope, *(t.shape for t in found))),)

    return OpSpec(kind, Family.ELEMENTWISE, (operands, operands), (), Contract.EXACT, infer, per_element(1), _ONNX)


def _infer_where(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    condition, a, b = (operand(types, i, "where") for i in range(3))
    require("where", condition.dtype is DType.BOOL, "the condition must be bool")
    dtype = same_dtype("where", a, b)
    return (TensorType(dtype, broadcast("where", scope, condition.shape, a.shape, b.shape)),)


def _infer_cast(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return (TensorType(attributes.dtype("to"), operand(types, 0, "cast").shape),)


def _infer_is_nan(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "is_nan")
    require_float("is_nan", x)
    return (TensorType(DType.BOOL, x.shape),)


_T: Final = TRANSCENDENTAL_WEIGHT

SPECS: Final[tuple[OpSpec, ...]] = (
    *(_unary_spec(k, Contract.EXACT, 1, floats_only=False) for k in ("abs", "neg", "sign", "relu")),
    *(_unary_spec(k, Contract.EXACT, 1, floats_only=True) for k in ("floor", "ceil", "round")),
    *(_unary_spec(k, Contract.RUNNING, 4, floats_only=True) for k in ("sqrt", "reciprocal")),
    *(
        _unary_spec(k, Contract.RUNNING, _T, floats_only=True)
        for k in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos")
    ),
    # x if x >= 0 else alpha * x
    _unary_spec("leaky_relu", Contract.RUNNING, 2, floats_only=True, names=("alpha",)),
    # max(0, min(1, alpha * x + beta))
    _unary_spec("hard_sigmoid", Contract.RUNNING, 3, floats_only=True, names=("alpha", "beta")),
    *(_binary_spec(k, Contract.ROUNDED, 1) for k in ("add", "sub", "mul")),
    _binary_spec("div", Contract.RUNNING, 4),
    _binary_spec("pow", Contract.RUNNING, 2 * _T),
    # NaN in either operand gives NaN
    *(_binary_spec(k, Contract.EXACT, 1) for k in ("minimum", "maximum")),
    *(_compare_spec(k) for k in ("equal", "less", "less_equal", "greater", "greater_equal")),
    *(_logic_spec(k, 2) for k in ("and", "or", "xor")),
    _logic_spec("not", 1),
    OpSpec("where", Family.ELEMENTWISE, (3, 3), (), Contract.EXACT, _infer_where, per_element(1), _ONNX),
    # to: dtype name.  Float to integer truncates toward zero; f8 saturates.
    OpSpec("cast", Family.ELEMENTWISE, (1, 1), ("to",), Contract.EXACT, _infer_cast, per_element(1), _ONNX),
    OpSpec("is_nan", Family.ELEMENTWISE, (1, 1), (), Contract.EXACT, _infer_is_nan, per_element(1), _ONNX),
)
