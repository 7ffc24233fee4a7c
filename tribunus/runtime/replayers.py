"""Which module replays which code format.

Imported by: runtime, isolation.  Imports: devices.  Our own formats stand in a table, because reading entry points
costs more than opening a small image; other people's are found by entry point ``tribunus.replayers``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, TypeGuard

from tribunus.devices.replayer import Replayer
from tribunus.errors import DriverError, InternalError
from tribunus.plan.code import CodeFormat

OWN_FORMATS: Final[dict[str, str]] = {
    "flat": "tribunus.devices.flat:REPLAYER",
    "onednn-recipe": "tribunus_onednn.replay:REPLAYER",
}
ENTRY_POINTS: Final = "tribunus.replayers"


def find_replayer(format_: CodeFormat) -> Replayer:
    """The replayer of a code format.  Raises DriverError where none is installed."""
    place = replayer_place(format_)
    module, _, attribute = place.partition(":")
    try:
        replayer: object = getattr(import_module(module), attribute)
    except ImportError as error:
        raise DriverError(f"the replayer of format {format_!r} cannot be loaded: {error}") from None
    if not _is_replayer(replayer, format_):
        raise InternalError(f"{place} is no replayer of format {format_!r}")
    return replayer


def replayer_place(format_: CodeFormat) -> str:
    """``module:attribute`` of the replayer of a code format.  Raises DriverError where there is none, or several."""
    place = OWN_FORMATS.get(format_) or _from_entry_points(format_)
    if place is None:
        raise DriverError(
            f"no replayer for code of format {format_!r} is installed",
            remedy=f"install the backend that makes it; it names its replayer in the entry points {ENTRY_POINTS}",
        )
    return place


def _is_replayer(found: object, format_: CodeFormat) -> TypeGuard[Replayer]:
    return getattr(found, "format", None) == format_ and callable(getattr(found, "bind", None))


def _from_entry_points(format_: CodeFormat) -> str | None:
    from importlib.metadata import entry_points  # slow to import, and needed for foreign formats only

    found = [point.value for point in entry_points(group=ENTRY_POINTS) if point.name == format_]
    if len(found) > 1:
        raise DriverError(
            f"format {format_!r} has several replayers: {', '.join(found)}", remedy="uninstall all but one"
        )
    return found[0] if found else None
