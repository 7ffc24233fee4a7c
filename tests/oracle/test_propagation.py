"""Whole programs: honest float32 runs fit, other arithmetic does not, jumps are only reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tests.oracle.mutants.structured import attention_program
from tests.oracle.mutants.suite import bf16, tf32
from tests.oracle.nodes import Array, attributes
from tribunus.errors import InputError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.numerics.rounding import encode, round_value
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.golden import evaluate
from tribunus.oracle.ops.call import Call
from tribunus.oracle.propagation import (
    FEW_RUNS,
    RUNS,
    ProgramBudget,
    behind_jumps,
    judge_program,
    judge_use,
    program_budget,
    runs_for,
)
from tribunus.oracle.vectors import Descriptor, materialise
from tribunus.oracle.witness import compare_witness
from tribunus.phaseir.program import Constants, Op, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

FP32 = ComputePolicy.FP32
Rounding = Callable[[npt.NDArray[np.float64]], npt.ArrayLike]


def network() -> tuple[Program, Constants, dict[int, Array]]:
    """Four residual layers: layer norm, product, gelu-like curve, product."""
    r = np.random.default_rng(5)
    b = ProgramBuilder(Constants())
    x = b.input(TensorType(DType.F32, (16, 32)), "x")
    h = x
    for _ in range(4):
        one, zero = b.constant(np.ones(32, np.float32), DType.F32), b.constant(np.zeros(32, np.float32), DType.F32)
        (n,) = b.op("layer_norm", (h, one, zero), attributes(axis=1, eps=1e-5))
        up = b.constant((r.standard_normal((32, 64)) * 0.2).astype(np.float32), DType.F32)
        down = b.constant((r.standard_normal((64, 32)) * 0.2).astype(np.float32), DType.F32)
        (u,) = b.op("matmul", (n, up))
        (s,) = b.op("sigmoid", (u,))
        (g,) = b.op("mul", (u, s))
        (d,) = b.op("matmul", (g, down))
        (h,) = b.op("add", (h, d))
    b.relabel(h, "y")
    return b.finish("main", (x,), (h,)), b.constants, {x: r.standard_normal((16, 32)).astype(np.float32)}


def run(program: Program, constants: Constants, inputs: dict[int, Array], rounding: Rounding) -> dict[int, Array]:
    """Every op in float64, its result rounded: an honest engine where ``rounding`` is to float32."""

    def hook(op: Op, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(np.asarray(rounding(r.astype(np.float64))).astype(np.float64) for r in results)

    out = program.only_phase.outputs
    found = evaluate(program, inputs, constants, keep=out, hook=hook)
    return {i: encode(found[i], program.values[i].type.dtype) for i in out}


@pytest.fixture(scope="module")
def budget() -> ProgramBudget:
    program, constants, inputs = network()
    return program_budget(program, constants, inputs, FP32, runs=24)


def test_float32_fits_and_narrower_arithmetic_does_not(budget: ProgramBudget) -> None:
    program, constants, inputs = network()
    honest = judge_program(run(program, constants, inputs, lambda r: round_value(r, DType.F32)), budget)
    assert honest.accepted
    assert honest.outputs[0].tensor_ratio < 0.5
    for rounding in (tf32, bf16, lambda r: round_value(r, DType.F16)):
        assert not judge_program(run(program, constants, inputs, rounding), budget).accepted


def test_a_local_fault_is_caught_by_its_own_element(budget: ProgramBudget) -> None:
    y = encode(budget.outputs[0].gold, DType.F32)
    y[3, 4] += np.float32(3e-5)
    verdict = judge_program({budget.outputs[0].id: y}, budget)
    assert not verdict.accepted
    assert verdict.outputs[0].worst == (3, 4)


def test_an_output_that_is_missing_or_not_finite_is_refused(budget: ProgramBudget) -> None:
    output = budget.outputs[0]
    y = encode(output.gold, DType.F32)
    assert judge_program({output.id: y}, budget).accepted
    assert not judge_program({}, budget).accepted
    y[0, 0] = np.nan
    assert not judge_program({output.id: y}, budget).accepted


def test_budgets_are_the_same_in_every_run() -> None:
    program, constants, inputs = network()
    first, second = (program_budget(program, constants, inputs, FP32, runs=3) for _ in range(2))
    np.testing.assert_array_equal(first.outputs[0].sigma, second.outputs[0].sigma)
    assert first.outputs[0].largest == second.outputs[0].largest


def test_a_witness_is_held_to_the_tensor_alone(budget: ProgramBudget) -> None:
    program, _, _ = network()
    gold = budget.outputs[0].gold.astype(np.float32)
    (same,) = compare_witness(program, {"y": gold}, budget)
    assert same.agrees
    (off,) = compare_witness(program, {"y": gold + np.float32(1e-2)}, budget)
    assert not off.agrees
    with pytest.raises(InputError):
        compare_witness(program, {"z": gold}, budget)
    with pytest.raises(InputError):
        compare_witness(program, {"y": gold[:1]}, budget)


def test_what_lies_behind_a_quantizer_is_only_reported() -> None:
    b = ProgramBuilder(Constants())
    x, w = b.input(TensorType(DType.F32, (4, 8)), "x"), b.weight(TensorType(DType.F32, (8, 4)))
    step = b.constant(np.asarray(0.1, np.float32), DType.F32)
    (y,) = b.op("matmul", (x, w))
    (q,) = b.op("quantize_linear", (y, step), attributes(axis=-1, to="i8"))
    (d,) = b.op("dequantize_linear", (q, step), attributes(axis=-1))
    program = b.finish("main", (x, w), (y, d))
    assert behind_jumps(program) == {q, d}
    inputs = materialise(Descriptor(VectorFamily.RAND, 0, ()), program)
    found = program_budget(program, b.constants, inputs, FP32, runs=2)
    assert [o.is_reported_only for o in found.outputs] == [False, True]
    wrong = {o.id: encode(o.gold, o.dtype) for o in found.outputs}
    wrong[d] = wrong[d].astype(np.float32) + np.float32(0.1)
    assert judge_program(wrong, found).accepted


def test_a_use_is_judged_on_given_intermediates() -> None:
    program, constants = attention_program()
    inputs = materialise(Descriptor(VectorFamily.RAND, 0, ()), program)
    (out,) = program.only_phase.outputs
    gold = encode(evaluate(program, inputs, constants)[out], DType.F32)
    assert judge_use(program, inputs, constants, FP32, "attention", {out: gold}).accepted
    assert not judge_use(program, inputs, constants, FP32, "attention", {out: gold[::-1].copy()}).accepted


def test_large_programs_are_run_less_often() -> None:
    b = ProgramBuilder(Constants())
    x, w = b.input(TensorType(DType.F32, (1024, 1024)), "x"), b.weight(TensorType(DType.F32, (1024, 1024)))
    program = b.finish("main", (x, w), b.op("matmul", (x, w)))
    assert runs_for(program, {}) == FEW_RUNS
    assert runs_for(network()[0], {}) == RUNS


def test_noise_reaches_every_output_through_recurrence_and_pooling() -> None:
    b = ProgramBuilder(Constants())
    x = b.input(TensorType(DType.F32, (1, 2, 9, 9)), "x")
    pool = {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil_mode": 0}
    (y,) = b.op("average_pool", (x,), attributes(**pool, count_include_pad=0))
    (m,) = b.op("reduce_l2", (y,), attributes(axes=(2, 3), keepdims=0))
    (c,) = b.op("cumsum", (m,), attributes(axis=1, exclusive=0, reverse=0))
    program = b.finish("main", (x,), (y, m, c))
    inputs = materialise(Descriptor(VectorFamily.RAND, 0, ()), program)
    found = program_budget(program, b.constants, inputs, FP32, runs=8)
    assert all((o.sigma > 0).all() for o in found.outputs)
    assert all((o.sigma < 1e-5).all() for o in found.outputs)
