"""Bindings of declared dims: from ``--dim`` options or from captured inputs to symbols with bounds.

Imported by: the frontend, certification, cli.  Imports: canon, errors, facts, dims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tribunus.canon import Json, int_of, list_of, object_of, str_of
from tribunus.errors import DimError, InputError
from tribunus.frontend.facts import DeclaredDim, ModelFacts, TensorFact
from tribunus.phaseir.dims import Dim, Shape, Sym, Symbol


@dataclass(frozen=True, slots=True)
class Bound:
    """Values of one dim: ``lo, lo + step, ... hi``; ``opt`` is the expected one.  A number has lo == opt == hi."""

    lo: int
    opt: int
    hi: int
    step: int = 1

    @property
    def is_number(self) -> bool:
        """Whether only one value is allowed."""
        return self.lo == self.hi

    def __str__(self) -> str:
        if self.is_number:
            return str(self.lo)
        return f"{self.lo}:{self.opt}:{self.hi}" + (f":{self.step}" if self.step != 1 else "")


@dataclass(frozen=True, slots=True)
class DimBindings:
    """What the input dims of a model are in one profile; equal bindings compare equal.

    named: (dim label, bound), ascending.  axes: (input label, axis, bound), ascending; they win over labels and over
    declared numbers.
    """

    named: tuple[tuple[str, Bound], ...] = ()
    axes: tuple[tuple[str, int, Bound], ...] = ()

    def __str__(self) -> str:
        parts = [f"{label}={bound}" for label, bound in self.named]
        parts += [f"{label}[{axis}]={bound}" for label, axis, bound in self.axes]
        return " ".join(parts) or "as declared"


@dataclass(frozen=True, slots=True)
class Profile:
    """Resolved bindings: symbols, and the shape of every input in the order of the facts."""

    symbols: tuple[Symbol, ...]
    shapes: tuple[Shape, ...]


_AXIS = re.compile(r"(?P<label>.+)\[(?P<axis>\d{1,2})\]", re.DOTALL)


def parse_dim_options(options: Sequence[str], facts: ModelFacts) -> DimBindings:
    """Bindings from ``NAME=min:opt:max[:step]``, ``NAME=5`` and ``INPUT[AXIS]=...``.

    Raises DimError for a name that the model lacks, a malformed or unordered bound, or a name given twice.
    """
    named: dict[str, Bound] = {}
    axes: dict[tuple[str, int], Bound] = {}
    for option in options:
        name, separator, text = option.rpartition("=")
        if not separator or not name:
            raise DimError(f"{option!r} is not NAME=min:opt:max[:step] or NAME=number")
        bound = _parse_bound(name, text)
        if name in facts.labels():
            if name in named:
                raise DimError(f"dim {name} is given twice")
            named[name] = bound
            continue
        match = _AXIS.fullmatch(name)
        fact = facts.input(match["label"]) if match else None
        if match is None or fact is None or int(match["axis"]) >= len(fact.dims):
            raise DimError(f"the model has no dim {name}; {_known_dims(facts)}", remedy=_known_remedy(facts))
        key = (match["label"], int(match["axis"]))
        if key in axes:
            raise DimError(f"dim {name} is given twice")
        axes[key] = bound
    return DimBindings(tuple(sorted(named.items())), tuple((i, a, b) for (i, a), b in sorted(axes.items())))


def bindings_from_inputs(facts: ModelFacts, shapes: Mapping[str, Sequence[int]]) -> DimBindings:
    """Bindings of a captured case: every dim is the number that the arrays have.

    A label that stands for different numbers in one case is bound axis by axis.  Raises InputError for inputs that are
    missing, unknown, or of another rank.
    """
    if unknown := sorted(set(shapes) - {fact.label for fact in facts.inputs}):
        raise InputError(f"the model has no input {unknown[0]}; it has {', '.join(f.label for f in facts.inputs)}")
    seen: dict[str, set[int]] = {}
    found: list[tuple[TensorFact, int, DeclaredDim, int]] = []
    for fact in facts.inputs:
        if fact.label not in shapes:
            raise InputError(f"input {fact.label} is missing")
        shape = shapes[fact.label]
        if len(shape) != len(fact.dims):
            raise InputError(f"input {fact.label} has rank {len(shape)}; {fact} was declared")
        for axis, (declared, extent) in enumerate(zip(fact.dims, shape, strict=True)):
            found.append((fact, axis, declared, int(extent)))
            if isinstance(declared, str):
                seen.setdefault(declared, set()).add(int(extent))
    named: dict[str, Bound] = {}
    axes: list[tuple[str, int, Bound]] = []
    for fact, axis, declared, extent in found:
        bound = Bound(extent, extent, extent)
        if isinstance(declared, str) and len(seen[declared]) == 1:
            named[declared] = bound
        elif declared != extent:
            axes.append((fact.label, axis, bound))
    return DimBindings(tuple(sorted(named.items())), tuple(sorted(axes, key=lambda item: item[:2])))


def resolve(facts: ModelFacts, bindings: DimBindings) -> Profile:
    """Symbols ``s0, s1, ...`` in order of appearance, and input shapes.  Equal labels are one symbol.

    Raises DimError that lists every dim without a bound and how to bind it.
    """
    named = dict(bindings.named)
    axes = {(label, axis): bound for label, axis, bound in bindings.axes}
    symbols: list[Symbol] = []
    by_label: dict[str, Dim] = {}
    unbound: dict[str, None] = {}

    def introduce(label: str, bound: Bound) -> Dim:
        if bound.is_number:
            return bound.lo
        symbol = Symbol(f"s{len(symbols)}", label, bound.lo, bound.opt, bound.hi, bound.step)
        symbols.append(symbol)
        return Sym(symbol.name)

    def dim_of(fact: TensorFact, axis: int, declared: DeclaredDim) -> Dim:
        place = f"{fact.label}[{axis}]"
        if (fact.label, axis) in axes:
            return introduce(place, axes[fact.label, axis])
        if isinstance(declared, int):
            return declared
        if declared is None or declared not in named:
            unbound[place if declared is None else declared] = None
            return 0
        if declared not in by_label:
            by_label[declared] = introduce(declared, named[declared])
        return by_label[declared]

    shapes = tuple(tuple(dim_of(fact, axis, d) for axis, d in enumerate(fact.dims)) for fact in facts.inputs)
    if unbound:
        lines = "; ".join(f"--dim '{name}=min:opt:max[:step]' or --dim '{name}=number'" for name in unbound)
        raise DimError(f"dims without bounds: {', '.join(unbound)}", remedy=f"bind each: {lines}")
    return Profile(tuple(symbols), shapes)


def bindings_to_json(bindings: DimBindings) -> Json:
    """Document form."""
    return {
        "named": [[label, *_numbers(bound)] for label, bound in bindings.named],
        "axes": [[label, axis, *_numbers(bound)] for label, axis, bound in bindings.axes],
    }


def bindings_from_json(value: Json) -> DimBindings:
    """Inverse of ``bindings_to_json``.  Raises SchemaError."""
    document = object_of(value, "bindings", frozenset(("named", "axes")))
    named = [list_of(item, "named") for item in list_of(document["named"], "named")]
    axes = [list_of(item, "axes") for item in list_of(document["axes"], "axes")]
    return DimBindings(
        tuple((str_of(item[0], "named"), Bound(*(int_of(n, "named") for n in item[1:]))) for item in named),
        tuple(
            (str_of(item[0], "axes"), int_of(item[1], "axes"), Bound(*(int_of(n, "axes") for n in item[2:])))
            for item in axes
        ),
    )


def _numbers(bound: Bound) -> list[Json]:
    return [bound.lo, bound.opt, bound.hi, bound.step]


def _parse_bound(name: str, text: str) -> Bound:
    parts = text.split(":")
    if len(parts) not in (1, 3, 4) or not all(re.fullmatch(r"\d{1,12}", part) for part in parts):
        raise DimError(f"{name}={text}: min:opt:max[:step] or one number was expected")
    numbers = [int(part) for part in parts]
    if len(numbers) == 1:
        return Bound(numbers[0], numbers[0], numbers[0])
    bound = Bound(*numbers)
    Symbol("s0", name, bound.lo, bound.opt, bound.hi, bound.step)  # refuses bounds that are not ordered
    return bound


def _known_dims(facts: ModelFacts) -> str:
    return "inputs: " + "; ".join(map(str, facts.inputs))


def _known_remedy(facts: ModelFacts) -> str:
    names = ", ".join(facts.labels())
    return f"use one of {names}, or 'INPUT[AXIS]'" if names else "use 'INPUT[AXIS]' with an input of the model"
