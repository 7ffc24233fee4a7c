"""Bring an image from any OCI layout, folder or archive, into the canonical file.

Imported by: cli.  Imports: errors, canon, image.*.

Registries and copying tools keep blobs byte for byte but write containers of their own.  Only blobs that the image's
documents name are taken, each is hashed on its way into the new file, and container and index are derived again.  The
walker here tolerates foreign headers but still knows regular files, folders and nothing else.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import (
    BlobMissingError,
    BlobSizeError,
    ContainerError,
    EncodingError,
    IntegrityError,
    JsonSizeError,
    LimitError,
    MediaTypeError,
    NoEvidenceError,
    RegionSetError,
    StructureError,
    TarHeaderError,
    TarOrderError,
    TarTruncatedError,
    UsageError,
)
from tribunus.image import media, tar
from tribunus.image.content import (
    Descriptor,
    EvidenceManifest,
    RegionManifest,
    decode_evidence_manifest,
    decode_image,
    decode_region_manifest,
    parse_oci_digest,
)
from tribunus.image.source import Chunks, FileSource, ImageSource, open_source
from tribunus.image.write import Blob, write_contents

_BLOB: Final = re.compile(r"(?:\./)?blobs/sha256/([0-9a-f]{64})")
_OCTAL: Final = re.compile(rb" *([0-7]+)[ \0]*")
_REGULAR: Final = (b"0", b"\0")
_FOLDER: Final = b"5"
_GZIP: Final = b"\x1f\x8b"
_UNPACK: Final = "unpack it into an OCI layout folder: skopeo copy --all --preserve-digests oci-archive:FILE oci:FOLDER"


@dataclass(frozen=True, slots=True)
class _Layout:
    """A foreign layout: its index.json, and where its blobs lie."""

    index_json: bytes
    blobs: Mapping[Digest, Chunks]

    def read(self, digest: Digest, limit: int) -> bytes:
        """A document, compared with its digest.  Raises BlobMissingError, LimitError, IntegrityError."""
        chunks = self.blobs.get(digest)
        if chunks is None:
            raise BlobMissingError(f"blob {digest[:12]} is not in the layout", remedy="copy with `skopeo copy --all`")
        if chunks.size > limit:
            raise LimitError(f"document {digest[:12]} of {chunks.size} bytes, at most {limit} allowed")
        data = b"".join(chunks)
        if digest_bytes(data) != digest:
            raise IntegrityError(f"blob {digest[:12]} holds other bytes")
        return data


def normalize(source: str | Path, path: str | Path) -> Digest:
    """Write the canonical file of the one image in ``source`` and return its id.

    source: a folder in OCI layout, or an uncompressed archive of one.  Raises ContainerError, EncodingError,
    StructureError leaves, IntegrityError, NoEvidenceError, EnvironmentFault or UsageError.
    """
    place = Path(source)
    with ExitStack() as opened:
        layout = _folder_layout(place, opened) if place.is_dir() else _archive_layout(place, opened)
        return _write_canonical(layout, Path(path))


def _write_canonical(layout: _Layout, path: Path) -> Digest:
    regions: dict[Digest, RegionManifest] = {}
    evidence: list[EvidenceManifest] = []
    for digest in _manifests(layout):
        data = layout.read(digest, media.MAX_MANIFEST)
        kind = _object(data).get("artifactType")
        if kind == media.REGION:
            regions[digest] = decode_region_manifest(data)
        elif kind == media.EVIDENCE:
            evidence.append(decode_evidence_manifest(data))
        else:
            raise MediaTypeError(f"manifest {digest[:12]} is neither a region nor evidence of a compute image")
    if not evidence:
        raise NoEvidenceError("the layout carries no evidence")
    image = evidence[0].image
    if any(item.image != image for item in evidence):
        raise StructureError("the layout holds evidence about different images")
    document = decode_image(layout.read(image.digest, media.MAX_BLOB[media.IMAGE]))
    targets = {reference.manifest: reference.target for reference in document.regions}
    if strangers := sorted(regions.keys() - targets.keys()):
        raise RegionSetError(f"region manifest {strangers[0][:12]} is not named by image.json")
    present = {targets[digest]: manifest for digest, manifest in regions.items()}
    named = [
        image,
        *(b for manifest in present.values() for b in manifest.blobs),
        *(b for e in evidence for b in e.layers),
    ]
    blobs = [_blob(layout, descriptor) for descriptor in named if descriptor.digest in layout.blobs]
    write_contents(path, document, image, present, evidence, blobs)
    return image.digest


def _manifests(layout: _Layout) -> Iterator[Digest]:
    lines = _lines(layout.index_json)
    if len(lines) != 1:
        raise StructureError(
            f"the layout holds {len(lines)} images, exactly one is wanted",
            remedy="copy one of them out: skopeo copy --all --preserve-digests oci:FOLDER:TAG oci:OTHER",
        )
    kind, digest = lines[0]
    if kind == media.OCI_MANIFEST:
        raise NoEvidenceError("the layout holds one manifest, not an image with its evidence")
    if kind != media.OCI_INDEX:
        raise MediaTypeError(f"the layout holds a {kind[:80]!r}, not an index")
    for kind, child in _lines(layout.read(digest, media.MAX_BLOB[media.OCI_INDEX])):
        if kind != media.OCI_MANIFEST:
            raise MediaTypeError(f"the index names a {kind[:80]!r}, not a manifest")
        yield child


def _lines(data: bytes) -> list[tuple[str, Digest]]:
    lines = _object(data).get("manifests")
    if not isinstance(lines, list) or len(lines) > media.MAX_ENTRIES:
        raise StructureError("an index without a list of manifests, or with too many")
    found = []
    for line in lines:
        kind, digest = (line.get("mediaType"), line.get("digest")) if isinstance(line, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(digest, str):
            raise StructureError("a descriptor without media type or digest")
        found.append((kind, parse_oci_digest(digest)))
    return found


def _object(data: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise EncodingError("a document of the layout is not JSON") from None
    if not isinstance(value, dict):
        raise StructureError("a document of the layout is not an object")
    return value


def _blob(layout: _Layout, descriptor: Descriptor) -> Blob:
    chunks = layout.blobs[descriptor.digest]
    if chunks.size != descriptor.size:
        raise BlobSizeError(f"blob {descriptor.digest[:12]} has {chunks.size} bytes, {descriptor.size} are stated")
    return Blob(descriptor, chunks)


def _folder_layout(folder: Path, opened: ExitStack) -> _Layout:
    index = _regular(folder / tar.INDEX_NAME)
    if index is None:
        raise UsageError(f"{folder} holds no {tar.INDEX_NAME}", remedy="name a folder in OCI layout")
    source = _opened(folder / tar.INDEX_NAME, opened)
    blobs: dict[Digest, Chunks] = {}
    store = folder / "blobs" / "sha256"
    for file in sorted(store.iterdir()) if store.is_dir() else []:
        found = _BLOB.fullmatch(tar.BLOB_FOLDER + file.name)
        size = _regular(file)
        if found and size:
            blobs[Digest(found[1])] = Chunks(_LazyFile(file, size), 0, size)
    return _Layout(_read_index(source, 0, source.size), blobs)


def _archive_layout(path: Path, opened: ExitStack) -> _Layout:
    source = _opened(path, opened)
    if source.read(0, min(2, source.size)) == _GZIP:
        raise ContainerError(f"{path} is compressed", remedy=f"gunzip it first, or {_UNPACK}")
    index: bytes | None = None
    blobs: dict[Digest, Chunks] = {}
    for entry in _walk_foreign(source):
        if entry.name in (tar.INDEX_NAME, "./" + tar.INDEX_NAME):
            if index is not None:
                raise TarOrderError(f"{tar.INDEX_NAME} appears twice")
            index = _read_index(source, entry.offset, entry.size)
        elif found := _BLOB.fullmatch(entry.name):
            if Digest(found[1]) in blobs:
                raise TarOrderError(f"{entry.name} appears twice")
            blobs[Digest(found[1])] = Chunks(source, entry.offset, entry.size)
    if index is None:
        raise ContainerError(f"{path} holds no {tar.INDEX_NAME}", remedy="name an archive of an OCI layout")
    return _Layout(index, blobs)


def _walk_foreign(source: ImageSource) -> Iterator[tar.Entry]:
    """Regular files of a POSIX or GNU archive.  Raises TarHeaderError, TarTruncatedError, LimitError."""
    offset = 0
    for _ in range(4 * media.MAX_ENTRIES):
        if offset + tar.RECORD > source.size:
            raise TarTruncatedError("the archive ends without end records")
        header = source.read(offset, tar.RECORD)
        if not any(header):
            return
        entry, kind = _foreign_entry(header, offset)
        if entry.offset + entry.size > source.size:
            raise TarTruncatedError(f"{entry.name[:80]!r} claims {entry.size} bytes, more than the archive holds")
        if kind in _REGULAR:
            yield entry
        elif kind != _FOLDER or entry.size:
            raise TarHeaderError(f"{entry.name[:80]!r} is no regular file (type {kind!r})", remedy=_UNPACK)
        offset = entry.end
    raise LimitError("the archive holds too many entries")


def _foreign_entry(header: bytes, offset: int) -> tuple[tar.Entry, bytes]:
    size, checksum = _OCTAL.fullmatch(header[124:136]), _OCTAL.fullmatch(header[148:156])
    if not header[257:].startswith(b"ustar") or size is None or checksum is None:
        raise TarHeaderError(f"no archive header at {offset}", remedy=_UNPACK)
    if int(checksum[1], 8) != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]):
        raise TarHeaderError(f"wrong checksum in the header at {offset}", remedy="fetch the archive again")
    name, prefix = _text(header[:100]), _text(header[345:500])
    posix = header[257:265] == b"ustar\00000"
    return tar.Entry(f"{prefix}/{name}" if posix and prefix else name, offset + tar.RECORD, int(size[1], 8)), header[
        156:157
    ]


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def _read_index(source: ImageSource, offset: int, size: int) -> bytes:
    if size > media.MAX_INDEX_JSON:
        raise JsonSizeError(f"{tar.INDEX_NAME} of {size} bytes, at most {media.MAX_INDEX_JSON} allowed")
    return source.read(offset, size)


def _opened(path: Path, opened: ExitStack) -> FileSource:
    source = open_source(path)
    opened.callback(source.close)
    return source


def _regular(path: Path) -> int | None:
    """Size of a regular file that is no symbolic link, else None."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@dataclass(frozen=True, slots=True)
class _LazyFile:
    """A blob in a file of its own, opened for each read so that a layout of thousands of blobs needs one descriptor."""

    path: Path
    size: int

    @property
    def in_place_refusal(self) -> str | None:
        return "a foreign layout is always copied"

    def read(self, offset: int, size: int) -> bytes:
        source = open_source(self.path)
        try:
            return source.read(offset, size)
        finally:
            source.close()

    def read_into(self, offset: int, view: memoryview) -> None:
        view[:] = self.read(offset, len(view))

    def map(self, offset: int, size: int) -> memoryview:
        return memoryview(self.read(offset, size))

    def check_unchanged(self) -> None:
        """Every byte is hashed as it is written, so a change shows there."""

    def close(self) -> None:
        """Nothing is held open."""
