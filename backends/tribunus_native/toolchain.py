"""The C compiler of the native backend: where it is, which one it is, and how it is called.

Imported by: flat, and the backend (availability, receipts).  Imports: tribunus.errors.

The compiler is the ``zig`` binary of the ``ziglang`` package, called directly (the package's own launcher costs
50 ms a call).  Nothing here compiles; argv builders are pure, so that a receipt can repeat a build word for word.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from dataclasses import dataclass
from enum import Enum, unique
from pathlib import Path
from typing import NewType

from tribunus.errors import ToolError

CompilerDigest = NewType("CompilerDigest", str)  # lower-case hex SHA-256 of the zig binary

PACKAGE = "ziglang"


@unique
class Cpu(Enum):
    """Instruction set a kernel is compiled for; the value is the name used in plans and receipts."""

    X86_64_V3 = "x86-64-v3"
    X86_64_V4 = "x86-64-v4"
    ZNVER4 = "znver4"
    AARCH64 = "aarch64"
    NEOVERSE_V1 = "neoverse-v1"

    @property
    def is_x86(self) -> bool:
        return self in (Cpu.X86_64_V3, Cpu.X86_64_V4, Cpu.ZNVER4)

    @property
    def has_avx512(self) -> bool:
        return self in (Cpu.X86_64_V4, Cpu.ZNVER4)

    @property
    def has_vnni(self) -> bool:
        return self is Cpu.ZNVER4

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers, what bounds the accumulators of a tile."""
        return 16 if self is Cpu.X86_64_V3 else 32

    @property
    def native_lanes(self) -> int:
        """float32 lanes of one vector register."""
        if self.has_avx512:
            return 16
        return 8 if self is Cpu.X86_64_V3 else 4


# name the compiler knows, triple, code model flags
_MACHINE: dict[Cpu, tuple[str, str, tuple[str, ...]]] = {
    # Without the width flag a 512-bit vector type is silently split into two 256-bit halves on these two.
    Cpu.X86_64_V3: ("x86_64_v3", "x86_64-freestanding-none", ("-mno-red-zone",)),
    Cpu.X86_64_V4: ("x86_64_v4", "x86_64-freestanding-none", ("-mno-red-zone", "-mprefer-vector-width=512")),
    Cpu.ZNVER4: ("znver4", "x86_64-freestanding-none", ("-mno-red-zone", "-mprefer-vector-width=512")),
    # ADRP addresses are page-relative and break when code is copied to a place inside a page: tiny uses ADR.
    Cpu.AARCH64: ("generic", "aarch64-freestanding-none", ("-mcmodel=tiny",)),
    Cpu.NEOVERSE_V1: ("neoverse_v1", "aarch64-freestanding-none", ("-mcmodel=tiny",)),
}


@unique
class Contraction(Enum):
    """Whether ``a*b+c`` inside one expression becomes one fused operation.  It changes bits: part of every key."""

    FUSED = "on"
    SEPARATE = "off"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A usable compiler.  zig: absolute path.  digest: SHA-256 of that file."""

    zig: Path
    version: str
    digest: CompilerDigest


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why there is no compiler, in one sentence for people."""

    reason: str


def find_toolchain() -> Toolchain | Unavailable:
    """Locate the zig binary of the ziglang package, ask its version, hash it (about 0.2 s)."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return Unavailable(f"the Python package {PACKAGE} (the C compiler) is not installed")
    zig = Path(spec.origin).parent / "zig"
    if not zig.is_file():
        return Unavailable(f"the Python package {PACKAGE} holds no zig binary for this system")
    try:
        answer = subprocess.run([str(zig), "version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as failure:
        return Unavailable(f"the zig binary of {PACKAGE} does not run here: {failure}")
    with open(zig, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Toolchain(zig=zig, version=answer.stdout.strip(), digest=CompilerDigest(digest))


def require_toolchain() -> Toolchain:
    """As find_toolchain, for callers that cannot go on without.  Raises ToolError."""
    found = find_toolchain()
    if isinstance(found, Unavailable):
        raise ToolError(found.reason, remedy="pip install 'tribunus-compute[native]'")
    return found


def compile_argv(cpu: Cpu, contraction: Contraction) -> tuple[str, ...]:
    """Arguments after the zig binary that compile kernel.c to kernel.o, in the current folder."""
    name, triple, extra = _MACHINE[cpu]
    return (
        "cc", "-c", "-std=c23", "-O3", "-target", triple, f"-mcpu={name}", *extra,
        f"-ffp-contract={contraction.value}", "-fno-math-errno", "-fno-strict-aliasing",
        "-ffreestanding", "-fno-builtin", "-nostdlib", "-fPIC", "-fvisibility=hidden", "-ffunction-sections",
        "-fno-stack-protector", "-fno-sanitize=all", "-fno-jump-tables", "-g0",
        "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
        "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-const-variable", "-Wno-pass-failed",
        "-o", "kernel.o", "kernel.c",
    )  # fmt: skip


def link_argv() -> tuple[str, ...]:
    """Arguments after the zig binary that link kernel.o and rt.o to kernel.elf.

    ``-pie``: an absolute address then leaves a relocation, which the reader refuses; a static link would resolve it
    silently to a wrong address.
    """
    return (
        "ld.lld", "-T", "flat.ld", "-pie", "--no-dynamic-linker", "--no-undefined", "--gc-sections", "-nostdlib",
        "--build-id=none", "-o", "kernel.elf", "kernel.o", "rt.o",
    )  # fmt: skip


def compiler_environment(cache: Path) -> dict[str, str]:
    """The whole environment of a compiler run: nothing of the caller's leaks in, caches stay in one private folder."""
    place = str(cache)
    return {
        "ZIG_GLOBAL_CACHE_DIR": place, "ZIG_LOCAL_CACHE_DIR": place, "HOME": place, "TMPDIR": place,
        "PATH": "/usr/bin:/bin", "LC_ALL": "C",
    }  # fmt: skip
