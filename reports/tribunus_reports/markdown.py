"""The report as Markdown: a summary for pull requests and job pages.

Imported by: command.  Imports: chain, projection's words, gates, read_first.

Text is escaped with numeric character references, which no dialect of Markdown reads as structure, inside or outside
of tables; names from the model stand in ``<code>`` besides, so that nothing in them becomes a link or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tribunus_reports.chain import tensors
from tribunus_reports.display import byte_count, count, nanoseconds, ratio, visible
from tribunus_reports.judge import region_state, without_kernel
from tribunus_reports.model import CandidateRow, Report
from tribunus_reports.model_parts import Check, Outcome, WitnessVerdict
from tribunus_reports.projection import PageFacts, verdict_words

ROWS: Final = 40
"""Signatures that the table names; the rest is counted."""
_MARKS: Final = {"pass": "✓", "warn": "!", "fail": "✗"}
_SPECIAL: Final = re.compile(r"""[\\`*_{}\[\]<>()#+!|~&@:^$"']|(?<=[wW])\.|(?<=\s)[-=]|^[-=]|(?<=\d)[.](?=\s)""")


def text(value: str, limit: int = 200) -> str:
    """``value`` as one line of plain text in any Markdown."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", visible(value, limit))


def code(value: str, limit: int = 80) -> str:
    """``value`` as code, whatever it holds."""
    return f"<code>{text(value, limit)}</code>"


def markdown(report: Report, facts: PageFacts) -> bytes:
    """The summary in UTF-8."""
    return ("\n".join(_lines(report, facts)) + "\n").encode("utf-8")


def _lines(report: Report, facts: PageFacts) -> Iterator[str]:
    words = verdict_words(report)
    yield f"# {text(str(words['title']))}: {text(report.name)} for {text(report.regions[0].target)}"
    yield ""
    yield text(str(words["reason"]), 600)
    yield ""
    yield from _figures(report, facts)
    if facts.read_first:
        yield "## Read these first"
        yield ""
        for item in facts.read_first:
            yield f"- **{item.level.value}** {text(item.text, 400)}"
        yield ""
    yield f"## Gates of {text(facts.policy.name)}"
    yield ""
    yield "| | rule | seen | allowed |"
    yield "|---|---|---|---|"
    for gate in facts.gates:
        yield f"| {_MARKS[gate.state.value]} | {text(gate.rule)} | {text(gate.seen)} | {text(gate.bound)} |"
    yield ""
    yield from _checks(report)
    yield from _witnesses(report)
    yield from _signatures(report)
    yield f"Report {code('sha256:' + facts.report_digest)}, made {text(report.made.at)} by {text(report.made.tool)}."


def _figures(report: Report, facts: PageFacts) -> Iterator[str]:
    arena = max((memory.arena_bytes for memory in report.plan.memory), default=0)
    rows = [
        ("image", "none was made" if report.image is None else code("sha256:" + report.image.id)),
        ("model", f"{code(report.model.file)} {code('sha256:' + report.model.digest[:16])}"),
        ("compute", text(report.policy.compute)),
        ("candidates", f"{_number(report, Outcome.ADMITTED)} admitted of {len(report.candidates):,}"),
        ("receipts", f"{len(report.receipts):,}"),
        ("arena", byte_count(arena) if arena else "none"),
    ]
    for region in report.regions:
        state = region_state(region, report.signatures, report.candidates, report.program_checks)
        rows.append((f"region {text(region.target)}", f"{state}{', ' if region.note else ''}{text(region.note)}"))
    for phase in report.plan.phases:
        if phase.p50_ns:
            label = text(" ".join(part for part in (phase.name, phase.profile) if part))
            rows.append((label, f"p50 {nanoseconds(phase.p50_ns)}, p99 {nanoseconds(phase.p99_ns)}"))
    yield "| | |"
    yield "|---|---|"
    for name, value in rows:
        yield f"| {name} | {value} |"
    yield ""


def _number(report: Report, outcome: Outcome) -> str:
    return f"{sum(row.outcome is outcome for row in report.candidates):,}"


def _checks(report: Report) -> Iterator[str]:
    if not report.candidates:
        return
    entered = {check: sum(row.check is check for row in report.receipts) for check in Check}
    yield "## Six checks"
    yield ""
    yield "| check | entered | passed | why they left |"
    yield "|---|---:|---:|---|"
    for check in Check:
        mine = [row for row in report.receipts if row.check is check and row.reason is not None]
        kinds: dict[str, int] = {}
        for row in mine:
            if row.reason is not None:
                kinds[row.reason.kind] = kinds.get(row.reason.kind, 0) + 1
        why = ", ".join(f"{number:,} {text(kind)}" for kind, number in sorted(kinds.items(), key=lambda item: -item[1]))
        yield f"| {check} | {entered[check]:,} | {entered[check] - len(mine):,} | {why} |"
    yield ""


def _witnesses(report: Report) -> Iterator[str]:
    """Other engines' outputs beside the program check, those that do not agree in front."""
    if not report.witnesses:
        return
    rows = sorted(report.witnesses, key=lambda row: (row.verdict is WitnessVerdict.AGREES, row.case))
    agree = sum(row.verdict is WitnessVerdict.AGREES for row in rows)
    yield "## Witnesses"
    yield ""
    yield f"{agree:,} of {len(rows):,} agree with the float64 program; a witness never decides."
    yield ""
    yield "| case | witness | verdict | worst output | distance | allowed |"
    yield "|---|---|---|---|---:|---:|"
    for row in rows[:ROWS]:
        case = code(row.case, 60) + (f" {text(row.profile, 60)}" if row.profile else "")
        said = f"{row.verdict}{': ' if row.reason else ''}{text(row.reason)}"
        output = code(row.output, 60) if row.output else ""
        far = tensors(row) if row.output else ""
        who = code(row.witness, 60) if row.witness else "not named"
        yield f"| {case} | {who} | {said} | {output} | {far} | {row.limit:g} T |"
    yield ""
    if len(rows) > ROWS:
        yield f"And {count(len(rows) - ROWS, 'more witness', 'more witnesses')}, see report.json."
        yield ""


def _signatures(report: Report) -> Iterator[str]:
    used = [row for row in report.signatures if row.used]
    if not used:
        return
    rows: dict[tuple[str, str | None], CandidateRow] = {(row.signature, row.id): row for row in report.candidates}
    lacking = {
        row.id for region in report.regions for row in without_kernel(region, report.signatures, report.candidates)
    }
    ordered = sorted(used, key=lambda row: row.id not in lacking)
    yield "## Signatures"
    yield ""
    yield "| signature | from | operation | kernel | time / budget | error / budget |"
    yield "|---|---|---|---|---:|---:|"
    for signature in ordered[:ROWS]:
        row = rows.get((signature.id, signature.chosen))
        name = f"{text(signature.id)} | {code(signature.name, 60)} | {text(signature.op)} {text(signature.shape)}"
        if row is None:
            yield f"| {name} | **none**: {text(signature.why)} | | |"
            continue
        timed = ratio(row.p50_ns / signature.budget_ns) if row.p50_ns and signature.budget_ns else "not timed"
        yield f"| {name} | {text(row.id)} | {timed} | {ratio(row.error_share)} |"
    yield ""
    if len(ordered) > ROWS:
        yield f"And {count(len(ordered) - ROWS, 'more signature')}, see report.json."
        yield ""
