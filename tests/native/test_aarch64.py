"""The same templates for aarch64, run under user-mode emulation from an address inside a page."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tribunus_native.match.quantized_batch import scratch_bytes
from tribunus_native.templates.csource import KernelSource, Param
from tribunus_native.templates.elementwise import MapParams, elementwise, map_rule
from tribunus_native.templates.epilogue import Activate, Activation, Epilogue
from tribunus_native.templates.gemm import GemmParams, gemm, gemm_rule, pack_gemm, pack_gemm_vector
from tribunus_native.templates.integer_dot import Byte, Result, quantized_rule
from tribunus_native.templates.quantized import QuantizedParams, pack_quantized, quantized
from tribunus_native.templates.quantized_batch import BatchAxis, QuantizedBatchParams, quantized_batch
from tribunus_native.toolchain import Cpu, compiler_environment

from tribunus.admission.flat_audit import audit_flat
from tribunus.phaseir.dims import Sym, evaluate

from .conftest import Array, Lab

EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
DRIVER = """
typedef long (*entry)(void *const *, const long *, long, long);
extern char code_start[];
@DECLARE
static long system_call(long number, long a, long b, long c) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
static void write_all(const char *from, long size) {
  while (size > 0) {
    long done = system_call(64, 1, (long)from, size);
    if (done <= 0) break;
    from += done;
    size -= done;
  }
}
void _start(void) {
  void *buffers[] = {@BUFFERS};
  long params[] = {@PARAMS 0};
  for (long part = 0; part < 2; part++) ((entry)(void *)code_start)(buffers, params, part, 2);
  @WRITE
  system_call(93, 0, 0, 0);
  for (;;) {}
}
__asm__(".section .text.blob,\\"ax\\"\\n.balign 4096\\n.space 768\\n.global code_start\\n"
        "code_start:\\n.incbin \\"code.bin\\"\\n"
        ".section .data\\n@DATA");
"""


def emulate(lab: Lab, source: KernelSource, arrays: Sequence[Array], params: Sequence[int], folder: Path) -> None:
    """Run on aarch64 in two parts; every array is copied back."""
    if EMULATOR is None:
        pytest.skip("qemu-aarch64-static is not installed: aarch64 kernels were built but not run")
    flat = lab.build(source.text, Cpu.AARCH64)
    assert audit_flat(flat.code, flat.text_size, is_arm=True) == ()
    (folder / "code.bin").write_bytes(flat.code)
    workspace = np.zeros(source.workspace.bytes_for(tuple(params), 2), dtype=np.uint8)
    everything = [*arrays, *([workspace] if len(arrays) < len(source.buffers) else [])]
    data = ""
    for index, array in enumerate(everything):
        (folder / f"b{index}.bin").write_bytes(array.tobytes())
        data += f'.balign 64\\n.global b{index}\\nb{index}: .incbin \\"b{index}.bin\\"\\n'
    names = [f"b{index}" for index in range(len(everything))]
    text = (
        DRIVER.replace("@DECLARE", "".join(f"extern char {name}[];" for name in names))
        .replace("@BUFFERS", ", ".join(names))
        .replace("@PARAMS", "".join(f"{value}, " for value in params))
        .replace("@WRITE", "".join(f"write_all({n}, {a.nbytes});" for n, a in zip(names, everything, strict=True)))
        .replace("@DATA", data)
    )
    (folder / "driver.c").write_text(text, encoding="utf-8")
    words = [
        "cc",
        "-target",
        "aarch64-linux-none",
        "-O1",
        "-ffreestanding",
        "-nostdlib",
        "-static",
        "-fno-sanitize=all",
    ]
    subprocess.run(
        [str(lab.toolchain.zig), *words, "-o", "driver", "driver.c"],
        cwd=folder, env=compiler_environment(lab.scratch / "cache"), check=True, capture_output=True,
    )  # fmt: skip
    answer = subprocess.run([EMULATOR, str(folder / "driver")], capture_output=True, check=True, timeout=60).stdout
    for array in everything:
        array[...] = np.frombuffer(answer[: array.nbytes], dtype=array.dtype).reshape(array.shape)
        answer = answer[array.nbytes :]
    assert not answer


def test_a_product_gives_the_bits_of_the_other_instruction_sets(lab: Lab, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows, n, k = 11, 37, 29
    x, w, bias = (rng.standard_normal(s).astype(np.float32) for s in ((rows, k), (k, n), (n,)))
    results = []
    for cpu in (Cpu.AARCH64, lab.cpu):
        point = gemm_rule(Param(0), n, k, cpu)
        steps: Epilogue = (Activate(Activation.RELU),)
        params = GemmParams(rows=Param(0), n=n, k=k, point=point, avx512=cpu.has_avx512, epilogue=steps)
        y = np.full((rows, n), np.nan, dtype=np.float32)
        arrays = [x, y, pack_gemm(w, params), pack_gemm_vector(bias, params)]
        if cpu is Cpu.AARCH64:
            emulate(lab, gemm(params), arrays, (rows,), tmp_path)
        else:
            lab.run(gemm(params), arrays, params=(rows,))
        results.append(y)
    assert np.array_equal(results[0], results[1])
    assert np.allclose(results[0], np.maximum(x.astype(np.float64) @ w + bias, 0), atol=1e-4)


def test_a_function_gives_the_bits_of_the_other_instruction_sets(lab: Lab, tmp_path: Path) -> None:
    x = np.concatenate([np.linspace(-20, 20, 2001), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -104, -87.5]]).astype(
        np.float32
    )
    steps: Epilogue = (Activate(Activation.SILU), Activate(Activation.TANH), Activate(Activation.EXP))
    results = []
    for cpu in (Cpu.AARCH64, lab.cpu):
        params = MapParams(rows=Param(0), channels=1, steps=steps, point=map_rule(1, steps, cpu), avx512=cpu.has_avx512)
        y = np.zeros_like(x)
        if cpu is Cpu.AARCH64:
            emulate(lab, elementwise(params), [x, y], (x.size,), tmp_path)
        else:
            lab.run(elementwise(params), [x, y], params=(x.size,))
        results.append(y)
    number = ~np.isnan(results[1])
    assert np.array_equal(np.isnan(results[0]), np.isnan(results[1]))
    assert np.array_equal(results[0][number].view(np.uint32), results[1][number].view(np.uint32))


def test_integer_sums_are_exact(lab: Lab, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, w = rng.integers(0, 256, (5, 21)).astype(np.uint8), rng.integers(-128, 128, (21, 19)).astype(np.int8)
    params = QuantizedParams(
        rows=5, n=19, k=21, x_byte=Byte.U8, x_offset=True, result=Result.INT32, avx512=False,
        point=quantized_rule(5, 19, Cpu.AARCH64),
    )  # fmt: skip
    packed = pack_quantized(w, 0, 9, None, params)
    y = np.zeros((5, 19), dtype=np.int32)
    emulate(lab, quantized(params), [x, y, packed.weights, packed.start], (), tmp_path)
    assert np.array_equal(y, (x.astype(np.int64) - 9) @ w.astype(np.int64))


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_two_quantized_inputs_are_exact(lab: Lab, tmp_path: Path, transposed: bool) -> None:
    rng = np.random.default_rng(5)
    items, rows, k, n = 3, 7, 21, 19
    x, w = (
        rng.integers(0, 256, (items, rows, k)).astype(np.uint8),
        rng.integers(-128, 128, (items, k, n)).astype(np.int8),
    )
    point = quantized_rule(rows, Param(0), Cpu.AARCH64)
    scratch = scratch_bytes(Sym("n"), k, point)
    params = QuantizedBatchParams(
        batch=(BatchAxis(extent=items, x=True, w=True),), rows=rows, n=Param(0), k=k, x_byte=Byte.U8, w_byte=Byte.S8,
        transposed=transposed, y_byte=Byte.U8, scratch=Param(1), point=point, avx512=False,
    )  # fmt: skip
    numbers = np.array([130, -5, 100, np.float32(2.0**-8).view(np.int32)], dtype=np.int32)
    stored = np.ascontiguousarray(np.swapaxes(w, 1, 2)) if transposed else w
    y = np.zeros((items, rows, n), dtype=np.uint8)
    sizes = (n, evaluate(scratch, {"n": n}))
    emulate(lab, quantized_batch(params), [x, stored, y, numbers], sizes, tmp_path)
    exact = (x.astype(np.int64) - 130) @ (w.astype(np.int64) + 5)
    assert np.array_equal(y, np.clip(np.rint(exact * 2.0**-8) + 100, 0, 255))
