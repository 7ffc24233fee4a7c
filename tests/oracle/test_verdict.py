"""What the verdict says about classes, exact elements, budgets, choices and statistics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle.mutants.pointwise import single
from tests.oracle.nodes import Array, attributes, one_op
from tribunus.errors import InputError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.running import OutputGolden, coarse_up, golden_with_budget
from tribunus.oracle.value import Exactness
from tribunus.oracle.verdict import Failure, OutputVerdict, is_refused, judge_output
from tribunus.phaseir.program import Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType

FP32 = ComputePolicy.FP32


def golden_of(
    kind: str,
    *operands: Array,
    family: VectorFamily = VectorFamily.RAND,
    policy: ComputePolicy = FP32,
    **values: object,
) -> OutputGolden:
    program, inputs = one_op(kind, operands, **values)
    return golden_with_budget(program, inputs, Constants(), policy, kind, family)[0]


def verdict(stored: Array, golden: OutputGolden) -> OutputVerdict:
    return judge_output(stored, golden)


def f32(*values: float | np.floating) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def test_moved_data_keeps_the_sign_of_zero_and_the_payload_of_nan() -> None:
    x = np.array([0x80000000, 0x7FC00123, 0x3F800000], np.uint32).view(np.float32)
    golden = golden_of("copy", x)
    assert golden.exactness is Exactness.BIT
    assert verdict(x.copy(), golden).accepted
    assert verdict(np.abs(x), golden).failure is Failure.BITS
    other = np.array([0x80000000, 0x7FC00124, 0x3F800000], np.uint32).view(np.float32)
    assert verdict(other, golden).failure is Failure.BITS


def test_a_selection_must_be_equal_but_not_bit_equal() -> None:
    golden = golden_of("relu", f32(-1.0, 2.0, -0.0))
    assert golden.exactness is Exactness.VALUE
    assert verdict(f32(-0.0, 2.0, 0.0), golden).accepted
    assert verdict(f32(1e-45, 2.0, 0.0), golden).failure is Failure.UNEQUAL


def test_one_f32_operation_must_be_correctly_rounded_even_behind_a_selection() -> None:
    a, b = f32(0.1, 0.2, 1.0), f32(0.7, 0.1, 2.0**-24)
    golden = golden_of("add", a, b)
    assert golden.exactness is Exactness.ROUNDED
    assert verdict(a + b, golden).accepted
    assert verdict(np.nextafter(a + b, np.float32(np.inf)), golden).failure is Failure.UNEQUAL
    builder = ProgramBuilder(Constants())
    x, y = (builder.input(TensorType(DType.F32, (3,)), n) for n in "xy")
    (total,) = builder.op("add", (x, y))
    program = builder.finish("add+relu", (x, y), builder.op("relu", (total,)))
    fused = golden_with_budget(program, {x: a, y: b}, Constants(), FP32, "add+relu", VectorFamily.RAND)[0]
    assert fused.exactness is Exactness.ROUNDED


@pytest.mark.parametrize("wrong", (0.0, np.finfo(np.float32).max, np.inf))
def test_nan_must_stay_nan(wrong: float) -> None:
    golden = golden_of("exp", f32(1.0, np.nan))
    assert verdict(f32(np.e, np.nan), golden).accepted
    assert verdict(f32(np.e, wrong), golden).failure is Failure.CLASS


def test_an_infinity_must_have_its_sign_and_a_finite_golden_no_infinity() -> None:
    golden = golden_of("exp", f32(1.0, np.inf, -np.inf))
    assert verdict(f32(np.e, np.inf, 0.0), golden).accepted
    assert verdict(f32(np.e, -np.inf, 0.0), golden).failure is Failure.CLASS
    assert verdict(f32(np.inf, np.inf, 0.0), golden).failure is Failure.CLASS
    assert verdict(f32(np.e, 3e38, 0.0), golden).failure is Failure.CLASS


def test_within_its_budget_of_the_threshold_a_number_may_be_infinite_or_finite() -> None:
    x = f32(np.log(3.4028235e38))
    golden = golden_of("exp", x)
    largest = np.finfo(np.float32).max
    assert verdict(f32(largest), golden).accepted
    assert verdict(f32(np.inf), golden).accepted
    assert not verdict(f32(largest * 0.99), golden).accepted


def test_a_masked_weight_is_exactly_zero() -> None:
    golden = golden_of("softmax", np.array([[1.0, 2.0, -np.inf]], np.float32), axis=1)
    right = golden.presented
    assert verdict(right, golden).accepted
    leaking = right.copy()
    leaking[0, 2] = 1e-30
    assert verdict(leaking, golden).failure is Failure.BUDGET


def test_zero_takes_no_garbage() -> None:
    golden = golden_of("matmul", np.zeros((2, 3), np.float32), np.ones((3, 2), np.float32))
    assert verdict(np.zeros((2, 2), np.float32), golden).accepted
    assert verdict(np.full((2, 2), 1e-30, np.float32), golden).failure is Failure.BUDGET


def test_exact_probes_allow_no_rounding_at_all() -> None:
    r = np.random.default_rng(0)
    a = r.integers(-31, 32, (8, 300)).astype(np.float32)
    b = r.integers(-31, 32, (300, 8)).astype(np.float32)
    golden = golden_of("matmul", a, b, family=VectorFamily.EXACT)
    assert golden.exact.all()
    assert not golden.budget.any()
    wrong = a @ b
    wrong[3, 3] = np.nextafter(wrong[3, 3], np.float32(np.inf))
    assert verdict(a @ b, golden).accepted
    assert verdict(wrong, golden).failure is Failure.UNEQUAL


def test_sums_that_leave_the_accumulator_are_no_probe() -> None:
    a = np.full((1, 4096), 8191.0, np.float32)
    golden = golden_of("matmul", a, a.T.copy(), family=VectorFamily.EXACT)
    assert not golden.exact.any()


def test_tf32_converts_its_inputs_and_fp32_does_not() -> None:
    eye = np.eye(4, dtype=np.float32)
    b = np.full((4, 4), 1.0 + 2.0**-12, np.float32)
    converted = np.ones((4, 4), np.float32)
    strict = golden_of("matmul", eye, b, family=VectorFamily.IDENTITY)
    loose = golden_of("matmul", eye, b, family=VectorFamily.IDENTITY, policy=ComputePolicy.TF32)
    assert verdict(converted, strict).failure is Failure.UNEQUAL
    assert verdict(converted, loose).accepted


def test_a_missing_or_reshaped_output_is_refused() -> None:
    golden = golden_of("exp", f32(1.0, 2.0))
    assert judge_output(None, golden).failure is Failure.MISSING
    assert verdict(golden.presented.reshape(2, 1), golden).failure is Failure.MISSING
    assert verdict(golden.presented.astype(np.float64), golden).failure is Failure.MISSING


def test_a_truncating_store_is_biased_though_each_element_is_close() -> None:
    r = np.random.default_rng(0)
    operands = [np.asarray(r.standard_normal(s).astype(np.float16)) for s in ((64, 64), (64, 64))]
    program, inputs = one_op("matmul", operands)
    golden = golden_with_budget(program, inputs, Constants(), ComputePolicy.FP16, "matmul", VectorFamily.RAND)[0]
    y = golden.value.astype(np.float64)
    nearest = y.astype(np.float16)
    past = np.abs(nearest.astype(np.float64)) > np.abs(y)
    toward_zero = np.where(past, np.nextafter(nearest, np.float16(0)), nearest)
    assert verdict(nearest, golden).accepted
    refused = verdict(toward_zero.astype(np.float16), golden)
    assert refused.failure is not None
    assert refused.bias < -0.4


def test_quantized_numbers_may_differ_next_to_a_tie_only() -> None:
    x = f32(0.05, 0.25 * np.float32(0.1), 0.123)
    golden = golden_of("quantize_linear", x, np.asarray(np.float32(0.1)), axis=-1, to="i8")
    q = golden.presented
    assert golden.low is not None
    assert verdict(q, golden).accepted
    at_tie, elsewhere = q.copy(), q.copy()
    at_tie[0] = 1 - q[0]
    elsewhere[2] += 1
    assert verdict(at_tie, golden).accepted
    assert verdict(elsewhere, golden).failure is Failure.UNEQUAL


def test_an_exact_tie_rounds_to_even() -> None:
    x = f32(0.125, 0.375, -0.125)
    golden = golden_of("quantize_linear", x, np.asarray(np.float32(0.25)), axis=-1, to="i8")
    np.testing.assert_array_equal(golden.presented, [0, 2, 0])
    assert verdict(np.array([1, 2, 0], np.int8), golden).failure is Failure.UNEQUAL


def test_an_index_chosen_among_rounded_numbers_is_judged_by_value() -> None:
    builder = ProgramBuilder(Constants())
    a, b = builder.input(TensorType(DType.F32, (1, 2)), "a"), builder.input(TensorType(DType.F32, (2, 3)), "b")
    (y,) = builder.op("matmul", (a, b))
    outputs = builder.op("arg_max", (y,), attributes(axis=1, keepdims=0, select_last=0))
    program = builder.finish("matmul+arg_max", (a, b), outputs)
    w = np.array([[1.0, 1.0 + 2.0**-23, 0.5], [0.3, 0.3, 0.3]], np.float32)
    inputs = {a: f32(1.0, 1.0).reshape(1, 2), b: w}
    golden = golden_with_budget(program, inputs, Constants(), FP32, "arg", VectorFamily.RAND)[0]
    assert golden.choice is not None
    for index, accepted in ((0, True), (1, True), (2, False), (3, False), (-1, False)):
        assert verdict(np.array([index], np.int64), golden).accepted is accepted


def test_an_index_among_exact_numbers_follows_the_tie_rule() -> None:
    golden = golden_of("arg_max", np.array([[1.0, 3.0, 3.0]], np.float32), axis=1, keepdims=0, select_last=0)
    assert verdict(np.array([1], np.int64), golden).accepted
    assert not verdict(np.array([2], np.int64), golden).accepted


def test_budgets_are_rounded_up_to_eight_bits() -> None:
    x = np.abs(np.random.default_rng(0).standard_normal(1000)) * 1e-20
    up = coarse_up(x)
    assert np.all(up >= x)
    assert np.all(up <= x * (1 + 2.0**-7))
    fraction, _ = np.frexp(up)
    np.testing.assert_array_equal(fraction * 256, np.rint(fraction * 256))
    np.testing.assert_array_equal(coarse_up(np.zeros(2)), 0.0)


def nearest_by(x: Array, out: int, scale: float) -> OutputGolden:
    return golden_of(
        "resize",
        x,
        mode="nearest",
        coordinate="asymmetric",
        nearest="floor",
        sizes=(1, 1, 1, out),
        scales=(1.0, 1.0, 1.0, scale),
        cubic_a=-0.75,
        exclude_outside=0,
    )


def test_a_nearest_pixel_at_a_tie_may_be_either_neighbour() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 6)
    golden = nearest_by(x, 9, 1.5)
    at_three = golden.presented.astype(np.float32)
    at_three[..., 3] -= 1
    assert verdict(at_three, golden).accepted
    at_four = golden.presented.astype(np.float32)
    at_four[..., 4] -= 1
    assert not verdict(at_four, golden).accepted
    doubled = nearest_by(x, 12, 2.0)
    assert doubled.exact.all()


def test_an_index_outside_of_its_axis_is_refused_by_name() -> None:
    program, inputs = one_op("gather", [np.ones((3, 2), np.float32), np.array([3], np.int64)], axis=0)
    with pytest.raises(InputError, match="index"):
        golden_with_budget(program, inputs, Constants(), FP32, "gather", VectorFamily.RAND)


def test_attention_budget_does_not_grow_with_the_mean_of_the_values() -> None:
    from tests.oracle.mutants.structured import attention_program

    program, constants = attention_program()
    r = np.random.default_rng(0)
    shapes = {i: program.values[i].type.numbers() for i in program.only_phase.inputs}
    inputs = {i: r.standard_normal(shape).astype(np.float32) for i, shape in shapes.items()}
    plain = golden_with_budget(program, inputs, constants, FP32, "attention", VectorFamily.RAND)[0]
    v = program.only_phase.inputs[2]
    moved = golden_with_budget(
        program, {**inputs, v: inputs[v] + np.float32(1000)}, constants, FP32, "attention", VectorFamily.RAND
    )[0]
    # What is left is the rounding of sums near 1000; the spread of the values stays what it was.
    per_unit = float(np.median(moved.budget)) / 1000 / 2.0**-24
    assert per_unit < 60
    assert float(np.median(plain.budget)) < 100 * 2.0**-24


def test_cancelling_elements_get_room_and_the_others_do_not() -> None:
    a = np.array([[1e8, 1.0, -1e8], [1.0, 2.0, 3.0]], np.float32)
    program, constants = single("reduce_sum", ((2, 3),), axes=(1,), keepdims=0)
    golden = golden_with_budget(program, {0: a}, constants, FP32, "sum", VectorFamily.RAND)[0]
    allowed = golden.allowed
    assert allowed[0] > 1.0
    assert allowed[1] < 1e-5


def test_values_weighed_by_subnormal_shares_may_be_off_by_their_underflow() -> None:
    """Every share that is not the largest is subnormal, and only those have values: nothing else can be exact."""
    from tests.oracle.mutants.structured import attention, attention_program

    program, constants = attention_program()
    q, k, v, mask = program.only_phase.inputs
    shapes = {i: program.values[i].type.numbers() for i in program.only_phase.inputs}
    inputs = {i: np.zeros(shape, np.float32) for i, shape in shapes.items()}
    inputs[mask][...] = -101.0
    inputs[mask][..., 0] = 0.0
    inputs[v][...] = np.arange(inputs[v].size, dtype=np.float32).reshape(shapes[v]) % 31
    inputs[v][..., 0, :] = 0.0
    golden = golden_with_budget(program, inputs, constants, FP32, "attention", VectorFamily.RAND)[0]
    assert 0.0 < float(np.max(golden.value)) < 1e-40
    # One rounding of a share to the grid of subnormals, as every kernel that stores it makes.
    shares = np.float32(np.exp(-101.0))
    honest = (np.float64(shares) * inputs[v].astype(np.float64).sum(-2, keepdims=True)).astype(np.float32)
    honest = np.broadcast_to(honest, golden.presented.shape)
    assert not is_refused(np.ascontiguousarray(honest), golden)
    assert is_refused(np.zeros_like(golden.presented), golden)
    assert not is_refused(attention(inputs[q], inputs[k], inputs[v], inputs[mask]), golden)
