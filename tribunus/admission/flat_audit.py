"""Static audit of flat code: proof by disassembly that it holds no instruction that reaches outside its buffers.

Imported by: certification.  Imports: capstone, candidates.  It shares no code with the backend that built the bytes.

A kernel whose text has no system call, clock, random number, processor identity, mode register or port instruction is
a function of its buffers.  The sweep is linear from offset 0 to ``text_size``; constants follow there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import capstone

from tribunus.candidates.model import Artifact

FLAT: Final = "flat"
_X86_FORBIDDEN: Final = frozenset(
    [
        "syscall",
        "sysenter",
        "sysexit",
        "sysret",
        "int",
        "int1",
        "into",
        "iret",
        "iretd",
        "iretq",
        "rdtsc",
        "rdtscp",
        "rdpmc",
        "rdpid",
        "rdpru",
        "rdrand",
        "rdseed",
        "cpuid",
        "xgetbv",
        "xsetbv",
        "ldmxcsr",
        "vldmxcsr",
        "fxrstor",
        "fxrstor64",
        "xrstor",
        "xrstor64",
        "xrstors",
        "fldcw",
        "fldenv",
        "frstor",
        "fninit",
        "finit",
        "in",
        "insb",
        "insw",
        "insd",
        "out",
        "outsb",
        "outsw",
        "outsd",
        "rdmsr",
        "wrmsr",
        "rdfsbase",
        "rdgsbase",
        "wrfsbase",
        "wrgsbase",
        "swapgs",
        "hlt",
        "cli",
        "sti",
        "lcall",
        "ljmp",
        "retf",
        "retfq",
        "vmcall",
        "vmmcall",
        "monitor",
        "mwait",
        "monitorx",
        "mwaitx",
        "xbegin",
        "xabort",
        "lgdt",
        "lidt",
        "sgdt",
        "sidt",
        "sldt",
        "str",
        "smsw",
        "invlpg",
        "clts",
        "wbinvd",
        "invd",
    ]
)
_JUMPS: Final = re.compile(r"j\w+|call|loop\w*")
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|[0-9]")
"""Targets below 10 are printed without a prefix."""
_ARM_FORBIDDEN: Final = frozenset(
    [
        "svc",
        "hvc",
        "smc",
        "brk",
        "hlt",
        "mrs",
        "msr",
        "sys",
        "sysl",
        "at",
        "tlbi",
        "ic",
        "eret",
        "drps",
        "blr",
        "br",
        "wfe",
        "wfi",
        "wfet",
        "wfit",
    ]
)
_GROUP_FEATURES: Final = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "fc16": "f16c",
    "avx512": "avx512f",
    "bwi": "avx512bw",
    "dqi": "avx512dq",
    "vlx": "avx512vl",
    "cdi": "avx512cd",
    "pfi": "avx512pf",
    "eri": "avx512er",
}
"""Names of capstone's instruction groups, and the processor feature that each stands for."""
_FUSED: Final = ("vfmadd", "vfmsub", "vfnmadd", "vfnmsub")
"""Beginnings of fused operations, which capstone puts into no group."""
_WORD_FEATURES: Final = {
    "lzcnt": "abm",
    "movbe": "movbe",
    "vpdpbusd": "avx512_vnni",
    "vpdpbusds": "avx512_vnni",
    "vpdpwssd": "avx512_vnni",
    "vdpbf16ps": "avx512_bf16",
    "vcvtne2ps2bf16": "avx512_bf16",
    "vcvtneps2bf16": "avx512_bf16",
    "vpermi2b": "avx512vbmi",
    "vpermb": "avx512vbmi",
    "vpermt2b": "avx512vbmi",
    "tdpbssd": "amx_int8",
    "tdpbf16ps": "amx_bf16",
}


def audit_artifact(artifact: Artifact) -> tuple[str, ...]:
    """Offending instructions of flat code, as ``+0x1f: rdtsc``; empty if there are none.

    Other formats have no machine code of ours to look at: a library recipe is bound to digests instead.
    """
    if artifact.code.format != FLAT:
        return ()
    return audit_flat(artifact.code.data, artifact.code.fact("text_size"), is_arm=_is_arm(artifact))


def features_used(artifact: Artifact) -> frozenset[str]:
    """Processor features beyond the baseline that flat code uses; empty for other formats and for aarch64."""
    if artifact.code.format != FLAT or _is_arm(artifact):
        return frozenset()
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = True
    engine.skipdata = True
    found: set[str] = set()
    for instruction in engine.disasm(artifact.code.data[: artifact.code.fact("text_size")], 0):
        if instruction.id == 0:
            continue
        for group in instruction.groups:
            feature = _GROUP_FEATURES.get(str(instruction.group_name(group)))
            if feature is not None:
                found.add(feature)
        word = _WORD_FEATURES.get(instruction.mnemonic)
        if word is not None:
            found.add(word)
        if instruction.mnemonic.startswith(_FUSED):
            found.add("fma")
        if "zmm" in instruction.op_str or "{" in instruction.op_str:
            found.add("avx512f")
    return frozenset(found)


def audit_flat(code: bytes, text_size: int, *, is_arm: bool) -> tuple[str, ...]:
    """Offending instructions among the first ``text_size`` bytes, in order.

    Bytes that do not decode are offences too: an unknown encoding would hide what follows it.  So are jumps into the
    middle of an instruction, where another one may hide, or out of the code.
    """
    return tuple(_offences(code, text_size, is_arm))


def _offences(code: bytes, text_size: int, is_arm: bool) -> Iterator[str]:
    if is_arm:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.skipdata = True
    starts: set[int] = set()
    jumps: list[tuple[int, str, str]] = []
    for offset, size, mnemonic, operands in engine.disasm_lite(code[:text_size], 0):
        starts.add(offset)
        if not is_arm and _JUMPS.fullmatch(mnemonic.split()[-1]) and _NUMBER.fullmatch(operands):
            jumps.append((offset, mnemonic, operands))
        if mnemonic.startswith(".byte"):
            # aarch64 sections are padded with zero words between functions
            if not (is_arm and not any(code[offset : offset + size])):
                yield f"+{offset:#x}: bytes that are no instruction"
        elif _is_forbidden(mnemonic.split()[-1], operands, is_arm):
            yield f"+{offset:#x}: {mnemonic} {operands}".rstrip()
    for offset, mnemonic, operands in jumps:
        if int(operands, 0) not in starts:
            yield f"+{offset:#x}: {mnemonic} {operands} to no instruction"


def _is_forbidden(word: str, operands: str, is_arm: bool) -> bool:
    if is_arm:
        return word in _ARM_FORBIDDEN
    # Kernels are compiled without jump tables: every jump and call names its target.
    indirect = word in ("call", "jmp") and not _NUMBER.fullmatch(operands)
    return word in _X86_FORBIDDEN or indirect or "fs:" in operands or "gs:" in operands


def _is_arm(artifact: Artifact) -> bool:
    return any(name == "machine" and value == "aarch64" for name, value in artifact.code.facts)
