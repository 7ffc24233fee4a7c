"""The gate policy: a TOML file of what must hold before an image may go on.

Imported by: gates, projection, command.  Imports: model.  Not the runtime's trust policy, which is another file.

    schema = "tribunus.gate/1"

    [checks]
    required = ["oracle", "shape", "layout", "timing", "replay", "cache-key"]
    executors = ["device"]          # what may have run them
    program_cases = 1               # least program cases a region; 0: no demand
    allow_staged = false            # whether a region may wait for its device

    [minimum]                       # cases that count, for each launched kernel
    oracle = 12

    [evidence]
    max_age_days = 30
    threshold = 2                   # different keys that signed
    keys = ["<64 hex digits>"]      # empty: any key but development keys

    [error]
    warn = 0.8                      # largest error of a chosen kernel in units of its budget
    fail = 1.0

    [latency]
    warn = 0.05                     # slower than the baseline
    fail = 0.10
    baseline_required = true        # whether no baseline at all shuts the gate
    p99_ms = { main = 5.0 }         # by phase

Every table and key may be left out; ``default_policy`` says what then holds.  An unknown key is an error.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.errors import EnvironmentFault, PolicyError
from tribunus_reports.model import DEVICE, DIGEST
from tribunus_reports.model_parts import Check

SCHEMA: Final = "tribunus.gate/1"
_TABLES: Final[Mapping[str, frozenset[str]]] = {
    "checks": frozenset({"required", "executors", "program_cases", "allow_staged"}),
    "minimum": frozenset(check.value for check in Check),
    "evidence": frozenset({"max_age_days", "threshold", "keys"}),
    "error": frozenset({"warn", "fail"}),
    "latency": frozenset({"warn", "fail", "baseline_required", "p99_ms"}),
}
_REMEDY: Final = "correct the gate policy; `tribunus gate --help` shows a complete one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What must hold.  None: no demand."""

    name: str  # of the file, for people
    digest: str  # of its bytes, "" for the built-in one
    required: frozenset[Check]
    executors: frozenset[str]
    program_cases: int
    allow_staged: bool
    minimum_cases: tuple[tuple[Check, int], ...]
    max_age_days: int | None
    threshold: int
    keys: frozenset[str]
    error_warn: float | None
    error_fail: float
    slower_warn: float | None
    slower_fail: float | None
    baseline_required: bool
    p99_ns: tuple[tuple[str, int], ...]


def default_policy() -> Policy:
    """What holds without a policy file: six checks on the device, one program case, one signature, errors in budget."""
    return Policy(
        name="built-in",
        digest="",
        required=frozenset(Check),
        executors=frozenset({DEVICE}),
        program_cases=1,
        allow_staged=False,
        minimum_cases=((Check.ORACLE, 1),),
        max_age_days=None,
        threshold=1,
        keys=frozenset(),
        error_warn=None,
        error_fail=1.0,
        slower_warn=None,
        slower_fail=None,
        baseline_required=True,
        p99_ns=(),
    )


def load_policy(path: Path) -> Policy:
    """The policy in the file ``path``.  Raises EnvironmentFault or PolicyError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    return parse_policy(data, path.name)


def parse_policy(data: bytes, name: str) -> Policy:
    """The policy whose TOML text is ``data``.  Raises PolicyError naming the key."""
    try:
        tree: Mapping[str, object] = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise PolicyError(f"{name}: {error}", remedy=_REMEDY) from None
    if tree.get("schema") != SCHEMA:
        raise PolicyError(f"{name}: schema must be {SCHEMA!r}", remedy=_REMEDY)
    tables = {key: _Table(name, key, tree.get(key, {})) for key in _TABLES}
    if unknown := tree.keys() - _TABLES.keys() - {"schema"}:
        raise PolicyError(f"{name}: unknown {', '.join(sorted(unknown))}", remedy=_REMEDY)
    base = default_policy()
    checks, evidence, share, latency = tables["checks"], tables["evidence"], tables["error"], tables["latency"]
    minimum = tables["minimum"]
    return Policy(
        name=name,
        digest=hashlib.sha256(data).hexdigest(),
        required=frozenset(_check(name, word) for word in checks.words("required", sorted(base.required))),
        executors=frozenset(checks.words("executors", sorted(base.executors))),
        program_cases=checks.whole("program_cases", base.program_cases),
        allow_staged=checks.flag("allow_staged", base.allow_staged),
        minimum_cases=tuple((check, minimum.whole(check.value, 0)) for check in Check if check.value in minimum.values)
        or base.minimum_cases,
        max_age_days=evidence.whole("max_age_days", 0) if "max_age_days" in evidence.values else None,
        threshold=evidence.whole("threshold", base.threshold),
        keys=frozenset(_key(name, word) for word in evidence.words("keys", [])),
        error_warn=share.number("warn"),
        error_fail=base.error_fail if (fail := share.number("fail")) is None else fail,
        slower_warn=latency.number("warn"),
        slower_fail=latency.number("fail"),
        baseline_required=latency.flag("baseline_required", base.baseline_required),
        p99_ns=latency.limits("p99_ms"),
    )


class _Table:
    """One table of the policy file, read with the place in every message."""

    def __init__(self, file: str, name: str, value: object) -> None:
        if not isinstance(value, dict):
            raise PolicyError(f"{file}: [{name}] must be a table", remedy=_REMEDY)
        self._where = f"{file}: {name}"
        self.values: Mapping[str, object] = value
        if unknown := value.keys() - _TABLES[name]:
            raise PolicyError(f"{self._where} has unknown {', '.join(sorted(unknown))}", remedy=_REMEDY)

    def _fail(self, key: str, what: str) -> PolicyError:
        return PolicyError(f"{self._where}.{key} must be {what}", remedy=_REMEDY)

    def words(self, key: str, default: list[str]) -> list[str]:
        value = self.values.get(key, default)
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self._fail(key, "a list of strings")
        return value

    def whole(self, key: str, default: int) -> int:
        value = self.values.get(key, default)
        if type(value) is not int or value < 0:
            raise self._fail(key, "a whole number")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._fail(key, "true or false")
        return value

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self._fail(key, "a number of at least 0")
        return float(value)

    def limits(self, key: str) -> tuple[tuple[str, int], ...]:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self._fail(key, "a table of phase and milliseconds")
        for name, limit in value.items():
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
                raise self._fail(f"{key}.{name}", "a number of milliseconds above 0")
        return tuple((name, round(limit * 1e6)) for name, limit in sorted(value.items()))


def _check(file: str, word: str) -> Check:
    try:
        return Check(word)
    except ValueError:
        raise PolicyError(f"{file}: {word!r} is no check; they are {', '.join(Check)}", remedy=_REMEDY) from None


def _key(file: str, word: str) -> str:
    if DIGEST.fullmatch(word) is None:
        raise PolicyError(f"{file}: evidence.keys has {word[:70]!r}, not 64 hexadecimal digits", remedy=_REMEDY)
    return word
