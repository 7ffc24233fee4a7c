"""The timing check: is the time possible, affordable, steady, and spent where it is measured?

Imported by: series.  Effects only through the Executor; ``judge_timing`` is a function of recorded samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tribunus.admission.conclude import Findings, conclude, misbehaved
from tribunus.admission.context import CheckContext
from tribunus.admission.policy import AdmissionPolicy
from tribunus.admission.receipt import Check, Figure, Reason, Receipt, Timing, Verdict
from tribunus.candidates.model import Artifact
from tribunus.candidates.work import work_of
from tribunus.errors import TimingUntrusted
from tribunus.isolation.executor import Executor, Fate, RunTerms, TimingProtocol, TimingSamples

SAMPLE_NS = 20_000
ROUND_TRIP_NS = 100_000
LONG_NS = 5_000_000
"""From this length on CPU time is the better estimator: wall time is preempted too often."""


def check_timing(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects times above the budget or below the physical floor, hidden work, unstable or data-dependent times.

    The candidate is timed on ordinary data and on zeros, interleaved with the canary and the incumbent, warm and cold;
    afterwards its outputs are judged again.  Raises TimingUntrusted where no clock was good enough to judge.
    """
    started = context.clock_ns()
    findings = Findings()
    if context.peaks is None:
        raise TimingUntrusted("timing needs peaks that were measured in this session")
    case = context.cases.timing_case()
    work = work_of(context.signature, case.dims)
    budget, floor = work.budget_ns(context.peaks, context.policy.slack), work.floor_ns(context.peaks)
    rivals = [a for a in (context.incumbent,) if a is not None]
    protocol = TimingProtocol(context.policy.rounds, SAMPLE_NS, False, 50 * budget + 200_000_000)
    warm = executor.time(
        [artifact, artifact, *rivals],
        case.dims,
        [case.inputs, context.cases.zeros(), *(case.inputs for _ in rivals)],
        protocol,
    )
    cold_protocol = TimingProtocol(max(5, context.policy.rounds // 3), SAMPLE_NS, True, protocol.deadline_ns)
    sample, zeros = warm[0], warm[1]
    if (bad := _ended(sample) or _ended(zeros)) is not None:
        findings.refuse(*bad)
    else:
        cold = executor.time([artifact], case.dims, [case.inputs], cold_protocol)[0]
        if (bad := _ended(cold)) is not None:
            findings.refuse(*bad)
        findings.timing = Timing(
            clean(sample),
            clean(cold) if cold.fate is Fate.RETURNED else (),
            sample.single_call_cpu,
            budget,
            floor,
            sample.first_wall_ns,
        )
        findings.refuse(judge_timing(sample, zeros, budget, floor, context.policy))
    if not findings.refused:
        outcome = executor.run(artifact, case.dims, case.inputs, RunTerms(calls=3, snapshots=(3,)))
        findings.refuse(misbehaved(outcome, "the run after timing", ("late", "threads", "unwritten")))
        if outcome.fate is Fate.RETURNED:
            findings.add(case.judge(outcome.outputs[0], "after timing"))
    return conclude(Check.TIMING, artifact, executor, context, findings, started)


def judge_timing(
    sample: TimingSamples, zeros: TimingSamples, budget_ns: int, floor_ns: int, policy: AdmissionPolicy
) -> Reason | None:
    """The verdict on recorded samples: a function of its arguments."""
    typical = estimate_ns(sample)
    if not sample.outputs_fresh:
        return Reason("output not fresh", "outputs of some timed calls were not written by them")
    if (clocks := disagreement(sample)) > policy.clock_agreement:
        return Reason(
            "clocks disagree",
            "time passed for the caller that the kernel's own clock does not show",
            (Figure("difference", f"{clocks:.1%}", f"{policy.clock_agreement:.0%}"),),
        )
    hidden = _ratio(sample.process_cpu, sample.cpu)
    if hidden > policy.hidden_cpu_ratio and statistics.median(sample.process_cpu) > 10_000:
        return Reason(
            "hidden threads",
            "the process used more CPU time than the calling thread",
            (Figure("process / thread CPU time", f"{hidden:.2f}", f"{policy.hidden_cpu_ratio:.2f}"),),
        )
    if typical < policy.floor_share * floor_ns:
        return Reason(
            "impossibly fast",
            "the time is below what the machine's peaks allow for the useful work",
            (Figure("time", _ns(typical), f">= {_ns(policy.floor_share * floor_ns)}"),),
        )
    if typical > budget_ns:
        return Reason("too slow", "the time is above the budget", (Figure("time", _ns(typical), _ns(budget_ns)),))
    allowed_first = policy.first_call_ratio * typical + policy.first_call_ns
    if sample.first_cpu_ns > allowed_first:
        return Reason(
            "slow first call",
            "the first call took far longer than the later ones",
            (Figure("first call", _ns(sample.first_cpu_ns), _ns(allowed_first)),),
        )
    tail = tail_ratio(sample.single_call_cpu)
    if tail > policy.tail_ratio:
        return Reason(
            "unstable",
            "some calls take far longer than others",
            (Figure("p99 / median by CPU time", f"{tail:.1f}", f"{policy.tail_ratio:.1f}"),),
        )
    share = estimate_ns(zeros) / typical if typical else 1.0
    if share < policy.zero_ratio:
        return Reason(
            "time depends on the data",
            "calls on zeros are much faster than calls on ordinary data",
            (Figure("zeros / ordinary", f"{share:.2f}", f">= {policy.zero_ratio:.2f}"),),
        )
    return None


def estimate_ns(sample: TimingSamples) -> float:
    """Typical time of a call: the median of block minima of wall time, or median CPU time for long calls."""
    walls = clean(sample)
    if not walls:
        return 0.0
    if statistics.median(walls) >= LONG_NS:
        return float(statistics.median(sample.cpu))
    blocks = [walls[i : i + 6] for i in range(0, len(walls), 6)]
    return float(statistics.median(min(block) for block in blocks))


def clean(sample: TimingSamples) -> tuple[int, ...]:
    """Wall times of the samples that kept the processor; all of them where none did."""
    kept = tuple(w for w, lost in zip(sample.wall, sample.preempted, strict=True) if not lost)
    return kept or sample.wall


def disagreement(sample: TimingSamples) -> float:
    """Relative excess of the parent's clock over the child's in the sample that agrees best.

    A parent that is scheduled late sees more time in some samples; work hidden from the child's clock shows in every
    one.  ROUND_TRIP_NS a sample are what asking and answering may take.
    """
    calls = max(1, sample.calls)
    excess = [
        max(0.0, (p - w) * calls - ROUND_TRIP_NS) / (w * calls)
        for p, w in zip(sample.parent_wall, sample.wall, strict=True)
        if w > 0
    ]
    return min(excess, default=0.0)


def tail_ratio(calls: Sequence[int]) -> float:
    """99th percentile over median; 1 for fewer than 100 calls."""
    if len(calls) < 100:
        return 1.0
    ordered = sorted(calls)
    middle = ordered[len(ordered) // 2]
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] / middle if middle else 1.0


def _ratio(over: Sequence[int], under: Sequence[int]) -> float:
    below = statistics.median(under)
    return float(statistics.median(over) / below) if below else 1.0


def _ended(sample: TimingSamples) -> tuple[Reason, Verdict] | None:
    if sample.fate is Fate.RETURNED:
        return None
    cause = "unknown cause" if sample.death is None else sample.death.cause
    if sample.fate is Fate.TIMED_OUT:
        return Reason("no answer in time", f"the kernel did not finish its timed calls: {cause}"), Verdict.TIMED_OUT
    return Reason("crash", f"the kernel died while it was timed: {cause}"), Verdict.CRASHED


def _ns(value: float) -> str:
    return f"{value / 1000:.1f} us"
