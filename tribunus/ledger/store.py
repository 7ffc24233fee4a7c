"""The ledger: every receipt of every check, refused ones included, appended and chained.

Imported by: certification, cli.  Imports: canon, errors, admission.receipt.  SQLite with one writer; ``kill -9`` at
any point loses at most the check that was running.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tribunus.admission.receipt import Check, Receipt, receipt_from_json, receipt_to_json
from tribunus.canon import Digest, Json, decode, digest_bytes, encode, parse_digest, str_of
from tribunus.errors import EnvironmentFault, LedgerError, TribunusError

SCHEMA_VERSION: Final = 2
GENESIS: Final = Digest("0" * 64)
_LIMIT: Final = 64 << 20
_MAGIC: Final = b"SQLite format 3\0"
_LOCK: Final = ".lock"
_ANOTHER: Final = "give another file with --ledger; a ledger that was damaged can be moved away, its evidence is lost"


@dataclass(frozen=True, slots=True)
class Entry:
    """One appended receipt.  chain: digest over the previous chain value, the receipt's bytes and the key's."""

    sequence: int
    chain: Digest
    receipt: Receipt
    key: Mapping[str, str]


class Ledger:
    """Append-only store of receipts.  Raises LedgerError if another session holds it or it cannot be read.

    What is read is held against the chain: ``latest`` its own link, ``all`` every one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _require_ledger(path)
            self._lock = os.open(path.with_suffix(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EnvironmentFault(f"the ledger {path} cannot be opened: {error.strerror}") from None
        self._take_lock()
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._require_own()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS receipts (sequence INTEGER PRIMARY KEY, chain TEXT NOT NULL, "
                "digest TEXT NOT NULL, candidate TEXT NOT NULL, kind TEXT NOT NULL, key BLOB NOT NULL, "
                "document BLOB NOT NULL)"
            )
            self._db.execute("CREATE INDEX IF NOT EXISTS by_candidate ON receipts (candidate, kind)")
            self._require_version()
            row = self._db.execute("SELECT sequence, chain FROM receipts ORDER BY sequence DESC LIMIT 1").fetchone()
        except sqlite3.Error as error:
            os.close(self._lock)
            raise ledger_fault(error, f"the ledger {path}") from None
        self._sequence, self._chain = (0, GENESIS) if row is None else (int(row[0]), parse_digest(str(row[1])))

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def root(self) -> Digest:
        """Chain value after the last entry: commits to every receipt and their order."""
        return self._chain

    @property
    def entries(self) -> int:
        """Number of receipts."""
        return self._sequence

    def append(self, receipt: Receipt, key: Mapping[str, str]) -> Entry:
        """Add a receipt with the full key it was made under; durable before this returns."""
        document = encode(receipt_to_json(receipt))
        fields: dict[str, Json] = dict(key)
        encoded = encode(fields)
        chain = _link(self._chain, document, encoded)
        try:
            self._db.execute(
                "INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    self._sequence + 1,
                    chain,
                    receipt.digest,
                    receipt.candidate,
                    receipt.check.value,
                    encoded,
                    document,
                ),
            )
        except sqlite3.Error as error:
            raise EnvironmentFault(f"the ledger {self.path} cannot be written: {error}") from None
        self._sequence, self._chain = self._sequence + 1, chain
        return Entry(self._sequence, chain, receipt, key)

    def newest(self, candidate: Digest, check: Check) -> Iterator[Entry]:
        """Receipts of this check on this candidate, the newest first."""
        rows = self._db.execute(
            "SELECT sequence, chain, key, document FROM receipts WHERE candidate = ? AND kind = ? "
            "ORDER BY sequence DESC",
            (candidate, check.value),
        ).fetchall()
        for row in rows:
            before = self._db.execute("SELECT chain FROM receipts WHERE sequence = ?", (row[0] - 1,)).fetchone()
            entry = self._verified(row, GENESIS if before is None else str(before[0]))
            if entry.receipt.candidate != candidate or entry.receipt.check is not check:
                raise self._broken(entry.sequence)
            yield entry

    def all(self) -> Iterator[Entry]:
        """Every entry in order, the chain verified on the way.  Raises LedgerError where it breaks."""
        chain: str = GENESIS
        for row in self._db.execute("SELECT sequence, chain, key, document FROM receipts ORDER BY sequence"):
            entry = self._verified(row, chain)
            chain = entry.chain
            yield entry

    def _verified(self, row: tuple[int, str, bytes, bytes], before: str) -> Entry:
        """The entry of a row whose chain follows ``before``.  Raises LedgerError."""
        whole = isinstance(row[2], bytes) and isinstance(row[3], bytes)
        if not whole or _link(before, row[3], row[2]) != row[1]:
            raise self._broken(row[0])
        return _entry(row)

    def _broken(self, sequence: int) -> LedgerError:
        return LedgerError(f"{self.path}: the chain breaks at entry {sequence}", remedy="keep the file for review")

    def close(self) -> None:
        """Release the file and the lock."""
        self._db.close()
        os.close(self._lock)

    def _require_own(self) -> None:
        """A database of another program is left as it is.  Raises LedgerError."""
        names = {str(row[0]) for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and "receipts" not in names:
            self.close()
            raise LedgerError(f"the ledger {self.path} is the database of another program", remedy=_ANOTHER)

    def _require_version(self) -> None:
        """A new file gets this version; one of another version is left alone.  Raises LedgerError."""
        found = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if found == 0 and self._db.execute("SELECT 1 FROM receipts LIMIT 1").fetchone() is None:
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        elif found != SCHEMA_VERSION:
            self.close()
            raise LedgerError(
                f"the ledger {self.path} has version {found}, this program writes {SCHEMA_VERSION}",
                remedy="keep the file for review and give another one with --ledger",
            )

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise LedgerError(
                f"the ledger {self.path} is held by process {holder}",
                remedy="wait for that session to end, or give another file with --ledger",
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)


def ledger_fault(error: sqlite3.Error, what: str) -> TribunusError:
    """The refusal that ``error`` means: the disk says no, or the file is no ledger any more."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        return EnvironmentFault(f"{what} cannot be written: {error}")
    return LedgerError(f"{what} cannot be read: {error}", remedy=_ANOTHER)


def _require_ledger(path: Path) -> None:
    """Whether ``path`` is free, or a database: nothing is written beside another file.  Raises LedgerError, OSError."""
    if path.suffix == _LOCK:
        raise LedgerError(f"the ledger {path} would be its own lock", remedy="give a file of another suffix")
    if path.is_dir():
        raise LedgerError(f"the ledger {path} is a folder", remedy="name a file in it: --ledger FOLDER/ledger.sqlite")
    if path.exists():
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
        if head not in (b"", _MAGIC):
            raise LedgerError(f"the ledger {path} cannot be read: it is no database", remedy=_ANOTHER)


def _link(before: str, document: bytes, key: bytes) -> Digest:
    """Chain value of an entry; the length keeps the border between document and key unambiguous."""
    return digest_bytes(b"%s:%d:%s%s" % (before.encode(), len(document), document, key))


def _entry(row: tuple[int, str, bytes, bytes]) -> Entry:
    fields = decode(row[2], limit=_LIMIT)
    if type(fields) is not dict:
        raise LedgerError(f"entry {row[0]}: the key is no object")
    key = {name: str_of(value, "ledger.key") for name, value in fields.items()}
    return Entry(row[0], parse_digest(row[1]), receipt_from_json(decode(row[3], limit=_LIMIT)), key)
