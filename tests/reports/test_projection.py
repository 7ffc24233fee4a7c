"""Laws of the page's data: lengths, ranges, and agreement between its parts."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from tribunus_reports import projection
from tribunus_reports.command import page_facts
from tribunus_reports.html import html_page
from tribunus_reports.model import Report
from tribunus_reports.model_parts import Check, Outcome
from tribunus_reports.policy import default_policy
from tribunus_reports.projection import INFINITE, PageFacts, page_data
from tribunus_reports.store import StoredReport, report_bytes, report_digest

from tribunus.errors import InternalError

NOW = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
KINDS = ("admitted", "rejected", "staged", "all-staged", "empty")


def facts_of(report: Report) -> PageFacts:
    stored = StoredReport(report=report, digest=report_digest(report_bytes(report)))
    return page_facts(stored, "x.report.json", default_policy(), report.baseline, NOW)


def data_of(report: Report) -> Any:
    return page_data(report, facts_of(report))


def resolves(link: str, page: Any) -> bool:
    """Whether the page follows ``link`` somewhere."""
    signatures = {digest[:12]: at for at, digest in enumerate(page["signatures"]["digest"])}
    path, _, query = link.removeprefix("#").partition("?")
    part = path.split("/")
    if part[0] == "signature":
        at = signatures.get(part[1])
        if at is None or len(part) == 2:
            return at is not None
        candidates = page["candidates"]
        names = [name for name, sig in zip(candidates["name"], candidates["sig"], strict=True) if sig == at]
        return part[2] == "candidate" and part[3] in names
    if part[0] == "receipts" and query:
        pairs = dict(pair.split("=") for pair in query.split("&"))
        known = {"check": page["checks"], "verdict": page["verdicts"]}
        return all(value.replace("+", " ") in known[key] for key, value in pairs.items())
    return path in {"overview", "checks", "coverage", "signatures", "receipts", "baseline", "evidence", "approve"}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_have_equal_lengths_and_indices_are_in_range(builders: ModuleType, kind: str) -> None:
    page = data_of(builders.a_report(kind, hostile=True))
    for name, rows in (("signatures", "id"), ("candidates", "sig"), ("receipts", "candidate")):
        lengths = {key: len(column) for key, column in page[name].items()}
        assert set(lengths.values()) == {len(page[name][rows])}, lengths
    ranges = [
        ("candidates", "sig", len(page["signatures"]["id"]), 0),
        ("candidates", "backend", len(page["backends"]), 0),
        ("candidates", "config", len(page["strings"]), 0),
        ("candidates", "outcome", len(page["outcomes"]), 0),
        ("candidates", "check", 6, -1),
        ("candidates", "reason", len(page["reasons"]), -1),
        ("receipts", "candidate", len(page["candidates"]["sig"]), 0),
        ("receipts", "check", 6, 0),
        ("receipts", "verdict", len(page["verdicts"]), 0),
        ("receipts", "executor", len(page["executors"]), 0),
        ("receipts", "family", len(page["families"]), -1),
        ("receipts", "reason", len(page["reasons"]), -1),
        ("signatures", "phase", len(page["phases"]), 0),
        ("signatures", "region", len(page["image"]["regions"]), 0),
        ("signatures", "chosen", len(page["candidates"]["sig"]), -1),
    ]
    for table, column, top, low in ranges:
        assert all(low <= value < top for value in page[table][column]), (table, column)
    for reason in page["reasons"]:
        words = [reason["class"], reason["text"], *(figure[0] for figure in reason["figures"])]
        assert all(0 <= word < len(page["strings"]) for word in words)
    for memory in page["memory"]:
        columns = {key: len(memory[key]) for key in ("label", "offset", "size", "first", "last", "role", "sig")}
        assert len(set(columns.values())) == 1
    names = {phase["name"] for phase in page["phases"]}
    assert all(end in names for edge in page["edges"] for end in edge)
    assert all(memory["phase"] in names for memory in page["memory"])


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_agree_with_receipts(builders: ModuleType, kind: str) -> None:
    page = data_of(builders.a_report(kind))
    receipts, candidates = page["receipts"], page["candidates"]
    mine: dict[int, list[tuple[int, str]]] = {at: [] for at in range(len(candidates["sig"]))}
    for candidate, check, verdict in zip(receipts["candidate"], receipts["check"], receipts["verdict"], strict=True):
        mine[candidate].append((check, page["verdicts"][verdict]))
    for check, verdict, reason in zip(receipts["check"], receipts["verdict"], receipts["reason"], strict=True):
        assert (page["verdicts"][verdict] in ("passed", "staged")) == (reason == -1)
        assert reason == -1 or page["reasons"][reason]["check"] == check
    for at, rows in mine.items():
        outcome = page["outcomes"][candidates["outcome"][at]]
        assert (outcome == "admitted") == (rows == [(check, "passed") for check in range(6)])
        stopping = [verdict for _, verdict in rows if verdict not in ("passed", "staged")]
        assert (outcome in ("rejected", "crashed", "timed out")) == (len(stopping) == 1)
        if stopping:
            assert rows[-1] == (candidates["check"][at], outcome)
            assert candidates["reason"][at] >= 0
        else:
            assert candidates["check"][at] == -1


@pytest.mark.parametrize("kind", KINDS)
def test_counts_chosen_links_and_seeds(builders: ModuleType, kind: str) -> None:
    page = data_of(builders.a_report(kind))
    signatures, candidates = page["signatures"], page["candidates"]
    for at in range(len(signatures["id"])):
        rows = [row for row, sig in enumerate(candidates["sig"]) if sig == at]
        admitted = [row for row in rows if page["outcomes"][candidates["outcome"][row]] == "admitted"]
        assert (signatures["candidates"][at], signatures["admitted"][at]) == (len(rows), len(admitted))
        chosen = signatures["chosen"][at]
        staged = page["image"]["regions"][signatures["region"][at]]["staged"]
        assert chosen == -1 or chosen in admitted or staged
    assert len(page["read_first"]) <= 7
    assert all(resolves(item["link"], page) for item in page["read_first"]), page["read_first"]
    assert all(0 <= seed < 2**53 for seed in page["receipts"]["seed"])
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in page["receipts"]["digest"])


def test_a_rejected_certification_offers_nothing_to_approve(builders: ModuleType) -> None:
    page = data_of(builders.a_report("rejected"))
    assert page["approve"] is None and page["image"]["id"] == "" and page["signers"] == []
    assert page["phases"][0]["p50_ns"] == 0
    assert page["verdict"] == {
        "state": "rejected",
        "title": "Rejected",
        "reason": "1 of 8 signatures has no admitted kernel. No image was signed.",
    }


def test_the_commands_name_image_and_report_in_full(builders: ModuleType) -> None:
    report = builders.a_report()
    page = data_of(report)
    assert f"--image-id sha256:{report.image.id}" in page["approve"]["approve"]
    assert f"--report-digest sha256:{report_digest(report_bytes(report))}" in page["approve"]["approve"]
    assert "--decline --reason" in page["approve"]["decline"]


def test_a_rounded_error_never_crosses_its_budget(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    for error, shown in ((1.0004, 1.01), (0.99999, 1.0), (0.123456, 0.123), (float("inf"), INFINITE), (0.0, 0)):
        receipt = report.receipts[0]
        worst = dataclasses.replace(receipt.worst, error_share=error)
        changed = dataclasses.replace(
            report, receipts=(dataclasses.replace(receipt, worst=worst), *report.receipts[1:])
        )
        assert data_of(changed)["receipts"]["error"][0] == shown


def test_two_addresses_that_would_be_one_are_refused(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=2)
    digest = report.receipts[0].digest
    twin = dataclasses.replace(report.receipts[1], digest=digest[:12] + ("0" * 52))
    changed = dataclasses.replace(report, receipts=(report.receipts[0], twin, *report.receipts[2:]))
    with pytest.raises(InternalError, match="first 12 digits"):
        data_of(changed)
    clash = dataclasses.replace(report.signatures[1], digest=report.signatures[0].digest[:12] + "0" * 52)
    with pytest.raises(InternalError, match="signatures"):
        data_of(dataclasses.replace(report, signatures=(report.signatures[0], clash)))


def test_beyond_the_limit_passed_receipts_of_the_unchosen_stay_out(
    builders: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = builders.a_report()
    whole = data_of(report)
    monkeypatch.setattr(projection, "RECEIPT_LIMIT", 10)
    page = data_of(report)
    assert whole["left_out"] == 0
    assert page["left_out"] == len(report.receipts) - len(page["receipts"]["digest"]) > 0
    chosen = set(page["signatures"]["chosen"])
    kept = zip(page["receipts"]["candidate"], page["receipts"]["verdict"], strict=True)
    assert all(candidate in chosen or page["verdicts"][verdict] != "passed" for candidate, verdict in kept)
    refused = sum(row.reason is not None for row in report.receipts)
    assert sum(page["verdicts"][verdict] != "passed" for verdict in page["receipts"]["verdict"]) == refused


def test_ten_thousand_receipts_fit_into_ten_megabytes(builders: ModuleType) -> None:
    report = builders.a_report(signatures=60, candidates=34)
    assert len(report.receipts) >= 10_000
    page = html_page(report, facts_of(report))
    assert len(page) < 10_000_000
    data = re.search(rb'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert data is not None
    assert len(json.loads(data[1])["receipts"]["digest"]) == len(report.receipts)


def test_a_phase_of_several_profiles_and_regions_has_names_of_its_own(builders: ModuleType) -> None:
    report = builders.a_report(signatures=3)
    phase = report.plan.phases[0]
    twin = dataclasses.replace(phase, profile="S=57")
    plan = dataclasses.replace(report.plan, phases=(*report.plan.phases, twin))
    page = data_of(dataclasses.replace(report, plan=plan))
    names = [phase["name"] for phase in page["phases"]]
    assert len(set(names)) == len(names) and "encode · S=57" in names
    staged = data_of(builders.a_report("staged", signatures=3))
    assert "decode · metal-apple9" in [phase["name"] for phase in staged["phases"]]


def test_a_failed_build_shows_its_note(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=2)
    row = next(row for row in report.candidates if row.id != report.signatures[0].chosen)
    lost = dataclasses.replace(
        row,
        outcome=Outcome.NOT_REACHED,
        stopped_by=None,
        note="the build failed: zig exited with 1",
        p50_ns=0,
        warm_ns=(),
        cold_ns=(),
    )
    receipts = tuple(receipt for receipt in report.receipts if receipt.candidate != row.id)
    contests = tuple(contest for contest in report.contests if row.id not in {e.candidate for e in contest.entries})
    rows = tuple(lost if each is row else each for each in report.candidates)
    page = data_of(dataclasses.replace(report, receipts=receipts, candidates=rows, contests=contests))
    at = page["candidates"]["name"].index(row.id)
    reason = page["reasons"][page["candidates"]["reason"][at]]
    assert reason["check"] == -1
    assert page["strings"][reason["text"]] == lost.note
    assert any("reached no check" in item["text"] for item in page["read_first"])


def test_every_check_has_its_place(builders: ModuleType) -> None:
    assert data_of(builders.a_report())["checks"] == [check.value for check in Check]


def test_a_development_key_does_not_count_as_a_signature(builders: ModuleType) -> None:
    report: Report = builders.a_report()
    assert report.image is not None
    assert data_of(report)["need"] == {"threshold": 1, "have": 1, "missing": []}
    signer = builders.a_signer("somebody", development=True)
    mine = dataclasses.replace(report, image=dataclasses.replace(report.image, signers=(signer,)))
    assert data_of(mine)["need"] == {"threshold": 1, "have": 0, "missing": ["1 of any key but development keys"]}


def test_dims_that_name_the_profile_are_said_once(builders: ModuleType) -> None:
    report: Report = builders.a_report()
    phases = tuple(dataclasses.replace(phase, profile="S = 128", dims="S = 128") for phase in report.plan.phases)
    rows = tuple(dataclasses.replace(row, profile="S = 128") for row in report.signatures)
    memory = tuple(dataclasses.replace(row, profile="S = 128") for row in report.plan.memory)
    plan = dataclasses.replace(report.plan, phases=phases, memory=memory)
    found = data_of(dataclasses.replace(report, plan=plan, signatures=rows))["phases"]
    assert [(phase["name"].count("S = 128"), phase["dims"]) for phase in found] == [(1, "")] * len(phases)


def test_one_admitted_candidate_is_no_contest(builders: ModuleType) -> None:
    report: Report = builders.a_report()
    row = report.contests[0]
    alone = dataclasses.replace(row, entries=tuple(entry for entry in row.entries if entry.candidate == row.winner))
    page = data_of(dataclasses.replace(report, contests=(alone,)))
    told = page["signatures"]["contest"][page["signatures"]["id"].index(row.signature)]
    assert told == f"no contest: one candidate was admitted, receipt {row.digest[:12]}"


def test_a_sign_and_its_number_stay_on_one_line(builders: ModuleType) -> None:
    page = data_of(builders.a_report("rejected"))
    texts = [*(item["text"] for item in page["read_first"]), *(gate[3] for gate in page["gates"])]
    assert any("\u2265\u00a01" in text for text in texts)
    assert [text for text in texts if re.search("[\u2264\u2265] ", text)] == []
