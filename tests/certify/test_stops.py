"""Sessions that are stopped in the middle, and the session that goes on from there."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.certify.conftest import QUICK, Desk, Said, no_traceback
from tribunus.ledger.store import Ledger

FIXED = ("--dim", "batch=2", *QUICK)
CHECKS = 6
REPORTS = {f"one.cpu.{end}" for end in ("junit.xml", "report.html", "report.json", "report.md")}


@dataclass(frozen=True)
class Ended:
    """A session, and the names of the files that it left, the temporary ones too."""

    said: Said
    files: frozenset[str]
    temporary: frozenset[str]


def stopped(desk: Desk, after: int, by: str) -> Ended:
    """A session that ends by a signal after some checks."""
    temporary = desk.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    extra = {"STOP_AFTER": str(after), "STOP_BY": by, "TMPDIR": str(temporary)}
    said = desk.certify("one.onnx", *FIXED, "-p", "stop_after", extra=extra)
    left = frozenset(path.name for path in temporary.iterdir())
    return Ended(said, frozenset(path.name for path in said.output.glob("*")), left)


@pytest.fixture(scope="module")
def killed(desk: Desk) -> Ended:
    """Killed by the system after two checks."""
    return stopped(desk, 2, "SIGKILL")


@pytest.fixture(scope="module")
def terminated(desk: Desk, killed: Ended) -> Ended:
    """Goes on after the kill; a service manager ends it after three checks, and says so twice."""
    return stopped(desk, 3, "SIGTERM")


@pytest.fixture(scope="module")
def interrupted(desk: Desk, terminated: Ended) -> Ended:
    """Goes on after that; a person presses Ctrl-C after four checks."""
    return stopped(desk, 4, "SIGINT")


@pytest.fixture(scope="module")
def finished(desk: Desk, interrupted: Ended) -> Said:
    """The same command once more."""
    return desk.certify("one.onnx", *FIXED)


def test_a_killed_session_leaves_no_file_beside_its_ledger(killed: Ended) -> None:
    assert killed.said.code == -9 and not killed.files


def test_ctrl_c_ends_with_its_own_code_and_a_report_of_what_was_judged(interrupted: Ended) -> None:
    said = interrupted.said
    assert said.code == 2 and no_traceback(said)
    assert "interrupted: the same command resumes" in said.out
    assert "receipts reused from the ledger: 3" in said.out and "candidates: 1 not reached" in said.out
    assert interrupted.files == REPORTS and not interrupted.temporary


def test_sigterm_ends_as_ctrl_c_does(terminated: Ended) -> None:
    said = terminated.said
    assert said.code == 2 and no_traceback(said)
    assert "interrupted: the same command resumes" in said.out
    assert "receipts reused from the ledger: 2" in said.out and "candidates: 1 not reached" in said.out
    assert terminated.files == REPORTS


def test_the_build_folder_of_a_killed_session_goes_with_the_next_session(killed: Ended, terminated: Ended) -> None:
    assert [name.startswith("tribunus-build-") for name in killed.temporary] == [True]
    assert not terminated.temporary


def test_the_same_command_resumes(finished: Said) -> None:
    assert finished.code == 0, finished.text
    assert "receipts reused from the ledger: 4" in finished.out
    assert finished.report()["state"] == "admitted" and finished.file("tci").stat().st_size


def test_every_receipt_of_the_stopped_sessions_is_in_the_ledger(finished: Said, desk: Desk) -> None:
    with Ledger(desk.ledger()) as ledger:
        assert [entry.receipt.check.value for entry in ledger.all()] == [
            "oracle", "shape", "layout", "timing", "replay", "cache-key",
        ]  # fmt: skip


def test_a_second_session_on_the_ledger_is_refused_by_name(fresh: Desk) -> None:
    with Ledger(fresh.ledger()):
        said = fresh.certify("one.onnx", *FIXED)
    assert said.code == 25 and no_traceback(said)
    assert f"is held by process {os.getpid()}" in said.err and "remedy: wait for that session to end" in said.err


def test_ctrl_c_while_preparing_ends_with_its_own_code(fresh: Desk) -> None:
    said = fresh.certify("one.onnx", *FIXED, "-p", "odd_session", extra={"ODD": "early"})
    assert said.code == 2 and "E_INTERRUPTED" in said.err and no_traceback(said)


def test_stores_beside_the_ledger_may_be_damaged_or_lost(fresh: Desk) -> None:
    """Receipts are reused, but what they were judged by was measured in a session that left nothing else."""
    assert fresh.certify("one.onnx", *FIXED).code == 0
    for store in ("artifacts", "documents", "goldens"):
        for path in (fresh.ledger().parent / store).iterdir():
            path.write_bytes(b"damaged")
    said = fresh.certify("one.onnx", *FIXED)
    assert said.code == 0 and no_traceback(said), said.text
    assert "receipts reused from the ledger: 5" in said.out and said.report()["state"] == "admitted"
