"""Random numbers whose bits never change: Philox words and exact arithmetic of our own.

Imported by: vectors.  Imports: numpy.

NumPy keeps the raw stream of Philox across versions, but not ``normal``; and libm's log and cos differ between hosts.
Here a normal number is a sum of seven 16-bit integers (Irwin-Hall, scaled to variance 1; |x| < 4.6) with 16 finer bits,
and Student's t with two degrees of freedom is ``(2p - 1) / sqrt(2 p (1 - p))``: integers and correctly rounded
operations only.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.ulp import F64

I64 = npt.NDArray[np.int64]

_TO_UNIT_VARIANCE: Final = 1.3093073414159542
"""sqrt(12 / 7), seven uniform numbers having variance 7 / 12."""
_CENTRE: Final = 7 * 32767.5 + 0.5


class Draws:
    """A stream of words named by bytes: equal names give equal numbers on every host."""

    def __init__(self, name: bytes) -> None:
        key = int.from_bytes(hashlib.sha256(name).digest()[:16], "big")
        self._generator = np.random.Philox(key=key)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The next raw 64-bit words."""
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)

    def normal(self, shape: tuple[int, ...]) -> F64:
        """Numbers of mean 0 and variance 1, bell-shaped, on a grid of 2**-32 times a constant."""
        count = math.prod(shape)
        parts = self.words(2 * count).view(np.uint16).reshape(count, 8)
        total = parts[:, :7].sum(axis=1, dtype=np.int64).astype(np.float64) - _CENTRE
        fine = parts[:, 7].astype(np.float64) * 2.0**-16
        return np.asarray(((total + fine) * 2.0**-16 * _TO_UNIT_VARIANCE).reshape(shape), dtype=np.float64)

    def uniform(self, shape: tuple[int, ...]) -> F64:
        """Numbers in (0, 1): odd multiples of 2**-53."""
        bits = self.words(math.prod(shape)) >> np.uint64(12)
        return ((bits.astype(np.float64) * 2.0 + 1.0) * 2.0**-53).reshape(shape)

    def heavy(self, shape: tuple[int, ...]) -> F64:
        """Student's t with two degrees of freedom."""
        p = self.uniform(shape)
        return (2.0 * p - 1.0) / np.sqrt(2.0 * p * (1.0 - p))

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> I64:
        """Integers in [low, high]; the bias of the remainder is below 2**-40 for ranges up to 2**23."""
        span = np.uint64(high - low + 1)
        return (self.words(math.prod(shape)) % span).astype(np.int64).reshape(shape) + np.int64(low)

    def permutation(self, count: int) -> I64:
        """0 .. count-1 in some order."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)
