"""Candidates that are refused, demands that nobody serves, machinery that cannot judge."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.certify.conftest import QUICK, Desk, Said, install, no_traceback

FIXED = ("--dim", "batch=2", "--effort", "1")
ROUNDS = 3


@pytest.fixture(scope="module")
def other_backend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the path in which another package is installed; its backend is called ``wrong``."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, "wrong-backend", "[tribunus.backends]\nwrong = wrong_backend:BACKEND\n")
    return folder


def wrong(desk: Desk, site: Path, which: str, *given: str, output: str = "out") -> Said:
    """A session with that backend."""
    heard = desk.folder / "heard"
    place = f"{site}:{desk.environ({})['PYTHONPATH']}"
    extra = {"WRONG": which, "WRONG_HEARD": str(heard), "PYTHONPATH": place}
    return desk.certify("one.onnx", *FIXED, *given, output=output, extra=extra)


@pytest.fixture(scope="module")
def mixed(desk: Desk, other_backend: Path) -> Said:
    """One honest candidate and one that is not."""
    return wrong(desk, other_backend, "all", "--backend", "native", "--backend", "wrong")


@pytest.fixture(scope="module")
def unserved(desk: Desk, other_backend: Path) -> Said:
    """Only candidates that do nothing."""
    return wrong(desk, other_backend, "all", "--backend", "wrong", output="unserved")


def test_a_refused_candidate_is_news_and_no_failure(mixed: Said) -> None:
    assert mixed.code == 0, mixed.text
    assert mixed.counts() == {"passed": 6 + 2, "skipped": 5, "rejected": 1}
    assert "test_oracle.py r" in mixed.out
    assert "candidates: 1 admitted, 1 rejected" in mixed.out and mixed.file("tci").is_file()


def test_a_refused_candidate_is_skipped_in_our_junit(mixed: Said) -> None:
    suites = ElementTree.parse(mixed.file("junit.xml")).getroot()
    assert suites.find(".//failure") is None
    [skipped] = suites.findall(".//skipped")
    assert "oracle" in "".join([skipped.get("message") or "", skipped.text or ""])


def test_a_demand_that_nobody_serves_is_a_report_and_no_image(unserved: Said) -> None:
    assert unserved.code == 1 and no_traceback(unserved)
    names = {path.name.removeprefix("one.cpu.") for path in unserved.output.iterdir()}
    assert names == {"junit.xml", "report.html", "report.json", "report.md"}
    assert unserved.report()["state"] == "rejected"
    assert "rejected: no admitted kernel for" in unserved.out and "has no admitted candidate" in unserved.out
    assert ElementTree.parse(unserved.file("junit.xml")).getroot().find(".//failure") is not None


def test_further_rounds_stop_when_nothing_is_left_or_at_their_limit(unserved: Said) -> None:
    candidates = unserved.report()["candidates"]
    assert isinstance(candidates, list)
    rounds = [row["round"] for row in candidates]
    assert rounds == sorted(rounds) and 1 <= max(rounds) <= ROUNDS
    assert len({row["id"] for row in candidates}) == len(candidates)


def test_what_failed_last_is_repeated_with_its_candidates(unserved: Said, desk: Desk, other_backend: Path) -> None:
    said = wrong(desk, other_backend, "all", "--backend", "wrong", "--lf", output="unserved")
    assert said.code == 1 and "has no admitted candidate" in said.out


def test_the_first_failure_ends_the_session_where_asked(unserved: Said, desk: Desk, other_backend: Path) -> None:
    said = wrong(desk, other_backend, "all", "--backend", "wrong", "-x", output="unserved")
    assert said.code == 1 and said.counts()["failed"] == 1
    assert "stopping after 1 failures" in said.out and said.report()["state"] == "rejected"


def test_a_backend_hears_why_and_proposes_something_else(fresh: Desk, other_backend: Path) -> None:
    said = wrong(fresh, other_backend, "first", "--backend", "wrong")
    assert said.code == 0, said.text
    candidates = said.report()["candidates"]
    assert isinstance(candidates, list)
    assert [(row["round"], row["outcome"]) for row in candidates] == [(1, "rejected"), (2, "admitted")]
    assert "spoilt=1" in candidates[0]["config"] and "spoilt=0" in candidates[1]["config"]
    [heard] = set((fresh.folder / "heard").read_text().splitlines())
    assert heard.split()[1] == "oracle"


@pytest.mark.parametrize(("odd", "name"), [("clock", "E_TIMING"), ("bug", "E_INTERNAL")])
def test_machinery_that_cannot_judge_is_neither_a_pass_nor_a_rejection(desk: Desk, odd: str, name: str) -> None:
    said = desk.certify("one.onnx", "--dim", "batch=3", *QUICK, "-p", "odd_session", output=odd, extra={"ODD": odd})
    assert said.code == 3 and name in said.out and no_traceback(said)
    assert "could not judge: " in said.out and not list(said.output.glob("*.tci"))
    assert said.report()["state"] == "not reached"
