"""What a child gives up before it calls foreign code: privileges, files, environment, core dumps, system calls.

Imported by: child, zygote, fresh.  Imports: ctypes, devices.  No NumPy.

This contains faults; it is no wall against a hostile image, which the signature check keeps out.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Sequence
from typing import Final

from tribunus.devices.cpu import PROT_READ, PROT_WRITE, ExecutableBytes, System, host_machine_code
from tribunus.devices.machine_code import RECORD_ADDRESS_BYTES

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER: Final = 2

_LOAD, _JEQ, _JGE, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000
_NUMBER, _ARCHITECTURE, _ADDRESS_LOW, _ADDRESS_HIGH = 0, 4, 8, 12

# read write close poll mmap mprotect munmap brk rt_sigprocmask rt_sigreturn sched_yield mremap madvise sendto recvfrom
# sendmsg recvmsg exit getrusage futex restart_syscall clock_gettime exit_group
_ALLOWED: Final[dict[str, tuple[int, tuple[int, ...]]]] = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 7, 9, 10, 11, 12, 14, 15, 24, 25, 28, 44, 45, 46, 47, 60, 98, 202, 219, 228, 231),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 73, 222, 226, 215, 214, 135, 139, 124, 216, 233, 206, 207, 211, 212, 93, 165, 98, 128, 113, 94),
    ),
}

FATAL_SIGNALS: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP)
_SA_SIGINFO, _SA_ONSTACK, _SA_RESETHAND = 4, 0x08000000, 0x80000000
_ALTERNATE_STACK_BYTES: Final = 1 << 16


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends; ends at once if it already has."""
    System().library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def give_up(keep: Sequence[int], *, memory_bytes: int, cpu_seconds: int, keep_environment: bool) -> None:
    """Close all descriptors but ``keep`` (standard streams become the null device), set limits, drop privileges."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        if stream not in keep:
            os.dup2(null, stream)
    previous = 2
    for descriptor in sorted({*keep}):
        if descriptor > 2:
            os.closerange(previous + 1, descriptor)
            previous = descriptor
    os.closerange(previous + 1, 1 << 16)
    if not keep_environment:
        os.environ.clear()
        System().library.clearenv()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_AS, memory_bytes)
    _lower(resource.RLIMIT_CPU, cpu_seconds)
    _lower(resource.RLIMIT_NOFILE, 256)
    _lower(resource.RLIMIT_FSIZE, 0)
    System().library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (bound, bound))


def forbid_system_calls(code: Sequence[tuple[int, int]]) -> bool:
    """From here on this process dies of any system call but the few that serving needs.

    code: (address, bytes) of foreign code, from where no system call at all is allowed.  Returns whether the platform
    could install the filter.
    """
    machine = _ALLOWED.get(os.uname().machine)
    if machine is None:
        return False
    architecture, numbers = machine
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_JEQ, 1, 0, architecture), (_RETURN, 0, 0, _KILL_PROCESS)]
    for address, size in code:
        for start, end in _within_words(address, address + size):
            program += [
                (_LOAD, 0, 0, _ADDRESS_HIGH),
                (_JEQ, 0, 4, start >> 32),
                (_LOAD, 0, 0, _ADDRESS_LOW),
                (_JGE, 0, 2, start & 0xFFFFFFFF),
                (_JGE, 1, 0, min(end - (start >> 32 << 32), 0xFFFFFFFF)),
                (_RETURN, 0, 0, _KILL_PROCESS),
            ]
    program.append((_LOAD, 0, 0, _NUMBER))
    program += [(_JEQ, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    program += [(_RETURN, 0, 0, _KILL_PROCESS), (_RETURN, 0, 0, _ALLOW)]
    data = b"".join(struct.pack("<HBBI", *row) for row in program)
    kept = ctypes.create_string_buffer(data, len(data))
    header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(kept)))
    prctl = System().library.prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    return bool(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header), 0, 0) == 0)


def _within_words(start: int, end: int) -> list[tuple[int, int]]:
    """The range cut where the upper half of its addresses changes."""
    parts = []
    while start < end:
        stop = min(end, ((start >> 32) + 1) << 32)
        parts.append((start, stop))
        start = stop
    return parts


class FaultRecorder:
    """Signal handlers in machine code that note where a fault happened, then let the signal kill the process.

    They run on a stack of their own, so that an overflowing stack is recorded too.  Keep the object alive.
    """

    def __init__(self, record: int) -> None:
        """record: address of the shared bytes that the parent reads after a death."""
        template = host_machine_code().recorder
        self._code = ExecutableBytes(template[:-RECORD_ADDRESS_BYTES] + record.to_bytes(RECORD_ADDRESS_BYTES, "little"))
        system = System()
        stack = system.map(_ALTERNATE_STACK_BYTES, PROT_READ | PROT_WRITE, 0x22)
        alternate = ctypes.create_string_buffer(struct.pack("<QixxxxQ", stack, 0, _ALTERNATE_STACK_BYTES))
        system.library.sigaltstack(alternate, None)
        # struct sigaction of the C library: handler, 128 bytes of mask, flags, restorer
        flags = _SA_SIGINFO | _SA_ONSTACK | _SA_RESETHAND
        action = ctypes.create_string_buffer(struct.pack("<Q128sI4xQ", self._code.address, bytes(128), flags, 0))
        for number in FATAL_SIGNALS:
            system.library.sigaction(int(number), action, None)
