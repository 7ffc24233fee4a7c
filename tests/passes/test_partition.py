"""Partition: what is fused, under which label, and that any choice of alternatives can be executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.conftest import Net
from tribunus.numerics.dtypes import DType
from tribunus.passes.groups import Partition, Use
from tribunus.passes.partition import partition
from tribunus.passes.signatures import symbol_within
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.dims import DimScope, Sym, Symbol
from tribunus.phaseir.program import Array, Constants, Program, Role, program_digest
from tribunus.phaseir.verifier import verify

Dags = st.SearchStrategy[tuple[Program, Constants]]
NewNet = Callable[..., Net]
BATCH, LENGTH = Symbol("s0", "batch", 1, 2, 8), Symbol("s1", "length", 1, 16, 64)


def _labels(net: Net, *outputs: int) -> list[list[str]]:
    """Labels of every region's alternatives, each joined by spaces."""
    found = partition(net.finish(*outputs), 0, net.constants)
    return [[" ".join(use.label for use in uses) for uses in region.alternatives] for region in found.regions]


def _most_fused(net: Net, *outputs: int) -> list[str]:
    return [alternatives[0] for alternatives in _labels(net, *outputs)]


def _gelu(net: Net, x: int) -> int:
    inner = net.op("erf", net.op("div", x, net.number(2**0.5)))
    return net.op("mul", net.op("mul", x, net.op("add", inner, net.number(1.0))), net.number(0.5))


def _layer_norm(net: Net, x: int, width: int) -> int:
    d = net.op("sub", x, net.op("reduce_mean", x, axes=(2,), keepdims=1))
    variance = net.op("reduce_mean", net.op("mul", d, d), axes=(2,), keepdims=1)
    y = net.op("div", d, net.op("sqrt", net.op("add", variance, net.number(1e-5))))
    return net.op("add", net.op("mul", y, net.weight(width)), net.weight(width))


def _heads(net: Net, x: int, width: int, perm: tuple[int, ...]) -> int:
    shape = net.builder.type_of(x).shape
    return net.op("transpose", net.op("reshape", x, shape=(*shape[:2], 4, width // 4)), perm=perm)


def _transformer(net: Net, layers: int) -> Program:
    width = 32
    x = net.input(Sym("s0"), Sym("s1"), width)
    mask = net.input(Sym("s0"), 1, 1, Sym("s1"))
    for _ in range(layers):
        q, k, v = (
            _heads(net, net.linear(x, width, width), width, p) for p in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scores = net.op("add", net.op("div", net.op("matmul", q, k), net.number(8**0.5)), mask)
        mixed = net.op("matmul", net.op("softmax", scores, axis=3), v)
        merged = net.op("reshape", net.op("transpose", mixed, perm=(0, 2, 1, 3)), shape=(Sym("s0"), Sym("s1"), width))
        x = _layer_norm(net, net.op("add", net.linear(merged, width, width), x), width)
        hidden = _gelu(net, net.linear(x, width, 64))
        x = _layer_norm(net, net.op("add", net.linear(hidden, 64, width), x), width)
    return net.finish(x)


def _signatures(found: Partition) -> set[str]:
    return {program_digest(use.signature) for region in found.regions for uses in region.alternatives for use in uses}


def test_equal_layers_have_equal_signatures(net: NewNet) -> None:
    two, twelve = net(BATCH, LENGTH), net(BATCH, LENGTH)
    few = partition(_transformer(two, 2), 0, two.constants)
    many = partition(_transformer(twelve, 12), 0, twelve.constants)
    assert _signatures(few) == _signatures(many)
    assert len(many.regions) == 6 * len(few.regions)


def test_a_transformer_layer_is_cut_as_people_would(net: NewNet) -> None:
    n = net(BATCH, LENGTH)
    found = partition(_transformer(n, 1), 0, n.constants)
    assert [" ".join(u.label for u in region.alternatives[0]) for region in found.regions] == [
        "matmul+bias",
        "attention",
        "matmul+bias",
        "matmul+bias",
        "matmul+bias+add layer_norm",
        "matmul+bias+gelu",
        "matmul+bias+add layer_norm",
    ]
    merged = found.regions[4]
    assert [u.label for u in merged.alternatives[1]] == ["matmul+bias", "residual+layer_norm"]
    assert len(merged.alternatives[-1]) == len(merged.ops)


def test_attention_binds_its_symbols(net: NewNet) -> None:
    n = net(BATCH, LENGTH)
    found = partition(_transformer(n, 1), 0, n.constants)
    (use,) = found.regions[1].alternatives[0]
    assert [(s.lo, s.opt, s.hi) for s in use.signature.symbols] == [(1, 2, 8), (1, 16, 64)]
    assert use.bind == (Sym("s0"), Sym("s1"))
    assert [str(use.signature.type_of(v)) for v in use.signature.only_phase.inputs] == [
        "f32[d0, d1, 4, 8]", "f32[d0, d1, 4, 8]", "f32[d0, 1, 1, d1]", "f32[d0, d1, 4, 8]",
    ]  # fmt: skip


def test_a_convolution_takes_what_follows(net: NewNet) -> None:
    n = net()
    x = n.input(1, 4, 8, 8)
    y = n.op("relu", n.op("mul", n.conv(x, 4), n.weight(1, 4, 1, 1)))
    z = n.op("relu", n.op("add", n.conv(y, 4), x))
    assert _labels(n, z) == [
        ["conv+bias+scale+relu", "conv+bias chain", "conv+bias mul relu"],
        ["conv+bias+add+relu", "conv+bias chain", "conv+bias add relu"],
    ]


@pytest.mark.parametrize(
    ("label", "spell"),
    [
        ("silu", lambda n, x: n.op("mul", x, n.op("sigmoid", x))),
        ("hardswish", lambda n, x: n.op("mul", x, n.op("hard_sigmoid", x, alpha=F32(0.125), beta=F32(0.5)))),
        ("hardswish", lambda n, x: n.op("div", n.op("mul", x, _clip(n, n.op("add", x, n.number(3.0)))), n.number(6.0))),
        ("clip", lambda n, x: _clip(n, x)),
        ("gelu", lambda n, x: _gelu(n, x)),
        ("tanh", lambda n, x: n.op("tanh", x)),
        ("leaky_relu", lambda n, x: n.op("leaky_relu", x, alpha=F32(0.25))),
    ],
)
def test_activations_have_their_names(net: NewNet, label: str, spell: Callable[[Net, int], int]) -> None:
    n = net()
    assert _most_fused(n, spell(n, n.conv(n.input(1, 4, 8, 8), 4))) == [f"conv+bias+{label}"]


def _clip(net: Net, x: int) -> int:
    return net.op("minimum", net.op("maximum", x, net.number(0.0)), net.number(6.0))


def test_a_value_that_others_read_ends_the_epilogue(net: NewNet) -> None:
    n = net()
    y = n.conv(n.input(1, 4, 8, 8), 4)
    assert _most_fused(n, n.op("relu", y), n.op("reduce_max", y, axes=(2, 3), keepdims=1)) == [
        "conv+bias", "relu", "reduce_max",
    ]  # fmt: skip


def test_an_output_inside_ends_the_epilogue(net: NewNet) -> None:
    n = net()
    y = n.conv(n.input(1, 4, 8, 8), 4)
    assert _most_fused(n, n.op("relu", y), y) == ["conv+bias", "relu"]


def test_one_pass_variance_is_no_layer_norm(net: NewNet) -> None:
    n = net()
    x = n.input(2, 3, 32)
    mean = n.op("reduce_mean", x, axes=(2,), keepdims=1)
    second = n.op("reduce_mean", n.op("mul", x, x), axes=(2,), keepdims=1)
    variance = n.op("sub", second, n.op("mul", mean, mean))
    y = n.op("div", n.op("sub", x, mean), n.op("sqrt", n.op("add", variance, n.number(1e-5))))
    assert _most_fused(n, y) == ["layer_norm_moments"]


def test_two_pass_variance_is_a_layer_norm_even_where_its_source_goes_on(net: NewNet) -> None:
    n = net()
    x = n.input(2, 3, 32)
    assert _most_fused(n, n.op("add", _layer_norm(n, x, 32), x)) == ["layer_norm", "add"]


def test_a_variance_of_something_else_is_no_layer_norm(net: NewNet) -> None:
    """The mean is subtracted, but what is scaled is not the difference whose square was averaged."""
    n = net()
    x = n.input(2, 3, 32)
    d = n.op("sub", x, n.op("reduce_mean", x, axes=(2,), keepdims=1))
    variance = n.op("reduce_mean", n.op("mul", d, n.op("abs", d)), axes=(2,), keepdims=1)
    y = n.op("div", d, n.op("sqrt", n.op("add", variance, n.number(1e-5))))
    assert "layer_norm" not in _most_fused(n, y)


def test_a_mean_that_is_subtracted_twice_is_no_layer_norm(net: NewNet) -> None:
    """x r - m r cancels where x - m does not."""
    n = net()
    x = n.input(2, 3, 32)
    mean = n.op("reduce_mean", x, axes=(2,), keepdims=1)
    d = n.op("sub", x, mean)
    variance = n.op("reduce_mean", n.op("mul", d, d), axes=(2,), keepdims=1)
    r = n.op("reciprocal", n.op("sqrt", n.op("add", variance, n.number(1e-5))))
    assert _most_fused(n, n.op("sub", n.op("mul", x, r), n.op("mul", mean, r))) == ["layer_norm_moments"]


def test_a_root_mean_square_is_rms_norm(net: NewNet) -> None:
    n = net()
    x = n.input(2, 3, 32)
    mean = n.op("reduce_mean", n.op("mul", x, x), axes=(2,), keepdims=1)
    r = n.op("reciprocal", n.op("sqrt", n.op("add", mean, n.number(1e-5))))
    assert _most_fused(n, n.op("mul", n.op("mul", x, r), n.weight(32))) == ["rms_norm"]


def test_a_quantized_softmax_takes_its_neighbours(net: NewNet) -> None:
    n = net()
    scale, zero = n.number(0.5), n.number(3, DType.U8)
    x = n.op("dequantize_linear", n.input(4, 10, dtype=DType.U8), scale, zero, axis=-1)
    y = n.op("quantize_linear", n.op("softmax", x, axis=1), scale, zero, axis=-1, to="u8")
    assert _labels(n, y) == [["qdq_softmax+quantize", "dequantize_linear softmax quantize_linear"]]


def test_softmax_by_hand_is_softmax(net: NewNet) -> None:
    n = net()
    x = n.input(4, 10)
    e = n.op("exp", n.op("sub", x, n.op("reduce_max", x, axes=(1,), keepdims=1)))
    assert _most_fused(n, n.op("div", e, n.op("reduce_sum", e, axes=(1,), keepdims=1))) == ["softmax"]


def test_chains_have_one_result_and_do_not_pass_jumps(net: NewNet) -> None:
    n = net()
    x, y = n.input(4, 10), n.input(10)
    s = n.op("mul", n.op("add", x, y), n.op("exp", y))
    f = n.op("floor", s)
    assert _labels(n, n.op("sub", f, y)) == [["chain", "chain exp", "add exp mul"], ["chain", "floor sub"]]


def test_a_quantized_product_takes_its_dequantizations(net: NewNet) -> None:
    n = net()
    x, scale, zero = n.input(4, 8, dtype=DType.U8), n.number(0.5), n.number(3, DType.U8)
    w = n.op("dequantize_linear", n.builder.constant(_ints(8, 6), DType.I8), n.number(0.25), axis=-1)
    y = n.op("add", n.op("matmul", n.op("dequantize_linear", x, scale, zero, axis=-1), w), n.weight(6))
    assert _most_fused(n, n.op("quantize_linear", y, scale, zero, axis=-1, to="u8")) == ["qdq_matmul+bias+quantize"]


def _quantized_layers(net: Net, *layers: tuple[float, int, float, int]) -> Partition:
    """A quantization, then products of bytes, each with a scale and a zero point before and behind it."""
    zero = net.number(9, DType.U8)
    x = net.op("quantize_linear", net.input(4, 16), net.number(1.0), zero, axis=-1, to="u8")
    for left, left_zero, right, right_zero in layers:
        w = net.op("dequantize_linear", net.builder.constant(_ints(16, 16), DType.I8), net.number(0.25), axis=-1)
        real = net.op("dequantize_linear", x, net.number(left), net.number(left_zero, DType.U8), axis=-1)
        y = net.op("mul", net.op("matmul", real, w), net.number(0.5))
        x = net.op("quantize_linear", y, net.number(right), net.number(right_zero, DType.U8), axis=-1, to="u8")
    return partition(net.finish(x), 0, net.constants)


def test_layers_that_differ_in_scales_and_zero_points_have_one_signature(net: NewNet) -> None:
    n = net()
    # Numbers that two places share, or that a factor of the layer has too, do not make another computation.
    found = _quantized_layers(n, (0.1, 3, 0.2, 7), (0.3, 128, 0.3, 128), (0.5, 1, 0.25, 255))
    uses = [region.alternatives[0][0] for region in found.regions[1:]]
    assert len(uses) == 3
    assert len({program_digest(use.signature) for use in uses}) == 1
    use = uses[1]
    assert [str(v.type) for v in use.signature.values if v.role is Role.WEIGHT] == [
        "f32[]", "u8[]", "i8[16, 16]", "f32[]", "f32[]", "u8[]",
    ]  # fmt: skip
    values = [n.constants.of(n.finish(use.outputs[0]), w).reshape(-1)[0] for w in use.weights if w != use.weights[2]]
    assert values == [np.float32(0.3), 128, np.float32(0.25), np.float32(0.3), 128]
    assert [v.type.shape for v in use.signature.values if v.role is Role.CONSTANT] == [()]


def test_a_zero_point_of_zero_is_structure(net: NewNet) -> None:
    found = _quantized_layers(net(), (0.1, 3, 0.2, 7), (0.1, 3, 0.2, 0), (0.1, 0, 0.2, 7))
    uses = [region.alternatives[0][0] for region in found.regions[1:]]
    assert len({program_digest(use.signature) for use in uses}) == 3
    assert [len(use.weights) for use in uses] == [6, 5, 5]


def test_a_dequantization_that_is_read_twice_has_one_scale(net: NewNet) -> None:
    n = net()
    x, scale, zero = n.input(4, 8, dtype=DType.U8), n.number(0.5), n.number(3, DType.U8)
    twice = [n.op("dequantize_linear", x, scale, zero, axis=-1) for _ in range(2)]
    y = n.op("mul", twice[0], n.op("tanh", twice[1]))
    found = partition(n.finish(n.op("quantize_linear", y, scale, zero, axis=-1, to="u8")), 0, n.constants)
    (use,) = found.regions[0].alternatives[0]
    assert use.weights == (scale, zero, scale, zero)


def test_scales_behind_an_integer_product_are_operands(net: NewNet) -> None:
    n = net()
    total = set()
    for step in (0.1, 0.2):
        y, scale, zero = n.builder.op("dynamic_quantize_linear", (n.input(4, 16),))
        product = n.op("matmul_integer", y, n.builder.constant(_ints(16, 6), DType.I8), zero)
        real = n.op("mul", n.op("cast", product, to="f32"), n.op("mul", scale, n.number(step)))
        total.add(n.op("mul", real, n.number(0.5)))
    found = partition(n.finish(*sorted(total)), 0, n.constants)
    uses = [use for region in found.regions for use in region.alternatives[-1]]
    assert len({program_digest(use.signature) for use in uses}) * 2 == len(uses)
    (half,) = {use.signature.values[1].role for use in uses if use.label == "mul" and use.outputs[0] in total}
    assert half is Role.CONSTANT


def test_weights_are_operands_and_small_constants_belong_to_the_signature(net: NewNet) -> None:
    n = net()
    x = n.input(2, 3, 32)
    y = n.op("mul", n.op("matmul", x, n.weight(32, 4)), n.weight(4))
    found = partition(n.finish(y), 0, n.constants)
    (use,) = found.regions[0].alternatives[0]
    assert [v.role for v in use.signature.values[:3]] == [Role.INPUT, Role.WEIGHT, Role.CONSTANT]
    assert all(not v.label for v in use.signature.values)
    assert use.signature.only_phase.name == use.label == "matmul+scale"


def test_reshapes_are_aliases_unless_memory_must_be_new(net: NewNet) -> None:
    n = net()
    x = n.input(2, 6)
    y = n.op("relu", x)
    outputs = [n.op("reshape", x, shape=(12,)), n.op("reshape", y, shape=(12,)), n.op("reshape", y, shape=(3, 4))]
    found = partition(n.finish(*outputs), 0, n.constants)
    assert [(a.source, a.value) for a in found.aliases] == [(y, outputs[1])]
    assert sorted(u.label for region in found.regions for u in region.alternatives[0]) == ["copy", "copy", "relu"]


def test_an_extent_that_depends_on_another_is_an_expression(net: NewNet) -> None:
    """A strided convolution with a residual: the second operand's extents follow from the first's."""
    n = net(Symbol("s0", "height", 32, 64, 96, 32))
    height = dims.floordiv(Sym("s0"), 4)
    x, half = n.input(1, 4, height, 8), dims.add(dims.floordiv(dims.sub(height, 1), 2), 1)
    residual = n.input(1, 4, half, 4)
    w, b = n.weight(4, 4, 3, 3), n.weight(4)
    y = n.op("conv", x, w, b, group=1, strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1))
    found = partition(n.finish(n.op("add", y, residual)), 0, n.constants)
    (use,) = found.regions[0].alternatives[0]
    assert use.label == "conv+bias+add"
    assert [(s.lo, s.opt, s.hi, s.step) for s in use.signature.symbols] == [(8, 16, 24, 8)]
    assert use.bind == (height,)
    verify(use.signature)


def test_relations_that_border_symbols_lose_are_kept(net: NewNet) -> None:
    """2 n and n concatenated with m: the sum is only provable over the program's own symbols."""
    n = net(Symbol("s0", "n", 1, 2, 8), Symbol("s1", "m", 1, 3, 9))
    x = n.input(dims.mul(2, Sym("s0")), 4)
    halves = n.op("slice", x, starts=(0, 0), sizes=(Sym("s0"), 4), steps=(1, 1))
    found = partition(n.finish(halves), 0, n.constants)
    (use,) = found.regions[0].alternatives[0]
    verify(use.signature)
    assert use.bind == (Sym("s0"),)
    assert str(use.signature.type_of(0)) == "f32[(2 * d0), 4]"


def test_bounds_of_a_border_symbol_are_exact() -> None:
    scope = DimScope((Symbol("s0", "n", 32, 64, 320, 32), Symbol("s1", "m", 1, 5, 1 << 20)))
    assert symbol_within(scope, dims.floordiv(Sym("s0"), 4), "d0") == Symbol("d0", "d0", 8, 16, 80, 8)
    wide = symbol_within(scope, dims.mul(Sym("s0"), Sym("s1")), "d1")
    assert (wide.lo, wide.opt, wide.hi, wide.step) == (32, 320, 320 << 20, 1)


def test_any_choice_of_alternatives_can_be_executed(dags: Dags) -> None:
    @settings(max_examples=120, derandomize=True, deadline=None)
    @given(dags, st.data())
    def law(drawn: tuple[Program, Constants], data: st.DataObject) -> None:
        program, constants = drawn
        found = partition(program, 0, constants)
        covered = sorted((*(op for r in found.regions for op in r.ops), *(a.op for a in found.aliases)))
        assert covered == list(range(len(program.only_phase.ops)))
        chosen = [use for r in found.regions for use in data.draw(st.sampled_from(r.alternatives))]
        _execute(program, found, chosen)
        for use in chosen:
            verify(use.signature)
            phase = use.signature.only_phase
            operands = [i for i, v in enumerate(use.signature.values) if v.role in (Role.INPUT, Role.WEIGHT)]
            assert operands == list(range(len(use.inputs) + len(use.weights)))
            for inner, outer in zip(
                (*operands, *phase.outputs), (*use.inputs, *use.weights, *use.outputs), strict=True
            ):
                assert use.signature.type_of(inner) == program.type_of(outer)

    law()


def _execute(program: Program, found: Partition, uses: Sequence[Use]) -> None:
    """Run uses whose inputs are ready until all ran and every output is there."""
    ready = {i for i, v in enumerate(program.values) if v.role is not Role.TEMP}
    waiting: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(u.inputs, u.outputs) for u in uses]
    waiting += [((a.source,), (a.value,)) for a in found.aliases]
    while waiting:
        runnable = [step for step in waiting if ready.issuperset(step[0])]
        assert runnable, "a cycle between groups"
        for step in runnable:
            ready.update(step[1])
            waiting.remove(step)
    assert ready.issuperset(program.only_phase.outputs)


def _ints(rows: int, columns: int) -> Array:
    return (np.arange(rows * columns) % 11 - 5).reshape(rows, columns).astype(np.int8)
