"""The audit says no to every planted instruction and yes to the same code without it."""

from __future__ import annotations

import pytest
from tribunus_native.audit import forbidden_instructions
from tribunus_native.toolchain import Cpu

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
    found = forbidden_instructions(flat.code, flat.text_size, Cpu.X86_64_V3)
    assert len(found) == 1
    assert instruction.split()[0][:3] in str(found[0])
    assert 0 < found[0].offset < flat.text_size


def test_the_twin_without_it_passes(lab: Lab) -> None:
    flat = lab.build(TWIN.replace("@", "nop"), Cpu.X86_64_V3)
    assert forbidden_instructions(flat.code, flat.text_size, Cpu.X86_64_V3) == ()


@pytest.mark.parametrize("instruction", ["svc #0", "mrs x9, cntvct_el0", "msr fpcr, x9", "blr x9"])
def test_a_planted_arm_instruction_is_found(lab: Lab, instruction: str) -> None:
    flat = lab.build(TWIN.replace("@", instruction), Cpu.AARCH64)
    found = forbidden_instructions(flat.code, flat.text_size, Cpu.AARCH64)
    assert [offence.mnemonic for offence in found] == [instruction.split()[0]]
    clean = lab.build(TWIN.replace("@", "nop"), Cpu.AARCH64)
    assert forbidden_instructions(clean.code, clean.text_size, Cpu.AARCH64) == ()


def test_constants_after_the_text_are_not_read_as_instructions(lab: Lab) -> None:
    flat = lab.build(TWIN.replace("@", "nop"), Cpu.X86_64_V3)
    with_data = flat.code + bytes(-len(flat.code) % 64) + b"\x0f\x05\x0f\x31"  # syscall, rdtsc as data
    assert forbidden_instructions(with_data, flat.text_size, Cpu.X86_64_V3) == ()
    assert len(forbidden_instructions(with_data, len(with_data), Cpu.X86_64_V3)) == 2


def test_bytes_that_do_not_decode_are_offences() -> None:
    offences = forbidden_instructions(b"\x90\x06\x90", 3, Cpu.X86_64_V3)
    assert offences and str(offences[0]).startswith("+0x1: undecoded")
