"""Every op has a generic kernel, and the oracle accepts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tribunus_native.backend import NativeBackend
from tribunus_native.toolchain import Toolchain, find_toolchain

from tests.native.groups import GroupBuilder, Workshop
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.ops import OPS
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target

Make = Callable[[GroupBuilder], tuple[int, ...]]
D0 = Sym("d0")
RANDOM = np.random.default_rng(7)
CASES: dict[str, Make] = {}


def case(name: str) -> Callable[[Make], Make]:
    """Register a group under ``OP`` or ``OP-variant``."""

    def register(make: Make) -> Make:
        CASES[name] = make
        return make

    return register


def _unary(kind: str, dtype: DType = DType.F32, **attributes: F32) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        positive = np.abs(RANDOM.standard_normal((3, 5, 37))) + 0.25
        return (
            b.op(kind, b.x(3, 5, 37, dtype=dtype, array=positive if kind in ("log", "sqrt") else None), **attributes),
        )

    return make


def _binary(kind: str, dtype: DType = DType.F32) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        return (b.op(kind, b.x(2, 3, 5, 19, dtype=dtype), b.x(5, 1, dtype=dtype)),)

    return make


for _kind in ("abs", "neg", "sign", "relu", "floor", "ceil", "round", "sqrt", "reciprocal", "exp", "log", "tanh"):
    CASES[_kind] = _unary(_kind)
for _kind in ("sigmoid", "erf", "sin", "cos", "is_nan"):
    CASES[_kind] = _unary(_kind)
for _kind in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "sqrt", "abs"):
    CASES[f"{_kind}-f64"] = _unary(_kind, DType.F64)
for _kind in ("abs", "neg", "sign", "relu"):
    CASES[f"{_kind}-i8"] = _unary(_kind, DType.I8)
CASES["leaky_relu"] = _unary("leaky_relu", alpha=F32(0.125))
CASES["hard_sigmoid"] = _unary("hard_sigmoid", alpha=F32(0.25), beta=F32(0.5))
for _kind in ("add", "sub", "mul", "div", "minimum", "maximum", "equal", "less", "less_equal", "greater"):
    CASES[_kind] = _binary(_kind)
CASES["greater_equal"] = _binary("greater_equal")
for _kind in ("add", "mul", "div", "maximum", "less"):
    CASES[f"{_kind}-i64"] = _binary(_kind, DType.I64)
CASES["sub-u8"] = _binary("sub", DType.U8)
CASES["add-f16"] = _binary("add", DType.F16)
CASES["mul-bf16"] = _binary("mul", DType.BF16)
for _kind in ("and", "or", "xor"):
    CASES[_kind] = _binary(_kind, DType.BOOL)
CASES["not"] = _unary("not", DType.BOOL)


@case("pow")
def _pow(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("pow", b.x(7, 33, array=RANDOM.random((7, 33)) + 0.5), b.x(33)),)


@case("where")
def _where(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("where", b.x(4, 1, dtype=DType.BOOL), b.x(4, 40), b.k(2.5)),)


def _cast(source: DType, target: DType) -> Make:
    return lambda b: (b.op("cast", b.x(3, 41, dtype=source), to=target.value),)


for _pair in (
    (DType.I64, DType.F32), (DType.F32, DType.I32), (DType.F32, DType.BOOL), (DType.BOOL, DType.F32),
    (DType.F32, DType.F16), (DType.BF16, DType.F32), (DType.F64, DType.F32), (DType.I32, DType.U8),
    (DType.F32, DType.BF16), (DType.F32, DType.F64),
):  # fmt: skip
    CASES["cast" if _pair == (DType.I64, DType.F32) else f"cast-{_pair[0].value}-{_pair[1].value}"] = _cast(*_pair)


@case("mul-symbolic")
def _symbolic_map(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("mul", b.op("exp", b.x(D0, 19)), b.x(19)),)


def _reduce(kind: str, axes: tuple[int, ...], keepdims: int) -> Make:
    return lambda b: (b.op(kind, b.x(3, 17, 70), axes=axes, keepdims=keepdims),)


for _kind in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l1", "reduce_l2", "reduce_sum_square"):
    CASES[_kind] = _reduce(_kind, (2,), 1)
for _axes in ((0,), (1,), (0, 2), (0, 1, 2), (1, 2)):
    CASES[f"reduce_sum-{_axes}"] = _reduce("reduce_sum", _axes, 0)
CASES["reduce_prod"] = lambda b: (
    b.op("reduce_prod", b.x(5, 12, array=RANDOM.random((5, 12)) + 0.5), axes=(1,), keepdims=0),
)
CASES["reduce_max-i32"] = lambda b: (b.op("reduce_max", b.x(5, 40, dtype=DType.I32), axes=(1,), keepdims=0),)
CASES["reduce_sum-i64"] = lambda b: (b.op("reduce_sum", b.x(5, 40, dtype=DType.I64), axes=(0,), keepdims=0),)

CASES["copy"] = lambda b: (b.op("copy", b.x(2, 20, 5, 7)),)
CASES["copy-f16"] = lambda b: (b.op("copy", b.x(2, 20, 5, 7, dtype=DType.F16)),)
CASES["reshape"] = lambda b: (b.op("reshape", b.x(2, 20, 5, 7), shape=(40, 35)),)
CASES["transpose"] = lambda b: (b.op("transpose", b.x(2, 3, 37, 41), perm=(0, 2, 3, 1)),)
CASES["transpose-i64"] = lambda b: (b.op("transpose", b.x(64, 48, dtype=DType.I64), perm=(1, 0)),)
CASES["transpose-blocks"] = lambda b: (b.op("transpose", b.x(64, 50), perm=(1, 0)),)
CASES["slice"] = lambda b: (b.op("slice", b.x(9, 20, 7), starts=(8, 2, 0), sizes=(4, 9, 7), steps=(-2, 2, 1)),)


@case("concat")
def _concat(b: GroupBuilder) -> tuple[int, ...]:
    x = b.x(2, 20, 5)
    return (b.op("concat", x, b.x(2, 3, 5), x, axis=1),)


def _pad(mode: str) -> Make:
    return lambda b: (b.op("pad", b.x(2, 6, 9), mode=mode, before=(0, 2, -1), after=(0, 1, 3)),)


def _far_pad(mode: str) -> Make:
    """Borders wider than what they repeat, and of a symbolic axis."""
    return lambda b: (b.op("pad", b.x(D0, 3, 4), mode=mode, before=(1, 7, 2), after=(0, 5, 0)),)


CASES["pad"] = _pad("constant")
for _mode in ("edge", "reflect", "wrap"):
    CASES[f"pad-{_mode}"] = _pad(_mode)
    CASES[f"pad-{_mode}-far"] = _far_pad(_mode)
CASES["pad-value"] = lambda b: (
    b.op("pad", b.x(2, 6, 9), b.k(2.5), mode="constant", before=(1, 2, 0), after=(0, 1, 3)),
)
CASES["expand"] = lambda b: (b.op("expand", b.x(6, 1), shape=(3, 6, 21)),)
CASES["tile"] = lambda b: (b.op("tile", b.x(3, 4, 5), repeats=(2, 1, 3)),)
CASES["fill"] = lambda b: (b.op("fill", dtype="f32", shape=(3, 5), value=F32(1.5)),)
CASES["iota"] = lambda b: (b.op("iota", dtype="i64", shape=(3, 5), axis=1, start=4, step=-2),)
CASES["extents"] = lambda b: (b.op("extents", dtype="i64", shape=(2,), values=(D0, 7)),)


def _indices(b: GroupBuilder, *shape: int, below: int) -> int:
    return b.x(*shape, dtype=DType.I64, array=RANDOM.integers(-below, below, shape))


CASES["gather"] = lambda b: (b.op("gather", b.x(3, 10, 7), _indices(b, 4, 2, below=10), axis=1),)
CASES["gather-table"] = lambda b: (b.op("gather", b.w(30, 64), _indices(b, 1, 5, below=30), axis=0),)
CASES["gather_elements"] = lambda b: (b.op("gather_elements", b.x(3, 10, 7), _indices(b, 3, 4, 7, below=10), axis=1),)
CASES["gather_nd"] = lambda b: (b.op("gather_nd", b.x(3, 10, 7), _indices(b, 3, 4, 1, below=10), batch_dims=1),)


def _scatter(reduction: str) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        rows = np.stack([RANDOM.permutation(5)[:3] for _ in range(6)], axis=1)
        x, index, updates = b.x(5, 6), b.x(3, 6, dtype=DType.I64, array=rows), b.x(3, 6)
        return (b.op("scatter_elements", x, index, updates, axis=0, reduction=reduction),)

    return make


CASES["scatter_elements"] = _scatter("none")
CASES["scatter_elements-add"] = _scatter("add")
CASES["scatter_elements-max"] = _scatter("max")


@case("scatter_nd")
def _scatter_nd(b: GroupBuilder) -> tuple[int, ...]:
    x, index = b.x(5, 6, 3), b.x(2, 1, dtype=DType.I64, array=[[4], [1]])
    return (b.op("scatter_nd", x, index, b.x(2, 6, 3), reduction="none"),)


CASES["one_hot"] = lambda b: (b.op("one_hot", _indices(b, 4, below=7), b.k([0.0, 1.0]), axis=1, depth=(7,)),)


def _arg(kind: str, last: int) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        x = b.x(4, 9, 5, dtype=DType.I8, array=RANDOM.integers(-3, 3, (4, 9, 5)))
        return (b.op(kind, x, axis=1, keepdims=last, select_last=last),)

    return make


CASES |= {"arg_max": _arg("arg_max", 0), "arg_max-last": _arg("arg_max", 1), "arg_min": _arg("arg_min", 0)}


def _special_arg(kind: str, dtype: DType, axis: int, last: int) -> Make:
    """Ties, zeros of both signs, infinities and NaN, on more elements than a vector has."""

    def make(b: GroupBuilder) -> tuple[int, ...]:
        x = RANDOM.integers(-2, 3, (3, 37, 21)).astype(np.float64)
        x = np.where(x == 0, np.where(RANDOM.random(x.shape) < 0.5, 0.0, -0.0), x)
        x[0, :, ::4], x[:, ::9, 2] = np.inf, -np.inf
        x[1, 5::11, 3], x[2, 36, :] = np.nan, np.nan
        given = x if dtype.is_float else np.nan_to_num(x, nan=1, posinf=7, neginf=0 if "u" in dtype else -7)
        stored = np.abs(given) if "u" in dtype else given
        return (b.op(kind, b.x(3, 37, 21, dtype=dtype, array=stored), axis=axis, keepdims=0, select_last=last),)

    return make


for _dtype in (DType.F32, DType.F64, DType.F16, DType.I64, DType.U64, DType.U8):
    for _axis in (1, 2):
        for _kind in ("arg_max", "arg_min"):
            _last = int(_axis == 2) ^ int(_kind == "arg_min")
            CASES[f"{_kind}-{_dtype}-{_axis}"] = _special_arg(_kind, _dtype, _axis, _last)
CASES["cumsum"] = lambda b: (b.op("cumsum", b.x(4, 9, 5), axis=1, exclusive=0, reverse=0),)
CASES["cumsum-back"] = lambda b: (b.op("cumsum", b.x(4, 9, 5), axis=1, exclusive=1, reverse=1),)
CASES["top_k"] = lambda b: b.results("top_k", b.x(4, 29, 5), axis=1, k=(4,), largest=1, sorted=1)
CASES["top_k-least"] = lambda b: b.results("top_k", b.x(4, 29), axis=1, k=(4,), largest=0, sorted=1)


def _softmax(axis: int) -> Make:
    return lambda b: (b.op("softmax", b.x(4, 29, 35), axis=axis),)


for _axis in (0, 1, 2):
    CASES[f"softmax-{_axis}"] = _softmax(_axis)
CASES["softmax"] = lambda b: (b.op("softmax", b.x(3, 40, dtype=DType.F64), axis=1),)
CASES["log_softmax"] = lambda b: (b.op("log_softmax", b.x(4, 29, 35), axis=1),)
CASES["layer_norm"] = lambda b: (b.op("layer_norm", b.x(4, 9, 35), b.w(35), b.w(35), axis=2, eps=F32(1e-5)),)
CASES["rms_norm"] = lambda b: (b.op("rms_norm", b.x(4, 9, 35), b.w(35), axis=2, eps=F32(1e-5)),)
CASES["group_norm"] = lambda b: (b.op("group_norm", b.x(2, 6, 5, 7), b.w(6), b.w(6), groups=3, eps=F32(1e-5)),)


@case("batch_norm")
def _batch_norm(b: GroupBuilder) -> tuple[int, ...]:
    variance = b.w(26, array=RANDOM.random(26) + 0.5)
    return (b.op("batch_norm", b.x(2, 26, 5, 7), b.w(26), b.w(26), b.w(26), variance, eps=F32(1e-5)),)


def _matmul(left: tuple[int, ...], right: tuple[int, ...]) -> Make:
    return lambda b: (b.op("matmul", b.x(*left), b.x(*right)),)


for _name, _left, _right in (
    ("matmul", (17, 40), (40, 33)), ("matmul-batch", (3, 7, 20), (3, 20, 33)), ("matmul-shared", (2, 7, 20), (20, 5)),
    ("matmul-vector", (20,), (20, 33)), ("matmul-column", (4, 20), (20,)), ("matmul-spread", (2, 1, 17, 9), (3, 9, 64)),
):  # fmt: skip
    CASES[_name] = _matmul(_left, _right)
CASES["matmul-symbolic"] = lambda b: (b.op("matmul", b.x(D0, 40), b.x(40, D0)),)
CASES["matmul-f64"] = lambda b: (b.op("matmul", b.x(5, 40, dtype=DType.F64), b.x(40, 9, dtype=DType.F64)),)


def _integer_product(x: tuple[Dim, ...], y: tuple[Dim, ...]) -> Make:
    """Both operands computed."""

    def make(b: GroupBuilder) -> tuple[int, ...]:
        left, right = b.x(*x, dtype=DType.U8), b.x(*y, dtype=DType.I8)
        return (b.op("matmul_integer", left, right, b.k(131, DType.U8), b.k(-7, DType.I8)),)

    return make


CASES["matmul_integer-batched"] = _integer_product((2, 3, 9, 7), (2, 3, 7, 70))
CASES["matmul_integer-shared"] = _integer_product((3, 5, 8), (8, 35))
CASES["matmul_integer-symbolic"] = _integer_product((2, 5, D0), (2, D0, 33))
CASES["matmul_integer-column"] = _integer_product((6, D0), (D0,))


@case("matmul_integer")
def _matmul_integer(b: GroupBuilder) -> tuple[int, ...]:
    x, w = b.x(17, 40, dtype=DType.U8), b.w(40, 33, dtype=DType.I8)
    return (b.op("matmul_integer", x, w, b.k(3, DType.U8), b.w(33, dtype=DType.I8)),)


def _conv(groups: int) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        x, w, bias = b.x(2, 8, 9, 11), b.x(6, 8 // groups, 3, 3), b.w(6)
        window = {"strides": (2, 1), "pads": (1, 1, 0, 2), "dilations": (1, 2)}
        return (b.op("conv", x, w, bias, group=groups, **window),)

    return make


CASES |= {"conv": _conv(1), "conv-groups": _conv(2)}
CASES["conv-symbolic"] = lambda b: (
    b.op("conv", b.x(1, 8, D0), b.w(70, 8, 3), strides=(1,), pads=(1, 1), dilations=(1,), group=1),
)
CASES["conv-cube"] = lambda b: (
    b.op(
        "conv", b.x(1, 3, 5, 6, 4), b.w(7, 3, 2, 2, 2), strides=(1, 1, 1), pads=(0,) * 6, dilations=(1, 1, 1), group=1
    ),
)


@case("conv_transpose")
def _conv_transpose(b: GroupBuilder) -> tuple[int, ...]:
    window = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1), "output_padding": (1, 0)}
    return (b.op("conv_transpose", b.x(2, 8, 5, 6), b.w(8, 3, 3, 2), b.w(6), group=2, **window),)


@case("conv_integer")
def _conv_integer(b: GroupBuilder) -> tuple[int, ...]:
    window = {"strides": (2, 1), "pads": (1, 1, 0, 2), "dilations": (1, 2)}
    x, w = b.x(2, 8, 9, 11, dtype=DType.U8), b.w(6, 8, 3, 3, dtype=DType.I8)
    return (b.op("conv_integer", x, w, b.k(7, DType.U8), group=1, **window),)


_POOL = {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 1, 0, 1), "dilations": (1, 1)}
CASES["max_pool"] = lambda b: (b.op("max_pool", b.x(2, 19, D0, 11), ceil_mode=0, **_POOL),)
CASES["max_pool-u8"] = lambda b: (b.op("max_pool", b.x(2, 19, 9, 11, dtype=DType.U8), ceil_mode=1, **_POOL),)


def _average(padded: int) -> Make:
    return lambda b: (b.op("average_pool", b.x(2, 19, D0, 11), ceil_mode=1, count_include_pad=padded, **_POOL),)


CASES |= {"average_pool": _average(1), "average_pool-inside": _average(0)}


def _resize(mode: str, coordinate: str) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        scales = (F32(1.0), F32(1.0), F32(2.0), F32(float(np.float32(9 / 7))))
        return (
            b.op(
                "resize", b.x(1, 5, 6, 7), mode=mode, coordinate=coordinate, nearest="round_prefer_floor",
                sizes=(1, 5, 12, 9), scales=scales, cubic_a=F32(-0.75), exclude_outside=0,
            ),
        )  # fmt: skip

    return make


for _mode, _coordinate in (
    ("nearest", "asymmetric"),
    ("nearest", "half_pixel"),
    ("linear", "align_corners"),
    ("cubic", "pytorch_half_pixel"),
):
    CASES[f"resize-{_mode}-{_coordinate}"] = _resize(_mode, _coordinate)
CASES["resize"] = _resize("linear", "half_pixel")
_SCALES = [0.1, 0.2, 0.3, 0.4, 0.5]


@case("quantize_linear")
def _quantize(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("quantize_linear", b.x(3, 5, 7), b.k(_SCALES), b.k([1, 2, 3, 4, 5], DType.U8), axis=1, to="u8"),)


@case("dequantize_linear")
def _dequantize(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("dequantize_linear", b.x(3, 5, 7, dtype=DType.I8), b.k(_SCALES), axis=1),)


CASES["dynamic_quantize_linear"] = lambda b: b.results("dynamic_quantize_linear", b.x(3, 5, 7))


def _recurrent(kind: str, direction: str, **attributes: int) -> Make:
    def make(b: GroupBuilder) -> tuple[int, ...]:
        count, gates = (2 if direction == "bidirectional" else 1), (4 if kind == "lstm" else 3) * 20
        x, w, r, bias = b.x(6, 3, 10), b.w(count, gates, 10), b.w(count, gates, 20), b.w(count, 2 * gates)
        lengths, h0 = b.x(3, dtype=DType.I32, array=[6, 2, 4]), b.x(count, 3, 20)
        more = (b.x(count, 3, 20),) if kind == "lstm" else ()
        return b.results(kind, x, w, r, bias, lengths, h0, *more, direction=direction, hidden=20, **attributes)

    return make


CASES["lstm"] = _recurrent("lstm", "bidirectional")
CASES["lstm-reverse"] = _recurrent("lstm", "reverse")
CASES["gru"] = _recurrent("gru", "bidirectional", linear_before_reset=1)
CASES["gru-reset-first"] = _recurrent("gru", "forward", linear_before_reset=0)


@case("chain-norm")
def _moments(b: GroupBuilder) -> tuple[int, ...]:
    x = b.x(4, 5, 33)
    mean = b.op("reduce_mean", x, axes=(1,), keepdims=1)
    difference = b.op("sub", x, mean)
    variance = b.op("reduce_mean", b.op("mul", difference, difference), axes=(1,), keepdims=1)
    return (b.op("div", difference, b.op("sqrt", b.op("add", variance, b.k(1e-5)))),)


@case("chain-mixed")
def _mixed(b: GroupBuilder) -> tuple[int, ...]:
    x, ids = b.x(2, 9, 35), b.x(2, 1, 35, dtype=DType.I64)
    mask = b.op("cast", b.op("greater", ids, b.k(0, DType.I64)), to="f32")
    return (b.op("mul", b.op("tanh", x), b.op("sub", b.k(1.0), mask)),)


@case("matmul-quantized")
def _quantized_products(b: GroupBuilder) -> tuple[int, ...]:
    x, y = b.x(2, 7, 40, dtype=DType.U8), b.x(2, 40, 9, dtype=DType.I8)
    left = b.op("dequantize_linear", x, b.k(0.02), b.k(100, DType.U8), axis=-1)
    right = b.op("dequantize_linear", y, b.k(0.013), axis=-1)
    return (b.op("quantize_linear", b.op("matmul", left, right), b.k(0.071), b.k(3, DType.I8), axis=-1, to="i8"),)


@case("transpose-bytes")
def _transposed_bytes(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("transpose", b.x(2, 37, 50, dtype=DType.U8), perm=(0, 2, 1)),)


@case("transpose-halves")
def _transposed_halves(b: GroupBuilder) -> tuple[int, ...]:
    return (b.op("transpose", b.x(33, 48, dtype=DType.F16), perm=(1, 0)),)


@case("matmul-quantized-by-operands")
def _quantized_products_of_operands(b: GroupBuilder) -> tuple[int, ...]:
    x, y = b.x(2, 7, 40, dtype=DType.U8), b.x(2, 40, 9, dtype=DType.I8)
    left = b.op("dequantize_linear", x, b.w(array=0.02), b.w(dtype=DType.U8, array=100), axis=-1)
    right = b.op("dequantize_linear", y, b.w(array=0.013), b.w(dtype=DType.I8, array=-5), axis=-1)
    scale, zero = b.w(array=0.071), b.w(dtype=DType.I8, array=3)
    return (b.op("quantize_linear", b.op("matmul", left, right), scale, zero, axis=-1, to="i8"),)


@case("chain-quantized")
def _quantized_chain(b: GroupBuilder) -> tuple[int, ...]:
    x = b.x(2, 7, 40, dtype=DType.U8)
    real = b.op("dequantize_linear", x, b.w(array=0.02), b.w(dtype=DType.U8, array=77), axis=-1)
    y = b.op("mul", b.op("add", real, b.w(40)), b.op("tanh", real))
    return (b.op("quantize_linear", y, b.w(array=0.01), b.w(dtype=DType.U8, array=31), axis=-1, to="u8"),)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    found = find_toolchain()
    if not isinstance(found, Toolchain):
        pytest.skip(found.reason)
    return Workshop(NativeBackend(), Target("cpu", host_arch(), 1), tmp_path_factory.mktemp("loops"))


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_group_by_loops_is_accepted(name: str, workshop: Workshop) -> None:
    """One of the proposed layouts a case; the cases of a kind take turns."""
    builder = GroupBuilder(Symbol("d0", "d0", 1, 11, 40))
    group = builder.group(name.partition("-")[0], *CASES[name](builder))
    candidates = [c for c in workshop.candidates(group, 60) if c.config.text("template") == "loops"]
    first_of_each = list({c.layouts: c for c in reversed(candidates)}.values())
    turn = sorted(CASES).index(name) % len(first_of_each)
    assert workshop.refused(group, first_of_each[turn : turn + 1]) == []


def test_every_op_has_a_case() -> None:
    assert {name.partition("-")[0] for name in CASES} - {"chain"} == set(OPS)


def test_three_parts_together_give_what_one_gives(workshop: Workshop, tmp_path: Path) -> None:
    builder = GroupBuilder()
    x = builder.x(7, 45)
    group = builder.group("chain", builder.op("mul", builder.op("exp", x), builder.x(45)))
    split = Workshop(workshop.backend, Target("cpu", workshop.target.arch, 3), workshop.scratch)
    (candidate,) = split.candidates(group, 1)
    artifact = split.build(group, candidate)
    assert artifact.recipe.split.parts == 3
    alone = workshop.call(group, workshop.build(group, candidate))
    assert all(np.array_equal(alone[v], split.call(group, artifact)[v]) for v in alone)


def test_the_same_candidate_builds_the_same_bytes(workshop: Workshop, tmp_path: Path) -> None:
    builder = GroupBuilder()
    group = builder.group("softmax", builder.op("softmax", builder.x(3, 5, 7), axis=1))
    (candidate, *_) = workshop.candidates(group, 1)
    again = workshop.backend.build(candidate, group.signature, workshop.target, tmp_path)
    assert workshop.build(group, candidate).digest == again.digest
