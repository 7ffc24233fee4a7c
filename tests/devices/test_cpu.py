"""The processor as a device: pages that are never writable and executable, memory, control word, features."""

from __future__ import annotations

import ctypes
import hashlib
import os
from pathlib import Path

import capstone
import pytest

from tribunus.devices import cpu
from tribunus.devices.machine_code import MACHINE_CODE, RECORD_ADDRESS_BYTES, machine_code
from tribunus.errors import DeviceError, FeatureError, IntegrityError

_ENGINES = {
    "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
}
X86 = os.uname().machine == "x86_64"


def permissions(address: int) -> str:
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        start, _, end = line.split()[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            return line.split()[1]
    return ""


def walk_code() -> bytes:
    code = machine_code()
    assert code is not None
    return code.walk


def test_loaded_code_is_readable_and_executable_and_never_writable() -> None:
    code = cpu.ExecutableBytes(walk_code(), hashlib.sha256(walk_code()).hexdigest())
    address = code.address
    assert permissions(address) == "r-xp"
    assert ctypes.string_at(address, len(walk_code())) == walk_code()
    assert address % cpu.CODE_ALIGN == 0
    code.close()
    code.close()
    assert permissions(address) != "r-xp"


def test_code_of_another_digest_is_refused() -> None:
    with pytest.raises(IntegrityError, match="code changed"):
        cpu.ExecutableBytes(walk_code(), hashlib.sha256(b"other").hexdigest())


@pytest.mark.parametrize("align", [1, 64, 4096, 1 << 16, 1 << 21])
def test_an_arena_is_aligned_zeroed_and_writable(align: int) -> None:
    arena = cpu.Arena(1000, align)
    assert arena.address % align == 0
    assert bytes(arena.view) == bytes(1000)
    arena.view[999] = 7
    assert ctypes.string_at(arena.address + 999, 1) == b"\7"
    arena.close()
    arena.close()


def test_an_arena_of_odd_alignment_or_impossible_size_is_refused() -> None:
    with pytest.raises(DeviceError, match="power of two"):
        cpu.Arena(10, 48)
    with pytest.raises(DeviceError, match="cannot be mapped"):
        cpu.Arena(1 << 62)


def test_steps_run_in_order_and_as_often_as_they_say() -> None:
    calls: list[tuple[int, int, int, int]] = []
    note = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(lambda a, b, c, d: calls.append((a, b, c, d)))
    entry = ctypes.cast(note, ctypes.c_void_p).value or 0
    steps = [(entry, 1, 2, 3, -4, 2), (entry, 9, 9, 9, 9, 0), (entry, 5, 6, 7, 1 << 62, 1)]
    cpu.Walker().run(cpu.Steps(cpu.encode_steps(steps)))
    assert calls == [(1, 2, 3, -4), (1, 2, 3, -4), (5, 6, 7, 1 << 62)]


def test_arithmetic_here_is_ieee() -> None:
    assert cpu.is_ieee(cpu.Walker().control_word())


@pytest.mark.skipif(not X86, reason="MXCSR is a register of x86-64")
def test_a_control_word_that_a_step_leaks_is_reported_and_restored() -> None:
    flush = cpu.ExecutableBytes(bytes.fromhex("0fae17c3"))  # ldmxcsr [rdi]; ret
    word = ctypes.c_uint32(0x9FC0)
    walker = cpu.Walker()
    steps = cpu.Steps(cpu.encode_steps([(flush.address, ctypes.addressof(word), 0, 0, 0, 1)]))
    before, after = walker.run(steps)
    assert cpu.is_ieee(before)
    assert after == 0x9FC0
    assert not cpu.is_ieee(after)
    assert cpu.is_ieee(walker.control_word())
    flush.close()


def test_missing_features_are_named() -> None:
    cpu.require_features(sorted(cpu.cpu_features())[:3])
    with pytest.raises(FeatureError, match="lacks amx-ninety, sse-nine"):
        cpu.require_features(["sse-nine", "amx-ninety"])


def test_features_whose_registers_are_not_saved_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = frozenset(("xsave", "sse2", "avx", "avx2", "fma", "avx512f", "amx_tile"))
    monkeypatch.setattr(cpu, "cpu_flags", lambda: flags)
    for saved, kept in (
        (0b111, {"avx", "avx2", "fma"}),
        (0b11, set()),
        (0b11100111, {"avx", "avx2", "fma", "avx512f"}),
    ):
        monkeypatch.setattr(cpu, "xcr0", lambda _, saved=saved: saved)
        assert cpu.cpu_features() == {"xsave", "sse2"} | kept


def test_a_thread_can_be_pinned_to_a_usable_processor_only() -> None:
    before = os.sched_getaffinity(0)
    cpu.pin_thread(cpu.usable_cpus()[-1])
    assert cpu.usable_cpus() == (max(before),)
    os.sched_setaffinity(0, before)
    with pytest.raises(DeviceError, match="cannot run on processor 9999"):
        cpu.pin_thread(9999)


@pytest.mark.parametrize("machine", sorted(MACHINE_CODE))
def test_machine_code_is_what_its_comments_say(machine: str) -> None:
    """Every instruction decodes, and control only leaves by ret (and by the calls that walk makes)."""
    engine = capstone.Cs(*_ENGINES[machine])
    code = MACHINE_CODE[machine]
    source = (Path(cpu.__file__).parent / "machine_code.py").read_text(encoding="utf-8")
    for name in ("walk", "barrier", "recorder", "xcr0"):
        data: bytes = getattr(code, name)
        data = data[:-RECORD_ADDRESS_BYTES] if name == "recorder" else data
        decoded = list(engine.disasm(data, 0))
        assert sum(i.size for i in decoded) == len(data), name
        for instruction in decoded:
            text = f"{instruction.mnemonic} {instruction.op_str}".strip()
            if text != "int3":
                assert f'"{instruction.bytes.hex()}"  # {instruction.address:02x}: {text}' in source
        calls = [i for i in decoded if i.mnemonic in ("call", "blr", "bl", "syscall", "svc")]
        assert len(calls) == (1 if name == "walk" else 0)
