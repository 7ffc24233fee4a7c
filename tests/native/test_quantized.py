"""8-bit products and convolutions: exact int32 sums in every mode, requantisation with ties to even."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.backend import NativeBackend
from tribunus_native.match.integer_dot import quantized_config, quantized_point
from tribunus_native.match.quantized import match_quantized
from tribunus_native.templates.conv import Window
from tribunus_native.templates.csource import Param
from tribunus_native.templates.epilogue import Activate, Activation
from tribunus_native.templates.integer_dot import (
    MOST_DEPTH,
    Byte,
    Dot,
    QuantizedPoint,
    Result,
    quantized_points,
    quantized_rule,
)
from tribunus_native.templates.quantized import QuantizedParams, pack_quantized, quantized
from tribunus_native.toolchain import Contraction, Cpu

from tests.native.groups import Group, GroupBuilder, Workshop
from tribunus.candidates.model import Config
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.targets.target import Target

from .conftest import Array, Lab

I64 = npt.NDArray[np.int64]
RNG = np.random.default_rng(19)


def draw(byte: Byte, *shape: int) -> npt.NDArray[np.uint8] | npt.NDArray[np.int8]:
    """Full range, the extremes often."""
    low, high = (0, 255) if byte is Byte.U8 else (-128, 127)
    values = RNG.integers(low, high + 1, shape)
    values = np.where(RNG.random(shape) < 0.2, RNG.choice([low, high], shape), values)
    return values.astype(np.uint8) if byte is Byte.U8 else values.astype(np.int8)


def taps(x: I64, window: Window) -> I64:
    top, left, bottom, right = window.pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    (sh, sw), (dh, dw) = window.stride, window.dilation
    parts = [
        padded[
            :,
            i * dh : i * dh + (window.out_height - 1) * sh + 1 : sh,
            j * dw : j * dw + (window.out_width - 1) * sw + 1 : sw,
        ]
        for i in range(window.kernel[0])
        for j in range(window.kernel[1])
    ]
    joined = np.concatenate(parts, axis=-1)
    return joined.reshape(-1, joined.shape[-1])


def modes(lab: Lab) -> list[tuple[Cpu, Dot]]:
    found = [(Cpu.X86_64_V3, Dot.PAIRS), (Cpu.X86_64_V3, Dot.SINGLES)]
    if Cpu.ZNVER4 in lab.cpus:
        found += [(Cpu.ZNVER4, Dot.QUADS), (Cpu.ZNVER4, Dot.PAIRS)]
    return found


@pytest.mark.parametrize(
    ("rows", "n", "k", "byte", "zero"), [(7, 37, 13, Byte.U8, 0), (9, 50, 21, Byte.S8, -5), (5, 16, 300, Byte.U8, 255)]
)
def test_int32_sums_are_exact_in_every_mode(lab: Lab, rows: int, n: int, k: int, byte: Byte, zero: int) -> None:
    x, w = draw(byte, rows, k), draw(Byte.S8, k, n)
    bias = RNG.integers(-(10**6), 10**6, n).astype(np.int32)
    exact = (x.astype(np.int64) - zero) @ w.astype(np.int64) + bias
    for cpu, dot in modes(lab):
        point = replace(quantized_rule(Param(0), n, cpu), dot=dot, mr=3)
        params = QuantizedParams(
            rows=Param(0), n=n, k=k, x_byte=byte, x_offset=zero != 0, result=Result.INT32, point=point,
            avx512=cpu.has_avx512,
        )  # fmt: skip
        packed = pack_quantized(w, 0, zero, bias, params)
        y = np.zeros((rows, n), dtype=np.int32)
        lab.run(quantized(params), [x, y, packed.weights, packed.start], params=(rows,), parts=2, cpu=cpu)
        assert np.array_equal(y, exact), f"{cpu.value} {dot.name}"


def test_unsigned_weights_with_a_zero_point_need_pairs(lab: Lab) -> None:
    x, w = draw(Byte.U8, 6, 31), draw(Byte.U8, 31, 20)
    point = replace(quantized_rule(6, 20, Cpu.X86_64_V3), dot=Dot.PAIRS)
    params = QuantizedParams(
        rows=6, n=20, k=31, x_byte=Byte.U8, x_offset=True, result=Result.INT32, point=point, avx512=False
    )
    packed = pack_quantized(w, 7, 3, None, params)
    y = np.zeros((6, 20), dtype=np.int32)
    lab.run(quantized(params), [x, y, packed.weights, packed.start], cpu=Cpu.X86_64_V3)
    assert np.array_equal(y, (x.astype(np.int64) - 3) @ (w.astype(np.int64) - 7))
    with pytest.raises(InternalError, match=r"Dot\.PAIRS"):
        pack_quantized(w, 7, 3, None, replace(params, point=replace(point, dot=Dot.QUADS)))


@pytest.mark.parametrize("result", list(Result))
@pytest.mark.parametrize(("byte", "zero"), [(Byte.U8, 77), (Byte.S8, -7)])
def test_convolution_pads_with_the_zero_point(lab: Lab, result: Result, byte: Byte, zero: int) -> None:
    window = Window(height=7, width=9, kernel=(3, 3), pads=(1, 1, 1, 1), stride=(2, 1), dilation=(1, 2))
    cin, n = 5, 21
    k = 9 * cin
    x, w = draw(byte, 2, 7, 9, cin), draw(Byte.S8, k, n)
    params = QuantizedParams(
        rows=2, n=n, k=k, x_byte=byte, x_offset=zero != 0, result=result, window=window, avx512=lab.cpu.has_avx512,
        point=quantized_rule(window.out_width, n, lab.cpu), y_offset=True, y_byte=Byte.S8,
        epilogue=(Activate(Activation.RELU),) if result is Result.FLOAT32 else (),
    )  # fmt: skip
    packed = pack_quantized(w, 0, zero, None, params)
    exact = taps(x.astype(np.int64) - zero, window) @ w.astype(np.int64)
    scale, shift = (np.zeros(params.panels.padded, dtype=np.float32) for _ in range(2))
    scale[:n], shift[:n] = RNG.random(n) * 2e-3, RNG.random(n)
    kind = {Result.INT32: np.int32, Result.BYTES: np.int8, Result.FLOAT32: np.float32}[result]
    y = np.zeros(exact.shape, dtype=kind)
    extra: list[Array] = []
    if result is not Result.INT32:
        extra = [scale] if result is Result.BYTES else [scale, shift]
    extra.append(np.array([zero, 3], dtype=np.int32))
    lab.run(quantized(params), [x, y, packed.weights, packed.start, *extra], parts=2)
    scaled = exact * scale[:n].astype(np.float64)
    if result is Result.INT32:
        assert np.array_equal(y, exact)
    elif result is Result.BYTES:
        tie = np.abs(scaled - np.floor(scaled) - 0.5) < 2.0**-20 * np.maximum(1, np.abs(scaled))
        assert np.array_equal(y[~tie], np.clip(np.rint(scaled) + 3, -128, 127)[~tie])
        assert len(np.unique(y)) > 100
    else:
        assert np.allclose(y, np.maximum(scaled + shift[:n], 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("byte", "y_zero"), [(Byte.S8, 3), (Byte.U8, 128), (Byte.U8, 0)])
def test_requantisation_rounds_ties_to_even_whatever_the_zero_point(lab: Lab, byte: Byte, y_zero: int) -> None:
    n = 19
    params = QuantizedParams(
        rows=400, n=n, k=1, x_byte=Byte.S8, x_offset=False, result=Result.BYTES, avx512=lab.cpu.has_avx512,
        point=quantized_rule(400, n, lab.cpu), y_offset=y_zero != 0, y_byte=byte,
    )  # fmt: skip
    x = (np.arange(400) % 256 - 128).astype(np.int8).reshape(400, 1)
    w = (np.arange(n) + 1).astype(np.int8).reshape(1, n)
    packed = pack_quantized(w, 0, 0, None, params)
    scale = np.full(params.panels.padded, 0.5, dtype=np.float32)
    y = np.zeros((400, n), dtype=np.uint8 if byte is Byte.U8 else np.int8)
    zeros = [np.array([0, y_zero], dtype=np.int32)] if y_zero else []
    lab.run(quantized(params), [x, y, packed.weights, packed.start, scale, *zeros])
    low, high = (0, 255) if byte is Byte.U8 else (-128, 127)
    exact = np.clip(np.rint(x.astype(np.int64) * w * 0.5) + y_zero, low, high)
    assert np.array_equal(y, exact)


def test_one_kernel_serves_every_zero_point(lab: Lab) -> None:
    window = Window(height=1, width=11, kernel=(1, 3), pads=(0, 1, 0, 1), stride=(1, 2), dilation=(1, 1))
    cin, n = 4, 18
    x, w = draw(Byte.U8, 1, 1, 11, cin), draw(Byte.S8, 3 * cin, n)
    params = QuantizedParams(
        rows=1, n=n, k=3 * cin, x_byte=Byte.U8, x_offset=True, result=Result.BYTES, window=window, y_offset=True,
        avx512=lab.cpu.has_avx512, point=quantized_rule(window.out_width, n, lab.cpu),
    )  # fmt: skip
    scale = np.full(params.panels.padded, 2.0**-9, dtype=np.float32)
    source = quantized(params)
    for x_zero, y_zero in ((1, 254), (128, 127), (255, 1)):
        packed = pack_quantized(w, 0, x_zero, None, params)
        y = np.zeros((window.out_width, n), dtype=np.uint8)
        zeros = np.array([x_zero, y_zero], dtype=np.int32)
        lab.run(source, [x, y, packed.weights, packed.start, scale, zeros])
        exact = taps(x.astype(np.int64) - x_zero, window) @ w.astype(np.int64)
        assert np.array_equal(y, np.clip(np.rint(exact * 2.0**-9) + y_zero, 0, 255))
        lab.run(source, [x, y, packed.weights, packed.start, scale, zeros[::-1].copy()])
        assert not np.array_equal(y, np.clip(np.rint(exact * 2.0**-9) + y_zero, 0, 255))


def test_points_offer_both_exact_forms_where_both_exist() -> None:
    assert {point.dot for point in quantized_points(400, 384, Cpu.ZNVER4)} == {Dot.QUADS, Dot.PAIRS}
    assert {point.dot for point in quantized_points(400, 384, Cpu.X86_64_V3)} == {Dot.PAIRS}
    assert {point.dot for point in quantized_points(400, 384, Cpu.AARCH64)} == {Dot.SINGLES}


def test_a_point_is_the_same_after_a_config() -> None:
    points = {point for cpu in Cpu for point in quantized_points(Param(0), 400, cpu)}
    assert len(points) > 6
    for point in points:
        assert quantized_point(Config.of(quantized_config(point))) == point


def test_a_config_writes_a_point_as_candidates_are_known_by() -> None:
    point = QuantizedPoint(dot=Dot.QUADS, lanes=16, mr=6, nv=4, contraction=Contraction.SEPARATE)
    assert str(Config.of(quantized_config(point))) == "contraction=off dot=4 lanes=16 mr=6 nv=4"


def stored_product(k: int, rows: int = 2) -> Group:
    """Bytes times stored bytes, both dequantized."""
    b = GroupBuilder()
    x, w = b.x(rows, k, dtype=DType.U8), b.w(k, 3, dtype=DType.I8, array=np.ones((k, 3)))
    left = b.op("dequantize_linear", x, b.w(array=0.5), axis=-1)
    right = b.op("dequantize_linear", w, b.w(array=0.25), axis=-1)
    return b.group("qdq_matmul", b.op("matmul", left, right))


def test_products_whose_sums_may_overflow_are_left_to_others() -> None:
    assert match_quantized(stored_product(MOST_DEPTH).signature) is not None
    assert match_quantized(stored_product(MOST_DEPTH + 1).signature) is None


@pytest.mark.parametrize("cpu", list(Cpu))
def test_products_of_no_rows_are_left_to_others(tmp_path: Path, cpu: Cpu) -> None:
    group = stored_product(5, rows=0)
    candidates = Workshop(NativeBackend(), Target("cpu", cpu.value, 1), tmp_path).candidates(group, 64)
    assert {c.config.text("template") for c in candidates} == {"loops"}


@pytest.mark.parametrize("batch", [1, 2])
def test_tiles_of_a_convolution_have_the_height_of_its_lines(tmp_path: Path, batch: int) -> None:
    b = GroupBuilder()
    x = b.op("dequantize_linear", b.x(batch, 8, 28, 28, dtype=DType.U8), b.w(array=0.02), axis=-1)
    w = b.op(
        "dequantize_linear", b.w(32, 8, 1, 1, dtype=DType.I8, array=np.ones((32, 8, 1, 1))), b.w(array=0.5), axis=0
    )
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    group = b.group("qdq_conv", b.op("conv", x, w, group=1, **window))
    workshop = Workshop(NativeBackend(), Target("cpu", Cpu.X86_64_V4.value, 1), tmp_path)
    first = workshop.candidates(group, 1)[0]
    assert first.config.text("template") == "quantized"
    assert first.config.integer("mr") == quantized_rule(28, 32, Cpu.X86_64_V4).mr > 1
