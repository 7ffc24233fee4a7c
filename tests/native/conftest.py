"""A place to build and call kernels: flat code mapped read+execute, arguments in memory that ends at a guard page."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.flat import FlatCode, build_flat
from tribunus_native.templates.csource import KernelSource
from tribunus_native.toolchain import Contraction, Cpu, Toolchain, Unavailable, find_toolchain

from tribunus.admission.flat_audit import audit_flat

PAGE = mmap.PAGESIZE
_READ, _WRITE, _EXECUTE = 1, 2, 4
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_FLAGS = {
    Cpu.X86_64_V3: {"avx2", "fma", "bmi2", "f16c", "abm", "movbe"},
    Cpu.ZNVER4: {"avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_vbmi2", "gfni", "sse4a"},
}

Array = npt.NDArray[np.generic]


def host_cpus() -> list[Cpu]:
    """Instruction sets of this machine that kernels can be run for, the widest first."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    flags = {word for line in text.splitlines() if line.startswith("flags") for word in line.split()}
    return [cpu for cpu in (Cpu.ZNVER4, Cpu.X86_64_V3) if _FLAGS[cpu] <= flags]


class Guarded:
    """Bytes that end right before a page that nobody may touch."""

    def __init__(self, libc: ctypes.CDLL, size: int) -> None:
        body = max(1, -(-size // PAGE)) * PAGE
        self._map = mmap.mmap(-1, body + PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if libc.mprotect(ctypes.c_void_p(base + body), ctypes.c_size_t(PAGE), 0):
            raise OSError("mprotect")
        self.bytes = np.frombuffer(self._map, dtype=np.uint8, count=size, offset=body - size)

    def holding(self, array: Array) -> Array:
        view = self.bytes.view(array.dtype).reshape(array.shape)
        view[...] = array
        return view


class Kernel:
    """One mapped kernel."""

    def __init__(self, libc: ctypes.CDLL, code: bytes) -> None:
        self._libc = libc
        self._map = mmap.mmap(-1, max(PAGE, -(-len(code) // PAGE) * PAGE))
        self._map.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(self._map)), _READ | _EXECUTE):
            raise OSError("mprotect")
        self._function = _ENTRY(address)

    def call(self, arrays: Sequence[Array], params: Sequence[int] = (), parts: int = 1) -> None:
        """Run every part on copies of ``arrays`` in guarded memory and copy all of them back."""
        kept = [Guarded(self._libc, array.nbytes) for array in arrays]
        views = [place.holding(array) for place, array in zip(kept, arrays, strict=True)]
        pointers = (ctypes.c_void_p * max(1, len(views)))(*[view.ctypes.data for view in views])
        values = (ctypes.c_int64 * max(1, len(params)))(*params)
        for part in range(parts):
            self._function(ctypes.addressof(pointers), ctypes.addressof(values), part, parts)
        for array, view in zip(arrays, views, strict=True):
            if array.flags.writeable:
                array[...] = view


class Lab:
    """Builds each distinct source once and runs it."""

    def __init__(self, toolchain: Toolchain, scratch: Path, cpus: list[Cpu]) -> None:
        self.toolchain = toolchain
        self.scratch = scratch
        self.cpus = cpus
        self.cpu = cpus[0]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._built: dict[tuple[str, Cpu, Contraction], Kernel] = {}

    def build(self, source: str, cpu: Cpu, contraction: Contraction = Contraction.FUSED) -> FlatCode:
        return build_flat(source, cpu, contraction, self.toolchain, self.scratch)

    def mapped(self, code: bytes) -> Kernel:
        return Kernel(self._libc, code)

    def kernel(self, source: KernelSource, cpu: Cpu, contraction: Contraction = Contraction.FUSED) -> Kernel:
        key = (source.text, cpu, contraction)
        if key not in self._built:
            flat = self.build(source.text, cpu, contraction)
            assert audit_flat(flat.code, flat.text_size, is_arm=not cpu.is_x86) == ()
            self._built[key] = self.mapped(flat.code)
        return self._built[key]

    def run(
        self,
        source: KernelSource,
        arrays: Sequence[Array],
        *,
        params: Sequence[int] = (),
        parts: int = 1,
        cpu: Cpu | None = None,
        contraction: Contraction = Contraction.FUSED,
    ) -> None:
        """Call with ``arrays`` in the order of ``source.buffers``; the workspace is added, filled with NaN."""
        size = source.workspace.bytes_for(tuple(params), parts)
        workspace = [np.full(size // 4, np.nan, dtype=np.float32)] if len(arrays) < len(source.buffers) else []
        everything = [*arrays, *workspace]
        assert len(everything) == len(source.buffers)
        self.kernel(source, cpu or self.cpu, contraction).call(everything, params, parts)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Skips, with the reason, where nothing can be compiled or run."""
    found = find_toolchain()
    if isinstance(found, Unavailable):
        pytest.skip(found.reason)
    cpus = host_cpus()
    if not cpus:
        pytest.skip("this machine has none of the instruction sets x86-64-v3, znver4")
    yield Lab(found, tmp_path_factory.mktemp("native"), cpus)
