"""Disassembly of flat code: proof that it holds no instruction that reaches outside its buffers.

Imported by: the backend (static facts of a candidate), tests.  Imports: toolchain, capstone.

A kernel whose text has no system call, clock, random number, processor identity, mode register or port instruction
is a function of its buffers.  The sweep is linear from offset 0 and ends at ``text_size``: constants follow there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus.errors import ToolError
from tribunus_native.toolchain import Cpu

_X86_WORDS = """
    syscall sysenter sysexit sysret int int1 into iret iretd iretq rdtsc rdtscp rdpmc rdpid rdpru rdrand rdseed cpuid
    xgetbv xsetbv ldmxcsr vldmxcsr fxrstor fxrstor64 xrstor xrstor64 xrstors fldcw fldenv frstor fninit finit
    in insb insw insd out outsb outsw outsd rdmsr wrmsr rdfsbase rdgsbase wrfsbase wrgsbase swapgs hlt cli sti
    lcall ljmp retf retfq vmcall vmmcall monitor mwait monitorx mwaitx xbegin xabort lgdt lidt sgdt sidt sldt str smsw
    invlpg clts wbinvd invd
"""
_X86_FORBIDDEN = frozenset(_X86_WORDS.split())
# System registers a kernel could read time or identity from, or change rounding with: every mrs and msr is refused.
_ARM_WORDS = "svc hvc smc brk hlt mrs msr sys sysl at tlbi ic eret drps blr wfe wfi wfet wfit"
_ARM_FORBIDDEN = frozenset(_ARM_WORDS.split())
_TRANSFERS = frozenset({"call", "jmp"})
_UNDECODED = "undecoded"


@dataclass(frozen=True, slots=True)
class Offence:
    """One instruction that a kernel must not contain."""

    offset: int  # bytes from the start of the code
    mnemonic: str
    operands: str

    def __str__(self) -> str:
        return f"+{self.offset:#x}: {self.mnemonic} {self.operands}".rstrip()


def forbidden_instructions(code: bytes, text_size: int, cpu: Cpu) -> tuple[Offence, ...]:
    """Every offending instruction of the first ``text_size`` bytes, in order; empty means that the audit passed.

    Bytes that do not decode are offences too, or an unknown encoding would hide what follows it.
    Raises ToolError where capstone is not installed.
    """
    try:
        import capstone  # here, so that the backend imports without it and can say that it is missing
    except ImportError as missing:
        raise ToolError(
            "the disassembler capstone is not installed", remedy="pip install 'tribunus-compute[native]'"
        ) from missing
    if cpu.is_x86:
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    engine.skipdata = True
    found: list[Offence] = []
    for offset, size, mnemonic, operands in engine.disasm_lite(code[:text_size], 0):
        reason = _offence(cpu, mnemonic, operands, code[offset : offset + size])
        if reason:
            found.append(Offence(offset, reason, operands))
    return tuple(found)


def _offence(cpu: Cpu, mnemonic: str, operands: str, raw: bytes) -> str:
    """The mnemonic to report, or an empty string."""
    word = mnemonic.split()[-1]  # drops prefixes such as "rep" and "lock"
    if mnemonic.startswith(".byte"):
        # zeros between functions: the padding of an aarch64 section, undefined if ever reached
        return "" if not cpu.is_x86 and not any(raw) else _UNDECODED
    if cpu.is_x86:
        # Jump tables jump through a register; nothing calls through one, and nothing transfers through memory.
        far = word in _TRANSFERS and ("ptr [" in operands or (word == "call" and not operands.startswith("0x")))
        segment = "fs:" in operands or "gs:" in operands
        return mnemonic if word in _X86_FORBIDDEN or far or segment else ""
    return mnemonic if word in _ARM_FORBIDDEN else ""
