"""Where a command may write: a file that is none of those which it reads.

Imported by: the commands that write a file.  Imports: errors.
"""

from __future__ import annotations

from pathlib import Path

from tribunus.errors import UsageError


def require_place(output: Path, *read: Path | None) -> None:
    """Whether ``output`` can name a new file, and would replace none of those ``read``.  Raises UsageError."""
    if output.is_dir():
        raise UsageError(f"{output} is a folder", remedy="name a file in it")
    place = output.resolve()
    for source in read:
        if source is not None and source.resolve() == place:
            raise UsageError(f"the output would overwrite {source}, which is read here", remedy="name another file")
