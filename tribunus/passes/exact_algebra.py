"""Identities of arithmetic that hold for every bit pattern but the payload of NaN.

Imported by: pipeline.

Not here, because they are false: ``x + 0`` for x = -0 (``x + -0`` is), ``x * 0``, ``(x * a) * b``, ``pow(x, 0.5)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.passes.rewrite import Rewriter, rewrite
from tribunus.phaseir.program import Array, Constants, Op, Program

_COMMUTATIVE: Final = frozenset(("add", "mul", "minimum", "maximum", "equal", "and", "or", "xor"))
_WITH_NUMBER: Final = frozenset(("add", "sub", "mul", "div", "pow", "minimum", "maximum"))
_CENTRED: Final = {"dequantize_linear": 2, "matmul_integer": 2, "conv_integer": 2}
"""Position of the first zero point of what subtracts it."""
_INVOLUTIONS: Final = frozenset(("neg", "not"))
_IDEMPOTENT: Final = frozenset(("relu", "abs", "floor", "ceil", "round"))


def exact_algebra(program: Program, constants: Constants) -> Program:
    """``program`` with neutral elements dropped, constants as second factors, squares as products."""
    return rewrite(program, constants, _simplify)


def _simplify(rewriter: Rewriter, op: Op) -> bool:
    if op.kind in _COMMUTATIVE and rewriter.is_constant(op.inputs[0]) and not rewriter.is_constant(op.inputs[1]):
        op = Op(op.kind, (op.inputs[1], op.inputs[0]), op.outputs, op.attributes, op.source)
        if not _simplify(rewriter, op):
            rewriter.keep(op)
        return True
    if op.kind in _CENTRED and _without_zero_points(rewriter, op):
        return True
    number = rewriter.scalar(op.inputs[1]) if op.kind in _WITH_NUMBER else None
    if number is not None:
        return _with_number(rewriter, op, number)
    before = rewriter.producer(op.inputs[0]) if op.inputs and op.inputs[0] >= 0 else None
    if before is None:
        return False
    if op.kind in _INVOLUTIONS and before.kind == op.kind:
        return rewriter.put(op.outputs[0], before.inputs[0])
    if op.kind in _IDEMPOTENT and before.kind == op.kind:
        return rewriter.put(op.outputs[0], op.inputs[0])
    if op.kind == "cast" and before.kind == "cast":
        return _cast_back(rewriter, op, before)
    if op.kind == "dequantize_linear" and before.kind == "quantize_linear":
        return _quantized_again(rewriter, op, before)
    return False


def _without_zero_points(rewriter: Rewriter, op: Op) -> bool:
    """Zero points of zeros alone dropped; a quantization keeps its own, which is in the type of the result."""
    first = _CENTRED[op.kind]
    zeros = [-1 if v >= 0 and _is_zero(rewriter, v) else v for v in op.inputs[first:]]
    while zeros and zeros[-1] < 0:
        zeros.pop()
    inputs = (*op.inputs[:first], *zeros)
    if inputs == op.inputs:
        return False
    rewriter.keep(Op(op.kind, inputs, op.outputs, op.attributes, op.source))
    return True


def _is_zero(rewriter: Rewriter, value: int) -> bool:
    array = rewriter.array(value)
    return array is not None and not np.any(array)


def _with_number(rewriter: Rewriter, op: Op, number: float | int) -> bool:
    if _is_neutral(op.kind, number):
        return rewriter.put(op.outputs[0], op.inputs[0])
    if op.kind == "pow" and number == 2 and rewriter.type_of(op.inputs[0]).dtype.is_float:
        squared = Op("mul", (op.inputs[0], op.inputs[0]), op.outputs, source=op.source)
        if rewriter.infers(squared):
            rewriter.keep(squared)
            return True
    if op.kind == "div" and isinstance(number, float) and (inverse := _exact_inverse(rewriter, op, number)) is not None:
        rewriter.keep(Op("mul", (op.inputs[0], inverse), op.outputs, source=op.source))
        return True
    return False


def _is_neutral(kind: str, number: float | int) -> bool:
    if kind in ("mul", "div", "pow"):
        return number == 1
    if kind in ("minimum", "maximum"):
        return number == (math.inf if kind == "minimum" else -math.inf)
    if isinstance(number, int):
        return number == 0
    return number == 0 and (math.copysign(1.0, number) < 0) == (kind == "add")


def _exact_inverse(rewriter: Rewriter, op: Op, number: float) -> int | None:
    """``1 / number`` as a constant of the same shape where it is an exact normal number: a power of two."""
    dtype = rewriter.type_of(op.inputs[1]).dtype
    mantissa, exponent = math.frexp(number)
    if dtype not in (DType.F32, DType.F64) or abs(mantissa) != 0.5 or not -100 <= exponent <= 100:
        return None
    shape = rewriter.type_of(op.inputs[1]).numbers()
    return rewriter.constant(np.full(shape, 1.0 / number, dtype=dtype.numpy), dtype)


def _cast_back(rewriter: Rewriter, op: Op, before: Op) -> bool:
    """A cast to a format that holds every value, and back, is nothing."""
    first, middle = rewriter.type_of(before.inputs[0]).dtype, rewriter.type_of(before.outputs[0]).dtype
    formats = [(DType.F16, DType.F32, DType.F64), (DType.I8, DType.I16, DType.I32, DType.I64)]
    wider = any(first in f and middle in f and f.index(middle) >= f.index(first) for f in formats)
    return wider and rewriter.put(op.outputs[0], before.inputs[0])


def _quantized_again(rewriter: Rewriter, op: Op, before: Op) -> bool:
    """What was dequantized, quantized and dequantized again with one scale and zero point is what it was.

    q - z is an integer of at most 9 bits: multiplied by a scale and divided by it, each rounded, it is off by less than
    half in float32, and rounds to itself.
    """
    first = rewriter.producer(before.inputs[0])
    if first is None or first.kind != "dequantize_linear":
        return False
    dtypes = {rewriter.type_of(v).dtype for v in (first.inputs[0], op.inputs[0])}
    if dtypes not in ({DType.U8}, {DType.I8}) or rewriter.type_of(first.outputs[0]).dtype is not DType.F32:
        return False
    scales = [rewriter.array(found.inputs[1]) for found in (first, before, op)]
    number = rewriter.scalar(op.inputs[1])
    if number is None or rewriter.type_of(op.inputs[1]).elements != 1 or not 2.0**-100 <= number <= 2.0**100:
        return False
    zeros = [_zero_point(rewriter, found) for found in (first, before, op)]
    if not _is_one_number(scales) or not _is_one_number(zeros):
        return False
    return rewriter.put(op.outputs[0], first.outputs[0])


def _zero_point(rewriter: Rewriter, op: Op) -> Array | None:
    """The zero point of a quantization or dequantization, 0 where there is none; None where it is no constant."""
    value = op.inputs[2] if len(op.inputs) > 2 else -1
    return np.zeros((), dtype=np.uint8) if value < 0 else rewriter.array(value)


def _is_one_number(arrays: Sequence[Array | None]) -> bool:
    """Whether all are constants of one element, and that the same."""
    known = [array.reshape(-1).tolist() for array in arrays if array is not None and array.size == 1]
    return len(known) == len(arrays) and all(numbers == known[0] for numbers in known)
