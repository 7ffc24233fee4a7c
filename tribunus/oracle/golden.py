"""Goldens: a program of one phase in real arithmetic, evaluated in float64 on the exact stored values.

Imported by: running, propagation, certification, tests.  Imports: numerics, phaseir, ops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from tribunus.canon import Digest, Json, digest_of
from tribunus.errors import InputError
from tribunus.numerics.functions import erfc
from tribunus.numerics.rounding import decode, encode
from tribunus.oracle.ops import golden_of
from tribunus.oracle.ops.call import Array, Call, Order, as_array
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Bindings
from tribunus.phaseir.program import Constants, Op, Program, Role
from tribunus.phaseir.types import TensorType

Hook = Callable[[Op, Call, tuple[Array, ...]], tuple[Array, ...]]

NO_BINDINGS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Operands:
    """A program with everything that it reads, by value id: inputs and weights given, constants looked up.

    stored: arrays as NumPy holds their dtype.  exact: the same values, floats widened to float64.
    """

    program: Program
    bindings: Bindings
    types: tuple[TensorType, ...]
    stored: Mapping[int, Array]
    exact: Mapping[int, Array]

    def call(self, op: Op, values: Mapping[int, Array], order: Order = Order.NATURAL) -> Call:
        """The application of ``op`` to ``values``."""
        return Call(
            op.kind,
            op.attributes,
            self.bindings,
            tuple(None if i < 0 else values[i] for i in op.inputs),
            tuple(None if i < 0 else self.types[i] for i in op.inputs),
            tuple(self.types[i] for i in op.outputs),
            order,
        )


def gather_operands(
    program: Program, inputs: Mapping[int, Array], constants: Constants, bindings: Bindings = NO_BINDINGS
) -> Operands:
    """Check the given arrays against the program and widen them.

    inputs: one array for every INPUT, WEIGHT and STATE value that an op reads.  Raises InputError for a missing array,
    a wrong dtype or a wrong shape.
    """
    bound = dict(bindings)
    for given, array in inputs.items():
        _bind(program.values[given].type, array.shape, bound)
    types = tuple(v.type.at(bound) for v in program.values)
    read = {i for op in program.only_phase.ops for i in op.inputs if i >= 0} | set(program.only_phase.outputs)
    stored: dict[int, Array] = {}
    for index, value in enumerate(program.values):
        if value.role is Role.CONSTANT:
            stored[index] = constants.of(program, index)
        elif value.role is not Role.TEMP and (index in read or index in inputs):
            stored[index] = _given(program, inputs, index, types[index])
    exact = {i: decode(a, types[i].dtype) for i, a in stored.items()}
    return Operands(program, bound, types, stored, exact)


def _bind(type_: TensorType, shape: tuple[int, ...], bound: dict[str, int]) -> None:
    for dim, extent in zip(type_.shape, shape, strict=False):
        if isinstance(dim, dims.Sym):
            bound.setdefault(dim.name, extent)


def _given(program: Program, inputs: Mapping[int, Array], index: int, type_: TensorType) -> Array:
    name = program.values[index].label or f"value {index}"
    if index not in inputs:
        raise InputError(f"{name}: no array was given")
    array = np.asarray(inputs[index])
    if array.dtype != type_.dtype.numpy or array.shape != type_.numbers():
        raise InputError(f"{name}: {type_} was expected, not {array.dtype} of shape {array.shape}")
    return array


def evaluate(
    program: Program,
    inputs: Mapping[int, Array],
    constants: Constants,
    *,
    bindings: Bindings = NO_BINDINGS,
    keep: Collection[int] | None = None,
    order: Order = Order.NATURAL,
    hook: Hook | None = None,
) -> dict[int, Array]:
    """Every value of a one-phase program, or only those of ``keep`` (the rest is freed as soon as it was read).

    inputs: by value id, stored as NumPy holds the dtype (bf16, f8 as bit patterns).  Floats come back as float64 and
    unrounded, integers and bools in their own dtype.  bindings: values of symbols that no input shape shows.
    hook: sees the call and the results of every op and may replace the results.
    """
    operands = gather_operands(program, inputs, constants, bindings)
    values = dict(operands.exact)
    last = _last_reads(program) if keep is not None else {}
    wanted = frozenset(keep or ())
    with np.errstate(all="ignore"):
        for position, op in enumerate(program.only_phase.ops):
            results = apply(program, operands, op, values, order)
            if hook is not None:
                results = hook(op, operands.call(op, values, order), results)
            for out, array in zip(op.outputs, results, strict=True):
                values[out] = array
            for value in last.get(position, ()):
                if value not in wanted:
                    del values[value]
    return values if keep is None else {i: a for i, a in values.items() if i in wanted}


def apply(
    program: Program, operands: Operands, op: Op, values: Mapping[int, Array], order: Order = Order.NATURAL
) -> tuple[Array, ...]:
    """Results of one op."""
    tail = _erf_tail(program, operands, op, values) if op.kind == "add" and len(op.inputs) == 2 else None
    results = (tail,) if tail is not None else golden_of(op.kind)(operands.call(op, values, order))
    return tuple(_shaped(r, operands.types[i]) for r, i in zip(results, op.outputs, strict=True))


def _shaped(result: Array, type_: TensorType) -> Array:
    if result.shape != type_.numbers():
        raise InputError(f"an op yields shape {result.shape} where {type_} was inferred")
    return result


def _erf_tail(program: Program, operands: Operands, op: Op, values: Mapping[int, Array]) -> Array | None:
    """``1 + erf(z)`` as ``erfc(-z)``, which keeps the left tail of GELU; None where ``op`` is something else."""
    producers = program.producers(program.only_phase)
    for one, other in (op.inputs, op.inputs[::-1]):
        source = producers.get(other)
        constant = operands.stored.get(one) if program.values[one].role is Role.CONSTANT else None
        if source is None or constant is None or constant.size != 1:
            continue
        before = program.only_phase.ops[source]
        if before.kind == "erf" and float(operands.exact[one].reshape(())) == 1.0 and before.inputs[0] in values:
            return as_array(erfc(-values[before.inputs[0]].astype(np.float64))).reshape(values[other].shape)
    return None


def _last_reads(program: Program) -> dict[int, list[int]]:
    """Op position -> values that no later op reads (results that nobody reads included)."""
    last: dict[int, int] = {}
    for position, op in enumerate(program.only_phase.ops):
        for value in (*op.outputs, *op.inputs):
            if value >= 0:
                last[value] = position
    found: dict[int, list[int]] = {}
    for value, position in last.items():
        found.setdefault(position, []).append(value)
    return found


def present(value: Array, type_: TensorType) -> Array:
    """A golden as the stored elements of its dtype: rounded once."""
    return encode(value, type_.dtype)


def golden_key(signature: Digest, bindings: Bindings, descriptor: Json, policy: str) -> Digest:
    """Key under which the goldens of one vector may be cached."""
    return digest_of(
        {
            "bindings": {name: bindings[name] for name in sorted(bindings)},
            "descriptor": descriptor,
            "policy": policy,
            "signature": signature,
        }
    )
