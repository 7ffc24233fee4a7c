"""What an op promises: type rule, work, numerical contract, source of its definition.

Imported by: the op families beside it.  Imports: attributes, dims, types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tribunus.errors import LoweringError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Dim, DimScope, Shape
from tribunus.phaseir.types import TensorType


class Family(StrEnum):
    """Kinds of ops that share golden, templates and vectors."""

    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    MATMUL = "matmul"
    CONV = "conv"
    POOL = "pool"
    NORMALIZE = "normalize"
    RECURRENT = "recurrent"
    INDEX = "index"
    MOVEMENT = "movement"
    RESIZE = "resize"
    QUANTIZE = "quantize"
    DISCRETE = "discrete"


class Contract(StrEnum):
    """What a backend may change about the arithmetic."""

    EXACT = "exact"  # bit equality (data movement) or value equality (selection, integers, comparison)
    ROUNDED = "rounded"  # one correctly rounded operation an element
    RUNNING = "running"  # running error of the defining formula
    SUM = "sum"  # any order of the terms; accumulator in the policy's format
    DISCRETE = "discrete"  # exact on inputs with gaps; value-based near ties


Types: TypeAlias = "Sequence[TensorType | None]"
Infer: TypeAlias = "Callable[[Types, Attributes, DimScope], tuple[TensorType, ...]]"
Work: TypeAlias = "Callable[[Types, Attributes, Sequence[TensorType]], Dim]"


class TypeRuleError(LoweringError):
    """An op is applied to operands that its definition does not allow."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """Specification of one op.

    inputs: smallest and largest number of operands; trailing and inner optional ones may be absent (-1).
    infer: operand types, attributes, scope -> result types; raises TypeRuleError.
    flops: floating point (or integer) operations, a multiply-add counting 2; transcendentals weigh by WEIGHTS.
    source: where the definition stands.
    """

    kind: str
    family: Family
    inputs: tuple[int, int]
    attributes: tuple[str, ...]
    contract: Contract
    infer: Infer
    flops: Work
    source: str


TRANSCENDENTAL_WEIGHT = 10
"""Flops that one exp, log, tanh, erf, sin, cos, sigmoid or pow counts in work and floors."""


def operand(types: Types, position: int, kind: str) -> TensorType:
    """The type of a required operand.  Raises TypeRuleError if it is absent."""
    found = types[position] if position < len(types) else None
    if found is None:
        raise TypeRuleError(f"{kind}: operand {position} is missing")
    return found


def optional(types: Types, position: int) -> TensorType | None:
    """The type of an optional operand, None where absent."""
    return types[position] if position < len(types) else None


def broadcast(kind: str, scope: DimScope, *shapes: Shape) -> Shape:
    """Shape of an elementwise result under multidirectional broadcasting.

    Raises TypeRuleError unless two extents are provably equal or one of them is 1.
    """
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = []
    for axis in range(rank):
        extent: Dim = 1
        for shape in shapes:
            position = axis - (rank - len(shape))
            if position < 0 or shape[position] == 1:
                continue
            if extent == 1:
                extent = shape[position]
            elif not scope.equal(extent, shape[position]):
                raise TypeRuleError(f"{kind}: {_explain(scope, extent, shape[position])} on axis {axis}")
        result.append(extent)
    return tuple(result)


def require_equal(kind: str, what: str, scope: DimScope, left: Dim, right: Dim) -> None:
    """Raises TypeRuleError unless the dims are equal for every value of the symbols."""
    if not scope.equal(left, right):
        raise TypeRuleError(f"{kind}: {what}: {_explain(scope, left, right)}")


def require(kind: str, law: bool, text: str) -> None:
    """Raises TypeRuleError with ``text`` unless ``law`` holds."""
    if not law:
        raise TypeRuleError(f"{kind}: {text}")


def require_float(kind: str, type_: TensorType) -> None:
    """Raises TypeRuleError unless the dtype is floating point."""
    require(kind, type_.dtype.is_float, f"{type_.dtype} operands are not defined")


def same_dtype(kind: str, *types: TensorType) -> DType:
    """The common dtype.  Raises TypeRuleError."""
    first = types[0].dtype
    require(kind, all(t.dtype is first for t in types), f"operands differ in dtype: {[str(t.dtype) for t in types]}")
    return first


def per_element(weight: int) -> Work:
    """Work rule: ``weight`` flops an element of the first result."""

    def flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
        return dims.mul(weight, results[0].elements)

    return flops


def per_input_element(weight: int) -> Work:
    """Work rule: ``weight`` flops an element of the first operand."""

    def flops(types: Types, attributes: Attributes, results: Sequence[TensorType]) -> Dim:
        return dims.mul(weight, operand(types, 0, "work").elements)

    return flops


def normalize_axis(kind: str, axis: int, rank: int) -> int:
    """``axis`` counted from the front.  Raises TypeRuleError if out of range."""
    require(kind, -rank <= axis < rank, f"axis {axis} of rank {rank}")
    return axis % rank if rank else 0


def _explain(scope: DimScope, left: Dim, right: Dim) -> str:
    """Say how two extents differ, with the least bad value where symbols are involved."""
    names = dims.symbols_of(left) | dims.symbols_of(right)
    if not names:
        return f"{left} does not equal {right}"
    example = scope.counterexample(left, right)
    labels = {name: scope.symbol(name).label for name in names}
    if example is None:
        return f"{left} cannot be shown to equal {right}"
    at = ", ".join(f"{labels[name]}={value}" for name, value in example.items())
    return f"{left} differs from {right} at {at}"
