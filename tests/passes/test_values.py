"""No pass changes a value: random programs are computed before and after, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribunus.errors import DimError
from tribunus.numerics.dtypes import DType
from tribunus.passes.evaluator import evaluate_exact
from tribunus.passes.pipeline import PIPELINE, run_passes
from tribunus.passes.specialize import specialize
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.program import Array, Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.phaseir.verifier import verify

Dags = st.SearchStrategy[tuple[Program, Constants]]
Apply = Callable[[Program, Constants], Program]
F, I64 = DType.F32, DType.I64


def _compute(program: Program, constants: Constants) -> list[Array]:
    """Outputs of a program of exact ops on small numbers with both zeros."""
    phase = program.only_phase
    known: dict[int, Array] = {i: constants.of(program, i) for i, v in enumerate(program.values) if v.constant}
    for n, value in enumerate(phase.inputs):
        shape = program.type_of(value).numbers()
        numbers = (np.arange(np.prod(shape), dtype=np.float32) - 3 - n) / 2
        known[value] = np.where(numbers == 0, np.float32(-0.0), numbers).reshape(shape).astype(np.float32)
    for op in phase.ops:
        types = [program.type_of(v) for v in op.inputs]
        found = evaluate_exact(
            op.kind, [known[v] for v in op.inputs], types, op.attributes, program.type_of(op.outputs[0])
        )
        assert found is not None, op
        known[op.outputs[0]] = found
    return [known[v] for v in phase.outputs]


@pytest.mark.parametrize(
    "apply", [*(step.apply for step in PIPELINE), run_passes], ids=[*(s.name for s in PIPELINE), "all"]
)
def test_values_stay(apply: Apply, dags: Dags) -> None:
    @settings(max_examples=40, derandomize=True, deadline=None)
    @given(dags)
    def law(drawn: tuple[Program, Constants]) -> None:
        program, constants = drawn
        verify(program)
        changed = apply(program, constants)
        verify(changed)
        for before, after in zip(_compute(program, constants), _compute(changed, constants), strict=True):
            assert before.shape == after.shape
            assert before.tobytes() == after.tobytes()

    law()


def _fold(
    kind: str, arrays: list[Array], dtypes: list[DType], result: TensorType, **attributes: int | str
) -> Array | None:
    types = [TensorType(d, a.shape) for a, d in zip(arrays, dtypes, strict=True)]
    return evaluate_exact(kind, arrays, types, Attributes.of(attributes), result)


def test_integer_division_truncates_and_refuses_zero() -> None:
    a, b = np.array([-7, 7, 6]), np.array([2, -2, 3])
    found = _fold("div", [a, b], [I64, I64], TensorType(I64, (3,)))
    assert found is not None
    assert found.tolist() == [-3, -3, 2]
    assert _fold("div", [a, np.array([1, 0, 1])], [I64, I64], TensorType(I64, (3,))) is None


@pytest.mark.parametrize("value", [3e9, -3e9, np.inf, np.nan])
def test_a_cast_out_of_range_is_not_folded(value: float) -> None:
    assert _fold("cast", [np.array([value], np.float32)], [F], TensorType(DType.I32, (1,)), to="i32") is None


def test_what_rounds_more_than_once_is_not_folded() -> None:
    x = np.ones((2, 3), np.float32)
    for kind in ("exp", "sigmoid", "erf", "tanh"):
        assert _fold(kind, [x], [F], TensorType(F, (2, 3))) is None
    assert evaluate_exact("reduce_sum", [x], [TensorType(F, (2, 3))], _AXES, TensorType(F, (2, 1))) is None


def test_gather_counts_from_the_end_and_refuses_what_is_outside() -> None:
    x = np.arange(4, dtype=np.float32)
    found = _fold("gather", [x, np.array([-1, 0])], [F, I64], TensorType(F, (2,)), axis=0)
    assert found is not None
    assert found.tolist() == [3.0, 0.0]
    assert _fold("gather", [x, np.array([4, 0])], [F, I64], TensorType(F, (2,)), axis=0) is None


def test_binary16_arithmetic_is_rounded_once() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << 15, 4000).astype(np.uint16).view(np.float16) for _ in range(2))
    a, b = np.where(np.isfinite(a), a, np.float16(1)), np.where(np.isfinite(b), b, np.float16(1))
    for kind, wide in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
        found = _fold(kind, [a, b], [DType.F16] * 2, TensorType(DType.F16, (4000,)))
        with np.errstate(all="ignore"):
            expected = wide(a.astype(np.float64), b.astype(np.float64)).astype(np.float16)
        assert found is not None
        assert np.array_equal(found, expected, equal_nan=True)


def test_large_growth_is_not_folded() -> None:
    builder = ProgramBuilder(Constants())
    small = builder.constant(np.ones((1, 4), np.float32), F)
    x = builder.input(TensorType(F, (1 << 15, 4)), "x")
    (wide,) = builder.op("expand", (small,), Attributes.of({"shape": (1 << 15, 4)}))
    (y,) = builder.op("concat", (x, wide), Attributes.of({"axis": 0}))
    kinds = [op.kind for op in run_passes(builder.finish("main", (x,), (y,)), builder.constants).only_phase.ops]
    assert kinds == ["expand", "concat"]


def test_specialize_fixes_symbols() -> None:
    builder = ProgramBuilder(Constants(), (Symbol("s0", "n", 2, 4, 8, 2), Symbol("s1", "m", 1, 1, 9)))
    x = builder.input(TensorType(F, (Sym("s0"), Sym("s1"))), "x")
    (y,) = builder.op("reshape", (x,), Attributes.of({"shape": (Sym("s1"), Sym("s0"))}))
    program = builder.finish("main", (x,), (y,))
    fixed = specialize(program, {"s0": 6})
    verify(fixed)
    assert [s.name for s in fixed.symbols] == ["s1"]
    assert str(fixed.type_of(y)) == "f32[s1, 6]"
    with pytest.raises(DimError, match="n: 3 is not in 2:4:8:2"):
        specialize(program, {"s0": 3})
    with pytest.raises(DimError, match="unknown symbol"):
        specialize(program, {"s7": 3})


_AXES = Attributes.of({"axes": (1,), "keepdims": 1})


@pytest.mark.parametrize("scale", [2.0**-100, 1e-20, 0.003, 0.1, 1 / 3, 0.7071, 1.0, 3.0, 1e9, 2.0**100])
def test_a_byte_survives_being_dequantized_and_quantized(scale: float) -> None:
    """What dropping a repeated quantization rests on, for every difference of a byte and a zero point."""
    offsets = np.arange(-255, 256).astype(np.float32)
    nearest = np.float32(scale)
    for number in (nearest, np.nextafter(nearest, np.float32(0)), np.nextafter(nearest, np.float32(1e38))):
        assert np.array_equal(np.rint(offsets * number / number), offsets)
