"""Shape values in floating point: exact quotients of a dim expression, as exporters compute sizes of resized images.

Imported by: folding, resize rules.  Imports: dims.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim


@dataclass(frozen=True, slots=True)
class Ratio:
    """``numerator / denominator`` with denominator >= 1."""

    numerator: Dim
    denominator: int = 1

    def times(self, factor: Fraction) -> Ratio:
        """The product with a number."""
        divisor = self.denominator * factor.denominator
        product = dims.mul(self.numerator, factor.numerator)
        exact = dims.floordiv(product, divisor)
        if dims.mul(exact, divisor) == product:
            return Ratio(exact)
        return Ratio(product, divisor)

    def plus(self, other: Ratio) -> Ratio:
        """The sum."""
        left = dims.mul(self.numerator, other.denominator)
        right = dims.mul(other.numerator, self.denominator)
        return Ratio(dims.add(left, right), self.denominator * other.denominator)

    def floor(self) -> Dim:
        """Largest integer that is not larger."""
        return dims.floordiv(self.numerator, self.denominator)

    def ceil(self) -> Dim:
        """Smallest integer that is not smaller."""
        return dims.ceildiv(self.numerator, self.denominator)
