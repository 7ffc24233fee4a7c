"""SHA-256 of bytes in memory, by the library that verifies signatures.

Imported by: canon, image, devices.  Imports: cryptography.

``hashlib`` would load a second OpenSSL, which takes longer than to open a small image.  It is loaded for what is large,
because it lets other threads run while it hashes.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256, Hash

LARGE: Final = 8 * 1024 * 1024
"""Bytes that take longer to hash than ``hashlib`` to load."""
_NOTHING: Final = Hash(SHA256())
"""The state before the first byte: every hash begins with a copy, which costs less than to make it anew."""


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """The 32 bytes of the hash; a view is one of bytes."""
    if len(data) >= LARGE:
        import hashlib

        return hashlib.sha256(data).digest()
    state = _NOTHING.copy()
    state.update(data)
    return state.finalize()
