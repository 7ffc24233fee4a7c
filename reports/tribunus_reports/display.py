"""Text for people: names from a model made harmless to look at, and numbers with their units.

Imported by: every writer of this package.  Imports: nothing.

A name may hold control characters, direction marks, zero-width characters and unpaired surrogates; ``visible`` shows
them as ``<U+202E>``.  Escaping for a format (HTML, XML, Markdown) comes after, in the writer of that format.
"""

from __future__ import annotations

import math
import re
from typing import Final

_ODD: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\uffff\U000e0000-\U000e0fff]"
)


def visible(text: str, limit: int = 120) -> str:
    """``text`` on one line with every character to be seen; the middle of a longer one is left out."""
    if len(text) > limit:
        text = text[: limit // 2] + "…" + text[-(limit // 2) :]
    return _ODD.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


def three_digits(value: float) -> float:
    """``value`` with three significant digits, rounded so that it never crosses 1, the budget, nor reaches 0."""
    if value == 0 or not math.isfinite(value):
        return value
    rounded = float(f"{value:.2e}")
    if value > 1 >= rounded:
        return 1.01
    return 1.0 if value <= 1 < rounded else rounded


def ratio(value: float) -> str:
    """A share of a budget: "0.62", "1,240", "∞"."""
    if math.isinf(value):
        return "∞"
    return (
        f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 0.01 or not value else f"{value:.1e}"
    )


def nanoseconds(value: int) -> str:
    """A time with the unit that suits it."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if value >= factor:
            return f"{value / factor:.2f}\u00a0{unit}"
    return f"{value}\u00a0ns"


def byte_count(value: int) -> str:
    """A size with a binary unit."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:.1f}\u00a0{unit}"
    return f"{value}\u00a0B"


def percent(value: float) -> str:
    """A share of one, signed as it comes: "5.1 %"."""
    return f"{value * 100:.1f}\u00a0%"


def count(number: int, one: str, many: str = "") -> str:
    """ "1 signature", "1,200 signatures"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
