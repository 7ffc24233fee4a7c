"""A golden value together with the error that honest arithmetic may make: what budget rules compute with.

Imported by: rules, running.  Imports: numerics, phaseir, families, ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import FLOAT_FORMATS, DType
from tribunus.numerics.policy import ComputePolicy, PolicyFacts
from tribunus.numerics.rounding import is_representable
from tribunus.numerics.ulp import F64
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.ops.call import Array, Call
from tribunus.phaseir.program import Op


class Exactness(StrEnum):
    """How a value must be met, from the strictest on."""

    BIT = "bit"  # moved: the same bytes, payloads of NaN and signs of zero included
    VALUE = "value"  # selected, compared, counted: the same number
    ROUNDED = "rounded"  # one correctly rounded operation: the same number as the rounded golden
    ULP = "ulp"  # within the element's budget
    DISCRETE = "discrete"  # integers or choices that follow from rounded arithmetic

    @property
    def rank(self) -> int:
        """Position in the order above."""
        return list(Exactness).index(self)


@dataclass(frozen=True, slots=True)
class V:
    """value: float64, native integers or bools.  err: absolute error that honest arithmetic may have, >= 0, float64 of
    the same shape (for a bool: 1 where it is undecided).  low, high: for DISCRETE integers, the numbers that may come
    out; None: value only."""

    value: Array
    err: F64
    exactness: Exactness
    low: Array | None = None
    high: Array | None = None

    @property
    def real(self) -> F64:
        """The value as float64."""
        return np.asarray(self.value, dtype=np.float64)

    @property
    def is_exact(self) -> bool:
        """Whether no element has an error."""
        return not bool(np.any(self.err))


def zero_error(value: Array) -> F64:
    """No error, in the shape of ``value``, without memory."""
    return np.broadcast_to(np.zeros(()), value.shape)


@dataclass(frozen=True, slots=True)
class Setting:
    """What budgets depend on beside the values: policy and kind of vector."""

    policy: ComputePolicy
    facts: PolicyFacts
    family: VectorFamily

    @property
    def is_strict(self) -> bool:
        """Whether division and square root round correctly and nothing is contracted."""
        return self.policy is ComputePolicy.FP32_STRICT

    @property
    def is_probe(self) -> bool:
        """Whether exact sums are demanded."""
        return self.family.is_probe and self.facts.exact_probes


@dataclass(frozen=True, slots=True)
class RuleCall:
    """What a budget rule receives: the op applied to values with errors, and its golden results.

    producer: the call that made an operand, or None where it was given.
    """

    call: Call
    operands: tuple[V | None, ...]
    results: tuple[Array, ...]
    setting: Setting
    producer: Callable[[int], RuleCall | None]
    op: Op

    def operand(self, position: int) -> V:
        """An operand that must be there."""
        found = self.operands[position] if position < len(self.operands) else None
        if found is None:
            raise InternalError(f"{self.call.kind}: operand {position} is missing")
        return found

    def optional(self, position: int) -> V | None:
        """An operand or None."""
        return self.operands[position] if position < len(self.operands) else None

    @property
    def u(self) -> float:
        """Unit roundoff of the arithmetic of the first result: 0 for integers."""
        dtype = self.call.result_dtype()
        if not dtype.is_float:
            return 0.0
        return 2.0**-53 if dtype is DType.F64 else self.setting.facts.accumulator_roundoff

    @property
    def interior(self) -> DType:
        """Format that results have before they are stored: 16-bit values are computed in f32."""
        dtype = self.call.result_dtype()
        return dtype if dtype in (DType.F64, DType.F32) or not dtype.is_float else DType.F32

    @property
    def underflow(self) -> float:
        """Half the smallest subnormal of the arithmetic: what a result that is not 0 may lose whatever its size."""
        return FLOAT_FORMATS[self.interior].smallest_subnormal / 2.0 if self.interior.is_float else 0.0

    def own(self, value: F64, units: npt.ArrayLike = 1.0) -> F64:
        """``units * u * |value|``, and at least what gradual underflow loses."""
        magnitude = np.abs(np.where(np.isfinite(value), value, 0.0))
        error = np.asarray(units, dtype=np.float64) * self.u * magnitude
        return np.asarray(np.maximum(error, np.where(magnitude > 0, self.underflow, 0.0)), dtype=np.float64)

    def lost(self, value: F64, steps: int) -> F64:
        """What ``steps`` operations on the way to numbers that are not 0 may lose to underflow."""
        return np.asarray(np.where(value != 0.0, steps * self.underflow, 0.0), dtype=np.float64)

    def rounding(self, value: F64, units: float = 1.0) -> F64:
        """``units * u * |value|``: one operation's own error.  On probes nothing where the value needs no rounding."""
        error = self.own(value, units)
        if self.setting.is_probe and self.interior.is_float:
            error = np.where(is_representable(value, self.interior), 0.0, error)
        return np.asarray(error, dtype=np.float64)


Rule: TypeAlias = "Callable[[RuleCall], tuple[V, ...]]"


def finite(error: F64) -> F64:
    """``error`` with 0 where it is not a number: there the class of the golden decides, not a budget."""
    return np.nan_to_num(error, nan=0.0, posinf=0.0, neginf=0.0)


def worst(*values: V | None) -> Exactness:
    """The loosest exactness among operands."""
    return max((v.exactness for v in values if v is not None), key=lambda e: e.rank, default=Exactness.BIT)
