"""Admission lines: six verdicts of a kernel summed up; all that the runtime reads of the evidence.

Imported by: certification (writes), plan_checker (reads).  Imports: canon.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    decode,
    digest_from_json,
    encode,
    f64_to_text,
    int_of,
    object_of,
    str_of,
    text_to_float,
)
from tribunus.errors import ReceiptOrderError, SchemaError
from tribunus.records import dataclass

CHECK_NAMES: Final = ("oracle", "shape", "layout", "timing", "replay", "cache-key")
LINE_LIMIT: Final = 1 << 20
_LINE_KEYS: Final = frozenset(
    ["kernel", "artifact", "key", "checks", "error_share", "time_ns", "budget_ns", "replay", "executor", "machine"]
)
_CHECK_KEYS: Final = frozenset(("verdict", "receipt"))


@dataclass(frozen=True, slots=True)
class AdmissionLine:
    """Admission of one kernel.

    kernel: its id in the plan.  key: the complete cache key, content fields and machine fields.  checks: verdict and
    receipt digest of each check.  error_share: largest error in units of its budget.  time_ns: median of a call.
    budget_ns: its time budget.  replay: digest of the outputs that every replay gave.  executor: what ran it.
    machine: digest of the machine facts.
    """

    kernel: str
    artifact: Digest
    key: Mapping[str, str]
    checks: Mapping[str, tuple[str, Digest]]
    error_share: float
    time_ns: int
    budget_ns: int
    replay: str
    executor: str
    machine: Digest


def line_to_json(line: AdmissionLine) -> JsonObject:
    """Document form."""
    return {
        "kernel": line.kernel,
        "artifact": line.artifact,
        "key": dict(line.key),
        "checks": {name: {"verdict": verdict, "receipt": digest} for name, (verdict, digest) in line.checks.items()},
        "error_share": f64_to_text(line.error_share),
        "time_ns": line.time_ns,
        "budget_ns": line.budget_ns,
        "replay": line.replay,
        "executor": line.executor,
        "machine": line.machine,
    }


def line_from_json(value: Json) -> AdmissionLine:
    """Inverse of ``line_to_json``.  Raises SchemaError."""
    where = "admission"
    document = object_of(value, where, _LINE_KEYS)
    key, checks = document["key"], document["checks"]
    if type(key) is not dict or type(checks) is not dict:
        raise SchemaError(f"{where}: key and checks must be objects")
    verdicts: dict[str, tuple[str, Digest]] = {}
    for name, item in checks.items():
        fields = object_of(item, where, _CHECK_KEYS)
        verdicts[name] = (str_of(fields["verdict"], where), digest_from_json(fields["receipt"], where))
    return AdmissionLine(
        str_of(document["kernel"], where),
        digest_from_json(document["artifact"], where),
        _texts(key, where),
        verdicts,
        text_to_float(str_of(document["error_share"], where)),
        int_of(document["time_ns"], where),
        int_of(document["budget_ns"], where),
        str_of(document["replay"], where),
        str_of(document["executor"], where),
        digest_from_json(document["machine"], where),
    )


def _texts(fields: JsonObject, where: str) -> Mapping[str, str]:
    found = {name: text for name, text in fields.items() if type(text) is str}
    if len(found) != len(fields):
        raise SchemaError(f"{where}: text was expected")
    return found


def encode_lines(lines: Sequence[AdmissionLine]) -> bytes:
    """Canonical lines, sorted bytewise, each ended by a line feed."""
    return b"".join(sorted(encode(line_to_json(line)) + b"\n" for line in lines))


def decode_lines(data: bytes) -> tuple[AdmissionLine, ...]:
    """Inverse of ``encode_lines``.  Raises SchemaError, ReceiptOrderError, JSON errors."""
    if not data:
        return ()
    if not data.endswith(b"\n"):
        raise ReceiptOrderError("the admissions do not end with a line feed")
    lines = data[:-1].split(b"\n")
    if any(left >= right for left, right in itertools.pairwise(lines)):
        raise ReceiptOrderError("the admissions are not sorted, or one is given twice")
    return tuple(line_from_json(decode(line, limit=LINE_LIMIT)) for line in lines)
