"""Flat code to a launch, for the runtime and the worker: the sequencer of every image is flat code too.

Imported by: runtime and isolation, by the format's name.  Imports: tribunus.plan (types only), devices.

``void kernel(void *const *buffers, const int64_t *params, int64_t part, int64_t parts)`` stands at offset 0 of the
bytes, which may be copied to any address that is a multiple of 256.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from tribunus.devices.cpu import CODE_ALIGN, ExecutableBytes
from tribunus.devices.replayer import Words
from tribunus.errors import DriverError

if TYPE_CHECKING:
    from tribunus.plan.code import Code, CodeFormat, Recipe

FORMAT: Final = cast("CodeFormat", "flat")


class FlatBound:
    """Flat code in executable memory.  Launches keep their buffer and parameter tables alive here."""

    def __init__(self, address: int, code: ExecutableBytes | None = None) -> None:
        self._address = address
        self._code = code
        self._tables: list[bytearray] = []

    def launch(self, buffers: Sequence[int], params: Sequence[int], parts: int) -> tuple[Words, ...]:
        """Words of each part."""
        table = bytearray(struct.pack(f"={len(buffers)}Q{len(params) or 1}q", *buffers, *(params or (0,))))
        self._tables.append(table)
        a0 = ctypes.addressof(ctypes.c_char.from_buffer(table))
        a1 = a0 + 8 * len(buffers)
        return tuple([Words(self._address, a0, a1, part, parts) for part in range(parts)])

    def close(self) -> None:
        """Unmap the code, unless it lies in memory of the caller's."""
        if self._code is not None:
            self._code.close()
        self._tables.clear()


class FlatReplayer:
    """Replayer of the format ``flat``."""

    @property
    def format(self) -> CodeFormat:
        """``flat``."""
        return FORMAT

    def bind(self, code: Code, recipe: Recipe) -> FlatBound:
        """Load the bytes.  Raises DriverError for bytes that cannot be code, NoExecError where loading is forbidden."""
        text_size = code.fact("text_size")
        if code.format != FORMAT or not 0 < text_size <= len(code.data):
            raise DriverError(
                f"{len(code.data)} bytes of format {code.format} with {text_size} of text are no flat code"
            )
        loaded = ExecutableBytes(code.data, code.digest)
        return FlatBound(loaded.address, loaded)

    def bind_placed(self, address: int, size: int, facts: Sequence[tuple[str, int | str]], recipe: Recipe) -> FlatBound:
        """What launches the code at ``address``.  Raises DriverError for bytes that cannot be code."""
        text_size = dict(facts).get("text_size")
        if not isinstance(text_size, int) or not 0 < text_size <= size or address % CODE_ALIGN:
            raise DriverError(f"{size} bytes with {text_size} of text at {address:#x} are no flat code")
        return FlatBound(address)


REPLAYER: Final = FlatReplayer()
