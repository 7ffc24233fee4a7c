"""The report model: all that a reader of a certification may ask for, as plain data.

Imported by: every module of this package; certification's plug-in, which fills it.  Imports: errors, the parts.

A ``Report`` is what report.json holds (schema ``tribunus.report/2``); the HTML page, JUnit and Markdown are projections
of it.  It is filled from the ledger, the plan and the image, never from other reports.  Text that came out of a model
(``SignatureRow.name``, ``ModelFacts.file`` and ``producer``, ``DimFacts.name``, ``LaunchRow.note``, ``Buffer.label``,
``WitnessRow.output``) or of a file of cases (``case``, ``WitnessRow.witness``) is taken as it is, hostile or not: every
writer escapes it.  Everything used in an address or a file name (``Report.name``, ids, targets) is an identifier, and a
report that says otherwise cannot be built.

How to fill it
- ``receipts``: in ledger order, one row a check of a candidate; at most one row per (candidate, check), in the order of
  ``Check`` within a candidate; a verdict other than ``passed`` is the candidate's last row.
- ``witnesses``: one row a program check whose case has a witness, named like that check.
- ``signatures``: ``used`` is false for a signature that only an alternative, unused cover needs.
- ``state`` and every ``CandidateRow.outcome`` are what ``judge`` makes of the receipts; use its functions to fill them.
- Without a plan ``PlanFacts`` has the phases of the program, no memory, and ``p50_ns`` 0.
- ``image`` is None whenever nothing was signed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tribunus.errors import InternalError
from tribunus_reports.model_parts import (
    Baseline,
    Check,
    ImageFacts,
    LedgerFacts,
    Made,
    ModelFacts,
    Outcome,
    PlanFacts,
    PolicyFacts,
    Reason,
    RegionFacts,
    ReportState,
    SessionFacts,
    Verdict,
    WitnessVerdict,
    Worst,
)

SCHEMA: Final = "tribunus.report/2"
IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
TIME: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")
DEVICE: Final = "device"
"""The executor that is the real thing; every other one is a stand-in, which may refuse but not admit."""
MAX_SEED: Final = 2**53 - 1
QUANTILES: Final = 21
"""p1, p5, p10 ... p95, p99: how a timing distribution travels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRow:
    """One computation to be served, and which candidate serves it."""

    id: str  # operation and first digits of the digest: "matmul-3f2a91bc"; identifier, unique in the report
    digest: str  # of the signature
    name: str  # where it comes from in the model, for people: "lm/layers.*/mlp/up"; hostile text
    op: str  # label of the group: "matmul+bias+gelu"
    shape: str  # for people: "196x384 . 384x1152"
    dtype: str
    policy: str  # compute policy: "fp32"
    region: str  # target of the region; one of Report.regions
    phase: str  # name of the first phase that launches it; one of PlanFacts.phases
    profile: str  # the profile of that phase, "" if the region has one
    uses: int  # launches in one replay of that phase
    used: bool  # whether the chosen cover needs it; false for an alternative that lost
    flops: int  # useful operations of one call
    bytes: int  # bytes one call must move
    budget_ns: int  # time budget of one call; 0 if the session never timed
    floor_ns: int  # physical floor of one call; 0 if the session never timed
    chosen: str | None  # id of the candidate that serves it
    why: str  # why this one, or why none: "fastest of the admitted", "no admitted candidate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """One way to compute a signature, and what became of it."""

    signature: str  # SignatureRow.id
    id: str  # backend and first digits of the configuration's digest: "native-5c1e7a"; unique within the signature
    backend: str  # identifier
    config: str  # the whole choice on one line
    artifact: str  # digest of the built artifact, "" if it was never built
    reproducibility: str  # "R" bit-reproducible and batch-invariant, "D" deterministic with an order of its own
    round: int  # of proposals, from 1
    code_bytes: int  # size of its code, 0 if never built
    jit_at_open: bool  # whether opening the image generates code
    outcome: Outcome  # what judge.outcome_of makes of its receipts
    stopped_by: Check | None  # the check that did not pass; None if none did
    note: str  # why it has no receipt, "" else: "the build failed: ..."
    error_share: (
        float  # largest error / that element's budget over its receipts; inf where the budget is 0; 0 if unknown
    )
    p50_ns: int  # warm median of the timing check, 0 if never timed
    warm_ns: tuple[int, ...]  # QUANTILES numbers, or () if never timed
    cold_ns: tuple[int, ...]  # the same with cold caches; () if not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptRow:
    """What one check did to one candidate and saw."""

    digest: str  # of the receipt in the ledger
    signature: str  # SignatureRow.id
    candidate: str  # CandidateRow.id
    check: Check
    verdict: Verdict
    executor: str  # what ran it: "device", or the name of a stand-in
    reason: Reason | None  # None exactly if it passed
    vector: str  # vector family of the worst case: "rand@1"; "" if the check has none
    seed: int  # seed of the worst case
    cases: int  # comparisons that counted
    cases_mistrusted: int  # comparisons that could not have said no; they count for nothing
    elements: int  # elements compared in all counted cases
    worst: Worst | None  # the worst element; None if the check compares none
    at_ms: int  # since the start of the session
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestEntry:
    """One candidate's place in a contest."""

    candidate: str  # CandidateRow.id
    p50_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestRow:
    """The interleaved ranking of the admitted candidates of a signature."""

    digest: str  # of the contest's receipt
    signature: str  # SignatureRow.id
    executor: str
    entries: tuple[ContestEntry, ...]  # best first
    winner: str  # CandidateRow.id; one of the entries
    aa_spread: float  # relative difference of a candidate against itself, 0.004 for 0.4 %
    tied: int  # entries that the ranking could not tell from the fastest, the fastest included


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCheckRow:
    """The whole image replayed on one case, before it is signed."""

    digest: str  # of the receipt
    region: str  # target
    profile: str
    case: str  # name of the program case
    verdict: Verdict
    executor: str
    reason: Reason | None  # None exactly if it passed
    bit_equal: bool  # whether two replays agreed in every bit
    error_share: float  # largest error / its budget over all outputs
    elements: int
    steps: int  # kernel calls judged one by one, because a jump lies before some output; else 0
    at_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRow:
    """Another engine's outputs of one case, held against the float64 program tensor by tensor.  It never decides."""

    receipt: str  # ProgramCheckRow.digest of the program check that compared it
    region: str  # target
    profile: str
    case: str  # name of the program case; hostile text
    witness: str  # name and version of the engine as its file says, "" if it says nothing; hostile text
    verdict: WitnessVerdict
    reason: str  # why it was not compared; "" exactly if it was
    output: str  # name of the output furthest from golden, "" if nothing was measured; hostile text
    distance: float  # largest difference of that output, in units of T, its tensor's deviation in honest rounding
    limit: float  # the largest distance at which an output agrees, in units of T
    compared: int  # outputs that could have disagreed; the others lie behind a jump, or the witness lacks them
    outputs: int  # of the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A certification, complete.  Building one checks the laws that tie its parts together."""

    schema: str  # SCHEMA
    made: Made
    name: str  # of the image; identifier
    state: ReportState  # what judge.state_of makes of the rest
    note: str  # one sentence if nothing was judged ("backend native found no compiler"), "" else
    regions: tuple[RegionFacts, ...]  # at least one, the one that people read first in front
    model: ModelFacts
    session: SessionFacts
    policy: PolicyFacts
    signatures: tuple[SignatureRow, ...]
    candidates: tuple[CandidateRow, ...]
    receipts: tuple[ReceiptRow, ...]
    contests: tuple[ContestRow, ...]
    program_checks: tuple[ProgramCheckRow, ...]
    witnesses: tuple[WitnessRow, ...]
    plan: PlanFacts
    ledger: LedgerFacts
    image: ImageFacts | None
    baseline: Baseline | None

    def __post_init__(self) -> None:
        _check_identity(self)
        _check_signatures(self)
        _check_receipts(self)
        _check_witnesses(self)
        _check_plan(self)


def _law(holds: bool, text: str) -> None:
    if not holds:
        raise InternalError(f"report: {text}")


def _digest(text: str, where: str) -> None:
    _law(DIGEST.fullmatch(text) is not None, f"{where} has {text[:80]!r} where a digest is due")


def _check_identity(report: Report) -> None:
    _law(report.schema == SCHEMA, f"schema is {report.schema[:60]!r}, not {SCHEMA}")
    _law(bool(report.regions), "no region is named")
    words = [("name", report.name), *(("target", region.target) for region in report.regions)]
    words += [("signature", row.id) for row in report.signatures] + [("candidate", row.id) for row in report.candidates]
    words += [("backend", row.backend) for row in report.candidates]
    words += [("executor", row.executor) for row in report.receipts]
    for kind, word in words:
        _law(IDENTIFIER.fullmatch(word) is not None, f"{kind} {word[:80]!r} is no identifier")
    times = [report.made.at, report.session.started]
    times += [] if report.image is None else [signer.at for signer in report.image.signers]
    times += [] if report.baseline is None else [report.baseline.at]
    for time in times:
        _law(TIME.fullmatch(time) is not None, f"{time[:40]!r} is no time like 2026-11-29T18:42:07Z")
    _digest(report.model.digest, "model")
    _digest(report.ledger.root, "ledger")
    if report.image is not None:
        _digest(report.image.id, "image")
        _law(report.state in (ReportState.ADMITTED, ReportState.STAGED), "an image without an admission")


def _check_signatures(report: Report) -> None:
    targets = {region.target for region in report.regions}
    phases = {(phase.region, phase.name, phase.profile) for phase in report.plan.phases}
    ids = {row.id: row for row in report.signatures}
    _law(len(ids) == len(report.signatures), "two signatures share an id")
    rows = {(row.signature, row.id): row for row in report.candidates}
    _law(len(rows) == len(report.candidates), "two candidates of a signature share an id")
    for signature in report.signatures:
        _digest(signature.digest, signature.id)
        _law(signature.region in targets, f"{signature.id} lies in the unknown region {signature.region}")
        _law(
            (signature.region, signature.phase, signature.profile) in phases,
            f"{signature.id} lies in the unknown phase {signature.phase}",
        )
        if signature.chosen is not None:
            chosen = rows.get((signature.id, signature.chosen))
            _law(
                chosen is not None and chosen.outcome in (Outcome.ADMITTED, Outcome.STAGED),
                f"{signature.id} chose {signature.chosen}, which is not admitted",
            )
    for row in report.candidates:
        owner = ids.get(row.signature)
        where = f"{row.signature}/{row.id}"
        _law(owner is not None, f"{where} serves an unknown signature")
        _law(row.error_share >= 0, f"{where} has an error below zero")
        _law(len(row.warm_ns) in (0, QUANTILES), f"{where} has {len(row.warm_ns)} warm quantiles")
        _law(len(row.cold_ns) in (0, QUANTILES), f"{where} has {len(row.cold_ns)} cold quantiles")
        _law(list(row.warm_ns) == sorted(row.warm_ns), f"{where}: warm quantiles fall")
        _law((row.p50_ns > 0) == bool(row.warm_ns), f"{where}: median and distribution disagree")
        _law(not row.p50_ns or (owner is not None and owner.budget_ns > 0), f"{where} is timed without a budget")
        if row.artifact:
            _digest(row.artifact, where)
    for contest in report.contests:
        entered = {entry.candidate for entry in contest.entries}
        _law(contest.winner in entered, f"contest of {contest.signature}: the winner did not take part")
        _law(
            all((contest.signature, name) in rows for name in entered), f"contest of {contest.signature}: unknown entry"
        )


def _check_receipts(report: Report) -> None:
    rows = {(row.signature, row.id) for row in report.candidates}
    order = {check: at for at, check in enumerate(Check)}
    last: dict[tuple[str, str], ReceiptRow] = {}
    for receipt in report.receipts:
        key = (receipt.signature, receipt.candidate)
        where = f"receipt {receipt.digest[:12]}"
        _digest(receipt.digest, where)
        _law(key in rows, f"{where} judges the unknown candidate {'/'.join(key)}")
        _law((receipt.reason is None) == (receipt.verdict is Verdict.PASSED), f"{where}: verdict and reason disagree")
        _law(0 <= receipt.seed <= MAX_SEED, f"{where}: seed beyond 2**53 - 1")
        _law(receipt.worst is None or receipt.worst.error_share >= 0, f"{where}: an error below zero")
        before = last.get(key)
        if before is not None:
            _law(before.verdict is Verdict.PASSED, f"{where} follows a receipt that did not pass")
            _law(order[before.check] < order[receipt.check], f"{where} is out of order or given twice")
        last[key] = receipt
    _law(len({receipt.digest for receipt in report.receipts}) == len(report.receipts), "a receipt is given twice")
    for program in report.program_checks:
        _law(
            (program.reason is None) == (program.verdict is Verdict.PASSED),
            "program check: verdict and reason disagree",
        )


def _check_witnesses(report: Report) -> None:
    programs = {(row.digest, row.region, row.profile, row.case) for row in report.program_checks}
    for row in report.witnesses:
        where = f"witness of case {row.case[:40]!r}"
        _digest(row.receipt, where)
        _law((row.receipt, row.region, row.profile, row.case) in programs, f"{where} names an unknown program check")
        _law(row.distance >= 0 and row.limit > 0, f"{where}: a distance below zero, or no limit")
        _law(0 <= row.compared <= row.outputs, f"{where}: more outputs compared than there are")
        not_compared = row.verdict is WitnessVerdict.NOT_COMPARED
        _law(not_compared == bool(row.reason) == (row.compared == 0), f"{where}: verdict and reason disagree")
        within = row.verdict is WitnessVerdict.AGREES
        _law(not_compared or within == (row.distance <= row.limit), f"{where}: verdict and distance disagree")
    _law(len({row.receipt for row in report.witnesses}) == len(report.witnesses), "a witness is given twice")


def _check_plan(report: Report) -> None:
    signatures = {row.id for row in report.signatures}
    names = {(phase.region, phase.name, phase.profile) for phase in report.plan.phases}
    _law(len(names) == len(report.plan.phases), "a phase is given twice")
    for phase in report.plan.phases:
        for block in phase.blocks:
            for at, row in enumerate(block.rows):
                where = f"phase {phase.name}, block {block.name[:40]!r}, row {at}"
                _law(row.signature in signatures, f"{where} launches an unknown signature")
                _law(all(-1 <= source < at for source in row.reads), f"{where} reads a later row")
    plain = {phase.name for phase in report.plan.phases}
    _law(all(a in plain and b in plain for a, b in report.plan.edges), "an edge names an unknown phase")
    for memory in report.plan.memory:
        where = f"memory of {memory.phase}"
        _law((memory.region, memory.phase, memory.profile) in names, f"{where}: unknown phase")
        _law(memory.arena_bytes >= memory.lower_bound_bytes, f"{where}: an arena below its lower bound")
        for buffer in memory.buffers:
            _law(buffer.offset_bytes + buffer.size_bytes <= memory.arena_bytes, f"{where}: a buffer beyond the arena")
            _law(buffer.first <= buffer.last < memory.launches, f"{where}: a buffer outlives the phase")
            _law(buffer.signature in signatures or not buffer.signature, f"{where}: an unknown signature")
