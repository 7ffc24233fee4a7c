"""Where a user's trust lives on disk, and how files there are replaced whole.

Imported by: image.keys, image.policy, image.marks, image.write.  Imports: errors.

The configuration folder is found without HOME too, because services and containers often run without it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tribunus.errors import EnvironmentFault


def config_folder(environ: Mapping[str, str]) -> Path:
    """Folder of trust policy and development key: ``$XDG_CONFIG_HOME/tribunus`` or ``~/.config/tribunus``."""
    return _folder(environ, "XDG_CONFIG_HOME", ".config")


def state_folder(environ: Mapping[str, str]) -> Path:
    """Folder of the high-water marks: ``$XDG_STATE_HOME/tribunus`` or ``~/.local/state/tribunus``."""
    return _folder(environ, "XDG_STATE_HOME", ".local/state")


def make_private_folder(folder: Path) -> None:
    """Create ``folder`` and its parents, readable by the user alone.  Raises EnvironmentFault."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot create {folder}: {error.strerror}") from None


def temporary_beside(path: Path) -> Path:
    """A fresh name in the folder of ``path``, so that a rename onto ``path`` stays within one file system."""
    return path.with_name(f".{path.name[:80]}.{os.urandom(8).hex()}.tmp")


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Write ``data`` so that ``path`` holds either the old bytes or all the new ones.  Raises EnvironmentFault."""
    temporary = temporary_beside(path)
    try:
        try:
            write_new_file(temporary, data, mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from None


def write_new_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not exist yet, and wait until it is on disk; nothing or all of it.  Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``, made if missing, against other processes.  Raises OSError."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _folder(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    named = environ.get(variable, "")
    if named.startswith("/"):
        return Path(named) / "tribunus"
    return _home(environ) / below_home / "tribunus"


def _home(environ: Mapping[str, str]) -> Path:
    named = environ.get("HOME", "")
    if named.startswith("/"):
        return Path(named)
    # The password database knows the home of a process that was started without an environment.
    import pwd

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise EnvironmentFault(
            f"user {os.getuid()} has no home folder", remedy="set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME"
        ) from None
