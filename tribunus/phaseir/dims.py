"""Dims: integers, or expressions over symbols in a normal form.

Imported by: every room that knows shapes, the runtime included.  Imports: canon, errors.  Standard library only.

Equal expressions have equal normal forms wherever polynomials decide it: sums are flattened, constants folded, terms
ordered.  ``floordiv``, ``ceildiv``, ``mod``, ``min`` and ``max`` are atoms of the polynomial after their own laws were
applied.  All divisors are positive.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tribunus.canon import Json, int_of, list_of, read_once
from tribunus.errors import DimError, SchemaError
from tribunus.records import dataclass

if TYPE_CHECKING:
    from fractions import Fraction

ENUMERATION_LIMIT: Final = 200_000


@dataclass(frozen=True, slots=True, order=True)
class Sym:
    """A symbol by its canonical name: ``s0, s1, ...`` in a program, ``d0, d1, ...`` in a signature."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Compound:
    """``op`` applied to ``args``; only the functions of this module build it, always in normal form."""

    op: str
    args: tuple[Dim, ...]

    def __str__(self) -> str:
        if self.op in _INFIX:
            return "(" + f" {self.op} ".join(map(str, self.args)) + ")"
        return f"{self.op}({', '.join(map(str, self.args))})"


Dim: TypeAlias = "int | Sym | Compound"
Shape: TypeAlias = "tuple[Dim, ...]"
Bindings: TypeAlias = "Mapping[str, int]"

_INFIX: Final = ("+", "*")
OPERATORS: Final = ("+", "*", "floordiv", "ceildiv", "mod", "min", "max")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dim that is no number yet, with its bounds.

    name: canonical name.  label: what people call it (from the model; opaque, never a key).  lo, opt, hi: smallest,
    expected and largest value.  step: values are ``lo, lo + step, ...``; ``opt`` and ``hi`` lie on this grid.
    """

    name: str
    label: str
    lo: int
    opt: int
    hi: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.step < 1 or not 0 <= self.lo <= self.opt <= self.hi:
            raise DimError(f"{self.label}: bounds {self.lo}:{self.opt}:{self.hi}:{self.step} are not ordered")
        if (self.opt - self.lo) % self.step or (self.hi - self.lo) % self.step:
            raise DimError(f"{self.label}: {self.opt} and {self.hi} must be {self.lo} plus multiples of {self.step}")

    def values(self) -> range:
        """All values in ascending order."""
        return range(self.lo, self.hi + 1, self.step)


@dataclass(frozen=True, slots=True)
class DimScope:
    """The symbols that expressions may name; decides equalities and bounds over their whole range."""

    symbols: tuple[Symbol, ...] = ()

    def symbol(self, name: str) -> Symbol:
        """The symbol of this canonical name.  Raises DimError."""
        for symbol in self.symbols:
            if symbol.name == name:
                return symbol
        raise DimError(f"unknown symbol {name}")

    def bounds(self, dim: Dim) -> tuple[int, int]:
        """An interval that contains every value of ``dim`` (interval arithmetic, so it may be wider)."""
        if isinstance(dim, int):
            return dim, dim
        if isinstance(dim, Sym):
            symbol = self.symbol(dim.name)
            return symbol.lo, symbol.hi
        parts = [self.bounds(arg) for arg in dim.args]
        if dim.op == "+":
            return sum(lo for lo, _ in parts), sum(hi for _, hi in parts)
        if dim.op == "*":
            lo, hi = parts[0]
            for other_lo, other_hi in parts[1:]:
                corners = (lo * other_lo, lo * other_hi, hi * other_lo, hi * other_hi)
                lo, hi = min(corners), max(corners)
            return lo, hi
        if dim.op in ("min", "max"):
            pick = min if dim.op == "min" else max
            return pick(lo for lo, _ in parts), pick(hi for _, hi in parts)
        (lo, hi), (divisor_lo, divisor_hi) = parts[0], parts[1]
        if divisor_lo < 1:
            raise DimError(f"{dim}: the divisor may be smaller than 1")
        if dim.op == "mod":
            return (lo, hi) if lo >= 0 and hi < divisor_lo else (0, divisor_hi - 1)
        divide = _floordiv_int if dim.op == "floordiv" else _ceildiv_int
        corners4 = [divide(n, d) for n in (lo, hi) for d in (divisor_lo, divisor_hi)]
        return min(corners4), max(corners4)

    def equal(self, left: Dim, right: Dim) -> bool:
        """Whether both are the same number for every value of the symbols.

        Decided by normal form, then by interval, then by enumeration up to ENUMERATION_LIMIT bindings; beyond that an
        equality that is not proved counts as false.
        """
        difference = sub(left, right)
        if isinstance(difference, int):
            return difference == 0
        lo, hi = self.bounds(difference)
        if lo > 0 or hi < 0:
            return False
        return self.counterexample(left, right) is None if self._enumerable(difference) else False

    def counterexample(self, left: Dim, right: Dim) -> dict[str, int] | None:
        """The first binding (ascending) at which the two differ, or None."""
        difference = sub(left, right)
        for binding in self.bindings(sorted(symbols_of(difference))):
            if evaluate(difference, binding) != 0:
                return binding
        return None

    def bindings(self, names: Sequence[str]) -> Iterator[dict[str, int]]:
        """Every assignment of values to ``names``, first name slowest."""
        ranges = [self.symbol(name).values() for name in names]
        for values in itertools.product(*ranges):
            yield dict(zip(names, values, strict=True))

    def at_least(self, dim: Dim, low: int) -> bool:
        """Whether ``dim >= low`` throughout, by interval, else with divisions relaxed to lines."""
        return self.bounds(dim)[0] >= low or self._line_low(dim) >= low

    def _line_low(self, dim: Dim) -> Fraction:
        """A lower bound of ``dim``: ``floordiv(x, n)`` lies within ``(x - n + 1) / n .. x / n``, so that terms of
        nearly equal slope cancel, which intervals cannot see.
        """
        from fractions import Fraction  # it brings decimal: too dear for a runtime that never gets here

        line: dict[tuple[Dim, ...], Fraction] = {}
        pending = [(atoms, Fraction(factor)) for atoms, factor in _terms(dim).items()]
        while pending:
            atoms, factor = pending.pop()
            atom = atoms[0] if len(atoms) == 1 else None
            if isinstance(atom, Compound) and atom.op in ("floordiv", "ceildiv") and isinstance(atom.args[1], int):
                divisor = atom.args[1]
                pending += [(inner, factor * k / divisor) for inner, k in _terms(atom.args[0]).items()]
                if (factor > 0) == (atom.op == "floordiv"):
                    line[()] = line.get((), Fraction(0)) - abs(factor) * Fraction(divisor - 1, divisor)
            elif isinstance(atom, Compound) and atom.op == ("min" if factor < 0 else "max"):
                # any argument bounds it from the wanted side: take the first that is no number
                pending += [(inner, factor * k) for inner, k in _terms(atom.args[-1]).items()]
            else:
                line[atoms] = line.get(atoms, Fraction(0)) + factor
        low = line.pop((), Fraction(0))
        for atoms, factor in line.items():
            lo, hi = self.bounds(product(atoms))
            low += factor * (lo if factor > 0 else hi)
        return low

    def optimum(self) -> dict[str, int]:
        """Every symbol at its expected value."""
        return {s.name: s.opt for s in self.symbols}

    def upper(self) -> dict[str, int]:
        """Every symbol at its largest value."""
        return {s.name: s.hi for s in self.symbols}

    def _enumerable(self, dim: Dim) -> bool:
        count = 1
        for name in symbols_of(dim):
            count *= len(self.symbol(name).values())
        return count <= ENUMERATION_LIMIT


def add(left: Dim, right: Dim) -> Dim:
    """``left + right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _from_terms(_merge(_terms(left), _terms(right), 1))


def sub(left: Dim, right: Dim) -> Dim:
    """``left - right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    return _from_terms(_merge(_terms(left), _terms(right), -1))


def mul(left: Dim, right: Dim) -> Dim:
    """``left * right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    product: dict[tuple[Dim, ...], int] = {}
    for atoms_l, factor_l in _terms(left).items():
        for atoms_r, factor_r in _terms(right).items():
            atoms = tuple(sorted(atoms_l + atoms_r, key=sort_key))
            product[atoms] = product.get(atoms, 0) + factor_l * factor_r
    return _from_terms(product)


def product(dims: Sequence[Dim]) -> Dim:
    """Product of all; 1 for none.  The number of elements of a shape."""
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if len(numbers) == len(dims):
        return math.prod(numbers)
    total: Dim = 1
    for dim in dims:
        total = mul(total, dim)
    return total


def floordiv(left: Dim, right: Dim) -> Dim:
    """``floor(left / right)`` for ``right >= 1``."""
    return _divide(left, right, "floordiv")


def ceildiv(left: Dim, right: Dim) -> Dim:
    """``ceil(left / right)`` for ``right >= 1``."""
    return _divide(left, right, "ceildiv")


def mod(left: Dim, right: Dim) -> Dim:
    """``left - right * floor(left / right)`` for ``right >= 1``."""
    if isinstance(right, int):
        if right < 1:
            raise DimError(f"mod by {right}")
        rest = {atoms: factor % right for atoms, factor in _terms(left).items()}
        left = _from_terms({atoms: factor for atoms, factor in rest.items() if factor})
        if isinstance(left, int):
            return left % right
        if right == 1:
            return 0
    return Compound("mod", (left, right))


def minimum(*dims: Dim) -> Dim:
    """Smallest of the arguments."""
    return _extreme("min", dims)


def maximum(*dims: Dim) -> Dim:
    """Largest of the arguments."""
    return _extreme("max", dims)


def evaluate(dim: Dim, bindings: Bindings) -> int:
    """Value of ``dim`` with every symbol replaced.  Raises DimError for an unbound symbol."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        if dim.name not in bindings:
            raise DimError(f"symbol {dim.name} has no value")
        return bindings[dim.name]
    return _apply_ints(dim.op, [evaluate(arg, bindings) for arg in dim.args])


def substitute(dim: Dim, replacements: Mapping[str, Dim]) -> Dim:
    """``dim`` with symbols replaced by other dims, in normal form; symbols that are not named stay."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        return replacements.get(dim.name, dim)
    args = [substitute(arg, replacements) for arg in dim.args]
    if dim.op in ("min", "max"):
        return _extreme(dim.op, args)
    build = {"+": add, "*": mul, "floordiv": floordiv, "ceildiv": ceildiv, "mod": mod}[dim.op]
    result = args[0]
    for arg in args[1:]:
        result = build(result, arg)
    return result


def symbols_of(dim: Dim) -> frozenset[str]:
    """Names of the symbols that occur in ``dim``."""
    if isinstance(dim, int):
        return frozenset()
    if isinstance(dim, Sym):
        return frozenset((dim.name,))
    return frozenset().union(*(symbols_of(arg) for arg in dim.args))


def is_static(shape: Sequence[Dim]) -> bool:
    """Whether every dim is a number."""
    return all(isinstance(dim, int) for dim in shape)


def evaluate_shape(shape: Sequence[Dim], bindings: Bindings) -> tuple[int, ...]:
    """``evaluate`` for each dim."""
    return tuple(evaluate(dim, bindings) for dim in shape)


def to_json(dim: Dim, index: Mapping[str, int]) -> Json:
    """Nested arrays with symbols by position: ``7``, ``["s", 0]``, ``["+", ["s", 0], 1]``."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        return ["s", index[dim.name]]
    return [dim.op, *(to_json(arg, index) for arg in dim.args)]


def from_json(value: Json, names: Sequence[str], where: str = "dim") -> Dim:
    """Inverse of ``to_json``; the result is in normal form.  Raises SchemaError."""
    return value if type(value) is int else _read([value], names, where)[0]


def shape_from_json(value: Json, names: Sequence[str], where: str) -> Shape:
    """``from_json`` for each item of a list.  Equal lists give one object.  Raises SchemaError."""
    items = list_of(value, where)
    numbers = [item for item in items if type(item) is int]
    return tuple(numbers) if len(numbers) == len(items) else _read(items, names, where)


@read_once(2048)
def _read(value: Json, names: tuple[str, ...]) -> Shape:
    """Dims from a list: a plan repeats few expressions, whose normal form is dear, many times."""
    return tuple([_dim_of(item, names) for item in list_of(value, "dims")])


def _dim_of(value: Json, names: tuple[str, ...]) -> Dim:
    if type(value) is int:
        return value
    items = list_of(value, "dim")
    if len(items) < 2 or type(items[0]) is not str:
        raise SchemaError("not a dim expression")
    if items[0] == "s" and len(items) == 2:
        return Sym(names[int_of(items[1], "symbol", 0, len(names) - 1)])
    if items[0] not in OPERATORS or len(items) < 3:
        raise SchemaError(f"unknown operator {str(items[0])[:20]!r}")
    args = _read(items[1:], names, "")
    placeholder = {f"@{i}": arg for i, arg in enumerate(args)}
    try:
        return substitute(Compound(items[0], tuple(Sym(name) for name in placeholder)), placeholder)
    except DimError as error:  # a division by 0
        raise SchemaError(error.detail) from None


def sort_key(dim: Dim) -> tuple[int, str, tuple[object, ...]]:
    """A total order on dims: numbers, symbols, compounds."""
    if isinstance(dim, int):
        return 0, "", (dim,)
    if isinstance(dim, Sym):
        return 1, dim.name, ()
    return 2, dim.op, tuple(sort_key(arg) for arg in dim.args)


_Terms: TypeAlias = "dict[tuple[Dim, ...], int]"


def _terms(dim: Dim) -> _Terms:
    """``dim`` as a polynomial: product of atoms -> factor; the empty product is the constant."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    if isinstance(dim, Compound) and dim.op == "+":
        merged: _Terms = {}
        for arg in dim.args:
            merged = _merge(merged, _terms(arg), 1)
        return merged
    if isinstance(dim, Compound) and dim.op == "*":
        factor = 1
        atoms: list[Dim] = []
        for arg in dim.args:
            if isinstance(arg, int):
                factor *= arg
            else:
                atoms.append(arg)
        return {tuple(sorted(atoms, key=sort_key)): factor}
    return {(dim,): 1}


def _merge(left: _Terms, right: _Terms, sign: int) -> _Terms:
    merged = dict(left)
    for atoms, factor in right.items():
        merged[atoms] = merged.get(atoms, 0) + sign * factor
    return {atoms: factor for atoms, factor in merged.items() if factor}


def _from_terms(terms: _Terms) -> Dim:
    parts: list[Dim] = []
    ordered = list(terms.items())
    if len(ordered) > 1:
        ordered.sort(key=lambda item: (-len(item[0]), tuple([sort_key(a) for a in item[0]])))
    for atoms, factor in ordered:
        if not factor:
            continue
        if not atoms:
            parts.append(factor)
        elif factor == 1 and len(atoms) == 1:
            parts.append(atoms[0])
        else:
            parts.append(Compound("*", ((factor,) if factor != 1 else ()) + atoms))
    if not parts:
        return 0
    return parts[0] if len(parts) == 1 else Compound("+", tuple(parts))


def _divide(left: Dim, right: Dim, op: str) -> Dim:
    if isinstance(right, int):
        if right < 1:
            raise DimError(f"{op} by {right}")
        if right == 1:
            return left
        terms = _terms(left)
        whole = {atoms: factor // right for atoms, factor in terms.items() if factor % right == 0}
        rest = {atoms: factor for atoms, factor in terms.items() if factor % right}
        if () in rest:  # the constant: split off its multiple, so that (s + 5) // 4 and (s + 1) // 4 + 1 are one form
            quotient, remainder = divmod(rest[()], right)
            whole[()] = whole.get((), 0) + quotient
            rest[()] = remainder
        if not any(atoms for atoms in rest):
            constant = rest.get((), 0)
            return add(
                _from_terms(whole),
                _floordiv_int(constant, right) if op == "floordiv" else _ceildiv_int(constant, right),
            )
        inner = _from_terms(rest)
        if isinstance(inner, Compound) and inner.op == op and isinstance(inner.args[1], int):
            # floor(floor(x / a) / b) = floor(x / (a b)), and the same for ceil
            return add(_from_terms(whole), _divide(inner.args[0], inner.args[1] * right, op))
        return add(_from_terms(whole), Compound(op, (inner, right)))
    if left == right:
        return 1
    exact = _exact_quotient(left, right)
    return Compound(op, (left, right)) if exact is None else exact


def _exact_quotient(left: Dim, right: Dim) -> Dim | None:
    """``left / right`` where right is one product of atoms that divides every term of left; else None."""
    divisor = _terms(right)
    if len(divisor) != 1:
        return None
    ((atoms_r, factor_r),) = divisor.items()
    quotient: _Terms = {}
    for atoms, factor in _terms(left).items():
        rest = list(atoms)
        for atom in atoms_r:
            if atom not in rest:
                return None
            rest.remove(atom)
        if factor % factor_r:
            return None
        quotient[tuple(rest)] = factor // factor_r
    return _from_terms(quotient)


def _extreme(op: str, dims: Sequence[Dim]) -> Dim:
    flat: list[Dim] = []
    for dim in dims:
        flat.extend(dim.args if isinstance(dim, Compound) and dim.op == op else (dim,))
    pick = min if op == "min" else max
    numbers = [dim for dim in flat if isinstance(dim, int)]
    rest = sorted({dim for dim in flat if not isinstance(dim, int)}, key=sort_key)
    args: tuple[Dim, ...] = ((pick(numbers),) if numbers else ()) + tuple(rest)
    return args[0] if len(args) == 1 else Compound(op, args)


def _apply_ints(op: str, args: Sequence[int]) -> int:
    if op == "+":
        return sum(args)
    if op == "*":
        total = 1
        for arg in args:
            total *= arg
        return total
    if op == "min":
        return min(args)
    if op == "max":
        return max(args)
    if args[1] < 1:
        raise DimError(f"{op} by {args[1]}")
    if op == "floordiv":
        return _floordiv_int(args[0], args[1])
    if op == "ceildiv":
        return _ceildiv_int(args[0], args[1])
    return args[0] % args[1]


def _floordiv_int(left: int, right: int) -> int:
    return left // right


def _ceildiv_int(left: int, right: int) -> int:
    return -(-left // right)
