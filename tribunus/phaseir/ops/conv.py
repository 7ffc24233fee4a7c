"""Convolutions and pooling windows.

Imported by: the op table.  Activations are (batch, channels, spatial ...); pads are explicit: all starts, then all
ends.  Transposed convolution weights are (in, out / group, spatial ...).
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
    operand,
    optional,
    require,
    require_equal,
    require_float,
    same_dtype,
)
from tribunus.phaseir.types import TensorType


def window_extent(extent: Dim, kernel: Dim, stride: int, pads: int, dilation: int, ceil_mode: bool) -> Dim:
    """Positions of a window: ``floor((extent + pads - dilation (kernel - 1) - 1) / stride) + 1``, or ceil."""
    span = dims.add(dims.mul(dilation, dims.sub(kernel, 1)), 1)
    room = dims.sub(dims.add(extent, pads), span)
    divide = dims.ceildiv if ceil_mode else dims.floordiv
    return dims.add(divide(room, stride), 1)


def _spatial(kind: str, attributes: Attributes, rank: int) -> tuple[tuple[int, ...], ...]:
    n = rank - 2
    strides, pads, dilations = (
        attributes.integers("strides"),
        attributes.integers("pads"),
        attributes.integers("dilations"),
    )
    require(kind, n >= 1, f"rank {rank} has no spatial axis")
    require(kind, len(strides) == n and len(dilations) == n and len(pads) == 2 * n, "attributes do not fit the rank")
    require(kind, min(strides) > 0 and min(dilations) > 0, "strides and dilations must be positive")
    return strides, pads, dilations


def conv_shape(kind: str, x: TensorType, w: TensorType, attributes: Attributes, scope: DimScope) -> Shape:
    """Shape of a convolution.  Raises TypeRuleError."""
    strides, pads, dilations = _spatial(kind, attributes, x.rank)
    group = attributes.integer("group")
    require(kind, w.rank == x.rank, "weight and activation differ in rank")
    require_equal(kind, "input channels", scope, x.shape[1], dims.mul(w.shape[1], group))
    n = x.rank - 2
    spatial: list[Dim] = []
    for i in range(n):
        extent = window_extent(x.shape[2 + i], w.shape[2 + i], strides[i], pads[i] + pads[n + i], dilations[i], False)
        require(kind, scope.at_least(extent, 0), f"the window is larger than spatial axis {i}")
        spatial.append(extent)
    return (x.shape[0], w.shape[0], *spatial)


def _infer_conv(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, w, b = operand(types, 0, "conv"), operand(types, 1, "conv"), optional(types, 2)
    require_float("conv", x)
    dtype = same_dtype("conv", x, w) if b is None else same_dtype("conv", x, w, b)
    if b is not None:
        require_equal("conv", "bias length", scope, b.shape[0], w.shape[0])
    return (TensorType(dtype, conv_shape("conv", x, w, attributes, scope)),)


def _infer_conv_integer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, w = operand(types, 0, "conv_integer"), operand(types, 1, "conv_integer")
    for t in (x, w):
        require("conv_integer", t.dtype in (DType.I8, DType.U8), "8-bit operands were expected")
    return (TensorType(DType.I32, conv_shape("conv_integer", x, w, attributes, scope)),)


def _infer_transpose(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    kind = "conv_transpose"
    x, w, b = operand(types, 0, kind), operand(types, 1, kind), optional(types, 2)
    require_float(kind, x)
    dtype = same_dtype(kind, x, w) if b is None else same_dtype(kind, x, w, b)
    strides, pads, dilations = _spatial(kind, attributes, x.rank)
    extra, group = attributes.integers("output_padding"), attributes.integer("group")
    require_equal(kind, "input channels", scope, x.shape[1], w.shape[0])
    n = x.rank - 2
    spatial: list[Dim] = []
    for i in range(n):
        reach = dims.add(dims.mul(dilations[i], dims.sub(w.shape[2 + i], 1)), 1)
        start = dims.mul(strides[i], dims.sub(x.shape[2 + i], 1))
        spatial.append(dims.sub(dims.add(dims.add(start, reach), extra[i]), pads[i] + pads[n + i]))
    return (TensorType(dtype, (x.shape[0], dims.mul(w.shape[1], group), *spatial)),)


def _infer_pool(kind: str, types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, kind)
    strides, pads, dilations = _spatial(kind, attributes, x.rank)
    kernel, ceil_mode = attributes.integers("kernel"), attributes.flag("ceil_mode")
    n = x.rank - 2
    require(kind, len(kernel) == n, "kernel does not fit the rank")
    spatial = [
        window_extent(x.shape[2 + i], kernel[i], strides[i], pads[i] + pads[n + i], dilations[i], ceil_mode)
        for i in range(n)
    ]
    return (TensorType(x.dtype, (*x.shape[:2], *spatial)),)


def _infer_max_pool(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return _infer_pool("max_pool", types, attributes, scope)


def _infer_average_pool(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return _infer_pool("average_pool", types, attributes, scope)


def _conv_flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
    """Taps on padding included; floors that must not exceed the useful work subtract them (planning knows how)."""
    w = operand(types, 1, "conv")
    taps = dims.product(w.shape[1:])
    return dims.mul(2, dims.mul(results[0].elements, taps))


def _transpose_flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
    x, w = operand(types, 0, "conv_transpose"), operand(types, 1, "conv_transpose")
    return dims.mul(2, dims.mul(x.elements, dims.product(w.shape[1:])))


def _pool_flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
    return dims.mul(results[0].elements, dims.product(attributes.dims("kernel")))


_CONV: Final = ("strides", "pads", "dilations", "group")
_POOL: Final = ("kernel", "strides", "pads", "dilations", "ceil_mode")

SPECS: Final[tuple[OpSpec, ...]] = (
    # operands: x, w, bias?
    OpSpec("conv", Family.CONV, (2, 3), _CONV, Contract.SUM, _infer_conv, _conv_flops, "ONNX Conv"),
    OpSpec(
        "conv_integer", Family.CONV, (2, 4), _CONV, Contract.EXACT, _infer_conv_integer, _conv_flops, "ONNX ConvInteger"
    ),
    OpSpec(
        "conv_transpose",
        Family.CONV,
        (2, 3),
        (*_CONV, "output_padding"),
        Contract.SUM,
        _infer_transpose,
        _transpose_flops,
        "ONNX ConvTranspose",
    ),
    # padding never wins; NaN in a window gives NaN
    OpSpec("max_pool", Family.POOL, (1, 1), _POOL, Contract.EXACT, _infer_max_pool, _pool_flops, "ONNX MaxPool"),
    OpSpec(
        "average_pool",
        Family.POOL,
        (1, 1),
        (*_POOL, "count_include_pad"),
        Contract.SUM,
        _infer_average_pool,
        _pool_flops,
        "ONNX AveragePool",
    ),
)
