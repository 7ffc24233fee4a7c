"""Matrix products, convolutions, pooling, quantized products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.oracle.mutants.pointwise import single
from tests.oracle.mutants.suite import (
    F32,
    Array,
    Kernel,
    Suite,
    as_f32,
    bf16,
    f16,
    matmul_by,
    split_bf16,
    tf32,
    unfolded,
    with_element,
)
from tests.oracle.nodes import attributes
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.numerics.rounding import decode, encode, round_value
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

K = 257


def matmul_program(dtype: DType, k: int) -> tuple[Program, Constants]:
    constants = Constants()
    b = ProgramBuilder(constants)
    x, w = b.input(TensorType(dtype, (40, k)), "x"), b.weight(TensorType(dtype, (k, 48)))
    outputs = b.op("matmul", (x, w))
    return b.finish("matmul", (x, w), outputs), constants


def split_k(a: F32, b: F32, parts: int) -> F32:
    return as_f32(sum(matmul_by(a[:, i::parts], b[i::parts], 1) for i in range(parts)))


def one_off(y: F32) -> F32:
    return with_element(y, lambda v: float(v) + 1e-3 * float(np.abs(y).mean()))


MATMUL_MUTANTS = {
    "tf32": lambda a, b: tf32(a) @ tf32(b),
    "tf32 truncated": lambda a, b: tf32(a, True) @ tf32(b, True),
    "bf16": lambda a, b: bf16(a) @ bf16(b),
    "three bf16": split_bf16,
    "f16 accumulator": lambda a, b: matmul_by(a, b, 16, f16),
    "last k dropped": lambda a, b: a[:, :-1] @ b[:-1],
    "last k twice": lambda a, b: as_f32(a @ b + a[:, -1:] * b[-1:]),
    "rows swapped": lambda a, b: (a @ b)[np.r_[1, 0, 2 : a.shape[0]]],
    "one element off": lambda a, b: one_off(a @ b),
    "a tile mirrored": lambda a, b: np.concatenate(((a @ b)[:, :8], (a @ b)[:, 15:7:-1], (a @ b)[:, 16:]), 1),
    "truncating accumulator": lambda a, b: matmul_by(a, b, 16, lambda v: tf32(v)),
}


def stored(kernel: Callable[[F32, F32], F32], truncate: bool = False) -> Callable[[Array, Array], Array]:
    """A bf16 kernel from one on float32 values."""

    def run(a: Array, b: Array) -> Array:
        y = kernel(as_f32(decode(a, DType.BF16)), as_f32(decode(b, DType.BF16)))
        if truncate:
            return (np.ascontiguousarray(y).view(np.uint32) >> 16).astype(np.uint16)
        return encode(y, DType.BF16)

    return run


def e4m3(x: F32) -> F32:
    return as_f32(round_value(x, DType.F8E4M3FN))


CONV = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}


def conv_by(x: F32, w: F32, product: Callable[[F32, F32], F32], mode: str = "constant") -> F32:
    flat = w.reshape(w.shape[0], -1)
    return as_f32(np.stack([product(flat, c) for c in unfolded(x, 3, 1, mode)])).reshape(
        x.shape[0], w.shape[0], *x.shape[2:]
    )


def plain(a: F32, b: F32) -> F32:
    return as_f32(a @ b)


def winograd43(x: F32, w: F32) -> F32:
    """F(4, 3) along both axes in float32."""
    bt = as_f32([
        [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
    ])  # fmt: skip
    rows_of_g: list[list[float]] = [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
    g = as_f32(rows_of_g)
    at = as_f32([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    n, c, h, wd = x.shape
    rows, columns = -(-h // 4), -(-wd // 4)
    p = np.zeros((n, c, rows * 4 + 2, columns * 4 + 2), np.float32)
    p[:, :, 1 : h + 1, 1 : wd + 1] = x
    u = g @ w @ g.T
    out = np.zeros((n, w.shape[0], rows * 4, columns * 4), np.float32)
    for i in range(rows):
        for j in range(columns):
            d = bt @ p[:, :, 4 * i : 4 * i + 6, 4 * j : 4 * j + 6] @ bt.T
            m = (u[None] * d[:, None]).sum(2, dtype=np.float32)
            out[:, :, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4] = at @ m @ at.T
    return out[:, :, :h, :wd]


POOL = {
    "kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1), "ceil_mode": 0,
    "count_include_pad": 0,
}  # fmt: skip


def pool_by(x: F32, include: bool, fill: float = 0.0) -> F32:
    h, w = (x.shape[2] + 2 - 3) // 2 + 1, (x.shape[3] + 2 - 3) // 2 + 1
    p = np.pad(x, ((0, 0), (0, 0), (1, 2), (1, 2)), constant_values=fill)
    inside = np.pad(np.ones(x.shape[2:], np.float32), ((1, 2), (1, 2)), constant_values=1.0 if include else 0.0)
    parts = [p[:, :, i : i + 2 * h : 2, j : j + 2 * w : 2][:, :, :h, :w] for i in range(3) for j in range(3)]
    counts = sum(inside[i : i + 2 * h : 2, j : j + 2 * w : 2][:h, :w] for i in range(3) for j in range(3))
    return as_f32(sum(parts[1:], parts[0]) / counts)


def quantized_program() -> tuple[Program, Constants]:
    """u8 activations times s8 weights, exact sums, one scale a channel, back to u8."""
    constants = Constants()
    b = ProgramBuilder(constants)
    x, w = b.input(TensorType(DType.U8, (24, 64)), "x"), b.weight(TensorType(DType.I8, (64, 20)))
    zero = b.constant(np.array(128, np.uint8), DType.U8)
    scale = b.constant(np.asarray(0.00317, np.float32), DType.F32)
    step, point = b.constant(np.asarray(0.37, np.float32), DType.F32), b.constant(np.array(131, np.uint8), DType.U8)
    (total,) = b.op("matmul_integer", (x, w, zero))
    (real,) = b.op("cast", (total,), attributes(to="f32"))
    (scaled,) = b.op("mul", (real, scale))
    outputs = b.op("quantize_linear", (scaled, step, point), attributes(axis=-1, to="u8"))
    return b.finish("matmul+requantize", (x, w), outputs), constants


def total_of(x: Array, w: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return (x.astype(np.int64) - 128) @ w.astype(np.int64)


def requantized(total: Array, rounding: Callable[[Array], Array] = np.rint, scale: float = 0.00317) -> Array:
    t = total.astype(np.float64) * float(np.float32(scale)) / float(np.float32(0.37))
    return np.asarray(np.clip(np.asarray(rounding(t), dtype=np.float64) + 131, 0, 255)).astype(np.uint8)


def requantized_f32(total: Array) -> Array:
    """Two roundings in float32 before the last one."""
    t = as_f32(total) * np.float32(0.00317) / np.float32(0.37)
    return np.asarray(np.clip(np.rint(t) + 131, 0, 255)).astype(np.uint8)


def fixed_point(total: Array) -> Array:
    """A 31-bit multiplier, as fixed-point kernels do."""
    multiplier = round(float(np.float32(0.00317)) / float(np.float32(0.37)) * 2**37)
    rounded = ((total.astype(np.int64) * multiplier + (1 << 36)) >> 37) + 131
    return np.asarray(np.clip(rounded, 0, 255)).astype(np.uint8)


def saturated_pairs(x: Array, w: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Pairs of products that saturate at 16 bits; the zero point is corrected afterwards."""
    products = x.astype(np.int64)[:, :, None] * w.astype(np.int64)[None]
    pairs = np.clip(products[:, 0::2] + products[:, 1::2], -32768, 32767)
    return np.asarray(pairs.sum(1) - 128 * w.astype(np.int64).sum(0))


def bytes_program() -> tuple[Program, Constants]:
    """Dequantized bytes times dequantized bytes, quantized: scales and zero points are operands."""
    constants = Constants()
    b = ProgramBuilder(constants)
    x, w = b.input(TensorType(DType.U8, (24, 64)), "x"), b.input(TensorType(DType.I8, (64, 20)), "w")
    x_step, y_step = (b.input(TensorType(DType.F32, ()), name) for name in ("x_step", "y_step"))
    w_step = b.input(TensorType(DType.F32, (20,)), "w_step")
    x_zero, y_zero = (b.input(TensorType(DType.U8, ()), name) for name in ("x_zero", "y_zero"))
    w_zero = b.input(TensorType(DType.I8, (20,)), "w_zero")
    (left,) = b.op("dequantize_linear", (x, x_step, x_zero), attributes(axis=-1))
    (right,) = b.op("dequantize_linear", (w, w_step, w_zero), attributes(axis=1))
    (y,) = b.op("matmul", (left, right))
    outputs = b.op("quantize_linear", (y, y_step, y_zero), attributes(axis=-1, to="u8"))
    given = (x, w, x_step, x_zero, w_step, w_zero, y_step, y_zero)
    return b.finish("qdq_matmul+quantize", given, outputs), constants


def bytes_product(*operands: Array) -> Array:
    """Exact sums and one factor a column, rounded to float32."""
    x, w, x_step, x_zero, w_step, w_zero, y_step, y_zero = operands
    total = (x.astype(np.int64) - int(x_zero)) @ (w.astype(np.int64) - w_zero.astype(np.int64))
    factor = as_f32(x_step.astype(np.float64) * w_step.astype(np.float64) / y_step.astype(np.float64))
    return np.asarray(np.clip(np.rint(as_f32(total) * factor) + int(y_zero), 0, 255)).astype(np.uint8)


def bytes_product_f32(*operands: Array) -> Array:
    """The ops one by one in float32."""
    x, w, x_step, x_zero, w_step, w_zero, y_step, y_zero = operands
    left, right = as_f32(x) - as_f32(x_zero), as_f32(w) - as_f32(w_zero)
    t = ((left * as_f32(x_step)) @ (right * as_f32(w_step))) / as_f32(y_step)
    return np.asarray(np.clip(np.rint(t) + as_f32(y_zero), 0, 255)).astype(np.uint8)


def bytes_product_with(place: int, change: Callable[[Array], npt.ArrayLike]) -> Kernel:
    """``bytes_product`` that reads one of its operands wrong."""

    def kernel(*operands: Array) -> Array:
        wrong = np.asarray(change(operands[place]), dtype=operands[place].dtype)
        return bytes_product(*operands[:place], wrong, *operands[place + 1 :])

    return kernel


SUITES = (
    Suite(
        "matmul",
        *matmul_program(DType.F32, K),
        {
            "blas": plain,
            "one k after another": lambda a, b: matmul_by(a, b, 1),
            "blocks of 16": lambda a, b: matmul_by(a, b, 16),
            "blocks of 64": lambda a, b: matmul_by(a, b, 64),
            "reversed": lambda a, b: matmul_by(a[:, ::-1], b[::-1], 1),
            "split in four": lambda a, b: split_k(a, b, 4),
        },
        MATMUL_MUTANTS,
    ),
    Suite(
        "matmul tf32",
        *matmul_program(DType.F32, K),
        {"tf32": lambda a, b: tf32(a) @ tf32(b), "f32": plain, "k by k": lambda a, b: matmul_by(tf32(a), tf32(b), 1)},
        {
            "bf16": lambda a, b: bf16(a) @ bf16(b),
            "truncated inputs": lambda a, b: tf32(a, True) @ tf32(b, True),
            "f16 accumulator": lambda a, b: matmul_by(tf32(a), tf32(b), 16, f16),
            "last k dropped": lambda a, b: a[:, :-1] @ b[:-1],
            "rows swapped": lambda a, b: (a @ b)[np.r_[1, 0, 2 : a.shape[0]]],
            "transposed weight": lambda a, b: as_f32(a @ np.roll(b, 1, 1)),
        },
        ComputePolicy.TF32,
    ),
    Suite(
        "matmul bf16",
        *matmul_program(DType.BF16, 512),
        {
            "f32 accumulator": stored(plain),
            "k by k": stored(lambda a, b: matmul_by(a, b, 1)),
            "blocks": stored(lambda a, b: matmul_by(a, b, 64)),
        },
        {
            "bf16 accumulator": stored(lambda a, b: matmul_by(a, b, 16, bf16)),
            "truncated store": stored(plain, truncate=True),
            "f16 accumulator": stored(lambda a, b: matmul_by(a, b, 16, f16)),
            "f8 inputs": stored(lambda a, b: as_f32(e4m3(a) @ e4m3(b))),
            "last k dropped": stored(lambda a, b: as_f32(a[:, :-1] @ b[:-1])),
            "rows swapped": stored(lambda a, b: as_f32((a @ b)[np.r_[1, 0, 2 : a.shape[0]]])),
        },
        ComputePolicy.BF16,
        1.0,
    ),
    Suite(
        "conv",
        *single("conv", ((1, 16, 10, 11), (8, 16, 3, 3)), **CONV),
        {
            "unfolded": lambda x, w: conv_by(x, w, plain),
            "direct": lambda x, w: conv_by(x, w, lambda a, b: matmul_by(a, b, 1)),
            "blocks": lambda x, w: conv_by(x, w, lambda a, b: matmul_by(a, b, 32)),
        },
        {
            "flipped": lambda x, w: conv_by(x, w[:, :, ::-1, ::-1], plain),
            "edge padding": lambda x, w: conv_by(x, w, plain, "edge"),
            "a tap dropped": lambda x, w: conv_by(x, as_f32(w * (np.arange(9).reshape(3, 3) != 8)), plain),
            "tf32": lambda x, w: conv_by(tf32(x), tf32(w), plain),
            "bf16": lambda x, w: conv_by(bf16(x), bf16(w), plain),
            "shifted": lambda x, w: np.roll(conv_by(x, w, plain), 1, -1),
            "winograd 4,3": winograd43,
            "channels swapped": lambda x, w: conv_by(x[:, np.r_[1, 0, 2 : x.shape[1]]], w, plain),
            "tail is zero": lambda x, w: conv_by(x, w, plain) * as_f32(np.arange(x.shape[3]) < x.shape[3] - 1),
        },
    ),
    Suite(
        "conv winograd",
        *single("conv", ((1, 16, 10, 11), (8, 16, 3, 3)), **CONV),
        {"unfolded": lambda x, w: conv_by(x, w, plain), "winograd 4,3": winograd43},
        {
            "flipped": lambda x, w: conv_by(x, w[:, :, ::-1, ::-1], plain),
            "edge padding": lambda x, w: conv_by(x, w, plain, "edge"),
            "a tap dropped": lambda x, w: conv_by(x, as_f32(w * (np.arange(9).reshape(3, 3) != 8)), plain),
            "bf16": lambda x, w: conv_by(bf16(x), bf16(w), plain),
            "f16": lambda x, w: conv_by(f16(x), f16(w), plain),
            "shifted": lambda x, w: np.roll(conv_by(x, w, plain), 1, -1),
        },
        ComputePolicy.FP32_WINOGRAD,
    ),
    Suite(
        "average_pool",
        *single("average_pool", ((1, 6, 15, 13),), **POOL),
        {
            "taps": lambda x: pool_by(x, False),
            "reversed": lambda x: pool_by(x[:, :, ::-1, ::-1], False)[:, :, ::-1, ::-1],
        },
        {
            "padding counted": lambda x: pool_by(x, True),
            "padding of one": lambda x: pool_by(x, False, 1.0),
            "bf16": lambda x: pool_by(bf16(x), False),
            "sum": lambda x: as_f32(pool_by(x, False) * 9),
            "transposed window": lambda x: np.roll(pool_by(x, False), 1, 2),
            "f16 result": lambda x: f16(pool_by(x, False)),
        },
    ),
    Suite(
        "quantized matmul",
        *quantized_program(),
        {
            "f64": lambda x, w: requantized(total_of(x, w)),
            "f32": lambda x, w: requantized_f32(total_of(x, w)),
            "fixed point": lambda x, w: fixed_point(total_of(x, w)),
        },
        {
            "truncated": lambda x, w: requantized(total_of(x, w), np.trunc),
            "floor": lambda x, w: requantized(total_of(x, w), np.floor),
            "bf16 scale": lambda x, w: requantized(total_of(x, w), scale=float(bf16(0.00317))),
            "f16 accumulator": lambda x, w: requantized(f16(f16(total_of(x, w) / 64) * 64)),
            "saturating pairs": lambda x, w: requantized(saturated_pairs(x, w)),
            "no zero point": lambda x, w: requantized(x.astype(np.int64) @ w.astype(np.int64)),
            "one quantum high": lambda x, w: requantized(total_of(x, w), lambda t: np.rint(t) + 1),
            "last k dropped": lambda x, w: requantized(total_of(x[:, :-1], w[:-1])),
        },
    ),
    Suite(
        "quantized matmul by operands",
        *bytes_program(),
        {"exact sums": bytes_product, "f32": bytes_product_f32},
        {
            "no zero point of x": bytes_product_with(3, np.zeros_like),
            "zero point of x known": bytes_product_with(3, lambda z: np.full_like(z, 128)),
            "zero point of x off by one": bytes_product_with(3, lambda z: z.astype(np.int64) + 1),
            "no zero point of w": bytes_product_with(5, np.zeros_like),
            "one zero point of w": bytes_product_with(5, lambda z: np.full_like(z, z[0])),
            "zero point of y known": bytes_product_with(7, lambda z: np.full_like(z, 128)),
            "zero point of y off by one": bytes_product_with(7, lambda z: z.astype(np.int64) - 1),
            "zero point of x for y": lambda *o: bytes_product(*o[:7], o[3]),
            "one scale of w": bytes_product_with(4, lambda s: np.full_like(s, s[0])),
            "scale of x as bf16": bytes_product_with(2, bf16),
            "scale of y as f16": bytes_product_with(6, f16),
            "no scale of x": bytes_product_with(2, np.ones_like),
        },
    ),
)
