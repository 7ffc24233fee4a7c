"""From a group of ops to its signature: a closed sub-program with canonical names, equal for equal computations.

Imported by: partition.  Imports: phaseir, groups.  Pure.

Dims first get symbols of their own: whatever extent stands at the border is ``d0, d1, ...``, so that a layer does not
know where in the model it stands.  Where the ops need a relation between extents that this loses, the symbols are
those of the program itself.

Small constants belong to the signature by value.  Scales and zero points of quantization do not: each place that reads
one has an operand of its own, a weight, so that equal numbers in two places of one layer do not make it another
computation.  A zero point of zeros alone is structure, and stays a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tribunus.errors import DimError, InternalError, LoweringError
from tribunus.passes.groups import Use
from tribunus.passes.view import PhaseView
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32, Attributes, AttributeValue
from tribunus.phaseir.dims import Dim, DimScope, Sym, Symbol
from tribunus.phaseir.ops import spec_of
from tribunus.phaseir.program import INLINE_ELEMENTS, Op, Phase, Program, Role, Value
from tribunus.phaseir.types import TensorType
from tribunus.phaseir.verifier import same_type

_SCALES: Final = frozenset((("quantize_linear", 1), ("dequantize_linear", 1)))
_ZERO_POINTS: Final = frozenset(
    (
        ("quantize_linear", 2),
        ("dequantize_linear", 2),
        *((kind, position) for kind in ("matmul_integer", "conv_integer") for position in (2, 3)),
    )
)

BOUND_ENUMERATION: Final = 4096
"""Up to this many bindings the values of a dim are listed; beyond, its bounds are those of interval arithmetic."""


def make_use(view: PhaseView, label: str, ops: Sequence[int]) -> Use:
    """The use of a group of ops.  Raises InternalError if the ops cannot be typed on their own."""
    chosen = tuple(sorted(ops))
    outputs = view.escapes(chosen)
    order = _canonical_order(view, chosen, outputs)
    try:
        return _build(view, label, chosen, order, outputs, _Naming(view.scope, own=True))
    except (_UnrelatedError, LoweringError, DimError):
        pass
    try:
        return _build(view, label, chosen, order, outputs, _Naming(view.scope, own=False))
    except (_UnrelatedError, LoweringError, DimError) as error:
        raise InternalError(f"ops {chosen} ({label}) have no type of their own: {error}") from error


def symbol_within(scope: DimScope, dim: Dim, name: str) -> Symbol:
    """A symbol that takes the values of ``dim``: exact with their common step where they are few, else an interval."""
    opt = dims.evaluate(dim, scope.optimum())
    names = sorted(dims.symbols_of(dim))
    count = math.prod(len(scope.symbol(n).values()) for n in names)
    if count > BOUND_ENUMERATION:
        low, high = scope.bounds(dim)
        return Symbol(name, name, max(0, low), opt, high)
    values = {dims.evaluate(dim, binding) for binding in scope.bindings(names)}
    low, high = min(values), max(values)
    step = math.gcd(*(value - low for value in values))
    return Symbol(name, name, low, opt, high, max(1, step))


class _UnrelatedError(Exception):
    """Own symbols lost a relation between extents that the group needs."""


@dataclass(slots=True)
class _Naming:
    """Program dims -> dims of the signature.

    own: whether each border extent gets a symbol of its own; otherwise each symbol of the program gets one.
    """

    scope: DimScope
    own: bool
    known: dict[Dim, Dim] = field(default_factory=dict)
    symbols: list[Symbol] = field(default_factory=list)
    bind: list[Dim] = field(default_factory=list)

    def dim(self, dim: Dim) -> Dim:
        if isinstance(dim, int):
            return dim
        if dim in self.known:
            return self.known[dim]
        names = sorted(dims.symbols_of(dim))
        if not self.own:
            for name in names:
                if Sym(name) not in self.known:
                    self._fresh(Sym(name))
        if all(Sym(name) in self.known for name in names):
            self.known[dim] = dims.substitute(dim, {name: self.known[Sym(name)] for name in names})
        else:
            self._fresh(dim)
        return self.known[dim]

    def type(self, type_: TensorType) -> TensorType:
        return TensorType(type_.dtype, tuple(self.dim(d) for d in type_.shape), type_.quantization)

    def attributes(self, attributes: Attributes) -> Attributes:
        return Attributes(tuple((name, self._attribute(value)) for name, value in attributes))

    def learn(self, type_: TensorType, named: TensorType) -> None:
        """Remember what the extents of a result are in terms of the signature."""
        back = {f"d{i}": dim for i, dim in enumerate(self.bind)}
        restored = TensorType(named.dtype, tuple(dims.substitute(d, back) for d in named.shape), named.quantization)
        if not same_type(type_, restored, self.scope):
            raise _UnrelatedError
        for dim, name in zip(type_.shape, named.shape, strict=True):
            if not isinstance(dim, int):
                self.known.setdefault(dim, name)

    def _attribute(self, value: AttributeValue) -> AttributeValue:
        if not isinstance(value, tuple):
            return value
        numbers = tuple(v for v in value if isinstance(v, F32))
        return numbers or tuple(self.dim(v) for v in value if not isinstance(v, F32))

    def _fresh(self, dim: Dim) -> None:
        name = f"d{len(self.symbols)}"
        self.symbols.append(symbol_within(self.scope, dim, name))
        self.bind.append(dim)
        self.known[dim] = Sym(name)


def _build(
    view: PhaseView, label: str, ops: tuple[int, ...], order: Sequence[int], outputs: Sequence[int], naming: _Naming
) -> Use:
    operands: dict[Role, list[_Place]] = {Role.INPUT: [], Role.WEIGHT: [], Role.CONSTANT: []}
    types: dict[_Place, TensorType] = {}
    named_attributes: list[Attributes] = []
    named_inputs: list[tuple[_Place, ...]] = []
    temps: list[_Place] = []
    reader: dict[Op, int] = {}
    for index in order:
        op = view.ops[index]
        first = reader.setdefault(replace(op, outputs=(), source=()), index)
        places: list[_Place] = []
        for position, value in enumerate(op.inputs):
            role = Role.INPUT if value < 0 else _operand_role(view, op, position)
            place = _Place(value, first, position) if _is_parameter(view, op, position) else _Place(value)
            places.append(place)
            if value >= 0 and place not in types:
                operands[role].append(place)
                types[place] = naming.type(view.type_of(value))
        attributes = naming.attributes(op.attributes)
        scope = DimScope(tuple(naming.symbols))
        inferred = spec_of(op.kind).infer([types.get(place) for place in places], attributes, scope)
        for value, type_ in zip(op.outputs, inferred, strict=True):
            naming.learn(view.type_of(value), type_)
            types[_Place(value)] = type_
            temps.append(_Place(value))
        named_attributes.append(attributes)
        named_inputs.append(tuple(places))
    places_in_order = (*operands[Role.INPUT], *operands[Role.WEIGHT], *operands[Role.CONSTANT], *temps)
    ids = {place: i for i, place in enumerate(places_in_order)} | {_Place(-1): -1}
    values = tuple(
        Value(types[v], role, constant=view.program.values[v.value].constant if role is Role.CONSTANT else None)
        for role, group in (*operands.items(), (Role.TEMP, temps))
        for v in group
    )
    named_ops = tuple(
        Op(
            view.ops[i].kind,
            tuple(ids[place] for place in places),
            tuple(ids[_Place(v)] for v in view.ops[i].outputs),
            attributes,
        )
        for i, places, attributes in zip(order, named_inputs, named_attributes, strict=True)
    )
    inputs, weights = (tuple(p.value for p in operands[role]) for role in (Role.INPUT, Role.WEIGHT))
    phase = Phase(label, tuple(range(len(inputs))), tuple(ids[_Place(v)] for v in outputs), named_ops)
    signature = Program(values, (phase,), tuple(naming.symbols))
    return Use(label, ops, signature, tuple(naming.bind), inputs, weights, tuple(outputs))


@dataclass(frozen=True, slots=True)
class _Place:
    """A program value as an operand.  reader, position: the place that reads a scale or zero point; else -1."""

    value: int
    reader: int = -1
    position: int = -1


def _operand_role(view: PhaseView, op: Op, position: int) -> Role:
    value = op.inputs[position]
    held = view.program.values[value]
    if held.role is Role.WEIGHT:
        return Role.WEIGHT
    if held.role is not Role.CONSTANT:
        return Role.INPUT
    elements = held.type.elements
    if not isinstance(elements, int):
        raise InternalError(f"constant {value} has a symbolic shape")
    if elements > INLINE_ELEMENTS:
        return Role.WEIGHT
    return Role.WEIGHT if _is_parameter(view, op, position) else Role.CONSTANT


def _is_parameter(view: PhaseView, op: Op, position: int) -> bool:
    """Whether an operand is a constant scale, or a constant zero point other than zero."""
    value = op.inputs[position]
    if value < 0 or not view.is_constant(value):
        return False
    if (op.kind, position) in _SCALES:
        return True
    if (op.kind, position) in _ZERO_POINTS:
        digest = view.program.values[value].constant
        return digest is None or bool(np.any(view.constants.get(digest)))
    return op.kind == "mul" and _is_dynamic_scale(view, op.inputs[1 - position])


def _is_dynamic_scale(view: PhaseView, value: int) -> bool:
    """Whether a value is a scale found at run time, or an integer product that waits for its scales."""
    found = None if value < 0 else view.producer(value)
    if found is None:
        return False
    kind = view.kind(found)
    if kind == "dynamic_quantize_linear":
        return view.ops[found].outputs[1] == value
    source = view.producer(view.ops[found].inputs[0]) if kind == "cast" else None
    return source is not None and view.kind(source).endswith("_integer")


def _canonical_order(view: PhaseView, ops: tuple[int, ...], outputs: Sequence[int]) -> list[int]:
    """Ops in the order in which walking from the outputs, operands first, finishes them."""
    inside = frozenset(ops)
    order: list[int] = []
    done: set[int] = set()
    roots = [p for v in outputs if (p := view.producer(v)) is not None]
    for root in (*roots, *ops):
        stack = [(root, False)]
        while stack:
            op, finished = stack.pop()
            if finished:
                order.append(op)
            elif op not in done:
                done.add(op)
                stack.append((op, True))
                before = [p for v in view.operands(op) if (p := view.producer(v)) in inside and p is not None]
                stack.extend((p, False) for p in reversed(before))
    return order
