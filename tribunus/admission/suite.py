"""Identity of the rules that judge: part of every cache key, so that evidence never outlives the rules it was made by.

Imported by: key, contest, cases, certification.  Imports: canon.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import numpy as np

from tribunus.admission.receipt import SUITE
from tribunus.canon import Digest, digest_of

GOLDEN_ROOMS: Final = ("tribunus.oracle", "tribunus.numerics", "tribunus.phaseir")
ROOMS: Final = ("tribunus.admission", "tribunus.oracle", "tribunus.numerics", "tribunus.isolation")


@cache
def suite_identity() -> str:
    """Version of the suite, and a digest of the source of everything that judges or measures."""
    return f"{SUITE} {_source_digest(ROOMS)[:32]}"


@cache
def golden_identity() -> str:
    """A digest of the source of everything that decides what is right, and the version of what computes it."""
    return f"numpy {np.__version__} {_source_digest(GOLDEN_ROOMS)}"


def _source_digest(rooms: Sequence[str]) -> Digest:
    found: dict[str, str] = {}
    for room in rooms:
        _collect(resources.files(room), room, found)
    return digest_of(dict(found))


def _collect(folder: Traversable, name: str, found: dict[str, str]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and entry.name != "__pycache__":
            _collect(entry, f"{name}.{entry.name}", found)
        elif entry.name.endswith(".py"):
            found[f"{name}.{entry.name}"] = entry.read_text(encoding="utf-8")
