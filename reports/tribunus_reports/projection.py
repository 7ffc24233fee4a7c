"""From the report model to the data of the page, schema ``tribunus.report-page/1``: columns, enums as indices.

Imported by: html, tests.  Imports: gates, judge, model, read_first.  Pure.

One array a field and equal lengths, because 10,000 receipts as columns are a third of the same as objects.  The page's
code holds the other half of this contract: a field renamed here is renamed there.  Names that the page itself shows
character by character (signature names, buffer labels, the model's file) go as they are; all other text goes through
``visible`` first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.errors import InternalError
from tribunus_reports import chain
from tribunus_reports.codec import Plain, plain_float
from tribunus_reports.display import count, three_digits, visible
from tribunus_reports.gates import Gate
from tribunus_reports.judge import region_state, without_kernel
from tribunus_reports.model import DEVICE, ReceiptRow, Report
from tribunus_reports.model_parts import (
    Baseline,
    BufferRole,
    Check,
    MemoryFacts,
    Outcome,
    PhaseFacts,
    Reason,
    ReportState,
    Verdict,
    WitnessVerdict,
)
from tribunus_reports.policy import Policy
from tribunus_reports.read_first import Item

SCHEMA: Final = "tribunus.report-page/1"
RECEIPT_LIMIT: Final = 45_000
"""Beyond it the page leaves out passed receipts of candidates that were not chosen; report.json keeps them."""
INFINITE: Final = 1e30
"""Stands for an infinite share of a budget, which JSON cannot say; the page shows it as infinity."""
PREFIX: Final = 12
_STAGED: Final = "staged"
_CHECKS: Final = tuple(Check)
_OUTCOMES: Final = tuple(Outcome)
_VERDICTS: Final = (*(verdict.value for verdict in Verdict), _STAGED)

Page = dict[str, Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What the page shows beside the report: made by the caller, since the report does not know its own digest."""

    report_digest: str
    report_file: str
    policy: Policy
    gates: tuple[Gate, ...]
    read_first: tuple[Item, ...]
    baseline: Baseline | None


class _Interned:
    """Distinct strings in order of first use."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


class _Reasons:
    """Reasons as rows; a candidate and the one receipt that stopped it share theirs."""

    def __init__(self, report: Report, strings: _Interned) -> None:
        self.rows: list[Plain] = []
        self._at: dict[tuple[str, str], int] = {}
        for receipt in report.receipts:
            if receipt.reason is not None:
                self._add((receipt.signature, receipt.candidate), _CHECKS.index(receipt.check), receipt.reason, strings)
        for row in report.candidates:
            if row.note and (row.signature, row.id) not in self._at:
                reason = Reason(kind="not judged", text=row.note, figures=())
                self._add((row.signature, row.id), -1, reason, strings)

    def of(self, signature: str, candidate: str) -> int:
        """Row of the reason why this candidate was not admitted; -1 if there is none."""
        return self._at.get((signature, candidate), -1)

    def _add(self, key: tuple[str, str], check: int, reason: Reason, strings: _Interned) -> None:
        self._at[key] = len(self.rows)
        figures: list[Plain] = [
            [strings(visible(figure.what)), visible(figure.seen), visible(figure.allowed)] for figure in reason.figures
        ]
        self.rows.append(
            {
                "check": check,
                "class": strings(visible(reason.kind)),
                "text": strings(visible(reason.text, 300)),
                "figures": figures,
            }
        )


@dataclass(frozen=True, slots=True)
class _Index:
    """Rows by name: where each signature, candidate and phase stands."""

    signature: Mapping[str, int]
    candidate: Mapping[tuple[str, str], int]
    phase: Mapping[tuple[str, str, str], int]
    region: Mapping[str, int]
    backends: tuple[str, ...]
    families: tuple[str, ...]
    executors: tuple[str, ...]


def page_data(report: Report, facts: PageFacts) -> Page:
    """The data block of the page.  Raises InternalError if two addresses would be the same."""
    index = _index(report)
    strings = _Interned()
    reasons = _Reasons(report, strings)
    kept = _kept(report)
    candidates = _candidates(report, index, strings, reasons)
    receipts = _receipts(index, kept, reasons)
    signatures = _signatures(report, index)
    _distinct((row.digest for row in report.signatures), "signatures")
    _distinct((row.digest for row in report.receipts), "receipts")
    return {
        "schema": SCHEMA,
        "made": {"at": report.made.at, "tool": visible(report.made.tool, 60), "report": facts.report_digest},
        "verdict": verdict_words(report),
        "gates": [[gate.rule, gate.state.value, _tied(gate.seen), _tied(gate.bound)] for gate in facts.gates],
        "read_first": [
            {"level": item.level.value, "text": _tied(item.text), "link": item.link} for item in facts.read_first
        ],
        "image": _image(report),
        "model": {
            "file": report.model.file,
            "digest": report.model.digest,
            "program": report.model.program,
            "producer": visible(report.model.producer),
            "parameters": report.model.parameters,
            "dims": [[visible(dim.name, 60), dim.low, dim.opt, dim.high] for dim in report.model.dims],
        },
        "policy": {
            "name": visible(facts.policy.name),
            "digest": facts.policy.digest,
            "compute": visible(report.policy.compute),
        },
        "session": {
            "started": report.session.started,
            "seconds": report.session.seconds,
            "effort": visible(report.session.effort),
            "seed": report.session.seed,
            "command": visible(report.session.command, 600),
        },
        "machine": [
            *_machine(report),
            ["toolchain", visible(" · ".join(f"{name} {version}" for name, version in report.session.toolchain), 400)],
        ],
        "signers": chain.signers(report),
        "need": {
            "threshold": facts.policy.threshold,
            "have": len(chain.counted_keys(report, facts.policy)),
            "missing": chain.missing_signatures(report, facts.policy),
        },
        "checks": [check.value for check in Check],
        "verdicts": list(_VERDICTS),
        "outcomes": [outcome.value for outcome in Outcome],
        "families": list(index.families),
        "executors": list(index.executors),
        "backends": list(index.backends),
        "strings": list(strings.index),
        "reasons": reasons.rows,
        "signatures": signatures,
        "candidates": candidates,
        "receipts": receipts,
        "left_out": len(report.receipts) - len(kept),
        "phases": [_phase(report, phase, index) for phase in report.plan.phases],
        "edges": _edges(report),
        "memory": [_memory(report, memory, index) for memory in report.plan.memory],
        "baseline": _baseline(facts, index),
        "evidence": chain.evidence(report, facts.policy),
        "witnesses": {v.value: sum(row.verdict is v for row in report.witnesses) for v in WitnessVerdict},
        "approve": chain.approve(report, facts.report_digest, facts.report_file),
        "repro": chain.repro(report),
    }


def _machine(report: Report) -> list[Plain]:
    return [[visible(key), visible(value, 200)] for key, value in report.session.machine]


def verdict_words(report: Report) -> Page:
    """State, headline and one sentence why; the same words on every projection."""
    active = [region for region in report.regions if not region.staged] or list(report.regions)
    needed = [row for row in report.signatures if row.used and row.region in {region.target for region in active}]
    lacking = [row for region in active for row in without_kernel(region, report.signatures, report.candidates)]
    refused = [row for row in report.program_checks if row.verdict not in (Verdict.PASSED, Verdict.MISTRUSTED)]
    target = report.regions[0].target
    staged = [region.target for region in report.regions if region.staged]
    if report.state is ReportState.ADMITTED:
        title = "Admitted"
        words = f"All {count(len(needed), 'signature')} of {target} have an admitted kernel."
        if len(needed) == 1:
            words = f"The one signature of {target} has an admitted kernel."
        if report.image is None:
            words += " No image was signed."
        if staged:
            words += f" Staged: {', '.join(staged)}."
    elif report.state is ReportState.STAGED:
        title = "Staged"
        words = f"All {count(len(needed), 'signature')} passed on a stand-in; timing and replay wait for a device host."
    elif report.state is ReportState.REJECTED:
        title = "Rejected"
        parts = []
        if lacking:
            verb = "has" if len(lacking) == 1 else "have"
            parts.append(f"{len(lacking):,} of {count(len(needed), 'signature')} {verb} no admitted kernel.")
        if refused:
            parts.append(f"The program check refused {count(len(refused), 'case')}.")
        words = " ".join([*parts, "No image was signed."])
    else:
        title = "Nothing to judge" if not report.receipts else "Not judged"
        words = visible(report.note, 300) or (
            f"{len(lacking):,} of {count(len(needed), 'signature')} were not judged completely. No image was signed."
        )
    return {"state": report.state.value, "title": title, "reason": words}


def _index(report: Report) -> _Index:
    executors = dict.fromkeys([DEVICE, *(row.executor for row in report.receipts)])
    return _Index(
        {row.id: at for at, row in enumerate(report.signatures)},
        {(row.signature, row.id): at for at, row in enumerate(report.candidates)},
        {(row.region, row.name, row.profile): at for at, row in enumerate(report.plan.phases)},
        {region.target: at for at, region in enumerate(report.regions)},
        tuple(dict.fromkeys(row.backend for row in report.candidates)),
        tuple(sorted({row.vector for row in report.receipts if row.vector})),
        tuple(executors),
    )


def _kept(report: Report) -> Sequence[ReceiptRow]:
    if len(report.receipts) <= RECEIPT_LIMIT:
        return report.receipts
    chosen = {(row.id, row.chosen) for row in report.signatures}
    return [
        row
        for row in report.receipts
        if row.verdict is not Verdict.PASSED or (row.signature, row.candidate) in chosen or row.executor != DEVICE
    ]


def _distinct(digests: Iterable[str], what: str) -> None:
    seen: dict[str, str] = {}
    for digest in digests:
        other = seen.setdefault(digest[:PREFIX], digest)
        if other != digest:
            raise InternalError(f"two {what} share the first {PREFIX} digits of their digest: {other} and {digest}")


def _share(value: float) -> float:
    if math.isnan(value):
        return INFINITE
    rounded = three_digits(min(value, INFINITE))
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def _signatures(report: Report, index: _Index) -> Page:
    rows = report.signatures
    tried: dict[str, int] = {}
    admitted: dict[str, int] = {}
    for row in report.candidates:
        tried[row.signature] = tried.get(row.signature, 0) + 1
        admitted[row.signature] = admitted.get(row.signature, 0) + (row.outcome is Outcome.ADMITTED)
    contests = {row.signature: row for row in report.contests}

    def contest(name: str) -> str:
        row = contests.get(name)
        if row is None:
            return ""
        if len(row.entries) == 1:
            return f"no contest: one candidate was admitted, receipt {row.digest[:12]}"
        tie = f"{row.tied} tied for first" if row.tied > 1 else "no tie"
        spread = f"A/A spread {row.aa_spread * 100:.2f}\u00a0%"
        return f"contest of {len(row.entries)}, {spread}, {tie}, receipt {row.digest[:12]}"

    return {
        "id": [row.id for row in rows],
        "digest": [row.digest for row in rows],
        "name": [row.name for row in rows],
        "op": [visible(row.op) for row in rows],
        "shape": [visible(row.shape) for row in rows],
        "dtype": [row.dtype for row in rows],
        "policy": [row.policy for row in rows],
        "phase": [index.phase[row.region, row.phase, row.profile] for row in rows],
        "region": [index.region[row.region] for row in rows],
        "uses": [row.uses for row in rows],
        "used": [int(row.used) for row in rows],
        "flops": [row.flops for row in rows],
        "bytes": [row.bytes for row in rows],
        "budget_ns": [row.budget_ns for row in rows],
        "floor_ns": [row.floor_ns for row in rows],
        "chosen": [-1 if row.chosen is None else index.candidate[row.id, row.chosen] for row in rows],
        "why": [visible(row.why) for row in rows],
        "contest": [contest(row.id) for row in rows],
        "candidates": [tried.get(row.id, 0) for row in rows],
        "admitted": [admitted.get(row.id, 0) for row in rows],
    }


def _candidates(report: Report, index: _Index, strings: _Interned, reasons: _Reasons) -> Page:
    rows = report.candidates
    return {
        "sig": [index.signature[row.signature] for row in rows],
        "name": [row.id for row in rows],
        "backend": [index.backends.index(row.backend) for row in rows],
        "config": [strings(visible(row.config, 300)) for row in rows],
        "digest": [row.artifact for row in rows],
        "outcome": [_OUTCOMES.index(row.outcome) for row in rows],
        "check": [-1 if row.stopped_by is None else _CHECKS.index(row.stopped_by) for row in rows],
        "reason": [reasons.of(row.signature, row.id) for row in rows],
        "error": [_share(row.error_share) for row in rows],
        "time_ns": [row.p50_ns for row in rows],
        "warm": [list(row.warm_ns) for row in rows],
        "cold": [list(row.cold_ns) for row in rows],
        "bytes": [row.code_bytes for row in rows],
        "round": [row.round for row in rows],
    }


def _receipts(index: _Index, rows: Sequence[ReceiptRow], reasons: _Reasons) -> Page:
    def verdict(row: ReceiptRow) -> int:
        stand_in = row.executor != DEVICE and row.verdict is Verdict.PASSED
        return _VERDICTS.index(_STAGED if stand_in else row.verdict.value)

    return {
        "candidate": [index.candidate[row.signature, row.candidate] for row in rows],
        "check": [_CHECKS.index(row.check) for row in rows],
        "verdict": [verdict(row) for row in rows],
        "executor": [index.executors.index(row.executor) for row in rows],
        "family": [index.families.index(row.vector) if row.vector else -1 for row in rows],
        "cases": [row.cases for row in rows],
        "mistrusted": [row.cases_mistrusted for row in rows],
        "elements": [row.elements for row in rows],
        "seed": [row.seed for row in rows],
        "error": [0 if row.worst is None else _share(row.worst.error_share) for row in rows],
        "ulp": [0 if row.worst is None else _share(row.worst.ulp) for row in rows],
        "budget_ulp": [0 if row.worst is None else _share(row.worst.budget_ulp) for row in rows],
        "index": ["" if row.worst is None else _place(row.worst.output, row.worst.index) for row in rows],
        "got": [0 if row.worst is None else _nine(row.worst.got) for row in rows],
        "golden": [0 if row.worst is None else _nine(row.worst.golden) for row in rows],
        "reason": [-1 if row.reason is None else reasons.of(row.signature, row.candidate) for row in rows],
        "at_ms": [row.at_ms for row in rows],
        "took_ms": [row.took_ms for row in rows],
        "digest": [row.digest for row in rows],
    }


def _place(output: int, index: tuple[int, ...]) -> str:
    inside = ",".join(map(str, index))
    return inside if output == 0 else f"output {output}: {inside}"


def _nine(value: float) -> float | str:
    """Nine significant digits: what tells two float32 numbers apart."""
    return plain_float(float(f"{value:.9g}"))


def _image(report: Report) -> Page:
    image = report.image
    states = {
        region.target: region_state(region, report.signatures, report.candidates, report.program_checks)
        for region in report.regions
    }
    return {
        "name": report.name,
        "id": "" if image is None else image.id,
        "file": "" if image is None else image.file,
        "bytes": 0 if image is None else image.bytes,
        "epoch": 0 if image is None else image.epoch,
        "regions": [
            {
                "target": region.target,
                "state": states[region.target].value,
                "note": visible(region.note),
                "staged": region.staged,
            }
            for region in report.regions
        ],
    }


def _tied(text: str) -> str:
    """``text`` in which no line ends between a sign and its number."""
    return re.sub("([\u2264\u2265]) ", "\\1\u00a0", text)


def _phase_name(report: Report, region: str, name: str, profile: str) -> str:
    several_regions = len({phase.region for phase in report.plan.phases}) > 1
    return visible(" · ".join(part for part in (name, profile, region if several_regions else "") if part))


def _phase(report: Report, phase: PhaseFacts, index: _Index) -> Page:
    return {
        "name": _phase_name(report, phase.region, phase.name, phase.profile),
        "dims": "" if phase.dims == phase.profile else visible(phase.dims),
        "p50_ns": phase.p50_ns,
        "p99_ns": phase.p99_ns,
        "budget_ns": phase.budget_ns,
        "blocks": [
            {
                "name": visible(block.name, 60),
                "repeat": block.repeat,
                "rows": [
                    {"sig": index.signature[row.signature], "from": list(row.reads), "note": visible(row.note)}
                    for row in block.rows
                ],
            }
            for block in phase.blocks
        ],
    }


def _edges(report: Report) -> list[Plain]:
    """Edges between the shown phases: within a region and a profile."""
    found: list[Plain] = []
    for was, then in report.plan.edges:
        for a in report.plan.phases:
            for b in report.plan.phases:
                if (a.name, b.name) == (was, then) and (a.region, a.profile) == (b.region, b.profile):
                    found.append([_phase_name(report, p.region, p.name, p.profile) for p in (a, b)])
    return found


def _memory(report: Report, memory: MemoryFacts, index: _Index) -> Page:
    buffers = memory.buffers
    return {
        "phase": _phase_name(report, memory.region, memory.phase, memory.profile),
        "launches": memory.launches,
        "arena": memory.arena_bytes,
        "lower": memory.lower_bound_bytes,
        "state": [[visible(state.name, 60), state.size_bytes] for state in memory.states],
        "label": [buffer.label for buffer in buffers],
        "offset": [buffer.offset_bytes for buffer in buffers],
        "size": [buffer.size_bytes for buffer in buffers],
        "first": [buffer.first for buffer in buffers],
        "last": [buffer.last for buffer in buffers],
        "role": [int(buffer.role is BufferRole.WORKSPACE) for buffer in buffers],
        "sig": [index.signature.get(buffer.signature, -1) for buffer in buffers],
    }


def _baseline(facts: PageFacts, index: _Index) -> Plain:
    baseline = facts.baseline
    if baseline is None:
        return None
    return {
        "image": baseline.image,
        "at": baseline.at,
        "tool": visible(baseline.tool, 60),
        "warn": 0.05 if facts.policy.slower_warn is None else facts.policy.slower_warn,
        "fail": 0.10 if facts.policy.slower_fail is None else facts.policy.slower_fail,
        "changed": [[visible(change.what), visible(change.was), visible(change.now)] for change in baseline.changed],
        "gone": list(baseline.gone),
        "new": list(baseline.new),
        "rows": [
            {
                "sig": index.signature[row.signature],
                "old": row.old,
                "new": row.new,
                "old_ns": row.old_ns,
                "new_ns": row.new_ns,
                "old_error": _share(row.old_error),
                "new_error": _share(row.new_error),
            }
            for row in baseline.rows
        ],
    }
