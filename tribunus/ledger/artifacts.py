"""Built artifacts on disk, so that an unchanged candidate is not built again.

Imported by: certification.  Imports: canon, candidates, plan.  A file is trusted only as far as its digests go: the
artifact's digest is recomputed from what was read, and the folder is private to the user.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Signature
from tribunus.canon import Digest, Json, JsonObject, decode, digest_of, encode, list_of, object_of, parse_digest, str_of
from tribunus.errors import EncodingError, EnvironmentFault, StructureError
from tribunus.plan.code import Code, CodeFormat, facts_from_json, recipe_from_json, recipe_to_json

_LIMIT: Final = 256 << 20
_MAGIC: Final = b"tribunus.artifact/1\n"


class ArtifactStore:
    """Artifacts by candidate and toolchain."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EnvironmentFault(f"cannot make the folder {folder}: {error.strerror}") from None

    def get(self, candidate: Candidate, signature: Signature, toolchain: Digest) -> Artifact | None:
        """The stored artifact; None if there is none, or if what is there is damaged."""
        path = self._path(candidate, toolchain)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if not data.startswith(_MAGIC):
            return None
        header, _, code = data[len(_MAGIC) :].partition(b"\n")
        try:
            return _decode(decode(header, limit=_LIMIT), code, candidate, signature)
        except (EncodingError, StructureError):
            return None

    def put(self, artifact: Artifact, toolchain: Digest) -> None:
        """Store ``artifact``; atomic.  A full disk loses the stored copy only."""
        path = self._path(artifact.candidate, toolchain)
        document: JsonObject = {
            "digest": artifact.digest,
            "format": artifact.code.format,
            "facts": [[k, v] for k, v in artifact.code.facts],
            "recipe": recipe_to_json(artifact.recipe, artifact.signature.symbols),
            "build": {
                "toolchain": [[k, v] for k, v in artifact.build.toolchain],
                "argv": list(artifact.build.argv),
                "source": artifact.build.source,
                "library": artifact.build.library,
            },
        }
        handle, name = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + encode(document) + b"\n" + artifact.code.data)
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()

    def _path(self, candidate: Candidate, toolchain: Digest) -> Path:
        return self._folder / digest_of([candidate.digest, toolchain])


def _decode(value: Json, code: bytes, candidate: Candidate, signature: Signature) -> Artifact | None:
    document = object_of(value, "artifact", frozenset(("digest", "format", "facts", "recipe", "build")))
    build = object_of(document["build"], "artifact", frozenset(("toolchain", "argv", "source", "library")))
    artifact = Artifact(
        candidate,
        signature,
        Code(CodeFormat(str_of(document["format"], "artifact")), code, facts_from_json(document["facts"], "artifact")),
        recipe_from_json(document["recipe"], signature.symbols, "artifact"),
        BuildRecord(
            tuple((k, str(v)) for k, v in facts_from_json(build["toolchain"], "artifact")),
            tuple(str_of(a, "artifact") for a in list_of(build["argv"], "artifact")),
            parse_digest(str_of(build["source"], "artifact")),
            str_of(build["library"], "artifact"),
        ),
    )
    return artifact if artifact.digest == document["digest"] else None
