"""Gates: what a policy demands of a certification, rule by rule, with what was seen and what is allowed.

Imported by: projection (the page's table), markdown, command (``tribunus gate``).  Imports: judge, model, policy.
Pure: the clock and the image's identity come in as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from tribunus.errors import InternalError, SchemaError
from tribunus_reports.display import count, nanoseconds, percent, ratio, visible
from tribunus_reports.judge import receipts_by_candidate
from tribunus_reports.model import DEVICE, CandidateRow, ReceiptRow, Report
from tribunus_reports.model_parts import Baseline, ReportState, Signer, Verdict
from tribunus_reports.policy import Policy


class GateState(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One rule of the policy, held against a report."""

    rule: str
    state: GateState
    seen: str
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenImage:
    """An image as it lies on disk: what ``gate`` compares the report with."""

    id: str
    signers: tuple[Signer, ...]  # of the envelopes that verify
    ledgers: Mapping[str, tuple[str, int]]  # by target: root and entries that the signed statement names
    declined: tuple[str, ...]  # reasons of reviewers who declined it


def evaluate(
    policy: Policy, report: Report, *, now: datetime, image: SeenImage | None, baseline: Baseline | None
) -> tuple[Gate, ...]:
    """Every rule of ``policy``, in the order of the policy file.  The gate is open if none fails."""
    chosen = _chosen(report)
    receipts = receipts_by_candidate(report.receipts)
    used = [(row, receipts.get((row.signature, row.id), ())) for row in chosen]
    gates = [_verdict(report, policy), _checks(policy, report, used), _executors(policy, report, used)]
    gates += _program(policy, report)
    gates += _minimums(policy, used)
    gates += [_age(policy, report, now), *_keys(policy, report, image), *_image(report, image)]
    gates += [_error(policy, chosen), *_latency(policy, report, baseline)]
    return tuple(gates)


def is_open(gates: Sequence[Gate]) -> bool:
    """Whether no rule failed."""
    return all(gate.state is not GateState.FAIL for gate in gates)


def parse_time(text: str, where: str) -> datetime:
    """A UTC time of the report.  Raises SchemaError."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SchemaError(f"{where}: {ascii(text)[:40]} is no time like 2026-11-29T18:42:07Z") from None


_Used = Sequence[tuple[CandidateRow, Sequence[ReceiptRow]]]


def _chosen(report: Report) -> list[CandidateRow]:
    rows = {(row.signature, row.id): row for row in report.candidates}
    return [rows[row.id, row.chosen] for row in report.signatures if row.used and row.chosen is not None]


def _state(holds: bool) -> GateState:
    return GateState.PASS if holds else GateState.FAIL


def _verdict(report: Report, policy: Policy) -> Gate:
    allowed = [ReportState.ADMITTED] + ([ReportState.STAGED] if policy.allow_staged else [])
    waiting = [region.target for region in report.regions if region.staged]
    holds = report.state in allowed and (policy.allow_staged or not waiting)
    seen = (
        str(report.state)
        if holds or report.state is not ReportState.ADMITTED
        else f"{report.state}, staged: {', '.join(waiting)}"
    )
    return Gate(rule="verdict", state=_state(holds), seen=seen, bound=" or ".join(allowed))


def _checks(policy: Policy, report: Report, used: _Used) -> Gate:
    needed = [row for row in report.signatures if row.used]
    staged = {region.target for region in report.regions if region.staged} if policy.allow_staged else set()
    waiting = sum(row.region in staged for row in needed)
    region_of = {row.id: row.region for row in needed}
    complete = sum(
        policy.required <= {receipt.check for receipt in receipts if receipt.verdict is Verdict.PASSED}
        for row, receipts in used
        if region_of[row.signature] not in staged
    )
    total = len(needed) - waiting
    names = "the six checks" if len(policy.required) == 6 else ", ".join(sorted(policy.required))
    return Gate(
        rule=f"{names} passed by every launched kernel",
        state=_state(complete == total and len(needed) > 0),
        seen=f"{complete:,} of {total:,}",
        bound="all",
    )


def _executors(policy: Policy, report: Report, used: _Used) -> Gate:
    staged = {region.target for region in report.regions if region.staged} if policy.allow_staged else set()
    region_of = {row.id: row.region for row in report.signatures}
    seen = {
        receipt.executor for row, receipts in used if region_of[row.signature] not in staged for receipt in receipts
    }
    return Gate(
        rule="what ran the checks",
        state=_state(bool(seen) and seen <= policy.executors),
        seen=", ".join(sorted(seen)) or "nothing",
        bound=" or ".join(sorted(policy.executors, key=lambda name: (name != DEVICE, name))),
    )


def _program(policy: Policy, report: Report) -> list[Gate]:
    if policy.program_cases == 0:
        return []
    staged = {region.target for region in report.regions if region.staged} if policy.allow_staged else set()
    rows = [row for row in report.program_checks if row.region not in staged]
    passed = sum(row.verdict is Verdict.PASSED and row.bit_equal for row in rows)
    targets = {region.target for region in report.regions} - staged
    least = min((sum(row.region == target for row in rows) for target in targets), default=0)
    holds = passed == len(rows) and (least >= policy.program_cases or not targets)
    return [
        Gate(
            rule="program check of the whole image",
            state=_state(holds),
            seen=f"{passed:,} of {count(len(rows), 'case')} passed",
            bound=f"all, at least {policy.program_cases} a region",
        )
    ]


def _minimums(policy: Policy, used: _Used) -> list[Gate]:
    gates = []
    for check, minimum in policy.minimum_cases:
        counted = [receipt.cases for _, receipts in used for receipt in receipts if receipt.check is check]
        gates.append(
            Gate(
                rule=f"cases of the {check} check that count, for each launched kernel",
                state=_state(bool(counted) and min(counted) >= minimum),
                seen=f"≥ {min(counted):,}" if counted else "none",
                bound=f"≥ {minimum:,}",
            )
        )
    return gates


def _age(policy: Policy, report: Report, now: datetime) -> Gate:
    age = now - parse_time(report.session.started, "session.started")
    seconds = age.total_seconds()
    days = seconds / 86400
    text = f"{days:.0f} d" if days >= 2 else f"{seconds / 3600:.0f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
    if seconds < -300:  # five minutes: clocks of two machines
        return Gate(rule="age of the evidence", state=GateState.FAIL, seen="in the future", bound="not after now")
    return Gate(
        rule="age of the evidence",
        state=_state(policy.max_age_days is None or days <= policy.max_age_days),
        seen=text,
        bound="any" if policy.max_age_days is None else f"≤ {policy.max_age_days} d",
    )


def _keys(policy: Policy, report: Report, image: SeenImage | None) -> list[Gate]:
    if image is not None:
        signers = image.signers
    else:
        signers = () if report.image is None else report.image.signers
    counted = {signer.keyid for signer in signers if _allowed(policy, signer)}
    named = ", ".join(key[:12] for key in sorted(policy.keys))
    gates = [
        Gate(
            rule="signatures by allowed keys",
            state=_state(len(counted) >= policy.threshold),
            seen=f"{len(counted)} of {policy.threshold}",
            bound=f"≥ {policy.threshold}, by {named or 'any key but development keys'}",
        )
    ]
    stray = sorted({signer.name for signer in signers if signer.development and signer.keyid not in policy.keys})
    if stray:
        gates.append(
            Gate(
                rule="development keys",
                state=GateState.FAIL,
                seen=", ".join(stray),
                bound="none, unless the policy names them",
            )
        )
    return gates


def _allowed(policy: Policy, signer: Signer) -> bool:
    return signer.keyid in policy.keys if policy.keys else not signer.development


def _image(report: Report, image: SeenImage | None) -> list[Gate]:
    if image is None:
        return []
    told = "" if report.image is None else report.image.id
    here = (report.ledger.root, report.ledger.entries)
    other = sorted(target for target, ledger in image.ledgers.items() if ledger != here)
    targets = {region.target for region in report.regions}
    gates = [
        Gate(
            rule="image id of the report", state=_state(told == image.id), seen=told[:16] or "none", bound=image.id[:16]
        ),
        Gate(
            rule="ledger root and count in the signed statement",
            state=_state(not other and targets == image.ledgers.keys()),
            seen=f"another ledger for {', '.join(other)}"
            if other
            else ", ".join(sorted(image.ledgers)) or "no statement by a known key",
            bound=f"{report.ledger.root[:16]}, {report.ledger.entries:,} entries, for {', '.join(sorted(targets))}",
        ),
    ]
    if image.declined:
        seen = "; ".join(visible(reason, 120) for reason in image.declined)
        gates.append(Gate(rule="reviewers who declined", state=GateState.FAIL, seen=seen, bound="none"))
    return gates


def _error(policy: Policy, chosen: Sequence[CandidateRow]) -> Gate:
    worst = max((row.error_share for row in chosen), default=math.inf)
    state = GateState.FAIL if not worst <= policy.error_fail else GateState.PASS
    if state is GateState.PASS and policy.error_warn is not None and worst > policy.error_warn:
        state = GateState.WARN
    bound = f"≤ {ratio(policy.error_fail)} of its budget"
    if policy.error_warn is not None:
        bound += f", warn above {ratio(policy.error_warn)}"
    return Gate(
        rule="largest error of a chosen kernel", state=state, seen=ratio(worst) if chosen else "no figure", bound=bound
    )


def _latency(policy: Policy, report: Report, baseline: Baseline | None) -> list[Gate]:
    gates = []
    names = {phase.name for phase in report.plan.phases}
    for name, limit_ns in policy.p99_ns:
        if name not in names:
            gates.append(Gate(rule=f"p99 of {name}", state=GateState.FAIL, seen="no such phase", bound="a phase"))
            continue
        rows = [phase.p99_ns for phase in report.plan.phases if phase.name == name]
        measured = all(rows)
        gates.append(
            Gate(
                rule=f"p99 of {name}",
                state=_state(measured and max(rows) <= limit_ns),
                seen=nanoseconds(max(rows)) if measured else "no figure",
                bound=f"≤ {nanoseconds(limit_ns)}",
            )
        )
    if policy.slower_fail is not None:
        gates.append(_regression(policy, policy.slower_fail, baseline))
    return gates


def _regression(policy: Policy, fail: float, baseline: Baseline | None) -> Gate:
    warn = policy.slower_warn
    bound = f"fail above {percent(fail)}" if warn is None else f"warn above {percent(warn)}, fail above {percent(fail)}"
    rule = "slower than the baseline"
    if baseline is None:
        state = GateState.FAIL if policy.baseline_required else GateState.WARN
        return Gate(rule=rule, state=state, seen="no baseline given", bound=bound)
    if any(row.old_ns <= 0 for row in baseline.rows):
        raise InternalError("baseline: a row without a time")
    worst = max((row.new_ns / row.old_ns - 1 for row in baseline.rows), default=0.0)
    state = GateState.PASS
    if warn is not None and worst > warn:
        state = GateState.WARN
    if worst > fail:
        state = GateState.FAIL
    return Gate(rule=rule, state=state, seen=percent(worst), bound=bound)
