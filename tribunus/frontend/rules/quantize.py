"""Rules: quantization.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.element_types import dtype_of
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site
from tribunus.numerics.dtypes import DType


def _structure(to: Lowering, site: Site) -> tuple[Operand, Operand | None, int]:
    """Scale, zero point and axis; one scale for the tensor has rank 0 and axis -1."""
    x, scale, zero_point = site.x(0), site.x(1), site.optional(2)
    axis = site.integer("axis", 1)
    if site.integer("block_size", 0):
        raise LoweringError("scales of blocks are not supported")
    if scale.rank == 1 and scale.shape != (1,):
        return scale, zero_point, to.axis(axis, x.rank)
    if scale.rank > 1:
        raise LoweringError(f"a scale of rank {scale.rank} is not supported")
    return to.reshape(scale, ()), None if zero_point is None else to.reshape(zero_point, ()), -1


def _quantize(to: Lowering, site: Site) -> Outputs:
    x = site.x(0)
    scale, zero_point, axis = _structure(to, site)
    dtype = DType.U8 if zero_point is None else zero_point.dtype
    if site.integer("output_dtype", 0):
        dtype = dtype_of(site.integer("output_dtype", 0), "the result")
    if x.dtype is not scale.dtype:
        raise LoweringError(f"operand {x.dtype} and scale {scale.dtype} differ in dtype")
    operands = [x, scale] if zero_point is None else [x, scale, zero_point]
    return to.emit("quantize_linear", operands, {"axis": axis, "to": dtype.value})


def _dequantize(to: Lowering, site: Site) -> Outputs:
    scale, zero_point, axis = _structure(to, site)
    operands = [site.x(0), scale] if zero_point is None else [site.x(0), scale, zero_point]
    return to.emit("dequantize_linear", operands, {"axis": axis})


def _dynamic(to: Lowering, site: Site) -> Outputs:
    return to.emit("dynamic_quantize_linear", [site.x()])


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {"QuantizeLinear": _quantize, "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic}
)
