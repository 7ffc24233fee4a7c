"""``tribunus verify``: everything that can be proved of an image without running it.

Imported by: cli.tool.  Imports: image, plan, phaseir, cli.  No compiler, no onnx.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.canon import Digest, Json, decode, digest_bytes, list_of, object_of, str_of
from tribunus.cli.command import Command
from tribunus.cli.opening import read_golden, signers
from tribunus.cli.output import Document, count_text, field, print_json
from tribunus.errors import (
    BlobMissingError,
    PlanError,
    ReceiptFailError,
    ReceiptMissingError,
    SchemaError,
    VerifierError,
)
from tribunus.image import media
from tribunus.image.admissions import AdmissionLine, decode_lines
from tribunus.image.content import Descriptor, split_jsonl
from tribunus.image.plan_checker import check_region
from tribunus.image.policy import Trust, find_policy
from tribunus.image.read import ImageFile, RegionFile, open_image
from tribunus.image.statement import RegionAdmission
from tribunus.phaseir.document import program_from_json
from tribunus.phaseir.verifier import verify as verify_program
from tribunus.plan.document import plan_from_json
from tribunus.plan.plan import Plan
from tribunus.runtime.fitness import PLAN_LIMIT

PHASEIR_SCHEMA: Final = "tribunus.phaseir-set/1"
PHASEIR_LIMIT: Final = media.MAX_BLOB[media.PHASEIR]


@dataclass(frozen=True, slots=True)
class VerifiedRegion:
    """What was proved of one region.  receipts: None if the file was fetched without them."""

    target: str
    plan: Plan
    programs: int
    receipts: int | None
    admission: RegionAdmission


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--trust", type=Path, metavar="POLICY.json", help="trust policy; TRIBUNUS_TRUST or the user's")
    parser.add_argument("--complete", action="store_true", help="refuse a file that lacks regions or receipts")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = (
        "Proved, in this order: the container is the canonical one; documents are well\n"
        "formed; signatures are good and trusted for every region; every blob has its\n"
        "digest; the signed Merkle roots are those of admissions and receipts; the plan\n"
        "is sound; every kernel has six passed checks, each with its receipt.\n"
        "Whether the image can run on this machine is another question: tribunus fits."
    )


def _run(arguments: argparse.Namespace) -> int:
    path: Path = arguments.image
    with open_image(path) as source:
        if arguments.complete and source.absent:
            raise BlobMissingError(
                f"{path.name} is not complete: {', '.join(name[:40] for name in source.absent)} is not in it",
                remedy="fetch the whole image: skopeo copy --all",
            )
        policy = find_policy(arguments.trust, os.environ)
        trust = source.verify_trust(policy)
        source.verify_all()
        regions = [verify_region(source, target, trust) for target in source.targets]
        source.check_unchanged()
        if arguments.json:
            print_json(_document(source, trust, regions))
        else:
            _print(path, source, trust, regions)
    return 0


def verify_region(source: ImageFile, target: str, trust: Trust) -> VerifiedRegion:
    """Plan, admissions, receipts, programs and recorded cases of one region.

    Raises leaves of PlanError, ReceiptError and EncodingError, IntegrityError.
    """
    region = source.region(target)
    plan = plan_from_json(decode(region.plan(), limit=PLAN_LIMIT))
    if plan.target != target:
        raise PlanError(f"the plan of region {target} is for {plan.target}")
    check_region(plan, region)
    programs = _programs(region)
    evidence = trust.evidence[target]
    admission = next(r for r in source.admission(evidence).regions if r.target == target)
    receipts: int | None = None
    if source.has(Descriptor(admission.receipts.digest, media.RECEIPTS, admission.receipts.size)):
        lines = split_jsonl(region.receipts())
        check_receipts(decode_lines(region.admissions()), {digest_bytes(line): line for line in lines})
        receipts = len(lines)
    blob = region.goldens()
    data = memoryview(b"") if blob is None else blob
    for profile in plan.profiles:
        for golden in profile.goldens:
            read_golden(profile, golden, data)
    return VerifiedRegion(target, plan, programs, receipts, admission)


def check_receipts(admissions: tuple[AdmissionLine, ...], receipts: Mapping[Digest, bytes]) -> None:
    """Each verdict of each admission is that of a receipt in the image, about the same artifact.

    Raises ReceiptMissingError or ReceiptFailError.
    """
    for line in admissions:
        for check, (verdict, digest) in line.checks.items():
            if digest not in receipts:
                raise ReceiptMissingError(f"kernel {line.kernel}: the receipt of its {check} check is not in the image")
            document = decode(receipts[digest], limit=media.MAX_LINE)
            stated = document if isinstance(document, dict) else {}
            wanted = {"check": check, "verdict": verdict, "artifact": line.artifact}
            for name, value in wanted.items():
                if stated.get(name) != value:
                    raise ReceiptFailError(f"kernel {line.kernel}: the receipt of its {check} check has another {name}")


def _programs(region: RegionFile) -> int:
    """Number of programs; each is well formed and well typed."""
    programs = phaseir_programs(decode(region.phaseir(), limit=PHASEIR_LIMIT))
    for number, document in enumerate(programs):
        try:
            verify_program(program_from_json(document))
        except VerifierError as error:
            raise SchemaError(f"phaseir: program {number} breaks a law: {error.detail}") from None
    return len(programs)


def phaseir_programs(value: Json) -> list[Json]:
    """Documents of the programs of a region, one a profile.  Raises SchemaError."""
    document = object_of(value, "phaseir", frozenset({"schema", "programs"}), frozenset({"constants"}))
    if str_of(document["schema"], "phaseir.schema") != PHASEIR_SCHEMA:
        raise SchemaError(f"phaseir has schema {str(document['schema'])[:40]!r}, {PHASEIR_SCHEMA} is read here")
    return list_of(document["programs"], "phaseir.programs")


def _print(path: Path, source: ImageFile, trust: Trust, regions: list[VerifiedRegion]) -> None:
    print(field("verified", path.name))
    print(field("image", f"{source.document.name}, epoch {source.document.epoch}"))
    print(field("id", source.image_id))
    print(field("file", f"{source.size:,} bytes, canonical"))
    for line in signers(source, trust.policy):
        print(field("signed by", line))
    print(field("policy", f"version {trust.policy.version}, expires {trust.policy.expires}"))
    for region in regions:
        plan = region.plan
        launches = sum(len(profile.launches) for profile in plan.profiles)
        print(field("region", region.target))
        kernels, profiles = count_text(len(plan.kernels), "kernel"), count_text(len(plan.profiles), "profile")
        print(field("  plan", f"{kernels}, {profiles}, {count_text(launches, 'launch', 'launches')}"))
        print(field("", "sound: no overlap, nothing read before it is written"))
        print(field("  admitted", f"{kernels}, each passed the six checks"))
        held = "not in this file" if region.receipts is None else f"{region.receipts:,} in the image"
        ledger = count_text(region.admission.ledger_entries, "entry", "entries")
        print(field("  receipts", f"{held}, of a ledger of {ledger}"))
    if source.absent:
        print(field("absent", ", ".join(name[:24] for name in source.absent)))


def _document(source: ImageFile, trust: Trust, regions: list[VerifiedRegion]) -> Document:
    return {
        "schema": "tribunus.verify/1",
        "verified": True,
        "name": source.document.name,
        "image": source.image_id,
        "epoch": source.document.epoch,
        "bytes": source.size,
        "signed_by": list(trust.keyids),
        "signers": list(signers(source, trust.policy)),
        "policy_version": trust.policy.version,
        "absent": list(source.absent),
        "regions": [
            {
                "target": region.target,
                "kernels": len(region.plan.kernels),
                "profiles": len(region.plan.profiles),
                "launches": sum(len(profile.launches) for profile in region.plan.profiles),
                "programs": region.programs,
                "receipts": region.receipts,
                "ledger_entries": region.admission.ledger_entries,
                "ledger_root": region.admission.ledger_root,
            }
            for region in regions
        ],
    }


COMMAND = Command("verify", "check everything of an image: form, signatures, digests, plan, evidence", _configure, _run)
