"""Digests of generated code: addresses are replaced, constants that look like addresses are not."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from tribunus_onednn.generated import PAGE, Mapping, without_addresses

RUN = 0x7F12_3456_7000
LIBRARY = Mapping(0x7F12_4000_0000, 0x7F12_5000_0000, True, "/lib/libdnnl.so", 0x7F12_4000_0000)
HEAP = Mapping(0x5512_0000_0000, 0x5512_1000_0000, False, "", 0)
MAPPINGS = (HEAP, Mapping(RUN, RUN + 2 * PAGE, True, "", 0), LIBRARY)
LOADS = b"\x48\xb8"  # mov rax, imm64


def _run(before: bytes, value: int, position: int) -> bytes:
    data = before + struct.pack("<Q", value)
    return bytes(position - len(before)) + data + b"\x90" * (2 * PAGE - position - 8)


def _masked(data: bytes, moved: int = 0) -> bytes:
    mappings = tuple(
        replace(m, start=m.start + moved, end=m.end + moved, base=m.base and m.base + moved) for m in MAPPINGS
    )
    return without_addresses(RUN + moved, data, mappings, [m.start for m in mappings])


@pytest.mark.parametrize("target", [RUN + 0x1234, LIBRARY.start + 0x1234, HEAP.start + 0x1234])
@pytest.mark.parametrize("position", [80, 83, PAGE + 8])
def test_a_loaded_address_is_replaced_by_what_every_process_has(target: int, position: int) -> None:
    moved = 0x1_2345_0000
    here, there = _run(LOADS, target, position), _run(LOADS, target + moved, position)
    assert here != there
    assert _masked(here) == _masked(there, moved) not in (here, there)


def test_addresses_of_different_things_stay_different() -> None:
    targets = (RUN + 8, RUN + 16, LIBRARY.start + 8, LIBRARY.start + 16, HEAP.start)
    assert len({_masked(_run(LOADS, target, 80)) for target in targets}) == len(targets)


def test_a_word_of_a_table_that_leads_into_the_run_is_replaced() -> None:
    moved = 0x1_2345_0000
    assert _masked(_run(b"", RUN + 64, 80)) == _masked(_run(b"", RUN + 64 + moved, 80), moved)


@pytest.mark.parametrize("value", [LIBRARY.start + 0x1234, HEAP.start + 0x1234])
def test_a_constant_that_leads_somewhere_by_chance_stays(value: int) -> None:
    """Whether it does depends on where this process maps things; its digest must not."""
    for position in (80, 83):
        data = _run(b"\x62\x7f", value, position)
        assert _masked(data) == data


def test_a_load_of_a_number_that_leads_nowhere_stays() -> None:
    data = _run(LOADS, 0x7F00_0000_7F00, 80)
    assert _masked(data) == data
