"""The oracle check: every vector, every output element, against the golden.

Imported by: series.  Effects only through the Executor.
"""

from __future__ import annotations

from tribunus.admission.conclude import Findings, conclude, ended_badly, misbehaved
from tribunus.admission.context import Adversary, Case, CheckContext
from tribunus.admission.receipt import Check, Figure, Reason, Receipt, Verdict
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import Executor, Guard, Poison, RunTerms

_TERMS = RunTerms(guard=Guard.AFTER, poison=Poison.A5)


def check_oracle(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects if any element is beyond its budget, an output element was never written, or an input changed.

    Dense aligned buffers at the expected dims.  Mistrusted if too few cases could have said no, or if an input moves
    the golden in none of them.  What every prepared case accepts, the adversary searches further.
    """
    started = context.clock_ns()
    findings = Findings()
    for case in context.cases.oracle_cases():
        if _attempt(case, artifact, executor, findings, "dense"):
            break
    if not findings.refused:
        _trust(context, findings)
    if not findings.refused and context.adversary is not None:
        _search(artifact, executor, context, context.adversary, findings)
    return conclude(Check.ORACLE, artifact, executor, context, findings, started)


def _attempt(case: Case, artifact: Artifact, executor: Executor, findings: Findings, terms: str) -> bool:
    """Run one case; returns whether the candidate is refused now."""
    outcome = executor.run(artifact, case.dims, case.inputs, _TERMS)
    if (bad := ended_badly(outcome, case.name)) is not None:
        return findings.refuse(*bad)
    if findings.judge(case, outcome.outputs[0], terms):
        return True
    return findings.refuse(misbehaved(outcome, case.name, ("unwritten", "inputs")))


def _trust(context: CheckContext, findings: Findings) -> None:
    """Whether the cases together could have said no."""
    counted = sum(1 for case in findings.cases if case.counted)
    if counted < context.policy.minimum_cases:
        findings.refuse(
            Reason(
                "too few cases counted",
                f"only {counted} of {len(findings.cases)} cases could have said no",
                (Figure("counted cases", str(counted), str(context.policy.minimum_cases)),),
            ),
            Verdict.MISTRUSTED,
        )
    elif unmoved := context.cases.insensitive():
        names = ", ".join(map(str, unmoved))
        findings.refuse(
            Reason(
                "an input decides nothing",
                f"value {names} moves the golden beyond its budget in no case that counts",
                (Figure("inputs without effect", str(len(unmoved)), "0"),),
            ),
            Verdict.MISTRUSTED,
        )


def _search(
    artifact: Artifact, executor: Executor, context: CheckContext, adversary: Adversary, findings: Findings
) -> None:
    """Let the adversary draw cases; what it finds is run once more and recorded as a case."""
    tried = 0

    def accepts(case: Case) -> bool:
        nonlocal tried
        tried += 1
        return not _attempt(case, artifact, executor, Findings(), "drawn")

    found = adversary.search(context.cases, accepts)
    findings.details.append(("drawn cases", f"{tried} tried, {'none' if found is None else 'one'} refused"))
    if found is not None and not _attempt(found, artifact, executor, findings, "drawn"):
        findings.refuse(
            Reason("differs when repeated", f"{found.name} was refused once, and accepted when it was run again")
        )
