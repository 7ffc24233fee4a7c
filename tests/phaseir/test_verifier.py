"""The verifier accepts what the builder makes, and each law has a program that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribunus.canon import Digest
from tribunus.errors import VerifierError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.program import Condition, Edge, Op, Phase, Program, Role, State, Value
from tribunus.phaseir.types import Quantization, TensorType
from tribunus.phaseir.verifier import verify

F = TensorType(DType.F32, (2, 3))
WithOp = Callable[[Program, int, Op], Program]


def test_what_the_builder_makes_is_lawful(programs: st.SearchStrategy[Program]) -> None:
    @settings(max_examples=40, derandomize=True, deadline=None)
    @given(programs)
    def law(program: Program) -> None:
        verify(program)

    law()


def test_every_feature_is_lawful(everything: Program) -> None:
    verify(everything)


@pytest.mark.parametrize(
    ("op", "law"),
    [
        (Op("frobnicate", (0,), (3,)), "the op is known"),
        (Op("add", (0,), (3,)), "2 to 2 operands"),
        (Op("add", (0, -1), (3,)), "are present"),
        (Op("add", (0, 99), (3,)), "values of the program"),
        (Op("add", (0, 4), (3,)), "defined before its use"),
        (Op("add", (0, 2), (0,)), "role temp"),
        (Op("add", (0, 2), (3,), source=(5,)), "are known"),
        (Op("add", (0, 2), (3,), Attributes.of({"alpha": 1})), "attributes are none, not alpha"),
        (Op("leaky_relu", (0,), (3,)), "attributes are alpha, not none"),
        (Op("leaky_relu", (0,), (7,)), "attributes"),
        (Op("and", (0, 2), (3,)), "type rule"),
        (
            Op("transpose", (0,), (3,), Attributes.of({"perm": (1, 0)})),
            r"results are f32\[3, 2\], stored as f32\[2, 3\]",
        ),
        (Op("cast", (0,), (3,), Attributes.of({"to": "f33"})), "type rule"),
        (Op("reshape", (0,), (3,), Attributes.of({"shape": (Sym("s9"), 3)})), "declared"),
    ],
)
def test_a_lawless_op_is_named(everything: Program, with_op: WithOp, op: Op, law: str) -> None:
    with pytest.raises(VerifierError, match=law) as caught:
        verify(with_op(everything, 0, op))
    assert f"op 0 ({op.kind})" in caught.value.detail


def _value(index: int, value: Value) -> Callable[[Program], Program]:
    return lambda p: replace(p, values=(*p.values[:index], value, *p.values[index + 1 :]))


def _phase(**changes: tuple[int, ...]) -> Callable[[Program], Program]:
    def change(p: Program) -> Program:
        first = p.phases[0]
        changed = Phase(
            first.name, changes.get("inputs", first.inputs), changes.get("outputs", first.outputs), first.ops
        )
        return replace(p, phases=(changed, *p.phases[1:]))

    return change


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (_value(0, Value(F, Role.INPUT, "x", Digest("ab" * 32))), "have a digest"),
        (_value(0, Value(F, Role.CONSTANT, "x")), "have a digest"),
        (_value(0, Value(TensorType(DType.F32, (Sym("s0"), 3)), Role.INPUT)), "declared"),
        (_value(0, Value(TensorType(DType.F32, (-2, 3)), Role.INPUT)), "not negative"),
        (_value(0, Value(TensorType(DType.U8, (2,), Quantization(1, None, True)), Role.INPUT)), "quantization axis"),
        (_value(0, Value(F, Role.WEIGHT)), "no phase input"),
        (_value(2, Value(TensorType(DType.F32, (1, 3)), Role.STATE)), "reads"),
        (_phase(inputs=(0, 0, 1)), "named once"),
        (_phase(inputs=(1,)), "defined before its use"),
        (_phase(outputs=(7,)), "defined in their phase"),
        (_phase(outputs=(4,)), "another phase's output"),
        (_phase(inputs=(0, 1, 99)), "values of the program"),
        (lambda p: replace(p, values=(*p.values, Value(F, Role.TEMP))), "a temp is defined"),
        (lambda p: replace(p, values=(*p.values, Value(F, Role.STATE))), "belongs to a state"),
        (lambda p: replace(p, symbols=(Symbol("s0", "a", 1, 1, 1),) * 2), "distinct"),
        (lambda p: replace(p, edges=(Edge(0, 5),)), "are phases"),
        (lambda p: replace(p, edges=(Edge(0, 1, Condition.IF_TRUE, 7),)), "predicate 7"),
        (lambda p: replace(p, edges=(Edge(0, 1, Condition.ALWAYS, 1),)), "no predicate"),
        (lambda p: replace(p, states=(*p.states, State(0, 4, "x"))), "role state"),
        (lambda p: replace(p, states=p.states * 2), "of its own"),
    ],
)
def test_a_lawless_program_is_named(everything: Program, change: Callable[[Program], Program], law: str) -> None:
    with pytest.raises(VerifierError, match=law):
        verify(change(everything))


def test_a_value_has_one_definition(everything: Program, with_op: WithOp) -> None:
    with pytest.raises(VerifierError, match="defined once"):
        verify(with_op(everything, 1, Op("relu", (0,), (3,))))
