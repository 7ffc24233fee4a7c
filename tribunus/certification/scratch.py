"""Folders for temporary files that go with the process that made them, however it ends.

Imported by: certification, cli.  Imports: errors.

A folder holds ``work`` and a lock file, which its owner keeps locked.  The system drops the lock of a process that
dies, so a folder whose lock is free is left over: whoever makes the next folder removes it first.  A folder without a
lock file is none of ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tribunus.errors import EnvironmentFault

PREFIX: Final = "tribunus-"
_WORK, _LOCK, _NEW_LOCK = "work", ".scratch-lock", ".scratch-lock.new"


class Scratch:
    """A folder in the folder for temporary files (TMPDIR), removed by ``close``, or when this process ends.

    Raises EnvironmentFault.  Use it in a ``with`` statement, or close it.
    """

    def __init__(self, purpose: str) -> None:
        try:
            parent = Path(tempfile.gettempdir())
            remove_left_over(parent)
            place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent))
            lock = _furnished(place)
        except OSError as error:
            raise EnvironmentFault(f"cannot make a folder for temporary files: {error.strerror}") from None
        self.path: Final = place / _WORK
        self._close = weakref.finalize(self, _end, place, lock)

    def close(self) -> None:
        """Remove the folder; once."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_left_over(parent: Path) -> None:
    """Remove the folders in ``parent`` that dead processes of this user left; what cannot be removed stays."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_left(path)


def _remove_if_left(place: Path) -> None:
    """Raises OSError, BlockingIOError among them where the owner lives."""
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return
        lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(place, folder)
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def _furnished(place: Path) -> int:
    """A descriptor of the lock file, which others see only when it is locked.  Raises OSError, with nothing left."""
    try:
        (place / _WORK).mkdir()
        lock = os.open(place / _NEW_LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    with contextlib.suppress(OSError):  # a file system without locks: then nobody will take the folder for left over
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (place / _NEW_LOCK).rename(place / _LOCK)
    return lock


def _end(place: Path, lock: int) -> None:
    """Remove the own folder."""
    try:
        with contextlib.suppress(OSError):
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _remove(place, folder)
            finally:
                os.close(folder)
    finally:
        os.close(lock)


def _remove(place: Path, folder: int) -> None:
    """Remove ``place``, open as ``folder``; the lock last, so that what is half removed can still be known."""
    shutil.rmtree(_WORK, ignore_errors=True, dir_fd=folder)
    if _WORK in os.listdir(folder):
        return
    for name in (_LOCK, _NEW_LOCK):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    place.rmdir()
