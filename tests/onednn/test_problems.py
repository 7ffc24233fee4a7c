"""Signatures become oneDNN problems where its definition is theirs, and get a reason where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tribunus_onednn.anchors import arrangements, match_copy, match_signature
from tribunus_onednn.epilogue import Unmatched
from tribunus_onednn.match import Arrangement, Matched
from tribunus_onednn.problem import problem_from_json, problem_to_json

from tests.onednn import signatures
from tests.onednn.signatures import CASES, Case, Making
from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.layouts import channels_last, row_major
from tribunus.phaseir.program import Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType


def matched(case: Case, arrangement: Arrangement = Arrangement.PLAIN) -> Matched:
    found = match_signature(case.signature, arrangement)
    assert isinstance(found, Matched), found
    return found


def reason(case: Case) -> str:
    found = match_signature(case.signature, Arrangement.PLAIN)
    assert isinstance(found, Unmatched), found
    return found.reason


@pytest.mark.parametrize("name", CASES)
def test_every_family_has_a_problem_that_survives_its_document(name: str) -> None:
    case = CASES[name]()
    for arrangement in arrangements(case.signature):
        problem = matched(case, arrangement).problem
        assert problem_from_json(problem_to_json(problem), "test") == problem


def test_a_bias_becomes_the_bias_argument_and_gelu_one_post_op() -> None:
    problem = matched(signatures.matmul_bias_gelu()).problem
    assert [a.name for a in problem.arguments] == ["src", "weights", "dst", "bias"]
    assert [p.alg for p in problem.post_ops] == ["eltwise_gelu_erf"]


def test_leading_axes_of_a_product_with_a_matrix_are_rows() -> None:
    assert matched(signatures.matmul_residual()).problem.memory("src").dims == (24, 40)


def test_two_bounds_are_one_clip() -> None:
    problem = matched(CASES["clip"]()).problem
    assert (problem.alg, problem.real("alpha"), problem.real("beta")) == ("eltwise_clip", -0.5, 0.75)


def test_a_convolution_prefers_channels_last() -> None:
    case = signatures.conv()
    assert arrangements(case.signature)[0] is Arrangement.CHANNELS_LAST
    assert matched(case, Arrangement.CHANNELS_LAST).layouts == (channels_last(4), channels_last(4))


def test_another_constant_than_that_of_the_definition_is_no_gelu() -> None:
    m = Making()
    x = m.input(4, 8)
    scaled = m.op("mul", x, m.number(0.7))
    y = m.op("mul", m.op("mul", x, m.op("add", m.op("erf", scaled), m.number(1.0))), m.number(0.5))
    assert "erf" in reason(m.finish("chain", y))


def test_a_value_that_is_read_again_later_ends_no_activation() -> None:
    m = Making()
    x = m.input(4, 8)
    gate = m.op("sigmoid", x)
    y = m.op("add", m.op("mul", x, gate), gate)
    assert reason(m.finish("chain", y))


def test_symbolic_dims_are_refused_with_the_reason() -> None:
    symbol = Symbol("d0", "sequence", 1, 8, 64)
    builder = ProgramBuilder(Constants(), (symbol,))
    x = builder.input(TensorType(DType.F32, (Sym("d0"), 16)), "")
    w = builder.weight(TensorType(DType.F32, (16, 8)))
    program = builder.finish("matmul", (x,), builder.op("matmul", (x, w)))
    case = Case(Signature(program, ComputePolicy.FP32, builder.constants), {})
    assert "symbolic" in reason(case)


def test_other_dtypes_are_refused_with_the_reason() -> None:
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F16, (4, 4)), "")
    program = builder.finish("relu", (x,), builder.op("relu", (x,)))
    assert "f16" in reason(Case(Signature(program, ComputePolicy.FP32, builder.constants), {}))


@pytest.mark.parametrize("policy", [ComputePolicy.BF16, ComputePolicy.TF32, ComputePolicy.FP32_WINOGRAD])
def test_other_compute_policies_are_refused(policy: ComputePolicy) -> None:
    case = signatures.matmul()
    assert policy.value in reason(replace(case, signature=replace(case.signature, policy=policy)))


def test_a_window_beyond_the_padding_is_refused_where_it_would_count() -> None:
    m = Making()
    x = m.input(1, 4, 6, 6)
    y = m.op(
        "average_pool", x, kernel=(3, 3), strides=(2, 2), pads=(0,) * 4, dilations=(1, 1), ceil_mode=1,
        count_include_pad=1,
    )  # fmt: skip
    assert "padding" in reason(m.finish("average_pool", y))


def test_a_conversion_of_layouts_has_both_at_its_border() -> None:
    case = signatures.copy()
    found = match_copy(case.signature, row_major(4), channels_last(4))
    assert isinstance(found, Matched)
    assert found.layouts == (row_major(4), channels_last(4))
    assert found.problem.memory("dst").strides == (288, 1, 72, 9)


def test_batch_normalization_after_a_convolution_is_a_factor_and_a_term() -> None:
    found = matched(signatures.conv_batch_norm())
    assert [p.alg for p in found.problem.post_ops] == ["binary_mul", "binary_add", "eltwise_relu"]
    assert found.weights[1].eps == float(np.float32(1e-5))
