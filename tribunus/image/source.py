"""Bytes of an image at rest: one file, opened once, or bytes in memory; and memory that nobody else can write.

Imported by: image.read, image.normalize.  Imports: errors, image.tar.

Everything small and all code is read into private memory.  Weights may be mapped in place, but only from a file that
nobody but root and the current user can write: a private mapping is no snapshot, it shows later writes by others, and
a truncation kills the reader.
"""

from __future__ import annotations

import contextlib
import enum
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import ChangedError, EnvironmentFault, TarSizeError
from tribunus.records import dataclass
from tribunus.sha256 import LARGE

CHUNK: Final = 1024 * 1024
_HUGE: Final = 4 * 1024 * 1024
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class WeightsMode(enum.Enum):
    """How weights come into memory."""

    AUTO = "auto"
    """In place where nobody else can write the file, else a copy."""
    COPY = "copy"
    """Always a private copy."""


class ImageSource(Protocol):
    """What an image is read from."""

    @property
    def size(self) -> int: ...

    @property
    def in_place_refusal(self) -> str | None:
        """Why nothing of this source may be mapped in place; None: it may."""

    def read(self, offset: int, size: int) -> bytes: ...

    def read_into(self, offset: int, view: memoryview) -> None: ...

    def map(self, offset: int, size: int) -> memoryview: ...

    def check_unchanged(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MemorySource:
    """An image in memory; the caller keeps the bytes unchanged."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def in_place_refusal(self) -> str | None:
        return "the image is in memory"

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def read_into(self, offset: int, view: memoryview) -> None:
        view[:] = self.data[offset : offset + len(view)]

    def map(self, offset: int, size: int) -> memoryview:
        return memoryview(self.data)[offset : offset + size]

    def check_unchanged(self) -> None:
        """Bytes do not change."""

    def close(self) -> None:
        """Nothing to release."""


class FileSource:
    """An image file: opened once, its size and identity taken once."""

    __slots__ = ("_descriptor", "_identity", "_refusal", "_size")

    def __init__(self, descriptor: int, status: os.stat_result, refusal: str | None) -> None:
        self._descriptor = descriptor
        self._identity = _identity(status)
        self._size = status.st_size
        self._refusal = refusal

    @property
    def size(self) -> int:
        return self._size

    @property
    def in_place_refusal(self) -> str | None:
        return self._refusal

    def read(self, offset: int, size: int) -> bytes:
        """Raises ChangedError if the file has become shorter, EnvironmentFault."""
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise EnvironmentFault(f"cannot read the image: {error.strerror}") from None
        if len(data) == size:
            return data
        whole = bytearray(size)
        self.read_into(offset, memoryview(whole))
        return bytes(whole)

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill ``view``.  Raises ChangedError if the file has become shorter, EnvironmentFault."""
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
                if count == 0:
                    raise ChangedError("the file became shorter while it was read")
                done += count
        except OSError as error:
            raise EnvironmentFault(f"cannot read the image: {error.strerror}") from None

    def map(self, offset: int, size: int) -> memoryview:
        """A read-only mapping; ``offset`` is a multiple of the page size.  Raises EnvironmentFault."""
        try:
            mapped = mmap.mmap(self._descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ, offset=offset)
        except OSError as error:
            raise EnvironmentFault(f"cannot map the image: {error.strerror}") from None
        return memoryview(mapped)

    def check_unchanged(self) -> None:
        """Raises ChangedError if size, times or inode differ from when the file was opened."""
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise EnvironmentFault(f"cannot examine the image: {error.strerror}") from None
        if _identity(status) != self._identity:
            raise ChangedError("the file changed while it was read")

    def close(self) -> None:
        """Release the file; mappings live on as long as their views."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_source(path: Path) -> FileSource:
    """Open a regular file; a symbolic link named by the operator is followed.

    Raises EnvironmentFault, TarSizeError.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO in place of an image would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise EnvironmentFault(f"cannot open image {path}: {error.strerror}", remedy="name an image file") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TarSizeError(f"{path} is no regular file")
        return FileSource(descriptor, status, _in_place_refusal(path, status))
    except BaseException:
        os.close(descriptor)
        raise


@dataclass(frozen=True, slots=True)
class Chunks:
    """A range of a source as private pieces; each iteration reads it anew."""

    source: ImageSource
    offset: int
    size: int

    def __iter__(self) -> Iterator[memoryview]:
        for start in range(0, self.size, CHUNK):
            yield memoryview(self.source.read(self.offset + start, min(CHUNK, self.size - start)))


def private_copy(source: ImageSource, offset: int, size: int) -> tuple[memoryview, Digest]:
    """Page-aligned private memory with these bytes, read-only to the caller, and the SHA-256 of what it holds."""
    # Python's default for anonymous memory is a shared mapping, which a forked child could write to.
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages gives small ones, at twice the time
            area.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(area)
    if size < LARGE:
        source.read_into(offset, view)
        return view.toreadonly(), digest_bytes(view)
    import hashlib

    state = hashlib.sha256()
    for start in range(0, size, CHUNK):
        chunk = view[start : start + CHUNK]
        source.read_into(offset + start, chunk)
        state.update(chunk)
    return view.toreadonly(), Digest(state.hexdigest())


def hash_range(source: ImageSource, offset: int, size: int) -> Digest:
    """SHA-256 of these bytes, in place where that is allowed, else through one small buffer."""
    if source.in_place_refusal is None and size >= CHUNK and offset % mmap.ALLOCATIONGRANULARITY == 0:
        return digest_bytes(source.map(offset, size))
    buffer = memoryview(bytearray(min(size, CHUNK)))
    if size <= CHUNK:
        source.read_into(offset, buffer)
        return digest_bytes(buffer)
    import hashlib

    state = hashlib.sha256()
    for start in range(0, size, CHUNK):
        chunk = buffer[: min(CHUNK, size - start)]
        source.read_into(offset + start, chunk)
        state.update(chunk)
    return Digest(state.hexdigest())


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino


def _folders_of(path: str) -> list[str]:
    """The folders that an absolute path leads through, the innermost first."""
    found: list[str] = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return found


def _in_place_refusal(path: Path, status: os.stat_result) -> str | None:
    try:
        real = os.path.realpath(path, strict=True)
        found = os.lstat(real)
        parents = [(folder, os.lstat(folder)) for folder in _folders_of(real)]
    except OSError as error:
        return f"ownership of the file cannot be determined: {error.strerror}"
    if _identity(found) != _identity(status):
        return "the path led to another file a moment later"
    for place, owner in [(real, status), *parents]:
        if owner.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to another user"
        if owner.st_mode & _WRITABLE_BY_OTHERS:
            return f"{place} can be written by others"
    return None
