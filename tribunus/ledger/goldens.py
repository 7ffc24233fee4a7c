"""Worked out vectors on disk, by the digest of all they depend on: made once for a signature, not once a session.

Imported by: certification.  Imports: canon.  A file that is damaged or missing is made again; none is evidence by
itself.  The folder is bounded: what was not used for longest goes first.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.canon import Digest
from tribunus.errors import EnvironmentFault
from tribunus.image.folders import temporary_beside

_MAGIC: Final = b"tribunus.golden/1\n"
_PIECE: Final = 8 << 20
LIMIT_BYTES: Final = 4 << 30
FREE_BYTES: Final = 2 << 30
"""Bytes that always stay free on the file system."""


class GoldenStore:
    """One file a vector, in a private folder.

    One session at a time writes here, the ledger's lock sees to it; several threads of it may.
    """

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            entries = [(e.stat(), e) for e in os.scandir(folder) if e.is_file()]
        except OSError as error:
            raise EnvironmentFault(f"cannot make the folder {folder}: {error.strerror}") from None
        # Ordered by the last use; a file that a killed session left half written has another name and goes too.
        self._sizes = {
            e.name: s.st_size for s, e in sorted(entries, key=lambda pair: pair[0].st_mtime_ns) if e.name[:1] != "."
        }
        for _, entry in entries:
            if entry.name.startswith("."):
                self._remove(entry.name)

    def get(self, key: Digest) -> npt.NDArray[np.uint8] | None:
        """The bytes under ``key``; None where there are none or they are damaged."""
        path = self._folder / key
        try:
            data = np.fromfile(path, np.uint8)
        except OSError:
            return None
        head = len(_MAGIC) + 32
        payload = data[head:]
        if data[: len(_MAGIC)].tobytes() != _MAGIC or data[len(_MAGIC) : head].tobytes() != _digest([payload.data]):
            with self._lock:
                self._remove(key)
            return None
        with self._lock:
            self._sizes[key] = self._sizes.pop(key, len(data))
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: Digest, parts: list[bytes | memoryview]) -> None:
        """Keep the joined ``parts``; atomic.  A full disk only means that they are made again."""
        size = len(_MAGIC) + 32 + sum(len(part) for part in parts)
        if size > self._limit:
            return
        with self._lock:
            self._make_room(size)
            self._sizes[key] = size  # from now on, so that what others write meanwhile counts it
        path = self._folder / key
        temporary = temporary_beside(path)
        try:
            facts = os.statvfs(self._folder)
            if facts.f_bavail * facts.f_frsize < size + FREE_BYTES:
                raise OSError(errno.ENOSPC, "as full as it may become")
            with temporary.open("xb") as file:
                file.write(_MAGIC + _digest(parts))
                for part in parts:
                    file.write(part)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            with self._lock:
                self._sizes.pop(key, None)

    def _make_room(self, size: int) -> None:
        total = sum(self._sizes.values())
        for name in list(self._sizes):
            if total + size <= self._limit:
                return
            total -= self._sizes[name]
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._sizes.pop(name, None)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()


def _digest(parts: list[bytes | memoryview]) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        for start in range(0, len(part), _PIECE):
            found.update(part[start : start + _PIECE])
    return found.digest()
