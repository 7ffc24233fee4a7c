"""Products of two quantized inputs: exact for every shape, kind of byte, layout and zero point, on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.backend import NativeBackend
from tribunus_native.match.quantized_batch import match_batch
from tribunus_native.templates.integer_dot import MOST_DEPTH
from tribunus_native.toolchain import Cpu, Toolchain, find_toolchain

from tests.native.conftest import host_cpus
from tests.native.groups import Group, GroupBuilder, Workshop
from tribunus.candidates.model import Candidate
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Shape, Sym, Symbol
from tribunus.targets.target import Target

D0, D1, D2 = Sym("d0"), Sym("d1"), Sym("d2")
SYMBOLS = (Symbol("d0", "d0", 1, 3, 9), Symbol("d1", "d1", 1, 37, 90), Symbol("d2", "d2", 0, 26, 70))
LABELS = {True: "qdq_matmul+quantize", False: "qdq_matmul"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """How an operand is quantized.  zero: 0 for no zero point."""

    dtype: DType
    scale: float
    zero: int


X = Quantizer(dtype=DType.U8, scale=0.25, zero=131)
W = Quantizer(dtype=DType.U8, scale=0.125, zero=97)
Y = Quantizer(dtype=DType.U8, scale=16.0, zero=7)


def draw(dtype: DType, shape: Shape, seed: int) -> npt.NDArray[np.generic]:
    """Full range, the extremes often."""
    random = np.random.default_rng(seed)
    low, high = (0, 255) if dtype is DType.U8 else (-128, 127)
    extents = dims.evaluate_shape(shape, {s.name: s.opt for s in SYMBOLS})
    values = random.integers(low, high + 1, extents)
    values = np.where(random.random(extents) < 0.2, random.choice([low, high], extents), values)
    return values.astype(np.uint8) if dtype is DType.U8 else values.astype(np.int8)


def a_product(
    x_shape: tuple[Dim, ...], w_shape: tuple[Dim, ...], x: Quantizer = X, w: Quantizer = W, y: Quantizer | None = Y
) -> Group:
    """Two inputs dequantized, their product, quantized or real."""
    b = GroupBuilder(*SYMBOLS)

    def numbers(q: Quantizer) -> list[int]:
        return [b.w(array=q.scale), *([b.w(dtype=q.dtype, array=q.zero)] if q.zero else [])]

    factors = [
        b.op("dequantize_linear", b.x(*shape, dtype=q.dtype, array=draw(q.dtype, shape, seed)), *numbers(q), axis=-1)
        for seed, (q, shape) in enumerate(((x, x_shape), (w, w_shape)))
    ]
    result = b.op("matmul", *factors)
    if y is not None:
        zeros = numbers(y) if y.zero else [*numbers(y), b.k(0, y.dtype)]
        result = b.op("quantize_linear", result, *zeros, axis=-1, to=y.dtype.value)
    return b.group(LABELS[y is not None], result)


def expected(group: Group, x: Quantizer, w: Quantizer, y: Quantizer | None) -> npt.NDArray[np.generic]:
    """Exact: the scales are powers of two, the sums below 2^24."""
    left, right = (group.arrays[v].astype(np.int64) for v in group.signature.inputs)
    total = np.asarray((left - x.zero) @ (right - w.zero) * (x.scale * w.scale), dtype=np.float64)
    if y is None:
        return total.astype(np.float32)
    low, high = (0, 255) if y.dtype is DType.U8 else (-128, 127)
    result: npt.NDArray[np.generic] = np.clip(np.rint(total / y.scale) + y.zero, low, high).astype(y.dtype.numpy)
    return result


@pytest.fixture(scope="module")
def workshops(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workshop, ...]:
    """One for each instruction set that runs here."""
    found = find_toolchain()
    if not isinstance(found, Toolchain):
        pytest.skip(found.reason)
    cpus = host_cpus()
    if not cpus:
        pytest.skip("this machine has none of the instruction sets x86-64-v3, znver4")
    folder = tmp_path_factory.mktemp("batch")
    return tuple(
        Workshop(NativeBackend(), Target("cpu", cpu.value, parts), folder)
        for cpu, parts in zip(cpus, (2, 1), strict=False)
    )


def proposed(workshop: Workshop, group: Group) -> list[Candidate]:
    return [c for c in workshop.candidates(group, 64) if c.config.text("template") == "quantized_batch"]


def distinct(candidates: list[Candidate]) -> Iterator[Candidate]:
    """The best point of each layout."""
    yield from {c.layouts: c for c in reversed(candidates)}.values()


SHAPES: dict[str, tuple[tuple[Dim, ...], tuple[Dim, ...]]] = {
    "one matrix": ((5, 16), (16, 48)),
    "one row, one column": ((1, 7), (7, 1)),
    "heads": ((2, 3, 19, 32), (2, 3, 32, 53)),
    "odd sizes": ((3, 9, 21), (3, 21, 37)),
    "w shared by all items": ((4, 3, 5, 10), (10, 17)),
    "x shared by all items": ((5, 10), (3, 10, 70)),
    "each operand has an axis of its own": ((2, 1, 3, 6, 9), (4, 1, 9, 18)),
    "symbolic batch and rows": ((D0, 2, D1, 12), (D0, 2, 12, 20)),
    "symbolic columns": ((D0, 2, 12), (D0, 12, D1)),
    "symbolic depth": ((2, 3, D2), (2, D2, D1)),
    "everything symbolic, x shared": ((D1, D2), (D0, D2, D1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_exact(workshops: tuple[Workshop, ...], name: str) -> None:
    group = a_product(*SHAPES[name])
    for workshop in workshops:
        candidates = proposed(workshop, group)
        assert {c.layouts[1].is_row_major for c in candidates} == {True, False}
        for candidate in distinct(candidates):
            (found,) = workshop.call(group, workshop.build(group, candidate)).values()
            assert np.array_equal(found, expected(group, X, W, Y)), candidate


@pytest.mark.parametrize("name", ["odd sizes", "symbolic columns"])
def test_real_results_are_exact_where_the_scales_are_powers_of_two(workshops: tuple[Workshop, ...], name: str) -> None:
    group = a_product(*SHAPES[name], y=None)
    for workshop in workshops:
        for candidate in distinct(proposed(workshop, group)):
            (found,) = workshop.call(group, workshop.build(group, candidate)).values()
            assert np.array_equal(found, expected(group, X, W, None)), candidate


@pytest.mark.parametrize(("x", "w"), list(product((DType.U8, DType.I8), (DType.U8, DType.I8))))
def test_every_kind_of_byte_and_zero_point_is_exact(workshops: tuple[Workshop, ...], x: DType, w: DType) -> None:
    for zeros in ((0, 0, 0), (0, 3, 0), (127, 4, 5)):
        left, right = replace(X, dtype=x, zero=zeros[0]), replace(W, dtype=w, zero=zeros[1])
        result = replace(Y, dtype=x, zero=zeros[2], scale=64.0)
        group = a_product((2, 7, 23), (2, 23, 19), left, right, result)
        for workshop in workshops:
            for candidate in distinct(proposed(workshop, group)):
                (found,) = workshop.call(group, workshop.build(group, candidate)).values()
                assert np.array_equal(found, expected(group, left, right, result)), (zeros, candidate)
                assert len(np.unique(found)) > 10


def test_every_point_is_accepted_by_the_oracle(workshops: tuple[Workshop, ...]) -> None:
    real = (replace(X, scale=0.021), replace(W, dtype=DType.I8, zero=-5, scale=0.013), replace(Y, scale=0.9))
    group = a_product((2, 9, 20), (2, 20, 35), *real)
    for workshop in workshops:
        candidates = proposed(workshop, group)
        assert len(candidates) > 4
        assert workshop.candidates(group, 1) == candidates[:1]
        assert workshop.refused(group, candidates) == []


def test_one_kernel_serves_all_scales_and_zero_points(workshops: tuple[Workshop, ...]) -> None:
    group = a_product((2, 7, 23), (2, 23, 19))
    artifacts = [workshop.build(group, proposed(workshop, group)[0]) for workshop in workshops]
    for zero, scale in ((1, 0.5), (254, 2.0)):
        other = (replace(X, zero=zero), replace(W, zero=255 - zero, scale=scale), replace(Y, zero=zero, scale=64.0))
        changed = a_product((2, 7, 23), (2, 23, 19), *other)
        assert changed.signature.digest == group.signature.digest
        for workshop, artifact in zip(workshops, artifacts, strict=True):
            (found,) = workshop.call(changed, artifact).values()
            assert np.array_equal(found, expected(changed, *other))
            (stale,) = workshop.call(group, artifact).values()
            assert not np.array_equal(stale, expected(changed, *other))


def test_the_deepest_sums_do_not_overflow(workshops: tuple[Workshop, ...]) -> None:
    left, right = replace(X, zero=255), replace(W, zero=255)
    group = a_product((2, MOST_DEPTH), (MOST_DEPTH, 3), left, right, replace(Y, scale=2.0**26, zero=1))
    for value in group.signature.inputs:
        group.arrays[value][...] = 0
    for workshop in workshops:
        for candidate in distinct(proposed(workshop, group)):
            (found,) = workshop.call(group, workshop.build(group, candidate)).values()
            assert np.array_equal(found, np.full((2, 3), 1 + round(MOST_DEPTH * 255 * 255 / 2.0**31), np.uint8))


def test_sums_that_may_overflow_are_left_to_others() -> None:
    assert match_batch(a_product((2, MOST_DEPTH), (MOST_DEPTH, 3)).signature) is not None
    assert match_batch(a_product((2, MOST_DEPTH + 1), (MOST_DEPTH + 1, 3)).signature) is None


EMPTY: dict[str, tuple[tuple[Dim, ...], tuple[Dim, ...]]] = {
    "no rows": ((0, 7), (7, 5)),
    "no columns": ((3, 7), (7, 0)),
    "no items": ((0, 3, 7), (0, 7, 5)),
    "no items that share w": ((2, 0, 3, 7), (7, 5)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_results_are_left_to_others(workshops: tuple[Workshop, ...], name: str) -> None:
    group = a_product(*EMPTY[name])
    for workshop in workshops:
        assert {c.config.text("template") for c in workshop.candidates(group, 64)} == {"loops"}


def test_products_over_no_depth_are_the_zero_point(workshops: tuple[Workshop, ...]) -> None:
    group = a_product((3, 0), (0, 5))
    for workshop in workshops:
        for candidate in distinct(proposed(workshop, group)):
            (found,) = workshop.call(group, workshop.build(group, candidate)).values()
            assert np.array_equal(found, np.full((3, 5), Y.zero, np.uint8))


def test_a_square_of_one_input_is_a_product(workshops: tuple[Workshop, ...]) -> None:
    b = GroupBuilder(*SYMBOLS)
    x = b.op(
        "dequantize_linear", b.x(2, 9, 9, dtype=DType.U8), b.w(array=0.25), b.w(dtype=DType.U8, array=131), axis=-1
    )
    group = b.group("qdq_matmul", b.op("matmul", x, x))
    (array,) = (group.arrays[v].astype(np.int64) - 131 for v in group.signature.inputs)
    for workshop in workshops:
        candidate = proposed(workshop, group)[0]
        (found,) = workshop.call(group, workshop.build(group, candidate)).values()
        assert np.array_equal(found, (array @ array * 0.0625).astype(np.float32))


def test_machines_without_the_byte_product_have_their_own_form(tmp_path: Path) -> None:
    dots: dict[Cpu, set[int]] = {}
    for cpu in (Cpu.ZNVER4, Cpu.X86_64_V4, Cpu.X86_64_V3, Cpu.AARCH64):
        workshop = Workshop(NativeBackend(), Target("cpu", cpu.value, 1), tmp_path)
        dots[cpu] = {c.config.integer("dot") for c in proposed(workshop, a_product((5, 16), (16, 48)))}
    assert dots == {Cpu.ZNVER4: {4, 2}, Cpu.X86_64_V4: {2}, Cpu.X86_64_V3: {2}, Cpu.AARCH64: {1}}
