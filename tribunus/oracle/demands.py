"""What a program wants from the arrays it is given: index ranges, positive numbers, sequence lengths, fan-in.

Imported by: vectors.  Imports: phaseir.

Found by following each given value through ops that only move, until an op uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tribunus.errors import InputError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Op, Program, Role
from tribunus.phaseir.types import TensorType

_MOVES = frozenset(
    ("copy", "reshape", "transpose", "slice", "concat", "pad", "expand", "tile", "gather", "where", "cast")
)


class Demand(StrEnum):
    """How a given value must be drawn."""

    REAL = "real"
    POSITIVE = "positive"  # logarithm, square root, base of a power
    DENOMINATOR = "denominator"  # away from 0
    EXPONENT = "exponent"  # within the domain of exp
    FACTOR = "factor"  # of a product of many: between 0.5 and 2
    VARIANCE = "variance"
    STEP = "step"  # scale of a quantization
    ZERO_POINT = "zero-point"
    INDEX = "index"
    UNIQUE_INDEX = "unique-index"  # scattered to: the order of repeated ones is not defined
    LENGTH = "length"
    INTEGER = "integer"
    FLAG = "flag"  # an integer that only becomes a float: masks and token types are 0 or 1
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Demand on one given value.

    low, high: range of integers.  extents: of the axes that UNIQUE_INDEX tuples address; axis: along which single
    indices must differ, -1 for tuples.  contraction: axis that a dot product, reduction or normalization runs over.
    fan_in: terms of the dot products it takes part in (1 where none).  is_left: first operand of a dot product.
    masks: it selects what a softmax sees.  addend, multiplier: a bias, or a scale, of what was computed.
    middle: zero point that integers lie around.  step: of a scale, which power of two keeps what is quantized with it
    within its range; exact_step: the same beside the small integers of exact vectors.  narrows: a scale or zero
    point that makes integers of numbers, not numbers of integers; fan_in is then that of the dot products before it.
    """

    demand: Demand
    low: int = 0
    high: int = 0
    extents: tuple[int, ...] = ()
    axis: int = -1
    contraction: int = -1
    fan_in: int = 1
    is_left: bool = True
    masks: bool = False
    addend: bool = False
    multiplier: bool = False
    middle: int = 0
    step: int = 0
    exact_step: int = 0
    narrows: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """An op that reads a value at a position."""

    op: Op
    position: int
    moved: bool


def uses_of(program: Program, value: int) -> Iterator[Use]:
    """Ops that compute with ``value``, found through ops that only move it."""
    consumers = program.consumers(program.only_phase)
    queue: list[tuple[int, bool]] = [(value, False)]
    seen = {value}
    while queue:
        current, moved = queue.pop(0)
        for index in consumers.get(current, ()):
            op = program.only_phase.ops[index]
            for position, operand in enumerate(op.inputs):
                if operand != current:
                    continue
                yield Use(op, position, moved)
                through = op.kind in _MOVES and not (op.kind == "gather" and position == 1)
                through = through and not (op.kind == "where" and position == 0)
                for out in op.outputs if through else ():
                    if out not in seen:
                        seen.add(out)
                        queue.append((out, True))


def wanted(program: Program, types: tuple[TensorType, ...], value: int) -> Wanted:
    """What ``program`` wants from a given value.  Raises InputError for integers whose range nothing shows."""
    type_ = types[value]
    uses = list(uses_of(program, value))
    if type_.dtype is DType.BOOL:
        return Wanted(Demand.BOOL, masks=_masks(program, value))
    if type_.dtype.is_integer:
        return _integer(program, types, value, uses)
    return _real(program, types, value, uses)


def _integer(program: Program, types: tuple[TensorType, ...], value: int, uses: list[Use]) -> Wanted:
    dtype = types[value].dtype
    low, high = -(1 << 40), 1 << 40
    indexed = False
    for use in uses:
        op, position = use.op, use.position
        if op.kind in ("lstm", "gru") and position == 4:
            return Wanted(Demand.LENGTH, low=1, high=types[op.inputs[0]].numbers()[0])
        bounds = _index_bounds(op, position, types)
        if bounds is not None:
            indexed = True
            low, high = max(low, bounds.low), min(high, bounds.high)
            if bounds.demand is Demand.UNIQUE_INDEX:
                return bounds
        if op.kind in ("quantize_linear", "dequantize_linear") and position == 2:
            return _zero_point(dtype, narrows=op.kind == "quantize_linear")
        if op.kind in ("matmul_integer", "conv_integer") and position >= 2:
            return _zero_point(dtype, narrows=False)
    if indexed:
        if low > high:
            raise InputError(f"{program.values[value].label or value}: no index satisfies every op that reads it")
        return Wanted(Demand.INDEX, low=low, high=high)
    if dtype.bits <= 8:
        bits = dtype.bits
        signed = dtype in (DType.I8, DType.I4)
        middle = 1 << (bits - 1) if not signed and any(_has_zero_point(use) for use in uses) else 0
        low, high = (-(1 << (bits - 1)) if signed else 0), (1 << (bits - signed)) - 1
        return Wanted(Demand.INTEGER, low=low, high=high, middle=middle)
    unsigned = dtype in (DType.U64, DType.U32, DType.U16)
    whole = [use.op for use in uses if types[use.op.inputs[use.position]].dtype.is_integer]
    computed = [op for op in whole if op.kind not in _MOVES or op.kind == "cast"]
    if not unsigned and computed and all(_becomes_float(op) for op in computed):
        return Wanted(Demand.FLAG, low=0, high=1)
    return Wanted(Demand.INTEGER, low=0 if unsigned else -1000, high=1000)


def _becomes_float(op: Op) -> bool:
    return op.kind == "cast" and op.attributes.dtype("to").is_float


def _has_zero_point(use: Use) -> bool:
    """Whether an op subtracts a zero point from the integers that it reads."""
    position = {"dequantize_linear": 2, "matmul_integer": 2 + use.position, "conv_integer": 2 + use.position}
    slot = position.get(use.op.kind, -1)
    return 0 <= slot < len(use.op.inputs) and use.op.inputs[slot] >= 0


def _zero_point(dtype: DType, *, narrows: bool) -> Wanted:
    """Near the middle of the range: a sum of products that are off to one side grows faster than what they spread."""
    middle = 1 << (dtype.bits - 1) if dtype in (DType.U8, DType.U4) else 0
    reach = 8 if dtype.bits >= 8 else 2
    return Wanted(Demand.ZERO_POINT, low=middle - reach, high=middle + reach, middle=middle, narrows=narrows)


def _index_bounds(op: Op, position: int, types: tuple[TensorType, ...]) -> Wanted | None:
    if op.kind == "one_hot" and position == 0:
        depth = types[op.outputs[0]].numbers()[op.attributes.integer("axis")]
        return Wanted(Demand.INDEX, low=-depth, high=depth - 1)
    if position != 1:
        return None
    if op.kind in ("gather", "gather_elements"):
        extent = types[op.inputs[0]].numbers()[op.attributes.integer("axis")]
        return Wanted(Demand.INDEX, low=-extent, high=extent - 1)
    if op.kind == "gather_nd":
        shape, batch = types[op.inputs[0]].numbers(), op.attributes.integer("batch_dims")
        depth = types[op.inputs[1]].numbers()[-1]
        extent = min(shape[batch : batch + depth], default=1)
        return Wanted(Demand.INDEX, low=-extent, high=extent - 1)
    if op.kind == "scatter_elements":
        axis = op.attributes.integer("axis")
        extent = types[op.inputs[0]].numbers()[axis]
        if op.attributes.text("reduction") == "none":
            return Wanted(Demand.UNIQUE_INDEX, high=extent - 1, extents=(extent,), axis=axis)
        return Wanted(Demand.INDEX, low=-extent, high=extent - 1)
    if op.kind == "scatter_nd":
        depth = types[op.inputs[1]].numbers()[-1]
        extents = types[op.inputs[0]].numbers()[:depth]
        if op.attributes.text("reduction") == "none":
            return Wanted(Demand.UNIQUE_INDEX, extents=extents)
        return Wanted(Demand.INDEX, low=-min(extents), high=min(extents) - 1)
    return None


_DIRECT = {
    ("log", 0): Demand.POSITIVE,
    ("sqrt", 0): Demand.POSITIVE,
    ("pow", 0): Demand.POSITIVE,
    ("div", 1): Demand.DENOMINATOR,
    ("reciprocal", 0): Demand.DENOMINATOR,
    ("exp", 0): Demand.EXPONENT,
    ("pow", 1): Demand.FACTOR,
    ("reduce_prod", 0): Demand.FACTOR,
    ("batch_norm", 4): Demand.VARIANCE,
}
_WIDE: Final = 11
"""Bits of the integers that are drawn for a dtype wider than 8 bits."""


def _real(program: Program, types: tuple[TensorType, ...], value: int, uses: list[Use]) -> Wanted:
    for use in uses:
        if use.op.kind in ("quantize_linear", "dequantize_linear") and use.position == 1:
            return _step(program, types, use)
    demand, contraction, fan_in, is_left = Demand.REAL, -1, 1, True
    addends = [_is_addend(program, types, use) for use in uses]
    multipliers = [_is_multiplier(program, types, use) for use in uses]
    for use in uses:
        op, position = use.op, use.position
        found = _DIRECT.get((op.kind, position))
        if found is not None and not (found is Demand.POSITIVE and _is_square(program, op)):
            demand = found
        axis, terms, left = _contraction(op, position, types)
        if terms > fan_in:
            fan_in, is_left = terms, left
            contraction = -1 if use.moved else axis
    return Wanted(
        demand,
        contraction=contraction,
        fan_in=fan_in,
        is_left=is_left,
        masks=_masks(program, value),
        addend=bool(uses) and all(addends),
        multiplier=bool(uses) and all(multipliers),
    )


def _step(program: Program, types: tuple[TensorType, ...], use: Use) -> Wanted:
    """A scale such that real numbers are about as large as 1, dot products too, and the sharp ones of a softmax."""
    op = use.op
    if op.kind == "quantize_linear":
        narrowed = types[op.outputs[0]].dtype
        ops = program.only_phase.ops
        fan_in = max((_contraction(o, 1, types)[1] for o in ops if o.kind in ("matmul", "conv")), default=1)
        is_share = any(o.kind == "softmax" and op.inputs[0] in o.outputs for o in ops)
        step = 2 - min(narrowed.bits, _WIDE) - (2 if is_share else 0)
        return Wanted(Demand.STEP, step=step, exact_step=step, fan_in=fan_in, narrows=True)
    bits = types[op.inputs[0]].dtype.bits
    step = 2 - min(bits, _WIDE)
    fan_in, scores = 1, 0
    for reader in uses_of(program, op.outputs[0]):
        _, terms, is_left = _contraction(reader.op, reader.position, types)
        fan_in = max(fan_in, 1 if is_left else terms)
        scores = 2 if reader.op.kind == "softmax" else scores
    step += scores - round(math.log2(fan_in) / 2)
    # Bytes lie within 7 of their zero point there instead of 127.
    return Wanted(Demand.STEP, step=step, exact_step=step + 4 if bits == 8 else step)


def _is_square(program: Program, op: Op) -> bool:
    """A power with a constant exponent is defined for negative bases too where the exponent is an integer: the usual
    one is 2, and a square of positive numbers only would hide a sign."""
    return op.kind == "pow" and program.values[op.inputs[1]].role is Role.CONSTANT


def _is_addend(program: Program, types: tuple[TensorType, ...], use: Use) -> bool:
    """Whether a use is as a bias: added to something computed that is larger."""
    if use.op.kind in ("conv", "conv_transpose", "layer_norm", "group_norm") and use.position == 2:
        return True
    if use.op.kind == "batch_norm" and use.position in (2, 3):
        return True
    return use.op.kind in ("add", "sub") and _spreads(program, types, use)


def _is_multiplier(program: Program, types: tuple[TensorType, ...], use: Use) -> bool:
    """Whether a use is as a scale of something computed that is larger."""
    if use.op.kind in ("layer_norm", "group_norm", "batch_norm", "rms_norm") and use.position == 1:
        return True
    return use.op.kind == "mul" and _spreads(program, types, use)


def _spreads(program: Program, types: tuple[TensorType, ...], use: Use) -> bool:
    other = use.op.inputs[1 - use.position]
    smaller = math.prod(types[use.op.inputs[use.position]].numbers()) < math.prod(types[other].numbers())
    return smaller and program.values[other].role is Role.TEMP


def _contraction(op: Op, position: int, types: tuple[TensorType, ...]) -> tuple[int, int, bool]:
    """(axis, terms, first operand) of the sums that an op makes over an operand; axis counts from the front."""
    if position >= len(op.inputs) or op.inputs[position] < 0:
        return -1, 1, True
    shape = types[op.inputs[position]].numbers()
    if op.kind == "matmul" and position < 2:
        axis = len(shape) - 1 if position == 0 or len(shape) == 1 else len(shape) - 2
        return axis, shape[axis], position == 0
    if op.kind in ("conv", "conv_transpose") and position < 2:
        weight = types[op.inputs[1]].numbers()
        terms = math.prod(weight[1:]) if op.kind == "conv" else weight[0] * math.prod(weight[2:])
        axis = 1 if position == 0 or op.kind == "conv" else 0
        return axis, terms, position == 0
    if op.kind in ("lstm", "gru") and position < 3:
        return len(shape) - 1, shape[-1], position == 0
    if op.kind.startswith("reduce_") and op.attributes.integers("axes"):
        axes = op.attributes.integers("axes")
        return axes[-1], math.prod(shape[a] for a in axes), True
    if op.kind in ("layer_norm", "rms_norm", "group_norm") and position == 0:
        return len(shape) - 1, 2, True
    if op.kind in ("cumsum", "softmax", "log_softmax", "top_k", "arg_max", "arg_min") and position == 0:
        return op.attributes.integer("axis"), 2, True
    return -1, 1, True


def _masks(program: Program, value: int) -> bool:
    """Whether a value reaches a softmax by moves, additions and selections only."""
    consumers = program.consumers(program.only_phase)
    queue, seen = [value], {value}
    while queue:
        current = queue.pop()
        for index in consumers.get(current, ()):
            op = program.only_phase.ops[index]
            if op.kind in ("softmax", "log_softmax"):
                return True
            if op.kind in _MOVES or op.kind in ("add", "not", "and", "or"):
                for out in op.outputs:
                    if out not in seen:
                        seen.add(out)
                        queue.append(out)
    return False
