"""From a group of ops to its signature: a closed sub-program with canonical names, equal for equal computations.

Imported by: partition.  Imports: phaseir, groups.  Pure.

Dims first get symbols of their own: whatever extent stands at the border is ``d0, d1, ...``, so that a layer does not
know where in the model it stands.  Where the ops need a relation between extents that this loses, the symbols are
those of the program itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

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
    operands: dict[Role, list[int]] = {Role.INPUT: [], Role.WEIGHT: [], Role.CONSTANT: []}
    types: dict[int, TensorType] = {}
    named_attributes: list[Attributes] = []
    temps: list[int] = []
    for index in order:
        op = view.ops[index]
        for value in view.operands(index):
            if value not in types:
                operands[_operand_role(view, value)].append(value)
                types[value] = naming.type(view.type_of(value))
        attributes = naming.attributes(op.attributes)
        scope = DimScope(tuple(naming.symbols))
        inferred = spec_of(op.kind).infer([types.get(v) for v in op.inputs], attributes, scope)
        for value, type_ in zip(op.outputs, inferred, strict=True):
            naming.learn(view.type_of(value), type_)
            types[value] = type_
            temps.append(value)
        named_attributes.append(attributes)
    ids = {
        v: i for i, v in enumerate((*operands[Role.INPUT], *operands[Role.WEIGHT], *operands[Role.CONSTANT], *temps))
    }
    ids[-1] = -1
    values = tuple(
        Value(types[v], role, constant=view.program.values[v].constant if role is Role.CONSTANT else None)
        for role, group in (*operands.items(), (Role.TEMP, temps))
        for v in group
    )
    named_ops = tuple(
        Op(
            view.ops[i].kind,
            tuple(ids[v] for v in view.ops[i].inputs),
            tuple(ids[v] for v in view.ops[i].outputs),
            attributes,
        )
        for i, attributes in zip(order, named_attributes, strict=True)
    )
    inputs = tuple(operands[Role.INPUT])
    phase = Phase(label, tuple(ids[v] for v in inputs), tuple(ids[v] for v in outputs), named_ops)
    signature = Program(values, (phase,), tuple(naming.symbols))
    return Use(label, ops, signature, tuple(naming.bind), inputs, tuple(operands[Role.WEIGHT]), tuple(outputs))


def _operand_role(view: PhaseView, value: int) -> Role:
    held = view.program.values[value]
    if held.role is Role.WEIGHT:
        return Role.WEIGHT
    if held.role is not Role.CONSTANT:
        return Role.INPUT
    elements = held.type.elements
    if not isinstance(elements, int):
        raise InternalError(f"constant {value} has a symbolic shape")
    return Role.CONSTANT if elements <= INLINE_ELEMENTS else Role.WEIGHT


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
