"""The CPU as a device: executable mappings, aligned memory, processor features, control word, thread placement.

Imported by: runtime, isolation, backends' replay halves.  Imports: ctypes, errors, targets.detect.  No NumPy, so that
the children that run candidates stay small.

Code is copied from verified bytes into private anonymous memory, which is then made read-only and executable: no page
is ever writable and executable at once, and no file can change under a running kernel.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Final

from tribunus.devices.machine_code import MachineCode, machine_code
from tribunus.devices.replayer import Words
from tribunus.errors import DeviceError, FeatureError, IntegrityError, NoExecError
from tribunus.records import dataclass
from tribunus.targets.detect import cpu_flags

PAGE: Final = mmap.PAGESIZE
PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE, MAP_POPULATE = 1, 2, 0x10, 0x20, 0x4000, 0x8000
CODE_ALIGN: Final = 256
STEP_BYTES: Final = 48
_WORD: Final = (1 << 64) - 1
_MAP_FAILED: Final = ctypes.c_void_p(-1).value

_AVX_STATE: Final = 0b110
_AVX512_STATE: Final = 0b11100110
_AMX_STATE: Final = 0b11 << 17


@functools.cache
def _c_library() -> ctypes.CDLL:
    """The C library of this process; finding it anew costs as much as loading a kernel."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    ]  # fmt: skip
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


class System:
    """The few calls of the C library that this module needs, with their types."""

    def __init__(self) -> None:
        self.library = _c_library()
        self._mmap = self.library.mmap
        self._munmap = self.library.munmap
        self._mprotect = self.library.mprotect

    def map(self, size: int, protection: int, flags: int, *, at: int = 0, file: int = -1, offset: int = 0) -> int:
        """Address of a new mapping.  Raises DeviceError."""
        address = self._mmap(at or None, size, protection, flags, file, offset)
        if address is None or address == _MAP_FAILED:
            reason = os.strerror(ctypes.get_errno())
            raise DeviceError(f"{size} bytes cannot be mapped: {reason}", remedy="free memory or raise the limit")
        return int(address)

    def unmap(self, address: int, size: int) -> None:
        """Remove a mapping."""
        self._munmap(address, size)

    def protect(self, address: int, size: int, protection: int) -> bool:
        """Whether the pages could be given this protection."""
        return bool(self._mprotect(address, size, protection) == 0)

    def address_of(self, name: str) -> int:
        """Address of a function of the C library, to be called as a step."""
        return int(ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class ExecutableBytes:
    """A private, read-only, executable copy of code bytes; ``address`` is page aligned."""

    def __init__(self, data: bytes | memoryview, digest: str | None = None) -> None:
        """Copy, check against ``digest`` (hex SHA-256 of the copy, not of the source) if given, make executable.

        Raises NoExecError where the system forbids executable memory, IntegrityError where the digest differs.
        """
        self._system = System()
        self.size = _round_up(max(len(data), 1), PAGE)
        self.address = self._system.map(self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        target = memoryview((ctypes.c_ubyte * len(data)).from_address(self.address)).cast("B")
        target[:] = data
        self.view = target.toreadonly()
        if digest is not None:
            from tribunus.sha256 import sha256  # the children that run candidates hash nothing

            found = sha256(self.view).hex()
            if found != digest:
                self.close()
                raise IntegrityError(f"code changed while it was loaded: {found[:16]} instead of {digest[:16]}")
        if not self._system.protect(self.address, self.size, PROT_READ | PROT_EXEC):
            reason = os.strerror(ctypes.get_errno())
            self.close()
            raise NoExecError(f"the system refuses executable memory: {reason}")

    def close(self) -> None:
        """Unmap; nothing may be running in it."""
        if self.address:
            self.view = memoryview(b"")
            self._system.unmap(self.address, self.size)
            self.address = 0


class Arena:
    """Anonymous zeroed memory at an address that is a multiple of ``align``; ``view`` is the whole of it."""

    def __init__(self, size: int, align: int = PAGE) -> None:
        if align < 1 or align & (align - 1):
            raise DeviceError(f"alignment {align} is no power of two")
        self._system = System()
        slack = align if align > PAGE else 0
        self._mapped = _round_up(max(size, 1), PAGE) + slack
        self._start = self._system.map(self._mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        self.address = _round_up(self._start, align)
        self.size = size
        self.view = memoryview((ctypes.c_ubyte * size).from_address(self.address)).cast("B")

    def close(self) -> None:
        """Unmap; no view of it may be used afterwards."""
        if self._start:
            self.view.release()
            self._system.unmap(self._start, self._mapped)
            self._start = 0


Step = tuple[int, int, int, int, int, int]
"""(function, a0, a1, a2, a3, repeat): one row of a walk."""


def step_of(words: Words, repeat: int = 1) -> Step:
    """A launch's words as a step."""
    return (words.function, words.a0, words.a1, words.a2, words.a3, repeat)


def encode_steps(steps: Sequence[Step]) -> bytes:
    """Steps as the walker reads them."""
    words = [word & _WORD for step in steps for word in step]
    return struct.pack(f"={len(words)}Q", *words)


class Steps:
    """Encoded steps in memory that stays where it is."""

    def __init__(self, data: bytes) -> None:
        self.count = len(data) // STEP_BYTES
        self._kept = ctypes.create_string_buffer(data, max(1, len(data)))
        self.address = ctypes.addressof(self._kept)


class Walker:
    """Calls steps from machine code: nothing of Python runs between the first and the last.

    Raises DeviceError on construction where this processor's machine code is not known.
    """

    def __init__(self) -> None:
        routines = _routines()
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(routines.walk)
        self.barrier = routines.barrier

    def walk(self, address: int, count: int) -> tuple[int, int]:
        """Run ``count`` steps at ``address``; the control word before and after, restored in between."""
        control = (ctypes.c_uint64 * 2)()
        self._call(address, count, ctypes.addressof(control))
        return int(control[0]), int(control[1])

    def run(self, steps: Steps) -> tuple[int, int]:
        """Run all of ``steps``."""
        return self.walk(steps.address, steps.count)

    def control_word(self) -> int:
        """The floating point control word of this thread: MXCSR on x86-64, FPCR on aarch64."""
        return self.walk(0, 0)[0]


@dataclass(frozen=True, slots=True)
class _Routines:
    """This processor's routines in executable memory, by address."""

    memory: ExecutableBytes
    walk: int
    barrier: int
    xcr0: int


@functools.cache
def _routines() -> _Routines:
    """Mapped once for the process, and never unmapped.  Raises DeviceError, NoExecError."""
    code = host_machine_code()
    starts: list[int] = []
    data = b""
    for routine in (code.walk, code.barrier, code.xcr0):
        starts.append(len(data))
        data += routine.ljust(_round_up(len(routine), CODE_ALIGN), b"\0")
    memory = ExecutableBytes(data)
    return _Routines(memory, *[memory.address + start for start in starts])


def host_machine_code() -> MachineCode:
    """The routines for this processor.  Raises DeviceError."""
    code = machine_code()
    if code is None:
        raise DeviceError(f"no machine code for {os.uname().machine}", remedy="use an x86-64 or aarch64 machine")
    return code


IEEE_CONTROL: Final[dict[str, int]] = {"x86_64": 0x1F80, "aarch64": 0}
"""Control word of IEEE arithmetic: round to nearest even, no flush to zero, all exceptions masked, none raised."""
STICKY_BITS: Final = 0x3F if os.uname().machine == "x86_64" else 0
"""Bits of the control word that only record what happened; a kernel may set them."""


def is_ieee(control: int) -> bool:
    """Whether arithmetic under this control word is plain IEEE arithmetic."""
    return control & ~STICKY_BITS == IEEE_CONTROL.get(os.uname().machine, 0)


def xcr0(flags: frozenset[str]) -> int | None:
    """Register files that the operating system saves, as a bit mask; None where that has no meaning.

    flags: of this processor, as the operating system lists them.
    """
    code = machine_code()
    if code is None or not code.xcr0 or "osxsave" not in _implied(flags):
        return None
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(_routines().xcr0)())


def _implied(flags: frozenset[str]) -> frozenset[str]:
    """Linux does not list osxsave; a processor whose xsave it lists has it."""
    return flags | {"osxsave"} if "xsave" in flags else flags


def cpu_features() -> frozenset[str]:
    """Features that code may use here: the processor has them and the operating system saves their registers."""
    flags = cpu_flags()
    saved = xcr0(flags)
    if saved is None:
        return flags
    dropped = set()
    if saved & _AVX_STATE != _AVX_STATE:
        dropped |= {f for f in flags if f.startswith("avx") or f in ("fma", "f16c", "vaes", "vpclmulqdq")}
    if saved & _AVX512_STATE != _AVX512_STATE:
        dropped |= {f for f in flags if f.startswith("avx512")}
    if saved & _AMX_STATE != _AMX_STATE:
        dropped |= {f for f in flags if f.startswith("amx")}
    return flags - dropped


def require_features(needed: Sequence[str]) -> None:
    """Raises FeatureError, naming every feature that is missing here."""
    missing = sorted(set(needed) - cpu_features())
    if missing:
        raise FeatureError(f"this processor or its operating system lacks {', '.join(missing)}")


def usable_cpus() -> tuple[int, ...]:
    """Processors that this process may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def pin_thread(cpu: int) -> None:
    """Keep the calling thread on one processor.  Raises DeviceError."""
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as failure:
        raise DeviceError(f"cannot run on processor {cpu}: {failure.strerror}") from failure
