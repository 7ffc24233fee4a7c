"""From receipts to outcomes, and from outcomes to the state of a certification: the only place that decides it.

Imported by: projection, gates, command (which recomputes before it signs), certification's plug-in.  Imports: model.
Pure: what is stored in a report is compared with what these functions say, never believed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from tribunus.errors import ContentsDiffer
from tribunus_reports.model import DEVICE, CandidateRow, ProgramCheckRow, ReceiptRow, Report, SignatureRow
from tribunus_reports.model_parts import Check, Outcome, RegionFacts, ReportState, Verdict

_STOPPED: Final = {
    Verdict.REJECTED: Outcome.REJECTED,
    Verdict.CRASHED: Outcome.CRASHED,
    Verdict.TIMED_OUT: Outcome.TIMED_OUT,
    Verdict.MISTRUSTED: Outcome.MISTRUSTED,
}
_STAND_IN_CHECKS: Final = frozenset({Check.ORACLE, Check.SHAPE, Check.LAYOUT})
"""What a stand-in must have carried before a candidate may wait for a device."""

CandidateKey = tuple[str, str]


def outcome_of(receipts: Sequence[ReceiptRow]) -> tuple[Outcome, Check | None]:
    """Outcome of the candidate that has these receipts, and the check that stopped it if one did."""
    for receipt in receipts:
        if receipt.verdict is not Verdict.PASSED:
            return _STOPPED[receipt.verdict], receipt.check
    passed = {receipt.check for receipt in receipts}
    on_device = {receipt.check for receipt in receipts if receipt.executor == DEVICE}
    if on_device == set(Check):
        return Outcome.ADMITTED, None
    if on_device != passed and passed >= _STAND_IN_CHECKS:
        return Outcome.STAGED, None
    return Outcome.NOT_REACHED, None


def receipts_by_candidate(receipts: Sequence[ReceiptRow]) -> Mapping[CandidateKey, tuple[ReceiptRow, ...]]:
    """The receipts of each (signature, candidate), in ledger order."""
    found: defaultdict[CandidateKey, list[ReceiptRow]] = defaultdict(list)
    for receipt in receipts:
        found[receipt.signature, receipt.candidate].append(receipt)
    return {key: tuple(rows) for key, rows in found.items()}


def without_kernel(
    region: RegionFacts, signatures: Sequence[SignatureRow], candidates: Sequence[CandidateRow]
) -> tuple[SignatureRow, ...]:
    """Signatures that the cover of ``region`` needs and for which no candidate is good enough."""
    enough = {Outcome.ADMITTED, Outcome.STAGED} if region.staged else {Outcome.ADMITTED}
    good = {(row.signature, row.id) for row in candidates if row.outcome in enough}
    return tuple(
        row
        for row in signatures
        if row.used and row.region == region.target and (row.chosen is None or (row.id, row.chosen) not in good)
    )


def region_state(
    region: RegionFacts,
    signatures: Sequence[SignatureRow],
    candidates: Sequence[CandidateRow],
    program_checks: Sequence[ProgramCheckRow],
) -> ReportState:
    """State of one region: no kernel or a refused program is a rejection, unless something was never judged."""
    mine = [row for row in signatures if row.region == region.target]
    if not any(row.used for row in mine):
        return ReportState.NOT_REACHED
    verdicts = {row.verdict for row in program_checks if row.region == region.target}
    if verdicts - {Verdict.PASSED, Verdict.MISTRUSTED}:
        return ReportState.REJECTED
    if not {row.id for row in mine} & {row.signature for row in candidates}:
        return ReportState.NOT_REACHED
    unjudged = {row.signature for row in candidates if _open(row)}
    lacking = without_kernel(region, signatures, candidates)
    if any(row.id not in unjudged for row in lacking):
        return ReportState.REJECTED
    if lacking or Verdict.MISTRUSTED in verdicts:
        return ReportState.NOT_REACHED
    return ReportState.STAGED if region.staged else ReportState.ADMITTED


def _open(row: CandidateRow) -> bool:
    """Whether ``row`` was never judged, though it could have been: a note says that it could not."""
    return row.outcome is Outcome.MISTRUSTED or (row.outcome is Outcome.NOT_REACHED and not row.note)


def state_of(
    regions: Sequence[RegionFacts],
    signatures: Sequence[SignatureRow],
    candidates: Sequence[CandidateRow],
    program_checks: Sequence[ProgramCheckRow],
) -> ReportState:
    """State of the certification: the worst of its regions; ``staged`` only if no region is more."""
    states = {region_state(region, signatures, candidates, program_checks) for region in regions}
    for state in (ReportState.REJECTED, ReportState.NOT_REACHED, ReportState.ADMITTED):
        if state in states:
            return state
    return ReportState.STAGED


def recompute(report: Report) -> ReportState:
    """The state that follows from the receipts alone.

    Raises ContentsDiffer if an outcome, or the state itself, is not what the receipts say.
    """
    receipts = receipts_by_candidate(report.receipts)
    for row in report.candidates:
        outcome, stopped_by = outcome_of(receipts.get((row.signature, row.id), ()))
        if (outcome, stopped_by) != (row.outcome, row.stopped_by):
            raise ContentsDiffer(
                f"the report calls {row.signature}/{row.id} {row.outcome}, its receipts say {outcome}",
                remedy="do not use this report; make it again from the ledger",
            )
    state = state_of(report.regions, report.signatures, report.candidates, report.program_checks)
    if state is not report.state:
        raise ContentsDiffer(
            f"the report says {report.state}, its receipts say {state}",
            remedy="do not use this report; make it again from the ledger",
        )
    return state
