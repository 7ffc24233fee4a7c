"""Reads and writes .npz files whose bytes depend on their arrays alone.

Imported by: benchmarks.zoo, examples' tests.  Imports: numpy, tribunus.errors.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tribunus.errors import EnvironmentFault

Array = NDArray[np.generic]

# numpy.savez stamps the time into the file and takes no key with "file" in it; this writes what it would otherwise.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write ``arrays`` under their names; the file appears complete or not at all."""
    scratch = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(scratch, "w") as archive:
            for name, array in arrays.items():
                member = io.BytesIO()
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
                entry = zipfile.ZipInfo(f"{name}.npy", _NO_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, member.getvalue())
        scratch.replace(path)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error}") from error
    finally:
        scratch.unlink(missing_ok=True)


def read_arrays(path: Path) -> dict[str, Array] | None:
    """The arrays of ``path``, in row-major order, or None if there is no readable .npz file."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return {name: np.asarray(stored[name], order="C") for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def same_arrays(left: Mapping[str, Array] | None, right: Mapping[str, Array] | None) -> bool:
    """True if both hold the same names, dtypes, shapes and bits."""
    if left is None or right is None or left.keys() != right.keys():
        return False
    return all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )
