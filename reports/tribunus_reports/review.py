"""What this package does with an image file: look at its signatures, and add a reviewer's to them.

Imported by: command.  Imports: tribunus.image, gates, judge, model.

Approving adds an evidence manifest: a second envelope over the very payload that the builder signed, and beside it a
review statement that names the report.  Declining signs no admission; its review statement joins the evidence that is
there.  The image id stays the same in both cases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import ContentsDiffer, EnvelopeError, GateShut, NoEvidenceError, SignatureError, UsageError
from tribunus.image import media
from tribunus.image.content import split_jsonl
from tribunus.image.dsse import Envelope, Statement, Subject, decode_envelope, decode_statement
from tribunus.image.keys import Signer as KeySigner
from tribunus.image.keys import load_development_key
from tribunus.image.policy import TrustPolicy
from tribunus.image.read import ImageFile, open_image
from tribunus.image.statement import IMAGE_SUBJECT
from tribunus.image.write import countersign, image_blobs, make_blob, sign, write_contents
from tribunus_reports.gates import SeenImage
from tribunus_reports.judge import recompute
from tribunus_reports.model import Report
from tribunus_reports.model_parts import ReportState, Signer
from tribunus_reports.store import StoredReport

REVIEW_PREDICATE: Final = "https://tribunus.dev/attestation/review/v1"
REPORT_SUBJECT: Final = "report.json"
MAX_REASON: Final = 4000


class Decision(StrEnum):
    APPROVED = "approved"
    DECLINED = "declined"


def see_image(path: Path, report: Report, trust: TrustPolicy, environ: Mapping[str, str]) -> SeenImage:
    """The image at ``path``, every blob verified, and those of its signatures that ``trust`` knows the keys of.

    Raises what opening and verifying raise; SignatureError if a known key's signature is wrong.
    """
    development = load_development_key(environ)
    told = {} if report.image is None else {signer.keyid: signer for signer in report.image.signers}
    signers: list[Signer] = []
    declined: list[str] = []
    ledgers: dict[str, tuple[str, int]] = {}
    with open_image(path) as image:
        image.verify_all()
        for position, evidence in enumerate(image.contents.evidence):
            envelope = image.envelope(position)
            if _known(envelope, trust):
                for region in image.admission(position).regions:
                    ledgers[region.target] = (region.ledger_root, region.ledger_entries)
                known = told.get(envelope.keyid)
                own = development is not None and development.keyid == envelope.keyid
                signers.append(
                    Signer(
                        name=envelope.keyid[:12] if known is None else known.name,
                        keyid=envelope.keyid,
                        at="" if known is None else known.at,
                        role="signer" if known is None else known.role,
                        development=own or (known is not None and known.development),
                        envelope=evidence.envelope.digest,
                    )
                )
            for blob in evidence.further:
                further = decode_envelope(image.blob(blob))
                if _known(further, trust):
                    reason = _declined(further, image.image_id)
                    declined += [] if reason is None else [reason]
        return SeenImage(id=image.image_id, signers=tuple(signers), ledgers=ledgers, declined=tuple(declined))


def review(path: Path, stored: StoredReport, signer: KeySigner, decision: Decision, *, reason: str, at: str) -> None:
    """Sign ``decision`` about the image at ``path`` into its evidence.

    Before it signs, it recomputes the verdict from the receipts in the report, verifies every blob of the image, and
    compares: image id, ledger, receipts.  at: UTC time.  Raises ContentsDiffer, GateShut, UsageError, and what opening,
    verifying and writing raise.
    """
    if decision is Decision.DECLINED and not reason.strip():
        raise UsageError("declining needs a reason", remedy="give it with --reason 'TEXT'")
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise UsageError(f"a reason is one line of at most {MAX_REASON} printable characters")
    state = recompute(stored.report)
    if decision is Decision.APPROVED and state is not ReportState.ADMITTED:
        raise GateShut(f"the receipts say {state}; only what is admitted can be approved")
    with open_image(path) as image:
        image.verify_all()
        position = compare(image, stored.report)
        if any(image.envelope(at).keyid == signer.keyid for at in range(len(image.contents.evidence))):
            raise UsageError(
                f"key {signer.keyid[:16]} signed this image already", remedy="a second opinion needs a second key"
            )
        statement = Statement(
            subjects=(Subject(IMAGE_SUBJECT, image.image_id), Subject(REPORT_SUBJECT, Digest(stored.digest))),
            predicate_type=REVIEW_PREDICATE,
            predicate={"decision": decision.value, "reason": reason, "at": at},
        )
        if decision is Decision.APPROVED:
            countersign(image, path, signer, position, [statement])
        else:
            _attach(image, path, sign(statement, signer), position)


def compare(image: ImageFile, report: Report) -> int:
    """Which evidence of ``image`` is about the certification of ``report``; the first one if several are.

    Raises ContentsDiffer naming what differs, NoEvidenceError.
    """
    if report.image is None or report.image.id != image.image_id:
        told = "no image" if report.image is None else f"image {report.image.id[:16]}"
        raise ContentsDiffer(f"the report is about {told}, the file is image {image.image_id[:16]}")
    here = (report.ledger.root, report.ledger.entries)
    for position in range(len(image.contents.evidence)):
        admission = image.admission(position)
        if all((region.ledger_root, region.ledger_entries) == here for region in admission.regions):
            _compare_receipts(image, report)
            return position
    if not image.contents.evidence:
        raise NoEvidenceError("the image carries no evidence")
    raise ContentsDiffer("the signed statement names another ledger than the report")


def _compare_receipts(image: ImageFile, report: Report) -> None:
    """The receipts in the image are those of the report: all that are carried, and all that its kernels need."""
    carried = {digest_bytes(line) for target in image.targets for line in split_jsonl(image.region(target).receipts())}
    told = {row.digest for row in report.receipts}
    told |= {row.digest for row in report.contests} | {row.digest for row in report.program_checks}
    if strangers := sorted(carried - told):
        raise ContentsDiffer(f"the image carries receipt {strangers[0][:16]}, which the report does not have")
    chosen = {(row.id, row.chosen) for row in report.signatures if row.used}
    needed = {row.digest for row in report.receipts if (row.signature, row.candidate) in chosen}
    if missing := sorted(needed - carried):
        raise ContentsDiffer(f"the image lacks receipt {missing[0][:16]} of a kernel that it uses")


def _attach(image: ImageFile, path: Path, envelope: Envelope, position: int) -> None:
    contents = image.contents
    added = make_blob(media.ENVELOPE, envelope.encode())
    evidence = list(contents.evidence)
    earlier = evidence[position]
    evidence[position] = dataclasses.replace(earlier, further=(*earlier.further, added.descriptor))
    blobs = [*image_blobs(image), added]
    write_contents(path, contents.document, contents.image, contents.regions, evidence, blobs)


def _known(envelope: Envelope, trust: TrustPolicy) -> bool:
    key = trust.keys.get(envelope.keyid)
    if key is None or envelope.keyid in trust.revoked_keys:
        return False
    if not key.public.verifies(envelope.signature, envelope.signed_bytes()):
        raise SignatureError(f"signature of key {envelope.keyid[:16]} is wrong")
    return True


def _declined(envelope: Envelope, image_id: str) -> str | None:
    """The reason, if ``envelope`` holds a review of this image that declines it."""
    if envelope.payload_type != media.STATEMENT_PAYLOAD:
        return None
    statement = decode_statement(envelope.payload)
    if statement.predicate_type != REVIEW_PREDICATE:
        return None
    if Subject(IMAGE_SUBJECT, Digest(image_id)) not in statement.subjects:
        raise EnvelopeError("a review beside the image is about another image")
    if statement.predicate.get("decision") != Decision.DECLINED.value:
        return None
    return f"{envelope.keyid[:12]}: {statement.predicate.get('reason')}"
