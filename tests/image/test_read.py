"""Reading: honest images open, altered ones are refused with the right name, and nothing is believed unhashed."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from tribunus.canon import encode
from tribunus.errors import (
    BlobMissingError,
    BlobSizeError,
    ChangedError,
    ContainerError,
    DescriptorError,
    DigestSyntaxError,
    EncodingError,
    EnvironmentFault,
    IntegrityError,
    JsonCanonError,
    JsonDuplicateKeyError,
    LimitError,
    MediaTypeError,
    NoEvidenceError,
    PadError,
    ReceiptMissingError,
    RegionSetError,
    RequiresError,
    SchemaError,
    StructureError,
    SubjectError,
    TargetError,
    TarOrderError,
    TarSizeError,
    TribunusError,
    UnreferencedError,
    VersionError,
)
from tribunus.image import media, tar
from tribunus.image.policy import TrustPolicy
from tribunus.image.read import ImageFile, open_image
from tribunus.image.source import MemorySource, WeightsMode
from tribunus.image.write import ImageDraft, RegionDraft

Files = list[tuple[str, bytes]]
Document = dict[str, Any]
V3, V4 = "cpu-x86-64-v3", "cpu-x86-64-v4"


class Forge(Protocol):
    image: Document
    regions: list[Document]
    evidence: list[Document]
    blobs: dict[str, bytes]
    strangers: list[bytes]
    edits: dict[str, Callable[[bytes], bytes]]
    honest_reference: bool

    def put(self, data: bytes, kind: str) -> Document: ...
    def layer(self, manifest: Document, kind: str) -> Document: ...
    def data(self, descriptor: Document) -> bytes: ...
    def replace_layer(self, manifest: Document, kind: str, data: bytes) -> None: ...
    def pack(self) -> bytes: ...


def read(data: bytes) -> ImageFile:
    return ImageFile(MemorySource(data))


def judge(data: bytes, policy: TrustPolicy) -> None:
    """All that can be checked."""
    image = read(data)
    image.verify_trust(policy)
    image.verify_all()


def test_an_honest_image_opens_and_hands_out_what_was_put_in(
    pack: Callable[[ImageDraft], bytes],
    draft: Callable[..., ImageDraft],
    region: Callable[..., RegionDraft],
    policy: TrustPolicy,
) -> None:
    put_in = region(V4)
    image = read(pack(draft(put_in)))
    image.verify_trust(policy)
    got = image.region(V4)
    assert (got.plan(), got.phaseir(), got.admissions(), got.receipts()) == (
        put_in.plan,
        put_in.phaseir,
        put_in.admissions,
        put_in.receipts,
    )
    assert got.weights_count == 2
    for view, wanted in (
        (got.kernels(), put_in.kernels),
        (got.weights(0), put_in.weights[0]),
        (got.weights(1), put_in.weights[1]),
        (got.goldens(), put_in.goldens),
    ):
        assert view is not None and wanted is not None
        assert bytes(view) == bytes(wanted).ljust(tar.ALIGN - 512, b"\0")
        assert view.readonly
    assert image.absent == ()
    got.verify()
    image.verify_all()


def test_an_unaltered_forgery_is_the_honest_image(forge: Forge, honest: bytes, policy: TrustPolicy) -> None:
    """Otherwise the refusals below could have other reasons than the alteration."""
    assert forge.pack() == honest
    judge(honest, policy)


def test_a_flipped_bit_anywhere_in_documents_headers_and_padding_is_refused(honest: bytes, policy: TrustPolicy) -> None:
    first_big = next(e for e in tar.walk(MemorySource(honest)) if e.size >= tar.ALIGN - 512)
    last_document = first_big.offset - 512
    pad = next(e for e in tar.walk(MemorySource(honest)) if e.end == last_document)
    headers = [
        range(entry.offset - 512, entry.offset)
        for entry in tar.walk(MemorySource(honest))
        if entry.offset <= pad.offset
    ]
    # Every byte of the headers that says something, each third of the documents, a sample of zeros and payloads.
    places = [place for header in headers for place in header if honest[place]]
    places += [place for place in range(pad.offset) if (honest[place] and place % 3 == 0) or place % 61 == 0]
    places += [*range(pad.offset, len(honest), 997), *range(last_document, last_document + 512, 5)]
    accepted = []
    for place in places:
        altered = bytearray(honest)
        altered[place] ^= 1 << place % 8
        try:
            judge(bytes(altered), policy)
        except TribunusError:
            continue
        accepted.append(place)
    assert not accepted
    assert len(set(places)) > 5000


def test_truncation_at_and_around_every_section_edge_is_refused(honest: bytes, policy: TrustPolicy) -> None:
    edges = {0, len(honest) - 1024, len(honest) - 512}
    for entry in tar.walk(MemorySource(honest)):
        edges |= {entry.offset - 512, entry.offset, entry.offset + entry.size, entry.end}
    for edge in sorted(edges):
        for cut in (edge - 1, edge, edge + 1):
            if not 0 <= cut < len(honest):
                continue
            with pytest.raises(ContainerError):
                judge(honest[:cut], policy)
            if (closed := honest[:cut] + bytes(1024)) != honest:
                with pytest.raises((ContainerError, StructureError)):
                    judge(closed, policy)


@pytest.mark.parametrize("extension", [b"\0", b"x", bytes(512), bytes(1024), bytes(9216), b"x" * 512])
def test_extension_is_refused(honest: bytes, extension: bytes) -> None:
    with pytest.raises(ContainerError):
        read(honest + extension)
    with pytest.raises(ContainerError):
        read(extension + honest)


def test_every_swap_drop_and_duplicate_of_entries_is_refused(
    honest: bytes, parts: Callable[[bytes], Files], joined: Callable[[Files], bytes]
) -> None:
    files = parts(honest)
    for first in range(len(files)):
        with pytest.raises((ContainerError, StructureError)):
            read(joined(files[:first] + files[first + 1 :]))
        with pytest.raises(TarOrderError):
            read(joined([*files[: first + 1], *files[first:]]))
        for second in range(first):
            swapped = list(files)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            with pytest.raises(ContainerError):
                read(joined(swapped))


def test_a_gzipped_image_is_refused(honest: bytes) -> None:
    import gzip

    with pytest.raises(ContainerError):
        read(gzip.compress(honest, mtime=0))


def test_an_unreferenced_blob_is_refused(forge: Forge) -> None:
    forge.strangers.append(b"smuggled")
    with pytest.raises(UnreferencedError):
        read(forge.pack())


def test_another_oci_layout_file_is_refused(
    honest: bytes, parts: Callable[[bytes], Files], joined: Callable[[Files], bytes]
) -> None:
    with pytest.raises(ContainerError):
        read(joined([(tar.LAYOUT_NAME, b'{"imageLayoutVersion":"1.0.1"}'), *parts(honest)[1:]]))


@pytest.mark.parametrize(
    "name, edit, error",
    [
        ("image", lambda b: b.replace(b'{"choices"', b'{"choices":1,"choices"'), JsonDuplicateKeyError),
        ("image", lambda b: b + b"\n", JsonCanonError),
        ("image", lambda b: b.replace(b'"epoch":3', b'"epoch": 3'), JsonCanonError),
        ("image", lambda b: b.replace(b'"epoch":3', b'"epoch":3.0'), EncodingError),
        ("image", lambda b: b.replace(b'"epoch":3', b'"epoch":true'), SchemaError),
        ("image", lambda b: b.replace(b'"epoch":3', b'"epoch":-1'), SchemaError),
        ("image", lambda b: b.replace(b'"name":"tiny"', b'"name":"../x"'), SchemaError),
        ("image", lambda b: b.replace(b'"model":{', b'"modek":{},"model":{'), SchemaError),
        ("image", lambda b: b.replace(b"tribunus.image/1", b"tribunus.image/2"), VersionError),
        ("image", lambda b: b.replace(b'"requires":[]', b'"requires":["chunks"]'), RequiresError),
        ("image", lambda b: b"not json", EncodingError),
        ("index", lambda b: b.replace(b"unknown", b"windows"), StructureError),
        ("index", lambda b: b.replace(b'"amd64"', b'"arm64"', 1), StructureError),
        ("index", lambda b: b.replace(b"cpu-x86-64-v3", b"cpu-x86-64-v9"), RegionSetError),
        ("index", lambda b: b.replace(b'"manifests":[', b'"annotations":{},"manifests":['), EncodingError),
        ("index.json", lambda b: b.replace(b"}],", b"}, {}],"), EncodingError),
        ("index.json", lambda b: b.replace(b"}],", b',"annotations":{"a":"b"}}],'), EncodingError),
        ("region", lambda b: b.replace(b'"layers":[', b'"layers":[],"manifests":['), EncodingError),
        ("region", lambda b: b.replace(b'"size"', b'"sizf"', 1), DescriptorError),
        ("region", lambda b: b.replace(b"sha256:", b"sha512:", 1), DigestSyntaxError),
        ("region", lambda b: b.replace(media.KERNELS.encode(), b"application/octet-stream"), MediaTypeError),
        ("region", lambda b: b.replace(b"region.v1", b"evidence.v1"), MediaTypeError),
    ],
)
def test_an_altered_document_is_refused_by_its_own_name(
    forge: Forge, name: str, edit: Callable[[bytes], bytes], error: type[TribunusError]
) -> None:
    def changed(data: bytes) -> bytes:
        after = edit(data)
        assert after != data
        return after

    forge.edits[name] = changed
    data = forge.pack()
    with pytest.raises(error):
        read(data)


@pytest.mark.parametrize(
    "text", ["sha256:../../etc/passwd", "sha256:" + "AB" * 32, "sha256:ab", "../" + "a" * 61, "sha512:" + "a" * 64, ""]
)
def test_a_digest_that_is_a_path_or_upper_case_is_refused(forge: Forge, text: str) -> None:
    def edit(data: bytes) -> bytes:
        manifest = json.loads(data)
        manifest["config"]["digest"] = text
        return encode(manifest)

    forge.edits["region"] = edit
    data = forge.pack()
    with pytest.raises(DigestSyntaxError):
        read(data)


def test_a_descriptor_with_another_size_is_refused(forge: Forge) -> None:
    forge.regions[0]["config"]["size"] += 1
    with pytest.raises(BlobSizeError):
        read(forge.pack())


@pytest.mark.parametrize("size, error", [(0, DescriptorError), (-1, DescriptorError), (2**40, LimitError)])
def test_an_impossible_size_is_refused_before_anything_is_allocated(
    forge: Forge, size: int, error: type[TribunusError]
) -> None:
    forge.regions[0]["config"]["size"] = size
    with pytest.raises(error):
        read(forge.pack())


def test_weights_in_the_place_of_code_are_refused(forge: Forge) -> None:
    layers = forge.regions[0]["layers"]
    layers[1], layers[2] = layers[2], layers[1]
    with pytest.raises(MediaTypeError):
        read(forge.pack())


def test_one_blob_in_two_roles_of_different_kind_is_refused(forge: Forge) -> None:
    forge.layer(forge.regions[0], media.PHASEIR).update(
        {**forge.layer(forge.regions[0], media.KERNELS), "mediaType": media.PHASEIR}
    )
    with pytest.raises(MediaTypeError):
        read(forge.pack())


def test_a_region_of_another_image_is_refused(forge: Forge) -> None:
    forge.honest_reference = True
    forge.replace_layer(forge.regions[0], media.KERNELS, b"evil".ljust(tar.ALIGN - 512, b"\0"))
    with pytest.raises(RegionSetError):
        read(forge.pack())


def test_regions_under_swapped_labels_are_refused(forge: Forge) -> None:
    forge.honest_reference = True
    forge.regions.reverse()
    with pytest.raises(RegionSetError):
        read(forge.pack())


def test_a_region_whose_documents_were_altered_consistently_fails_at_the_signature(
    forge: Forge, policy: TrustPolicy
) -> None:
    forge.replace_layer(forge.regions[0], media.KERNELS, b"evil".ljust(tar.ALIGN - 512, b"\0"))
    image = read(forge.pack())
    with pytest.raises(SubjectError):
        image.verify_trust(policy)


def test_an_image_without_evidence_is_refused(forge: Forge) -> None:
    forge.evidence.clear()
    with pytest.raises(NoEvidenceError):
        read(forge.pack())


def test_evidence_about_two_images_is_refused(forge: Forge) -> None:
    other = json.loads(json.dumps(forge.evidence[0]))
    data = forge.pack()
    other["config"] = forge.put(encode({**forge.image, "epoch": 4}), media.IMAGE)
    line = forge.put(encode(other), media.OCI_MANIFEST)

    def with_line(index: bytes) -> bytes:
        document = json.loads(index)
        document["manifests"].append({**document["manifests"][-1], **line})
        document["manifests"][2:] = sorted(document["manifests"][2:], key=lambda item: item["digest"])
        return encode(document)

    forge.edits["index"] = with_line
    forge.strangers += [encode(other), forge.data(other["config"])]
    assert forge.pack() != data
    with pytest.raises(StructureError):
        read(forge.pack())


def test_evidence_that_covers_fewer_regions_is_refused(forge: Forge) -> None:
    del forge.evidence[0]["layers"][-2:]
    with pytest.raises(RegionSetError):
        read(forge.pack())


def test_bytes_under_a_big_blobs_name_are_refused_when_they_are_read(honest: bytes, policy: TrustPolicy) -> None:
    """Opening does not hash weights; loading does."""
    clean = read(honest)
    shard = clean.region(V4).manifest.weights[0]
    altered = bytearray(honest)
    altered[clean.contents.entries[shard.digest].offset] ^= 1
    image = read(bytes(altered))
    image.verify_trust(policy)
    region = image.region(V4)
    with pytest.raises(IntegrityError):
        region.weights(1)
    with pytest.raises(IntegrityError):
        image.verify_region(V4)
    with pytest.raises(IntegrityError):
        image.verify_all()


def test_verifying_one_region_does_not_read_the_others(honest: bytes) -> None:
    clean = read(honest)
    kernels = clean.region(V3).manifest.kernels
    altered = bytearray(honest)
    altered[clean.contents.entries[kernels.digest].offset] ^= 1
    image = read(bytes(altered))
    image.verify_region(V4)
    with pytest.raises(IntegrityError):
        image.verify_region(V3)


def test_a_file_fetched_for_one_region_opens_and_names_what_is_absent(forge: Forge, policy: TrustPolicy) -> None:
    receipts = [layer for layer in forge.evidence[0]["layers"] if layer["mediaType"] == media.RECEIPTS]
    lines = forge.regions.copy()
    whole = forge.pack()
    forge.honest_reference = True
    del forge.regions[1]
    for descriptor in receipts:
        del forge.blobs[descriptor["digest"][-64:]]
    data = forge.pack()
    assert len(data) < len(whole)
    assert len(lines) == 2
    image = read(data)
    assert image.targets == (V3,)
    assert V4 in image.absent
    image.verify_trust(policy)
    image.verify_all()
    image.region(V3).verify()
    with pytest.raises(ReceiptMissingError):
        image.region(V3).receipts()
    with pytest.raises(TargetError):
        image.region(V4)


def test_a_missing_blob_of_a_present_region_is_refused(forge: Forge) -> None:
    forge.pack()
    del forge.blobs[forge.layer(forge.regions[0], media.PHASEIR)["digest"][-64:]]
    with pytest.raises(BlobMissingError):
        read(forge.pack())


def test_normalizing_does_not_repair_a_forged_description(forge: Forge, tmp_path: Path) -> None:
    from tribunus.image.normalize import normalize

    source, out = tmp_path / "forged.tar", tmp_path / "out.tci"
    forge.regions[0]["config"]["size"] += 1
    source.write_bytes(forge.pack())
    with pytest.raises(BlobSizeError):
        normalize(source, out)
    forge.regions[0]["config"]["size"] -= 1
    forge.pack()
    forge.honest_reference = True
    forge.replace_layer(forge.regions[0], media.KERNELS, b"evil".ljust(tar.ALIGN - 512, b"\0"))
    source.write_bytes(forge.pack())
    with pytest.raises(RegionSetError):
        normalize(source, out)
    assert not out.exists()


def test_an_unknown_target_is_refused(honest: bytes) -> None:
    with pytest.raises(TargetError, match=V4):
        read(honest).region("cuda-sm90")


# In a file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(honest: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tci"
    path.write_bytes(honest)
    path.chmod(0o644)
    return path


def test_a_stored_image_verifies_in_both_modes_through_a_symbolic_link(stored: Path, policy: TrustPolicy) -> None:
    link = stored.with_name("current.tci")
    link.symlink_to(stored.name)
    for mode in WeightsMode:
        with open_image(link, mode) as image:
            image.verify_trust(policy)
            image.start(V4)
            region = image.region(V4)
            assert bytes(region.weights(1)).startswith(b"second shard")
            image.verify_all()
        assert bytes(region.weights(1)).startswith(b"second shard")


def test_weights_are_copied_from_a_file_that_others_can_write(stored: Path) -> None:
    stored.chmod(0o664)
    with open_image(stored) as image:
        assert image.weights_copied_because is not None
        assert "written by others" in image.weights_copied_because


def test_weights_are_copied_below_a_folder_that_others_can_write(stored: Path) -> None:
    stored.parent.chmod(0o777)
    try:
        with open_image(stored) as image:
            assert image.weights_copied_because is not None
    finally:
        stored.parent.chmod(0o700)


def test_copied_weights_and_code_do_not_see_later_writes(stored: Path) -> None:
    with open_image(stored, WeightsMode.COPY) as image:
        region = image.region(V4)
        weights, kernels = region.weights(0), region.kernels()
        before = bytes(weights), bytes(kernels)
        with open(stored, "r+b") as file:
            file.write(b"\xff" * stored.stat().st_size)
        assert (bytes(weights), bytes(kernels)) == before


def test_big_blobs_lie_at_page_boundaries_in_memory(stored: Path) -> None:
    import ctypes

    def address(view: memoryview) -> int:
        # A read-only view has no address that ctypes would take; a one-byte search through the buffer protocol has.
        owner = view.obj
        assert isinstance(owner, mmap.mmap)
        buffer = (ctypes.c_char * 80)()
        pointer = ctypes.cast(buffer, ctypes.c_void_p)
        assert ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(owner), pointer, 0) == 0
        found = ctypes.c_void_p.from_buffer(buffer).value
        ctypes.pythonapi.PyBuffer_Release(pointer)
        assert found is not None
        return found

    for mode in WeightsMode:
        with open_image(stored, mode) as image:
            region = image.region(V4)
            for view in (region.kernels(), region.weights(0), region.weights(1)):
                assert address(view) % mmap.PAGESIZE == 0


def test_a_file_touched_while_it_was_read_is_refused(stored: Path) -> None:
    with open_image(stored) as image:
        os.utime(stored, ns=(1, 1))
        with pytest.raises(ChangedError):
            image.region(V4).load()


def test_a_file_that_became_shorter_is_refused_without_a_crash(stored: Path) -> None:
    with open_image(stored, WeightsMode.COPY) as image:
        os.truncate(stored, 4096)
        with pytest.raises(ChangedError):
            image.region(V4).load()


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TarSizeError):
        open_image(tmp_path / "fifo")
    with pytest.raises(TarSizeError):
        open_image(tmp_path)
    with pytest.raises(EnvironmentFault):
        open_image(tmp_path / "absent.tci")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.tci").touch()
    with pytest.raises(TarSizeError):
        open_image(tmp_path / "empty.tci")


def test_a_closed_image_says_so(stored: Path) -> None:
    image = open_image(stored)
    image.close()
    image.close()
    with pytest.raises(EnvironmentFault):
        image.region(V4).plan()


def test_pad_of_another_length_is_refused(
    honest: bytes, parts: Callable[[bytes], Files], joined: Callable[[Files], bytes]
) -> None:
    from tribunus.canon import digest_bytes

    files = parts(honest)
    pad = next(n for n, (name, data) in enumerate(files) if n > 1 and not any(data))
    for size in (0, len(files[pad][1]) + tar.ALIGN, len(files[pad][1]) - 512):
        other = bytes(size)
        with pytest.raises(PadError):
            read(joined([*files[:pad], (tar.blob_name(digest_bytes(other)), other), *files[pad + 1 :]]))
