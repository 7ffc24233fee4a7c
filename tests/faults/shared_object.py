"""A replayer of shared objects: code that may have what flat code cannot, such as statics, threads and an environment.

Imported by: children of an executor that was told of the format; the workshop for its names.  The code's bytes are the
path of the file, because a child can write none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tribunus.devices.replayer import Words
from tribunus.errors import DriverError
from tribunus.plan.code import Code, CodeFormat, Recipe

FORMAT = CodeFormat("shared-object")
PLACE = "tests.faults.shared_object:REPLAYER"


class SharedObject:
    """A loaded file."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._entry = ctypes.cast(self._library.kernel, ctypes.c_void_p).value or 0
        self._tables: list[object] = []

    def launch(self, buffers: Sequence[int], params: Sequence[int], parts: int) -> tuple[Words, ...]:
        """Words of each part."""
        addresses = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
        values = (ctypes.c_int64 * max(1, len(params)))(*params)
        self._tables += [addresses, values]
        a0, a1 = ctypes.addressof(addresses), ctypes.addressof(values)
        return tuple(Words(self._entry, a0, a1, part, parts) for part in range(parts))

    def close(self) -> None:
        """Forget the tables; a library cannot be unloaded safely."""
        self._tables.clear()


class SharedObjectReplayer:
    """Replayer of the format ``shared-object``."""

    @property
    def format(self) -> CodeFormat:
        return FORMAT

    def bind(self, code: Code, recipe: Recipe) -> SharedObject:
        if code.format != FORMAT:
            raise DriverError(f"code of format {code.format}")
        return SharedObject(code.data.decode())


REPLAYER = SharedObjectReplayer()
