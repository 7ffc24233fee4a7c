"""The shape check: the other dims, and both guard pages.

Imported by: series.  Effects only through the Executor.
"""

from __future__ import annotations

from tribunus.admission.conclude import Findings, conclude, ended_badly, misbehaved
from tribunus.admission.context import CheckContext
from tribunus.admission.receipt import Check, Receipt
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import Executor, Guard, Poison, RunTerms


def check_shape(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects a wrong result at any representative of the dims, and any access outside a buffer.

    Every case runs twice, with the unmapped page behind the buffers and before them, under two poisons.
    """
    started = context.clock_ns()
    findings = Findings()
    for case in context.cases.shape_cases():
        at = ", ".join(f"{name}={value}" for name, value in case.dims.items()) or "the declared shape"
        for guard, poison in ((Guard.AFTER, Poison.NAN), (Guard.BEFORE, Poison.A5)):
            what = f"{case.name} at {at}, guard {guard.value}"
            outcome = executor.run(artifact, case.dims, case.inputs, RunTerms(guard=guard, poison=poison))
            if (bad := ended_badly(outcome, what)) is not None:
                findings.refuse(*bad)
                break
            if findings.refuse(misbehaved(outcome, what, ("unwritten", "damage"))):
                break
            if findings.judge(case, outcome.outputs[0], f"guard {guard.value}, poison {poison.value}"):
                break
        if findings.refused:
            break
    return conclude(Check.SHAPE, artifact, executor, context, findings, started)
