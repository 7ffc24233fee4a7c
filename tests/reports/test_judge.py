"""Outcomes and states follow from receipts alone."""

from __future__ import annotations

import dataclasses
from types import ModuleType

import pytest
from tribunus_reports.judge import outcome_of, recompute, region_state
from tribunus_reports.model_parts import Check, Outcome, ReportState, Verdict

from tribunus.errors import ContentsDiffer


def test_six_passes_on_the_device_admit_and_nothing_less_does(builders: ModuleType) -> None:
    six = [builders.a_receipt("s-1", "c-1", check) for check in Check]
    assert outcome_of(six) == (Outcome.ADMITTED, None)
    for left_out in range(6):
        assert outcome_of(six[:left_out] + six[left_out + 1 :]) == (Outcome.NOT_REACHED, None)
    assert outcome_of([]) == (Outcome.NOT_REACHED, None)


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Verdict.REJECTED, Outcome.REJECTED),
        (Verdict.CRASHED, Outcome.CRASHED),
        (Verdict.TIMED_OUT, Outcome.TIMED_OUT),
        (Verdict.MISTRUSTED, Outcome.MISTRUSTED),
    ],
)
def test_one_refusal_decides(builders: ModuleType, verdict: Verdict, outcome: Outcome) -> None:
    receipts = [
        builders.a_receipt("s-1", "c-1", Check.ORACLE),
        builders.a_receipt("s-1", "c-1", Check.SHAPE, verdict=verdict),
    ]
    assert outcome_of(receipts) == (outcome, Check.SHAPE)


def test_a_stand_in_can_refuse_but_not_admit(builders: ModuleType) -> None:
    six = [builders.a_receipt("s-1", "c-1", check, executor="pocl") for check in Check]
    assert outcome_of(six) == (Outcome.STAGED, None)
    assert outcome_of(six[:3]) == (Outcome.STAGED, None)
    assert outcome_of(six[:2]) == (Outcome.NOT_REACHED, None)
    mixed = [*six[:3], *(builders.a_receipt("s-1", "c-1", check) for check in list(Check)[3:])]
    assert outcome_of(mixed)[0] is Outcome.STAGED


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("admitted", ReportState.ADMITTED),
        ("rejected", ReportState.REJECTED),
        ("staged", ReportState.ADMITTED),
        ("all-staged", ReportState.STAGED),
        ("empty", ReportState.NOT_REACHED),
    ],
)
def test_state_of_a_certification(builders: ModuleType, kind: str, state: ReportState) -> None:
    report = builders.a_report(kind, signatures=3)
    assert report.state is state
    assert recompute(report) is state


def test_a_refused_program_rejects_and_a_mistrusted_one_leaves_it_open(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2)
    for verdict, state in ((Verdict.REJECTED, ReportState.REJECTED), (Verdict.MISTRUSTED, ReportState.NOT_REACHED)):
        programs = (builders.a_program_check("case-1", verdict=verdict),)
        assert region_state(report.regions[0], report.signatures, report.candidates, programs) is state


def test_an_alternative_that_lost_needs_no_kernel(builders: ModuleType) -> None:
    report = builders.a_report("rejected", signatures=3)
    lost = dataclasses.replace(report.signatures[0], used=False, why="another cover is used")
    state = region_state(report.regions[0], (lost, *report.signatures[1:]), report.candidates, ())
    assert state is ReportState.ADMITTED


def test_a_build_that_failed_is_a_refusal_and_a_check_that_did_not_run_is_not(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=3)
    owner = report.signatures[0]
    bare = dataclasses.replace(owner, chosen=None)

    def state(note: str) -> ReportState:
        rows = tuple(
            dataclasses.replace(row, outcome=Outcome.NOT_REACHED, stopped_by=None, note=note)
            if row.signature == owner.id
            else row
            for row in report.candidates
        )
        return region_state(report.regions[0], (bare, report.signatures[1]), rows, ())

    assert state("the build failed: no compiler") is ReportState.REJECTED
    assert state("") is ReportState.NOT_REACHED


def test_a_report_that_overstates_is_found(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=6)
    row = next(row for row in report.candidates if row.outcome is Outcome.REJECTED)
    lie = builders.with_candidate(
        report, row.signature, row.id, dataclasses.replace(row, outcome=Outcome.ADMITTED, stopped_by=None)
    )
    with pytest.raises(ContentsDiffer, match=row.id):
        recompute(lie)
    with pytest.raises(ContentsDiffer, match="report says rejected"):
        recompute(dataclasses.replace(report, state=ReportState.REJECTED, image=None))
