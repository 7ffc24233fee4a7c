"""Honest and wrong implementations of a program, by name; arithmetic that is not float32 is simulated.

Imported by: the catalogue beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.numerics.rounding import round_value
from tribunus.numerics.ulp import ulp
from tribunus.phaseir.program import Constants, Program

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Array = npt.NDArray[np.generic]
Kernel = Callable[..., "Array | Sequence[Array]"]


@dataclass(frozen=True)
class Suite:
    """inputs of ``program`` in order are the kernels' arguments."""

    name: str
    program: Program
    constants: Constants
    honest: Mapping[str, Kernel]
    mutants: Mapping[str, Kernel]
    policy: ComputePolicy = ComputePolicy.FP32
    limit: float = 0.7


def as_f32(x: npt.ArrayLike) -> F32:
    return np.asarray(x, dtype=np.float32)


def to_precision(x: npt.ArrayLike, bits: int, truncate: bool = False) -> F32:
    """``x`` rounded (or cut) to a significand of ``bits`` bits, exponents as in float32."""
    y = np.asarray(x, dtype=np.float64)
    step = ulp(y, DType.F32) * 2.0 ** (24 - bits)
    scaled = y / step
    rounded = np.trunc(scaled) if truncate else np.rint(scaled)
    return as_f32(np.where(np.isfinite(y), rounded * step, y))


def tf32(x: npt.ArrayLike, truncate: bool = False) -> F32:
    return to_precision(x, 11, truncate)


def bf16(x: npt.ArrayLike, truncate: bool = False) -> F32:
    return to_precision(x, 8, truncate)


def f16(x: npt.ArrayLike) -> F32:
    return as_f32(round_value(x, DType.F16))


def sequential(x: F32) -> F32:
    """Sum over the last axis, one term after another."""
    return as_f32(np.add.accumulate(x, axis=-1, dtype=np.float32)[..., -1])


def tree(x: F32) -> F32:
    """Sum over the last axis in pairs."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = np.concatenate((x, np.zeros((*x.shape[:-1], 1), np.float32)), -1)
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def blocked(x: F32, size: int) -> F32:
    """Sum over the last axis in blocks."""
    pad = -x.shape[-1] % size
    wide = np.concatenate((x, np.zeros((*x.shape[:-1], pad), np.float32)), -1)
    return sequential(sequential(wide.reshape(*x.shape[:-1], -1, size)))


def matmul_by(a: F32, b: F32, block: int, rounding: Callable[[Array], F32] = as_f32) -> F32:
    """Matrix product accumulated over blocks of K, each partial sum rounded by ``rounding``."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(0, a.shape[-1], block):
        total = rounding(total + rounding(a[..., k : k + block] @ b[..., k : k + block, :]))
    return total


def split_bf16(a: F32, b: F32) -> F32:
    """Three bf16 products posing as one of float32."""
    a1, b1 = bf16(a), bf16(b)
    a2, b2 = bf16(a - a1), bf16(b - b1)
    return as_f32(a1 @ b1 + (a1 @ b2 + a2 @ b1))


def unfolded(x: F32, taps: int, pad: int, mode: str = "constant") -> F32:
    """(batch, channels * taps**2, positions) windows of stride 1."""
    widths = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    p = np.pad(x, widths, mode="edge") if mode == "edge" else np.pad(x, widths)
    h, w = p.shape[2] - taps + 1, p.shape[3] - taps + 1
    parts = [p[:, :, i : i + h, j : j + w] for i in range(taps) for j in range(taps)]
    return np.stack(parts, 2).reshape(x.shape[0], -1, h * w)


def erf32(x: F32) -> F32:
    from tribunus.numerics.functions import erf

    return as_f32(erf(x.astype(np.float64)))


def sigmoid32(x: F32) -> F32:
    return as_f32(np.float32(1) / (np.float32(1) + np.exp(-x)))


def with_element(y: Array, change: Callable[[np.float32], float]) -> F32:
    """``y`` with its middle element changed."""
    result = np.array(y, dtype=np.float32).reshape(-1)
    result[result.size // 2] = change(result[result.size // 2])
    return result.reshape(np.shape(y))
