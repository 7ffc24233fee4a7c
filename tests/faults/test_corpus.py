"""Every fault is refused by its own check run alone, for a named reason; every twin is admitted by the series."""

from __future__ import annotations

import pytest
from tribunus_native.toolchain import Cpu

from tests.faults.corpus import FAULTS, Fault
from tests.faults.workshop import Workshop, calmly
from tribunus.admission.receipt import CHECKS, Check, Verdict
from tribunus.admission.series import FUNCTIONS, OutcomeKind, outcome_of, run_series
from tribunus.candidates.model import Artifact
from tribunus.isolation.worker import CpuExecutor

_ALL = pytest.mark.parametrize("fault", FAULTS, ids=[fault.id for fault in FAULTS])
TWINS = tuple({(f.subject.signature.digest, f.subject.layouts, f.twin): f for f in reversed(FAULTS)}.values())


def built(workshop: Workshop, fault: Fault) -> Artifact:
    """The fault itself."""
    cpu = Cpu.X86_64_V4 if fault.wide else Cpu.X86_64_V3
    return workshop.artifact(fault.subject, fault.body, shared=fault.shared, cpu=cpu)


@_ALL
def test_a_fault_is_refused_by_its_check_alone(fault: Fault, workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = built(workshop, fault)
    receipt = calmly(lambda: FUNCTIONS[fault.check](artifact, executor, workshop.context(artifact)))
    assert receipt.verdict in (Verdict.REJECTED, Verdict.CRASHED), receipt
    assert receipt.reason is not None
    assert receipt.reason.kind in fault.kinds, receipt.reason


@_ALL
def test_a_fault_is_refused_by_the_series(fault: Fault, workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = built(workshop, fault)
    receipts = calmly(lambda: list(run_series(artifact, executor, workshop.context(artifact))))
    outcome, by = outcome_of(receipts)
    assert outcome in (OutcomeKind.REJECTED, OutcomeKind.CRASHED)
    assert by is not None
    assert CHECKS.index(by) <= CHECKS.index(fault.check), receipts[-1].reason


@pytest.mark.parametrize("fault", TWINS, ids=[fault.id for fault in TWINS])
def test_the_honest_twin_is_admitted(fault: Fault, workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = workshop.artifact(fault.subject, fault.twin)
    receipts = calmly(lambda: list(run_series(artifact, executor, workshop.context(artifact))))
    assert outcome_of(receipts) == (OutcomeKind.ADMITTED, None), receipts[-1].reason
    assert [r.check for r in receipts] == list(CHECKS)


def test_every_check_has_at_least_three_faults() -> None:
    counts = {check: sum(fault.check is check for fault in FAULTS) for check in Check}
    counts[Check.CACHE_KEY] += 4  # those that no kernel can have, in test_keys
    assert min(counts.values()) >= 3
