"""High-water marks: the newest policy version and image epoch accepted here, so that neither can be rolled back.

Imported by: image.policy.  Imports: errors, canon, image.folders.

The file is replaced whole, after success only.  Where nothing can be written there are no marks, and a policy's
``min_epoch`` is what stands against old images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tribunus.canon import Digest, Json, decode, encode, int_of, object_of
from tribunus.errors import EncodingError, EnvironmentFault, PolicyError, PolicyVersionError, RollbackError
from tribunus.image.folders import locked, make_private_folder, replace_file
from tribunus.records import dataclass

SCHEMA: Final = "tribunus.trust-marks/1"
_LIMIT: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HighWaterMarks:
    """The marks kept in one file; a missing file holds none."""

    path: Path

    def check(self, origin: Digest | None, version: int, name: str, epoch: int) -> bool:
        """Refuse what is older than what was accepted before; whether it is newer, and so would raise a mark.

        origin: of the policy; None checks the epoch only.  Raises PolicyVersionError, RollbackError or PolicyError.
        """
        versions, epochs = self._read()
        if origin is not None and version < versions.get(origin, 0):
            raise PolicyVersionError(f"trust policy version {version}, but {versions[origin]} was in force here")
        if epoch < epochs.get(name, 0):
            raise RollbackError(f"image {name!r} has epoch {epoch}, but {epochs[name]} ran here before")
        return _rises(versions, epochs, origin, version, name, epoch)

    def record(self, origin: Digest | None, version: int, name: str, epoch: int) -> bool:
        """Raise the marks.  False: the file cannot be written, nothing was recorded.  Raises PolicyError."""
        if not self._raised(origin, version, name, epoch):
            return True
        try:
            make_private_folder(self.path.parent)
            with locked(self.path.with_name(self.path.name + ".lock")):
                raised = self._raised(origin, version, name, epoch)
                if raised:
                    replace_file(self.path, raised, 0o600)
        except (EnvironmentFault, OSError):
            return False
        return True

    def _raised(self, origin: Digest | None, version: int, name: str, epoch: int) -> bytes:
        """New bytes of the file, or nothing if no mark rises."""
        versions, epochs = self._read()
        if not _rises(versions, epochs, origin, version, name, epoch):
            return b""
        if origin is not None:
            versions[origin] = max(version, versions.get(origin, 0))
        epochs[name] = max(epoch, epochs.get(name, 0))
        document: dict[str, Json] = {"schema": SCHEMA, "versions": {**versions}, "epochs": {**epochs}}
        return encode(document)

    def _read(self) -> tuple[dict[str, int], dict[str, int]]:
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return {}, {}
        except OSError as error:
            raise PolicyError(f"cannot read {self.path}: {error.strerror}", remedy="repair or remove it") from None
        try:
            fields = object_of(decode(data, limit=_LIMIT), "marks", frozenset({"schema", "versions", "epochs"}))
            if fields["schema"] != SCHEMA:
                raise PolicyError(f"{self.path} has an unknown schema", remedy="use a newer release of tribunus")
            return _counts(fields["versions"]), _counts(fields["epochs"])
        except EncodingError as error:
            raise PolicyError(f"{self.path}: {error.detail}", remedy="the file is damaged; remove it") from None


def _rises(
    versions: dict[str, int], epochs: dict[str, int], origin: Digest | None, version: int, name: str, epoch: int
) -> bool:
    return (origin is not None and version > versions.get(origin, 0)) or epoch > epochs.get(name, 0)


def _counts(value: Json) -> dict[str, int]:
    if not isinstance(value, dict):
        raise PolicyError("high-water marks: an object was expected", remedy="the file is damaged; remove it")
    return {key: int_of(item, "high-water mark") for key, item in value.items()}
