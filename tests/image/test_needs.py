"""Bytes that a launch may touch: never fewer than any value of the symbols needs, and no more than can be proved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.image.test_plan_checker import honest
from tribunus.errors import DimError
from tribunus.image.plan_checker import _Needs
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, DimScope, Sym, Symbol
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Operand
from tribunus.plan.plan import Launch, PlanKernel

SCOPE = DimScope((Symbol("s0", "n", 1, 3, 9, 2), Symbol("s1", "m", 4, 5, 7)))
S0, S1 = Sym("s0"), Sym("s1")
D0, D1 = Sym("d0"), Sym("d1")


def launched(operand: Operand, bind: tuple[Dim, ...]) -> tuple[PlanKernel, Launch]:
    kernel = honest().plan.kernels[0]
    recipe = replace(kernel.recipe, inputs=(operand,), outputs=(), weights=(), workspace=0)
    return replace(kernel, symbols=("d0", "d1"), recipe=recipe), Launch(0, bind, (), 1, ())


def needed(operand: Operand, bind: tuple[Dim, ...], size: int) -> int:
    kernel, launch = launched(operand, bind)
    needs = _Needs(SCOPE)
    return needs.operand(operand, needs.box(kernel, launch), kernel, launch, size)


def largest(operand: Operand, bind: tuple[Dim, ...]) -> int:
    found = 0
    for values in SCOPE.bindings(["s0", "s1"]):
        own = dict(zip(("d0", "d1"), (dims.evaluate(b, values) for b in bind), strict=True))
        elements = operand.layout.elements(operand.type.at(own).shape)
        assert isinstance(elements, int)
        found = max(found, elements * operand.type.dtype.itemsize)
    return found


BOUND = st.sampled_from(
    [
        S0,
        S1,
        dims.add(S0, S1),
        dims.mul(S0, 3),
        dims.floordiv(dims.add(S0, 1), 2),
        dims.sub(S1, 3),
        dims.minimum(S0, S1),
    ]
)
SIDE = st.sampled_from(
    [D0, D1, dims.add(D0, 2), dims.mul(D0, D1), dims.ceildiv(D1, 2), dims.maximum(1, dims.sub(D0, D1)), dims.mod(D0, 4)]
)
LAYOUT = st.sampled_from(
    [Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((0, 1, 2), ((1, 4),)), Layout((0, 1, 2), (), 16), Layout((2, 0, 1))]
)


@settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(st.tuples(BOUND, BOUND), st.tuples(SIDE, SIDE), LAYOUT, st.sampled_from([0, 1 << 30]))
def test_no_value_of_the_symbols_needs_more(
    bind: tuple[Dim, ...], sides: tuple[Dim, ...], layout: Layout, size: int
) -> None:
    operand = Operand(TensorType(DType.F32, (2, *sides)), layout, 4)
    assert needed(operand, bind, size) >= largest(operand, bind)


def test_what_cancels_is_seen_where_intervals_alone_would_refuse() -> None:
    operand = Operand(TensorType(DType.F32, (dims.sub(D0, D1),)), Layout((0,)), 4)
    bind = (dims.add(S0, 100), S0)
    assert needed(operand, bind, size=400) == 400 == largest(operand, bind)
    assert needed(operand, bind, size=1 << 30) == 108 * 4  # by intervals: enough for this buffer, so it is not refined


def test_one_operand_with_two_bindings_is_two_questions() -> None:
    operand = Operand(TensorType(DType.F32, (D0, D1)), Layout((0, 1)), 4)
    needs = _Needs(SCOPE)
    kernel, small = launched(operand, (S0, 1))
    _, large = launched(operand, (S0, S1))
    for launch, expected in ((small, 36), (large, 252), (small, 36)):
        assert needs.operand(operand, needs.box(kernel, launch), kernel, launch, 1 << 20) == expected


STEP = dims.add(dims.sub(D0, D1), 1)
"""1 wherever both symbols are one; by intervals it may be 0."""


def test_a_divisor_that_is_0_by_intervals_alone_is_asked_for_exactly() -> None:
    operand = Operand(TensorType(DType.F32, (dims.floordiv(dims.mul(D0, 2), STEP),)), Layout((0,)), 4)
    for size in (72, 1 << 30):
        assert needed(operand, (S0, S0), size) == 72 == largest(operand, (S0, S0))


def test_a_workspace_with_such_a_divisor_is_asked_for_exactly() -> None:
    kernel, launch = launched(Operand(TensorType(DType.F32, (D0,)), Layout((0,)), 4), (S0, S0))
    kernel = replace(kernel, recipe=replace(kernel.recipe, workspace=dims.ceildiv(D0, STEP)))
    needs = _Needs(SCOPE)
    for size in (9, 1 << 30):
        assert needs.workspace(kernel, needs.box(kernel, launch), launch, size) == 9


def test_a_binding_without_an_interval_is_asked_for_exactly_and_may_be_of_no_account() -> None:
    operand = Operand(TensorType(DType.F32, (D0,)), Layout((0,)), 4)
    unclear = dims.floordiv(S1, dims.sub(S0, S1))
    assert needed(operand, (S0, unclear), size=36) == 36


@pytest.mark.parametrize("bind", [(S0, S1), (S0, dims.add(S0, 1))])
def test_a_divisor_that_may_be_0_is_not_proved(bind: tuple[Dim, ...]) -> None:
    operand = Operand(TensorType(DType.F32, (dims.floordiv(D0, STEP),)), Layout((0,)), 4)
    with pytest.raises(DimError):
        needed(operand, bind, size=1 << 30)
