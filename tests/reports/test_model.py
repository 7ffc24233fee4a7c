"""A report that contradicts itself cannot be built, stored or read."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from tribunus_reports.model_parts import Check, Outcome, ReportState, Verdict
from tribunus_reports.schema import generated, published
from tribunus_reports.store import load_report, parse_report, report_bytes, report_digest, write_file, write_report

from tribunus.errors import (
    EncodingError,
    EnvironmentFault,
    InternalError,
    JsonDuplicateKeyError,
    SchemaError,
    TribunusError,
)

KINDS = ("admitted", "rejected", "staged", "all-staged", "empty")


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_read_back_to_the_same_report(builders: ModuleType, kind: str) -> None:
    report = builders.a_report(kind, signatures=3, candidates=4, hostile=True)
    data = report_bytes(report)
    assert parse_report(data, "x").report == report
    assert report_bytes(parse_report(data, "x").report) == data
    data.decode("ascii")


def test_numbers_that_json_lacks_survive(builders: ModuleType) -> None:
    report = builders.a_report(signatures=1, candidates=1)
    receipt = report.receipts[0]
    worst = dataclasses.replace(receipt.worst, golden=math.nan, got=-math.inf, error_share=math.inf)
    changed = dataclasses.replace(report, receipts=(dataclasses.replace(receipt, worst=worst), *report.receipts[1:]))
    back = parse_report(report_bytes(changed), "x").report.receipts[0].worst
    assert back is not None
    assert math.isnan(back.golden) and back.got == -math.inf and back.error_share == math.inf


def test_the_published_schema_is_the_one_of_the_model_and_accepts_reports(builders: ModuleType) -> None:
    assert published() == generated()
    schema = json.loads(published())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for kind in KINDS:
        validator.validate(json.loads(report_bytes(builders.a_report(kind, signatures=2, candidates=3, hostile=True))))
    document = json.loads(report_bytes(builders.a_report(signatures=1, candidates=1)))
    document["receipts"][0]["verdict"] = "fine"
    assert not validator.is_valid(document)


def _documents(text: str) -> dict[str, str]:
    """Texts that are almost the report ``text``, by what is wrong with them."""
    document = json.loads(text)

    def with_change(**change: object) -> str:
        return json.dumps({**document, **change})

    receipts = document["receipts"]
    return {
        "no object": "[]",
        "no JSON": text[:-3],
        "a constant": text.replace('"aa_spread":0.004', '"aa_spread":NaN'),
        "another schema": with_change(schema="tribunus.report/3"),
        "the earlier schema with what it had not": with_change(schema="tribunus.report/1"),
        "an extra key": with_change(extra=1),
        "a missing key": json.dumps({key: value for key, value in document.items() if key != "ledger"}),
        "a bool for a number": with_change(receipts=[{**receipts[0], "cases": True}, *receipts[1:]]),
        "a huge number": with_change(receipts=[{**receipts[0], "seed": 2**60}, *receipts[1:]]),
        "a number too large for a float": text.replace('"error_share":', '"error_share":1' + "0" * 400 + ',"x":', 1),
        "an unknown verdict": with_change(receipts=[{**receipts[0], "verdict": "fine"}, *receipts[1:]]),
        "a digest that is none": with_change(receipts=[{**receipts[0], "digest": "abc"}, *receipts[1:]]),
        "a receipt twice": with_change(receipts=[receipts[0], *receipts]),
        "a receipt of nobody": with_change(receipts=[{**receipts[0], "candidate": "nobody"}, *receipts[1:]]),
        "a name that is no identifier": with_change(name="<img>"),
        "a time that is none": with_change(made={**document["made"], "at": "yesterday"}),
        "no region": with_change(regions=[]),
    }


def test_a_report_of_the_earlier_schema_is_read_and_knows_no_witness(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=3)
    document = json.loads(report_bytes(report))
    del document["witnesses"]
    data = json.dumps({**document, "schema": "tribunus.report/1"}).encode()
    stored = parse_report(data, "old.json")
    assert stored.report == dataclasses.replace(report, witnesses=())
    assert stored.digest == report_digest(data), "what a reviewer approves is the file as it is"


def test_witnesses_that_cannot_be(builders: ModuleType) -> None:
    report = builders.with_cases(builders.a_report(signatures=1, candidates=1))
    agrees, disagrees, silent = report.witnesses
    flaws = {
        "of no program check": dataclasses.replace(agrees, receipt="0" * 64),
        "of another case": dataclasses.replace(agrees, case="case-7"),
        "agrees beyond its limit": dataclasses.replace(agrees, distance=16.5),
        "disagrees within its limit": dataclasses.replace(disagrees, distance=15.5),
        "a distance that is no number": dataclasses.replace(agrees, distance=math.nan),
        "agrees though nothing was compared": dataclasses.replace(agrees, compared=0),
        "not compared without a reason": dataclasses.replace(silent, reason=""),
        "agrees with a reason": dataclasses.replace(agrees, reason="because"),
        "more outputs than there are": dataclasses.replace(agrees, compared=4),
    }
    for what, row in flaws.items():
        with pytest.raises(InternalError, match="witness"):
            dataclasses.replace(report, witnesses=(row,))
            pytest.fail(what)
    with pytest.raises(InternalError, match="given twice"):
        dataclasses.replace(report, witnesses=(agrees, agrees))


def test_every_flaw_of_a_file_has_its_message(builders: ModuleType) -> None:
    text = report_bytes(builders.a_report(signatures=2, candidates=4)).decode()
    for what, bad in _documents(text).items():
        assert bad != text, what
        with pytest.raises((SchemaError, EncodingError)) as caught:
            parse_report(bad.encode(), "bad.json")
        assert len(str(caught.value)) < 600, what


def test_a_repeated_key_is_refused(builders: ModuleType) -> None:
    text = report_bytes(builders.a_report(signatures=1, candidates=1)).decode()
    with pytest.raises(JsonDuplicateKeyError):
        parse_report(text.replace('"name":', '"schema": "x", "name":', 1).encode(), "bad.json")


def test_states_that_cannot_be(builders: ModuleType) -> None:
    report = builders.a_report(signatures=2, candidates=6)
    row = builders.chosen_row(report)
    first = report.receipts[0]
    refused = next(receipt for receipt in report.receipts if receipt.verdict is not Verdict.PASSED)
    admitted = [receipt for receipt in report.receipts if receipt.candidate == row.id]
    flaws: dict[str, dict[str, object]] = {
        "a refusal without a reason": {
            "receipts": tuple(dataclasses.replace(r, reason=None) if r is refused else r for r in report.receipts)
        },
        "a pass with a reason": {
            "receipts": (dataclasses.replace(first, reason=builders.a_reason(Check.ORACLE)), *report.receipts[1:])
        },
        "checks out of order": {
            "receipts": tuple(r for r in report.receipts if r not in admitted) + tuple(reversed(admitted))
        },
        "a receipt after a refusal": {
            "receipts": (
                *report.receipts,
                builders.a_receipt(refused.signature, refused.candidate, Check.CACHE_KEY, error=0.1),
            )
            if refused.check is not Check.CACHE_KEY
            else (*report.receipts, refused)
        },
        "a chosen kernel that is not admitted": {
            "candidates": tuple(
                dataclasses.replace(c, outcome=Outcome.REJECTED) if c is row else c for c in report.candidates
            )
        },
        "an image of a rejected certification": {"state": ReportState.REJECTED},
        "a falling distribution": {
            "candidates": tuple(
                dataclasses.replace(c, warm_ns=tuple(reversed(c.warm_ns))) if c is row else c for c in report.candidates
            )
        },
    }
    flaws["a buffer beyond the arena"] = {
        "plan": dataclasses.replace(
            report.plan,
            memory=(
                dataclasses.replace(
                    report.plan.memory[0],
                    buffers=(dataclasses.replace(report.plan.memory[0].buffers[0], offset_bytes=2**40),),
                ),
            ),
        )
    }
    for what, change in flaws.items():
        with pytest.raises(InternalError):
            dataclasses.replace(report, **change)
            pytest.fail(what)


def test_a_file_appears_whole_or_not_at_all(
    tmp_path: Path, builders: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.report.json"
    report = builders.a_report(signatures=1, candidates=2)
    digest = write_report(report, path)
    assert load_report(path).digest == digest
    assert load_report(path).report == report
    assert stat.S_IMODE(path.stat().st_mode) & 0o400

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentFault, match="No space left"):
        write_file(path, b"half")
    assert load_report(path).report == report
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_files_that_cannot_be_read_or_written_are_environment_faults(tmp_path: Path) -> None:
    for action in (lambda: load_report(tmp_path / "none.json"), lambda: write_file(tmp_path / "no" / "x", b"")):
        with pytest.raises(EnvironmentFault) as caught:
            action()
        assert isinstance(caught.value, TribunusError) and caught.value.exit_code == 50
