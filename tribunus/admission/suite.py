"""Identity of the rules that judge: part of every cache key, so that evidence never outlives the rules it was made by.

Imported by: key, contest, certification.  Imports: canon.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from tribunus.admission.receipt import SUITE
from tribunus.canon import digest_of

ROOMS: Final = ("tribunus.admission", "tribunus.oracle", "tribunus.numerics", "tribunus.isolation")


@cache
def suite_identity() -> str:
    """Version of the suite, and a digest of the source of everything that judges or measures."""
    found: dict[str, str] = {}
    for room in ROOMS:
        _collect(resources.files(room), room, found)
    return f"{SUITE} {digest_of(dict(found))[:32]}"


def _collect(folder: Traversable, name: str, found: dict[str, str]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and entry.name != "__pycache__":
            _collect(entry, f"{name}.{entry.name}", found)
        elif entry.name.endswith(".py"):
            found[f"{name}.{entry.name}"] = entry.read_text(encoding="utf-8")
