"""Elementwise programs and reductions."""

from __future__ import annotations

import math

import numpy as np

from tests.oracle.mutants.suite import (
    F32,
    Suite,
    as_f32,
    bf16,
    blocked,
    erf32,
    f16,
    sequential,
    sigmoid32,
    tf32,
    to_precision,
    tree,
    with_element,
)
from tests.oracle.nodes import attributes
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

one, half = np.float32(1), np.float32(0.5)


def single(kind: str, shapes: tuple[tuple[int, ...], ...], **values: object) -> tuple[Program, Constants]:
    """One op on float32 inputs."""
    constants = Constants()
    b = ProgramBuilder(constants)
    ids = tuple(b.input(TensorType(DType.F32, s), f"x{i}") for i, s in enumerate(shapes))
    outputs = b.op(kind, ids, attributes(**values))
    return b.finish(kind, ids, outputs), constants


def gelu_program(n: int) -> tuple[Program, Constants]:
    """x * (0.5 * (1 + erf(x * sqrt(0.5))))."""
    constants = Constants()
    b = ProgramBuilder(constants)
    x = b.input(TensorType(DType.F32, (n,)), "x")
    c = [b.constant(np.asarray(v, np.float32), DType.F32) for v in (math.sqrt(0.5), 1.0, 0.5)]
    (z,) = b.op("mul", (x, c[0]))
    (e,) = b.op("erf", (z,))
    (s,) = b.op("add", (e, c[1]))
    (h,) = b.op("mul", (s, c[2]))
    outputs = b.op("mul", (x, h))
    return b.finish("gelu", (x,), outputs), constants


def silu_program(n: int) -> tuple[Program, Constants]:
    constants = Constants()
    b = ProgramBuilder(constants)
    x = b.input(TensorType(DType.F32, (n,)), "x")
    (s,) = b.op("sigmoid", (x,))
    outputs = b.op("mul", (x, s))
    return b.finish("silu", (x,), outputs), constants


def gelu(x: F32) -> F32:
    return as_f32(x * (half * (one + erf32(x * np.float32(math.sqrt(0.5))))))


def gelu_wide(x: F32) -> F32:
    z = erf32(x * np.float32(math.sqrt(0.5))).astype(np.float64)
    return as_f32(x * 0.5 * (1 + z))


def taylor(x: F32) -> F32:
    return as_f32(np.where(np.abs(x) < 1, sum(x**k / math.factorial(k) for k in range(7)), np.exp(x)))


def running(x: F32) -> F32:
    return as_f32(np.cumsum(x, -1, dtype=np.float32))


def gelu_tanh(x: F32) -> F32:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return as_f32(half * x * (one + np.tanh(inner)))


def flush(x: F32) -> F32:
    return as_f32(np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x))


def schraudolph(x: F32) -> F32:
    return (x * np.float32(12102203.0) + np.float32(1064866805.0)).astype(np.int32).view(np.float32)


def cut_tail(total: F32) -> F32:
    return np.concatenate((total[..., :-1], np.zeros_like(total[..., :1])), -1)


SUITES = (
    Suite(
        "add",
        *single("add", ((40, 33), (33,))),
        {"numpy": lambda a, b: a + b, "f64": lambda a, b: as_f32(a.astype(np.float64) + b)},
        {
            "bf16": lambda a, b: bf16(a + b),
            "shifted": lambda a, b: a + np.roll(b, 1),
            "sub": lambda a, b: a - b,
            "tail is zero": lambda a, b: cut_tail(a + b),
            "nan becomes zero": lambda a, b: np.nan_to_num(a + b, nan=0.0, posinf=np.inf, neginf=-np.inf),
            "flush to zero": lambda a, b: flush(a + b),
            "one ulp high": lambda a, b: with_element(a + b, lambda v: float(np.nextafter(v, np.float32(np.inf)))),
        },
    ),
    Suite(
        "div",
        *single("div", ((3000,), (3000,))),
        {"numpy": lambda a, b: a / b, "reciprocal": lambda a, b: a * (one / b)},
        {
            "bf16 reciprocal": lambda a, b: a * bf16(one / b),
            "f16": lambda a, b: f16(a) / f16(b),
            "swapped": lambda a, b: b / a,
            "12-bit reciprocal": lambda a, b: a * to_precision(1.0 / b.astype(np.float64), 12),
            "epsilon": lambda a, b: a / (b + np.float32(1e-6)),
            "one element off": lambda a, b: with_element(a / b, lambda v: float(v) * 1.00001),
        },
    ),
    Suite(
        "exp",
        *single("exp", ((4000,),)),
        {"numpy": lambda x: np.exp(x), "exp2": lambda x: np.exp2(x * np.float32(math.log2(math.e)))},
        {
            "schraudolph": schraudolph,
            "bf16 input": lambda x: np.exp(bf16(x)),
            "f16 result": lambda x: f16(np.exp(x)),
            "clamped": lambda x: np.exp(np.minimum(x, np.float32(8))),
            "taylor": taylor,
            "1e-5 high": lambda x: np.exp(x) * np.float32(1 + 1e-5),
        },
    ),
    Suite(
        "gelu",
        *gelu_program(4000),
        {"f32": gelu, "f64": gelu_wide},
        {
            "tanh": gelu_tanh,
            "sigmoid": lambda x: as_f32(x / (one + np.exp(np.float32(-1.702) * x))),
            "bf16 inside": lambda x: x * bf16(half * (one + erf32(x * np.float32(math.sqrt(0.5))))),
            "relu": lambda x: np.maximum(x, np.float32(0)),
            "f16": lambda x: f16(gelu(f16(x))),
            "tail cut": lambda x: as_f32(np.where(x < -3, 0, gelu(x))),
        },
    ),
    Suite(
        "silu",
        *silu_program(4000),
        {"f32": lambda x: as_f32(x / (one + np.exp(-x))), "product": lambda x: x * sigmoid32(x)},
        {
            "tanh form": lambda x: as_f32(x * (half + half * np.tanh(x * half))),
            "hard": lambda x: as_f32(x * np.clip(x / 6 + half, 0, 1)),
            "bf16 sigmoid": lambda x: x * bf16(sigmoid32(x)),
            "f16": lambda x: f16(x * sigmoid32(f16(x))),
            "steeper": lambda x: x * sigmoid32(x * np.float32(1.01)),
            "tail cut": lambda x: as_f32(np.where(x < -16, 0, x * sigmoid32(x))),
        },
    ),
    Suite(
        "reduce_sum",
        *single("reduce_sum", ((8, 3000),), axes=(1,), keepdims=0),
        {
            "numpy": lambda x: x.sum(-1, dtype=np.float32),
            "sequential": sequential,
            "reversed": lambda x: sequential(x[..., ::-1]),
            "tree": tree,
            "blocks of 64": lambda x: blocked(x, 64),
            "blocks of 1024": lambda x: blocked(x, 1024),
        },
        {
            "bf16 input": lambda x: sequential(bf16(x)),
            "tf32 input": lambda x: sequential(tf32(x)),
            "last dropped": lambda x: sequential(x[..., :-1]),
            "last twice": lambda x: as_f32(sequential(x) + x[..., -1]),
            "mean": lambda x: as_f32(sequential(x) / x.shape[-1]),
            "magnitudes": lambda x: sequential(np.abs(x)),
            "tail tile dropped": lambda x: sequential(x[..., : x.shape[-1] // 32 * 32]),
            "bf16 blocks": lambda x: sequential(bf16(np.add.reduceat(x, range(0, x.shape[-1], 64), axis=-1))),
        },
    ),
    Suite(
        "cumsum",
        *single("cumsum", ((6, 800),), axis=1, exclusive=0, reverse=0),
        {"sequential": running, "f64": lambda x: as_f32(np.cumsum(x.astype(np.float64), -1))},
        {
            "exclusive": lambda x: as_f32(np.cumsum(x, -1, dtype=np.float32) - x),
            "bf16 input": lambda x: np.cumsum(bf16(x), -1, dtype=np.float32),
            "reset": lambda x: np.concatenate([running(x[:, i : i + 512]) for i in range(0, x.shape[1], 512)], -1),
            "reversed": lambda x: np.cumsum(x[:, ::-1], -1, dtype=np.float32)[:, ::-1],
            "wrong axis": lambda x: np.cumsum(x, 0, dtype=np.float32),
            "tail is zero": lambda x: cut_tail(np.cumsum(x, -1, dtype=np.float32)),
        },
    ),
)
