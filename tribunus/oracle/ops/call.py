"""One application of an op to concrete arrays: what every golden definition receives.

Imported by: the families beside it, golden, running, propagation.  Imports: numerics, phaseir.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.ulp import F64
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Bindings
from tribunus.phaseir.types import TensorType

Array: TypeAlias = npt.NDArray[np.generic]
Golden: TypeAlias = "Callable[[Call], tuple[Array, ...]]"


class Order(Enum):
    """Order in which the terms of a sum are added; the second one is the self-check of a golden."""

    NATURAL = 0
    REVERSED = 1


@dataclass(frozen=True, slots=True)
class Call:
    """Operands are float64 (floats), native integers or bools; results likewise.

    operands: None where an optional one is absent.  operand_types, result_types: with numbers for dims.
    """

    kind: str
    attributes: Attributes
    bindings: Bindings
    operands: tuple[Array | None, ...]
    operand_types: tuple[TensorType | None, ...]
    result_types: tuple[TensorType, ...]
    order: Order = Order.NATURAL

    def operand(self, position: int) -> Array:
        """An operand that must be there."""
        found = self.optional(position)
        if found is None:
            raise InternalError(f"{self.kind}: operand {position} is missing")
        return found

    def optional(self, position: int) -> Array | None:
        """An operand or None."""
        return self.operands[position] if position < len(self.operands) else None

    def floats(self, position: int) -> F64:
        """A floating point operand."""
        return np.asarray(self.operand(position), dtype=np.float64)

    def optional_floats(self, position: int) -> F64 | None:
        """A floating point operand or None."""
        found = self.optional(position)
        return None if found is None else np.asarray(found, dtype=np.float64)

    def operand_dtype(self, position: int) -> DType:
        """dtype of an operand that is there."""
        found = self.operand_types[position]
        if found is None:
            raise InternalError(f"{self.kind}: operand {position} is missing")
        return found.dtype

    def result_dtype(self, position: int = 0) -> DType:
        """dtype of a result."""
        return self.result_types[position].dtype

    def result_shape(self, position: int = 0) -> tuple[int, ...]:
        """Shape of a result."""
        return self.result_types[position].numbers()

    def dims(self, name: str) -> tuple[int, ...]:
        """An attribute of dims with its symbols bound."""
        return dims.evaluate_shape(self.attributes.dims(name), self.bindings)

    def axes(self) -> tuple[int, ...]:
        """The ``axes`` attribute."""
        return self.attributes.integers("axes")

    def with_operands(self, *operands: Array | None) -> Call:
        """The same call on other arrays."""
        return replace(self, operands=tuple(operands))


def as_array(value: npt.ArrayLike) -> Array:
    """``value`` as an array; ufuncs on rank 0 return scalars."""
    return np.asarray(value)
