"""Pooling: windows at the edges, both ways to count, ceil mode, NaN, strided outputs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.templates.conv import Window
from tribunus_native.templates.csource import Param
from tribunus_native.templates.epilogue import Activate, Activation
from tribunus_native.templates.pooling import Pool, PoolParams, pool_points, pool_rule, pooling

from .conftest import Lab

F64 = npt.NDArray[np.float64]
RNG = np.random.default_rng(23)


def golden(x: F64, window: Window, out: tuple[int, int], pool: Pool) -> F64:
    top, left, bottom, right = window.pads
    batch, _, _, channels = x.shape
    y = np.zeros((batch, *out, channels))
    for i in range(out[0]):
        for j in range(out[1]):
            r0, c0 = i * window.stride[0] - top, j * window.stride[1] - left
            rows = [r0 + h * window.dilation[0] for h in range(window.kernel[0])]
            columns = [c0 + w * window.dilation[1] for w in range(window.kernel[1])]
            inside = [(r, c) for r in rows for c in columns if 0 <= r < window.height and 0 <= c < window.width]
            padded = [r for r in rows if r < window.height + bottom], [c for c in columns if c < window.width + right]
            values = np.stack([x[:, r, c] for r, c in inside])
            if pool is Pool.MAX:
                y[:, i, j] = values.max(0)
            else:
                count = len(inside) if pool is Pool.AVERAGE else len(padded[0]) * len(padded[1])
                y[:, i, j] = values.sum(0) / count
    return y


@pytest.mark.parametrize("pool", list(Pool))
@pytest.mark.parametrize(
    ("window", "out", "channels"),
    [
        (Window(height=7, width=9, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1)), None, 5),
        (Window(height=8, width=8, kernel=(2, 3), stride=(1, 2), pads=(0, 1, 1, 0), dilation=(2, 1)), None, 40),
        (Window(height=6, width=6, kernel=(3, 3), stride=(2, 2)), (3, 3), 20),
        (Window(height=5, width=4, kernel=(5, 4)), None, 100),
    ],
    ids=["padded", "dilated", "ceil mode", "global"],
)
def test_pooling(lab: Lab, pool: Pool, window: Window, out: tuple[int, int] | None, channels: int) -> None:
    size = out or (window.out_height, window.out_width)
    x = RNG.standard_normal((2, window.height, window.width, channels)).astype(np.float32)
    x[1, 2, 2, 1] = np.nan
    params = PoolParams(
        batch=Param(0), window=window, channels=channels, pool=pool, point=pool_rule(channels, lab.cpu),
        avx512=lab.cpu.has_avx512, out=out, y_stride=channels + 2, y_offset=1, epilogue=(Activate(Activation.ABS),),
    )  # fmt: skip
    y = np.full((2, *size, channels + 2), 8.0, dtype=np.float32)
    lab.run(pooling(params), [x, y], params=(2,), parts=3)
    exact = np.abs(golden(x.astype(np.float64), window, size, pool))
    inner = y[..., 1:-1]
    assert np.array_equal(np.isnan(inner), np.isnan(exact))
    assert np.allclose(
        inner, exact, rtol=0 if pool is Pool.MAX else 1e-5, atol=0 if pool is Pool.MAX else 1e-6, equal_nan=True
    )
    assert np.all(y[..., 0] == 8.0) and np.all(y[..., -1] == 8.0)
    assert pool_points(channels, lab.cpu)[0] == params.point


def test_a_window_of_negative_numbers_keeps_its_maximum(lab: Lab) -> None:
    window = Window(height=4, width=4, kernel=(3, 3), pads=(1, 1, 1, 1))
    x = -1 - RNG.random((1, 4, 4, 8)).astype(np.float32)
    x[0, 0, 0] = -np.inf
    params = PoolParams(
        batch=1, window=window, channels=8, pool=Pool.MAX, point=pool_rule(8, lab.cpu), avx512=lab.cpu.has_avx512
    )
    y = np.zeros((1, 4, 4, 8), dtype=np.float32)
    lab.run(pooling(params), [x, y])
    assert np.array_equal(y, golden(x.astype(np.float64), window, (4, 4), Pool.MAX))
