"""Small machine code that this project calls directly, written by hand and disassembled beside its bytes.

Imported by: devices.cpu, tests.  Imports: nothing.

walk(steps, count, control): calls every step, a row of six 64-bit words (function, a0, a1, a2, a3, repeat), repeat
times in order, and stores the floating point control word before and after (control[0], control[1]), then restores it.
barrier(state, threads): a spinning barrier; state is two zeroed cache lines.
recorder(signal, siginfo, ucontext): a signal handler that writes signal, code, address, program counter and page fault
bits into the record whose address stands behind its instructions.
xcr0(): which register files the operating system saves.
"""

from __future__ import annotations

import os
from typing import Final

from tribunus.records import dataclass

_X86_WALK: Final = bytes.fromhex(
    "53"  # 00: push rbx
    "55"  # 01: push rbp
    "4154"  # 02: push r12
    "4155"  # 04: push r13
    "4156"  # 06: push r14
    "4157"  # 08: push r15
    "4883ec18"  # 0a: sub rsp, 0x18
    "4989fc"  # 0e: mov r12, rdi
    "4989f5"  # 11: mov r13, rsi
    "4989d6"  # 14: mov r14, rdx
    "410fae1e"  # 17: stmxcsr dword ptr [r14]
    "4d85ed"  # 1b: test r13, r13
    "7e30"  # 1e: jle 0x50
    "498b5c2428"  # 20: mov rbx, qword ptr [r12 + 0x28]
    "4885db"  # 25: test rbx, rbx
    "7e1d"  # 28: jle 0x47
    "498b7c2408"  # 2a: mov rdi, qword ptr [r12 + 8]
    "498b742410"  # 2f: mov rsi, qword ptr [r12 + 0x10]
    "498b542418"  # 34: mov rdx, qword ptr [r12 + 0x18]
    "498b4c2420"  # 39: mov rcx, qword ptr [r12 + 0x20]
    "41ff1424"  # 3e: call qword ptr [r12]
    "48ffcb"  # 42: dec rbx
    "ebde"  # 45: jmp 0x25
    "4983c430"  # 47: add r12, 0x30
    "49ffcd"  # 4b: dec r13
    "ebcb"  # 4e: jmp 0x1b
    "410fae5e08"  # 50: stmxcsr dword ptr [r14 + 8]
    "410fae16"  # 55: ldmxcsr dword ptr [r14]
    "4883c418"  # 59: add rsp, 0x18
    "415f"  # 5d: pop r15
    "415e"  # 5f: pop r14
    "415d"  # 61: pop r13
    "415c"  # 63: pop r12
    "5d"  # 65: pop rbp
    "5b"  # 66: pop rbx
    "c3"  # 67: ret
)

_X86_BARRIER: Final = bytes.fromhex(
    "488b4740"  # 00: mov rax, qword ptr [rdi + 0x40]
    "b901000000"  # 04: mov ecx, 1
    "f0480fc10f"  # 09: lock xadd qword ptr [rdi], rcx
    "48ffc1"  # 0e: inc rcx
    "4839f1"  # 11: cmp rcx, rsi
    "7409"  # 14: je 0x1f
    "f390"  # 16: pause
    "48394740"  # 18: cmp qword ptr [rdi + 0x40], rax
    "74f8"  # 1c: je 0x16
    "c3"  # 1e: ret
    "48c70700000000"  # 1f: mov qword ptr [rdi], 0
    "48ffc0"  # 26: inc rax
    "48894740"  # 29: mov qword ptr [rdi + 0x40], rax
    "c3"  # 2d: ret
)

_X86_XCR0: Final = bytes.fromhex(
    "31c9"  # 00: xor ecx, ecx
    "0f01d0"  # 02: xgetbv
    "48c1e220"  # 05: shl rdx, 0x20
    "4809d0"  # 09: or rax, rdx
    "c3"  # 0c: ret
)

_X86_RECORDER: Final = bytes.fromhex(
    "488b0529000000"  # 00: mov rax, qword ptr [rip + 0x29]
    "8938"  # 07: mov dword ptr [rax], edi
    "8b4e08"  # 09: mov ecx, dword ptr [rsi + 8]
    "894804"  # 0c: mov dword ptr [rax + 4], ecx
    "488b4e10"  # 0f: mov rcx, qword ptr [rsi + 0x10]
    "48894808"  # 13: mov qword ptr [rax + 8], rcx
    "488b8aa8000000"  # 17: mov rcx, qword ptr [rdx + 0xa8]
    "48894810"  # 1e: mov qword ptr [rax + 0x10], rcx
    "488b8ac0000000"  # 22: mov rcx, qword ptr [rdx + 0xc0]
    "48894818"  # 29: mov qword ptr [rax + 0x18], rcx
    "c3"  # 2d: ret
    "cccc"  # 2e: int3, int3
    "0000000000000000"  # 30: address of the record
)

_ARM_WALK: Final = bytes.fromhex(
    "fd7bbca9"  # 00: stp x29, x30, [sp, #-0x40]!
    "f35301a9"  # 04: stp x19, x20, [sp, #0x10]
    "f55b02a9"  # 08: stp x21, x22, [sp, #0x20]
    "fd030091"  # 0c: mov x29, sp
    "f30300aa"  # 10: mov x19, x0
    "f40301aa"  # 14: mov x20, x1
    "f50302aa"  # 18: mov x21, x2
    "09443bd5"  # 1c: mrs x9, fpcr
    "a90200f9"  # 20: str x9, [x21]
    "9f0200f1"  # 24: cmp x20, #0
    "ad010054"  # 28: b.le #0x5c
    "761640f9"  # 2c: ldr x22, [x19, #0x28]
    "df0200f1"  # 30: cmp x22, #0
    "ed000054"  # 34: b.le #0x50
    "680240a9"  # 38: ldp x8, x0, [x19]
    "610a41a9"  # 3c: ldp x1, x2, [x19, #0x10]
    "631240f9"  # 40: ldr x3, [x19, #0x20]
    "00013fd6"  # 44: blr x8
    "d60600d1"  # 48: sub x22, x22, #1
    "f9ffff17"  # 4c: b #0x30
    "73c20091"  # 50: add x19, x19, #0x30
    "940600d1"  # 54: sub x20, x20, #1
    "f3ffff17"  # 58: b #0x24
    "09443bd5"  # 5c: mrs x9, fpcr
    "a90600f9"  # 60: str x9, [x21, #8]
    "a90240f9"  # 64: ldr x9, [x21]
    "09441bd5"  # 68: msr fpcr, x9
    "f55b42a9"  # 6c: ldp x21, x22, [sp, #0x20]
    "f35341a9"  # 70: ldp x19, x20, [sp, #0x10]
    "fd7bc4a8"  # 74: ldp x29, x30, [sp], #0x40
    "c0035fd6"  # 78: ret
)

_ARM_BARRIER: Final = bytes.fromhex(
    "04000191"  # 00: add x4, x0, #0x40
    "82fcdfc8"  # 04: ldar x2, [x4]
    "03fc5fc8"  # 08: ldaxr x3, [x0]
    "63040091"  # 0c: add x3, x3, #1
    "03fc05c8"  # 10: stlxr w5, x3, [x0]
    "a5ffff35"  # 14: cbnz w5, #8
    "7f0001eb"  # 18: cmp x3, x1
    "c0000054"  # 1c: b.eq #0x34
    "3f2003d5"  # 20: yield
    "83fcdfc8"  # 24: ldar x3, [x4]
    "7f0002eb"  # 28: cmp x3, x2
    "a0ffff54"  # 2c: b.eq #0x20
    "c0035fd6"  # 30: ret
    "1f0000f9"  # 34: str xzr, [x0]
    "42040091"  # 38: add x2, x2, #1
    "82fc9fc8"  # 3c: stlr x2, [x4]
    "c0035fd6"  # 40: ret
)

_ARM_RECORDER: Final = bytes.fromhex(
    "43010058"  # 00: ldr x3, #0x28
    "600000b9"  # 04: str w0, [x3]
    "240840b9"  # 08: ldr w4, [x1, #8]
    "640400b9"  # 0c: str w4, [x3, #4]
    "240840f9"  # 10: ldr x4, [x1, #0x10]
    "640400f9"  # 14: str x4, [x3, #8]
    "44dc40f9"  # 18: ldr x4, [x2, #0x1b8]
    "640800f9"  # 1c: str x4, [x3, #0x10]
    "7f0c00f9"  # 20: str xzr, [x3, #0x18]
    "c0035fd6"  # 24: ret
    "0000000000000000"  # 28: address of the record
)

RECORD_ADDRESS_BYTES: Final = 8
"""The last bytes of ``recorder``: the address it writes to."""
RECORD_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The routines for one instruction set; empty bytes where one has no meaning there."""

    walk: bytes
    barrier: bytes
    recorder: bytes
    xcr0: bytes


MACHINE_CODE: Final[dict[str, MachineCode]] = {
    "x86_64": MachineCode(_X86_WALK, _X86_BARRIER, _X86_RECORDER, _X86_XCR0),
    "aarch64": MachineCode(_ARM_WALK, _ARM_BARRIER, _ARM_RECORDER, b""),
}


def machine_code() -> MachineCode | None:
    """The routines for this processor, None where there are none."""
    return MACHINE_CODE.get(os.uname().machine)
