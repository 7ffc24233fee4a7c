"""Canonical signatures: one of each kind of work, small.

Imported by: the tests beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tests.faults.subjects import gemm, int8_product, layer_norm, quantize, relu, softmax
from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.attributes import Attributes, AttributeValue
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.program import Constants, Op, Phase, Program, ProgramBuilder, Role, Value
from tribunus.phaseir.types import TensorType


def _signature(builder: ProgramBuilder, label: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Signature:
    return Signature(builder.finish(label, inputs, outputs), ComputePolicy.FP32, builder.constants)


def convolution() -> Signature:
    """3x3, padded, with bias and relu."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (1, 8, 12, 13)), "")
    w = builder.weight(TensorType(DType.F32, (16, 8, 3, 3)))
    bias = builder.weight(TensorType(DType.F32, (16,)))
    window: dict[str, AttributeValue] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    (y,) = builder.op("conv", (x, w, bias), Attributes.of(window))
    (z,) = builder.op("relu", (y,))
    return _signature(builder, "conv+relu", (x,), (z,))


def pooling() -> Signature:
    """Largest of 2x2."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (1, 8, 12, 14)), "")
    window: dict[str, AttributeValue] = {
        "kernel": (2, 2),
        "strides": (2, 2),
        "pads": (0, 0, 0, 0),
        "dilations": (1, 1),
        "ceil_mode": 0,
    }
    (y,) = builder.op("max_pool", (x,), Attributes.of(window))
    return _signature(builder, "max_pool", (x,), (y,))


def mean() -> Signature:
    """Mean over the last axis."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (6, 9, 40)), "")
    (y,) = builder.op("reduce_mean", (x,), Attributes.of({"axes": (2,), "keepdims": 1}))
    return _signature(builder, "reduce_mean", (x,), (y,))


def transposition() -> Signature:
    """Axes moved."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (5, 7, 11)), "")
    (y,) = builder.op("transpose", (x,), Attributes.of({"perm": (2, 0, 1)}))
    return _signature(builder, "transpose", (x,), (y,))


def rows() -> Signature:
    """Rows of a table by index."""
    builder = ProgramBuilder(Constants())
    table = builder.weight(TensorType(DType.F32, (19, 8)))
    index = builder.input(TensorType(DType.I64, (6,)), "")
    (y,) = builder.op("gather", (table, index), Attributes.of({"axis": 0}))
    return _signature(builder, "gather", (index,), (y,))


def gelu() -> Signature:
    """A chain of elementwise ops with numbers inside."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (9, 65)), "")
    root, one, half = (builder.constant(np.array(v, np.float32), DType.F32) for v in (0.70710677, 1.0, 0.5))
    (scaled,) = builder.op("mul", (x, root))
    (bent,) = builder.op("erf", (scaled,))
    (raised,) = builder.op("add", (bent, one))
    (product,) = builder.op("mul", (x, raised))
    (y,) = builder.op("mul", (product, half))
    return _signature(builder, "gelu", (x,), (y,))


def residual() -> Signature:
    """Two inputs of one shape, whose first dim is a range."""
    builder = ProgramBuilder(Constants(), (Symbol("d0", "rows", 1, 6, 9),))
    a, b = (builder.input(TensorType(DType.F32, (Sym("d0"), 33)), "") for _ in range(2))
    (y,) = builder.op("add", (a, b))
    return _signature(builder, "add", (a, b), (y,))


def bytes_product() -> Signature:
    """Bytes times bytes, back to bytes; scales and zero points are operands."""
    builder = ProgramBuilder(Constants())
    x, w = builder.input(TensorType(DType.U8, (7, 64)), ""), builder.weight(TensorType(DType.I8, (64, 33)))
    scale, zero = TensorType(DType.F32, ()), TensorType(DType.U8, ())
    whole = Attributes.of({"axis": -1})
    (left,) = builder.op("dequantize_linear", (x, builder.weight(scale), builder.weight(zero)), whole)
    columns = builder.weight(TensorType(DType.F32, (33,)))
    (right,) = builder.op("dequantize_linear", (w, columns), Attributes.of({"axis": 1}))
    (product,) = builder.op("matmul", (left, right))
    operands = (product, builder.weight(scale), builder.weight(zero))
    (y,) = builder.op("quantize_linear", operands, Attributes.of({"axis": -1, "to": "u8"}))
    return _signature(builder, "qdq_matmul+quantize", (x,), (y,))


CANONICAL: Final[dict[str, Callable[[], Signature]]] = {
    "gemm": lambda: gemm(13, 37, 40).signature,
    "gemm-range": lambda: gemm(Symbol("d0", "rows", 1, 12, 33), 24, 40).signature,
    "conv": convolution,
    "max_pool": pooling,
    "softmax": lambda: softmax(6, 65).signature,
    "layer_norm": lambda: layer_norm(6, 64, 1e-5).signature,
    "relu": lambda: relu(7, 33).signature,
    "residual-range": residual,
    "gelu": gelu,
    "mean": mean,
    "transpose": transposition,
    "gather": rows,
    "quantize": lambda: quantize(300).signature,
    "int8": lambda: int8_product(7, 64, 33).signature,
    "bytes": bytes_product,
}


def unknown() -> Signature:
    """An op that nobody has heard of."""
    type_ = TensorType(DType.F32, (4, 4))
    values = (Value(type_, Role.INPUT), Value(type_, Role.TEMP))
    phase = Phase("frobnicate", (0,), (1,), (Op("frobnicate", (0,), (1,)),))
    return Signature(Program(values, (phase,)), ComputePolicy.FP32, Constants())


def foreign_policy() -> Signature:
    """A policy of other hardware."""
    known = relu(7, 33).signature
    return Signature(known.program, ComputePolicy.TF32, known.constants)
