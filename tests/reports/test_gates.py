"""Each rule of a gate policy: what opens it and what shuts it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest
from tribunus_reports.baseline import compare
from tribunus_reports.gates import Gate, GateState, SeenImage, evaluate, is_open
from tribunus_reports.model import Report
from tribunus_reports.model_parts import Baseline, Check, ImageFacts, Signer, Verdict
from tribunus_reports.policy import Policy, default_policy, parse_policy

from tribunus.errors import PolicyError

NOW = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)


def gate(
    report: Report,
    rule: str,
    policy: Policy | None = None,
    *,
    now: datetime = NOW,
    image: SeenImage | None = None,
    baseline: Baseline | None = None,
) -> Gate:
    gates = evaluate(policy or default_policy(), report, now=now, image=image, baseline=baseline)
    return next(gate for gate in gates if gate.rule.startswith(rule))


def policy_of(text: str) -> Policy:
    return parse_policy(f'schema = "tribunus.gate/1"\n{text}'.encode(), "p.toml")


def with_signers(report: Report, *signers: Signer) -> Report:
    assert isinstance(report.image, ImageFacts)
    return dataclasses.replace(report, image=dataclasses.replace(report.image, signers=signers))


def test_an_admitted_report_passes_the_built_in_policy(builders: ModuleType) -> None:
    gates = evaluate(default_policy(), builders.a_report(), now=NOW, image=None, baseline=None)
    assert is_open(gates), gates


@pytest.mark.parametrize("kind", ["rejected", "staged", "all-staged", "empty"])
def test_everything_else_does_not(builders: ModuleType, kind: str) -> None:
    report = builders.a_report(kind)
    assert not is_open(evaluate(default_policy(), report, now=NOW, image=None, baseline=None))
    assert gate(report, "verdict").state is GateState.FAIL


def test_a_policy_may_let_a_region_wait(builders: ModuleType) -> None:
    gates = evaluate(
        policy_of("[checks]\nallow_staged = true"), builders.a_report("staged"), now=NOW, image=None, baseline=None
    )
    assert is_open(gates), gates


def test_required_checks(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=1)
    key = (report.signatures[0].id, report.signatures[0].chosen)
    cut = dataclasses.replace(
        report,
        receipts=tuple(
            row for row in report.receipts if (row.signature, row.candidate) != key or row.check is not Check.REPLAY
        ),
    )
    assert gate(cut, "the six checks").seen == "1 of 2"
    assert gate(cut, "the six checks").state is GateState.FAIL
    fewer = policy_of('[checks]\nrequired = ["oracle", "timing"]')
    assert gate(cut, "oracle, timing", fewer).state is GateState.PASS


def test_executors(builders: ModuleType) -> None:
    staged = builders.a_report("all-staged", signatures=1, candidates=1)
    assert gate(staged, "what ran").state is GateState.FAIL
    allowed = policy_of('[checks]\nexecutors = ["device", "msl-shim"]')
    assert gate(staged, "what ran", allowed).state is GateState.PASS


def test_program_cases(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1)
    assert gate(report, "program", policy_of("[checks]\nprogram_cases = 1")).state is GateState.PASS
    assert gate(report, "program", policy_of("[checks]\nprogram_cases = 2")).state is GateState.FAIL
    differs = dataclasses.replace(report.program_checks[0], bit_equal=False)
    assert gate(dataclasses.replace(report, program_checks=(differs,)), "program").state is GateState.FAIL
    none = policy_of("[checks]\nprogram_cases = 0")
    gates = evaluate(none, report, now=NOW, image=None, baseline=None)
    assert not any(gate.rule.startswith("program") for gate in gates)


def test_minimum_cases_count_the_weakest_launched_kernel(builders: ModuleType) -> None:
    report = builders.a_report(signatures=3, candidates=2)
    weak = dataclasses.replace(report.receipts[0], cases=2)
    assert (weak.check, weak.verdict) == (Check.ORACLE, Verdict.PASSED)
    changed = dataclasses.replace(report, receipts=(weak, *report.receipts[1:]))
    policy = policy_of("[minimum]\noracle = 14\nshape = 1")
    assert gate(report, "cases of the oracle", policy).state is GateState.PASS
    assert gate(changed, "cases of the oracle", policy).state is GateState.FAIL
    assert gate(changed, "cases of the oracle", policy).seen == "≥ 2"
    assert gate(changed, "cases of the shape", policy).state is GateState.PASS


def test_age_of_the_evidence(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    policy = policy_of("[evidence]\nmax_age_days = 30")
    assert gate(report, "age", policy, now=NOW + timedelta(days=29)).state is GateState.PASS
    assert gate(report, "age", policy, now=NOW + timedelta(days=31)).state is GateState.FAIL
    assert gate(report, "age", policy, now=NOW - timedelta(days=1)).seen == "in the future"
    assert gate(report, "age", now=NOW + timedelta(days=4000)).state is GateState.PASS


def test_keys(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    ci, dev = builders.a_signer("build-ci"), builders.a_signer("me", development=True)
    two = policy_of("[evidence]\nthreshold = 2")
    assert gate(with_signers(report, ci), "signatures", two).state is GateState.FAIL
    assert gate(with_signers(report, ci, ci), "signatures", two).seen == "1 of 2"
    assert gate(with_signers(report, ci, builders.a_signer("anna")), "signatures", two).state is GateState.PASS
    named = policy_of(f'[evidence]\nkeys = ["{ci.keyid}"]')
    assert gate(with_signers(report, builders.a_signer("eve")), "signatures", named).state is GateState.FAIL
    assert gate(with_signers(report, ci), "signatures", named).state is GateState.PASS
    both = with_signers(report, ci, dev)
    assert gate(both, "development keys").state is GateState.FAIL
    trusted = policy_of(f'[evidence]\nkeys = ["{ci.keyid}", "{dev.keyid}"]')
    assert is_open(evaluate(trusted, both, now=NOW, image=None, baseline=None))
    alone = with_signers(report, dev)
    assert gate(alone, "signatures").state is GateState.FAIL


def test_image_and_ledger_are_compared(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    ledger = (report.ledger.root, report.ledger.entries)
    target = report.regions[0].target
    same = SeenImage(id=report.image.id, signers=report.image.signers, ledgers={target: ledger}, declined=())
    assert is_open(evaluate(default_policy(), report, now=NOW, image=same, baseline=None))
    flaws = {
        "image id": dataclasses.replace(same, id="0" * 64),
        "ledger root": dataclasses.replace(same, ledgers={target: ("0" * 64, ledger[1])}),
        "ledger": dataclasses.replace(same, ledgers={}),
        "signatures": dataclasses.replace(same, signers=()),
        "reviewers who declined": dataclasses.replace(same, declined=("anna: too slow",)),
    }
    for rule, image in flaws.items():
        assert gate(report, rule, image=image).state is GateState.FAIL, rule


def test_error_budget(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    row = builders.chosen_row(report)
    policy = policy_of("[error]\nwarn = 0.5\nfail = 0.9")
    for error, state in ((0.4, GateState.PASS), (0.6, GateState.WARN), (0.95, GateState.FAIL)):
        changed = builders.with_candidate(report, row.signature, row.id, dataclasses.replace(row, error_share=error))
        assert gate(changed, "largest error", policy).state is state


def test_phase_latency(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    p99 = report.plan.phases[0].p99_ns / 1e6
    for limit, state in ((p99 * 1.01, GateState.PASS), (p99 * 0.99, GateState.FAIL)):
        assert gate(report, "p99", policy_of(f"[latency]\np99_ms = {{ encode = {limit} }}")).state is state
    assert gate(report, "p99", policy_of("[latency]\np99_ms = { decode = 1 }")).seen == "no such phase"
    lost = builders.a_report("rejected", signatures=1)
    assert gate(lost, "p99", policy_of("[latency]\np99_ms = { encode = 1000 }")).seen == "no figure"


def test_slower_than_the_baseline(builders: ModuleType) -> None:
    old = builders.a_report(signatures=2, candidates=1)
    row = builders.chosen_row(old)
    policy = policy_of("[latency]\nwarn = 0.05\nfail = 0.10")
    for factor, state in ((1.0, GateState.PASS), (1.07, GateState.WARN), (1.2, GateState.FAIL), (0.5, GateState.PASS)):
        slower = dataclasses.replace(
            row, p50_ns=int(row.p50_ns * factor), warm_ns=tuple(int(ns * factor) for ns in row.warm_ns)
        )
        new = builders.with_candidate(old, row.signature, row.id, slower)
        baseline = compare(old, new)
        assert len(baseline.rows) == 2 and baseline.changed == ()
        assert gate(new, "slower", policy, baseline=baseline).state is state, factor
    assert gate(old, "slower", policy).state is GateState.FAIL
    optional = policy_of("[latency]\nfail = 0.10\nbaseline_required = false")
    assert gate(old, "slower", optional).state is GateState.WARN


def test_the_baseline_names_what_came_went_and_changed(builders: ModuleType) -> None:
    old, new = builders.a_report(signatures=3), builders.a_report(signatures=4)
    toolchain = (("zig", "0.15.2"), ("numpy", "2.4.6"))
    newer = dataclasses.replace(new, session=dataclasses.replace(new.session, toolchain=toolchain))
    baseline = compare(old, newer)
    assert baseline.new == (new.signatures[3].id,) and baseline.gone == ()
    assert compare(newer, old).gone == (new.signatures[3].id,)
    assert [(change.what, change.was, change.now) for change in baseline.changed] == [("zig", "0.15.1", "0.15.2")]


@pytest.mark.parametrize(
    "text",
    [
        "[chekcs]",
        "[checks]\nrequried = []",
        '[checks]\nrequired = ["speed"]',
        "[checks]\nallow_staged = 1",
        "[checks]\nprogram_cases = -1",
        "[minimum]\noracle = true",
        "[evidence]\nkeys = ['abc']",
        "[error]\nfail = -1",
        "[error]\nfail = nan",
        "[latency]\np99_ms = 5",
        "[latency]\np99_ms = { main = 0 }",
        "checks = 1",
        "not toml",
    ],
)
def test_a_policy_with_a_flaw_is_refused_by_name(text: str) -> None:
    with pytest.raises(PolicyError, match=r"p\.toml"):
        policy_of(text)


def test_a_policy_needs_its_schema() -> None:
    with pytest.raises(PolicyError, match="schema"):
        parse_policy(b"[checks]\n", "p.toml")
