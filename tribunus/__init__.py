"""Tribunus Compute: certify every kernel of a model before the first request, then replay exactly what was certified.

Imported by: users.  Nothing is imported until it is asked for, so ``import tribunus`` costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tribunus.version import VERSION as __version__

if TYPE_CHECKING:
    from tribunus.runtime.session import Image, open

__all__ = ["Image", "__version__", "open"]


def __getattr__(name: str) -> object:
    if name in ("open", "Image"):
        from tribunus.runtime import session

        found: object = getattr(session, name)
        return found
    raise AttributeError(f"module 'tribunus' has no attribute {name!r}")
