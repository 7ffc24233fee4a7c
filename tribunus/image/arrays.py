"""Arrays in .npz files: read from a user, written whole or not at all.

Imported by: cli, certification.  Imports: errors, image.folders; NumPy.  Not the runtime, whose import bench times.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.errors import EnvironmentFault, InputError
from tribunus.image.folders import temporary_beside

Array = npt.NDArray[np.generic]

# numpy.savez stamps the time into the file and takes no name with "file" in it
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_ARCHIVE: Final = b"PK"
_ONE_ARRAY: Final = b"\x93NUMPY"
_REMEDY: Final = "write it with numpy.savez"


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays of an .npz file by name, in row-major order.  Raises InputError for anything else."""
    try:
        with path.open("rb") as stream:
            _require_archive(path, stream.read(len(_ONE_ARRAY)))
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as stored:
                return {name: _numbers(path, name, stored[name]) for name in stored.files}
    except OSError as error:
        reason = error.strerror or "it is damaged"
        raise InputError(f"{path} cannot be read: {reason}", remedy="name a file of arrays, .npz") from None
    except MemoryError:
        raise InputError(f"{path} declares an array larger than memory", remedy=_REMEDY) from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        # NumPy's own sentence would advise to unpickle, which runs whatever the file says
        what = "it holds Python objects, not numbers" if "allow_pickle" in str(error) else error
        raise InputError(f"{path} is no readable .npz file: {what}", remedy=_REMEDY) from None


def _require_archive(path: Path, head: bytes) -> None:
    if head == _ONE_ARRAY:
        raise InputError(f"{path} holds one array without a name", remedy=_REMEDY)
    if not head.startswith(_ARCHIVE):
        raise InputError(f"{path} is no readable .npz file: it is {'no archive' if head else 'empty'}", remedy=_REMEDY)


def _numbers(path: Path, name: str, stored: object) -> Array:
    """NumPy gives bytes for a member of the archive that is no array."""
    if not isinstance(stored, np.ndarray):
        raise InputError(f"{path}: {name!r} is no array", remedy=_REMEDY)
    return np.asarray(stored, order="C")


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays under their names; ``path`` holds the old bytes or all the new ones.  Raises EnvironmentFault.

    Equal arrays give equal files.
    """
    temporary = temporary_beside(path)
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with open(descriptor, "wb") as stream:
                with zipfile.ZipFile(stream, "w") as archive:
                    for name, array in arrays.items():
                        entry = zipfile.ZipInfo(f"{name}.npy", _NO_TIME)
                        with archive.open(entry, "w", force_zip64=True) as member:
                            np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
                stream.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror or error}; nothing was left behind") from None
