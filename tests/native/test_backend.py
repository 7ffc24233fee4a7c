"""What the backend proposes for the groups that templates serve, and that the oracle accepts what it builds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tribunus_native.backend import BACKEND, NativeBackend
from tribunus_native.match.conv import Image, seen_through
from tribunus_native.templates.conv import Window, conv_rule
from tribunus_native.templates.rows import MOST_KINDS
from tribunus_native.toolchain import Toolchain, find_toolchain

from tests.native.conftest import host_cpus
from tests.native.groups import GroupBuilder, Workshop
from tribunus.candidates.backend import NO_FEEDBACK, Budget, Effort, Feedback, Refusal
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.verdict import judge
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32, AttributeValue
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.layouts import Layout, channels_last, row_major
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target

Make = Callable[[GroupBuilder], tuple[int, ...]]
D0, D1 = Sym("d0"), Sym("d1")
RANDOM = np.random.default_rng(11)
PLAIN = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}


def _gelu(b: GroupBuilder, x: int) -> int:
    error = b.op("erf", b.op("div", x, b.k(1.4142135)))
    return b.op("mul", b.op("mul", x, b.k(0.5)), b.op("add", error, b.k(1.0)))


def _product(b: GroupBuilder) -> tuple[int, ...]:
    x = b.op("add", b.op("matmul", b.x(2, 9, 40), b.w(40, 100)), b.w(100))
    return (b.op("add", _gelu(b, x), b.x(2, 9, 100)),)


def _rows(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("relu", b.op("matmul", b.x(1, D0, 40), b.w(40, 33))),)


def _convolution(b: GroupBuilder) -> tuple[int, ...]:
    y = b.op(
        "conv",
        b.x(2, 8, 9, 11),
        b.w(60, 4, 3, 3),
        b.w(60),
        strides=(2, 1),
        pads=(1, 1, 0, 2),
        dilations=(1, 2),
        group=2,
    )
    y = b.op("batch_norm", y, b.w(60), b.w(60), b.w(60), b.w(60, array=RANDOM.random(60) + 0.5), eps=F32(1e-5))
    return (b.op("mul", y, b.op("sigmoid", y)),)


def _line(b: GroupBuilder) -> tuple[int, ...]:
    y = b.op("conv", b.x(2, 8, 31), b.w(33, 8, 5), strides=(1,), pads=(2, 2), dilations=(1,), group=1)
    return (b.op("add", y, b.w(33, 1)),)


def _column(b: GroupBuilder) -> tuple[int, ...]:
    window = {"strides": (2, 1), "pads": (3, 0, 2, 0), "dilations": (2, 1)}
    y = b.op("conv", b.x(2, 8, 41, 1), b.w(66, 4, 5, 1), b.w(66), group=2, **window)
    return (b.op("add", y, b.x(2, 66, 19, 1)),)


def _depthwise_column(b: GroupBuilder) -> tuple[int, ...]:
    window = {"strides": (1, 3), "pads": (1, 0, 0, 0), "dilations": (1, 1)}
    return (b.op("relu", b.op("conv", b.x(2, 24, 31, 1), b.w(24, 1, 4, 1), group=24, **window)),)


def _depthwise(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("add", b.op("conv", b.x(2, 24, 9, 9), b.w(24, 1, 3, 3), group=24, **PLAIN), b.x(2, 24, 9, 9)),)


def _narrow(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("sigmoid", b.op("conv", b.x(1, 40, 9, 9), b.w(2, 40, 3, 3), group=1, **PLAIN)),)


def _transposed(b: GroupBuilder) -> tuple[int, ...]:
    window = {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "output_padding": (0, 0)}
    y = b.op("conv_transpose", b.x(2, 8, 5, 6), b.w(8, 6, 2, 2), b.w(6), group=1, **window)
    return (b.op("relu", b.op("mul", y, b.w(6, 1, 1))),)


def _any_convolution(b: GroupBuilder, kernel: tuple[int, ...], out: int, **window: AttributeValue) -> tuple[int, ...]:
    y = b.op("conv", b.x(2, 8, D0, D1), b.w(out, 8, *kernel), b.w(out), group=1, **window)
    return (b.op("relu", y),)


def _any_depthwise(b: GroupBuilder) -> tuple[int, ...]:
    y = b.op("conv", b.x(1, 24, D0, D1), b.w(24, 1, 3, 3), group=24, **PLAIN)
    return (b.op("add", y, b.x(1, 24, D0, D1)),)


def _differently_written(b: GroupBuilder) -> tuple[int, ...]:
    y = b.op("relu", b.op("conv", b.x(1, 8, D0, D1), b.w(24, 8, 3, 3), b.w(24), group=1, **PLAIN))
    return (b.op("add", b.x(1, 24, D0, dims.mul(2, dims.floordiv(D1, 2))), y),)


def _any_upward(b: GroupBuilder) -> tuple[int, ...]:
    window = {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "output_padding": (0, 0)}
    return (b.op("relu", b.op("conv_transpose", b.x(1, 8, D0, D1), b.w(8, 6, 2, 2), b.w(6), group=1, **window)),)


def _any_pool(b: GroupBuilder, kind: str, **counting: int) -> tuple[int, ...]:
    window: dict[str, AttributeValue] = {"kernel": (3, 2), "strides": (2, 3), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    return (b.op(kind, b.x(1, 19, D0, D1), ceil_mode=1, **counting, **window),)


def _heads(b: GroupBuilder, rows: Dim) -> tuple[int, ...]:
    q, k, v = (b.x(2, rows, 3, 24) for _ in range(3))
    scores = b.op("matmul", b.op("transpose", q, perm=(0, 2, 1, 3)), b.op("transpose", k, perm=(0, 2, 3, 1)))
    weights = b.op("softmax", b.op("add", b.op("mul", scores, b.k(0.2)), b.x(2, 1, 1, rows)), axis=3)
    return (b.op("transpose", b.op("matmul", weights, b.op("transpose", v, perm=(0, 2, 1, 3))), perm=(0, 2, 1, 3)),)


def _norm(b: GroupBuilder) -> tuple[int, ...]:
    x = b.op("add", b.x(5, 37), b.x(5, 37))
    d = b.op("sub", x, b.op("reduce_mean", x, axes=(1,), keepdims=1))
    variance = b.op("reduce_mean", b.op("mul", d, d), axes=(1,), keepdims=1)
    y = b.op("div", d, b.op("sqrt", b.op("add", variance, b.k(1e-5))))
    return (b.op("add", b.op("mul", y, b.w(37)), b.w(37)),)


def _pool(b: GroupBuilder) -> tuple[int, ...]:
    window: dict[str, AttributeValue] = {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 1, 0, 1), "dilations": (1, 1)}
    return (b.op("average_pool", b.x(2, 19, 9, 11), count_include_pad=1, ceil_mode=1, **window),)


def _pool_column(b: GroupBuilder, kind: str, **counting: int) -> tuple[int, ...]:
    window: dict[str, AttributeValue] = {"kernel": (3, 1), "strides": (2, 3), "pads": (2, 0, 1, 0), "dilations": (2, 1)}
    return (b.op(kind, b.x(2, 19, 30, 1), ceil_mode=1, **counting, **window),)


def _lstm(b: GroupBuilder) -> tuple[int, ...]:
    y, _, c = b.results(
        "lstm", b.x(6, 3, 10), b.w(1, 80, 10), b.w(1, 80, 20), b.w(1, 160), direction="reverse", hidden=20
    )
    return y, c


def _gru(b: GroupBuilder) -> tuple[int, ...]:
    x, w, r = b.x(6, 3, 10), b.w(1, 60, 10), b.w(1, 60, 20)
    return b.results("gru", x, w, r, b.w(1, 120), direction="forward", hidden=20, linear_before_reset=1)


def _bytes_product(b: GroupBuilder) -> tuple[int, ...]:
    x = b.op("dequantize_linear", b.x(3, 7, 40, dtype=DType.U8), b.k(0.02), b.k(100, DType.U8), axis=-1)
    w = b.op("dequantize_linear", b.w(40, 20, dtype=DType.I8), b.w(20, array=RANDOM.random(20) * 0.01 + 0.001), axis=1)
    return (b.op("quantize_linear", b.op("matmul", x, w), b.k(0.053), b.k(120, DType.U8), axis=-1, to="u8"),)


def _bytes_bias(b: GroupBuilder, n: int) -> int:
    whole = RANDOM.integers(-3000, 3000, n).astype(np.int32)
    step = b.w(n, array=RANDOM.random(n) * 1e-3)
    return b.op("dequantize_linear", b.w(n, dtype=DType.I32, array=whole), step, axis=0)


def _biased_bytes_product(b: GroupBuilder) -> tuple[int, ...]:
    x = b.op("dequantize_linear", b.x(7, 40, dtype=DType.U8), b.w(array=0.02), _zero(b, 100), axis=-1)
    w = b.op("dequantize_linear", b.w(40, 20, dtype=DType.I8), b.w(20, array=RANDOM.random(20) * 0.01 + 0.001), axis=1)
    y = b.op("add", b.op("matmul", x, w), _bytes_bias(b, 20))
    return (b.op("quantize_linear", y, b.w(array=0.053), _zero(b, 120), axis=-1, to="u8"),)


def _zero(b: GroupBuilder, value: int) -> int:
    return b.w(dtype=DType.U8, array=value)


def _biased_bytes_convolution(b: GroupBuilder) -> tuple[int, ...]:
    x = b.op("dequantize_linear", b.x(2, 12, 31, dtype=DType.U8), b.w(array=0.02), _zero(b, 100), axis=-1)
    zeros = b.w(19, dtype=DType.I8, array=np.zeros(19, np.int8))
    scales = b.w(19, array=RANDOM.random(19) * 0.01 + 0.001)
    w = b.op("dequantize_linear", b.w(19, 12, 3, dtype=DType.I8), scales, zeros, axis=0)
    y = b.op("conv", x, w, _bytes_bias(b, 19), strides=(2,), pads=(1, 1), dilations=(1,), group=1)
    return (b.op("quantize_linear", y, b.w(array=0.053), _zero(b, 120), axis=-1, to="u8"),)


def _bytes_column(b: GroupBuilder) -> tuple[int, ...]:
    x = b.op("dequantize_linear", b.x(2, 12, 31, 1, dtype=DType.U8), b.w(array=0.02), _zero(b, 100), axis=-1)
    scales = b.w(19, array=RANDOM.random(19) * 0.01 + 0.001)
    w = b.op("dequantize_linear", b.w(19, 12, 3, 1, dtype=DType.I8), scales, axis=0)
    window = {"strides": (2, 3), "pads": (1, 0, 4, 0), "dilations": (2, 1)}
    y = b.op("conv", x, w, _bytes_bias(b, 19), group=1, **window)
    return (b.op("quantize_linear", y, b.w(array=0.053), _zero(b, 120), axis=-1, to="u8"),)


CASES: dict[str, tuple[str, str, Make]] = {
    "product": ("gemm", "matmul+bias+gelu+add", _product),
    "symbolic rows": ("gemm", "matmul+relu", _rows),
    "convolution": ("conv", "conv+bias+scale+silu", _convolution),
    "one spatial axis": ("conv", "conv+bias", _line),
    "image of width 1": ("conv", "conv+bias+add", _column),
    "depthwise image of width 1": ("depthwise", "conv+relu", _depthwise_column),
    "convolution of any image": ("conv", "conv+bias+relu", lambda b: _any_convolution(b, (3, 3), 40, **PLAIN)),
    "strided convolution of any image": (
        "conv",
        "conv+bias+relu",
        lambda b: _any_convolution(b, (3, 3), 40, strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1)),
    ),
    "pointwise convolution of any image": (
        "conv",
        "conv+bias+relu",
        lambda b: _any_convolution(b, (1, 1), 40, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)),
    ),
    "narrow convolution of any image": ("narrow", "conv+bias+relu", lambda b: _any_convolution(b, (3, 3), 2, **PLAIN)),
    "tensor whose dims are written differently": ("conv", "conv+bias+relu+add", _differently_written),
    "depthwise of any image": ("depthwise", "conv+add", _any_depthwise),
    "transposed of any image": ("transposed", "conv_transpose+bias+relu", _any_upward),
    "maximum of any image": ("pool", "max_pool", lambda b: _any_pool(b, "max_pool")),
    "average of any image": ("pool", "average_pool", lambda b: _any_pool(b, "average_pool", count_include_pad=0)),
    "average with padding of any image": (
        "pool",
        "average_pool",
        lambda b: _any_pool(b, "average_pool", count_include_pad=1),
    ),
    "depthwise": ("depthwise", "conv+add", _depthwise),
    "narrow": ("narrow", "conv+sigmoid", _narrow),
    "transposed": ("transposed", "conv_transpose+bias+scale+relu", _transposed),
    "attention": ("attention", "attention", lambda b: _heads(b, 17)),
    "attention of symbolic length": ("attention", "attention", lambda b: _heads(b, D0)),
    "norm": ("norm", "residual+layer_norm", _norm),
    "softmax": ("softmax", "softmax", lambda b: (b.op("softmax", b.x(5, 37), axis=1),)),
    "pool": ("pool", "average_pool", _pool),
    "maximum of an image of width 1": ("pool", "max_pool", lambda b: _pool_column(b, "max_pool")),
    "average of an image of width 1": (
        "pool",
        "average_pool",
        lambda b: _pool_column(b, "average_pool", count_include_pad=0),
    ),
    "average with padding of an image of width 1": (
        "pool",
        "average_pool",
        lambda b: _pool_column(b, "average_pool", count_include_pad=1),
    ),
    "lstm": ("recurrent", "lstm", _lstm),
    "gru": ("recurrent", "gru", _gru),
    "quantized": ("quantized", "qdq_matmul+quantize", _bytes_product),
    "quantized with a bias": ("quantized", "qdq_matmul+bias+quantize", _biased_bytes_product),
    "quantized convolution": ("quantized", "qdq_conv+bias+quantize", _biased_bytes_convolution),
    "quantized image of width 1": ("quantized", "qdq_conv+bias+quantize", _bytes_column),
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    found = find_toolchain()
    if not isinstance(found, Toolchain):
        pytest.skip(found.reason)
    return Workshop(NativeBackend(), Target("cpu", host_arch(), 1), tmp_path_factory.mktemp("backend"))


def _built(make: Make, label: str, policy: ComputePolicy = ComputePolicy.FP32) -> tuple[GroupBuilder, tuple[int, ...]]:
    builder = GroupBuilder(Symbol("d0", "d0", 1, 11, 40), Symbol("d1", "d1", 6, 18, 60, 2), policy=policy)
    return builder, make(builder)


@pytest.mark.parametrize("name", CASES)
def test_the_best_points_of_a_template_are_accepted(name: str, workshop: Workshop) -> None:
    template, label, make = CASES[name]
    builder, outputs = _built(make, label)
    group = builder.group(label, *outputs)
    candidates = workshop.candidates(group, 2)
    assert candidates[0].config.text("template") == template
    assert workshop.refused(group, candidates) == []


@pytest.mark.parametrize("make", [_biased_bytes_product, _biased_bytes_convolution])
def test_one_kernel_serves_all_zero_points_and_none_serves_another_one(workshop: Workshop, make: Make) -> None:
    builder, outputs = _built(make, "qdq")
    group = builder.group("qdq_conv+bias+quantize", *outputs)
    signature = group.signature
    artifacts = [workshop.build(group, candidate) for candidate in workshop.candidates(group, 2)]
    zeros = [v for v in signature.weights if signature.type_of(v).dtype is DType.U8]
    assert len(zeros) == 2
    for points in ((1, 254), (128, 128), (255, 3)):
        known = dict(group.arrays) | {v: np.array(p, np.uint8) for v, p in zip(zeros, points, strict=True)}
        goldens = golden_with_budget(
            signature.program, known, signature.constants, signature.policy, signature.label, VectorFamily.RAND
        )
        for artifact in artifacts:
            assert judge(workshop.call(replace(group, arrays=known), artifact), goldens).accepted
            for value in zeros:
                off = known | {value: np.array(int(known[value]) - 1, np.uint8)}
                assert not judge(workshop.call(replace(group, arrays=off), artifact), goldens).accepted


def test_tiles_lie_along_an_image_of_width_1(workshop: Workshop) -> None:
    builder, outputs = _built(_column, "conv+bias+add")
    group = builder.group("conv+bias+add", *outputs)
    assert workshop.candidates(group, 1)[0].config.integer("mr") > 1


LINES: dict[str, tuple[dict[str, AttributeValue], tuple[Dim, ...]]] = {
    "column": ({"strides": (2, 3), "pads": (1, 0, 4, 0), "dilations": (2, 1)}, (31, 1)),
    "one axis": ({"strides": (2,), "pads": (1, 4), "dilations": (2,)}, (31,)),
    "row": ({"strides": (3, 2), "pads": (0, 1, 0, 4), "dilations": (1, 2)}, (1, 31)),
    "column of symbolic height": ({"strides": (2, 3), "pads": (1, 0, 4, 0), "dilations": (2, 1)}, (D0, 1)),
}


def _seen(window: dict[str, AttributeValue], image: tuple[Dim, ...], kernel: tuple[int, ...]) -> Image | None:
    builder = GroupBuilder(Symbol("d0", "d0", 9, 31, 40))
    y = builder.op("max_pool", builder.x(1, 4, *image), kernel=kernel, ceil_mode=0, **window)
    signature = builder.group("max_pool", y).signature
    (op,) = signature.phase.ops
    return seen_through(signature, op, op.inputs[0], kernel)


@pytest.mark.parametrize("name", LINES)
def test_an_image_that_is_a_line_lies_along_the_width(name: str) -> None:
    window, image = LINES[name]
    found = _seen(window, image, tuple(1 if side == 1 else 3 for side in image))
    assert found is not None
    expected = Window(height=1, width=31, kernel=(1, 3), stride=(1, 2), pads=(0, 1, 0, 4), dilation=(1, 2))
    assert replace(found.window, stride=(1, found.window.stride[1]), widths=None) == expected
    assert (found.height, found.out_height) == (1, 1)
    if D0 in image:
        assert (found.window.widths, found.width) == (range(9, 41), D0)
    else:
        assert (found.window.widths, found.width, found.out_width) == (None, 31, 16)


def test_an_image_under_a_wide_kernel_stays_upright() -> None:
    found = _seen({"strides": (1, 1), "pads": (0, 1, 0, 1), "dilations": (1, 1)}, (31, 1), (1, 3))
    assert found is not None
    assert (found.window.height, found.window.width, found.window.kernel) == (31, 1, (1, 3))


def test_an_image_of_width_1_at_the_expected_dims_only_stays_upright() -> None:
    builder = GroupBuilder(Symbol("d0", "d0", 1, 1, 40))
    window: dict[str, AttributeValue] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    y = builder.op("max_pool", builder.x(1, 4, 31, D0), kernel=(3, 1), ceil_mode=0, **window)
    signature = builder.group("max_pool", y).signature
    (op,) = signature.phase.ops
    found = seen_through(signature, op, op.inputs[0], (3, 1))
    assert found is not None
    assert (found.height, found.width, found.window.kernel) == (31, D0, (3, 1))


def test_a_range_that_needs_too_many_kinds_of_tiles_gets_other_tiles(workshop: Workshop) -> None:
    builder = GroupBuilder(Symbol("d0", "d0", 1, 50, 640))
    window: dict[str, AttributeValue] = {"strides": (1,), "pads": (15, 15), "dilations": (1,)}
    group = builder.group("conv", builder.op("conv", builder.x(1, 8, D0), builder.w(64, 8, 31), group=1, **window))
    (candidate,) = workshop.candidates(group, 1)
    shape = Window(height=1, width=50, kernel=(1, 31), pads=(0, 15, 0, 15), widths=range(1, 641))
    rule = conv_rule(shape, 64, 1, host_cpus()[0])
    assert candidate.config.integer("mr") != rule.mr
    assert len(shape.rows(candidate.config.integer("mr")).kinds()) <= MOST_KINDS < len(shape.rows(rule.mr).kinds())
    assert workshop.refused(group, [candidate]) == []


def test_winograd_needs_its_policy(workshop: Workshop) -> None:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        return (b.op("relu", b.op("conv", b.x(1, 32, 9, 9), b.w(48, 32, 3, 3), b.w(48), group=1, **PLAIN)),)

    plain, outputs = _built(make, "conv+bias+relu")
    names = {c.config.text("template") for c in workshop.candidates(plain.group("conv+bias+relu", *outputs), 500)}
    assert "winograd" not in names
    builder, outputs = _built(make, "conv+bias+relu", ComputePolicy.FP32_WINOGRAD)
    group = builder.group("conv+bias+relu", *outputs)
    (candidate,) = workshop.candidates(group, 1)
    assert candidate.config.text("template") == "winograd"
    assert workshop.refused(group, [candidate]) == []


def test_an_exhaustive_budget_gets_over_a_hundred_products() -> None:
    builder = GroupBuilder()
    group = builder.group("matmul", builder.op("matmul", builder.x(128, 384), builder.w(384, 1536)))
    target = Target("cpu", "znver4", 1)
    found = list(BACKEND.propose(group.signature, target, Budget(Effort.EXHAUSTIVE, 1000), NO_FEEDBACK))
    assert len(found) > 100
    assert len({c.digest for c in found}) == len(found)


def test_proposals_do_not_depend_on_when_they_are_asked_for() -> None:
    builder = GroupBuilder()
    group = builder.group("conv", builder.op("conv", builder.x(1, 8, 9, 9), builder.w(24, 8, 3, 3), group=1, **PLAIN))
    target, budget = Target("cpu", "x86-64-v3", 1), Budget(Effort.STANDARD, 20)
    first, second = (list(BACKEND.propose(group.signature, target, budget, NO_FEEDBACK)) for _ in range(2))
    assert first == second


def test_without_a_plan_the_best_of_each_layout_comes_first() -> None:
    builder = GroupBuilder()
    group = builder.group("relu", builder.op("relu", builder.x(1, 8, 9, 9)))
    target = Target("cpu", "x86-64-v4", 1)
    first, second = BACKEND.propose(group.signature, target, Budget(Effort.QUICK, 2), NO_FEEDBACK)
    assert {first.layouts, second.layouts} == {(row_major(4),) * 2, (channels_last(4),) * 2}


def test_with_a_plan_every_proposal_has_its_layouts() -> None:
    builder = GroupBuilder()
    group = builder.group("relu", builder.op("relu", builder.x(2, 8, 9, 9)))
    wanted = (Layout((0, 3, 2, 1)), row_major(4))
    target = Target("cpu", "x86-64-v4", 1)
    found = list(BACKEND.propose(group.signature, target, Budget(Effort.STANDARD, 20), Feedback(wanted)))
    assert len(found) >= 3
    assert {c.layouts for c in found} == {wanted}


def test_blocked_layouts_are_not_served() -> None:
    builder = GroupBuilder()
    group = builder.group("relu", builder.op("relu", builder.x(2, 16, 9, 9)))
    blocked = Layout((0, 1, 2, 3), ((1, 16),))
    target = Target("cpu", "x86-64-v4", 1)
    assert not list(BACKEND.propose(group.signature, target, Budget(Effort.QUICK, 9), Feedback((blocked, blocked))))


def test_a_refused_candidate_is_not_proposed_again() -> None:
    builder = GroupBuilder()
    group = builder.group("relu", builder.op("relu", builder.x(3, 9)))
    target, budget = Target("cpu", "x86-64-v4", 1), Budget(Effort.QUICK, 1)
    (first,) = BACKEND.propose(group.signature, target, budget, NO_FEEDBACK)
    refusal = Refusal(first.digest, "oracle", "budget", ())
    (second,) = BACKEND.propose(group.signature, target, budget, Feedback(None, (refusal,)))
    assert first.digest != second.digest


def test_strict_products_keep_multiplication_and_addition_apart() -> None:
    builder = GroupBuilder(policy=ComputePolicy.FP32_STRICT)
    group = builder.group("chain", builder.op("add", builder.op("mul", builder.x(3, 9), builder.x(3, 9)), builder.x(9)))
    target = Target("cpu", "x86-64-v4", 1)
    found = BACKEND.propose(group.signature, target, Budget(Effort.EXHAUSTIVE, 99), NO_FEEDBACK)
    assert {c.config.text("contraction") for c in found} == {"off"}


def test_targets_without_compiler_settings_are_declined_with_a_reason() -> None:
    assert not BACKEND.serves(Target("cuda", "sm_90", 1)).available
    declined = BACKEND.serves(Target("cpu", "x86-64-v2", 1))
    assert not declined.available
    assert "x86-64-v2" in declined.reason


def test_what_cannot_be_computed_is_declined_with_a_reason() -> None:
    builder = GroupBuilder()
    group = builder.group("pow", builder.op("pow", builder.x(3, dtype=DType.F64), builder.x(3, dtype=DType.F64)))
    answer = BACKEND.covers(group.signature, Target("cpu", "x86-64-v4", 1))
    assert not answer.available
    assert "pow" in answer.reason
