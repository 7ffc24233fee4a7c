"""Other tools' containers become the canonical file again, and nothing else gets in."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tribunus.errors import (
    BlobMissingError,
    ContainerError,
    IntegrityError,
    MediaTypeError,
    NoEvidenceError,
    StructureError,
    TarHeaderError,
    TarOrderError,
    TarTruncatedError,
    TribunusError,
    UsageError,
)
from tribunus.image import media, tar
from tribunus.image.normalize import normalize
from tribunus.image.policy import TrustPolicy
from tribunus.image.read import ImageFile, open_image
from tribunus.image.source import MemorySource

Files = list[tuple[str, bytes]]


def retarred(files: Files, dialect: int = tarfile.USTAR_FORMAT, prefix: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=dialect) as archive:
        folder = tarfile.TarInfo(prefix + "blobs")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files:
            info = tarfile.TarInfo(prefix + name)
            info.size, info.mtime, info.uname = len(content), 1_700_000_000, "builder"
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def files(honest: bytes, parts: Callable[[bytes], Files]) -> Files:
    return parts(honest)


@pytest.fixture
def stored(honest: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tci"
    path.write_bytes(honest)
    return path


def normalized(folder: Path, data: bytes) -> bytes:
    (folder / "foreign.tar").write_bytes(data)
    normalize(folder / "foreign.tar", folder / "out.tci")
    return (folder / "out.tci").read_bytes()


@pytest.mark.parametrize("dialect", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_an_archive_of_another_tool_becomes_the_canonical_file(
    tmp_path: Path, honest: bytes, files: Files, dialect: int, prefix: str
) -> None:
    assert normalized(tmp_path, retarred(files[::-1], dialect, prefix)) == honest


def test_the_canonical_file_stays_as_it_is(tmp_path: Path, honest: bytes) -> None:
    assert normalized(tmp_path, honest) == honest


def test_a_folder_in_oci_layout_becomes_the_canonical_file(tmp_path: Path, honest: bytes, files: Files) -> None:
    for name, content in files:
        (tmp_path / "layout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "layout" / name).write_bytes(content)
    (tmp_path / "layout" / "blobs" / "sha256" / "note.txt").write_text("ignored")
    normalize(tmp_path / "layout", tmp_path / "out.tci")
    assert (tmp_path / "out.tci").read_bytes() == honest


def test_an_index_that_another_tool_rewrote_is_derived_again(tmp_path: Path, honest: bytes, files: Files) -> None:
    """White space, annotations and order are the tool's; what the index names is the image's."""
    blobs = dict(files)
    named = json.loads(blobs[tar.INDEX_NAME])["manifests"][0]
    index = json.loads(blobs[tar.blob_name(named["digest"][-64:])])
    index["manifests"].reverse()
    index["annotations"] = {"tool": "rewrote this"}
    from tribunus.canon import digest_bytes

    data = json.dumps(index, indent=1).encode()
    digest = digest_bytes(data)
    named |= {
        "digest": "sha256:" + digest,
        "size": len(data),
        "annotations": {"org.opencontainers.image.ref.name": "v1"},
    }
    blobs[tar.blob_name(digest)] = data
    blobs[tar.INDEX_NAME] = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    assert normalized(tmp_path, retarred([*blobs.items()])) == honest


def test_blobs_that_belong_to_nothing_are_left_behind(tmp_path: Path, honest: bytes, files: Files) -> None:
    extra = [("blobs/sha256/" + "ab" * 32, b"smuggled"), ("manifest.json", b"[]")]
    assert normalized(tmp_path, retarred([*files, *extra])) == honest


def test_a_blob_with_other_bytes_is_refused_and_nothing_written(tmp_path: Path, files: Files) -> None:
    for number in range(2, len(files)):
        name, content = files[number]
        if not any(content):
            continue
        altered = [*files[:number], (name, bytes([content[0] ^ 1]) + content[1:]), *files[number + 1 :]]
        with pytest.raises(IntegrityError):
            normalized(tmp_path, retarred(altered))
    assert not (tmp_path / "out.tci").exists()


def test_every_missing_blob_is_noticed(tmp_path: Path, honest: bytes, files: Files) -> None:
    """Receipts alone may be absent."""
    image = ImageFile(MemorySource(honest))
    receipts = {tar.blob_name(blob.digest) for item in image.contents.evidence for blob in item.receipts}
    for number in range(2, len(files)):
        if not any(files[number][1]):
            continue
        left = [*files[:number], *files[number + 1 :]]
        if files[number][0] in receipts:
            assert len(normalized(tmp_path, retarred(left))) <= len(honest)
        else:
            with pytest.raises(BlobMissingError):
                normalized(tmp_path, retarred(left))


def hard_link(data: bytes) -> bytes:
    out = io.BytesIO(data)
    with tarfile.open(fileobj=out, mode="a") as archive:
        link = tarfile.TarInfo("blobs/sha256/" + "ab" * 32)
        link.type, link.linkname = tarfile.LNKTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


@pytest.mark.parametrize(
    "edit, error",
    [
        (gzip.compress, ContainerError),
        (hard_link, TarHeaderError),
        (lambda data: data[:700], TarTruncatedError),
        (lambda data: data[: len(data) - 9 * 10240], TarTruncatedError),
        (lambda data: b"x" * 512 + data, TarHeaderError),
        (lambda data: b"", TarTruncatedError),
        (lambda data: bytes(10240), ContainerError),
        (lambda data: data[:1024].replace(b"ustar", b"ustbr") + data[1024:], TarHeaderError),
        (lambda data: data[:520] + b"\x01" + data[521:], TarHeaderError),
    ],
)
def test_what_is_no_archive_of_plain_files_is_refused(
    tmp_path: Path, files: Files, edit: Callable[[bytes], bytes], error: type[TribunusError]
) -> None:
    with pytest.raises(error):
        normalized(tmp_path, edit(retarred(files)))


def test_a_name_that_stands_twice_is_refused(tmp_path: Path, files: Files) -> None:
    for doubled in (files[1], files[2]):
        with pytest.raises(TarOrderError):
            normalized(tmp_path, retarred([*files, doubled]))


@pytest.mark.parametrize(
    "index, error",
    [
        (b"{}", StructureError),
        (b"not json", TribunusError),
        (b'{"manifests":[]}', StructureError),
        (b'{"manifests":[1]}', StructureError),
        (b'{"manifests":[{"digest":"sha256:../../x","mediaType":"%s"}]}' % media.OCI_INDEX.encode(), TribunusError),
        (b'{"manifests":[{"digest":"sha256:%s","mediaType":"%s"}]}' % (b"a" * 64, media.OCI_MANIFEST.encode()),
         NoEvidenceError),
        (b'{"manifests":[{"digest":"sha256:%s","mediaType":"text/plain"}]}' % (b"a" * 64), MediaTypeError),
        (b" " * (media.MAX_INDEX_JSON + 1), TribunusError),
        (b"[" * 60_000, TribunusError),
    ],
)  # fmt: skip
def test_a_layout_without_one_image_is_refused(
    tmp_path: Path, files: Files, index: bytes, error: type[TribunusError]
) -> None:
    with pytest.raises(error):
        normalized(tmp_path, retarred([(tar.INDEX_NAME, index), *files[2:]]))


def test_a_folder_without_index_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        normalize(tmp_path, tmp_path / "out.tci")


def test_symbolic_links_in_a_folder_are_not_followed(tmp_path: Path, files: Files) -> None:
    for name, content in files:
        (tmp_path / "layout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "layout" / name).write_bytes(content)
    blob = tmp_path / "layout" / files[2][0]
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BlobMissingError):
        normalize(tmp_path / "layout", tmp_path / "out.tci")


# skopeo -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def skopeo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    program = shutil.which("skopeo")
    if program is None:
        pytest.skip("skopeo is not installed")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(*arguments: str) -> bytes:
        done = subprocess.run([program, "--insecure-policy", *arguments], check=False, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run


def test_skopeo_prints_the_index_of_our_file(skopeo: Callable[..., bytes], stored: Path, honest: bytes) -> None:
    image = ImageFile(MemorySource(honest))
    assert skopeo("inspect", "--raw", f"oci-archive:{stored}") == image.blob(image.contents.index)


def test_a_file_survives_skopeo_into_a_folder_and_an_archive_and_back(
    skopeo: Callable[..., bytes], stored: Path, honest: bytes, tmp_path: Path, policy: TrustPolicy
) -> None:
    keep = ("copy", "--all", "--preserve-digests")
    skopeo(*keep, f"oci-archive:{stored}", f"oci:{tmp_path}/layout:tag")
    skopeo(*keep, f"oci:{tmp_path}/layout:tag", f"oci-archive:{tmp_path}/back.tar:tag")
    with pytest.raises(ContainerError):
        open_image(tmp_path / "back.tar")
    for source in ("layout", "back.tar"):
        normalize(tmp_path / source, tmp_path / "out.tci")
        assert (tmp_path / "out.tci").read_bytes() == honest
    with open_image(tmp_path / "out.tci") as image:
        image.verify_trust(policy)
        image.verify_all()


def test_a_copy_without_all_is_refused_for_its_lost_evidence(
    skopeo: Callable[..., bytes], stored: Path, tmp_path: Path
) -> None:
    skopeo(
        "copy", "--override-arch", "amd64", "--override-os", "linux", f"oci-archive:{stored}", f"oci:{tmp_path}/one:t"
    )
    with pytest.raises(NoEvidenceError) as caught:
        normalize(tmp_path / "one", tmp_path / "out.tci")
    assert "--all" in caught.value.remedy
