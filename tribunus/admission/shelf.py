"""Vectors with their goldens, worked out once: a few in memory, all of them with a keeper, which may be a disk.

Imported by: cases.  Imports: oracle.  Does no IO of its own: the keeper does.

Goldens of a large convolution fill gigabytes.  Each is needed for a moment a candidate, so only the last used stay in
memory; what the keeper has lost is worked out again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from tribunus.canon import Digest
from tribunus.errors import EncodingError, StructureError
from tribunus.oracle.frozen import Worked, freeze, thaw
from tribunus.oracle.ops.call import Array
from tribunus.oracle.running import OutputGolden
from tribunus.oracle.vectors import Descriptor

HELD_BYTES: Final = 256 << 20
"""Bytes that stay in memory, beside the vector that was used last."""


class Keeper(Protocol):
    """Where worked out vectors outlive their use."""

    def get(self, key: Digest) -> np.ndarray[tuple[int], np.dtype[np.uint8]] | None:
        """The bytes under ``key``, None where there are none."""
        ...

    def put(self, key: Digest, parts: list[bytes | memoryview]) -> None:
        """Keep these bytes, joined, under ``key``; may lose them at any time."""
        ...


class Forgetful:
    """Keeps nothing."""

    def get(self, key: Digest) -> np.ndarray[tuple[int], np.dtype[np.uint8]] | None:
        """None."""
        return None

    def put(self, key: Digest, parts: list[bytes | memoryview]) -> None:
        """Nothing."""


class Shelf:
    """The vectors of a signature.  Several threads may use it."""

    def __init__(self, keeper: Keeper, limit: int = HELD_BYTES) -> None:
        self._keeper = keeper
        self._limit = limit
        self._held: OrderedDict[Digest, Worked] = OrderedDict()
        self._lock = threading.Lock()

    def fetch(self, key: Digest, work: Callable[[], Worked]) -> Worked:
        """The vector under ``key``: from memory, else from the keeper, else worked out now and kept."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                return found
        kept = self._kept(key)
        if kept is None:
            kept = work()
            self._keeper.put(key, freeze(kept))
        with self._lock:
            self._hold(key, kept)
        return kept

    def _kept(self, key: Digest) -> Worked | None:
        data = self._keeper.get(key)
        if data is None:
            return None
        try:
            return thaw(data)
        except (EncodingError, StructureError, ValueError):
            return None  # of another version, or damaged: worked out again

    def _hold(self, key: Digest, worked: Worked) -> None:
        self._held[key] = worked
        self._held.move_to_end(key)
        total = sum(w.nbytes for w in self._held.values())
        while total > self._limit and len(self._held) > 1:
            _, gone = self._held.popitem(last=False)
            total -= gone.nbytes


@dataclass(frozen=True, slots=True)
class Shelved:
    """A vector on a shelf: a case for the gates, whose arrays are fetched when asked for."""

    descriptor: Descriptor
    key: Digest
    shelf: Shelf
    work: Callable[[], Worked]

    @property
    def inputs(self) -> Mapping[int, Array]:
        """Arrays by value id, as stored."""
        return self.shelf.fetch(self.key, self.work).inputs

    @property
    def goldens(self) -> tuple[OutputGolden, ...]:
        """Of every output."""
        return self.shelf.fetch(self.key, self.work).goldens
