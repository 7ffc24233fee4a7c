"""The static audit of flat code, on bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.admission.samples import artifact
from tribunus.admission.flat_audit import audit_artifact, audit_flat, features_used
from tribunus.plan.code import Code, CodeFormat

RET = b"\xc3"
CLEAN: dict[str, bytes] = {
    "nothing": RET,
    "padding": RET + b"\xcc" * 15 + RET,
    "jump over": b"\xeb\x02\x90\x90" + RET,
    "call inside": b"\xe8\x01\x00\x00\x00" + RET + RET,
    "loop": b"\x90\xeb\xfd" + RET,
    "store": b"\x89\x07" + RET,
    "vector": b"\xc5\xf4\x58\xc2" + RET,
}
FOUL: dict[str, tuple[bytes, str]] = {
    "system call": (b"\x0f\x05" + RET, "syscall"),
    "old system call": (b"\xcd\x80" + RET, "int"),
    "time stamp": (b"\x0f\x31" + RET, "rdtsc"),
    "random": (b"\x0f\xc7\xf0" + RET, "rdrand"),
    "identity": (b"\x0f\xa2" + RET, "cpuid"),
    "rounding mode": (b"\x0f\xae\x10" + RET, "ldmxcsr"),
    "thread memory": (b"\x64\x48\x8b\x04\x25\x00\x00\x00\x00" + RET, "mov"),
    "jump through a register": (b"\xff\xe0", "jmp"),
    "call through a register": (b"\xff\xd0" + RET, "call"),
    "jump through memory": (b"\xff\x20", "jmp"),
    "no instruction": (b"\x06" + RET, "no instruction"),
    "system call in a number": (b"\xeb\x01\xb8\x0f\x05\x90\x90" + RET, "to no instruction"),
    "branch into an instruction": (b"\x74\x01\xb8\x0f\x05\x90\x90" + RET, "to no instruction"),
    "jump out of the code": (b"\xe9\x00\x10\x00\x00" + RET, "to no instruction"),
    "jump before the code": (b"\xeb\x80" + RET, "to no instruction"),
}


@pytest.mark.parametrize("name", CLEAN)
def test_code_that_stays_inside_is_clean(name: str) -> None:
    assert audit_flat(CLEAN[name], len(CLEAN[name]), is_arm=False) == ()


@pytest.mark.parametrize("name", FOUL)
def test_what_reaches_outside_is_named_with_its_place(name: str) -> None:
    code, word = FOUL[name]
    (found, *_) = audit_flat(code, len(code), is_arm=False)
    assert found.startswith("+0x0: ")
    assert word in found
    behind = audit_flat(b"\x90\x90" + code, len(code) + 2, is_arm=False)
    assert behind[0].startswith("+0x2: ")


def test_constants_behind_the_text_are_no_code() -> None:
    code = RET + b"\x0f\x05"
    assert audit_flat(code, 1, is_arm=False) == ()
    assert audit_flat(code, 3, is_arm=False) != ()


def test_aarch64_has_words_of_its_own() -> None:
    ret, svc, zeros = b"\xc0\x03\x5f\xd6", b"\x01\x00\x00\xd4", bytes(4)
    assert audit_flat(ret + zeros + ret, 12, is_arm=True) == ()
    (found,) = audit_flat(ret + svc, 8, is_arm=True)
    assert "svc" in found


def test_other_formats_are_not_disassembled() -> None:
    other = replace(artifact(), code=Code(CodeFormat("numpy"), b"\x0f\x05"))
    assert audit_artifact(other) == ()
    assert features_used(other) == frozenset()


@pytest.mark.parametrize(
    ("code", "feature"),
    [
        (b"\xc5\xf4\x58\xc2", "avx"),
        (b"\xc5\xf5\xfe\xc2", "avx2"),
        (b"\xc4\xe2\x75\xb8\xc2", "fma"),
        (b"\x62\xf1\x74\x48\x58\xc2", "avx512f"),
        (b"\x62\xf2\x75\x48\x50\xc2", "avx512_vnni"),
    ],
)
def test_instruction_sets_are_told_by_their_instructions(code: bytes, feature: str) -> None:
    made = replace(artifact(), code=Code(CodeFormat("flat"), code + RET, (("text_size", len(code) + 1),)))
    assert feature in features_used(made)
    plain = replace(artifact(), code=Code(CodeFormat("flat"), RET, (("text_size", 1),)))
    assert features_used(plain) == frozenset()
