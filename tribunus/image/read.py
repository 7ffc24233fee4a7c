"""Open an image: prove its form, judge its signatures, hand out verified bytes.

Imported by: runtime, certification, reports, cli, image.diff, image.write.  Imports: errors, canon, image.*.

Refusals come in a fixed order: container, encoding, structure, signature, trust, content digests.  ``open_image`` does
the first three, ``ImageFile.verify_trust`` the next two, ``RegionFile.load`` and the ``verify_*`` methods the last.
Documents are compared with their digest before they are parsed, and code is only ever seen in private memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import (
    BlobMissingError,
    BlobSizeError,
    ContainerError,
    IntegrityError,
    InternalError,
    LimitError,
    MediaTypeError,
    ReceiptMissingError,
    RegionSetError,
    SignatureError,
    StructureError,
    SubjectError,
    TargetError,
    TribunusError,
)
from tribunus.image import media, tar
from tribunus.image.content import (
    Descriptor,
    EvidenceManifest,
    ImageDocument,
    IndexEntry,
    RegionManifest,
    RegionReference,
    decode_evidence_manifest,
    decode_image,
    decode_index,
    decode_index_json,
    decode_region_manifest,
    derive_index,
    split_jsonl,
)
from tribunus.image.dsse import Envelope, decode_envelope
from tribunus.image.policy import SignedPayload, Trust, TrustPolicy, check_expiry, judge_trust
from tribunus.image.source import Chunks, ImageSource, WeightsMode, hash_range, open_source, private_copy
from tribunus.image.statement import Admission, LinesSummary, check_statement
from tribunus.records import dataclass

if TYPE_CHECKING:
    from threading import Thread

SMALL_LOAD: Final = 4 * 1024 * 1024
"""Bytes that are hashed sooner than threads are started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All documents of an image whose form is proved; nothing of it is trusted yet."""

    image_id: Digest
    document: ImageDocument
    image: Descriptor
    index: Descriptor
    regions: Mapping[str, RegionManifest]
    """By target; a file may hold fewer regions than image.json names."""
    evidence: tuple[EvidenceManifest, ...]
    """Ascending by digest of the manifest."""
    manifests: tuple[Descriptor, ...]
    """Descriptors of all region and evidence manifests present."""
    entries: Mapping[Digest, tar.Entry]
    """Blobs in the file."""


def read_contents(source: ImageSource) -> Contents:
    """Walk the container, parse its documents, derive the index and the placement, compare both.

    Raises ContainerError, EncodingError, StructureError leaves, IntegrityError, LimitError or NoEvidenceError.
    """
    walked = tar.walk(source)
    if source.read(walked[0].offset, walked[0].size) != tar.LAYOUT_BYTES:
        raise ContainerError("oci-layout is not the expected file")
    if walked[1].size > media.MAX_INDEX_JSON:
        raise LimitError(f"index.json has {walked[1].size} bytes, at most {media.MAX_INDEX_JSON} allowed")
    reader = _Documents(source, {Digest(entry.name[-64:]): entry for entry in walked[2:]})
    index = decode_index_json(source.read(walked[1].offset, walked[1].size))
    index_bytes = reader.read(index)
    lines = decode_index(index_bytes)
    evidence_lines = [line.descriptor for line in lines if line.target is None]
    evidence = tuple(decode_evidence_manifest(reader.read(line)) for line in evidence_lines)
    image = evidence[0].image
    if any(item.image != image for item in evidence):
        raise StructureError("evidence in one file speaks about different images")
    document = decode_image(reader.read(image))
    present = _present(lines, document)
    derived = derive_index(
        document,
        image.digest,
        frozenset(present),
        evidence_lines,
    )
    if derived != index_bytes:
        raise StructureError("the index is not the one derived from image.json and the evidence")
    regions = {target: decode_region_manifest(reader.read(line)) for target, line in present.items()}
    if any(len(item.admissions) != len(document.regions) for item in evidence):
        raise RegionSetError("evidence does not cover the regions of image.json")
    contents = Contents(
        image_id=image.digest,
        document=document,
        image=image,
        index=index,
        regions=regions,
        evidence=evidence,
        manifests=tuple(line.descriptor for line in lines),
        entries=reader.entries,
    )
    small, big, absent = referenced_blobs(contents)
    tar.check_placement(source, walked, small, big, absent)
    return contents


def referenced_blobs(contents: Contents) -> tuple[dict[Digest, int], dict[Digest, int], frozenset[Digest]]:
    """Sizes of the small and of the big blobs, and those that a partial file may lack.

    Receipts may be absent, and the admissions of regions that are absent themselves.  Raises BlobSizeError or
    MediaTypeError if a blob is described in two ways.
    """
    small: dict[Digest, int] = {}
    big: dict[Digest, int] = {}
    needed = [contents.index, contents.image, *contents.manifests]
    spare: list[Descriptor] = []
    for region in contents.regions.values():
        needed.extend(region.blobs)
    for item in contents.evidence:
        needed.extend((item.envelope, *item.further))
        spare.extend(item.receipts)
        for reference, admissions in zip(contents.document.regions, item.admissions, strict=True):
            (needed if reference.target in contents.regions else spare).append(admissions)
    for blob in (*needed, *spare):
        group, other = (big, small) if blob.media_type in media.BIG else (small, big)
        if blob.digest in other:
            raise MediaTypeError(f"blob {blob.digest[:12]} is referenced as two kinds")
        if group.setdefault(blob.digest, blob.size) != blob.size:
            raise BlobSizeError(f"blob {blob.digest[:12]} is referenced with two sizes")
    return small, big, frozenset(blob.digest for blob in spare) - frozenset(blob.digest for blob in needed)


def open_image(path: str | Path, weights: WeightsMode = WeightsMode.AUTO) -> ImageFile:
    """Open an image file and prove its form; its signatures are judged by ``ImageFile.verify_trust``.

    Raises EnvironmentFault and what ``read_contents`` raises.
    """
    source = open_source(Path(path))
    try:
        return ImageFile(source, weights)
    except BaseException:
        source.close()
        raise


class ImageFile:
    """An open image of proved form.  Close it when no more blobs are wanted; views handed out stay valid."""

    def __init__(self, source: ImageSource, weights: WeightsMode = WeightsMode.AUTO) -> None:
        self._source = source
        self._contents = read_contents(source)
        self._refusal = source.in_place_refusal if weights is WeightsMode.AUTO else "copies were asked for"
        self._evidence: dict[str, int] = {}
        self._loadings: dict[str, _Loading] = {}

    def __enter__(self) -> ImageFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file, once nothing reads it any more."""
        for loading in self._loadings.values():
            loading.end()
        self._source.close()

    @property
    def contents(self) -> Contents:
        """All documents."""
        return self._contents

    @property
    def image_id(self) -> Digest:
        """SHA-256 of image.json."""
        return self._contents.image_id

    @property
    def document(self) -> ImageDocument:
        """image.json."""
        return self._contents.document

    @property
    def targets(self) -> tuple[str, ...]:
        """Targets of the regions in this file, ascending."""
        return tuple(r.target for r in self.document.regions if r.target in self._contents.regions)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    @property
    def weights_copied_because(self) -> str | None:
        """Why weights are copied into private memory; None: they are mapped in place."""
        return self._refusal

    @property
    def absent(self) -> tuple[str, ...]:
        """What image.json and evidence name but this file lacks: regions by target, blobs by digest."""
        regions = [r.target for r in self.document.regions if r.target not in self._contents.regions]
        _, _, spare = referenced_blobs(self._contents)
        return (*regions, *sorted(digest for digest in spare if digest not in self._contents.entries))

    def region(self, target: str) -> RegionFile:
        """The region for ``target``, with the evidence that ``verify_trust`` accepted, else the first.

        Raises TargetError.
        """
        for position, reference in enumerate(self.document.regions):
            if reference.target == target and target in self._contents.regions:
                return RegionFile(self, reference, position, self._evidence.get(target, 0))
        raise TargetError(f"the image has no region for target {target!r}; it has {', '.join(self.targets) or 'none'}")

    def start(self, target: str) -> None:
        """Begin to map and hash a region's code and weights in threads; its ``kernels`` and ``weights`` wait for it."""
        self.loading(target)

    def loading(self, target: str) -> _Loading:
        """A region's code and weights on their way into memory, begun once however often it is asked for."""
        if target not in self._loadings:
            manifest = self._contents.regions[target]
            self._loadings[target] = _Loading(self.view, (manifest.kernels, *manifest.weights))
        return self._loadings[target]

    def envelope(self, evidence: int) -> Envelope:
        """Envelope of one evidence manifest; its signature is not judged here.  Raises EnvelopeError."""
        return decode_envelope(self.blob(self._contents.evidence[evidence].envelope))

    def verify_trust(
        self,
        policy: TrustPolicy,
        *,
        targets: Sequence[str] | None = None,
        now: str | None = None,
        allow_expired: bool = False,
    ) -> Trust:
        """Judge the signatures and, for each of ``targets`` (None: all in the file), the rules of the policy.

        now: UTC time like ``2027-06-01T00:00:00Z``; None: the clock's.  ``Trust.record`` raises the high-water marks,
        once everything else has passed.  Raises leaves of the families 20 to 24.
        """
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) if now is None else now
        signed = self._verified_payloads(policy)
        if not allow_expired:
            check_expiry(policy, moment)
        trust = judge_trust(
            policy,
            name=self.document.name,
            image_id=self.image_id,
            epoch=self.document.epoch,
            targets=self.targets if targets is None else targets,
            signed=signed,
            now=moment,
        )
        self._evidence = dict(trust.evidence)
        return trust

    def admission(self, evidence: int) -> Admission:
        """What one envelope says about this image; whether to believe it is ``verify_trust``'s question.

        Raises EnvelopeError, UntrustedError or SubjectError.
        """
        envelope = self.envelope(evidence)
        manifest = self._contents.evidence[evidence]
        return check_statement(envelope.payload_type, envelope.payload, self.document, self.image_id, manifest)

    def verify_region(self, target: str) -> None:
        """Hash every blob of one region and of its evidence.  Raises IntegrityError, ChangedError."""
        self.region(target).verify()

    def verify_all(self) -> None:
        """Hash every blob in the file and prove the Merkle roots of all evidence.  Raises IntegrityError."""
        blobs = [blob for region in self._contents.regions.values() for blob in region.blobs]
        _Loading(self._hashed, blobs).wait()
        for position, item in enumerate(self._contents.evidence):
            for blob in (item.envelope, *item.further):
                self.blob(blob)
            for region in self.admission(position).regions:
                self._check_lines(region.admissions, media.ADMISSIONS, region.kernels)
                self._check_lines(region.receipts, media.RECEIPTS, None)
        self._source.check_unchanged()

    def has(self, blob: Descriptor) -> bool:
        """Whether the file holds this blob."""
        return blob.digest in self._contents.entries

    def blob(self, blob: Descriptor) -> bytes:
        """Private verified copy of a small blob.  Raises BlobMissingError, IntegrityError."""
        entry = self._entry(blob)
        data = self._source.read(entry.offset, entry.size)
        _check_digest(blob, digest_bytes(data))
        return data

    def chunks(self, blob: Descriptor) -> Chunks:
        """A blob of any size piece by piece, not verified: whoever writes it elsewhere hashes it there."""
        entry = self._entry(blob)
        return Chunks(self._source, entry.offset, entry.size)

    def view(self, blob: Descriptor) -> memoryview:
        """Verified bytes of a big blob at a page-aligned address: weights in place where allowed, all else private.

        Raises BlobMissingError, IntegrityError.
        """
        entry = self._entry(blob)
        if blob.media_type == media.WEIGHTS and self._refusal is None:
            mapped = self._source.map(entry.offset, entry.size)
            _check_digest(blob, digest_bytes(mapped))
            return mapped
        view, digest = private_copy(self._source, entry.offset, entry.size)
        _check_digest(blob, digest)
        return view

    def check_unchanged(self) -> None:
        """Raises ChangedError if the file was touched since it was opened."""
        self._source.check_unchanged()

    def _entry(self, blob: Descriptor) -> tar.Entry:
        entry = self._contents.entries.get(blob.digest)
        if entry is None:
            raise BlobMissingError(f"{blob.media_type} {blob.digest[:12]} is not in this file")
        return entry

    def _verified_payloads(self, policy: TrustPolicy) -> list[SignedPayload]:
        signed: list[SignedPayload] = []
        for position, manifest in enumerate(self._contents.evidence):
            envelope = self.envelope(position)
            key = policy.keys.get(envelope.keyid)
            if key is None:
                continue
            if not key.public.verifies(envelope.signature, envelope.signed_bytes()):
                raise SignatureError(f"signature of key {envelope.keyid[:16]} is wrong")
            check_statement(envelope.payload_type, envelope.payload, self.document, self.image_id, manifest)
            signed.append(SignedPayload(position, envelope.keyid, envelope.payload))
        return signed

    def _check_lines(self, summary: LinesSummary, kind: str, count: int | None) -> None:
        blob = Descriptor(summary.digest, kind, summary.size)
        if not self.has(blob):
            return
        from tribunus.image.merkle import merkle_root  # whoever opens an image to run it needs no roots

        lines = split_jsonl(self.blob(blob))
        if merkle_root(lines).hex() != summary.root:
            raise SubjectError(f"the signed Merkle root is not that of {kind}")
        if count is not None and count != len(lines):
            raise SubjectError(f"the signed admission counts {count} kernels, {len(lines)} lines are there")

    def _hashed(self, blob: Descriptor) -> memoryview:
        """Hash a blob of any size without keeping it; the view is empty."""
        entry = self._entry(blob)
        _check_digest(blob, hash_range(self._source, entry.offset, entry.size))
        return memoryview(b"")


class RegionFile:
    """One region of an open image.  Bytes come out verified, or not at all."""

    def __init__(self, image: ImageFile, reference: RegionReference, position: int, evidence: int) -> None:
        self._image = image
        self._reference = reference
        self._position = position
        self._evidence = image.contents.evidence[evidence]
        self._views: Mapping[Digest, memoryview] | None = None

    @property
    def reference(self) -> RegionReference:
        """The region as image.json names it."""
        return self._reference

    @property
    def manifest(self) -> RegionManifest:
        """The region's blobs."""
        return self._image.contents.regions[self._reference.target]

    def plan(self) -> bytes:
        """The plan's canonical JSON."""
        return self._image.blob(self.manifest.plan)

    def phaseir(self) -> bytes:
        """The PhaseIR's canonical JSON."""
        return self._image.blob(self.manifest.phaseir)

    def admissions(self) -> bytes:
        """Admission lines of the region."""
        return self._image.blob(self._evidence.admissions[self._position])

    def receipts(self) -> bytes:
        """Receipt lines of the region.  Raises ReceiptMissingError if the file was fetched without them."""
        blob = self._evidence.receipts[self._position]
        if not self._image.has(blob):
            raise ReceiptMissingError(
                f"this file holds no receipts of {self._reference.target}", remedy="fetch the whole image"
            )
        return self._image.blob(blob)

    def load(self) -> None:
        """Map and hash all that replay needs of the big blobs.  Raises IntegrityError, ChangedError."""
        self._loaded()

    def kernels(self) -> memoryview:
        """The code pack in private memory, page aligned, its fill included."""
        return self._loaded()[self.manifest.kernels.digest]

    def weights(self, shard: int) -> memoryview:
        """One shard of weights, page aligned, its fill included."""
        return self._loaded()[self.manifest.weights[shard].digest]

    @property
    def weights_count(self) -> int:
        """Number of shards."""
        return len(self.manifest.weights)

    def goldens(self) -> memoryview | None:
        """Golden vectors in private memory, or None if the region has none."""
        return None if self.manifest.goldens is None else self._image.view(self.manifest.goldens)

    def verify(self) -> None:
        """Hash every blob of the region, golden vectors, PhaseIR and evidence included.  Raises IntegrityError."""
        self.plan()
        self.phaseir()
        self.admissions()
        if self._image.has(self._evidence.receipts[self._position]):
            self.receipts()
        self._loaded()
        self.goldens()
        self._image.check_unchanged()

    def _loaded(self) -> Mapping[Digest, memoryview]:
        if self._views is None:
            views = self._image.loading(self._reference.target).wait()
            self._image.check_unchanged()
            self._views = views
        return self._views


class _Documents:
    """Reads documents by descriptor: size first, digest second, and only then are bytes handed to a parser."""

    def __init__(self, source: ImageSource, entries: Mapping[Digest, tar.Entry]) -> None:
        self._source = source
        self.entries = entries

    def read(self, blob: Descriptor) -> bytes:
        entry = self.entries.get(blob.digest)
        if entry is None:
            raise BlobMissingError(f"{blob.media_type} {blob.digest[:12]} is not in the file")
        if entry.size != blob.size:
            raise BlobSizeError(f"{blob.media_type} has {entry.size} bytes, its descriptor says {blob.size}")
        data = self._source.read(entry.offset, entry.size)
        _check_digest(blob, digest_bytes(data))
        return data


class _Loading:
    """Blobs on their way into memory: a few threads, largest blob first; hashing releases the interpreter.

    Less than SMALL_LOAD in all is read by whoever waits: starting a thread would take longer.
    """

    def __init__(self, read: Callable[[Descriptor], memoryview], blobs: Sequence[Descriptor]) -> None:
        self._read = read
        self._wanted = {blob.digest: blob for blob in blobs}
        self._queue = sorted(self._wanted.values(), key=lambda blob: blob.size)
        self._views: dict[Digest, memoryview] = {}
        self._failures: dict[Digest, TribunusError] = {}
        small = sum(blob.size for blob in self._queue) < SMALL_LOAD
        count = 0 if small else min(len(self._queue), os.cpu_count() or 1, 8)
        self._threads = _threads(self._work, count)
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait for the threads, whatever they found."""
        for thread in self._threads:
            thread.join()

    def wait(self) -> Mapping[Digest, memoryview]:
        """Views by digest.  Of several failures, that of the smallest digest is raised: a refusal is repeatable."""
        for thread in self._threads:
            thread.join()
        if not self._threads:
            self._work()
        for digest in sorted(self._failures):
            raise self._failures[digest]
        if missing := sorted(self._wanted.keys() - self._views.keys()):
            raise InternalError(f"blob {missing[0][:12]} was not read; the thread's own message stands above")
        return self._views

    def _work(self) -> None:
        while True:
            try:
                blob = self._queue.pop()
            except IndexError:
                return
            try:
                self._views[blob.digest] = self._read(blob)
            except TribunusError as error:
                self._failures[blob.digest] = error


def _threads(work: Callable[[], None], count: int) -> list[Thread]:
    if not count:
        return []
    from threading import Thread  # a small image is open before it would be imported

    return [Thread(target=work, daemon=True) for _ in range(count)]


def _check_digest(blob: Descriptor, found: Digest) -> None:
    if found != blob.digest:
        raise IntegrityError(f"{blob.media_type} {blob.digest[:12]} holds other bytes ({found[:12]})")


def _present(lines: Sequence[IndexEntry], document: ImageDocument) -> dict[str, Descriptor]:
    named = {region.target: region for region in document.regions}
    present: dict[str, Descriptor] = {}
    for line in lines:
        if line.target is None:
            continue
        region = named.get(line.target)
        if region is None or line.target in present or region.manifest != line.descriptor.digest:
            raise RegionSetError(f"region {line.target[:80]!r} of the index is not the one that image.json names")
        present[line.target] = line.descriptor
    if not present:
        raise RegionSetError("the file holds no region")
    return present
