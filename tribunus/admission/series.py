"""The series: six checks in order; the first refusal ends it.

Imported by: certification, certify, tests.  Imports: the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from tribunus.admission.cache_key_check import check_cache_key
from tribunus.admission.context import CheckContext
from tribunus.admission.layout_check import check_layout
from tribunus.admission.oracle_check import check_oracle
from tribunus.admission.receipt import CHECKS, Check, Receipt, Verdict
from tribunus.admission.replay_check import check_replay
from tribunus.admission.shape_check import check_shape
from tribunus.admission.timing_check import check_timing
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import Executor, ExecutorKind

CheckFunction: TypeAlias = "Callable[[Artifact, Executor, CheckContext], Receipt]"

FUNCTIONS: Final[Mapping[Check, CheckFunction]] = MappingProxyType(
    {
        Check.ORACLE: check_oracle,
        Check.SHAPE: check_shape,
        Check.LAYOUT: check_layout,
        Check.TIMING: check_timing,
        Check.REPLAY: check_replay,
        Check.CACHE_KEY: check_cache_key,
    }
)


class OutcomeKind(StrEnum):
    """What became of a candidate."""

    ADMITTED = "admitted"
    STAGED = "staged"
    REJECTED = "rejected"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    MISTRUSTED = "mistrusted"
    INCOMPLETE = "not reached"


def run_series(artifact: Artifact, executor: Executor, context: CheckContext) -> Iterator[Receipt]:
    """Receipts one by one; stops after the first that did not pass."""
    for check in CHECKS:
        receipt = FUNCTIONS[check](artifact, executor, context)
        yield receipt
        if receipt.verdict is not Verdict.PASSED:
            return


def outcome_of(receipts: Sequence[Receipt]) -> tuple[OutcomeKind, Check | None]:
    """What the receipts of one candidate amount to, and by which check it was refused."""
    for receipt in receipts:
        if receipt.verdict is not Verdict.PASSED:
            return OutcomeKind(receipt.verdict.value), receipt.check
    passed = {receipt.check for receipt in receipts}
    if passed == set(CHECKS):
        device = all(receipt.executor is ExecutorKind.DEVICE for receipt in receipts)
        return (OutcomeKind.ADMITTED if device else OutcomeKind.STAGED), None
    return OutcomeKind.INCOMPLETE, None
