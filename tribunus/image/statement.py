"""The admission statement: what a signer says about an image, and the proof that evidence lies behind it.

Imported by: image.read, image.write.  Imports: errors, canon, image.media, image.content, image.dsse, image.merkle.

The statement is a function of image.json, the policy and the evidence files.  The reader derives what it can from the
image at hand and compares; nothing in a signed statement is taken at its word where it could be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from tribunus.canon import Digest, Json, JsonObject, digest_from_json, int_of, list_of, object_of, str_of
from tribunus.errors import EncodingError, EnvelopeError, StructureError, SubjectError, UntrustedError
from tribunus.image import media
from tribunus.image.content import Descriptor, EvidenceManifest, ImageDocument, oci_digest, parse_oci_digest
from tribunus.image.dsse import Statement, Subject, decode_statement
from tribunus.records import dataclass

IMAGE_SUBJECT = "image.json"


@dataclass(frozen=True, slots=True)
class LinesSummary:
    """A file of lines: its digest, size in bytes, and the RFC 6962 root over its lines."""

    digest: Digest
    size: int
    root: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionAdmission:
    """What the signer says about one region."""

    target: str
    manifest: Digest
    size: int
    kernels: int
    """Lines of the admissions: kernels of the region's plan."""
    admissions: LinesSummary
    receipts: LinesSummary
    ledger_entries: int
    """Receipts of the whole certification, refused candidates included."""
    ledger_root: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Predicate ``admission/v1``."""

    epoch: int
    policy: Digest
    """Of the certification policy: budgets, required checks."""
    regions: tuple[RegionAdmission, ...]


def summarize(data: bytes, digest: Digest, lines: Sequence[bytes]) -> LinesSummary:
    """Summary of a file of lines."""
    from tribunus.image.merkle import merkle_root  # for those who write statements, not for those who read them

    return LinesSummary(digest, len(data), Digest(merkle_root(lines).hex()))


def build_statement(document: ImageDocument, image_id: Digest, admission: Admission) -> Statement:
    """The statement to sign: image.json first, then the region manifests for tools that look at manifests."""
    regions: list[Json] = [
        {
            "target": region.target,
            "manifest": oci_digest(region.manifest),
            "size": region.size,
            "kernels": region.kernels,
            "admissions": _summary_to_json(region.admissions),
            "receipts": _summary_to_json(region.receipts),
            "ledger": {"entries": region.ledger_entries, "root": region.ledger_root},
        }
        for region in admission.regions
    ]
    return Statement(
        subjects=_subjects(document, image_id),
        predicate_type=media.ADMISSION_PREDICATE,
        predicate={"epoch": admission.epoch, "policy": oci_digest(admission.policy), "regions": regions},
    )


def check_statement(
    payload_type: str, payload: bytes, document: ImageDocument, image_id: Digest, evidence: EvidenceManifest
) -> Admission:
    """The admission that a verified payload states about this very image and this very evidence.

    Compared in this order: payload type, statement type, predicate type, subject, predicate.  Raises EnvelopeError,
    UntrustedError or SubjectError.
    """
    if payload_type != media.STATEMENT_PAYLOAD:
        raise EnvelopeError(f"the envelope holds {payload_type[:80]!r}, not a statement")
    statement = decode_statement(payload)
    if statement.predicate_type != media.ADMISSION_PREDICATE:
        raise UntrustedError(f"the signed statement is a {statement.predicate_type[:80]!r}, not an admission")
    if statement.subjects != _subjects(document, image_id):
        raise SubjectError("the signed statement is about another image")
    try:
        admission = _admission(statement.predicate)
    except (EncodingError, StructureError) as error:
        raise EnvelopeError(f"not an admission: {error.detail}") from None
    stated = [(region.target, region.manifest, region.size) for region in admission.regions]
    if admission.epoch != document.epoch or stated != [(r.target, r.manifest, r.size) for r in document.regions]:
        raise SubjectError("the signed admission does not name the epoch and regions of image.json")
    admissions = [_descriptor(region.admissions, media.ADMISSIONS) for region in admission.regions]
    receipts = [_descriptor(region.receipts, media.RECEIPTS) for region in admission.regions]
    if admissions != list(evidence.admissions) or receipts != list(evidence.receipts):
        raise SubjectError("admissions or receipts beside the envelope are not the signed ones")
    return admission


def _subjects(document: ImageDocument, image_id: Digest) -> tuple[Subject, ...]:
    return (Subject(IMAGE_SUBJECT, image_id), *(Subject(r.target, r.manifest) for r in document.regions))


def _descriptor(summary: LinesSummary, kind: str) -> Descriptor:
    return Descriptor(summary.digest, kind, summary.size)


def _summary_to_json(summary: LinesSummary) -> JsonObject:
    return {"digest": oci_digest(summary.digest), "size": summary.size, "root": summary.root}


def _admission(predicate: JsonObject) -> Admission:
    fields = object_of(predicate, "admission", frozenset({"epoch", "policy", "regions"}))
    return Admission(
        epoch=int_of(fields["epoch"], "admission epoch"),
        policy=parse_oci_digest(str_of(fields["policy"], "admission policy")),
        regions=tuple(_region(item) for item in list_of(fields["regions"], "admission regions")),
    )


def _region(value: Json) -> RegionAdmission:
    keys = frozenset({"target", "manifest", "size", "kernels", "admissions", "receipts", "ledger"})
    fields = object_of(value, "admission region", keys)
    ledger = object_of(fields["ledger"], "admission ledger", frozenset({"entries", "root"}))
    return RegionAdmission(
        target=str_of(fields["target"], "admission target"),
        manifest=parse_oci_digest(str_of(fields["manifest"], "admission manifest")),
        size=int_of(fields["size"], "admission size"),
        kernels=int_of(fields["kernels"], "admission kernels"),
        admissions=_summary(fields["admissions"], "admission admissions"),
        receipts=_summary(fields["receipts"], "admission receipts"),
        ledger_entries=int_of(ledger["entries"], "admission ledger entries"),
        ledger_root=digest_from_json(ledger["root"], "admission ledger root"),
    )


def _summary(value: Json, where: str) -> LinesSummary:
    fields = object_of(value, where, frozenset({"digest", "size", "root"}))
    return LinesSummary(
        digest=parse_oci_digest(str_of(fields["digest"], where)),
        size=int_of(fields["size"], where),
        root=digest_from_json(fields["root"], where),
    )
