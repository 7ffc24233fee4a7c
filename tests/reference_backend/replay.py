"""The run-time half of the reference backend: a NumPy kernel behind a C function pointer.

Runs in the worker's child alone.  Every op is computed and rounded to its dtype before the next; sums of products are
made in the operands' own format, as an honest kernel would.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.reference_backend.format import FORMAT
from tribunus.canon import decode, int_of, list_of, object_of, str_of
from tribunus.devices.replayer import Words
from tribunus.errors import DriverError
from tribunus.numerics.rounding import encode as store
from tribunus.oracle.golden import evaluate
from tribunus.oracle.ops.call import Array, Call
from tribunus.phaseir import dims
from tribunus.phaseir.document import program_from_json
from tribunus.phaseir.program import Constants, Op, Program, Role
from tribunus.plan.code import Code, CodeFormat, Operand, Recipe

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@dataclass(slots=True)
class NumpyKernel:
    """A program ready to be called on raw addresses."""

    program: Program
    constants: Constants
    recipe: Recipe
    keep: list[object] = field(default_factory=list)

    def launch(self, buffers: Sequence[int], params: Sequence[int], parts: int) -> tuple[Words, ...]:
        """One word: the callback does everything."""
        addresses, values = list(buffers), list(params)

        def call(_buffers: int, _params: int, _part: int, _parts: int) -> None:
            self.compute(addresses, values)

        callback = KERNEL(call)
        self.keep.append(callback)
        return (Words(ctypes.cast(callback, ctypes.c_void_p).value or 0, 0, 0, 0, 1),)

    def compute(self, addresses: Sequence[int], params: Sequence[int]) -> None:
        """Read inputs and weights, evaluate, write outputs."""
        bindings = {s.name: value for s, value in zip(self.program.symbols, params, strict=True)}
        phase = self.program.only_phase
        given: dict[int, Array] = {}
        for value, operand, address in zip(phase.inputs, self.recipe.inputs, addresses, strict=False):
            given[value] = _read(operand, address, bindings)
        first = len(self.recipe.inputs) + len(self.recipe.outputs)
        weights = [i for i, v in enumerate(self.program.values) if v.role is Role.WEIGHT]
        for value, address in zip(weights, addresses[first:], strict=False):
            type_ = self.program.type_of(value).at(bindings)
            given[value] = _memory(address, type_.dtype.numpy, type_.numbers()).copy()
        found = evaluate(self.program, given, self.constants, bindings=bindings, keep=phase.outputs, hook=_rounded)
        for value, operand, address in zip(
            phase.outputs, self.recipe.outputs, addresses[len(self.recipe.inputs) :], strict=False
        ):
            _write(operand, address, bindings, found[value])

    def close(self) -> None:
        """Forget the callbacks."""
        self.keep.clear()


@dataclass(frozen=True, slots=True)
class NumpyReplayer:
    """Replayer of the format ``numpy``."""

    format: CodeFormat = FORMAT

    def bind(self, code: Code, recipe: Recipe) -> NumpyKernel:
        """Read the program."""
        if code.format != FORMAT:
            raise DriverError(f"code of format {code.format}")
        document = object_of(decode(code.data, limit=1 << 26), "code", frozenset(("program", "inline")))
        program = program_from_json(document["program"])
        constants = Constants()
        for row in list_of(document["inline"], "code"):
            number, text = list_of(row, "code")
            type_ = program.type_of(int_of(number, "code"))
            data = np.frombuffer(bytes.fromhex(str_of(text, "code")), dtype=type_.dtype.numpy)
            constants.add(data.reshape(type_.numbers()), type_.dtype)
        return NumpyKernel(program, constants, recipe)


def _rounded(op: Op, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
    """Results as an honest kernel would have them: products summed in binary32, everything stored in its dtype."""
    if op.kind == "matmul" and call.result_dtype().value == "f32":
        results = (np.matmul(call.operand(0).astype(np.float32), call.operand(1).astype(np.float32)),)
    stored = []
    for position, result in enumerate(results):
        dtype = call.result_dtype(position)
        with np.errstate(all="ignore"):
            stored.append(_widened(store(result, dtype), dtype.is_float) if dtype.is_float else result)
    return tuple(stored)


def _widened(array: Array, is_float: bool) -> Array:
    return array.astype(np.float64) if is_float and array.dtype.kind == "f" else array


def _memory(address: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_ubyte * max(1, count * dtype.itemsize)).from_address(address)
    found: Array = np.frombuffer(memoryview(raw), dtype=dtype, count=count).reshape(shape)
    return found


def _read(operand: Operand, address: int, bindings: dict[str, int]) -> Array:
    shape = dims.evaluate_shape(operand.type.shape, bindings)
    count = dims.evaluate(operand.layout.elements(operand.type.shape), bindings)
    flat = _memory(address, operand.type.dtype.numpy, (count,)).copy()
    return np.ascontiguousarray(operand.layout.unpack(flat, shape)).reshape(shape)


def _write(operand: Operand, address: int, bindings: dict[str, int], value: Array) -> None:
    shape = dims.evaluate_shape(operand.type.shape, bindings)
    dtype = operand.type.dtype
    logical = store(value, dtype) if dtype.is_float else value.astype(dtype.numpy)
    layout = operand.layout
    count = dims.evaluate(layout.elements(operand.type.shape), bindings)
    target = _memory(address, dtype.numpy, (count,))
    packed = layout.pack(logical.reshape(shape))
    inside = layout.pack(np.ones(shape, dtype=np.uint8)) != 0
    target[inside] = packed[inside]


REPLAYER = NumpyReplayer()
