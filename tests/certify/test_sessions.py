"""A certification that ends well: what it leaves behind, and what the next one makes of it."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from tribunus_reports.schema import published

import tribunus
from tests.certify.conftest import QUICK, WIDTH, Desk, Said, no_traceback, save_case
from tribunus.admission.receipt import Check
from tribunus.ledger.store import Ledger

RANGE = ("--dim", "batch=1:2:5", *QUICK)
SIGNATURES, CHECKS = 3, 6


@pytest.fixture(scope="module")
def first(desk: Desk) -> Said:
    """Three signatures over a range of batches."""
    return desk.certify("small.onnx", *RANGE, "--benchmark-json", str(desk.folder / "benchmark.json"))


@pytest.fixture(scope="module")
def again(desk: Desk, first: Said) -> Said:
    """The same command, by the command line tool."""
    assert first.code == 0
    return desk.certify("small.onnx", *RANGE, output="again", tool=True)


def trust(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The development key of this desk is trusted."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TRIBUNUS_TRUST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(desk.folder / "home"))


def image_id(said: Said) -> str:
    report = said.report()
    image = report["image"]
    assert isinstance(image, dict)
    return str(image["id"])


def test_it_leaves_an_image_its_choices_and_four_reports(first: Said) -> None:
    assert first.code == 0, first.text
    names = sorted(path.name.removeprefix("small.cpu.") for path in first.output.iterdir())
    assert names == ["choices.json", "junit.xml", "report.html", "report.json", "report.md", "tci"]
    assert first.counts() == {"passed": SIGNATURES * (CHECKS + 1) + 1}
    assert "admitted: image " in first.out and no_traceback(first)


def test_the_report_is_as_its_schema_says(first: Said) -> None:
    report = first.report()
    jsonschema.Draft202012Validator(json.loads(published())).validate(report)
    assert report["state"] == "admitted"


def test_our_junit_counts_admitted_candidates(first: Said) -> None:
    suites = ElementTree.parse(first.file("junit.xml")).getroot()
    assert suites.find(".//failure") is None and suites.find(".//skipped") is None
    assert len(suites.findall(".//testcase")) >= SIGNATURES


def test_the_image_replays_every_batch_of_its_range(first: Said, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    trust(desk, monkeypatch)
    witness = onnxruntime.InferenceSession(str(desk.models / "small.onnx"), providers=["CPUExecutionProvider"])
    with tribunus.open(first.file("tci")) as image:
        for batch in (1, 2, 3, 5):
            x = np.linspace(-2, 2, batch * WIDTH, dtype=np.float32).reshape(batch, WIDTH)
            y: npt.NDArray[np.float32] = image.run({"x": x})["y"].astype(np.float32)
            np.testing.assert_allclose(y, witness.run(None, {"x": x})[0], rtol=1e-5)


def test_pytest_benchmark_holds_the_samples_of_the_timing_receipts(first: Said, desk: Desk) -> None:
    rows = json.loads((desk.folder / "benchmark.json").read_text())["benchmarks"]
    report = first.report()
    candidates = report["candidates"]
    assert isinstance(candidates, list)
    assert len(rows) == len(candidates) == SIGNATURES
    medians = {row["id"]: row["p50_ns"] for row in candidates}
    for row in rows:
        name = row["name"].rsplit("/", 1)[1].rstrip("]")
        assert row["extra_info"]["budget_ns"] > row["extra_info"]["floor_ns"] >= 0
        assert min(row["stats"]["data"]) * 1e9 <= medians[name] * 1.001
        assert max(row["stats"]["data"]) * 1e9 >= medians[name] * 0.999


def test_an_unchanged_session_makes_only_cache_key_receipts(again: Said, first: Said) -> None:
    assert again.code == 0, again.text
    assert f"receipts reused from the ledger: {SIGNATURES * (CHECKS - 1)}" in again.out

    def digests(said: Said, *, key: bool) -> set[str]:
        rows = said.report()["receipts"]
        assert isinstance(rows, list)
        return {row["digest"] for row in rows if (row["check"] == "cache-key") is key}

    assert digests(again, key=False) == digests(first, key=False)
    assert not digests(again, key=True) & digests(first, key=True)


def test_an_unchanged_session_gives_the_same_image(again: Said, first: Said) -> None:
    assert image_id(again) == image_id(first)


def test_no_session_makes_a_check_again_that_still_holds(again: Said, desk: Desk) -> None:
    with Ledger(desk.ledger()) as ledger:
        made = Counter(entry.receipt.check for entry in ledger.all())
    assert made.pop(Check.CACHE_KEY) >= 2 * SIGNATURES
    assert made == {check: SIGNATURES for check in Check if check is not Check.CACHE_KEY}


def test_the_command_line_tool_is_pytest_on_the_installed_suites(again: Said, first: Said) -> None:
    assert again.counts() == first.counts()
    assert sorted(p.name for p in again.output.iterdir()) == sorted(p.name for p in first.output.iterdir())


def test_another_toolchain_makes_all_evidence_again_and_says_why(first: Said, desk: Desk, fresh: Desk) -> None:
    shutil.copy(desk.ledger(), fresh.ledger())
    said = fresh.certify("small.onnx", *RANGE, "-p", "odd_session", "-k", "oracle", extra={"ODD": "toolchain"})
    assert said.code == 0, said.text
    assert "evidence made again, key differs in toolchain" in said.out and "-> another compiler" in said.out
    assert "receipts reused" not in said.out


def test_choices_give_the_same_content_from_another_ledger(first: Said, fresh: Desk) -> None:
    said = fresh.certify("small.onnx", *RANGE, "--choices", str(first.file("choices.json")))
    assert said.code == 0, said.text
    assert "receipts reused" not in said.out
    assert image_id(said) == image_id(first)


def test_each_shape_of_the_inputs_is_a_profile_of_its_own(
    fresh: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (1, 3):
        save_case(tmp_path / "cases" / f"rows-{batch}.npz", batch)
    said = fresh.certify("one.onnx", "--inputs", str(tmp_path / "cases"), *QUICK)
    assert said.code == 0, said.text
    trust(fresh, monkeypatch)
    with tribunus.open(said.file("tci")) as image:
        for batch in (1, 3):
            x = np.full((batch, WIDTH), -1.5, np.float32)
            assert not image.run({"x": x})["y"].any()
        with pytest.raises(tribunus.errors.ProfileError):
            image.run({"x": np.zeros((2, WIDTH), np.float32)})
    checks = said.report()["program_checks"]
    assert isinstance(checks, list)
    assert {(row["profile"], row["case"]) for row in checks} == {("batch=1", "rows-1"), ("batch=3", "rows-3")}


def test_collecting_lists_everything_and_does_nothing(first: Said, desk: Desk) -> None:
    builds = desk.folder / "empty"
    said = desk.certify("small.onnx", *RANGE, "--collect-only", "-q", output="collected")
    assert said.code == 0 and not said.output.exists() and not builds.exists()
    lines = [line for line in said.out.splitlines() if "::" in line]
    assert len(lines) == SIGNATURES * (CHECKS + 1) + 1
    assert [line.split("::")[1].split("[")[0] for line in lines[:CHECKS]] == [
        "test_oracle", "test_shape", "test_layout", "test_timing", "test_replay", "test_cache_key",
    ]  # fmt: skip


def test_a_selection_judges_what_was_selected_and_makes_no_image(first: Said, desk: Desk) -> None:
    (desk.folder / "selected").mkdir()
    old = shutil.copy(first.file("tci"), desk.folder / "selected" / "small.cpu.tci")
    said = desk.certify("small.onnx", *RANGE, "-k", "softmax and oracle", output="selected")
    assert said.code == 0, said.text
    assert said.counts() == {"passed": 1, "deselected": SIGNATURES * (CHECKS + 1)}
    assert "not every check ran, so no image was made" in said.out
    assert said.report()["state"] == "not reached" and said.report()["image"] is None
    assert f"an image of an earlier session is still there: {old}" in said.out


def test_an_empty_selection_is_nothing_to_judge(first: Said, desk: Desk) -> None:
    said = desk.certify("small.onnx", *RANGE, "-k", "no_such_thing", output="nothing")
    assert said.code == 5 and "E_NOTHING" in said.out and no_traceback(said)
    assert not list(said.output.glob("*"))


def test_a_full_disk_leaves_no_half_written_file(first: Said, desk: Desk) -> None:
    said = desk.certify("small.onnx", *RANGE, "-p", "small_disk", output="full", extra={"DISK_BYTES": "20000"})
    assert said.code == 50 and "E_IO" in said.out and no_traceback(said)
    assert not [p.name for p in said.output.iterdir() if p.suffix in (".tci", ".tmp")]
