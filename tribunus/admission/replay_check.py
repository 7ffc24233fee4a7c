"""The replay check: the same bits, always, from the frozen bytes alone.

Imported by: series.  Effects only through the Executor.
"""

from __future__ import annotations

import numpy as np

from tribunus.admission.conclude import Findings, conclude, ended_badly, misbehaved
from tribunus.admission.context import CheckContext
from tribunus.admission.receipt import Check, Figure, Reason, Receipt, Verdict
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import Axis, Executor, Fate, ReplayRuns, RunTerms

MINIMUM_RUNS = 30


def check_replay(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Static: the code holds no instruction that reaches outside its buffers.  Dynamic: every replay has equal bits.

    Then outputs after many calls are judged against the golden: repeating a wrong answer is not enough.
    """
    started = context.clock_ns()
    findings = Findings()
    found = context.audit(artifact)
    findings.details.append(("static audit", "clean" if not found else "; ".join(found[:4])))
    if found:
        findings.refuse(Reason("external state in the code", f"the code holds {found[0]}"))
    if not findings.refused:
        cases = context.cases.replay_cases()
        axes = dict(context.policy.replays)
        runs = executor.replay(artifact, cases[0].dims, cases[0].inputs, [c.inputs for c in cases[1:]], axes)
        findings.details.append(("replays", str(len(runs.runs))))
        findings.details.append(("output digest", runs.reference))
        findings.refuse(*_judged(judge_replay(runs)))
    # Poisoned before each call, nothing may be kept in the outputs; left alone, nothing in the workspace.
    for repoison, how in ((True, "poisoned each time"), (False, "on memory as it was left")):
        if not findings.refused:
            _drift(artifact, executor, context, findings, repoison=repoison, how=how)
    return conclude(Check.REPLAY, artifact, executor, context, findings, started)


def _drift(
    artifact: Artifact, executor: Executor, context: CheckContext, findings: Findings, *, repoison: bool, how: str
) -> None:
    """Judge outputs after many calls against the golden."""
    case, wanted = context.cases.replay_cases()[0], context.policy.drift_calls
    terms = RunTerms(calls=max(wanted), snapshots=wanted, repoison=repoison)
    outcome = executor.run(artifact, case.dims, case.inputs, terms)
    if (bad := ended_badly(outcome, f"repeated calls, {how}")) is not None:
        findings.refuse(*bad)
        return
    for call, outputs in zip(wanted, outcome.outputs, strict=True):
        if findings.judge(case, outputs, f"call {call}, {how}"):
            return
    findings.refuse(misbehaved(outcome, f"repeated calls, {how}", ("control", "threads")))


def judge_replay(runs: ReplayRuns) -> tuple[Reason, Verdict] | None:
    """The verdict on recorded replays: a function of its argument."""
    control = {run.control_after for run in runs.runs}
    for run in runs.runs:
        if run.fate is not Fate.RETURNED:
            cause = "unknown cause" if run.death is None else run.death.cause
            verdict = Verdict.TIMED_OUT if run.fate is Fate.TIMED_OUT else Verdict.CRASHED
            return Reason("crash", f"the kernel died on the {run.axis.value} axis: {cause}"), verdict
        if run.outputs != runs.reference:
            return Reason(_KINDS[run.axis], _describe(runs, run.axis, run.index)), Verdict.REJECTED
    if len(control) > 1:
        return Reason("floating point control changed", "replays end with different control words"), Verdict.REJECTED
    if len(runs.runs) < MINIMUM_RUNS:
        reason = Reason(
            "too few replays",
            "fewer replays than the check demands",
            (Figure("replays", str(len(runs.runs)), str(MINIMUM_RUNS)),),
        )
        return reason, Verdict.MISTRUSTED
    return None


_KINDS = {
    Axis.REPEAT: "differs when repeated",
    Axis.PROCESS: "depends on the process",
    Axis.ADDRESS: "depends on addresses",
    Axis.POISON: "depends on stale memory",
    Axis.COLD: "depends on the caches",
    Axis.LOAD: "depends on load",
    Axis.INTERLEAVE: "keeps state between calls",
    Axis.PREFILL: "depends on the output's contents",
}


def _describe(runs: ReplayRuns, axis: Axis, index: int) -> str:
    text = f"replay {index + 1} on the {axis.value} axis has other bits than the first run"
    if runs.differing is None:
        return text
    for value, array in runs.arrays.items():
        other = runs.differing[value]
        places = np.flatnonzero(array.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
        if places.size:
            element = int(places[0]) // array.dtype.itemsize
            return f"{text}: element {element} of output {value}, and {places.size} bytes in all"
    return text


def _judged(found: tuple[Reason, Verdict] | None) -> tuple[Reason | None, Verdict]:
    return (None, Verdict.PASSED) if found is None else found
