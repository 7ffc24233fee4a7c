"""Quantization ops.

Imported by: the op table.  ``axis`` is -1 for one scale a tensor; scales and zero points are operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import DimScope
from tribunus.phaseir.ops.spec import Contract, Family, OpSpec, Types, operand, optional, per_element, require
from tribunus.phaseir.types import Quantization, TensorType


def _structure(attributes: Attributes, zero_point: TensorType | None) -> Quantization:
    axis = attributes.integer("axis")
    return Quantization(None if axis < 0 else axis, None, zero_point is None)


def _infer_quantize(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "quantize_linear")
    to = attributes.dtype("to")
    require("quantize_linear", to.is_integer, f"{to} results are not defined")
    return (TensorType(to, x.shape, _structure(attributes, optional(types, 2))),)


def _infer_dequantize(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, scale = operand(types, 0, "dequantize_linear"), operand(types, 1, "dequantize_linear")
    require("dequantize_linear", x.dtype.is_integer, f"{x.dtype} operands are not defined")
    return (TensorType(scale.dtype, x.shape),)


def _infer_dynamic(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "dynamic_quantize_linear")
    results: Sequence[TensorType] = (
        TensorType(DType.U8, x.shape, Quantization(None, None, False)),
        TensorType(DType.F32, ()),
        TensorType(DType.U8, ()),
    )
    return tuple(results)


SPECS: Final[tuple[OpSpec, ...]] = (
    # operands: x, scale, zero_point?; clip(round_half_even(x / scale) + zero_point)
    OpSpec(
        "quantize_linear",
        Family.QUANTIZE,
        (2, 3),
        ("axis", "to"),
        Contract.DISCRETE,
        _infer_quantize,
        per_element(4),
        "ONNX QuantizeLinear",
    ),
    # operands: x, scale, zero_point?; (x - zero_point) * scale
    OpSpec(
        "dequantize_linear",
        Family.QUANTIZE,
        (2, 3),
        ("axis",),
        Contract.ROUNDED,
        _infer_dequantize,
        per_element(2),
        "ONNX DequantizeLinear",
    ),
    OpSpec(
        "dynamic_quantize_linear",
        Family.QUANTIZE,
        (1, 1),
        (),
        Contract.DISCRETE,
        _infer_dynamic,
        per_element(6),
        "ONNX DynamicQuantizeLinear",
    ),
)
