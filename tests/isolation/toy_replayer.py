"""A replayer of code that is the name of a Python function here: what a backend in tests may use.

Imported by: children of an executor that was told of the format ``toy-python``; not by the tests themselves.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tribunus.devices.replayer import Words
from tribunus.errors import DriverError, NoExecError
from tribunus.plan.code import Code, CodeFormat, Recipe

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
F32 = npt.NDArray[np.float32]


def add(a: F32, b: F32, out: F32) -> None:
    out[:] = a + b


def add_later(a: F32, b: F32, out: F32) -> None:
    def work() -> None:
        time.sleep(0.01)
        out[:] = a + b

    threading.Thread(target=work, daemon=True).start()


def add_by_environment(a: F32, b: F32, out: F32) -> None:
    out[:] = a + b + len(os.environ.get("TZ", ""))


def leave(a: F32, b: F32, out: F32) -> None:
    os._exit(3)


_FUNCTIONS: dict[str, Callable[[F32, F32, F32], None]] = {
    f.__name__: f for f in (add, add_later, add_by_environment, leave)
}


class Bound:
    def __init__(self, function: Callable[[F32, F32, F32], None]) -> None:
        def call(buffers: int, params: int, part: int, parts: int) -> None:
            addresses = (ctypes.c_void_p * 3).from_address(buffers)
            count = ctypes.c_int64.from_address(params).value
            arrays = [np.ctypeslib.as_array((ctypes.c_float * count).from_address(int(a or 0))) for a in addresses]
            function(*arrays)

        self._call = _KERNEL(call)
        self._tables: list[object] = []

    def launch(self, buffers: Sequence[int], params: Sequence[int], parts: int) -> tuple[Words, ...]:
        addresses, values = (ctypes.c_void_p * 3)(*buffers), (ctypes.c_int64 * 1)(*params)
        self._tables += [addresses, values]
        entry = ctypes.cast(self._call, ctypes.c_void_p).value or 0
        return (Words(entry, ctypes.addressof(addresses), ctypes.addressof(values), 0, parts),)

    def close(self) -> None:
        self._tables.clear()


class ToyReplayer:
    @property
    def format(self) -> CodeFormat:
        return CodeFormat("toy-python")

    def bind(self, code: Code, recipe: Recipe) -> Bound:
        if len(recipe.inputs) != 2:
            raise DriverError("two inputs were expected")
        if code.data == b"forbidden":
            raise NoExecError("the system refuses executable memory")
        return Bound(_FUNCTIONS[code.data.decode()])


REPLAYER = ToyReplayer()
