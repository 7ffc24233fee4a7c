"""Signatures of every family that oneDNN serves, with operands drawn from a seed.

Imported by: the tests beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.attributes import F32, Attributes, AttributeValue
from tribunus.phaseir.program import Array, Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType


@dataclass
class Case:
    """A signature and its operands by value id."""

    signature: Signature
    inputs: Mapping[int, Array]


def attributes(**values: int | str | float | tuple[int, ...] | tuple[float, ...]) -> Attributes:
    """Attributes from plain Python values: floats become binary32."""

    def one(value: int | str | float | tuple[int, ...] | tuple[float, ...]) -> AttributeValue:
        if isinstance(value, float):
            return F32(float(np.float32(value)))
        if isinstance(value, tuple) and any(isinstance(v, float) for v in value):
            return tuple(F32(float(np.float32(v))) for v in value)
        if isinstance(value, tuple):
            return tuple(int(v) for v in value)
        return value

    return Attributes.of({k: one(v) for k, v in values.items()})


@dataclass
class Making:
    """Builds one signature; inputs must be declared before weights, weights before numbers."""

    seed: int = 0
    builder: ProgramBuilder = field(default_factory=lambda: ProgramBuilder(Constants()))
    arrays: dict[int, Array] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)

    def _draw(self, shape: tuple[int, ...], positive: bool) -> npt.NDArray[np.float32]:
        random = np.random.default_rng((self.seed, len(self.arrays)))
        drawn = random.standard_normal(shape).astype(np.float32)
        return np.abs(drawn) + np.float32(0.5) if positive else drawn

    def input(self, *shape: int) -> int:
        value = self.builder.input(TensorType(DType.F32, shape), "")
        self.arrays[value] = self._draw(shape, False)
        self.given.append(value)
        return value

    def weight(self, *shape: int, positive: bool = False) -> int:
        value = self.builder.weight(TensorType(DType.F32, shape))
        self.arrays[value] = self._draw(shape, positive)
        return value

    def number(self, value: float) -> int:
        return self.builder.constant(np.asarray(value, np.float32), DType.F32)

    def op(self, kind: str, *inputs: int, **values: int | str | float | tuple[int, ...] | tuple[float, ...]) -> int:
        return self.builder.op(kind, inputs, attributes(**values))[0]

    def finish(self, label: str, result: int) -> Case:
        program = self.builder.finish(label, tuple(self.given), (result,))
        return Case(Signature(program, ComputePolicy.FP32, self.builder.constants), self.arrays)


def gelu(m: Making, x: int) -> int:
    scaled = m.op("div", x, m.number(math.sqrt(2.0)))
    return m.op("mul", m.op("mul", x, m.op("add", m.op("erf", scaled), m.number(1.0))), m.number(0.5))


def matmul(rows: tuple[int, ...] = (24,), k: int = 40, n: int = 56) -> Case:
    m = Making()
    x, w = m.input(*rows, k), m.weight(k, n)
    return m.finish("matmul", m.op("matmul", x, w))


def matmul_bias_gelu() -> Case:
    m = Making(1)
    x, w, b = m.input(2, 12, 40), m.weight(40, 70), m.weight(70)
    return m.finish("matmul+bias+gelu", gelu(m, m.op("add", b, m.op("matmul", x, w))))


def matmul_residual() -> Case:
    m = Making(2)
    x, r, w, b = m.input(2, 12, 40), m.input(2, 12, 56), m.weight(40, 56), m.weight(56)
    return m.finish("matmul+bias+add", m.op("add", m.op("add", m.op("matmul", x, w), b), r))


def matmul_batched() -> Case:
    m = Making(3)
    a, b = m.input(2, 3, 16, 24), m.input(2, 3, 24, 16)
    return m.finish("matmul+scale", m.op("mul", m.op("matmul", a, b), m.number(0.25)))


def _window(n: int, stride: int = 1, pad: int = 1, dilation: int = 1) -> dict[str, tuple[int, ...]]:
    return {"strides": (stride,) * n, "pads": (pad,) * (2 * n), "dilations": (dilation,) * n}


def conv(
    channels: int = 16,
    out: int = 32,
    kernel: tuple[int, ...] = (3, 3),
    extent: int = 14,
    group: int = 1,
    then: str = "",
    stride: int = 1,
    dilation: int = 1,
) -> Case:
    m = Making(4)
    n = len(kernel)
    pad = dilation * (kernel[0] - 1) // 2
    x = m.input(1, channels, *(extent,) * n)
    size = (extent + 2 * pad - dilation * (kernel[0] - 1) - 1) // stride + 1
    other = m.input(1, out, *(size,) * n) if then == "add" else -1
    w, b = m.weight(out, channels // group, *kernel), m.weight(out)
    y = m.op("conv", x, w, b, **_window(n, stride, pad, dilation), group=group)
    label = "conv+bias"
    if then == "add":
        y, label = m.op("relu", m.op("add", y, other)), "conv+bias+add+relu"
    elif then == "silu":
        y, label = m.op("mul", y, m.op("sigmoid", y)), "conv+bias+silu"
    elif then == "hardswish":
        y = m.op("mul", y, m.op("hard_sigmoid", y, alpha=1.0 / 6.0, beta=0.5))
        label = "conv+bias+hardswish"
    elif then == "leaky_relu":
        y, label = m.op("leaky_relu", y, alpha=0.1), "conv+bias+leaky_relu"
    elif then:
        y, label = m.op(then, y), f"conv+bias+{then}"
    return m.finish(label, y)


def conv_batch_norm() -> Case:
    m = Making(5)
    x, w = m.input(1, 16, 12, 12), m.weight(24, 16, 3, 3)
    vectors = [m.weight(24), m.weight(24), m.weight(24), m.weight(24, positive=True)]
    y = m.op("conv", x, w, **_window(2), group=1)
    return m.finish("conv+scale+relu", m.op("relu", m.op("batch_norm", y, *vectors, eps=1e-5)))


def conv_transpose(group: int = 1) -> Case:
    m = Making(6)
    x, w, b = m.input(1, 16, 9, 9), m.weight(16, 12 // group, 3, 3), m.weight(12)
    y = m.op(
        "conv_transpose", x, w, b, strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1), group=group,
        output_padding=(1, 1),
    )  # fmt: skip
    return m.finish("conv_transpose+bias", y)


def pool(kind: str, *, ceil_mode: int = 0, include: int = 0) -> Case:
    m = Making(7)
    x = m.input(1, 24, 15, 15)
    more = {"count_include_pad": include} if kind == "average_pool" else {}
    y = m.op(kind, x, kernel=(3, 3), strides=(2, 2), pads=(1,) * 4, dilations=(1, 1), ceil_mode=ceil_mode, **more)
    return m.finish(kind, y)


def softmax(kind: str, axis: int) -> Case:
    m = Making(8)
    return m.finish(kind, m.op(kind, m.input(3, 10, 33), axis=axis))


def softmax_spelt() -> Case:
    m = Making(9)
    x = m.input(4, 8, 32)
    e = m.op("exp", m.op("sub", x, m.op("reduce_max", x, axes=(2,), keepdims=1)))
    return m.finish("softmax", m.op("div", e, m.op("reduce_sum", e, axes=(2,), keepdims=1)))


def layer_norm() -> Case:
    m = Making(10)
    x, s, b = m.input(2, 12, 96), m.weight(96), m.weight(96)
    return m.finish("layer_norm", m.op("layer_norm", x, s, b, axis=2, eps=1e-12))


def layer_norm_spelt() -> Case:
    m = Making(11)
    x, s, b = m.input(2, 12, 96), m.weight(96), m.weight(96)
    d = m.op("sub", x, m.op("reduce_mean", x, axes=(2,), keepdims=1))
    v = m.op("reduce_mean", m.op("pow", d, m.number(2.0)), axes=(2,), keepdims=1)
    y = m.op("div", d, m.op("sqrt", m.op("add", v, m.number(1e-12))))
    return m.finish("layer_norm", m.op("add", m.op("mul", y, s), b))


def batch_norm() -> Case:
    m = Making(12)
    x = m.input(1, 24, 9, 9)
    vectors = [m.weight(24), m.weight(24), m.weight(24), m.weight(24, positive=True)]
    return m.finish("batch_norm", m.op("batch_norm", x, *vectors, eps=1e-5))


def eltwise(kind: str, **values: float) -> Case:
    m = Making(13)
    return m.finish(kind, m.op(kind, m.input(3, 50), **values))


def chain(spell: Callable[[Making, int], int]) -> Case:
    m = Making(14)
    return m.finish("chain", spell(m, m.input(3, 50)))


def binary(kind: str, shape: tuple[int, ...] = (2, 8, 7, 7), other: tuple[int, ...] = (2, 8, 7, 7)) -> Case:
    m = Making(15)
    return m.finish(kind, m.op(kind, m.input(*shape), m.input(*other)))


def reduction(kind: str, axes: tuple[int, ...], keepdims: int) -> Case:
    m = Making(16)
    return m.finish(kind, m.op(kind, m.input(2, 12, 9, 10), axes=axes, keepdims=keepdims))


def resize(mode: str) -> Case:
    m = Making(17)
    nearest = {"coordinate": "asymmetric" if mode == "nearest" else "half_pixel", "nearest": "floor"}
    y = m.op(
        "resize", m.input(1, 8, 7, 7), mode=mode, sizes=(1, 8, 14, 14), scales=(1.0, 1.0, 2.0, 2.0), cubic_a=-0.75,
        exclude_outside=0, **nearest,
    )  # fmt: skip
    return m.finish("resize", y)


def transpose() -> Case:
    m = Making(18)
    return m.finish("transpose", m.op("transpose", m.input(2, 9, 4, 8), perm=(0, 2, 1, 3)))


def copy() -> Case:
    m = Making(19)
    return m.finish("copy", m.op("copy", m.input(2, 9, 4, 8)))


CASES: dict[str, Callable[[], Case]] = {
    "matmul": matmul,
    "matmul-row": lambda: matmul((1,), 64, 48),
    "matmul+bias+gelu": matmul_bias_gelu,
    "matmul+bias+add": matmul_residual,
    "matmul-batched+scale": matmul_batched,
    "conv": conv,
    "conv-1x1+relu": lambda: conv(kernel=(1, 1), then="relu"),
    "conv+silu": lambda: conv(then="silu"),
    "conv+hardswish": lambda: conv(then="hardswish"),
    "conv+add+relu": lambda: conv(then="add"),
    "conv-stride": lambda: conv(stride=2),
    "conv-dilated": lambda: conv(dilation=2),
    "conv-depthwise": lambda: conv(32, 32, group=32, then="relu"),
    "conv-grouped": lambda: conv(32, 32, group=4),
    "conv-1d": lambda: conv(24, 16, kernel=(5,), extent=40),
    "conv+scale+relu": conv_batch_norm,
    "conv_transpose": conv_transpose,
    "conv_transpose-grouped": lambda: conv_transpose(4),
    "max_pool": lambda: pool("max_pool"),
    "max_pool-ceil": lambda: pool("max_pool", ceil_mode=1),
    "average_pool": lambda: pool("average_pool"),
    "average_pool-include": lambda: pool("average_pool", include=1),
    "softmax": lambda: softmax("softmax", 2),
    "softmax-inner": lambda: softmax("softmax", 1),
    "softmax-spelt": softmax_spelt,
    "log_softmax": lambda: softmax("log_softmax", 2),
    "layer_norm": layer_norm,
    "layer_norm-spelt": layer_norm_spelt,
    "batch_norm": batch_norm,
    "relu": lambda: eltwise("relu"),
    "tanh": lambda: eltwise("tanh"),
    "sigmoid": lambda: eltwise("sigmoid"),
    "exp": lambda: eltwise("exp"),
    "leaky_relu": lambda: eltwise("leaky_relu", alpha=0.1),
    "gelu": lambda: chain(gelu),
    "clip": lambda: chain(lambda m, x: m.op("minimum", m.op("maximum", x, m.number(-0.5)), m.number(0.75))),
    "add": lambda: binary("add"),
    "mul-channels": lambda: binary("mul", other=(2, 8, 1, 1)),
    "reduce_mean": lambda: reduction("reduce_mean", (2, 3), 0),
    "reduce_sum": lambda: reduction("reduce_sum", (1,), 1),
    "reduce_max": lambda: reduction("reduce_max", (3,), 1),
    "resize-nearest": lambda: resize("nearest"),
    "resize-linear": lambda: resize("linear"),
    "transpose": transpose,
    "copy": copy,
}
