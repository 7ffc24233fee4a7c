"""States are copied where the next replay reads them, and wrong pairs are refused by name."""

from __future__ import annotations

import pytest

from tribunus.errors import InputError, UsageError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.layouts import row_major
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.planning.schedule import Schedule, ScheduledValue
from tribunus.planning.states import StatePair, keep_states, parse_state_options, with_states


def a_counter() -> Program:
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (4,)), "x")
    before = builder.input(TensorType(DType.F32, (4,)), "before")
    (after,) = builder.op("add", (x, before), labels=("after",))
    return builder.finish("main", (x, before), (after,))


def test_a_written_state_is_copied_to_where_it_is_read() -> None:
    program = with_states(a_counter(), [StatePair("before", "after")])
    values = tuple(ScheduledValue(program.type_of(v), row_major(1), v) for v in range(3))
    kept = keep_states(Schedule(values, (), (0, 1), (2,)), program, ComputePolicy.FP32, Constants())
    (step,) = kept.steps
    assert step.inputs == (2,)
    assert kept.root(step.outputs[0]) == 1
    assert step.demand.signature.label == "copy"


@pytest.mark.parametrize("pair", [StatePair("nothing", "after"), StatePair("before", "nothing")])
def test_an_unknown_label_is_named(pair: StatePair) -> None:
    with pytest.raises(InputError, match="nothing"):
        with_states(a_counter(), [pair])


def test_a_state_of_another_type_is_refused() -> None:
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (4,)), "x")
    (total,) = builder.op("exp", (x,), labels=("y",))
    wide = builder.input(TensorType(DType.F32, (5,)), "h")
    program = builder.finish("main", (x, wide), (total,))
    with pytest.raises(InputError, match="differ"):
        with_states(program, [StatePair("h", "y")])


@pytest.mark.parametrize("option", ["h", "=y", "h="])
def test_another_form_is_a_usage_error(option: str) -> None:
    with pytest.raises(UsageError):
        parse_state_options([option])


def test_a_name_given_twice_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_state_options(["a=b", "a=c"])
