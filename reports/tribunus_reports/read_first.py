"""What a careful colleague would point at, worst first, at most seven.

Imported by: projection, markdown.  Imports: chain, gates, judge, model.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tribunus_reports.chain import tensors
from tribunus_reports.display import count, percent, ratio, visible
from tribunus_reports.gates import Gate, GateState
from tribunus_reports.judge import without_kernel
from tribunus_reports.model import CandidateRow, Report, SignatureRow
from tribunus_reports.model_parts import Baseline, Outcome, Verdict, WitnessVerdict

LIMIT: Final = 7
TIGHT: Final = 0.6
"""Share of an error budget above which a chosen kernel is worth a look."""
NOISY: Final = 0.01
"""Difference of a candidate against itself above which a contest's ties were widened."""


class Level(StrEnum):
    STOP = "stop"
    LOOK = "look"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line, and the address on the page that it is about."""

    level: Level
    text: str
    link: str


def signature_link(row: SignatureRow) -> str:
    """Address of a signature on the page."""
    return f"#signature/{row.digest[:12]}"


def candidate_link(signature: SignatureRow, candidate: CandidateRow) -> str:
    """Address of a candidate on the page."""
    return f"{signature_link(signature)}/candidate/{candidate.id}"


def read_first(report: Report, gates: Sequence[Gate], baseline: Baseline | None) -> tuple[Item, ...]:
    """At most seven items; when there are more, the last of them says how many were left out."""
    items = sorted(
        [*_stops(report, gates), *_looks(report, gates, baseline), *_notes(report)],
        key=lambda item: list(Level).index(item.level),
    )
    if len(items) <= LIMIT:
        return tuple(items)
    rest = len(items) - LIMIT + 1
    more = Item(level=items[LIMIT - 1].level, text=f"{rest} more points; see the gates and receipts", link="#checks")
    return (*items[: LIMIT - 1], more)


def _stops(report: Report, gates: Sequence[Gate]) -> Iterator[Item]:
    for program in report.program_checks:
        if program.verdict not in (Verdict.PASSED, Verdict.MISTRUSTED) and program.reason is not None:
            text = f"The program check refused case {visible(program.case, 40)}: {visible(program.reason.text, 160)}"
            yield Item(level=Level.STOP, text=text, link="#evidence")
    if report.candidates:
        lacking = [row for region in report.regions for row in _lacking(report, region.target)]
        for row in lacking[:3]:
            yield Item(level=Level.STOP, text=_why_none(report, row), link=signature_link(row))
        if len(lacking) > 3:
            text = f"{count(len(lacking) - 3, 'more signature')} without an admitted candidate"
            yield Item(level=Level.STOP, text=text, link="#coverage")
    lost = [row for row in report.candidates if row.outcome is Outcome.MISTRUSTED]
    if lost:
        text = f"{count(len(lost), 'candidate')} could not be judged: too few cases could have said no"
        yield Item(level=Level.STOP, text=text, link="#receipts?verdict=mistrusted")
    shut = [gate for gate in gates if gate.state is GateState.FAIL] if report.candidates else []
    if len(shut) > 2:
        text = f"{len(shut)} gates are shut: {', '.join(gate.rule for gate in shut)}"
        yield Item(level=Level.STOP, text=text, link="#overview")
    else:
        for gate in shut:
            text = f"Gate shut: {gate.rule}: {gate.seen}, allowed {gate.bound}"
            yield Item(level=Level.STOP, text=text, link="#overview")


def _looks(report: Report, gates: Sequence[Gate], baseline: Baseline | None) -> Iterator[Item]:
    rows = {(row.signature, row.id): row for row in report.candidates}
    used = [row for row in report.signatures if row.used]
    chosen = [(row, rows[row.id, row.chosen]) for row in used if row.chosen is not None]
    if baseline is not None and baseline.rows:
        slower = max(baseline.rows, key=lambda row: row.new_ns / row.old_ns)
        by = slower.new_ns / slower.old_ns - 1
        if by > 0.02:
            text = f"{slower.signature} became {percent(by)} slower than the baseline"
            yield Item(level=Level.LOOK, text=text, link="#baseline")
    odd = [row for row in report.witnesses if row.verdict is WitnessVerdict.DISAGREES]
    if odd:
        worst = max(odd, key=lambda row: row.distance / row.limit)
        verb = "witness disagrees" if len(odd) == 1 else "witnesses disagree"
        text = f"{len(odd):,} {verb} with the float64 program; the furthest is {tensors(worst)} away, "
        text += f"allowed {worst.limit:g}\u00a0T, case {visible(worst.case, 40)}"
        yield Item(level=Level.LOOK, text=text, link="#evidence")
    tight = sorted((pair for pair in chosen if pair[1].error_share > TIGHT), key=lambda pair: -pair[1].error_share)
    if tight:
        signature, row = tight[0]
        verb = "kernel uses" if len(tight) == 1 else "kernels use"
        text = f"{len(tight):,} chosen {verb} more than {TIGHT:.0%} of the error budget; the most is "
        text += f"{ratio(row.error_share)}, {signature.id}/{row.id}"
        yield Item(level=Level.LOOK, text=text.replace("%", "\u00a0%"), link=candidate_link(signature, row))
    admitted: dict[str, int] = {}
    for row in report.candidates:
        admitted[row.signature] = admitted.get(row.signature, 0) + (row.outcome is Outcome.ADMITTED)
    single = [row for row in used if admitted.get(row.id) == 1 and row.chosen is not None]
    if single:
        stand = "stands" if len(single) == 1 else "stand"
        subject = single[0].id if len(single) == 1 else count(len(single), "signature")
        text = f"{subject} {stand} on a single admitted candidate"
        yield Item(level=Level.LOOK, text=text, link=signature_link(single[0]))
    compiled = [pair for pair in chosen if pair[1].jit_at_open]
    if compiled:
        text = f"{count(len(compiled), 'chosen kernel')} of this image generate code when the image is opened"
        yield Item(level=Level.LOOK, text=text, link=candidate_link(*compiled[0]))
    for gate in gates:
        if gate.state is GateState.WARN:
            text = f"Gate warns: {gate.rule}: {gate.seen}, {gate.bound}"
            yield Item(level=Level.LOOK, text=text, link="#overview")
    noisy = max((row.aa_spread for row in report.contests), default=0.0)
    if noisy > NOISY:
        text = f"Noisy machine: a candidate differed from itself by {percent(noisy)} in a contest, so more rivals tied"
        yield Item(level=Level.LOOK, text=text, link="#signatures")


def _notes(report: Report) -> Iterator[Item]:
    for region in report.regions:
        if region.staged:
            text = (
                f"Region {region.target} is staged: no runtime activates it until a device host adds timing and replay"
            )
            yield Item(level=Level.NOTE, text=text, link="#overview")
    cases = sum(row.cases_mistrusted for row in report.receipts)
    if cases:
        verb = "counts" if cases == 1 else "count"
        text = f"{count(cases, 'case')} could not have refused anyone and {verb} for nothing"
        yield Item(level=Level.NOTE, text=text, link="#receipts")
    for outcome, verb in ((Outcome.CRASHED, "crashed in isolation"), (Outcome.TIMED_OUT, "did not answer in time")):
        number = sum(row.outcome is outcome for row in report.candidates)
        if number:
            link = f"#receipts?verdict={outcome.replace(' ', '+')}"
            yield Item(
                level=Level.NOTE, text=f"{count(number, 'candidate')} {verb}; each worker was replaced", link=link
            )
    noted = [row for row in report.candidates if row.outcome is Outcome.NOT_REACHED and row.note]
    if passed := sum(bool(row.artifact) for row in noted):
        text = f"{count(passed, 'candidate')} reached no check: others were faster in a short timing of all"
        yield Item(level=Level.NOTE, text=text, link="#signatures")
    unbuilt = [row for row in noted if not row.artifact]
    if unbuilt:
        text = f"{count(len(unbuilt), 'candidate')} reached no check: {visible(unbuilt[0].note, 120)}"
        yield Item(level=Level.NOTE, text=text, link="#signatures")


def _lacking(report: Report, target: str) -> tuple[SignatureRow, ...]:
    region = next(region for region in report.regions if region.target == target)
    return without_kernel(region, report.signatures, report.candidates)


def _why_none(report: Report, signature: SignatureRow) -> str:
    mine = [row for row in report.candidates if row.signature == signature.id]
    stopped = [row.stopped_by for row in mine if row.stopped_by is not None]
    text = f"{signature.id} has no admitted candidate: {len(mine):,} tried"
    if stopped:
        most = max(stopped, key=lambda check: (stopped.count(check), check))
        how_many = "all" if stopped.count(most) == len(mine) else "most of them"
        text += f", {how_many} refused by {most}"
    return text
