"""The documents of an image as values: image.json, region and evidence manifests, and the index derived from them.

Imported by: image.{read, write, diff, normalize, statement, policy}.  Imports: errors, canon, image.media.

Every document has one canonical byte string.  ``decode`` functions accept that string only, with closed sets of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    decode,
    encode,
    int_of,
    is_identifier,
    list_of,
    object_of,
    parse_digest,
    str_of,
)
from tribunus.errors import (
    DescriptorError,
    DigestSyntaxError,
    LimitError,
    MediaTypeError,
    NoEvidenceError,
    ReceiptOrderError,
    RegionSetError,
    RequiresError,
    SchemaError,
    StructureError,
    VersionError,
)
from tribunus.image import media
from tribunus.records import dataclass

_PREFIX: Final = "sha256:"
_MAX_SIZE: Final = 2**48


def oci_digest(digest: Digest) -> str:
    """A digest as registries write it."""
    return _PREFIX + digest


def parse_oci_digest(text: str) -> Digest:
    """Inverse of ``oci_digest``.  Raises DigestSyntaxError."""
    if not text.startswith(_PREFIX):
        raise DigestSyntaxError(f"{text[:80]!r} is not a sha256 digest")
    return parse_digest(text[len(_PREFIX) :])


@dataclass(frozen=True, slots=True, order=True)
class Descriptor:
    """Reference to a blob by type, digest and size in bytes."""

    digest: Digest
    media_type: str
    size: int

    def to_json(self) -> JsonObject:
        return {"mediaType": self.media_type, "digest": oci_digest(self.digest), "size": self.size}


@dataclass(frozen=True, slots=True)
class Platform:
    """Host processor and system of a region, in the names that registries use (``amd64``, ``linux``)."""

    architecture: str
    os: str

    def to_json(self) -> JsonObject:
        return {"architecture": self.architecture, "os": self.os}


UNKNOWN_PLATFORM: Final = Platform("unknown", "unknown")


@dataclass(frozen=True, slots=True)
class RegionReference:
    """One region as image.json names it."""

    target: str
    platform: Platform
    manifest: Digest
    size: int
    """Of the region manifest, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDocument:
    """image.json.  The image id is the SHA-256 of its canonical bytes."""

    name: str
    epoch: int
    """Raised by the signer when older images of this name must no longer run."""
    model: JsonObject
    choices: Digest
    toolchain: JsonObject
    requires: tuple[str, ...]
    regions: tuple[RegionReference, ...]

    def __post_init__(self) -> None:
        if not is_identifier(self.name) or "/" in self.name or "+" in self.name:
            raise SchemaError(f"{self.name[:80]!r} cannot name an image: lower case letters, digits, '.', '_', '-'")
        if list(self.requires) != sorted(set(self.requires)):
            raise SchemaError("image requires: not sorted and unique")
        targets = [region.target for region in self.regions]
        if not targets or targets != sorted(set(targets)):
            raise RegionSetError("an image has at least one region, and regions ascend by target")
        if len(targets) > media.MAX_REGIONS:
            raise LimitError(f"{len(targets)} regions, at most {media.MAX_REGIONS} allowed")
        if bad := [target for target in targets if not is_identifier(target)]:
            raise SchemaError(f"{bad[0][:80]!r} cannot name a target")

    def encode(self) -> bytes:
        """Canonical bytes."""
        regions: list[Json] = [
            {
                "target": region.target,
                "platform": region.platform.to_json(),
                "manifest": oci_digest(region.manifest),
                "size": region.size,
            }
            for region in self.regions
        ]
        return encode(
            {
                "schema": media.IMAGE_SCHEMA,
                "name": self.name,
                "epoch": self.epoch,
                "model": self.model,
                "choices": oci_digest(self.choices),
                "toolchain": self.toolchain,
                "requires": list(self.requires),
                "regions": regions,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionManifest:
    """One target's content.  The descriptors carry the media types of their roles."""

    plan: Descriptor
    phaseir: Descriptor
    kernels: Descriptor
    weights: tuple[Descriptor, ...]
    goldens: Descriptor | None

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """All blobs in manifest order, the plan first."""
        goldens = () if self.goldens is None else (self.goldens,)
        return (self.plan, self.phaseir, self.kernels, *self.weights, *goldens)

    def encode(self) -> bytes:
        """Canonical bytes."""
        return _encode_manifest(media.REGION, self.plan, self.blobs[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceManifest:
    """One signer's evidence: an envelope, then admissions and receipts of each region in the order of image.json.

    further: envelopes with other statements about the same image, such as a review.
    """

    image: Descriptor
    envelope: Descriptor
    admissions: tuple[Descriptor, ...]
    receipts: tuple[Descriptor, ...]
    further: tuple[Descriptor, ...] = ()

    @property
    def layers(self) -> tuple[Descriptor, ...]:
        """All blobs but image.json, in manifest order."""
        pairs = [blob for pair in zip(self.admissions, self.receipts, strict=True) for blob in pair]
        return (self.envelope, *pairs, *self.further)

    def encode(self) -> bytes:
        """Canonical bytes."""
        return _encode_manifest(media.EVIDENCE, self.image, self.layers)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the OCI index, as far as it is needed before the index is compared with the derived one."""

    descriptor: Descriptor
    target: str | None
    """None for an evidence manifest."""


def decode_image(data: bytes) -> ImageDocument:
    """image.json from its canonical bytes.  Raises EncodingError or StructureError leaves, LimitError."""
    value = decode(data, limit=media.MAX_BLOB[media.IMAGE])
    if isinstance(value, dict) and value.get("schema") != media.IMAGE_SCHEMA:
        raise VersionError(
            f"image.json has schema {str(value.get('schema'))[:60]!r}, {media.IMAGE_SCHEMA} is read here"
        )
    keys = frozenset({"schema", "name", "epoch", "model", "choices", "toolchain", "requires", "regions"})
    fields = object_of(value, "image.json", keys)
    requires = tuple(str_of(item, "image requires") for item in list_of(fields["requires"], "image requires"))
    if unknown := sorted(set(requires) - media.KNOWN_FEATURES):
        raise RequiresError(f"the image requires {', '.join(unknown)[:200]}, unknown to this release")
    regions = list_of(fields["regions"], "image regions")
    if len(regions) > media.MAX_REGIONS:
        raise LimitError(f"{len(regions)} regions, at most {media.MAX_REGIONS} allowed")
    return ImageDocument(
        name=str_of(fields["name"], "image name"),
        epoch=int_of(fields["epoch"], "image epoch"),
        model=_free_object(fields["model"], "image model"),
        choices=parse_oci_digest(str_of(fields["choices"], "image choices")),
        toolchain=_free_object(fields["toolchain"], "image toolchain"),
        requires=requires,
        regions=tuple(_region_reference(item) for item in regions),
    )


def decode_region_manifest(data: bytes) -> RegionManifest:
    """A region manifest from its canonical bytes.  Raises EncodingError, StructureError leaves, LimitError."""
    config, layers = _decode_manifest(data, media.REGION)
    kinds = [layer.media_type for layer in layers]
    shards = kinds.count(media.WEIGHTS)
    goldens = kinds[-1:] == [media.GOLDENS]
    if config.media_type != media.PLAN or kinds != [
        media.PHASEIR,
        media.KERNELS,
        *[media.WEIGHTS] * shards,
        *[media.GOLDENS] * goldens,
    ]:
        raise MediaTypeError("a region is a plan, then PhaseIR, kernels, weights and at most one set of golden vectors")
    return RegionManifest(
        plan=config,
        phaseir=layers[0],
        kernels=layers[1],
        weights=layers[2 : 2 + shards],
        goldens=layers[-1] if goldens else None,
    )


def decode_evidence_manifest(data: bytes) -> EvidenceManifest:
    """An evidence manifest from its canonical bytes.  Raises EncodingError, StructureError leaves, LimitError."""
    config, layers = _decode_manifest(data, media.EVIDENCE)
    kinds = [layer.media_type for layer in layers]
    pairs = kinds.count(media.ADMISSIONS)
    further = len(kinds) - 1 - 2 * pairs
    if config.media_type != media.IMAGE or kinds != [
        media.ENVELOPE,
        *[media.ADMISSIONS, media.RECEIPTS] * pairs,
        *[media.ENVELOPE] * further,
    ]:
        raise MediaTypeError("evidence is image.json, then an envelope, admissions and receipts of each region")
    return EvidenceManifest(
        image=config,
        envelope=layers[0],
        admissions=layers[1 : 1 + 2 * pairs : 2],
        receipts=layers[2 : 2 + 2 * pairs : 2],
        further=layers[1 + 2 * pairs :],
    )


def derive_index(
    document: ImageDocument, image_id: Digest, present: frozenset[str], evidence: Sequence[Descriptor]
) -> bytes:
    """Bytes of the OCI index: the present regions in the order of image.json, then evidence ascending by digest."""
    lines: list[Json] = []
    for region in document.regions:
        if region.target in present:
            lines.append(
                {
                    **Descriptor(region.manifest, media.OCI_MANIFEST, region.size).to_json(),
                    "platform": region.platform.to_json(),
                    "annotations": {media.TARGET_ANNOTATION: region.target},
                }
            )
    for manifest in sorted(evidence):
        lines.append(
            {
                **manifest.to_json(),
                "platform": UNKNOWN_PLATFORM.to_json(),
                "annotations": {media.EVIDENCE_ANNOTATION: oci_digest(image_id)},
            }
        )
    return encode({"schemaVersion": 2, "mediaType": media.OCI_INDEX, "manifests": lines})


def derive_index_json(index: Descriptor) -> bytes:
    """Bytes of index.json, which names the OCI index and nothing else."""
    return encode({"schemaVersion": 2, "mediaType": media.OCI_INDEX, "manifests": [index.to_json()]})


def decode_index_json(data: bytes) -> Descriptor:
    """The OCI index that index.json names.  Raises StructureError unless ``derive_index_json`` gives ``data``."""
    fields = object_of(decode(data, limit=media.MAX_INDEX_JSON), INDEX, _INDEX_KEYS)
    lines = list_of(fields["manifests"], INDEX)
    if len(lines) != 1:
        raise StructureError(f"index.json names exactly one index, this one {len(lines)}")
    descriptor = _descriptor(lines[0], INDEX)
    if descriptor.media_type != media.OCI_INDEX:
        raise MediaTypeError(f"index.json names a {descriptor.media_type[:80]!r}, not an index")
    if derive_index_json(descriptor) != data:
        raise StructureError("index.json is not the derived one")
    return descriptor


def decode_index(data: bytes) -> tuple[IndexEntry, ...]:
    """Lines of the OCI index.  The caller compares the bytes with ``derive_index``.  Raises StructureError leaves."""
    fields = object_of(decode(data, limit=media.MAX_BLOB[media.OCI_INDEX]), INDEX, _INDEX_KEYS)
    if fields["schemaVersion"] != 2 or fields["mediaType"] != media.OCI_INDEX:
        raise MediaTypeError("the index is not an OCI index")
    entries = []
    for line in list_of(fields["manifests"], INDEX):
        item = object_of(line, INDEX, _DESCRIPTOR_KEYS | {"platform", "annotations"})
        notes = _free_object(item["annotations"], INDEX)
        descriptor = _descriptor({key: item[key] for key in _DESCRIPTOR_KEYS}, INDEX)
        if descriptor.media_type != media.OCI_MANIFEST:
            raise MediaTypeError(f"the index names a {descriptor.media_type[:80]!r}, not a manifest")
        if notes.keys() == {media.TARGET_ANNOTATION}:
            entries.append(IndexEntry(descriptor, str_of(notes[media.TARGET_ANNOTATION], INDEX)))
        elif notes.keys() == {media.EVIDENCE_ANNOTATION}:
            entries.append(IndexEntry(descriptor, None))
        else:
            raise StructureError("a line of the index is neither a region nor evidence")
    if not any(entry.target is None for entry in entries):
        raise NoEvidenceError("the image carries no evidence")
    return tuple(entries)


def to_jsonl(lines: Iterable[bytes]) -> bytes:
    """The canonical file of these lines: sorted bytewise, unique, each ended by a line feed.

    Raises ReceiptOrderError if a line is empty or holds a line feed, LimitError if one is too long.
    """
    data = b"".join(line + b"\n" for line in sorted(set(lines)))
    split_jsonl(data)
    return data


def split_jsonl(data: bytes) -> tuple[bytes, ...]:
    """Lines of a canonical file, without their line feeds.

    Raises ReceiptOrderError unless lines ascend strictly and none is empty, LimitError if one exceeds 1 MiB.
    """
    lines = data.split(b"\n")
    if lines.pop() or b"" in lines or any(a >= b for a, b in pairwise(lines)):
        raise ReceiptOrderError("lines are not complete, sorted and unique")
    if lines and max(map(len, lines)) > media.MAX_LINE:
        raise LimitError(f"a line is longer than {media.MAX_LINE} bytes")
    return tuple(lines)


INDEX: Final = "index"
_DESCRIPTOR_KEYS: Final = frozenset({"mediaType", "digest", "size"})
_INDEX_KEYS: Final = frozenset({"schemaVersion", "mediaType", "manifests"})
_MANIFEST_KEYS: Final = frozenset({"schemaVersion", "mediaType", "artifactType", "config", "layers"})


def _encode_manifest(kind: str, config: Descriptor, layers: Iterable[Descriptor]) -> bytes:
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": media.OCI_MANIFEST,
            "artifactType": kind,
            "config": config.to_json(),
            "layers": [layer.to_json() for layer in layers],
        }
    )


def _decode_manifest(data: bytes, kind: str) -> tuple[Descriptor, tuple[Descriptor, ...]]:
    fields = object_of(decode(data, limit=media.MAX_MANIFEST), "manifest", _MANIFEST_KEYS)
    if fields["schemaVersion"] != 2 or fields["mediaType"] != media.OCI_MANIFEST:
        raise MediaTypeError("a manifest is not an OCI image manifest")
    if fields["artifactType"] != kind:
        raise MediaTypeError(f"a manifest of {str(fields['artifactType'])[:80]!r} stands where {kind} belongs")
    layers = tuple(_descriptor(item, "manifest layer") for item in list_of(fields["layers"], "manifest layers"))
    return _descriptor(fields["config"], "manifest config"), layers


def _descriptor(value: Json, where: str) -> Descriptor:
    if not isinstance(value, dict) or value.keys() != _DESCRIPTOR_KEYS:
        raise DescriptorError(f"{where}: a descriptor has mediaType, digest and size, and nothing else")
    kind, digest, size = value["mediaType"], value["digest"], value["size"]
    if not isinstance(kind, str) or not isinstance(digest, str) or type(size) is not int:
        raise DescriptorError(f"{where}: a field of a descriptor has the wrong type")
    if kind not in media.MAX_BLOB:
        raise MediaTypeError(f"{where}: unknown media type {kind[:80]!r}")
    if not 0 < size < _MAX_SIZE:
        raise DescriptorError(f"{where}: a blob of {size} bytes")
    if size > media.MAX_BLOB[kind]:
        raise LimitError(f"{where}: {kind} of {size} bytes, at most {media.MAX_BLOB[kind]} allowed")
    return Descriptor(parse_oci_digest(digest), kind, size)


def _region_reference(value: Json) -> RegionReference:
    fields = object_of(value, "image region", frozenset({"target", "platform", "manifest", "size"}))
    platform = object_of(fields["platform"], "image platform", frozenset({"architecture", "os"}))
    return RegionReference(
        target=str_of(fields["target"], "image target"),
        platform=Platform(str_of(platform["architecture"], "image platform"), str_of(platform["os"], "image platform")),
        manifest=parse_oci_digest(str_of(fields["manifest"], "image manifest")),
        size=int_of(fields["size"], "image manifest size", 1, media.MAX_MANIFEST),
    )


def _free_object(value: Json, where: str) -> JsonObject:
    if type(value) is not dict:
        raise SchemaError(f"{where}: an object was expected")
    return value
