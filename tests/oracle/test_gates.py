"""Cases that cannot say no are mistrusted; inputs that move nothing are named."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.oracle.given import Given
from tests.oracle.mutants.pointwise import single
from tests.oracle.nodes import Array, attributes
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.gates import null_candidates, perturbed, trust_alone, trust_suite
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.vectors import Descriptor, materialise, vector_set
from tribunus.oracle.verdict import is_refused
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

FP32 = ComputePolicy.FP32


def case_of(program: Program, constants: Constants, inputs: Mapping[int, Array], family: VectorFamily) -> Given:
    goldens = golden_with_budget(program, inputs, constants, FP32, "x", family)
    return Given(Descriptor(family, 0, ()), inputs, goldens)


def cases_of(program: Program, constants: Constants) -> list[Given]:
    return [case_of(program, constants, materialise(d, program), d.family) for d in vector_set(program, FP32, "x", {})]


def test_an_ordinary_case_refuses_every_null_answer() -> None:
    program, constants = single("matmul", ((12, 12), (12, 12)))
    case = cases_of(program, constants)[3]
    golden = case.goldens[0]
    answers = null_candidates(golden, case.inputs, golden)
    assert {"zeros", "mean", "shift", "reversal", "negation", "transpose", "one element off"} <= set(answers)
    assert "copy of value 0" in answers
    del answers["previous output"]
    assert all(is_refused(answer, golden) for answer in answers.values())
    assert not is_refused(golden.presented, golden)


def test_an_answer_that_is_always_right_is_dropped_by_name_and_not_held_against_the_cases() -> None:
    program, constants = single("copy", ((6, 5),))
    trust = trust_suite(program, constants, cases_of(program, constants))
    assert trust.dropped == ("copy of value 0",)
    assert trust.counted >= 5
    program, constants = single("reduce_max", ((9,),), axes=(0,), keepdims=1)
    assert {"shift", "reversal", "mean"} <= set(trust_suite(program, constants, cases_of(program, constants)).dropped)


def test_a_case_of_constants_is_mistrusted_with_its_reasons() -> None:
    program, constants = single("relu", ((8, 8),))
    negative: dict[int, Array] = {0: np.full((8, 8), -1.0, np.float32)}
    ordinary = materialise(Descriptor(VectorFamily.RAND, 0, ()), program)
    trust = trust_suite(
        program,
        constants,
        [
            case_of(program, constants, negative, VectorFamily.CAPTURED),
            case_of(program, constants, ordinary, VectorFamily.CAPTURED),
        ],
    )
    assert not trust.cases[0].counted
    assert {"zeros", "mean", "shift"} <= set(trust.cases[0].why)
    assert trust.cases[1].counted
    assert trust.counted == 1


def test_an_input_that_moves_no_counted_golden_is_named() -> None:
    b = ProgramBuilder(Constants())
    x, y = (b.input(TensorType(DType.F32, (30,)), n) for n in "xy")
    zero = b.constant(np.asarray(1e-30, np.float32), DType.F32)
    (faint,) = b.op("mul", (y, zero))
    program = b.finish("x", (x, y), b.op("add", (x, faint)))
    r = np.random.default_rng(0)
    inputs: dict[int, Array] = {i: r.standard_normal(30).astype(np.float32) + np.float32(3) for i in (x, y)}
    trust = trust_suite(program, b.constants, [case_of(program, b.constants, inputs, VectorFamily.CAPTURED)])
    assert trust.insensitive == (y,)


@pytest.mark.parametrize(("reader", "is_named"), [("softmax", False), ("by hand", False), ("tanh", True)])
def test_a_zero_point_that_its_reader_cancels_is_not_held_against_the_cases(reader: str, is_named: bool) -> None:
    b = ProgramBuilder(Constants())
    x, zero = b.input(TensorType(DType.U8, (6, 8)), "x"), b.input(TensorType(DType.U8, ()), "zero")
    step = b.constant(np.asarray(2.0**-30, np.float32), DType.F32)
    (real,) = b.op("dequantize_linear", (x, step, zero), attributes(axis=-1))
    if reader == "by hand":
        (mean,) = b.op("reduce_mean", (real,), attributes(axes=(1,), keepdims=1))
        made = b.op("sub", (real, mean))
    else:
        made = b.op(reader, (real,), attributes(axis=1) if reader == "softmax" else attributes())
    program = b.finish("x", (x, zero), b.op("floor", made))
    inputs: dict[int, Array] = {x: np.full((6, 8), 9, np.uint8), zero: np.asarray(3, np.uint8)}
    inputs[x][0, 0] = 0
    trust = trust_suite(program, b.constants, [case_of(program, b.constants, inputs, VectorFamily.CAPTURED)])
    assert (zero in trust.insensitive) is is_named


def test_moving_a_number_to_the_other_side_of_a_tie_shows_no_operand() -> None:
    """Both neighbours of a tie pass, so a case of ties could not refuse a kernel that forgets the bias."""
    b = ProgramBuilder(Constants())
    x, bias = b.input(TensorType(DType.F32, (64,)), "x"), b.input(TensorType(DType.F32, ()), "bias")
    step = b.constant(np.asarray(np.float32(0.3)), DType.F32)
    (total,) = b.op("add", (x, bias))
    program = b.finish("x", (x, bias), b.op("quantize_linear", (total, step), attributes(axis=-1, to="u8")))
    halves = (np.arange(64) + 0.5) * float(np.float32(0.3))
    for known, named in ((1e-9, (bias,)), (1.0, ())):
        inputs: dict[int, Array] = {x: halves.astype(np.float32), bias: np.asarray(known, np.float32)}
        trust = trust_suite(program, b.constants, [case_of(program, b.constants, inputs, VectorFamily.CAPTURED)])
        assert trust.insensitive == named


def test_perturbing_changes_every_kind_of_array() -> None:
    for array, dtype in (
        (np.zeros(3, np.float32), DType.F32),
        (np.ones((), np.float32), DType.F32),
        (np.array([7, 7], np.int64), DType.I64),
        (np.array(128, np.uint8), DType.U8),
        (np.array([True]), DType.BOOL),
        (np.array([0x3F80], np.uint16), DType.BF16),
    ):
        changed = perturbed(array, dtype)
        assert changed.dtype == array.dtype
        assert not np.array_equal(changed, array)


def test_quick_refusal_agrees_with_the_whole_verdict_on_large_outputs() -> None:
    program, constants = single("exp", ((40_000,),))
    case = cases_of(program, constants)[0]
    golden = case.goldens[0]
    wrong = golden.presented.copy()
    wrong[-1] *= np.float32(1.001)
    assert is_refused(wrong, golden)
    assert not is_refused(golden.presented, golden)
    assert is_refused(np.zeros_like(wrong), golden)


def test_attributes_are_read_from_binary32() -> None:
    assert attributes(alpha=0.1).f32("alpha") == float(np.float32(0.1))


def test_an_element_at_the_largest_number_is_put_off_towards_zero() -> None:
    """Away from it lies infinity, which the verdict takes for the number that would come next."""
    program, constants = single("neg", ((4, 8),))
    largest = float(np.finfo(np.float32).max)
    masks: dict[int, Array] = {0: np.where(np.arange(32).reshape(4, 8) % 3 == 0, 0.0, largest).astype(np.float32)}
    case = case_of(program, constants, masks, VectorFamily.CAPTURED)
    answer = null_candidates(case.goldens[0], case.inputs, None)["one element off"]
    assert np.all(np.isfinite(answer))
    assert is_refused(answer, case.goldens[0])


def test_a_case_alone_counts_by_what_it_refuses() -> None:
    program, constants = single("matmul", ((12, 12), (12, 12)))
    cases = cases_of(program, constants)
    assert trust_alone(cases[3]).counted
    negative: dict[int, Array] = {0: np.full((8, 8), -1.0, np.float32)}
    program, constants = single("relu", ((8, 8),))
    assert not trust_alone(case_of(program, constants, negative, VectorFamily.CAPTURED)).counted
