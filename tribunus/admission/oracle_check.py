"""The oracle check: every vector, every output element, against the golden.

Imported by: series.  Effects only through the Executor.
"""

from __future__ import annotations

from tribunus.admission.conclude import Findings, conclude, ended_badly, misbehaved
from tribunus.admission.context import CheckContext
from tribunus.admission.receipt import Check, Figure, Reason, Receipt, Verdict
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import Executor, Guard, Poison, RunTerms

_TERMS = RunTerms(guard=Guard.AFTER, poison=Poison.A5)


def check_oracle(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects if any element is beyond its budget, an output element was never written, or an input changed.

    Dense aligned buffers at the expected dims.  Mistrusted if too few cases could have said no.
    """
    started = context.clock_ns()
    findings = Findings()
    for case in context.cases.oracle_cases():
        outcome = executor.run(artifact, case.dims, case.inputs, _TERMS)
        if (bad := ended_badly(outcome, case.name)) is not None:
            findings.refuse(*bad)
            break
        if findings.add(case.judge(outcome.outputs[0], "dense")):
            break
        if findings.refuse(misbehaved(outcome, case.name, ("unwritten", "inputs"))):
            break
    counted = sum(1 for case in findings.cases if case.counted)
    if not findings.refused and counted < context.policy.minimum_cases:
        findings.refuse(
            Reason(
                "too few cases counted",
                f"only {counted} of {len(findings.cases)} cases could have said no",
                (Figure("counted cases", str(counted), str(context.policy.minimum_cases)),),
            ),
            Verdict.MISTRUSTED,
        )
    return conclude(Check.ORACLE, artifact, executor, context, findings, started)
