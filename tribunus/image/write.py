"""Write an image: content first, evidence beside it, one file that is either whole or not there.

Imported by: certification, image.normalize, reports, cli.  Imports: errors, canon, image.*.

The image id depends on content alone: signers, receipts and times change the file, never the id.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.canon import Digest, JsonObject, digest_bytes
from tribunus.errors import (
    BlobMissingError,
    EnvironmentFault,
    IntegrityError,
    InternalError,
    LimitError,
    NothingToJudge,
    UsageError,
)
from tribunus.image import media, tar
from tribunus.image.content import (
    Descriptor,
    EvidenceManifest,
    ImageDocument,
    Platform,
    RegionManifest,
    RegionReference,
    derive_index,
    derive_index_json,
    split_jsonl,
)
from tribunus.image.dsse import Envelope, Statement
from tribunus.image.folders import temporary_beside
from tribunus.image.keys import Signer
from tribunus.image.read import Contents, ImageFile, referenced_blobs
from tribunus.image.statement import Admission, RegionAdmission, build_statement, summarize

MAX_SHARD: Final = media.GIB
"""Weights are split into shards of at most this size, so that a changed head ships one shard again."""

_CHUNK: Final = 8 * media.MIB
_ZEROS: Final = memoryview(bytes(tar.ALIGN))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDraft:
    """One target's content and evidence.  Buffers are not copied: keep them unchanged until the image is written."""

    target: str
    platform: Platform
    plan: bytes
    phaseir: bytes
    kernels: bytes | memoryview
    weights: Sequence[bytes | memoryview]
    """Shards in the order in which the plan numbers them."""
    goldens: bytes | memoryview | None
    admissions: bytes
    """Canonical lines, see ``content.to_jsonl``."""
    receipts: bytes
    ledger_root: Digest
    ledger_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDraft:
    """All that an image is made from."""

    name: str
    epoch: int
    model: JsonObject
    choices: Digest
    toolchain: JsonObject
    requires: tuple[str, ...]
    regions: Sequence[RegionDraft]
    policy: Digest
    """Of the certification policy; signed, not content."""
    signers: Sequence[Signer]


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes on their way into a file, in parts that are not joined; they can be iterated more than once."""

    descriptor: Descriptor
    parts: Iterable[memoryview]


def write_image(path: str | Path, draft: ImageDraft) -> Digest:
    """Write the image and return its id.  ``path`` holds the old bytes or all the new ones, whatever happens.

    Raises EnvironmentFault (full disk, read-only folder), UsageError, LimitError, NothingToJudge, SchemaError,
    RegionSetError or ReceiptOrderError.
    """
    if not draft.signers:
        raise UsageError("an image needs a signer", remedy="name a key with --key")
    blobs: list[Blob] = []
    references: list[RegionReference] = []
    manifests: dict[str, RegionManifest] = {}
    admissions: list[RegionAdmission] = []
    drafts = sorted(draft.regions, key=lambda region: region.target)
    for region in drafts:
        manifest, parts = _region(region)
        encoded = make_blob(media.OCI_MANIFEST, manifest.encode())
        blobs += [*parts, encoded]
        manifests[region.target] = manifest
        reference = RegionReference(region.target, region.platform, encoded.descriptor.digest, encoded.descriptor.size)
        references.append(reference)
        admissions.append(_admission(region, reference))
    document = ImageDocument(
        name=draft.name,
        epoch=draft.epoch,
        model=draft.model,
        choices=draft.choices,
        toolchain=draft.toolchain,
        requires=draft.requires,
        regions=tuple(references),
    )
    image = make_blob(media.IMAGE, document.encode())
    admission = Admission(epoch=draft.epoch, policy=draft.policy, regions=tuple(admissions))
    statement = build_statement(document, image.descriptor.digest, admission)
    lines = [(make_blob(media.ADMISSIONS, r.admissions), make_blob(media.RECEIPTS, r.receipts)) for r in drafts]
    blobs += [image, *(blob for pair in lines for blob in pair)]
    evidence: list[EvidenceManifest] = []
    for signer in draft.signers:
        envelope = make_blob(media.ENVELOPE, sign(statement, signer).encode())
        blobs.append(envelope)
        evidence.append(
            EvidenceManifest(
                image=image.descriptor,
                envelope=envelope.descriptor,
                admissions=tuple(pair[0].descriptor for pair in lines),
                receipts=tuple(pair[1].descriptor for pair in lines),
            )
        )
    write_contents(Path(path), document, image.descriptor, manifests, evidence, blobs)
    return image.descriptor.digest


def countersign(
    image: ImageFile, path: str | Path, signer: Signer, evidence: int, further: Sequence[Statement]
) -> None:
    """Write a copy of ``image`` with one more evidence manifest: ``signer`` over the payload of evidence ``evidence``.

    further: other statements that the signer makes beside it, such as a review.  The image id stays.  The caller has
    verified ``image``; the path may be the image's own.  Raises EnvironmentFault and what reading blobs raises.
    """
    earlier = image.contents.evidence[evidence]
    signed = image.envelope(evidence)
    envelope = Envelope(signed.payload, signed.payload_type, signer.keyid, signer.sign(signed.signed_bytes()))
    added = [make_blob(media.ENVELOPE, envelope.encode())]
    added += [make_blob(media.ENVELOPE, sign(statement, signer).encode()) for statement in further]
    manifest = EvidenceManifest(
        image=earlier.image,
        envelope=added[0].descriptor,
        admissions=earlier.admissions,
        receipts=earlier.receipts,
        further=tuple(blob.descriptor for blob in added[1:]),
    )
    contents = image.contents
    write_contents(
        Path(path),
        contents.document,
        contents.image,
        contents.regions,
        [*contents.evidence, manifest],
        [*image_blobs(image), *added],
    )


def sign(statement: Statement, signer: Signer) -> Envelope:
    """The statement in an envelope of its own."""
    unsigned = Envelope(statement.encode(), media.STATEMENT_PAYLOAD, signer.keyid, b"")
    return Envelope(unsigned.payload, unsigned.payload_type, unsigned.keyid, signer.sign(unsigned.signed_bytes()))


def make_blob(media_type: str, data: bytes | memoryview) -> Blob:
    """``data`` as a blob; a big one gets zeros at its end up to the size rule.  Raises LimitError, InternalError."""
    view = memoryview(data).cast("B")
    fill = tar.fill_size(len(view)) if media_type in media.BIG else 0
    size = len(view) + fill
    if size == 0:
        raise InternalError(f"an empty {media_type} has no place in an image")
    if size > media.MAX_BLOB[media_type]:
        raise LimitError(
            f"{media_type} of {size} bytes, at most {media.MAX_BLOB[media_type]} allowed",
            remedy="certify fewer profiles or a smaller model",
        )
    parts = (view, _ZEROS[:fill]) if fill else (view,)
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return Blob(Descriptor(Digest(state.hexdigest()), media_type, size), parts)


def image_blobs(image: ImageFile) -> list[Blob]:
    """Every blob that an image's regions and evidence name and the file holds, index and manifests left out."""
    contents = image.contents
    found: list[Blob] = []
    named = [contents.image, *(blob for region in contents.regions.values() for blob in region.blobs)]
    named += [blob for item in contents.evidence for blob in item.layers]
    for blob in {descriptor.digest: descriptor for descriptor in named}.values():
        if image.has(blob):
            found.append(Blob(blob, image.chunks(blob)))
    return found


def _region(draft: RegionDraft) -> tuple[RegionManifest, list[Blob]]:
    for shard in draft.weights:
        if memoryview(shard).nbytes > MAX_SHARD:
            raise InternalError(f"a shard of weights is larger than {MAX_SHARD} bytes")
    plan, phaseir = make_blob(media.PLAN, draft.plan), make_blob(media.PHASEIR, draft.phaseir)
    kernels = make_blob(media.KERNELS, draft.kernels)
    weights = [make_blob(media.WEIGHTS, shard) for shard in draft.weights]
    goldens = None if draft.goldens is None else make_blob(media.GOLDENS, draft.goldens)
    manifest = RegionManifest(
        plan=plan.descriptor,
        phaseir=phaseir.descriptor,
        kernels=kernels.descriptor,
        weights=tuple(blob.descriptor for blob in weights),
        goldens=None if goldens is None else goldens.descriptor,
    )
    return manifest, [plan, phaseir, kernels, *weights, *([] if goldens is None else [goldens])]


def _admission(draft: RegionDraft, reference: RegionReference) -> RegionAdmission:
    lines, receipts = split_jsonl(draft.admissions), split_jsonl(draft.receipts)
    if not lines or not receipts:
        raise NothingToJudge(f"region {draft.target} has no admitted kernel", remedy="certify a model that computes")
    return RegionAdmission(
        target=draft.target,
        manifest=reference.manifest,
        size=reference.size,
        kernels=len(lines),
        admissions=summarize(draft.admissions, digest_bytes(draft.admissions), lines),
        receipts=summarize(draft.receipts, digest_bytes(draft.receipts), receipts),
        ledger_entries=draft.ledger_entries,
        ledger_root=draft.ledger_root,
    )


def write_contents(
    path: Path,
    document: ImageDocument,
    image: Descriptor,
    regions: Mapping[str, RegionManifest],
    evidence: Sequence[EvidenceManifest],
    blobs: Iterable[Blob],
) -> None:
    """Write the canonical file of these documents; ``blobs`` hold all that no document here says, see ``image_blobs``.

    Raises EnvironmentFault, IntegrityError if a blob is not what its descriptor says, BlobMissingError, LimitError.
    """
    region_blobs = [make_blob(media.OCI_MANIFEST, manifest.encode()) for manifest in regions.values()]
    unique = {manifest.encode(): manifest for manifest in evidence}
    evidence_blobs = sorted(
        (make_blob(media.OCI_MANIFEST, data) for data in unique), key=lambda blob: blob.descriptor.digest
    )
    found = [blob.descriptor for blob in evidence_blobs]
    index = make_blob(
        media.OCI_INDEX,
        derive_index(document, image.digest, frozenset(regions), found),
    )
    everything = {b.descriptor.digest: b for b in (*blobs, *region_blobs, *evidence_blobs, index)}
    contents = Contents(
        image_id=image.digest,
        document=document,
        image=image,
        index=index.descriptor,
        regions=regions,
        evidence=tuple(unique.values()),
        manifests=tuple(blob.descriptor for blob in (*region_blobs, *evidence_blobs)),
        entries={},
    )
    small, big, spare = referenced_blobs(contents)
    absent = spare - everything.keys()
    small = {digest: size for digest, size in small.items() if digest not in absent}
    if missing := (small.keys() | big.keys()) - everything.keys():
        raise BlobMissingError(f"blob {min(missing)[:12]} is not there")
    if strangers := everything.keys() - small.keys() - big.keys():
        raise InternalError(f"blob {min(strangers)[:12]} belongs to nothing")
    _write_file(path, derive_index_json(index.descriptor), small, big, everything)


def _write_file(
    path: Path,
    index_json: bytes,
    small: Mapping[Digest, int],
    big: Mapping[Digest, int],
    blobs: Mapping[Digest, Blob],
) -> None:
    entries = tar.place(len(index_json), small, big)
    if len(entries) > media.MAX_ENTRIES:
        raise LimitError(f"{len(entries)} entries, at most {media.MAX_ENTRIES} allowed")
    fixed = {tar.LAYOUT_NAME: tar.LAYOUT_BYTES, tar.INDEX_NAME: index_json}
    temporary = temporary_beside(path)
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                for entry in entries:
                    _write_all(descriptor, memoryview(tar.build_header(entry.name, entry.size)))
                    if entry.name in fixed:
                        _write_all(descriptor, memoryview(fixed[entry.name]))
                    elif (digest := Digest(entry.name[-64:])) in blobs:
                        _write_blob(descriptor, blobs[digest])
                    else:
                        _write_all(descriptor, memoryview(bytes(entry.size)))
                    _write_all(descriptor, memoryview(bytes(tar.padding(entry.size))))
                _write_all(descriptor, memoryview(tar.END))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}; nothing was left behind") from None


def _write_blob(descriptor: int, blob: Blob) -> None:
    """Hash again what goes out: a buffer that changed since it was named must not end up under that name."""
    state = hashlib.sha256()
    written = 0
    for part in blob.parts:
        for start in range(0, len(part), _CHUNK):
            chunk = part[start : start + _CHUNK]
            state.update(chunk)
            _write_all(descriptor, chunk)
            written += len(chunk)
    if state.hexdigest() != blob.descriptor.digest or written != blob.descriptor.size:
        kind, name = blob.descriptor.media_type, blob.descriptor.digest[:12]
        raise IntegrityError(f"{kind} {name} holds other bytes, or changed while it was written")


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
