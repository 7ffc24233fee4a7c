"""Convolutions of every template: odd shapes, edges, strides, dilation, groups, symbolic batch, splits, equal bits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.templates.conv import (
    ConvParams,
    Extents,
    Window,
    conv,
    conv_points,
    conv_rule,
    pack_conv,
    pack_conv_vector,
)
from tribunus_native.templates.csource import KernelSource, Param, ceil_div
from tribunus_native.templates.depthwise import (
    DepthwiseParams,
    depthwise,
    depthwise_points,
    depthwise_rule,
    pack_depthwise,
)
from tribunus_native.templates.epilogue import Activate, Activation, Combine, Epilogue, ScaleShift, WithTensor
from tribunus_native.templates.gemm import Order, Split
from tribunus_native.templates.narrow import NarrowParams, narrow, narrow_rule, pack_narrow, pack_narrow_vector
from tribunus_native.templates.transposed import (
    TransposedParams,
    pack_transposed,
    pack_transposed_vector,
    transposed,
    transposed_rule,
)
from tribunus_native.templates.winograd import (
    WinogradParams,
    pack_winograd,
    pack_winograd_vector,
    winograd,
    winograd_rule,
)
from tribunus_native.toolchain import Contraction

from .conftest import Lab

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
NORMAL = np.random.default_rng(11)
SAME = (1, 1, 1, 1)


def normal(*shape: int) -> F32:
    return NORMAL.standard_normal(shape).astype(np.float32)


def golden(x: F32, w: F32, bias: F32, window: Window, groups: int) -> tuple[F64, F64]:
    """Value and sum of magnitudes of a channels-last convolution in float64."""
    out, each, rows, columns = w.shape
    top, left, bottom, right = window.pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = window.out_height, window.out_width
    value = np.zeros((x.shape[0], height, width, out)) + bias
    size = np.zeros_like(value) + np.abs(bias)
    per = out // groups
    for g in range(groups):
        for i in range(rows):
            for j in range(columns):
                y0, x0 = i * window.dilation[0], j * window.dilation[1]
                taps = padded[
                    :,
                    y0 : y0 + (height - 1) * window.stride[0] + 1 : window.stride[0],
                    x0 : x0 + (width - 1) * window.stride[1] + 1 : window.stride[1],
                    g * each : (g + 1) * each,
                ]
                kernel = w[g * per : (g + 1) * per, :, i, j].T.astype(np.float64)
                value[..., g * per : (g + 1) * per] += taps @ kernel
                size[..., g * per : (g + 1) * per] += np.abs(taps) @ np.abs(kernel)
    return value, size


@dataclass(frozen=True)
class Case:
    batch: int
    window: Window
    cin: int
    cout: int
    groups: int = 1
    parts: int = 1
    symbolic: bool = False
    split: Split = Split.ROWS


def window(
    h: int,
    w: int,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
) -> Window:
    return Window(height=h, width=w, kernel=kernel, stride=stride, pads=pads, dilation=dilation)


CASES = {
    "same padding": Case(2, window(7, 9, (3, 3), pads=SAME), 5, 11, parts=3),
    "even kernel, stride, dilation, groups": Case(
        1, window(5, 5, (3, 2), stride=(2, 1), pads=(2, 0, 1, 3), dilation=(2, 2)), 4, 6, groups=2, parts=2
    ),
    "one row, dilation": Case(2, window(1, 30, (1, 5), pads=(0, 4, 0, 0), dilation=(1, 2)), 7, 20),
    "kernel larger than image": Case(3, window(2, 2, (5, 5), pads=(2, 2, 2, 2)), 3, 3, symbolic=True),
    "pointwise": Case(2, window(6, 6, (1, 1)), 20, 37, parts=2),
    "pointwise, symbolic batch": Case(2, window(6, 6, (1, 1)), 20, 9, symbolic=True),
    "panels split": Case(1, window(6, 5, (3, 3), stride=(2, 2), pads=SAME), 4, 100, parts=3, split=Split.PANELS),
}


def run_conv(lab: Lab, case: Case, params: ConvParams, x: F32, w: F32, bias: F32) -> F32:
    y = np.full((case.batch, case.window.out_height, case.window.out_width, case.cout), np.nan, dtype=np.float32)
    arrays = [x, y, pack_conv(w, params), pack_conv_vector(bias, params)]
    contraction = params.point.contraction
    lab.run(conv(params), arrays, params=(case.batch,), parts=case.parts, contraction=contraction)
    return y


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_direct_convolution(lab: Lab, case: Case) -> None:
    params = ConvParams(
        batch=Param(0) if case.symbolic else case.batch,
        window=case.window,
        channels_in=case.cin,
        channels_out=case.cout,
        groups=case.groups,
        point=conv_rule(case.window, case.cout, case.groups, lab.cpu),
        avx512=lab.cpu.has_avx512,
        split=case.split,
    )
    x = normal(case.batch, case.window.height, case.window.width, case.cin)
    w, bias = normal(case.cout, case.cin // case.groups, *case.window.kernel), normal(case.cout)
    y = run_conv(lab, case, params, x, w, bias)
    exact, size = golden(x, w, bias, case.window, case.groups)
    assert np.all(np.abs(y - exact) <= (w[0].size + 1) * 2.0**-24 * size)


MOVING = {
    "same padding": (window(9, 9, (3, 3), pads=SAME), range(3, 40), range(3, 40), 1),
    "even kernel, stride, dilation, groups": (
        window(8, 9, (3, 2), stride=(2, 3), pads=(2, 3, 1, 3), dilation=(2, 2)), range(4, 60), range(3, 60, 2), 2,
    ),
    "kernel larger than image": (window(2, 2, (5, 5), pads=(2, 2, 2, 2)), range(1, 9), range(1, 9), 1),
    "height alone": (window(8, 11, (3, 3), stride=(2, 2), pads=SAME), range(2, 30), None, 1),
    "width alone": (window(5, 11, (3, 4), pads=(0, 1, 0, 2)), None, range(4, 50), 1),
    "pointwise": (window(6, 6, (1, 1)), range(1, 20), range(1, 20), 1),
    "long lines": (window(1, 500, (1, 5), stride=(1, 2), pads=(0, 3, 0, 1)), None, range(10, 100_000), 1),
}  # fmt: skip
PLACES = Extents(height=Param(1), width=Param(2), out_height=Param(3), out_width=Param(4), pixels=Param(5))


def extents_of(shape: Window) -> Extents:
    """Parameters for what moves, numbers for the rest."""
    found = PLACES
    if shape.heights is None:
        found = replace(found, height=shape.height, out_height=shape.out_height)
    if shape.widths is None:
        found = replace(found, width=shape.width, out_width=shape.out_width)
    return found


def some(values: range | None, one: int) -> list[int]:
    """Small, odd and larger values; not the very large ones."""
    if values is None:
        return [one]
    near = [v for v in values if v < 600]
    return sorted({near[0], near[1], near[len(near) // 3], near[len(near) // 2], near[-1]})


def sizes_of(shape: Window) -> list[tuple[Window, tuple[int, ...]]]:
    """Windows of fixed size that a moving one stands for, each with its parameters."""
    heights, widths = some(shape.heights, shape.height), some(shape.widths, shape.width)
    count = max(len(heights), len(widths))
    found: list[tuple[Window, tuple[int, ...]]] = []
    for i in range(count):
        height, width = heights[i % len(heights)], widths[-1 - i % len(widths)]
        one = replace(shape, height=height, width=width, heights=None, widths=None)
        if one.out_height > 0 and one.out_width > 0:
            found.append((one, (2, height, width, one.out_height, one.out_width, 2 * height * width)))
    return found


@pytest.mark.parametrize("name", MOVING)
def test_a_convolution_over_images_of_any_size_computes_what_one_of_each_size_does(lab: Lab, name: str) -> None:
    shape, heights, widths, groups = MOVING[name]
    shape = replace(shape, heights=heights, widths=widths)
    cin, cout = 4, 38
    w, bias = normal(cout, cin // groups, *shape.kernel), normal(cout)
    tried = sizes_of(shape)
    assert len(tried) >= 3
    for order in (Order.PANELS, Order.ROWS) if name == "same padding" else (Order.PANELS,):
        params = ConvParams(
            batch=Param(0), window=shape, channels_in=cin, channels_out=cout, groups=groups,
            point=replace(conv_rule(shape, cout, groups, lab.cpu), order=order), avx512=lab.cpu.has_avx512,
            extents=extents_of(shape), epilogue=(WithTensor(Combine.ADD),),
        )  # fmt: skip
        source = conv(params)
        for one, values in tried:
            x = normal(2, one.height, one.width, cin)
            exact, size = golden(x, w, bias, one, groups)
            residual, y = normal(*exact.shape), np.full(exact.shape, np.nan, dtype=np.float32)
            arrays = [x, residual, y, pack_conv(w, params), pack_conv_vector(bias, params)]
            lab.run(source, arrays, params=values, parts=3)
            bound = (w[0].size + 2) * 2.0**-24 * (size + np.abs(residual))
            assert np.all(np.abs(y - (exact + residual)) <= bound), one


def test_tiles_at_the_call_give_the_bits_of_tiles_in_the_text(lab: Lab) -> None:
    shape = window(9, 21, (3, 3), stride=(2, 2), pads=SAME)
    moving = replace(shape, heights=range(3, 40), widths=range(3, 40))
    x, w, bias = normal(1, 9, 21, 6), normal(40, 6, 3, 3), normal(40)
    found = []
    for one, extents in ((shape, None), (moving, extents_of(moving))):
        params = ConvParams(
            batch=1, window=one, channels_in=6, channels_out=40, point=conv_rule(one, 40, 1, lab.cpu),
            avx512=lab.cpu.has_avx512, extents=extents,
        )  # fmt: skip
        y = np.full((1, 5, 11, 40), np.nan, dtype=np.float32)
        arrays = [x, y, pack_conv(w, params), pack_conv_vector(bias, params)]
        lab.run(conv(params), arrays, params=(1, 9, 21, 5, 11, 189))
        found.append(y.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in MOVING if name != "pointwise"])
@pytest.mark.parametrize("channels", [3, 24])
def test_a_depthwise_convolution_over_images_of_any_size(lab: Lab, name: str, channels: int) -> None:
    shape, heights, widths, _ = MOVING[name]
    shape = replace(shape, heights=heights, widths=widths)
    w, bias = normal(channels, 1, *shape.kernel), normal(channels)
    for point in depthwise_points(shape, channels, lab.cpu)[:2]:
        params = DepthwiseParams(
            batch=Param(0), window=shape, channels=channels, point=point, avx512=lab.cpu.has_avx512,
            extents=extents_of(shape), epilogue=(WithTensor(Combine.ADD),),
        )  # fmt: skip
        source = depthwise(params)
        for one, values in sizes_of(shape):
            x = normal(2, one.height, one.width, channels)
            exact, size = golden(x, w, bias, one, channels)
            residual, y = normal(*exact.shape), np.full(exact.shape, np.nan, dtype=np.float32)
            lab.run(source, [x, residual, y, pack_depthwise(w), bias], params=values, parts=2)
            bound = (w[0].size + 2) * 2.0**-24 * (size + np.abs(residual))
            assert np.all(np.abs(y - (exact + residual)) <= bound), one


def test_a_narrow_convolution_over_images_of_any_size(lab: Lab) -> None:
    shape = replace(window(7, 9, (3, 3), stride=(1, 2), pads=SAME), heights=range(1, 30), widths=range(2, 30))
    params = NarrowParams(
        batch=Param(0), window=shape, channels_in=20, channels_out=2, point=narrow_rule(shape, 20, lab.cpu),
        avx512=lab.cpu.has_avx512, extents=extents_of(shape),
    )  # fmt: skip
    w, bias = normal(2, 20, 3, 3), normal(2)
    source = narrow(params)
    for one, values in sizes_of(shape):
        x = normal(2, one.height, one.width, 20)
        exact, size = golden(x, w, bias, one, 1)
        y = np.full(exact.shape, np.nan, dtype=np.float32)
        arrays = [x, y, pack_narrow(w, params), pack_narrow_vector(bias, params)]
        lab.run(source, arrays, params=values, parts=2)
        assert np.all(np.abs(y - exact) <= (w[0].size + 1) * 2.0**-24 * size), one


def test_every_point_of_a_convolution_gives_the_same_bits(lab: Lab) -> None:
    case = Case(1, window(6, 13, (3, 3), pads=SAME), 6, 40)
    x, w, bias = normal(1, 6, 13, 6), normal(40, 6, 3, 3), normal(40)
    points = [p for p in conv_points(case.window, 40, 1, lab.cpu) if p.contraction is Contraction.FUSED]
    digests = set()
    for point in (points[0], points[-1]):
        params = ConvParams(
            batch=1, window=case.window, channels_in=6, channels_out=40, point=point, avx512=lab.cpu.has_avx512
        )
        digests.add(run_conv(lab, case, params, x, w, bias).tobytes())
    assert len(digests) == 1


def test_a_convolution_reads_and_writes_slices_of_wider_tensors_and_runs_its_epilogue(lab: Lab) -> None:
    shape = window(4, 5, (3, 3), pads=SAME)
    steps: Epilogue = (ScaleShift(), WithTensor(Combine.ADD), Activate(Activation.HARD_SWISH))
    params = ConvParams(
        batch=1, window=shape, channels_in=6, channels_out=10, point=conv_rule(shape, 10, 1, lab.cpu),
        avx512=lab.cpu.has_avx512, epilogue=steps, x_stride=9, x_offset=2, y_stride=16, y_offset=3,
    )  # fmt: skip
    x, w, bias, scale, shift = normal(1, 4, 5, 9), normal(10, 6, 3, 3), normal(10), normal(10), normal(10)
    residual, y = normal(1, 4, 5, 10), np.full((1, 4, 5, 16), 5.0, dtype=np.float32)
    vectors = [pack_conv_vector(v, params) for v in (bias, scale, shift)]
    lab.run(conv(params), [x, residual, y, pack_conv(w, params), *vectors])
    exact, _ = golden(np.ascontiguousarray(x[..., 2:8]), w, bias, shape, 1)
    exact = exact * scale + shift + residual
    exact = exact * np.clip(exact / 6 + 0.5, 0, 1)
    assert np.allclose(y[..., 3:13], exact, rtol=1e-4, atol=1e-5)
    assert np.all(y[..., :3] == 5.0) and np.all(y[..., 13:] == 5.0)


def test_padding_taps_are_dropped_so_that_infinite_inputs_stay_where_they_are(lab: Lab) -> None:
    shape = window(5, 5, (3, 3), pads=SAME)
    case = Case(1, shape, 3, 4)
    params = ConvParams(
        batch=1, window=shape, channels_in=3, channels_out=4, point=conv_rule(shape, 4, 1, lab.cpu),
        avx512=lab.cpu.has_avx512,
    )  # fmt: skip
    x, w, bias = np.zeros((1, 5, 5, 3), dtype=np.float32), np.abs(normal(4, 3, 3, 3)), normal(4)
    x[0, 0, 0, 1], x[0, 4, 4, 2] = np.inf, np.nan
    y = run_conv(lab, case, params, x, w, bias)
    assert np.isposinf(y[0, :2, :2]).all() and np.isnan(y[0, 3:, 3:]).all()
    assert np.isfinite(y[0, 2, 2]).all() and np.isfinite(y[0, 0, 4]).all()


@pytest.mark.parametrize(
    ("shape", "channels", "parts"),
    [
        (window(7, 9, (3, 3), pads=SAME), 5, 3),
        (window(6, 6, (3, 3), stride=(2, 2), pads=SAME), 3, 1),
        (window(8, 9, (5, 3), stride=(2, 1), pads=(2, 0, 1, 4), dilation=(2, 2)), 20, 2),
        (window(10, 10, (5, 5), pads=(2, 2, 2, 2)), 48, 1),
    ],
)
def test_depthwise_convolution(lab: Lab, shape: Window, channels: int, parts: int) -> None:
    x, w, bias = normal(2, shape.height, shape.width, channels), normal(channels, 1, *shape.kernel), normal(channels)
    exact, size = golden(x, w, bias, shape, channels)
    residual = normal(*exact.shape)
    digests = set()
    points = depthwise_points(shape, channels, lab.cpu)
    assert points[0] == depthwise_rule(shape, channels, lab.cpu)
    for point in points[:3]:
        params = DepthwiseParams(
            batch=Param(0), window=shape, channels=channels, point=point, avx512=lab.cpu.has_avx512,
            epilogue=(WithTensor(Combine.ADD), Activate(Activation.RELU)),
        )  # fmt: skip
        y = np.full(exact.shape, np.nan, dtype=np.float32)
        lab.run(depthwise(params), [x, residual, y, pack_depthwise(w), bias], params=(2,), parts=parts)
        bound = (w[0].size + 2) * 2.0**-24 * (size + np.abs(residual))
        assert np.all(np.abs(y - np.maximum(exact + residual, 0)) <= bound)
        digests.add(y.tobytes())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("shape", "cin", "cout"),
    [
        (window(7, 7, (3, 3), pads=SAME), 20, 2),
        (window(5, 5, (2, 2), stride=(2, 2)), 3, 1),
        (window(6, 7, (1, 1)), 48, 4),
    ],
)
def test_narrow_convolution(lab: Lab, shape: Window, cin: int, cout: int) -> None:
    params = NarrowParams(
        batch=2, window=shape, channels_in=cin, channels_out=cout, point=narrow_rule(shape, cin, lab.cpu),
        avx512=lab.cpu.has_avx512, epilogue=(Activate(Activation.SIGMOID),), y_stride=cout + 1, y_offset=1,
    )  # fmt: skip
    x, w, bias = normal(2, shape.height, shape.width, cin), normal(cout, cin, *shape.kernel), normal(cout)
    exact, _ = golden(x, w, bias, shape, 1)
    y = np.full((*exact.shape[:3], cout + 1), 3.0, dtype=np.float32)
    lab.run(narrow(params), [x, y, pack_narrow(w, params), pack_narrow_vector(bias, params)], parts=2)
    assert np.allclose(y[..., 1:], 1 / (1 + np.exp(-exact)), rtol=2e-5, atol=1e-7)
    assert np.all(y[..., 0] == 3.0)


TRANSPOSED = [
    # height, width, cin, cout, kernel, stride, pads, dilation, output padding
    (5, 7, 6, 5, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), (0, 0)),
    (5, 7, 6, 5, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1)),
    (4, 5, 6, 20, (4, 3), (2, 3), (1, 0, 0, 1), (1, 2), (0, 0)),
    (3, 3, 3, 4, (2, 2), (3, 3), (0, 0, 0, 0), (1, 1), (0, 0)),
]


def upward_golden(x: F32, w: F32, bias: F32, params: TransposedParams) -> F64:
    """A transposed convolution in float64, by scattering."""
    batch, height, width, _ = x.shape
    (kh, kw), (sh, sw), (dh, dw), extra = params.kernel, params.stride, params.dilation, params.output_padding
    rows, columns = sh * (height - 1) + (kh - 1) * dh + 1 + extra[0], sw * (width - 1) + (kw - 1) * dw + 1 + extra[1]
    full = np.zeros((batch, rows, columns, w.shape[1]))
    for i in range(kh):
        for j in range(kw):
            target = full[:, i * dh : i * dh + sh * (height - 1) + 1 : sh, j * dw : j * dw + sw * (width - 1) + 1 : sw]
            target += x.astype(np.float64) @ w[:, :, i, j]
    top, left, bottom, right = params.pads
    return full[:, top : rows - bottom, left : columns - right] + bias


@pytest.mark.parametrize("case", TRANSPOSED)
def test_a_transposed_convolution_over_images_of_any_size(
    lab: Lab,
    case: tuple[
        int,
        int,
        int,
        int,
        tuple[int, int],
        tuple[int, int],
        tuple[int, int, int, int],
        tuple[int, int],
        tuple[int, int],
    ],
) -> None:
    height, width, cin, cout, kernel, stride, pads, dilation, extra = case
    params = TransposedParams(
        batch=Param(0), height=height, width=width, channels_in=cin, channels_out=cout, kernel=kernel, stride=stride,
        pads=pads, dilation=dilation, output_padding=extra, avx512=lab.cpu.has_avx512,
        point=transposed_rule(None, cout, kernel, kernel == stride and pads == (0, 0, 0, 0), lab.cpu),
        epilogue=(WithTensor(Combine.ADD),), widths=range(2, 60), extents=PLACES,
    )  # fmt: skip
    w, bias = normal(cin, cout, *kernel), normal(cout)
    source = transposed(params)
    for size in ((2, 59), (3, 2), (height, width), (1, 14), (9, 30)):
        x = normal(2, *size, cin)
        exact = upward_golden(x, w, bias, params)
        residual, y = normal(*exact.shape), np.full(exact.shape, np.nan, dtype=np.float32)
        arrays = [x, residual, y, pack_transposed(w, params), pack_transposed_vector(bias, params)]
        lab.run(source, arrays, params=(2, *size, *exact.shape[1:3]), parts=3)
        assert np.allclose(y, exact + residual, rtol=1e-4, atol=1e-4), size


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution(
    lab: Lab,
    case: tuple[
        int,
        int,
        int,
        int,
        tuple[int, int],
        tuple[int, int],
        tuple[int, int, int, int],
        tuple[int, int],
        tuple[int, int],
    ],
) -> None:
    height, width, cin, cout, kernel, stride, pads, dilation, extra = case
    merged = kernel == stride and pads == (0, 0, 0, 0)
    params = TransposedParams(
        batch=2, height=height, width=width, channels_in=cin, channels_out=cout, kernel=kernel, stride=stride,
        pads=pads, dilation=dilation, output_padding=extra, avx512=lab.cpu.has_avx512,
        point=transposed_rule(width, cout, kernel, merged, lab.cpu),
        epilogue=(ScaleShift(), WithTensor(Combine.ADD)),
    )  # fmt: skip
    assert params.merged == merged
    x, w, bias, scale, shift = normal(2, height, width, cin), normal(cin, cout, *kernel), *(normal(cout) for _ in "abc")
    exact = upward_golden(x, w, bias, params)
    residual = normal(*exact.shape)
    y = np.full(exact.shape, np.nan, dtype=np.float32)
    vectors = [pack_transposed_vector(v, params) for v in (bias, scale, shift)]
    lab.run(transposed(params), [x, residual, y, pack_transposed(w, params), *vectors], parts=3)
    assert np.allclose(y, exact * scale + shift + residual, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("height", "width", "cin", "cout", "pads"),
    [(9, 7, 8, 11, SAME), (6, 6, 16, 16, (0, 1, 2, 0)), (12, 20, 32, 48, SAME)],
)
def test_winograd_convolution(
    lab: Lab, height: int, width: int, cin: int, cout: int, pads: tuple[int, int, int, int]
) -> None:
    shape = Window(height=height, width=width, kernel=(3, 3), pads=pads)
    rule = winograd_rule(shape.out_height, shape.out_width, cin, cout, lab.cpu)
    x, w, bias = normal(2, height, width, cin), normal(cout, cin, 3, 3), normal(cout)
    exact, _ = golden(x, w, bias, shape, 1)
    rms = np.sqrt((exact**2).mean())
    for rows in {rule.tile_rows, max(1, ceil_div(shape.out_height, 2) - 1)}:
        params = WinogradParams(
            batch=2, height=height, width=width, channels_in=cin, channels_out=cout, pads=pads,
            point=replace(rule, tile_rows=rows, mr=5), avx512=lab.cpu.has_avx512,
            epilogue=(Activate(Activation.RELU),),
        )  # fmt: skip
        source: KernelSource = winograd(params)
        y = np.full(exact.shape, np.nan, dtype=np.float32)
        lab.run(source, [x, y, pack_winograd(w, params), pack_winograd_vector(bias, params)], parts=2)
        assert np.abs(y - np.maximum(exact, 0)).max() < 2e-6 * rms * np.sqrt(cin)
