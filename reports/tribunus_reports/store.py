"""report.json on disk: written atomically, read strictly; and the one way in which this package writes files.

Imported by: command, gates' callers, certification's plug-in.  Imports: codec, model.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from tribunus.errors import (
    EncodingError,
    EnvironmentFault,
    InternalError,
    JsonDuplicateKeyError,
    JsonSizeError,
    SchemaError,
)
from tribunus_reports.codec import Plain, Reader, to_plain
from tribunus_reports.model import SCHEMA, Report

MAX_BYTES: Final = 512 * 2**20
_BEFORE_WITNESSES: Final = "tribunus.report/1"
"""The earlier schema, which this one extends by the list of witnesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReport:
    """A report and the digest of the bytes it was read from; the digest is what a reviewer approves."""

    report: Report
    digest: str


def report_bytes(report: Report) -> bytes:
    """The report as JSON text in UTF-8: one line a row, the same bytes for the same report."""
    plain = to_plain(report)
    if not isinstance(plain, dict):
        raise InternalError("report: not an object")
    return (
        "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(value)}" for key, value in plain.items()) + "\n}\n"
    ).encode()


def report_digest(data: bytes) -> str:
    """SHA-256 of report.json, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def parse_report(data: bytes, where: str) -> StoredReport:
    """The report whose JSON text is ``data``.  Raises JsonSizeError, EncodingError or SchemaError."""
    if len(data) > MAX_BYTES:
        raise JsonSizeError(f"{where}: {len(data)} bytes, at most {MAX_BYTES} allowed")
    try:
        plain: Plain = json.loads(data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"{where}: not a JSON document ({type(error).__name__})") from None
    if isinstance(plain, dict) and plain.get("schema") == _BEFORE_WITNESSES:
        plain = _with_witnesses(plain, where)
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        raise SchemaError(f"{where}: schema is {ascii(schema)[:60]}, not {SCHEMA!r}")
    try:
        report = Reader().read(Report, plain, "report")
    except InternalError as error:  # a law of the model: here it is the file's fault, not ours
        raise SchemaError(f"{where}: {error.detail}") from None
    return StoredReport(report=report, digest=report_digest(data))


def _with_witnesses(plain: dict[str, Plain], where: str) -> dict[str, Plain]:
    """A document of the earlier schema as one of this; it says nothing about witnesses."""
    if "witnesses" in plain:
        raise SchemaError(f"{where}: schema {_BEFORE_WITNESSES!r} has no witnesses")
    return {**plain, "schema": SCHEMA, "witnesses": []}


def load_report(path: Path) -> StoredReport:
    """The report in the file ``path``.  Raises EnvironmentFault if it cannot be read, else as parse_report."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    return parse_report(data, path.name)


def write_report(report: Report, path: Path) -> str:
    """Write report.json; returns its digest."""
    data = report_bytes(report)
    write_file(path, data)
    return report_digest(data)


def write_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` whole or not at all.  Raises EnvironmentFault."""
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _lines(value: Plain) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_dumps(item) for item in value) + "\n]"
    return _dumps(value)


def _dumps(value: Plain) -> str:
    # ASCII: names from a model may hold unpaired surrogates, which UTF-8 cannot carry
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _no_constant(text: str) -> NoReturn:
    raise EncodingError(f"{text} is no JSON number")


def _object(pairs: list[tuple[str, Plain]]) -> Plain:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonDuplicateKeyError("an object of the report repeats a key")
    return found
