"""Softmax, normalizations, attention, recurrences, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tests.oracle.mutants.pointwise import single
from tests.oracle.mutants.suite import F32, Array, Suite, as_f32, bf16, f16, matmul_by, sequential, sigmoid32, tf32
from tests.oracle.nodes import attributes
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

one = np.float32(1)
EPS = np.float32(1e-5)


def softmax(x: F32, total: Callable[[F32], F32] = lambda e: e.sum(-1, dtype=np.float32)) -> F32:
    e = np.exp(x - x.max(-1, keepdims=True))
    return as_f32(e / total(e)[..., None])


def softmax_exp2(x: F32) -> F32:
    e = np.exp2((x - x.max(-1, keepdims=True)) * np.float32(1.442695))
    return as_f32(e / e.sum(-1, keepdims=True, dtype=np.float32))


def online_softmax(x: F32) -> F32:
    """Tiles of 16 with a running maximum."""
    top = np.full(x.shape[:-1], -np.inf, np.float32)
    total = np.zeros(x.shape[:-1], np.float32)
    for k in range(0, x.shape[-1], 16):
        tile = x[..., k : k + 16]
        new = np.maximum(top, tile.max(-1))
        total = total * np.exp(top - new) + np.exp(tile - new[..., None]).sum(-1, dtype=np.float32)
        top = new
    return as_f32(np.exp(x - top[..., None]) / total[..., None])


def padded_softmax(x: F32) -> F32:
    """Lanes past the end hold 0 instead of minus infinity."""
    wide = np.concatenate((x, np.zeros((*x.shape[:-1], 3), np.float32)), -1)
    return softmax(wide)[..., : x.shape[-1]]


def layer_norm(x: F32, g: F32, b: F32, eps: np.float32 = EPS, mean: Callable[[F32], F32] | None = None) -> F32:
    average = mean or (lambda v: v.mean(-1, keepdims=True, dtype=np.float32))
    d = x - average(x)
    return as_f32(d / np.sqrt(average(d * d) + eps) * g + b)


def sequential_mean(v: F32) -> F32:
    return as_f32(sequential(v)[..., None] / np.float32(v.shape[-1]))


def welford(x: F32, g: F32, b: F32) -> F32:
    mean, m2 = np.zeros(x.shape[:-1], np.float32), np.zeros(x.shape[:-1], np.float32)
    for k in range(x.shape[-1]):
        delta = x[..., k] - mean
        mean = mean + delta / np.float32(k + 1)
        m2 = m2 + delta * (x[..., k] - mean)
    scale = one / np.sqrt(m2 / np.float32(x.shape[-1]) + EPS)
    return as_f32((x - mean[..., None]) * scale[..., None] * g + b)


def one_pass(x: F32, g: F32, b: F32) -> F32:
    mean = x.mean(-1, keepdims=True, dtype=np.float32)
    variance = np.maximum((x * x).mean(-1, keepdims=True, dtype=np.float32) - mean * mean, np.float32(0))
    return as_f32((x - mean) / np.sqrt(variance + EPS) * g + b)


def unbiased(x: F32, g: F32, b: F32) -> F32:
    d = x - x.mean(-1, keepdims=True)
    n = np.float32(x.shape[-1])
    return as_f32(d / np.sqrt((d * d).sum(-1, keepdims=True) / (n - one) + EPS) * g + b)


NORM_HONEST = {
    "two passes": layer_norm,
    "sequential": lambda x, g, b: layer_norm(x, g, b, mean=sequential_mean),
    "welford": welford,
}
NORM_MUTANTS = {
    "one pass": one_pass,
    "unbiased": unbiased,
    "eps of 1e-6": lambda x, g, b: layer_norm(x, g, b, np.float32(1e-6)),
    "no eps": lambda x, g, b: layer_norm(x, g, b, np.float32(0)),
    "no mean": lambda x, g, b: layer_norm(x, g, b, mean=lambda v: v[..., :1] * 0 + np.float32(1)),
    "bf16 statistics": lambda x, g, b: layer_norm(x, g, b, mean=lambda v: bf16(v.mean(-1, keepdims=True))),
    "f16": lambda x, g, b: f16(layer_norm(f16(x), g, b)),
    "no bias": lambda x, g, b: layer_norm(x, g, as_f32(b * 0)),
    "last missed": lambda x, g, b: layer_norm(x, g, b, mean=lambda v: v[..., :-1].mean(-1, keepdims=True)),
}


def decomposed_norm(n: int) -> tuple[Program, Constants]:
    """Layer normalization from its parts, as older exporters write it."""
    constants = Constants()
    b = ProgramBuilder(constants)
    x = b.input(TensorType(DType.F32, (24, n)), "x")
    g, beta = b.weight(TensorType(DType.F32, (n,))), b.weight(TensorType(DType.F32, (n,)))
    eps, two = b.constant(np.asarray(EPS), DType.F32), b.constant(np.asarray(2, np.float32), DType.F32)
    last = attributes(axes=(1,), keepdims=1)
    (mean,) = b.op("reduce_mean", (x,), last)
    (d,) = b.op("sub", (x, mean))
    (square,) = b.op("pow", (d, two))
    (variance,) = b.op("reduce_mean", (square,), last)
    (shifted,) = b.op("add", (variance, eps))
    (root,) = b.op("sqrt", (shifted,))
    (y,) = b.op("div", (d, root))
    (scaled,) = b.op("mul", (y, g))
    outputs = b.op("add", (scaled, beta))
    return b.finish("layer_norm", (x, g, beta), outputs), constants


def batch_norm(x: F32, s: F32, b: F32, m: F32, v: F32, eps: float = 1e-5) -> F32:
    s, b, m, v = (p.reshape(1, -1, 1) for p in (s, b, m, v))
    return as_f32((x - m) / np.sqrt(v + np.float32(eps)) * s + b)


def folded(x: F32, s: F32, b: F32, m: F32, v: F32, store: Callable[[F32], F32] = as_f32) -> F32:
    scale = store(as_f32(s / np.sqrt(v + EPS)))
    return as_f32(x * scale.reshape(1, -1, 1) + as_f32(b - m * scale).reshape(1, -1, 1))


HEADS, QUERIES, KEYS, WIDTH = 3, 21, 37, 16


def attention_program() -> tuple[Program, Constants]:
    """softmax(q k^T / 4 + mask) v."""
    constants = Constants()
    b = ProgramBuilder(constants)
    q = b.input(TensorType(DType.F32, (HEADS, QUERIES, WIDTH)), "q")
    k = b.input(TensorType(DType.F32, (HEADS, KEYS, WIDTH)), "k")
    v = b.input(TensorType(DType.F32, (HEADS, KEYS, WIDTH)), "v")
    mask = b.input(TensorType(DType.F32, (QUERIES, KEYS)), "mask")
    scale = b.constant(np.asarray(0.25, np.float32), DType.F32)
    (kt,) = b.op("transpose", (k,), attributes(perm=(0, 2, 1)))
    (s,) = b.op("matmul", (q, kt))
    (scaled,) = b.op("mul", (s, scale))
    (masked,) = b.op("add", (scaled, mask))
    (p,) = b.op("softmax", (masked,), attributes(axis=2))
    outputs = b.op("matmul", (p, v))
    return b.finish("attention", (q, k, v, mask), outputs), constants


def attention(
    q: F32, k: F32, v: F32, mask: F32, scale: float = 0.25, inputs: Callable[[F32], F32] = as_f32,
    weights: Callable[[F32], F32] = as_f32,
) -> F32:  # fmt: skip
    s = inputs(q) @ np.swapaxes(inputs(k), -1, -2) * np.float32(scale) + mask
    return as_f32(weights(softmax(as_f32(s))) @ v)


def flash(q: F32, k: F32, v: F32, mask: F32) -> F32:
    """Tiles of 16 keys."""
    top = np.full((*q.shape[:-1], 1), -np.inf, np.float32)
    total, out = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
    for start in range(0, k.shape[-2], 16):
        part = slice(start, start + 16)
        s = q @ np.swapaxes(k[..., part, :], -1, -2) * np.float32(0.25) + mask[:, part]
        new = np.maximum(top, s.max(-1, keepdims=True))
        safe = np.where(np.isfinite(new), new, np.float32(0))
        shrink, e = np.exp(top - safe), np.exp(s - safe)
        total = total * shrink + e.sum(-1, keepdims=True, dtype=np.float32)
        out = out * shrink + e @ v[..., part, :]
        top = new
    return as_f32(out / total)


T, B, FEATURES, H = 14, 2, 10, 12
Recurrent = Callable[..., Sequence[Array]]


def lstm(
    x: F32, w: F32, r: F32, bias: F32, order: tuple[int, int, int, int] = (0, 1, 2, 3),
    state: Callable[[F32], F32] = as_f32, gate: Callable[[F32], F32] = sigmoid32,
    inputs: Callable[[F32], F32] = as_f32, product: Callable[[F32, F32], F32] = lambda a, b: as_f32(a @ b),
) -> Sequence[Array]:  # fmt: skip
    h, c = np.zeros((B, H), np.float32), np.zeros((B, H), np.float32)
    ys = []
    for t in range(T):
        z = product(inputs(x[t]), inputs(w[0]).T) + product(inputs(h), inputs(r[0]).T)
        parts = np.split(z + bias[0, : 4 * H] + bias[0, 4 * H :], 4, 1)
        i, o, f, g = (parts[n] for n in order)
        c = as_f32(gate(f) * c + gate(i) * np.tanh(g))
        h = state(as_f32(gate(o) * np.tanh(c)))
        ys.append(h)
    return np.stack(ys)[:, None], h[None], c[None]


def gru(
    x: F32, w: F32, r: F32, bias: F32, after: bool = False, swap: bool = False, inputs: Callable[[F32], F32] = as_f32,
    state: Callable[[F32], F32] = as_f32, gate: Callable[[F32], F32] = sigmoid32,
) -> Sequence[Array]:  # fmt: skip
    h, ys = np.zeros((B, H), np.float32), []
    wb, rb = bias[0, : 3 * H], bias[0, 3 * H :]
    w0, r0 = inputs(w[0]), inputs(r[0])
    for t in range(T):
        gx = inputs(x[t]) @ w0.T + wb
        zr = gate(gx[:, : 2 * H] + inputs(h) @ r0[: 2 * H].T + rb[: 2 * H])
        z, reset = (zr[:, H:], zr[:, :H]) if swap else (zr[:, :H], zr[:, H:])
        if after:
            memory = reset * (inputs(h) @ r0[2 * H :].T + rb[2 * H :])
        else:
            memory = inputs(reset * h) @ r0[2 * H :].T + rb[2 * H :]
        h = state(as_f32((one - z) * np.tanh(gx[:, 2 * H :] + memory) + z * h))
        ys.append(h)
    return np.stack(ys)[:, None], h[None]


def wide_gate(z: F32) -> F32:
    return as_f32(1 / (1 + np.exp(-z.astype(np.float64))))


def attention_by_k(q: F32, k: F32, v: F32, mask: F32) -> F32:
    scores = matmul_by(q, np.swapaxes(k, 1, 2), 1) * np.float32(0.25) + mask
    return matmul_by(softmax(as_f32(scores)), v, 1)


def hard_gate(z: F32) -> F32:
    return as_f32(np.clip(z * np.float32(0.2) + np.float32(0.5), 0, 1))


RNN = ((T, B, FEATURES), (1, 4 * H, FEATURES), (1, 4 * H, H), (1, 8 * H))
GRU = ((T, B, FEATURES), (1, 3 * H, FEATURES), (1, 3 * H, H), (1, 6 * H))
RESIZE = {
    "mode": "linear", "coordinate": "half_pixel", "nearest": "floor", "sizes": (1, 3, 17, 23),
    "scales": (1.0, 1.0, 1.7, 23 / 12), "cubic_a": -0.75, "exclude_outside": 0,
}  # fmt: skip


def line(extent: int, out: int, scale: float, shift: float, weight: Callable[[F32], F32]) -> F32:
    """(out, extent) interpolation matrix computed in float32."""
    at = (np.arange(out, dtype=np.float32) + np.float32(shift)) / np.float32(scale) - np.float32(shift)
    low = np.floor(at)
    share = weight(as_f32(at - low))
    matrix = np.zeros((out, extent), np.float32)
    rows = np.arange(out)
    np.add.at(matrix, (rows, np.clip(low, 0, extent - 1).astype(int)), one - share)
    np.add.at(matrix, (rows, np.clip(low + 1, 0, extent - 1).astype(int)), share)
    return matrix


def resize(x: F32, shift: float = 0.5, weight: Callable[[F32], F32] = as_f32, wide: float = 1.7) -> F32:
    rows, columns = line(10, 17, wide, shift, weight), line(12, 23, 23 / 12, shift, weight)
    return as_f32(rows @ x @ columns.T)


def eighth_bits(share: F32) -> F32:
    return as_f32(np.rint(share * 256) / 256)


SUITES = (
    Suite(
        "softmax",
        *single("softmax", ((24, 100),), axis=1),
        {
            "plain": softmax,
            "sequential": lambda x: softmax(x, sequential),
            "exp2": softmax_exp2,
            "online": online_softmax,
        },
        {
            "bf16 sum": lambda x: softmax(x, lambda e: bf16(e.sum(-1))),
            "bf16 exponentials": lambda x: softmax(bf16(x)),
            "padded lanes": padded_softmax,
            "no shift": lambda x: as_f32(np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
            "wrong axis": lambda x: as_f32(np.swapaxes(softmax(np.swapaxes(x, 0, 1)), 0, 1)),
            "base 2": lambda x: softmax(x * np.float32(0.6931472)),
            "last missed": lambda x: softmax(x, lambda e: e[..., :-1].sum(-1)),
            "f16 result": lambda x: f16(softmax(x)),
        },
    ),
    Suite("layer_norm", *single("layer_norm", ((24, 96), (96,), (96,)), axis=1, eps=1e-5), NORM_HONEST, NORM_MUTANTS),
    Suite("layer_norm from parts", *decomposed_norm(96), NORM_HONEST, NORM_MUTANTS),
    Suite(
        "batch_norm",
        *single("batch_norm", ((2, 9, 80), (9,), (9,), (9,), (9,)), eps=1e-5),
        {"plain": batch_norm, "folded": folded},
        {
            "eps of 1e-3": partial(batch_norm, eps=1e-3),
            "eps of 1e-6": partial(batch_norm, eps=1e-6),
            "bf16 scale": partial(folded, store=bf16),
            "no mean": lambda x, s, b, m, v: batch_norm(x, s, b, as_f32(m * 0), v),
            "no root": lambda x, s, b, m, v: batch_norm(x, s, b, m, v * v),
            "channels rolled": lambda x, s, b, m, v: batch_norm(x, s, np.roll(b, 1), m, v),
        },
    ),
    Suite(
        "attention",
        *attention_program(),
        {"plain": attention, "flash": flash, "k by k": attention_by_k},
        {
            "bf16 weights": partial(attention, weights=bf16),
            "tf32 scores": partial(attention, inputs=tf32),
            "scale off by 0.1 %": partial(attention, scale=0.25025),
            "no mask": lambda q, k, v, m: attention(q, k, v, as_f32(m * 0)),
            "mask of -1e4": lambda q, k, v, m: attention(q, k, v, np.maximum(m, np.float32(-10))),
            "last key missed": lambda q, k, v, m: attention(q, k[:, :-1], v[:, :-1], m[:, :-1]),
            "heads rolled": lambda q, k, v, m: attention(q, k, np.roll(v, 1, 0), m),
        },
    ),
    Suite(
        "lstm",
        *single("lstm", RNN, direction="forward", hidden=H),
        {
            "blas": lstm,
            "k by k": partial(lstm, product=lambda p, q: matmul_by(p, q, 1)),
            "f64 gates": partial(lstm, gate=wide_gate),
        },
        {
            "f16 state": partial(lstm, state=f16),
            "tf32": partial(lstm, inputs=tf32),
            "wrong gate order": partial(lstm, order=(0, 2, 1, 3)),
            "hard gates": partial(lstm, gate=hard_gate),
            "bf16": partial(lstm, inputs=bf16),
            "one bias missed": lambda x, w, r, b: lstm(x, w, r, as_f32(b * (np.arange(8 * H) < 4 * H))),
            "backwards": lambda x, w, r, b: lstm(x[::-1], w, r, b),
        },
    ),
    Suite(
        "gru",
        *single("gru", GRU, direction="forward", hidden=H, linear_before_reset=0),
        {"blas": gru, "f64 gates": partial(gru, gate=wide_gate)},
        {
            "linear before reset": partial(gru, after=True),
            "gates swapped": partial(gru, swap=True),
            "f16 state": partial(gru, state=f16),
            "tf32": partial(gru, inputs=tf32),
            "hard gates": partial(gru, gate=hard_gate),
            "one bias missed": lambda x, w, r, b: gru(x, w, r, as_f32(b * (np.arange(6 * H) < 3 * H))),
        },
    ),
    Suite(
        "resize linear",
        *single("resize", ((1, 3, 10, 12),), **RESIZE),
        {"matrices": resize, "f64 weights": lambda x: as_f32(resize(x.astype(np.float64)))},
        {
            "8-bit weights": lambda x: resize(x, weight=eighth_bits),
            "asymmetric": lambda x: resize(x, shift=0.0),
            "another scale": lambda x: resize(x, wide=1.68),
            "nearest": lambda x: resize(x, weight=lambda s: as_f32(np.rint(s))),
            "f16": lambda x: f16(resize(f16(x))),
            "shifted": lambda x: np.roll(resize(x), 1, -1),
        },
    ),
)
