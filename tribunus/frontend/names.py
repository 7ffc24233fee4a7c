"""Names from a model: opaque labels, refused where they could deceive a reader or break a document.

Imported by: loading.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from tribunus.errors import OnnxFieldError
from tribunus.frontend import limits

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def checked_name(name: str | bytes, what: str) -> str:
    """``name`` itself.  Raises OnnxFieldError for control and bidi characters, surrogates, excess length."""
    if isinstance(name, bytes):  # what protobuf makes of text that is not UTF-8, unpaired surrogates included
        raise OnnxFieldError(f"{what} {name[:60]!r} is not valid UTF-8")
    if name.isascii() and name.isprintable() and len(name) <= limits.NAME_BYTES:
        return name
    for char in name:
        if unicodedata.category(char) in ("Cc", "Cs") or char in _BIDI:
            raise OnnxFieldError(
                f"{what} {name[:60]!a} holds the character U+{ord(char):04X}, which is refused in names"
            )
    if len(name.encode()) > limits.NAME_BYTES:
        raise OnnxFieldError(f"{what} {name[:60]!a}... is longer than {limits.NAME_BYTES} bytes")
    return name
