"""Families of test vectors: what each is for and how strictly it is judged.

Imported by: running, vectors, verdict, gates.  Imports: nothing of ours.
"""

from __future__ import annotations

from enum import StrEnum


class VectorFamily(StrEnum):
    """How the arrays of a vector are drawn."""

    EXACT = "exact"  # small integers: every sum is exact in any order
    IDENTITY = "identity"  # one nonzero term a sum, full significands: proves the input format
    RAND = "rand"  # normal numbers, scaled
    POS = "pos"  # their magnitudes
    HEAVY = "heavy"  # Student t with two degrees of freedom
    OFFSET = "offset"  # normal numbers around a large mean
    TREND = "trend"  # normal numbers around a slope
    SORTED = "sorted"
    CANCEL = "cancel"  # halves that almost cancel
    CONST = "const"  # one number everywhere: rounding errors correlate
    MASK = "mask"  # minus infinity where a softmax must not look
    NEGATIVE = "negative"  # padding with 0 would win
    SPECIAL = "special"  # infinities, NaN, signed zeros, subnormals
    THRESHOLD = "threshold"  # both sides of every branch
    TIES = "ties"  # exact ties of rounding and of comparison
    INDEX = "index"  # first, last, negative and repeated indices
    SAT = "sat"  # extremes of 8-bit integers
    SMALLVAR = "smallvar"  # variances as small as eps
    CAPTURED = "captured"  # arrays of a real run

    @property
    def is_probe(self) -> bool:
        """Whether sums of this family are exact, so that a dot product has no budget at all."""
        return self in (VectorFamily.EXACT, VectorFamily.IDENTITY)

    @property
    def is_random(self) -> bool:
        """Whether elements are drawn independently, so that statistics over them mean something."""
        return self in _RANDOM

    @property
    def is_adversarial(self) -> bool:
        """Whether rounding errors correlate, so that only the provable bound is fair."""
        return self in (VectorFamily.CANCEL, VectorFamily.CONST, VectorFamily.TIES)


_RANDOM = frozenset(
    (
        VectorFamily.RAND,
        VectorFamily.POS,
        VectorFamily.HEAVY,
        VectorFamily.OFFSET,
        VectorFamily.TREND,
        VectorFamily.SORTED,
        VectorFamily.SMALLVAR,
        VectorFamily.CAPTURED,
    )
)
