"""One header for one name and size; every other dialect is refused, and other tools can still read ours."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Callable

import pytest

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import (
    AlignError,
    ContainerError,
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
from tribunus.image import media, tar
from tribunus.image.source import MemorySource

Files = list[tuple[str, bytes]]
BLOB = tar.blob_name(Digest("ab" * 32))


def two_files(extra: bytes = b"") -> bytes:
    data = b""
    for name, content in ((tar.LAYOUT_NAME, tar.LAYOUT_BYTES), (tar.INDEX_NAME, b"{}")):
        data += tar.build_header(name, len(content)) + content + bytes(tar.padding(len(content)))
    return data + extra + bytes(1024)


def with_checksum(header: bytes) -> bytes:
    blank = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(blank) + header[156:]


def test_our_header_differs_from_that_of_tarfile_in_the_device_numbers_alone() -> None:
    info = tarfile.TarInfo(BLOB)
    info.size, info.mode, info.mtime = 12345, 0o644, 0
    theirs = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    theirs[329:345] = b"0000000\0" * 2
    assert tar.build_header(BLOB, 12345) == with_checksum(bytes(theirs))


def test_tarfile_reads_every_file_of_an_image(honest: bytes, parts: Callable[[bytes], Files]) -> None:
    with tarfile.open(fileobj=io.BytesIO(honest)) as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive.getmembers()]
        read = [(name, file.read()) for name, file in members if file is not None]
    assert read == parts(honest)
    assert len(read) > 15


def test_a_name_or_size_without_header_is_refused() -> None:
    for name, size in (("", 0), ("x" * 101, 0), ("a", -1), ("a", tar.MAX_ENTRY + 1)):
        with pytest.raises(LimitError):
            tar.build_header(name, size)


@pytest.mark.parametrize(
    "offset, value",
    [
        (100, b"0000600\0"),
        (100, b"0100644\0"),
        (108, b"0001750\0"),
        (116, b"0001750\0"),
        (124, b"00000000002 "),
        (124, b"          2\0"),
        (124, b"\x80" + bytes(10) + b"\x02"),
        (136, b"14000000000\0"),
        (157, b"hidden"),
        (257, b"ustar  \0"),
        (263, b"01"),
        (265, b"root"),
        (297, b"root"),
        (329, b"0000001\0"),
        (337, b"\0" * 8),
        (345, b"prefix"),
        (500, b"tail"),
        (11, b"hidden after the name"),
    ],
)
def test_another_header_with_a_valid_checksum_is_refused(offset: int, value: bytes) -> None:
    data = bytearray(two_files())
    start = 1024
    header = bytearray(data[start : start + 512])
    header[offset : offset + len(value)] = value
    data[start : start + 512] = with_checksum(bytes(header))
    with pytest.raises(TarHeaderError):
        tar.walk(MemorySource(bytes(data)))


@pytest.mark.parametrize("flag", [bytes([c]) for c in b"\x001234567xgLKSVMNDAX"])
def test_every_other_type_is_refused(flag: bytes) -> None:
    data = bytearray(two_files())
    header = data[1024:1536]
    header[156:157] = flag
    data[1024:1536] = with_checksum(bytes(header))
    with pytest.raises(TarHeaderError):
        tar.walk(MemorySource(bytes(data)))


@pytest.mark.parametrize("checksum", [b"0000000\0", b"000000\0 ", b"0012345 "])
def test_another_checksum_is_refused(checksum: bytes) -> None:
    data = bytearray(two_files())
    data[1024 + 148 : 1024 + 156] = checksum
    with pytest.raises(TarHeaderError):
        tar.walk(MemorySource(bytes(data)))


@pytest.mark.parametrize("dialect", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mtime", [0, 1_700_000_000, 0.5])
def test_the_same_files_written_by_tarfile_are_refused(
    honest: bytes, parts: Callable[[bytes], Files], dialect: int, mtime: float
) -> None:
    """Even with our own field values: tarfile pads the archive to 10,240 bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=dialect) as archive:
        for name, content in parts(honest):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), mtime
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(ContainerError):
        tar.walk(MemorySource(out.getvalue()))


@pytest.mark.parametrize(
    "name",
    [
        "../etc/passwd",
        "/index.json",
        "./index.json",
        "index.json/",
        "blobs/sha512/" + "a" * 64,
        "blobs/sha256/" + "A" * 64,
        "blobs/sha256/" + "a" * 63,
        "blobs/sha256/" + "a" * 65,
        "blobs/sha256/../" + "a" * 64,
        "manifest.json",
    ],
)
def test_a_name_outside_the_closed_set_is_refused(name: str) -> None:
    with pytest.raises(TarNameError):
        tar.walk(MemorySource(two_files(tar.build_header(name, 0))))


def test_a_name_that_is_not_ascii_is_refused() -> None:
    header = bytearray(tar.build_header("blobs", 0))
    header[:5] = "blöb".encode()
    with pytest.raises(TarHeaderError):
        tar.walk(MemorySource(two_files(with_checksum(bytes(header)))))


def test_an_entry_larger_than_the_file_is_refused_before_it_is_read() -> None:
    with pytest.raises(TarTruncatedError):
        tar.walk(MemorySource(two_files(tar.build_header(BLOB, tar.MAX_ENTRY))))


def test_bytes_in_the_padding_are_refused() -> None:
    data = bytearray(two_files())
    data[512 + 511] = 1
    with pytest.raises(TarPaddingError):
        tar.walk(MemorySource(bytes(data)))


@pytest.mark.parametrize("extra", [b"\0" * 512, b"\0" * 9216, b"x" * 512, two_files()])
def test_anything_after_the_end_records_is_refused(extra: bytes) -> None:
    with pytest.raises(TarEndError):
        tar.walk(MemorySource(two_files() + extra))


def test_a_second_end_record_that_is_not_zero_is_refused() -> None:
    data = bytearray(two_files())
    data[-1] = 1
    with pytest.raises(TarEndError):
        tar.walk(MemorySource(bytes(data)))


@pytest.mark.parametrize("missing", [512, 1024])
def test_missing_end_records_are_refused(missing: int) -> None:
    whole = two_files(tar.build_header(BLOB, 3) + b"abc" + bytes(509))
    with pytest.raises(TarTruncatedError):
        tar.walk(MemorySource(whole[:-missing]))


@pytest.mark.parametrize("data", [b"", b"\0" * 1024, two_files()[:-1], two_files() + b"\0"])
def test_a_file_of_impossible_size_is_refused(data: bytes) -> None:
    with pytest.raises(TarSizeError):
        tar.walk(MemorySource(data))


def test_a_claimed_size_above_the_limit_is_refused_before_anything_is_read() -> None:
    class Huge(MemorySource):
        @property
        def size(self) -> int:
            return media.MAX_FILE + 512

        def read(self, offset: int, size: int) -> bytes:
            raise AssertionError("nothing may be read")

    with pytest.raises(LimitError):
        tar.walk(Huge(b""))


def test_too_many_entries_are_refused() -> None:
    names = (tar.blob_name(Digest(f"{number:064x}")) for number in range(media.MAX_ENTRIES))
    with pytest.raises(LimitError):
        tar.walk(MemorySource(two_files(b"".join(tar.build_header(name, 0) for name in names))))


@pytest.mark.parametrize(
    "order", [(1, 0, 2), (0, 2, 1), (2, 0, 1), (0, 1, 0), (0, 1, 2, 2), (0, 1, 2, 1), (0, 2), (2,)]
)
def test_other_orders_and_duplicates_are_refused(joined: Callable[[Files], bytes], order: tuple[int, ...]) -> None:
    files = [(tar.LAYOUT_NAME, tar.LAYOUT_BYTES), (tar.INDEX_NAME, b"{}"), (BLOB, b"x" * 2000)]
    with pytest.raises(TarOrderError):
        tar.walk(MemorySource(joined([files[i] for i in order])))


@pytest.mark.parametrize("small_bytes", [1, 511, 512, 62_000, 62_976, 63_000, 64_000, 65_000, 130_000])
def test_every_big_payload_starts_at_a_multiple_of_the_boundary(small_bytes: int) -> None:
    sizes = [tar.ALIGN - 512, 3 * tar.ALIGN - 512]
    big = {Digest(f"{number:064x}"): size for number, size in enumerate(sizes)}
    entries = tar.place(200, {Digest("cd" * 32): small_bytes}, big)
    found = [entry for entry in entries if entry.size in sizes]
    assert len(found) == 2
    assert all(entry.offset % tar.ALIGN == 0 for entry in found)
    assert all(a.end + 512 == b.offset for a, b in itertools.pairwise(entries))


def test_the_pad_is_left_out_where_nothing_is_to_be_moved_and_may_be_empty() -> None:
    big = {Digest("00" * 32): tar.ALIGN - 512}
    counts = {len(tar.place(200, {Digest("cd" * 32): size}, big)) for size in range(1, 2 * tar.ALIGN, 512)}
    assert counts == {4, 5}
    sizes = [tar.place(200, {Digest("cd" * 32): size}, big)[3].size for size in range(1, 2 * tar.ALIGN, 512)]
    assert 0 in sizes
    assert all(size % 512 == 0 for size in sizes)


def test_a_big_blob_that_breaks_the_size_rule_is_refused() -> None:
    with pytest.raises(AlignError):
        tar.place(200, {}, {Digest("ab" * 32): tar.ALIGN})


@pytest.mark.parametrize("size", [0, 1, 65023, 65024, 65025, 10**9])
def test_fill_brings_any_size_to_the_rule(size: int) -> None:
    assert (size + tar.fill_size(size)) % tar.ALIGN == tar.ALIGN - 512
    assert tar.fill_size(size) < tar.ALIGN


def test_a_pad_with_content_a_missing_pad_and_a_stranger_are_told_apart(joined: Callable[[Files], bytes]) -> None:
    plan, code = b"p" * 700, b"k" * (tar.ALIGN - 512)
    small, big = {digest_bytes(plan): 700}, {digest_bytes(code): len(code)}
    placed = tar.place(2, small, big)
    files: Files = [(tar.LAYOUT_NAME, tar.LAYOUT_BYTES), (tar.INDEX_NAME, b"{}")]
    files += [(tar.blob_name(digest_bytes(plan)), plan), (placed[3].name, bytes(placed[3].size))]
    files += [(tar.blob_name(digest_bytes(code)), code)]

    def check(content: Files) -> None:
        source = MemorySource(joined(content))
        tar.check_placement(source, tar.walk(source), small, big, frozenset())

    check(files)
    with pytest.raises(PadError):
        check([*files[:3], (placed[3].name, b"x" * placed[3].size), files[4]])
    with pytest.raises(PadError):
        check([*files[:3], files[4]])
    with pytest.raises(PadError):
        check([*files[:3], (tar.blob_name(digest_bytes(bytes(512))), bytes(512)), files[4]])
    with pytest.raises(UnreferencedError):
        check([*files, (tar.blob_name(digest_bytes(b"stranger")), b"stranger")])
    with pytest.raises(TarOrderError):
        check([files[0], files[1], files[3], files[2], files[4]])
