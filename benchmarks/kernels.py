"""GFLOP/s of native kernels chosen by the rule, beside numpy's BLAS in the same run, on one thread.

Run: python -m benchmarks.kernels          (needs the packages ziglang, threadpoolctl; takes about 10 s)
Imports: tribunus_native.  Imported by: nothing.

A sample is the thread CPU time of as many calls as take about 5 ms (a single call is shorter than the clock's grain);
the figure is the best of the samples, kernels and baseline interleaved.  Buffers are hot.
"""

from __future__ import annotations

import ctypes
import mmap
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import threadpoolctl
from tribunus_native.flat import FlatCode, build_flat
from tribunus_native.match.quantized_batch import scratch_bytes
from tribunus_native.templates.attention import AttentionParams, Mask, Operand, attention, attention_rule
from tribunus_native.templates.conv import ConvParams, Extents, Window, conv, conv_rule
from tribunus_native.templates.csource import KernelSource, Param
from tribunus_native.templates.depthwise import DepthwiseParams, depthwise, depthwise_rule
from tribunus_native.templates.gemm import GemmParams, gemm, gemm_rule
from tribunus_native.templates.integer_dot import Byte, Result, quantized_rule
from tribunus_native.templates.quantized import QuantizedParams, quantized
from tribunus_native.templates.quantized_batch import BatchAxis, QuantizedBatchParams, quantized_batch
from tribunus_native.templates.winograd import WinogradParams, winograd, winograd_rule
from tribunus_native.toolchain import Contraction, Cpu, Toolchain, require_toolchain

from tribunus.errors import NoExecError, TargetError
from tribunus.phaseir import dims

SAMPLE_NS = 5_000_000
SAMPLES = 25
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Buffer = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Problem:
    """One kernel.  operations: multiply and add count apart.  sizes: bytes of each buffer but the workspace."""

    name: str
    source: KernelSource
    operations: int
    sizes: tuple[int, ...]
    params: tuple[int, ...] = ()
    baseline: Callable[[], object] | None = None


def host_cpu() -> Cpu:
    """The widest instruction set of this machine that kernels are built for here."""
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    if {"avx512f", "avx512_vnni", "avx512_bf16", "avx512_vbmi2", "gfni", "sse4a"} <= words:
        return Cpu.ZNVER4
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= words:
        return Cpu.X86_64_V4
    if {"avx2", "fma", "bmi2"} <= words:
        return Cpu.X86_64_V3
    raise TargetError("these measurements need an x86-64 machine with AVX2", remedy="run them on another machine")


def product(rows: int, n: int, k: int, cpu: Cpu, *, symbolic: bool) -> Problem:
    size = Param(0) if symbolic else rows
    params = GemmParams(rows=size, n=n, k=k, point=gemm_rule(size, n, k, cpu), avx512=cpu.has_avx512)
    rng = np.random.default_rng(0)
    x, w = rng.random((rows, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)
    out = np.empty((rows, n), dtype=np.float32)
    padded = params.panels.padded
    return Problem(
        name=f"gemm {rows}x{n}x{k}{' symbolic rows' if symbolic else ''}",
        source=gemm(params),
        operations=2 * rows * n * k,
        sizes=(4 * rows * k, 4 * rows * n, 4 * padded * k, 4 * padded),
        params=(rows,),
        baseline=lambda: np.matmul(x, w, out=out),
    )


def of_any_size(window: Window, symbolic: bool) -> tuple[Window, Extents | None]:
    """A window over images of half to twice the size, known at the call; or the window as it is."""
    if not symbolic:
        return window, None
    heights, widths = (range(side // 2, 2 * side + 1, max(1, side // 8)) for side in (window.height, window.width))
    places = [Param(i) for i in range(5)]
    extents = Extents(
        height=places[0], width=places[1], out_height=places[2], out_width=places[3], pixels=places[4]
    )  # fmt: skip
    return replace(window, heights=heights, widths=widths), extents


def _size(window: Window, symbolic: bool) -> str:
    return f"{window.height}x{window.width}" + (" symbolic" if symbolic else "")


def params_of(window: Window) -> tuple[int, ...]:
    """What a kernel of ``of_any_size`` is called with."""
    return window.height, window.width, window.out_height, window.out_width, window.height * window.width


def convolution(window: Window, cin: int, cout: int, cpu: Cpu, *, symbolic: bool = False) -> Problem:
    found, extents = of_any_size(window, symbolic)
    point = conv_rule(found, cout, 1, cpu)
    params = ConvParams(
        batch=1, window=found, channels_in=cin, channels_out=cout, point=point, avx512=cpu.has_avx512, extents=extents
    )
    pixels, taps = window.out_height * window.out_width, window.kernel[0] * window.kernel[1]
    padded = params.panels.padded
    size = "x".join(map(str, window.kernel))
    return Problem(
        name=f"conv {size} s{window.stride[0]} {cin}->{cout} at {_size(window, symbolic)}",
        source=conv(params),
        operations=2 * pixels * taps * cin * cout,
        sizes=(4 * window.height * window.width * cin, 4 * pixels * cout, 4 * padded * taps * cin, 4 * padded),
        params=params_of(window),
    )


def depthwise_convolution(window: Window, channels: int, cpu: Cpu, *, symbolic: bool = False) -> Problem:
    found, extents = of_any_size(window, symbolic)
    point = depthwise_rule(found, channels, cpu)
    params = DepthwiseParams(
        batch=1, window=found, channels=channels, point=point, avx512=cpu.has_avx512, extents=extents
    )
    pixels, taps = window.out_height * window.out_width, window.kernel[0] * window.kernel[1]
    size = "x".join(map(str, window.kernel))
    return Problem(
        name=f"depthwise {size} s{window.stride[0]} {channels} at {_size(window, symbolic)}",
        source=depthwise(params),
        operations=2 * pixels * taps * channels,
        sizes=(4 * window.height * window.width * channels, 4 * pixels * channels, 4 * taps * channels, 4 * channels),
        params=params_of(window),
    )


def winograd_convolution(side: int, cin: int, cout: int, cpu: Cpu) -> Problem:
    params = WinogradParams(
        batch=1, height=side, width=side, channels_in=cin, channels_out=cout, pads=(1, 1, 1, 1),
        point=winograd_rule(side, side, cin, cout, cpu), avx512=cpu.has_avx512,
    )  # fmt: skip
    padded = params.panels.padded
    return Problem(
        name=f"winograd 3x3 {cin}->{cout} at {side}x{side} (direct count)",
        source=winograd(params),
        operations=2 * side * side * 9 * cin * cout,
        sizes=(4 * side * side * cin, 4 * side * side * cout, 64 * padded * cin, 4 * padded),
    )


def self_attention(length: int, heads: int, size: int, cpu: Cpu) -> Problem:
    width = heads * size
    operands = [Operand(stride=3 * width, head=size, offset=i * width) for i in range(3)]
    params = AttentionParams(
        batch=1, heads=heads, head_size=size, queries=length, keys=length, scale=size**-0.5, q=operands[0],
        k=operands[1], v=operands[2], y=Operand(stride=width, head=size), mask=Mask.NONE,
        point=attention_rule(length, length, size, cpu), avx512=cpu.has_avx512,
    )  # fmt: skip
    joint = 4 * 3 * length * width
    return Problem(
        name=f"attention {heads}x{size}, {length} tokens",
        source=attention(params),
        operations=4 * length * length * width,
        sizes=(joint, joint, joint, 4 * length * width),
    )


def integer_product(rows: int, n: int, k: int, cpu: Cpu) -> Problem:
    params = QuantizedParams(
        rows=rows, n=n, k=k, x_byte=Byte.U8, x_offset=False, result=Result.INT32, point=quantized_rule(rows, n, cpu),
        avx512=cpu.has_avx512,
    )  # fmt: skip
    padded = params.panels.padded
    return Problem(
        name=f"int8 gemm {rows}x{n}x{k} ({params.point.dot.name.lower()})",
        source=quantized(params),
        operations=2 * rows * n * k,
        sizes=(rows * k, 4 * rows * n, 2 * padded * params.depth, 4 * padded),
    )


def integer_batch(items: int, rows: int, n: int, k: int, cpu: Cpu) -> Problem:
    point = quantized_rule(rows, n, cpu)
    params = QuantizedBatchParams(
        batch=(BatchAxis(extent=items, x=True, w=True),), rows=rows, n=n, k=k, x_byte=Byte.U8, w_byte=Byte.U8,
        transposed=False, y_byte=Byte.U8, scratch=dims.evaluate(scratch_bytes(n, k, point), {}), point=point,
        avx512=cpu.has_avx512,
    )  # fmt: skip
    return Problem(
        name=f"int8 {items} of {rows}x{n}x{k}, packed at the call",
        source=quantized_batch(params),
        operations=2 * items * rows * n * k,
        sizes=(items * rows * k, items * k * n, items * rows * n, 16),
    )


def problems(cpu: Cpu) -> tuple[Problem, ...]:
    """What is measured, in the order of the table."""
    same = (1, 1, 1, 1)

    def window(side: int, kernel: int, stride: int = 1) -> Window:
        pad = kernel // 2
        return Window(
            height=side, width=side, kernel=(kernel, kernel), stride=(stride, stride), pads=(pad, pad, pad, pad)
        )

    halved = Window(height=26, width=26, kernel=(3, 3), stride=(2, 2), pads=same)
    return (
        product(1024, 1024, 1024, cpu, symbolic=False),
        product(128, 1536, 384, cpu, symbolic=False),
        product(128, 1536, 384, cpu, symbolic=True),
        product(32, 384, 384, cpu, symbolic=False),
        product(32, 384, 384, cpu, symbolic=True),
        convolution(window(56, 3), 64, 64, cpu),
        convolution(window(80, 3), 96, 24, cpu),
        convolution(window(80, 3), 96, 24, cpu, symbolic=True),
        convolution(window(7, 3), 256, 256, cpu),
        convolution(halved, 192, 384, cpu),
        convolution(window(224, 7, 2), 3, 64, cpu),
        convolution(Window(height=20, width=20, kernel=(1, 1)), 192, 192, cpu),
        depthwise_convolution(window(80, 3), 48, cpu),
        depthwise_convolution(window(20, 5), 192, cpu),
        depthwise_convolution(window(20, 5), 192, cpu, symbolic=True),
        winograd_convolution(56, 64, 64, cpu),
        self_attention(128, 12, 32, cpu),
        self_attention(128, 12, 64, cpu),
        integer_product(400, 384, 384, cpu),
        integer_batch(6, 400, 400, 64, cpu),
        integer_batch(6, 400, 64, 400, cpu),
    )


def aligned(size: int) -> Buffer:
    """Zero bytes at a multiple of 64."""
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


class Mapped:
    """Flat code in memory that can be read and run."""

    def __init__(self, flat: FlatCode) -> None:
        self._map = mmap.mmap(-1, -(-len(flat.code) // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._map.write(flat.code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(self._map)), 5):
            raise NoExecError("memory could not be made executable")
        self._entry = _ENTRY(address)

    def caller(self, buffers: Sequence[Buffer], params: Sequence[int]) -> Callable[[], object]:
        """A call without arguments; the tables live in it."""
        table = (ctypes.c_void_p * len(buffers))(*[buffer.ctypes.data for buffer in buffers])
        values = (ctypes.c_int64 * max(1, len(params)))(*params)
        entry, first, second = self._entry, ctypes.addressof(table), ctypes.addressof(values)

        def call(keep: tuple[object, ...] = (self, table, values, tuple(buffers))) -> object:
            return entry(first, second, 0, 1)

        return call


def sample_ns(call: Callable[[], object], repeats: int) -> float:
    start = time.thread_time_ns()
    for _ in range(repeats):
        call()
    return (time.thread_time_ns() - start) / repeats


def best_ns(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Best sample of each call, the calls interleaved."""
    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, int(SAMPLE_NS / max(sample_ns(call, 3), 200.0))))
    best = [float("inf")] * len(calls)
    for _ in range(SAMPLES):
        for index, call in enumerate(calls):
            best[index] = min(best[index], sample_ns(call, repeats[index]))
    return best


def measure(problem: Problem, cpu: Cpu, toolchain: Toolchain, scratch: Path) -> str:
    """One line of the table."""
    flat = build_flat(problem.source.text, cpu, Contraction.FUSED, toolchain, scratch)
    sizes = list(problem.sizes)
    if len(sizes) < len(problem.source.buffers):
        sizes.append(problem.source.workspace.bytes_for(problem.params, 1))
    call = Mapped(flat).caller([aligned(size) for size in sizes], problem.params)
    calls = [call] if problem.baseline is None else [call, problem.baseline]
    times = best_ns(calls)
    line = f"{problem.name:44s} {times[0] / 1e3:10.1f} us {problem.operations / times[0]:8.1f}"
    if len(times) > 1:
        line += f" {problem.operations / times[1]:10.1f}"
    return line


def main() -> None:
    """Print the table."""
    toolchain, cpu = require_toolchain(), host_cpu()
    blas = ", ".join(f"{p['internal_api']} {p.get('architecture', '')}" for p in threadpoolctl.threadpool_info())
    print(f"zig {toolchain.version}, {cpu.value}, one thread, best of {SAMPLES} samples of thread CPU time; {blas}")
    print(f"{'kernel':44s} {'time':>13s} {'GFLOP/s':>8s} {'numpy':>10s}")
    with (
        tempfile.TemporaryDirectory(prefix="tribunus-kernels-") as folder,
        threadpoolctl.threadpool_limits(limits=1),
    ):
        for problem in problems(cpu):
            print(measure(problem, cpu, toolchain, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
