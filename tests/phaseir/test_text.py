"""The text form: exact round trip, and mistakes named by line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribunus.errors import SchemaError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import F32, Attributes
from tribunus.phaseir.parser import parse
from tribunus.phaseir.program import Op, Phase, Program, Role, Value
from tribunus.phaseir.text import f32_text, to_text
from tribunus.phaseir.types import TensorType


def test_a_program_survives_its_text(programs: st.SearchStrategy[Program]) -> None:
    @settings(max_examples=60, derandomize=True, deadline=None)
    @given(programs)
    def law(program: Program) -> None:
        text = to_text(program)
        assert parse(text) == program
        assert to_text(parse(text)) == text

    law()


def test_every_feature_survives(everything: Program) -> None:
    assert parse(to_text(everything)) == everything


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_a_binary32_number_survives(value: float) -> None:
    program = _leaky(value)
    again = parse(to_text(program)).only_phase.ops[0].attributes.f32("alpha")
    assert (again, str(again)) == (value, str(value))


def test_numbers_read_as_people_write_them() -> None:
    assert [f32_text(v) for v in (0.10000000149011612, 1.0, -0.0, 1e-12 * 0 + 2.0**-40)] == [
        "0.1f", "1.0f", "-0.0f", "9.094947e-13f",
    ]  # fmt: skip
    assert f32_text(float("inf")) == "f32:7f800000"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("value %0: f32[2] owner", "owner"),
        ("value %0: f32[s7] input", "unknown symbol"),
        ("value %0: f128[2] input", "dtype"),
        ("value %1: f32[2] input", "gap"),
        ("value %0: f32[div(2, 3)] input", "no dim expression"),
        ("value %0: f32[floordiv(2, 0)] input", "floordiv"),
        ("value %0: f32[2] input trailing", "trailing"),
        ("symbol s0 batch 1:2:3:1", "quoted"),
        ("  %0: f32[2] = relu(%0)", "before any phase"),
        ("thing", "unknown declaration"),
        ("value %0: f32[2] input ?", "unexpected"),
    ],
)
def test_a_mistake_is_named(line: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse(f"program tribunus.phaseir/1\n{line}\n")


def test_a_mistake_has_its_line() -> None:
    with pytest.raises(SchemaError, match="line 3:"):
        parse("program tribunus.phaseir/1\n// comment\nvalue %0: f32[2\n")


def test_ids_out_of_range_are_refused() -> None:
    with pytest.raises(SchemaError, match="outside"):
        parse('program tribunus.phaseir/1\nvalue %0: f32[2] input\nphase "p" (%0) -> (%7)\n')


def _leaky(alpha: float) -> Program:
    f = TensorType(DType.F32, (1,))
    op = Op("leaky_relu", (0,), (1,), Attributes.of({"alpha": F32(alpha)}))
    return Program((Value(f, Role.INPUT), Value(f, Role.TEMP)), (Phase("p", (0,), (1,), (op,)),))
