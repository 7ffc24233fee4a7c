"""Writing: content alone makes the id, and a file is either whole or not there."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tribunus.canon import Digest
from tribunus.errors import (
    EnvironmentFault,
    IntegrityError,
    InternalError,
    LimitError,
    NothingToJudge,
    ReceiptOrderError,
    RegionSetError,
    SchemaError,
    UsageError,
)
from tribunus.image import media, tar
from tribunus.image.content import Platform, split_jsonl, to_jsonl
from tribunus.image.keys import Ed25519Signer
from tribunus.image.read import ImageFile, open_image
from tribunus.image.source import MemorySource
from tribunus.image.write import ImageDraft, RegionDraft, make_blob, write_image

Packer = Callable[[ImageDraft], bytes]
Drafter = Callable[..., ImageDraft]
Region = Callable[..., RegionDraft]
V3, V4 = "cpu-x86-64-v3", "cpu-x86-64-v4"


def read(data: bytes) -> ImageFile:
    return ImageFile(MemorySource(data))


def test_two_builds_are_equal_byte_for_byte(pack: Packer, draft: Drafter, region: Region) -> None:
    assert pack(draft(region(V3), region(V4))) == pack(draft(region(V4), region(V3)))


def test_receipts_signers_and_certification_policy_change_the_file_but_not_the_id(
    pack: Packer, draft: Drafter, region: Region, bob: Ed25519Signer
) -> None:
    first = pack(draft(region(V4)))
    others = [
        pack(draft(region(V4, receipts="another run"))),
        pack(draft(region(V4), signers=(bob,))),
        pack(dataclasses.replace(draft(region(V4)), policy=Digest("78" * 32))),
        pack(draft(dataclasses.replace(region(V4), ledger_entries=99))),
    ]
    assert len({first, *others}) == 5
    assert {read(data).image_id for data in others} == {read(first).image_id}


@pytest.mark.parametrize("change", ["plan", "phaseir", "kernels", "goldens", "weights", "platform"])
def test_every_part_of_the_content_changes_the_id(pack: Packer, draft: Drafter, region: Region, change: str) -> None:
    one = region(V4)
    other = {
        "plan": dataclasses.replace(one, plan=b'{"other":1}'),
        "phaseir": dataclasses.replace(one, phaseir=b'{"other":1}'),
        "kernels": dataclasses.replace(one, kernels=b"other"),
        "goldens": dataclasses.replace(one, goldens=None),
        "weights": dataclasses.replace(one, weights=one.weights[::-1]),
        "platform": dataclasses.replace(one, platform=Platform("arm64", "linux")),
    }[change]
    assert read(pack(draft(one))).image_id != read(pack(draft(other))).image_id


def test_equal_blobs_of_two_regions_are_stored_once(
    pack: Packer, draft: Drafter, region: Region, parts: Callable[[bytes], list[tuple[str, bytes]]]
) -> None:
    files = parts(pack(draft(region(V3), region(V4))))
    assert sum(data.startswith(b"weights of the model") for _, data in files) == 1
    assert sum(data.startswith(b"code of") for _, data in files) == 2


def test_every_big_payload_of_a_file_starts_at_a_multiple_of_the_boundary(honest: bytes) -> None:
    image = read(honest)
    big = [b for r in image.contents.regions.values() for b in r.blobs if b.media_type in media.BIG]
    assert len(big) == 8
    assert all(image.contents.entries[blob.digest].offset % tar.ALIGN == 0 for blob in big)


def test_a_region_without_weights_or_golden_vectors_is_an_image(pack: Packer, draft: Drafter, region: Region) -> None:
    image = read(pack(draft(dataclasses.replace(region(V4), weights=(), goldens=None))))
    image.verify_all()
    assert image.region(V4).weights_count == 0
    assert image.region(V4).goldens() is None
    assert bytes(image.region(V4).kernels()).startswith(b"code of")


def test_buffers_of_other_item_sizes_are_written_by_their_bytes(pack: Packer, draft: Drafter, region: Region) -> None:
    import array

    numbers = array.array("f", range(1000))
    image = read(pack(draft(dataclasses.replace(region(V4), weights=[memoryview(numbers)]))))
    assert bytes(image.region(V4).weights(0)[:4000]) == numbers.tobytes()


@pytest.mark.parametrize("count", [0, 65])
def test_an_image_has_one_to_sixty_four_regions(pack: Packer, draft: Drafter, region: Region, count: int) -> None:
    regions = [region(f"target-{number:02d}") for number in range(count)]
    with pytest.raises((RegionSetError, LimitError)):
        pack(dataclasses.replace(draft(), regions=regions))


def test_drafts_that_make_no_image_are_refused(pack: Packer, draft: Drafter, region: Region) -> None:
    one = region(V4)
    for wrong, error in (
        (draft(one, one), RegionSetError),
        (dataclasses.replace(draft(one), signers=()), UsageError),
        (dataclasses.replace(draft(one), name="Tiny"), SchemaError),
        (dataclasses.replace(draft(one), name="a/b"), SchemaError),
        (dataclasses.replace(draft(one), requires=("b", "a")), SchemaError),
        (draft(dataclasses.replace(one, target="CPU")), SchemaError),
        (draft(dataclasses.replace(one, admissions=b"")), NothingToJudge),
        (draft(dataclasses.replace(one, admissions=b"b\na\n")), ReceiptOrderError),
        (draft(dataclasses.replace(one, receipts=b"a")), ReceiptOrderError),
        (draft(dataclasses.replace(one, receipts=b"a\na\n")), ReceiptOrderError),
        (draft(dataclasses.replace(one, plan=b"")), InternalError),
    ):
        with pytest.raises(error):
            pack(wrong)


def test_a_document_above_its_limit_is_refused() -> None:
    with pytest.raises(LimitError):
        make_blob(media.IMAGE, bytes(media.MAX_BLOB[media.IMAGE] + 1))


def test_lines_are_sorted_unique_and_bounded() -> None:
    assert to_jsonl([b"b", b"a", b"b"]) == b"a\nb\n"
    assert split_jsonl(b"a\nb\n") == (b"a", b"b")
    assert split_jsonl(b"") == ()
    with pytest.raises(ReceiptOrderError):
        to_jsonl([b"a\nb", b""])
    with pytest.raises(LimitError):
        to_jsonl([b"x" * (media.MAX_LINE + 1)])


# Whole or not there -------------------------------------------------------------------------------------------------


def test_an_existing_file_is_replaced_whole(draft: Drafter, tmp_path: Path) -> None:
    path = tmp_path / "tiny.tci"
    path.write_text("something else")
    image_id = write_image(path, draft())
    with open_image(path) as image:
        assert image.image_id == image_id
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.tci"]
    assert path.stat().st_mode & 0o133 == 0


@pytest.mark.parametrize("fail_after", [0, 1, 3, 30, 60])
def test_a_full_disk_leaves_nothing_and_keeps_the_old_file(
    draft: Drafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_after: int
) -> None:
    path = tmp_path / "tiny.tci"
    path.write_bytes(b"the old image")
    real, calls = os.write, iter(range(10**6))

    def full(descriptor: int, data: memoryview) -> int:
        if next(calls) >= fail_after:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(EnvironmentFault, match="No space left"):
        write_image(path, draft())
    assert path.read_bytes() == b"the old image"
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.tci"]


def test_writes_that_take_only_a_part_are_continued(
    draft: Drafter, pack: Packer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pack(draft())
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:4001]))
    write_image(tmp_path / "tiny.tci", draft())
    assert (tmp_path / "tiny.tci").read_bytes() == whole


CHILD = """
import resource, sys
from pathlib import Path
from tribunus.canon import Digest
from tribunus.errors import EnvironmentFault
from tribunus.image.content import Platform
from tribunus.image.keys import make_signer
from tribunus.image.write import ImageDraft, RegionDraft, write_image
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
region = RegionDraft(target="cpu", platform=Platform("amd64", "linux"), plan=b"{}", phaseir=b"{}", kernels=b"k",
    weights=[b"w"], goldens=None, admissions=b"a\\n", receipts=b"r\\n", ledger_root=Digest("0" * 64), ledger_entries=1)
draft = ImageDraft(name="tiny", epoch=1, model={}, choices=Digest("0" * 64), toolchain={}, requires=(),
    regions=[region], policy=Digest("0" * 64), signers=[make_signer()])
try:
    write_image(sys.argv[1], draft)
except EnvironmentFault as error:
    sys.exit(error.exit_code)
"""


def test_a_file_size_limit_of_the_system_leaves_nothing(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "tiny.tci")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
    )
    assert (child.returncode, child.stderr) == (50, b"")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_environment_fault(
    draft: Drafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentFault):
        write_image(tmp_path / "absent" / "tiny.tci", draft())
    real = os.open

    def read_only(path: str | Path, flags: int, mode: int = 0o777) -> int:
        # The superuser may write anywhere, so the refusal of a read-only file system is played.
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(EnvironmentFault, match="Read-only"):
        write_image(tmp_path / "tiny.tci", draft())
    assert list(tmp_path.iterdir()) == []


def test_a_buffer_that_changes_while_it_is_written_is_noticed(draft: Drafter, region: Region, tmp_path: Path) -> None:
    weights = bytearray(b"weights" * 1000)

    class Hasty:
        """A signer that lets the weights change after they were named."""

        keyid = "ab" * 32

        def sign(self, data: bytes) -> bytes:
            weights[0] ^= 1
            return bytes(64)

    with pytest.raises(IntegrityError):
        write_image(
            tmp_path / "tiny.tci",
            draft(dataclasses.replace(region(V4), weights=[memoryview(weights)]), signers=(Hasty(),)),
        )
    assert list(tmp_path.iterdir()) == []
