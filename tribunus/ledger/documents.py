"""Documents that need not be made again: contests and program checks, by the digest of all they depend on.

Imported by: certification.  Imports: canon.  A damaged or missing document is made again; none is evidence by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tribunus.canon import Digest, Json, JsonObject, decode, encode
from tribunus.errors import EncodingError, EnvironmentFault, StructureError
from tribunus.image.folders import replace_file

_LIMIT: Final = 64 << 20
T = TypeVar("T")


class DocumentStore:
    """Canonical JSON documents in a private folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EnvironmentFault(f"cannot make the folder {folder}: {error.strerror}") from None

    def get(self, kind: str, key: Digest, read: Callable[[Json], T]) -> T | None:
        """What ``read`` makes of the document; None where there is none, or ``read`` finds it is not of its form."""
        try:
            return read(decode(self._path(kind, key).read_bytes(), limit=_LIMIT))
        except (OSError, EncodingError, StructureError):
            return None

    def put(self, kind: str, key: Digest, document: JsonObject) -> None:
        """Keep a document; a full disk only means that it is made again."""
        with contextlib.suppress(OSError, EnvironmentFault):
            replace_file(self._path(kind, key), encode(document), 0o600)

    def _path(self, kind: str, key: Digest) -> Path:
        return self._folder / f"{kind}-{key}.json"
