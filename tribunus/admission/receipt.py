"""Receipts: what one check did to one candidate, what it saw, and what it concluded.

Imported by: the checks, ledger, certification.  Imports: canon, candidates, isolation (enums).  Documents are canonical
JSON: no floats, figures as bit strings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    bool_of,
    digest_of,
    f64_to_text,
    int_of,
    list_of,
    member_of,
    object_of,
    parse_digest,
    row_of,
    str_of,
    text_to_float,
)
from tribunus.errors import InternalError, SchemaError
from tribunus.isolation.executor import ExecutorKind

SCHEMA: Final = "tribunus.receipt/1"
SUITE: Final = "tribunus.suite/1"
"""Version of the six checks as a body of rules; part of every cache key."""


class Check(StrEnum):
    """The six checks, in the order in which a candidate walks them."""

    ORACLE = "oracle"
    SHAPE = "shape"
    LAYOUT = "layout"
    TIMING = "timing"
    REPLAY = "replay"
    CACHE_KEY = "cache-key"


CHECKS: Final = tuple(Check)


class Verdict(StrEnum):
    """Conclusion of a receipt.  That there is no receipt reads ``not reached``."""

    PASSED = "passed"
    REJECTED = "rejected"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    MISTRUSTED = "mistrusted"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number behind a reason, with what was allowed; both as text with units."""

    what: str
    seen: str
    allowed: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a check did not pass.  kind: stable class of the reason (``budget exceeded``); text: one sentence."""

    kind: str
    text: str
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """One comparison on one set of inputs.

    vector: family and seed as text, enough to make the inputs again.  dims: values of the symbols.  terms: how it was
    run, in words.  counted: whether it could have said no; trust: why not.  share: worst error in units of that
    element's budget.  index, got, golden: the worst element.  error_ulp, budget_ulp: there.
    """

    vector: str
    seed: int
    dims: tuple[tuple[str, int], ...]
    terms: str
    elements: int
    counted: bool
    trust: str
    share: float
    error_ulp: float
    budget_ulp: float
    index: tuple[int, ...]
    got: str
    golden: str
    inputs: Digest
    expected: Digest


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples that a timing receipt keeps, ns per call: warm and cold wall time, CPU time, and the bounds.

    cpu_ns: of calls one by one.  cpu_lost: positions of those that lost the processor.
    """

    warm_ns: tuple[int, ...]
    cold_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    budget_ns: int
    floor_ns: int
    first_ns: int
    cpu_lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Outcome of one check for one candidate.

    started_us: wall clock, microseconds since 1970.  took_ns: duration.  key: digest of the cache key.  versions:
    (name, version) of what judged.  details: further (name, text) pairs that a reader should see.
    """

    check: Check
    signature: Digest
    candidate: Digest
    artifact: Digest
    executor: ExecutorKind
    verdict: Verdict
    reason: Reason | None
    cases: tuple[CaseRecord, ...]
    timing: Timing | None
    key: Digest
    machine: Digest
    versions: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]
    started_us: int
    took_ns: int
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        if (self.reason is None) != (self.verdict is Verdict.PASSED):
            raise InternalError(f"a receipt that is {self.verdict} with reason {self.reason}")
        if self.verdict is Verdict.PASSED and self.check is Check.ORACLE and not any(c.counted for c in self.cases):
            raise InternalError("an oracle receipt passed without a case that could have said no")
        object.__setattr__(self, "digest", digest_of(receipt_to_json(self)))

    @property
    def worst_share(self) -> float:
        """Largest error in units of its budget over all cases; 0 without cases."""
        return max((case.share for case in self.cases), default=0.0)


def receipt_to_json(receipt: Receipt) -> JsonObject:
    """Document form."""
    reason: Json = None
    if receipt.reason is not None:
        reason = {
            "kind": receipt.reason.kind,
            "text": receipt.reason.text,
            "figures": [[f.what, f.seen, f.allowed] for f in receipt.reason.figures],
        }
    timing: JsonObject | None = None
    if receipt.timing is not None:
        t = receipt.timing
        timing = {
            "warm_ns": list(t.warm_ns),
            "cold_ns": list(t.cold_ns),
            "cpu_ns": list(t.cpu_ns),
            "budget_ns": t.budget_ns,
            "floor_ns": t.floor_ns,
            "first_ns": t.first_ns,
        }
        if t.cpu_lost:
            timing["cpu_lost"] = list(t.cpu_lost)
    return {
        "schema": SCHEMA,
        "check": receipt.check.value,
        "signature": receipt.signature,
        "candidate": receipt.candidate,
        "artifact": receipt.artifact,
        "executor": receipt.executor.value,
        "verdict": receipt.verdict.value,
        "reason": reason,
        "cases": [_case_to_json(case) for case in receipt.cases],
        "timing": timing,
        "key": receipt.key,
        "machine": receipt.machine,
        "versions": [[name, version] for name, version in receipt.versions],
        "details": [[name, text] for name, text in receipt.details],
        "started_us": receipt.started_us,
        "took_ns": receipt.took_ns,
    }


def _case_to_json(case: CaseRecord) -> Json:
    return {
        "vector": case.vector,
        "seed": case.seed,
        "dims": [[name, value] for name, value in case.dims],
        "terms": case.terms,
        "elements": case.elements,
        "counted": case.counted,
        "trust": case.trust,
        "share": f64_to_text(case.share),
        "error_ulp": f64_to_text(case.error_ulp),
        "budget_ulp": f64_to_text(case.budget_ulp),
        "index": list(case.index),
        "got": case.got,
        "golden": case.golden,
        "inputs": case.inputs,
        "expected": case.expected,
    }


def receipt_from_json(value: Json) -> Receipt:
    """Inverse of ``receipt_to_json``.  Raises SchemaError, and InternalError for an impossible receipt."""
    keys = (
        "schema check signature candidate artifact executor verdict reason cases timing key machine versions details "
        "started_us took_ns"
    )
    document = object_of(value, "receipt", frozenset(keys.split()))
    if document["schema"] != SCHEMA:
        raise SchemaError(f"receipt schema {str(document['schema'])[:40]!r}")
    return Receipt(
        check=member_of(Check, document["check"], "receipt.check"),
        signature=_digest(document, "signature"),
        candidate=_digest(document, "candidate"),
        artifact=_digest(document, "artifact"),
        executor=member_of(ExecutorKind, document["executor"], "receipt.executor"),
        verdict=member_of(Verdict, document["verdict"], "receipt.verdict"),
        reason=reason_from_json(document["reason"], "receipt.reason"),
        cases=tuple(_case_from_json(case) for case in list_of(document["cases"], "receipt.cases")),
        timing=_timing_from_json(document["timing"]),
        key=_digest(document, "key"),
        machine=_digest(document, "machine"),
        versions=_pairs(document["versions"], "receipt.versions"),
        details=_pairs(document["details"], "receipt.details"),
        started_us=int_of(document["started_us"], "receipt.started_us"),
        took_ns=int_of(document["took_ns"], "receipt.took_ns"),
    )


def _digest(document: JsonObject, name: str) -> Digest:
    return parse_digest(str_of(document[name], f"receipt.{name}"))


def _pairs(value: Json, where: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for pair in list_of(value, where):
        name, text = row_of(pair, where, "name", "text")
        found.append((str_of(name, where), str_of(text, where)))
    return tuple(found)


def reason_from_json(value: Json, where: str) -> Reason | None:
    """The reason in a receipt of a check or of a program, None where there is none.  Raises SchemaError."""
    if value is None:
        return None
    document = object_of(value, where, frozenset(("kind", "text", "figures")))
    figures: list[Figure] = []
    for item in list_of(document["figures"], where):
        figures.append(Figure(*(str_of(part, where) for part in row_of(item, where, "what", "seen", "allowed"))))
    return Reason(str_of(document["kind"], where), str_of(document["text"], where), tuple(figures))


def _timing_from_json(value: Json) -> Timing | None:
    if value is None:
        return None
    where = "receipt.timing"
    names = ("warm_ns", "cold_ns", "cpu_ns", "budget_ns", "floor_ns", "first_ns")
    document = object_of(value, where, frozenset(names), frozenset(("cpu_lost",)))
    warm, cold, cpu = (
        tuple(int_of(ns, where) for ns in list_of(document[name], where)) for name in ("warm_ns", "cold_ns", "cpu_ns")
    )
    budget, floor, first = (int_of(document[name], where) for name in ("budget_ns", "floor_ns", "first_ns"))
    lost = tuple(int_of(i, where) for i in list_of(document.get("cpu_lost", []), where))
    if any(i >= len(cpu) for i in lost):
        raise SchemaError(f"{where}.cpu_lost names a call that is not there")
    return Timing(warm, cold, cpu, budget, floor, first, lost)


def _case_from_json(value: Json) -> CaseRecord:
    where = "receipt.case"
    text = "vector seed dims terms elements counted trust share error_ulp budget_ulp index got golden inputs expected"
    document = object_of(value, where, frozenset(text.split()))
    dims: list[tuple[str, int]] = []
    for pair in list_of(document["dims"], where):
        symbol, extent = row_of(pair, where, "symbol", "value")
        dims.append((str_of(symbol, where), int_of(extent, where)))
    share, error, budget = (
        text_to_float(str_of(document[name], where)) for name in ("share", "error_ulp", "budget_ulp")
    )
    return CaseRecord(
        vector=str_of(document["vector"], where),
        seed=int_of(document["seed"], where),
        dims=tuple(dims),
        terms=str_of(document["terms"], where),
        elements=int_of(document["elements"], where),
        counted=bool_of(document["counted"], where),
        trust=str_of(document["trust"], where),
        share=share,
        error_ulp=error,
        budget_ulp=budget,
        index=tuple(int_of(i, where) for i in list_of(document["index"], where)),
        got=str_of(document["got"], where),
        golden=str_of(document["golden"], where),
        inputs=parse_digest(str_of(document["inputs"], where)),
        expected=parse_digest(str_of(document["expected"], where)),
    )
