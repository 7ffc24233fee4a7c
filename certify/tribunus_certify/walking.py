"""What the suites do: one check of one candidate, one demand, one program case.

Imported by: the suites.  Imports: session, certification.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tribunus.admission.receipt import CHECKS, Check, Receipt, Verdict
from tribunus.certification.pipeline import Item
from tribunus.errors import EnvironmentFault, Interrupted, LedgerError, TribunusError
from tribunus.planning.schedule import Demand
from tribunus_certify.guard import guarded
from tribunus_certify.runner import Runner, describe
from tribunus_certify.session import REASON, RUNNER, VERDICT, remember_candidates, stop

T = TypeVar("T")


def walk(item: Item, check: Check, request: pytest.FixtureRequest) -> Receipt:
    """Run one check; skip it where an earlier one refused the candidate or was left out.

    The verdict travels in the test's properties.  ``mistrusted`` and machinery that cannot judge fail the test.
    """
    runner = request.config.stash[RUNNER]
    if not item.note and not item.receipts:
        _judged(runner, lambda: runner.probe(item))
    if item.note or item.passed_over:
        request.node.user_properties.append((VERDICT, "not reached"))
        pytest.skip(item.note or item.passed_over)
    for earlier in item.receipts:
        if earlier.verdict is not Verdict.PASSED:
            pytest.skip(f"not reached: {earlier.verdict.value} by the {earlier.check.value} check")
    done = {receipt.check for receipt in item.receipts}
    if check in done:
        return next(receipt for receipt in item.receipts if receipt.check is check)
    receipt = _judged(runner, lambda: runner.check(item, check))
    request.node.user_properties.append((VERDICT, receipt.verdict.value))
    if receipt.reason is not None:
        request.node.user_properties.append((REASON, describe(receipt)))
        if receipt.verdict is Verdict.MISTRUSTED:
            pytest.fail(describe(receipt), pytrace=False)
    return receipt


def _judged(runner: Runner, work: Callable[[], T]) -> T:
    """The result of ``work``; what keeps it from judging fails the test, or ends the session if it will not pass."""
    try:
        return guarded(work)
    except Interrupted:
        raise KeyboardInterrupt from None
    except TribunusError as error:
        problem = error
    runner.problem = problem  # outside of the handler, or pytest tells of two errors
    if isinstance(problem, EnvironmentFault | LedgerError):
        stop(problem)
    pytest.fail(str(problem), pytrace=False)


def require_served(demand: Demand, request: pytest.FixtureRequest) -> None:
    """Fails with what happened to every candidate, unless one was admitted."""
    runner = request.config.stash[RUNNER]
    if demand not in runner.certification.demands:
        pytest.skip("another cover does without this signature")
    if not any(item.receipts or item.note for item in runner.certification.items_of(demand)):
        pytest.skip("not reached: none of its candidates was selected")
    if not runner.certification.admitted(demand):
        remember_candidates(request.session, demand)
        pytest.fail(_why_unserved(demand, request), pytrace=False)
    _judged(runner, lambda: runner.certification.contest(demand))


def require_program(case: str, request: pytest.FixtureRequest) -> None:
    """Fails with the figures unless the replayed image is within the program's budget."""
    runner = request.config.stash[RUNNER]
    if not runner.is_complete():
        pytest.skip("not reached: some signature has no admitted candidate")
    receipt = {receipt.case: receipt for receipt in _judged(runner, runner.program)}[case]
    if receipt.reason is not None:
        figures = "; ".join(f"{f.what} {f.seen}, allowed {f.allowed}" for f in receipt.reason.figures)
        pytest.fail(f"program check, case {case!r}: {receipt.reason.text} ({figures})", pytrace=False)


def _why_unserved(demand: Demand, request: pytest.FixtureRequest) -> str:
    runner = request.config.stash[RUNNER]
    lines = [f"{runner.demand_id(demand)} has no admitted candidate"]
    for item in runner.certification.items_of(demand):
        last = item.receipts[-1] if item.receipts else None
        state = item.note or item.passed_over or ("no check ran" if last is None else describe(last))
        if last is not None and last.verdict is Verdict.PASSED and len(item.receipts) < len(CHECKS):
            state = f"not all checks ran (last: {last.check.value})"
        lines.append(f"  {item.candidate}: {state}")
    return "\n".join(lines)
