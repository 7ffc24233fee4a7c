"""Code that the library generated in this process: where it lies, and digests that do not depend on the addresses.

Imported by: probe, replay.  Imports: ctypes.  Standard library only.

Generated code stands in private executable pages, each kernel from the start of a page.  Which kernels are neighbours
differs from process to process, so pages are digested one by one.  Where one holds the address of something, that
address is replaced: one in the same run of pages by its distance from this page, one in a mapped file by the offset
from the file's first byte, any other by a mark.  What is left is the same in every process.

Addresses stand in two places alone: as operands of an instruction that loads 64 bits, and, if they lead into the same
run, as words of its tables.  Constants of vectors look like addresses too (a run holds up to 68 of them), and once in a
thousand processes one would lead into something that is mapped there: they stay as they are.
"""

from __future__ import annotations

import bisect
import ctypes
import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = 4096
DIGEST_DIGITS: Final = 32
_MAPS: Final = Path("/proc/self/maps")
# A user space address on Linux: its two highest bytes are zero, the third is that of a stack, library or heap.
_ADDRESS: Final = rb".{5}[\x55\x56\x7e\x7f]\x00\x00"
# REX.W B8+r imm64 (Intel SDM volume 2, MOV).
_LOADED: Final = re.compile(rb"(?<=[\x48\x49][\xb8-\xbf])" + _ADDRESS, re.DOTALL)
_WORD: Final = re.compile(rb"(?=" + _ADDRESS + rb")", re.DOTALL)
_ADDRESS_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of the process's map.  base: address of the first byte of the same file; 0 for no file."""

    start: int
    end: int
    executable: bool
    file: str
    base: int


def read_mappings() -> tuple[Mapping, ...]:
    """Every mapping of this process, ascending."""
    found: list[Mapping] = []
    bases: dict[str, int] = {}
    for line in _MAPS.read_text(encoding="ascii", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        low, _, high = fields[0].partition("-")
        start, end = int(low, 16), int(high, 16)
        file = fields[5] if len(fields) > 5 and fields[5].startswith("/") else ""
        base = bases.setdefault(file, start) if file else 0
        found.append(Mapping(start, end, "x" in fields[1] and "r" in fields[1], file, base))
    return tuple(found)


def generated_ranges(mappings: Sequence[Mapping]) -> tuple[tuple[int, int], ...]:
    """Executable ranges that belong to no file, those of the kernel (vdso, at the end of the space) left out."""
    return tuple((m.start, m.end) for m in mappings if m.executable and not m.file and m.end < 1 << 47)


def new_code(before: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Sorted digests, each once, of the pages of generated code that stand outside ``before``."""
    mappings = read_mappings()
    starts = [m.start for m in mappings]
    digests: set[str] = set()
    for start, end in generated_ranges(mappings):
        for low, high in _without(start, end, before):
            for address, data in _runs(low, high):
                digests.update(_page_digests(address, data, mappings, starts))
    return tuple(sorted(digests))


def _without(start: int, end: int, others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    for low, high in sorted(others):
        if high <= start or low >= end:
            continue
        if low > start:
            parts.append((start, low))
        start = max(start, high)
    if start < end:
        parts.append((start, end))
    return parts


def _runs(start: int, end: int) -> list[tuple[int, bytes]]:
    """Runs of pages that are not zero."""
    found: list[tuple[int, bytes]] = []
    empty = bytes(PAGE)
    run: list[bytes] = []
    for address in range(start, end, PAGE):
        page = ctypes.string_at(address, PAGE)
        if page != empty:
            run.append(page)
            continue
        if run:
            found.append((address - PAGE * len(run), b"".join(run)))
            run = []
    if run:
        found.append((end - PAGE * len(run), b"".join(run)))
    return found


def _page_digests(address: int, data: bytes, mappings: Sequence[Mapping], starts: Sequence[int]) -> list[str]:
    """Digests of the pages of one run that begins at ``address``."""
    masked = without_addresses(address, data, mappings, starts)
    pages = (masked[start : start + PAGE] for start in range(0, len(masked), PAGE))
    return [hashlib.sha256(page).hexdigest()[:DIGEST_DIGITS] for page in pages]


def without_addresses(address: int, data: bytes, mappings: Sequence[Mapping], starts: Sequence[int]) -> bytes:
    """``data``, a run of pages that begins at ``address``, with addresses replaced; starts: those of the mappings."""
    masked = bytearray(data)
    for position in _table_words(address, data):
        _replace(masked, position, b"K", _value(data, position) - address - position // PAGE * PAGE)
    for match in _LOADED.finditer(data):
        position = match.start()
        value = _value(data, position)
        index = bisect.bisect_right(starts, value) - 1
        if index < 0 or value >= mappings[index].end:
            continue
        if address <= value < address + len(data):
            _replace(masked, position, b"K", value - address - position // PAGE * PAGE)
        elif mappings[index].file:
            _replace(masked, position, b"F", value - mappings[index].base)
        else:
            _replace(masked, position, b"A", 0)
    return bytes(masked)


def _table_words(address: int, data: bytes) -> list[int]:
    """Positions of aligned words that are addresses in the run itself."""
    found = (match.start() for match in _WORD.finditer(data))
    return [p for p in found if p % _ADDRESS_BYTES == 0 and address <= _value(data, p) < address + len(data)]


def _value(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + _ADDRESS_BYTES], "little")


def _replace(masked: bytearray, position: int, mark: bytes, offset: int) -> None:
    masked[position : position + _ADDRESS_BYTES] = mark + struct.pack("<q", offset)[: _ADDRESS_BYTES - 1]
