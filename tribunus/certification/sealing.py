"""From winners to a signed image: assemble, replay every case, judge, sign, write.

Imported by: certify, cli, tests.  Imports: certification.pipeline, planning, image, isolation.

    assemble -> program check (every case, two fresh processes) -> goldens -> admissions -> image
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from tribunus.admission.captured import CapturedCase, try_bindings
from tribunus.admission.receipt import Check, Receipt, receipt_to_json
from tribunus.canon import Digest, Json, JsonObject, digest_of, encode
from tribunus.certification.pipeline import Certification, Draft, Item
from tribunus.certification.program_check import ProgramReceipt, judge_case, program_key, receipt_from_json
from tribunus.certification.scratch import Scratch
from tribunus.certification.stepwise import Stepwise, run_stepwise
from tribunus.errors import CertificationRejected, InternalError
from tribunus.image.admissions import AdmissionLine, encode_lines
from tribunus.image.content import Platform
from tribunus.image.keys import Signer
from tribunus.image.plan_checker import check_admissions, check_plan
from tribunus.image.write import ImageDraft, RegionDraft, write_image
from tribunus.isolation.program_run import ProgramRun, run_program
from tribunus.phaseir.program import INLINE_ELEMENTS, Array, program_digest, program_to_json
from tribunus.plan.document import plan_bytes
from tribunus.plan.launch_list import ROLE
from tribunus.plan.plan import Golden, Plan, Profile
from tribunus.planning.assemble import AssembledRegion, Winner, assemble
from tribunus.planning.schedule import Demand

CHOICES_SCHEMA: Final = "tribunus.choices/1"
GOLDEN_LIMIT: Final = 64 << 20
"""Bytes of golden vectors that an image carries at most; further cases are left out of ``selftest``."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What sealing made.  image_id: empty if the program check refused.  path: of the image, None then."""

    image_id: str
    path: Path | None
    region: AssembledRegion
    program: tuple[ProgramReceipt, ...]
    choices: JsonObject


def assemble_region(certification: Certification, winners: Mapping[Demand, Winner]) -> AssembledRegion:
    """The region that replays the certified profiles.  Proved by the plan checker before it is returned."""
    code = certification.host_code(ROLE)
    region = assemble(
        [draft.profile for draft in certification.drafts],
        winners,
        certification.request.target,
        certification.constants,
        [(ROLE, code)],
    )
    check_plan(region.plan, memoryview(region.kernels), [len(shard) for shard in region.shards])
    return region


def check_program(
    certification: Certification, region: AssembledRegion, winners: Mapping[Demand, Winner]
) -> tuple[tuple[ProgramReceipt, ...], Mapping[str, ProgramRun]]:
    """Replay every case with the production runtime and judge it against the float64 program as it was imported.

    The passes are judged too: the golden is made before any of them.
    """
    cases = program_cases(certification)
    arrays = {name: dict(case.inputs) for name, (_, case) in cases.items()}
    with Scratch("program") as folder:
        results = run_program(region.plan, region.kernels, region.shards, arrays, folder.path)
    receipts: list[ProgramReceipt] = []
    for result in results:
        draft, case = cases[result.case]
        bindings = try_bindings(draft.program, case) or {}
        receipts.append(_judged(certification, winners, draft, case, bindings, result))
        certification.bench.say(f"program check {result.case}: {receipts[-1].verdict.value}")
    return tuple(receipts), {result.case: result for result in results}


def _judged(
    certification: Certification,
    winners: Mapping[Demand, Winner],
    draft: Draft,
    case: CapturedCase,
    bindings: Mapping[str, int],
    result: ProgramRun,
) -> ProgramReceipt:
    """The receipt of one case; the same bytes on the same case by the same kernels are not judged twice."""
    policy = certification.request.compute
    documents = certification.bench.documents
    kernels = [winners[step.demand].artifact.digest for step in draft.profile.schedule.steps]
    key = program_key(draft.source, case, result, draft.name, policy, kernels)
    known = documents.get("program", key, receipt_from_json)
    if known is not None:
        return known

    def stepwise() -> Stepwise:
        executor = certification.bench.executor
        return run_stepwise(draft.profile, winners, certification.constants, case, bindings, executor, policy)

    receipt = judge_case(draft.source, certification.constants, case, bindings, result, draft.name, policy, stepwise)
    documents.put("program", key, receipt.document())
    return receipt


def program_cases(certification: Certification) -> dict[str, tuple[Draft, CapturedCase]]:
    """Every captured case with the profile it belongs to; one generated case for a profile without any."""
    found: dict[str, tuple[Draft, CapturedCase]] = {}
    for draft in certification.drafts:
        fitting = [c for c in certification.captured if try_bindings(draft.program, c) is not None]
        for case in fitting:
            found[case.name] = (draft, case)
        if not fitting:
            case = certification.generated_case(draft)
            found[case.name] = (draft, case)
    return found


def seal(
    certification: Certification,
    winners: Mapping[Demand, Winner],
    region: AssembledRegion,
    results: Mapping[str, ProgramRun],
    program: Sequence[ProgramReceipt],
    *,
    name: str,
    epoch: int,
    signer: Signer,
    path: Path,
) -> Sealed:
    """Sign and write the image.  Raises CertificationRejected if the program check refused a case."""
    refused = [receipt for receipt in program if receipt.reason is not None]
    if refused and refused[0].reason is not None:
        raise CertificationRejected(f"program check, case {refused[0].case!r}: {refused[0].reason.text}")
    plan, goldens = _record_goldens(certification, region.plan, results)
    lines, receipts = _evidence(certification, winners)
    check_admissions(plan, lines)
    receipts += [encode(receipt.document()) for receipt in program]
    receipts += [encode(c.document()) for c in certification.contests.values()]
    choices = choices_document(certification, winners)
    programs: Json = [program_to_json(draft.program) for draft in certification.drafts]
    bench = certification.bench
    draft = RegionDraft(
        target=plan.target,
        platform=Platform(_go_architecture(), "linux"),
        plan=plan_bytes(plan),
        phaseir=encode(
            {"schema": "tribunus.phaseir-set/1", "programs": programs, "constants": small_constants(certification)}
        ),
        kernels=region.kernels,
        weights=region.shards,
        goldens=goldens or None,
        admissions=encode_lines(lines),
        receipts=b"".join(line + b"\n" for line in sorted(set(receipts))),
        ledger_root=bench.ledger.root,
        ledger_entries=bench.ledger.entries,
    )
    facts = certification.imported.facts
    model: JsonObject = {
        "digest": facts.digest,
        "producer": facts.producer,
        "opset": facts.opset,
        "parameters": facts.parameters,
        "programs": [program_digest(d.program) for d in certification.drafts],
    }
    image_id = write_image(
        path,
        ImageDraft(
            name=name,
            epoch=epoch,
            model=model,
            choices=digest_of(choices),
            toolchain=dict(bench.tools),
            requires=(),
            regions=[draft],
            policy=digest_of(certification.policy_document()),
            signers=[signer],
        ),
    )
    return Sealed(image_id, path, replace(region, plan=plan), tuple(program), choices)


def small_constants(certification: Certification) -> list[Json]:
    """Constants that belong to signatures by value, so that an image can be certified again from itself alone."""
    found: dict[Digest, Json] = {}
    for draft in certification.drafts:
        for value in draft.program.values:
            digest = value.constant
            if digest is None or digest in found:
                continue
            array = certification.constants.get(digest)
            if array.size <= INLINE_ELEMENTS:
                data = array.astype(array.dtype.newbyteorder("<")).tobytes().hex()
                shape: list[Json] = list(array.shape)
                found[digest] = {"dtype": value.type.dtype.value, "shape": shape, "data": data}
    return [found[digest] for digest in sorted(found)]


def choices_document(certification: Certification, winners: Mapping[Demand, Winner]) -> JsonObject:
    """The lock of a certification: which candidate serves which demand.  A second build from it has equal content."""
    rows: list[Json] = []
    for demand, winner in winners.items():
        candidate = winner.artifact.candidate
        rows.append(
            {
                "signature": demand.signature.digest,
                "name": demand.signature.name,
                "layouts": [str(layout) for layout in demand.layouts],
                "backend": candidate.backend,
                "candidate": candidate.digest,
                "config": str(candidate.config),
            }
        )
    return {
        "schema": CHOICES_SCHEMA,
        "model": certification.imported.facts.digest,
        "target": certification.request.target.name,
        "policy": certification.request.compute.value,
        "choices": sorted(rows, key=encode),
    }


def _evidence(
    certification: Certification, winners: Mapping[Demand, Winner]
) -> tuple[list[AdmissionLine], list[bytes]]:
    """Admission lines of the kernels used, and every receipt of these kernels."""
    lines: list[AdmissionLine] = []
    documents: list[bytes] = []
    for demand, winner in winners.items():
        item = next(i for i in certification.items_of(demand) if i.candidate.digest == winner.artifact.candidate.digest)
        lines.append(admission_line(item))
        documents += [encode(receipt_to_json(receipt)) for receipt in item.receipts]
    return lines, documents


def admission_line(item: Item) -> AdmissionLine:
    """The six receipts of an admitted candidate in one line."""
    if item.artifact is None:
        raise InternalError(f"{item.candidate.name} has no artifact")
    by_check: dict[Check, Receipt] = {receipt.check: receipt for receipt in item.receipts}
    timing = by_check[Check.TIMING].timing
    replay = dict(by_check[Check.REPLAY].details)
    times = () if timing is None else timing.warm_ns
    return AdmissionLine(
        kernel=f"{item.demand.signature.name}/{item.candidate.name}",
        artifact=item.artifact.digest,
        key=dict(item.key),
        checks={check.value: (receipt.verdict.value, receipt.digest) for check, receipt in by_check.items()},
        error_share=max(receipt.worst_share for receipt in item.receipts),
        time_ns=sorted(times)[len(times) // 2] if times else 0,
        budget_ns=0 if timing is None else timing.budget_ns,
        replay=replay.get("output digest", ""),
        executor=by_check[Check.REPLAY].executor.value,
        machine=by_check[Check.REPLAY].machine,
    )


def _record_goldens(certification: Certification, plan: Plan, results: Mapping[str, ProgramRun]) -> tuple[Plan, bytes]:
    """Inputs and replayed outputs of cases, for ``selftest``; the smallest cases first while there is room."""
    blob = bytearray()
    found: dict[str, list[Golden]] = {}
    cases = program_cases(certification)

    def size(case: str) -> int:
        arrays = [*cases[case][1].inputs.values(), *results[case].first.values()]
        return sum(array.nbytes for array in arrays)

    for case in sorted(results, key=lambda c: (size(c), c)):
        draft, captured = cases[case]
        if len(blob) + size(case) > GOLDEN_LIMIT and blob:
            break
        bindings = try_bindings(draft.program, captured) or {}
        profile = next(p for p in plan.profiles if p.name == draft.name)
        if any(np.any(captured.inputs[state.label]) for state in profile.states):
            continue  # selftest begins with states as reset leaves them: zero
        inputs = [_append(blob, captured.inputs[port.label]) for port in profile.inputs]
        outputs = [_append(blob, results[case].first[port.label]) for port in profile.outputs]
        values = tuple(bindings[s.name] for s in profile.symbols)
        found.setdefault(draft.name, []).append(Golden(case, values, tuple(inputs), tuple(outputs)))
    profiles: list[Profile] = [replace(p, goldens=tuple(found.get(p.name, ()))) for p in plan.profiles]
    return replace(plan, profiles=tuple(profiles)), bytes(blob)


def _append(blob: bytearray, array: Array) -> tuple[int, int]:
    data = np.ascontiguousarray(array).tobytes()
    offset = len(blob)
    blob.extend(data)
    return offset, len(data)


def _go_architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
