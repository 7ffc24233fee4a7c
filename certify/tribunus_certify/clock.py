"""The executor's clock for pytest-benchmark: it advances by recorded samples, and by nothing else.

Imported by: plugin, test_timing.  With it ``benchmark.pedantic`` records exactly what the timing receipt holds, so that
pytest-benchmark's JSON and compare commands are evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest


class ReceiptClock:
    """A clock whose every tick is one sample, ns."""

    KEY: ClassVar[pytest.StashKey[ReceiptClock]]

    def __init__(self) -> None:
        self._now_ns = 0
        self._samples: list[int] = []

    def load(self, samples_ns: Sequence[int]) -> None:
        """The samples to tick through, in order."""
        self._samples = list(samples_ns)

    def tick(self) -> None:
        """Advance by the next sample."""
        self._now_ns += self._samples.pop(0)

    def read(self) -> float:
        """Seconds since this clock was made."""
        return self._now_ns * 1e-9


ReceiptClock.KEY = pytest.StashKey[ReceiptClock]()
