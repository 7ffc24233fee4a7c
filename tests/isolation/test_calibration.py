"""Calibration measures what this machine can do; the loops are what their comments say."""

from __future__ import annotations

import os
from pathlib import Path

import capstone
import pytest

from tribunus.devices.cpu import cpu_features
from tribunus.isolation import peak_loops
from tribunus.isolation.calibration import calibrate
from tribunus.isolation.peak_loops import PeakLoops
from tribunus.isolation.peak_loops import peak_loops as loops_for

_X86 = (capstone.CS_ARCH_X86, capstone.CS_MODE_64)
_ARM = (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
_MACHINES = [
    ("x86_64", frozenset(("avx2", "fma")), _X86),
    ("x86_64", frozenset(("avx2", "fma", "avx512f")), _X86),
    ("x86_64", frozenset(("avx2", "fma", "avx512f", "avx512_vnni")), _X86),
    ("aarch64", frozenset(("asimd",)), _ARM),
    ("aarch64", frozenset(("asimd", "asimddp")), _ARM),
]
_MULTIPLY = ("vfmadd231ps", "vpdpbusd", "vpmaddubsw", "fmla", "sdot", "smlal")


@pytest.mark.parametrize(("machine", "features", "engine"), _MACHINES)
def test_the_work_of_a_loop_is_what_its_instructions_do(
    machine: str, features: frozenset[str], engine: tuple[int, int]
) -> None:
    loops = loops_for(machine, features)
    assert isinstance(loops, PeakLoops)
    source = Path(peak_loops.__file__).read_text(encoding="utf-8")
    for loop in (loops.fma, loops.dot):
        decoded = list(capstone.Cs(*engine).disasm(loop.code, 0))
        assert sum(i.size for i in decoded) == len(loop.code)
        assert all(f'"{i.bytes.hex()}"  # {i.address:02x}: {i.mnemonic} {i.op_str}'.rstrip() in source for i in decoded)
        multiplies = [i for i in decoded if i.mnemonic in _MULTIPLY]
        first = multiplies[0]
        byte_wide = first.mnemonic not in ("vfmadd231ps", "fmla")
        register_bytes = 64 if "zmm" in first.op_str else 32 if "ymm" in first.op_str else 16
        register_bytes = 8 if first.mnemonic == "smlal" else register_bytes
        assert loop.work == 2 * len(multiplies) * register_bytes // (1 if byte_wide else 4)


def test_a_processor_without_the_instructions_has_no_loops() -> None:
    assert loops_for("x86_64", frozenset(("sse2",))) is None
    assert loops_for("riscv64", frozenset()) is None


@pytest.mark.skipif(loops_for(os.uname().machine, cpu_features()) is None, reason="no loops for this processor")
def test_this_machine_can_be_calibrated() -> None:
    before = os.sched_getaffinity(0)
    found = calibrate()
    peaks = found.peaks
    assert os.sched_getaffinity(0) == before
    assert peaks.flops > 0 and peaks.int8_ops > 0 and peaks.launch_ns >= 0
    sizes = [size for size, _ in peaks.bandwidth]
    assert sizes == sorted(set(sizes)) and len(sizes) >= 2
    assert peaks.evidence == found.digest
