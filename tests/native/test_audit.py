"""The audit says no to every planted instruction and yes to the same code without it."""

from __future__ import annotations

import pytest
from tribunus_native.toolchain import Cpu

from tribunus.admission.flat_audit import audit_flat

from .conftest import Lab
from .test_flat import HEAD

TWIN = HEAD + 'int64_t *y = buffers[0]; y[0] = part * 3; __asm__ volatile("@"); y[1] = parts; }'


@pytest.mark.parametrize(
    "instruction",
    ["rdtsc", "rdtscp", "cpuid", "syscall", "int $0x80", "rdrand %rax", "rdseed %rax", "xgetbv",
     "ldmxcsr (%rsp)", "outb %al, %dx", "call *%rax", "call *(%rax)", "movq %fs:0, %rax"],
)  # fmt: skip
def test_a_planted_instruction_is_found(lab: Lab, instruction: str) -> None:
    source = TWIN.replace("@", instruction)
    flat = lab.build(source, Cpu.X86_64_V3)
    found = audit_flat(flat.code, flat.text_size, is_arm=False)
    assert len(found) == 1
    assert instruction.split()[0][:3] in found[0]
    assert 0 < int(found[0].split(":")[0], 16) < flat.text_size


def test_the_twin_without_it_passes(lab: Lab) -> None:
    flat = lab.build(TWIN.replace("@", "nop"), Cpu.X86_64_V3)
    assert audit_flat(flat.code, flat.text_size, is_arm=False) == ()


@pytest.mark.parametrize("instruction", ["svc #0", "mrs x9, cntvct_el0", "msr fpcr, x9", "blr x9"])
def test_a_planted_arm_instruction_is_found(lab: Lab, instruction: str) -> None:
    flat = lab.build(TWIN.replace("@", instruction), Cpu.AARCH64)
    found = audit_flat(flat.code, flat.text_size, is_arm=True)
    assert [offence.split()[1] for offence in found] == [instruction.split()[0]]
    clean = lab.build(TWIN.replace("@", "nop"), Cpu.AARCH64)
    assert audit_flat(clean.code, clean.text_size, is_arm=True) == ()


def test_constants_after_the_text_are_not_read_as_instructions(lab: Lab) -> None:
    flat = lab.build(TWIN.replace("@", "nop"), Cpu.X86_64_V3)
    with_data = flat.code + bytes(-len(flat.code) % 64) + b"\x0f\x05\x0f\x31"  # syscall, rdtsc as data
    assert audit_flat(with_data, flat.text_size, is_arm=False) == ()
    assert len(audit_flat(with_data, len(with_data), is_arm=False)) == 2


def test_bytes_that_do_not_decode_are_offences() -> None:
    offences = audit_flat(b"\x90\x06\x90", 3, is_arm=False)
    assert offences and offences[0].startswith("+0x1: bytes that are no instruction")
