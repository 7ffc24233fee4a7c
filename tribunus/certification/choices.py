"""The lock file: which candidate serves which demand; a second build from it has bit-identical content.

Imported by: certification, certify.  Imports: canon.
"""

from __future__ import annotations

from pathlib import Path

from tribunus.canon import Digest, decode, list_of, object_of, parse_digest, str_of
from tribunus.errors import EncodingError, StructureError, UsageError

_LIMIT = 64 << 20
SCHEMA = "tribunus.choices/1"


def load_choices(path: Path) -> frozenset[Digest]:
    """Digests of the chosen candidates.  Raises UsageError for a file that is no choices file."""
    try:
        data = path.read_bytes()
        document = object_of(
            decode(data.removesuffix(b"\n"), limit=_LIMIT),
            "choices",
            frozenset(("schema", "model", "target", "policy", "choices")),
        )
        if document["schema"] != SCHEMA:
            raise UsageError(f"{path}: schema {str(document['schema'])[:40]!r}, {SCHEMA!r} was expected")
        rows = [
            object_of(row, "choices", frozenset(("signature", "name", "layouts", "backend", "candidate", "config")))
            for row in list_of(document["choices"], "choices")
        ]
        return frozenset(parse_digest(str_of(row["candidate"], "choices")) for row in rows)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", remedy="name a choices.json") from None
    except (EncodingError, StructureError) as error:
        raise UsageError(f"{path} is no choices file: {error.detail}", remedy="name a choices.json") from None
