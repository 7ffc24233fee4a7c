"""What commands print: figures in words, tables of at most 80 columns, JSON.

Imported by: the commands.  Imports: the standard library.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

Document: TypeAlias = "bool | int | float | str | Sequence[Document] | Mapping[str, Document] | None"
"""What a command says as JSON.  Unlike evidence it may hold decimals."""

WIDTH: Final = 80


def print_json(document: Document) -> None:
    """One JSON document on standard output."""
    print(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False))


def bytes_text(count: int) -> str:
    """``1.2 MB``: decimal units, three figures."""
    return _scaled(count, (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12)))


def time_text(nanoseconds: int) -> str:
    """``12.3 us``."""
    return _scaled(nanoseconds, (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)))


def _scaled(value: int, units: Sequence[tuple[str, int]]) -> str:
    name, size = next(((n, s) for n, s in reversed(units) if value >= s), units[0])
    if size == 1:
        return f"{value} {name}"
    figure = value / size
    return f"{figure:.{2 if figure < 10 else 1 if figure < 100 else 0}f} {name}"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """``1 kernel``, ``1,200 kernels``, ``2 launches``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def field(name: str, text: str) -> str:
    """A name and its value; a long value goes on below its own beginning."""
    return textwrap.fill(
        clean(text), WIDTH, initial_indent=f"{name:<11} ", subsequent_indent=" " * 12, break_on_hyphens=False
    )


def clean(text: str) -> str:
    """``text`` without control characters: names in a file must not steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def clip(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, cleaned; what was cut shows."""
    shown = clean(text)
    return shown if len(shown) <= width else shown[: width - 3] + "..."


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned columns; the first is text and gives way where the line would be too long, the others are figures."""
    cells = [list(heads), *(list(row) for row in rows)]
    others = [max(len(row[column]) for row in cells) for column in range(1, len(heads))]
    room = WIDTH - sum(width + 2 for width in others)
    first = min(room, max(len(row[0]) for row in cells))
    return [
        f"{clip(row[0], first):<{first}}" + "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], others, strict=True))
        for row in cells
    ]
