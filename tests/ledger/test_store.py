"""The ledger: appended, chained, held by one session, and whole after a kill."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.admission.samples import receipt
from tribunus.admission.receipt import CHECKS, Check, Verdict
from tribunus.canon import digest_bytes
from tribunus.errors import EnvironmentFault, LedgerError, TribunusError
from tribunus.ledger.store import GENESIS, Ledger, ledger_fault

KEY = {"op": "relu", "shape": "[4, 8]"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "ledger.sqlite"


def filled(path: Path) -> Path:
    """A ledger of six receipts."""
    with Ledger(path) as ledger:
        for number, check in enumerate(CHECKS):
            ledger.append(receipt(check, started_us=number), KEY)
    return path


def test_a_new_ledger_is_empty(path: Path) -> None:
    with Ledger(path) as ledger:
        assert (ledger.root, ledger.entries) == (GENESIS, 0)
        assert list(ledger.all()) == []
        assert not list(ledger.newest(receipt().candidate, Check.ORACLE))


def test_what_was_appended_comes_back_in_order(path: Path) -> None:
    with Ledger(path) as ledger:
        made = [ledger.append(receipt(check, started_us=n), KEY) for n, check in enumerate(CHECKS)]
        root = ledger.root
    with Ledger(path) as ledger:
        assert list(ledger.all()) == made
        assert (ledger.root, ledger.entries) == (root, 6)
        assert [entry.sequence for entry in made] == [1, 2, 3, 4, 5, 6]
        assert made[-1].chain == root
        assert dict(made[0].key) == KEY


def test_the_newest_receipt_of_a_check_is_found(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.append(receipt(started_us=1), KEY)
        last = ledger.append(receipt(verdict=Verdict.REJECTED, started_us=2), KEY)
        ledger.append(receipt(candidate=digest_bytes(b"other"), started_us=3), KEY)
        assert next(ledger.newest(receipt().candidate, Check.ORACLE)) == last
        assert not list(ledger.newest(receipt().candidate, Check.SHAPE))


def test_equal_receipts_in_another_order_give_another_root(tmp_path: Path) -> None:
    roots = set()
    for number, order in enumerate(((1, 2), (2, 1))):
        with Ledger(tmp_path / f"{number}.sqlite") as ledger:
            for started in order:
                ledger.append(receipt(started_us=started), KEY)
            roots.add(ledger.root)
    assert len(roots) == 2


TAMPERINGS: dict[str, str] = {
    "document": "UPDATE receipts SET document = replace(document, 'device', 'mock') WHERE sequence = 3",
    "key": "UPDATE receipts SET key = CAST(replace(key, 'relu', 'gelu') AS BLOB) WHERE sequence = 3",
    "chain": f"UPDATE receipts SET chain = '{'1' * 64}' WHERE sequence = 3",
    "removal": "DELETE FROM receipts WHERE sequence = 3",
    "swap": "UPDATE receipts SET sequence = CASE sequence WHEN 3 THEN -4 WHEN 4 THEN -3 END WHERE sequence IN (3, 4)",
}


def tampered(path: Path, statement: str) -> Path:
    database = sqlite3.connect(filled(path))
    database.execute(statement)
    database.execute("UPDATE receipts SET sequence = -sequence WHERE sequence < 0")
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_breaks_the_chain(what: str, path: Path) -> None:
    with (
        Ledger(tampered(path, TAMPERINGS[what])) as ledger,
        pytest.raises(LedgerError, match=r"the chain breaks at entry [34]"),
    ):
        list(ledger.all())


@pytest.mark.parametrize("what", ["document", "key", "chain"])
def test_evidence_is_held_against_its_own_link(what: str, path: Path) -> None:
    with Ledger(tampered(path, TAMPERINGS[what])) as ledger:
        with pytest.raises(LedgerError, match="entry 3"):
            list(ledger.newest(receipt().candidate, CHECKS[2]))
        assert list(ledger.newest(receipt().candidate, CHECKS[0]))


def test_a_row_filed_under_another_check_is_no_evidence(path: Path) -> None:
    tampered(path, "UPDATE receipts SET kind = 'timing' WHERE sequence = 1")
    with Ledger(path) as ledger:
        ledger.append(receipt(Check.TIMING, started_us=9), KEY)
        assert not list(ledger.newest(receipt().candidate, Check.ORACLE))
    tampered(path.with_name("other.sqlite"), "UPDATE receipts SET kind = 'shape' WHERE sequence = 5")
    with Ledger(path.with_name("other.sqlite")) as ledger, pytest.raises(LedgerError):
        list(ledger.newest(receipt().candidate, Check.SHAPE))


def test_a_second_session_is_refused_with_the_holder(path: Path) -> None:
    with Ledger(path), pytest.raises(LedgerError, match=f"held by process {os.getpid()}") as refused:
        Ledger(path)
    assert "--ledger" in (refused.value.remedy or "")
    Ledger(path).close()


def test_a_ledger_of_another_version_is_left_alone(path: Path) -> None:
    tampered(path, "PRAGMA user_version=1")
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LedgerError, match="version 1"):
            Ledger(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_ledger_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(path)
    path.unlink()
    Ledger(path).close()


def test_a_place_that_cannot_be_made_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(EnvironmentFault):
        Ledger(tmp_path / "file" / "ledger.sqlite")


WRITER = """
import sys
from pathlib import Path
from tests.admission.samples import receipt
from tribunus.ledger.store import Ledger
ledger = Ledger(Path(sys.argv[1]))
for number in range(1, 100000):
    ledger.append(receipt(started_us=number), {"op": "relu"})
    print(number, flush=True)
"""


def _until(process: subprocess.Popen[str], enough: Callable[[int], bool]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if enough(int(line)):
            return int(line)
    raise AssertionError("the writer ended")


@pytest.mark.parametrize("kept", [1, 17])
def test_a_killed_session_loses_at_most_the_receipt_it_was_writing(kept: int, path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        written = _until(process, lambda number: number >= kept)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    with Ledger(path) as ledger:
        entries = list(ledger.all())
        assert len(entries) >= written
        assert [entry.receipt.started_us for entry in entries] == list(range(1, len(entries) + 1))
        assert ledger.append(receipt(started_us=0), KEY).sequence == len(entries) + 1
    with Ledger(path) as ledger:
        assert len(list(ledger.all())) == len(entries) + 1


def test_nothing_is_left_beside_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("my notes")
    with pytest.raises(LedgerError, match="it is no database"):
        Ledger(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="the database of another program"):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_ledger_is_not_its_own_lock_nor_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="its own lock"):
        Ledger(tmp_path / "ledger.lock")
    with pytest.raises(LedgerError, match="is a folder"):
        Ledger(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, EnvironmentFault),
        (sqlite3.SQLITE_IOERR, EnvironmentFault),
        (sqlite3.SQLITE_CORRUPT, LedgerError),
    ],
)
def test_a_full_disk_is_no_damage(code: int, kind: type[TribunusError]) -> None:
    error = sqlite3.OperationalError("told by the database")
    error.sqlite_errorcode = code
    assert type(ledger_fault(error, "the ledger")) is kind
