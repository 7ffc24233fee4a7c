"""Descriptors name the same arrays everywhere, and arrays meet what the ops demand."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.given import Given
from tests.oracle.mutants.linear import bytes_program
from tests.oracle.mutants.pointwise import gelu_program, single
from tests.oracle.mutants.structured import attention_program
from tests.oracle.nodes import attributes
from tribunus.errors import InputError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.demands import Demand, wanted
from tribunus.oracle.draws import Draws
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.gates import trust_suite
from tribunus.oracle.golden import evaluate
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.vectors import Descriptor, captured, given_types, materialise, vector_set
from tribunus.oracle.verdict import judge
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

FP32 = ComputePolicy.FP32
CONV = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}


def _digest(program: Program, descriptor: Descriptor) -> str:
    h = hashlib.sha256()
    for value, array in sorted(materialise(descriptor, program).items()):
        h.update(f"{value}:{array.dtype}:{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return h.hexdigest()[:16]


def _indexed(kind: str, shapes: tuple[tuple[int, ...], ...], integer: int, **values: object) -> Program:
    b = ProgramBuilder(Constants())
    types = [TensorType(DType.I64 if i == integer else DType.F32, s) for i, s in enumerate(shapes)]
    ids = tuple(b.input(t, f"x{i}") for i, t in enumerate(types))
    return b.finish(kind, ids, b.op(kind, ids, attributes(**values)))


def test_a_descriptor_names_the_same_bytes_on_every_host() -> None:
    program, _ = single("matmul", ((5, 7), (7, 3)))
    found = {
        str(d): _digest(program, d)
        for d in vector_set(program, FP32, "matmul", {})
        if d.family in (VectorFamily.EXACT, VectorFamily.RAND, VectorFamily.HEAVY)
    }
    assert found == PINNED


PINNED = {
    "exact/0": "26a524aeb3888600",
    "heavy/0": "e4f3a3599474d922",
    "rand/0": "40c6aeffbe100c67",
    "rand^-10/1": "797d354858e3a30f",
    "rand^10/2": "6da6c396cfb484a0",
}


def test_draws_have_the_moments_that_they_claim() -> None:
    draws = Draws(b"moments")
    x = draws.normal((200_000,))
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1.0) < 0.01
    assert 3.5 < np.abs(x).max() < 4.6
    assert len(np.unique(x.astype(np.float32))) > 150_000
    u = draws.uniform((100_000,))
    assert 0.0 < u.min() < u.max() < 1.0
    assert abs(u.mean() - 0.5) < 0.01
    heavy = draws.heavy((100_000,))
    assert abs(np.median(np.abs(heavy)) - 0.8165) < 0.02
    i = draws.integers(-3, 3, (7000,))
    assert set(i.tolist()) == set(range(-3, 4))
    assert sorted(draws.permutation(50).tolist()) == list(range(50))


def test_weights_and_data_have_different_numbers_and_seeds_differ() -> None:
    program, _ = single("add", ((4, 4), (4, 4)))
    a = materialise(Descriptor(VectorFamily.RAND, 0, ()), program)
    b = materialise(Descriptor(VectorFamily.RAND, 1, ()), program)
    assert not np.array_equal(a[0], a[1])
    assert not np.array_equal(a[0], b[0])


def test_the_minimum_set_of_a_linear_signature_has_every_kind_of_vector() -> None:
    program, _ = single("conv", ((1, 4, 8, 8), (6, 4, 3, 3), (6,)), **CONV)
    found = vector_set(program, FP32, "conv", {})
    assert found == vector_set(program, FP32, "conv", {})
    families = [d.family for d in found]
    assert {"exact", "identity", "rand", "pos", "special", "trend", "cancel"} <= set(families)
    assert families.count(VectorFamily.RAND) >= 3
    assert len({d.seed for d in found if d.family is VectorFamily.RAND}) >= 2
    loose = vector_set(program, ComputePolicy.FP32_WINOGRAD, "conv", {})
    assert not {"exact", "identity", "special"} & {d.family for d in loose}


def test_indices_stay_in_their_axis_and_reach_both_ends() -> None:
    program = _indexed("gather", ((9, 4), (200,)), 1, axis=0)
    for d in vector_set(program, FP32, "gather", {}):
        index = materialise(d, program)[1]
        assert index.min() >= -9
        assert index.max() <= 8
    edges = materialise(Descriptor(VectorFamily.INDEX, 0, ()), program)[1]
    assert {8, -9, -1, 0} <= set(edges.tolist())


@pytest.mark.parametrize(
    ("kind", "shapes", "values"),
    (
        ("scatter_elements", ((5, 6), (5, 4), (5, 4)), {"axis": 1, "reduction": "none"}),
        ("scatter_nd", ((5, 6, 3), (8, 2), (8, 3)), {"reduction": "none"}),
    ),
)
def test_scattered_indices_never_meet(
    kind: str, shapes: tuple[tuple[int, ...], ...], values: dict[str, object]
) -> None:
    program = _indexed(kind, shapes, 1, **values)
    for d in vector_set(program, FP32, kind, {}):
        index = materialise(d, program)[1]
        if kind == "scatter_elements":
            assert all(len(set(row)) == len(row) for row in index.tolist())
        else:
            assert len({tuple(row) for row in index.tolist()}) == len(index)


def test_sequence_lengths_lie_within_the_sequence() -> None:
    b = ProgramBuilder(Constants())
    shapes = ((7, 3, 4), (1, 20, 4), (1, 20, 5))
    x, w, r = (b.input(TensorType(DType.F32, s), "") for s in shapes)
    lengths = b.input(TensorType(DType.I32, (3,)), "lengths")
    outputs = b.op("lstm", (x, w, r, -1, lengths), attributes(direction="reverse", hidden=5))
    program = b.finish("lstm", (x, w, r, lengths), outputs)
    for d in vector_set(program, FP32, "lstm", {}):
        drawn = materialise(d, program)[lengths]
        assert drawn.max() == 7
        assert drawn.min() >= 1


def test_numbers_stay_inside_the_domain_that_an_op_declares() -> None:
    for kind, inside in (
        ("log", lambda x: np.nanmin(x) > 0),
        ("exp", lambda x: np.abs(x[np.isfinite(x)]).max() <= 80),
        ("reciprocal", lambda x: True),
    ):
        program, _ = single(kind, ((500,),))
        for d in vector_set(program, FP32, kind, {}):
            assert inside(materialise(d, program)[0]), (kind, d)
    program, _ = single("batch_norm", ((2, 3, 4), (3,), (3,), (3,), (3,)), eps=1e-5)
    small = materialise(Descriptor(VectorFamily.SMALLVAR, 0, (), -7), program)[4]
    assert 0 < small.min() < 1e-3


def test_a_one_hot_probe_has_one_term_a_sum() -> None:
    program, constants = single("conv", ((2, 5, 9, 9), (4, 5, 3, 3)), **CONV)
    for variant in (0, 1):
        d = Descriptor(VectorFamily.IDENTITY, 0, (), variant)
        inputs = materialise(d, program)
        golden = golden_with_budget(program, inputs, constants, FP32, "conv", d.family)[0]
        assert golden.exact.all()
        assert np.count_nonzero(golden.value) > 10


def test_a_fused_epilogue_keeps_the_probes_exact() -> None:
    b = ProgramBuilder(Constants())
    x, w = b.input(TensorType(DType.F32, (6, 40)), "x"), b.weight(TensorType(DType.F32, (40, 8)))
    bias, scale = b.weight(TensorType(DType.F32, (8,))), b.weight(TensorType(DType.F32, (8,)))
    (y,) = b.op("matmul", (x, w))
    (z,) = b.op("add", (y, bias))
    (s,) = b.op("mul", (z, scale))
    program = b.finish("matmul+bias+scale+relu", (x, w, bias, scale), b.op("relu", (s,)))
    for family in (VectorFamily.EXACT, VectorFamily.IDENTITY):
        inputs = materialise(Descriptor(family, 0, ()), program)
        golden = golden_with_budget(program, inputs, Constants(), FP32, "x", family)[0]
        assert golden.exact.all(), family


def test_masks_leave_a_key_in_every_line() -> None:
    program, _ = attention_program()
    q, _, _, mask = program.only_phase.inputs
    types = tuple(v.type for v in program.values)
    assert wanted(program, types, mask).masks
    assert not wanted(program, types, q).masks
    drawn = materialise(Descriptor(VectorFamily.MASK, 0, ()), program)[mask].astype(np.float32)
    assert np.isneginf(drawn).any()
    assert np.isfinite(drawn[:, 0]).all()


def test_symbolic_dims_are_bound_by_the_descriptor() -> None:
    symbol = Symbol("d0", "batch", 1, 3, 8)
    b = ProgramBuilder(Constants(), (symbol,))
    x = b.input(TensorType(DType.F32, (Sym("d0"), 4)), "x")
    program = b.finish("relu", (x,), b.op("relu", (x,)))
    for d in vector_set(program, FP32, "relu", {"d0": 5}):
        inputs = materialise(d, program)
        assert inputs[x].shape == (5, 4)
        assert evaluate(program, inputs, Constants(), bindings=dict(d.bindings))[1].shape == (5, 4)
    assert given_types(program, {"d0": 2})[x].shape == (2, 4)
    assert dims.evaluate(Sym("d0"), {"d0": 2}) == 2


def test_captured_arrays_belong_to_their_owner() -> None:
    program, _ = gelu_program(4)
    d = captured("case0", {})
    assert str(d) == "captured/case0"
    with pytest.raises(InputError, match="captured"):
        materialise(d, program)


@pytest.mark.parametrize("name", ["quantized matmul by operands", "qdq softmax"])
def test_scales_and_zero_points_leave_room_for_results(name: str) -> None:
    program = bytes_program()[0] if name.startswith("quantized") else _quantized_softmax()
    for descriptor in vector_set(program, FP32, name, {}):
        arrays = materialise(descriptor, program)
        steps = [a.astype(np.float64) for v, a in arrays.items() if program.type_of(v).dtype is DType.F32]
        assert all(bool(np.all(a > 2.0**-20) and np.all(a < 4.0)) for a in steps)
        if descriptor.family in (VectorFamily.EXACT, VectorFamily.TIES):
            assert all(bool(np.all(np.frexp(a)[0] == 0.5)) for a in steps)
        (golden,) = golden_with_budget(program, arrays, Constants(), FP32, name, descriptor.family)
        if descriptor.family in (VectorFamily.EXACT, VectorFamily.RAND):
            results = golden.presented.astype(np.int64)
            assert np.count_nonzero((results > 0) & (results < 255)) > results.size // 16
            assert len(np.unique(results)) > 10


def test_every_scale_and_zero_point_moves_a_result() -> None:
    for program in (bytes_program()[0], _quantized_softmax()):
        cases = []
        for descriptor in vector_set(program, FP32, "x", {}):
            inputs = materialise(descriptor, program)
            goldens = golden_with_budget(program, inputs, Constants(), FP32, "x", descriptor.family)
            cases.append(Given(descriptor, inputs, goldens))
        assert trust_suite(program, Constants(), cases).insensitive == ()


def _quantized_softmax() -> Program:
    b = ProgramBuilder(Constants())
    x, x_step, x_zero = b.input(TensorType(DType.U8, (9, 40)), "x"), b.weight(_STEP), b.weight(_ZERO)
    (real,) = b.op("dequantize_linear", (x, x_step, x_zero), attributes(axis=-1))
    (y,) = b.op("softmax", (real,), attributes(axis=1))
    operands = (y, b.weight(_STEP), b.weight(_ZERO))
    return b.finish("qdq_softmax+quantize", (x,), b.op("quantize_linear", operands, attributes(axis=-1, to="u8")))


_STEP, _ZERO = TensorType(DType.F32, ()), TensorType(DType.U8, ())


def test_an_integer_that_only_becomes_a_float_is_a_flag() -> None:
    b = ProgramBuilder(Constants())
    x = b.input(TensorType(DType.I64, (50,)), "mask")
    (f,) = b.op("cast", (x,), attributes(to="f32"))
    one, huge = (
        b.constant(np.asarray(1, np.float32), DType.F32),
        b.constant(np.asarray(np.finfo(np.float32).min), DType.F32),
    )
    (d,) = b.op("sub", (one, f))
    program = b.finish("mask", (x,), b.op("mul", (d, huge)))
    assert wanted(program, tuple(v.type for v in program.values), x).demand is Demand.FLAG
    assert set(materialise(Descriptor(VectorFamily.RAND, 0, ()), program)[x].tolist()) == {0, 1}


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(
    m=st.integers(1, 33), k=st.integers(1, 70), n=st.integers(1, 17), seed=st.integers(0, 3), scale=st.integers(-20, 20)
)
def test_blas_is_honest_and_a_dropped_tail_is_not_at_any_shape(m: int, k: int, n: int, seed: int, scale: int) -> None:
    program, constants = single("matmul", ((m, k), (k, n)))
    d = Descriptor(VectorFamily.RAND, seed, (), scale)
    inputs = materialise(d, program)
    golden = golden_with_budget(program, inputs, constants, FP32, "matmul", d.family)
    a, b = inputs[0].astype(np.float32), inputs[1].astype(np.float32)
    assert judge({2: a @ b}, golden).accepted
    if k % 16:
        assert not judge({2: a[:, : k // 16 * 16] @ b[: k // 16 * 16]}, golden).accepted
