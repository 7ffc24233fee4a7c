"""What a careful colleague would point at: at most seven, worst first."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from types import ModuleType

from tribunus_reports.gates import Gate, GateState, evaluate
from tribunus_reports.model import Report
from tribunus_reports.model_parts import Baseline, BaselineRow, Check, Outcome
from tribunus_reports.policy import default_policy
from tribunus_reports.read_first import Item, Level, read_first

NOW = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)


def items(report: Report, baseline: Baseline | None = None) -> tuple[Item, ...]:
    gates = evaluate(default_policy(), report, now=NOW, image=None, baseline=baseline)
    return read_first(report, gates, baseline)


def texts(report: Report, baseline: Baseline | None = None) -> str:
    return "\n".join(f"{item.level} {item.text}" for item in items(report, baseline))


def test_a_signature_without_a_kernel_comes_first(builders: ModuleType) -> None:
    report = builders.a_report("rejected")
    first = items(report)[0]
    assert first.level is Level.STOP
    assert first.text.startswith(
        f"{report.signatures[0].id} has no admitted candidate: 9 tried, most of them refused by"
    )
    assert first.link == f"#signature/{report.signatures[0].digest[:12]}"


def test_candidates_that_one_check_refused_are_not_called_most(builders: ModuleType) -> None:
    report: Report = builders.a_report("rejected")
    name = report.signatures[0].id
    rows = tuple(
        dataclasses.replace(row, outcome=Outcome.REJECTED, stopped_by=Check.ORACLE) if row.signature == name else row
        for row in report.candidates
    )
    assert items(dataclasses.replace(report, candidates=rows))[0].text.endswith("9 tried, all refused by oracle")


def test_levels_never_rise_and_seven_is_the_end(builders: ModuleType) -> None:
    report = builders.a_report("staged", signatures=12, candidates=14)
    many = tuple(Gate(rule=f"rule {at}", state=GateState.WARN, seen="x", bound="y") for at in range(12))
    found = read_first(report, many, None)
    order = [list(Level).index(item.level) for item in found]
    assert order == sorted(order) and len(found) == 7
    assert found[-1].text.endswith("more points; see the gates and receipts")
    hidden = int(found[-1].text.split()[0])
    assert hidden + 6 == len([*many, *read_first(report, (), None)])


def test_tight_kernels_are_counted_and_the_worst_is_named(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=1)
    row = builders.chosen_row(report)
    tight = builders.with_candidate(report, row.signature, row.id, dataclasses.replace(row, error_share=0.97))
    line = next(item for item in items(tight) if "error budget" in item.text)
    assert "the most is 0.97" in line.text and row.id in line.text and row.id in line.link


def test_standing_on_one_candidate_is_worth_a_look(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    assert f"look {report.signatures[0].id} stands on a single admitted candidate" in texts(report)


def test_slower_than_the_baseline(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2)
    row = BaselineRow(
        signature=report.signatures[1].id, old="a", new="b", old_ns=1000, new_ns=1061, old_error=0.1, new_error=0.1
    )
    baseline = Baseline(
        image="", at="2026-11-12T09:10:44Z", tool="tribunus 0.0.9", changed=(), gone=(), new=(), rows=(row,)
    )
    assert f"look {row.signature} became 6.1\u00a0% slower than the baseline" in texts(report, baseline)
    same = dataclasses.replace(baseline, rows=(dataclasses.replace(row, new_ns=1005),))
    assert "slower" not in texts(report, same)


def test_mistrusted_crashed_and_staged(builders: ModuleType) -> None:
    report = builders.a_report("staged", signatures=12, candidates=14)
    receipts = (dataclasses.replace(report.receipts[0], cases_mistrusted=3), *report.receipts[1:])
    found = texts(dataclasses.replace(report, receipts=receipts))
    crashed = sum(row.outcome is Outcome.CRASHED for row in report.candidates)
    assert crashed and f"note {crashed} candidate" in found and "crashed in isolation" in found
    assert "Region metal-apple9 is staged" in found
    assert "3 cases could not have refused anyone and count for nothing" in found


def test_code_made_at_open_and_a_noisy_machine(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=6)
    row = builders.chosen_row(report)
    changed = builders.with_candidate(report, row.signature, row.id, dataclasses.replace(row, jit_at_open=True))
    noisy = dataclasses.replace(
        changed, contests=tuple(dataclasses.replace(row, aa_spread=0.042) for row in changed.contests)
    )
    found = texts(noisy)
    assert "generate code when the image is opened" in found and "differed from itself by 4.2\u00a0%" in found


def test_an_empty_session_points_at_nothing(builders: ModuleType) -> None:
    assert items(builders.a_report("empty")) == ()


def test_a_witness_that_disagrees_is_worth_a_look_and_no_more(builders: ModuleType) -> None:
    report = builders.with_cases(builders.a_report(signatures=1, candidates=1))
    (found,) = [item for item in items(report) if "witness" in item.text]
    assert (found.level, found.link) == (Level.LOOK, "#evidence")
    assert found.text.startswith("1 witness disagrees with the float64 program; the furthest is 16.02\u00a0T away")
    assert found.text.endswith("allowed 16\u00a0T, case case-1")
    agreeing = tuple(row for row in report.witnesses if row.case == "case-0")
    assert "witness" not in texts(dataclasses.replace(report, witnesses=agreeing))
