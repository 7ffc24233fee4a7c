"""Dims: the normal form keeps values, is a fixed point, and decides equalities."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribunus.canon import Json
from tribunus.errors import DimError, SchemaError
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, DimScope, Sym, Symbol

NAMES = ("s0", "s1", "s2")
BINDINGS = [dict(zip(NAMES, v, strict=True)) for v in itertools.product((1, 2, 5), (1, 3, 8), (4, 7))]


def _build(op: str, a: Dim, b: Dim) -> Dim:
    if op in ("floordiv", "ceildiv", "mod"):
        b = dims.maximum(b, 1)
    if op in ("min", "max"):
        return dims.minimum(a, b) if op == "min" else dims.maximum(a, b)
    functions: dict[str, Callable[[Dim, Dim], Dim]] = {
        "+": dims.add, "-": dims.sub, "*": dims.mul,
        "floordiv": dims.floordiv, "ceildiv": dims.ceildiv, "mod": dims.mod,
    }  # fmt: skip
    return functions[op](a, b)


def _value(op: str, a: int, b: int) -> int:
    if op in ("floordiv", "ceildiv", "mod"):
        b = max(b, 1)
    return {
        "+": a + b, "-": a - b, "*": a * b, "floordiv": a // b if b else 0, "ceildiv": -(-a // b) if b else 0,
        "mod": a % b if b else 0, "min": min(a, b), "max": max(a, b),
    }[op]  # fmt: skip


@st.composite
def _expressions(draw: st.DrawFn) -> tuple[Dim, tuple[int, ...]]:
    """A dim with its value at each of BINDINGS, computed beside it."""
    pool: list[tuple[Dim, tuple[int, ...]]] = [(Sym(n), tuple(b[n] for b in BINDINGS)) for n in NAMES]
    pool += [(k, (k,) * len(BINDINGS)) for k in (1, 2, 3, 4, 7)]
    for _ in range(draw(st.integers(1, 6))):
        (a, va), (b, vb) = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        op = draw(st.sampled_from(["+", "-", "*", "floordiv", "ceildiv", "mod", "min", "max"]))
        pool.append((_build(op, a, b), tuple(_value(op, x, y) for x, y in zip(va, vb, strict=True))))
    return pool[-1]


@settings(max_examples=400, derandomize=True, deadline=None)
@given(_expressions())
def test_the_normal_form_keeps_the_value(drawn: tuple[Dim, tuple[int, ...]]) -> None:
    dim, values = drawn
    assert tuple(dims.evaluate(dim, b) for b in BINDINGS) == values


@settings(max_examples=400, derandomize=True, deadline=None)
@given(_expressions())
def test_the_normal_form_is_a_fixed_point(drawn: tuple[Dim, tuple[int, ...]]) -> None:
    dim, _ = drawn
    index = {n: i for i, n in enumerate(NAMES)}
    assert dims.from_json(dims.to_json(dim, index), NAMES) == dim
    assert dims.substitute(dim, {n: Sym(n) for n in NAMES}) == dim


@settings(max_examples=200, derandomize=True, deadline=None)
@given(_expressions())
def test_bounds_contain_every_value(drawn: tuple[Dim, tuple[int, ...]]) -> None:
    dim, values = drawn
    scope = DimScope((Symbol("s0", "a", 1, 2, 5), Symbol("s1", "b", 1, 3, 8), Symbol("s2", "c", 4, 4, 7)))
    low, high = scope.bounds(dim)
    assert low <= min(values)
    assert max(values) <= high


def test_equalities_hold_over_the_whole_range() -> None:
    halved = dims.mul(2, dims.floordiv(Sym("s0"), 2))
    even = DimScope((Symbol("s0", "n", 2, 4, 64, 2),))
    every = DimScope((Symbol("s0", "n", 2, 4, 64),))
    assert even.equal(halved, Sym("s0"))
    assert not every.equal(halved, Sym("s0"))
    assert every.counterexample(halved, Sym("s0")) == {"s0": 3}


@pytest.mark.parametrize("bounds", [(3, 2, 4, 1), (1, 2, 4, 2), (1, 3, 6, 2), (-1, 2, 4, 1), (1, 1, 1, 0)])
def test_bounds_are_ordered_and_on_the_grid(bounds: tuple[int, int, int, int]) -> None:
    with pytest.raises(DimError):
        Symbol("s0", "n", *bounds)


@pytest.mark.parametrize(
    "value",
    [["s", 3], ["s"], ["^", 1, 2], "s0", [], True, ["+", 1], ["floordiv", ["s", 0], 0], ["mod", 3, ["*", 0, ["s", 0]]]],
)
def test_a_broken_document_is_a_schema_error(value: Json) -> None:
    with pytest.raises(SchemaError) as refused:
        dims.from_json(value, NAMES, "somewhere")
    assert refused.value.detail.startswith("somewhere: ")
    assert refused.value.name not in refused.value.detail


def test_what_was_read_before_does_not_admit_what_only_compares_equal() -> None:
    assert dims.from_json(["+", ["s", 1], 1], NAMES) == dims.add(Sym(NAMES[1]), 1)
    values: list[Json] = [["+", ["s", True], 1], ["+", ["s", 1], True]]
    for value in values:
        with pytest.raises(SchemaError):
            dims.from_json(value, NAMES)


def test_equal_shapes_are_read_as_one_object() -> None:
    first, again = (dims.shape_from_json([2, ["s", 0]], NAMES, "shape") for _ in range(2))
    assert first is again
    assert dims.shape_from_json([2, ["s", 0]], list(reversed(NAMES)), "shape") != first
