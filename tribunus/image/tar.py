"""The container: one canonical ustar form, written, walked and compared byte for byte.

Imported by: image.read, image.write, image.normalize.  Imports: errors, canon, image.media.

For a given name and size exactly one header is accepted: the reader takes name and size from the file, builds that
header and compares all 512 bytes.  That single comparison refuses every other dialect (PAX, GNU long names, sparse
files, links, devices, base-256 sizes, odd owners, modes, times, terminators and hidden bytes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import (
    AlignError,
    BlobMissingError,
    BlobSizeError,
    LimitError,
    PadError,
    TarEndError,
    TarHeaderError,
    TarNameError,
    TarOrderError,
    TarPaddingError,
    TarSizeError,
    TarTruncatedError,
    UnreferencedError,
)
from tribunus.image import media
from tribunus.records import dataclass

RECORD: Final = 512
ALIGN: Final = 65536
"""Boundary of big payloads: a multiple of every page size in use (4, 16 and 64 KiB)."""
MAX_ENTRY: Final = 8**11 - 1
END: Final = bytes(2 * RECORD)
LAYOUT_NAME: Final = "oci-layout"
INDEX_NAME: Final = "index.json"
LAYOUT_BYTES: Final = b'{"imageLayoutVersion":"1.0.0"}'
BLOB_FOLDER: Final = "blobs/sha256/"

_TAIL: Final = b"".join((b"0", bytes(100), b"ustar\0", b"00", bytes(64), b"0000000\0", b"0000000\0", bytes(167)))
_TAIL_SUM: Final = sum(_TAIL) + 8 * ord(" ")
"""What the checksum counts of the header's end, and of itself as spaces."""
_BLOB_NAME_SIZE: Final = len(BLOB_FOLDER) + 64


class Source(Protocol):
    """Bytes at rest, read by offset; a read past the end is a ChangedError."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the container."""

    name: str
    offset: int
    """Of the payload; its header lies 512 bytes before."""
    size: int

    @property
    def end(self) -> int:
        """Offset of the next header."""
        return self.offset + self.size + padding(self.size)


def blob_name(digest: Digest) -> str:
    """Name of a blob inside the container."""
    return BLOB_FOLDER + digest


def padding(size: int) -> int:
    """Zero bytes between a payload of ``size`` bytes and the next header."""
    return -size % RECORD


def fill_size(size: int) -> int:
    """Zero bytes that a big blob of ``size`` bytes gets at its end, so that its neighbour is aligned too."""
    return (ALIGN - RECORD - size) % ALIGN


def build_header(name: str, size: int) -> bytes:
    """The only accepted header of a file of this name and size; 512 bytes.

    name: 1 to 100 ASCII characters.  size: up to 8**11 - 1.  Raises LimitError for what has no header.
    """
    raw = name.encode("ascii", "replace")
    if not 1 <= len(raw) <= 100 or not 0 <= size <= MAX_ENTRY:
        raise LimitError(f"no header can hold the name {name[:120]!r} with {size} bytes")
    head = b"".join(
        (
            raw.ljust(100, b"\0"),
            b"0000644\0",
            b"0000000\0",
            b"0000000\0",
            b"%011o\0" % size,
            b"00000000000\0",
        )
    )
    return b"".join((head, b"%06o\0 " % (sum(head) + _TAIL_SUM), _TAIL))


def walk(source: Source) -> tuple[Entry, ...]:
    """All entries, after proving that the container is canonical as far as names, headers, padding and end go.

    Which blobs are small or big follows from the documents inside, so ``check_placement`` proves order and alignment.
    Raises ContainerError leaves and LimitError.
    """
    total = source.size
    if total > media.MAX_FILE:
        raise LimitError(f"file of {total} bytes, at most {media.MAX_FILE} allowed")
    if total % RECORD or total < 6 * RECORD:
        raise TarSizeError(f"{total} bytes cannot be an image: too short, or no multiple of {RECORD}")
    entries: list[Entry] = []
    seen: set[str] = set()
    offset = 0
    while True:
        header = source.read(offset, RECORD)
        if header[0] == 0:
            _check_end(source, offset, header)
            break
        entry = _read_entry(header, offset)
        if entry.end > total - len(END):
            raise TarTruncatedError(f"{entry.name} claims {entry.size} bytes, more than the file holds")
        _check_name(entry.name, len(entries), seen)
        gap = padding(entry.size)
        if gap and source.read(entry.offset + entry.size, gap) != bytes(gap):
            raise TarPaddingError(f"bytes after {entry.name} are not zero")
        entries.append(entry)
        if len(entries) > media.MAX_ENTRIES:
            raise LimitError(f"more than {media.MAX_ENTRIES} entries")
        offset = entry.end
        if offset == total:
            raise TarTruncatedError("the end records are missing")
    if len(entries) < 2:
        raise TarOrderError(f"an image starts with {LAYOUT_NAME} and {INDEX_NAME}")
    return tuple(entries)


def place(index_size: int, small: Mapping[Digest, int], big: Mapping[Digest, int]) -> tuple[Entry, ...]:
    """Where every file of a canonical container lies, the pad included.

    index_size: bytes of index.json.  small, big: sizes by digest.  Raises AlignError if a big blob breaks the size
    rule, LimitError for impossible sizes.
    """
    entries: list[Entry] = []
    offset = 0

    def put(name: str, size: int) -> None:
        nonlocal offset
        entries.append(Entry(name, offset + RECORD, size))
        offset = entries[-1].end

    put(LAYOUT_NAME, len(LAYOUT_BYTES))
    put(INDEX_NAME, index_size)
    for digest in sorted(small):
        put(blob_name(digest), small[digest])
    pad = _pad_size(offset) if big else None
    if pad is not None:
        put(blob_name(digest_bytes(bytes(pad))), pad)
    for digest in sorted(big):
        if fill_size(big[digest]):
            raise AlignError(f"big blob {digest[:12]} has {big[digest]} bytes, not {ALIGN - RECORD} modulo {ALIGN}")
        put(blob_name(digest), big[digest])
    return tuple(entries)


def check_placement(
    source: Source,
    entries: Sequence[Entry],
    small: Mapping[Digest, int],
    big: Mapping[Digest, int],
    absent: frozenset[Digest],
) -> None:
    """Prove that ``entries`` are exactly the canonical placement of the referenced blobs.

    absent: referenced blobs that a partial file may leave out.  Raises BlobMissingError, BlobSizeError, AlignError,
    PadError, UnreferencedError or TarOrderError.
    """
    present = {entry.name: entry for entry in entries[2:]}
    here: list[dict[Digest, int]] = []
    referenced: set[str] = set()
    for group in (small, big):
        kept: dict[Digest, int] = {}
        for digest, size in group.items():
            name = blob_name(digest)
            referenced.add(name)
            if name in present:
                if present[name].size != size:
                    raise BlobSizeError(f"blob {digest[:12]} has {present[name].size} bytes, {size} are stated")
                kept[digest] = size
            elif digest not in absent:
                raise BlobMissingError(f"blob {digest[:12]} is not in the file")
        here.append(kept)
    expected = place(entries[1].size, here[0], here[1])
    if list(entries) == list(expected):
        _check_pad(source, [entry for entry in expected if entry.name not in referenced][2:])
        return
    strangers = [entry for entry in entries[2:] if entry.name not in referenced]
    pads = [entry for entry in expected[2:] if entry.name not in referenced]
    if len(strangers) > 1 or (strangers and not pads):
        raise UnreferencedError(f"blob {strangers[-1].name[-64:-52]} belongs to nothing")
    if [entry.name for entry in strangers] != [entry.name for entry in pads]:
        raise PadError("the pad before the big blobs is missing, or has the wrong length")
    raise TarOrderError("blobs are not in canonical order")


def _pad_size(offset: int) -> int | None:
    if (offset + RECORD) % ALIGN == 0:
        return None
    return (-offset - 2 * RECORD) % ALIGN


def _check_pad(source: Source, pads: Sequence[Entry]) -> None:
    for pad in pads:
        if source.read(pad.offset, pad.size) != bytes(pad.size):
            raise PadError("the pad before the big blobs is not zero")


def _read_entry(header: bytes, offset: int) -> Entry:
    name = header[:100].split(b"\0", 1)[0]
    size = header[124:136]
    if not name.isascii() or size[:11].strip(b"01234567") or size[11:] != b"\0":
        raise TarHeaderError(f"header at {offset} is not the canonical one")
    text, count = name.decode("ascii"), int(size[:11], 8)
    if build_header(text, count) != header:
        raise TarHeaderError(f"header of {text[:100]!r} at {offset} is not the canonical one")
    return Entry(text, offset + RECORD, count)


def _is_blob_name(name: str) -> bool:
    folder, digest = name[: len(BLOB_FOLDER)], name[len(BLOB_FOLDER) :]
    return folder == BLOB_FOLDER and len(name) == _BLOB_NAME_SIZE and not digest.strip("0123456789abcdef")


def _check_name(name: str, position: int, seen: set[str]) -> None:
    fixed = (LAYOUT_NAME, INDEX_NAME)
    if name not in fixed and not _is_blob_name(name):
        raise TarNameError(f"{name!r} has no place in an image")
    if name in seen:
        raise TarOrderError(f"{name} appears twice")
    if (position < 2 and name != fixed[position]) or (position >= 2 and name in fixed):
        raise TarOrderError(f"{name} at position {position}: an image starts with {LAYOUT_NAME} and {INDEX_NAME}")
    seen.add(name)


def _check_end(source: Source, offset: int, header: bytes) -> None:
    if any(header):
        raise TarHeaderError(f"header at {offset} has no name")
    rest = source.size - offset
    if rest < len(END):
        raise TarTruncatedError("the second end record is missing")
    if rest > len(END) or any(source.read(offset, len(END))):
        raise TarEndError(f"{rest - len(END)} bytes after the end records, or records that are not zero")
