"""Which backends there are: an object that somebody passes in, filled from entry points or by hand.

Imported by: certification, cli, tests.  Imports: candidates.backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

from tribunus.candidates.backend import Availability, Backend
from tribunus.candidates.model import Signature
from tribunus.errors import ToolError, UsageError
from tribunus.targets.target import Target

ENTRY_POINTS: Final = "tribunus.backends"


@dataclass(frozen=True, slots=True)
class Registry:
    """Backends by name, in the order in which they are asked."""

    backends: Mapping[str, Backend]

    def __iter__(self) -> Iterator[Backend]:
        return iter(self.backends.values())

    def get(self, name: str) -> Backend:
        """A backend.  Raises UsageError."""
        if name not in self.backends:
            raise UsageError(f"there is no backend {name!r}", remedy=f"installed: {', '.join(self.backends) or 'none'}")
        return self.backends[name]

    def serving(self, target: Target) -> Registry:
        """Those that can build for ``target`` here.  Raises ToolError with every reason if none can."""
        reasons: list[str] = []
        found: dict[str, Backend] = {}
        for name, backend in self.backends.items():
            answer = backend.serves(target)
            if answer.available:
                found[name] = backend
            else:
                reasons.append(f"{name}: {answer.reason} ({answer.remedy})" if answer.remedy else answer.reason)
        if not found:
            raise ToolError(
                f"no backend can build for {target.name}: {'; '.join(reasons) or 'none is installed'}",
                remedy="pip install 'tribunus-compute[certify]'",
            )
        return Registry(found)

    def covering(self, signature: Signature, target: Target) -> tuple[tuple[Backend, ...], tuple[Availability, ...]]:
        """Backends that cover a signature, and the answers of those that do not."""
        yes: list[Backend] = []
        no: list[Availability] = []
        for backend in self:
            answer = backend.covers(signature, target)
            if answer.available:
                yes.append(backend)
            else:
                no.append(Availability(False, f"{backend.name}: {answer.reason}", answer.remedy))
        return tuple(yes), tuple(no)


def installed_backends(names: Sequence[str] = ()) -> Registry:
    """Backends found by entry point, in alphabetical order; only ``names`` if any are given.

    Raises UsageError for a name that is not installed, or that two packages claim.
    """
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    found: dict[str, Backend] = {}
    for point in points:
        if names and point.name not in names:
            continue
        if point.name in found:
            raise UsageError(f"two packages offer a backend {point.name!r}", remedy="uninstall one of them")
        backend: Backend = point.load()
        found[point.name] = backend
    if missing := [name for name in names if name not in found]:
        raise UsageError(
            f"there is no backend {missing[0]!r}", remedy=f"installed: {', '.join(p.name for p in points) or 'none'}"
        )
    return Registry(found)
