"""The timing check: is the time possible, affordable, steady, and spent where it is measured?

Imported by: series.  Effects only through the Executor; ``judge_timing`` is a function of recorded samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tribunus.admission.conclude import Findings, conclude, ended_badly, misbehaved
from tribunus.admission.context import CheckContext
from tribunus.admission.policy import AdmissionPolicy
from tribunus.admission.receipt import Check, Figure, Reason, Receipt, Timing, Verdict
from tribunus.candidates.model import Artifact, Signature
from tribunus.candidates.work import work_of
from tribunus.errors import TimingUntrusted
from tribunus.isolation.executor import Executor, Fate, RunTerms, TimingProtocol, TimingSamples

IMPOSSIBLE = "impossibly fast"
"""Kind of the reason for a time below the physical floor."""
SAMPLE_NS = 20_000
ROUND_TRIP_NS = 100_000
LONG_NS = 5_000_000
"""From this length on CPU time is the better estimator: wall time is preempted too often."""
PATIENCE_NS: Final = 5_000_000_000
"""A machine may stop a process for seconds; a kernel that hangs costs this much once."""
ATTEMPTS: Final = 3
"""What speaks against a candidate must do so in each of so many measurements: noise does not, faults do."""
REST_NS: Final = 250_000_000
"""Before the first measurement that is repeated because of noise; the next ones wait twice as long each."""
KEPT_SHARE: Final = 0.25
"""With fewer samples than this that kept the processor, wall time says nothing against a candidate."""
FEWEST_CALLS: Final = 30
"""Calls from which a tail is judged: the rounds of a kernel so long that a sample is one call."""
RESOLUTION_NS: Final = 5
"""Samples are whole nanoseconds a call; two that differ by less say where code lies, not how good it is."""
TAIL_NS: Final = 20_000
"""A tail this much above the median is the machine's own: interrupts, migrations."""
REFILL_NS: Final = 200_000
"""What a call may take longer for having lost the processor: another process has used its caches meanwhile."""
_SORTS: Final = frozenset(("top_k",))
"""Ops of which honest kernels are faster on equal numbers."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One measurement: the candidate on ordinary data and on zeros, and what was concluded from it."""

    sample: TimingSamples
    zeros: TimingSamples
    reason: Reason | None


def check_timing(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects times above the budget or below the physical floor, hidden work, unstable or data-dependent times.

    The candidate is timed on ordinary data and on zeros, interleaved, warm and cold; what speaks against it is measured
    again, and must hold each time.  Afterwards its outputs are judged again.  Raises TimingUntrusted where the machine
    was too busy to refuse by wall time.  Candidates are compared with each other in the contest alone.
    """
    started = context.clock_ns()
    findings = Findings()
    if context.peaks is None:
        raise TimingUntrusted("timing needs peaks that were measured in this session")
    case = context.cases.timing_case()
    work = work_of(context.signature, case.dims)
    budget, floor = work.budget_ns(context.peaks, context.policy.slack), work.floor_ns(context.peaks)
    first = TimingProtocol(context.policy.rounds, SAMPLE_NS, False, 50 * budget + PATIENCE_NS, singles=1)
    attempts: list[Attempt] = []
    while not attempts or (attempts[-1].reason is not None and len(attempts) < ATTEMPTS):
        inputs = [case.inputs, context.cases.zeros()]
        protocol = replace(first, rest_ns=rest_ns(len(attempts)))
        sample, zeros = executor.time([artifact, artifact], case.dims, inputs, protocol)
        if (bad := _ended(sample) or _ended(zeros)) is not None:
            findings.refuse(*bad)
            break
        compared = None if _sorts(context.signature) else zeros
        reason = judge_timing(sample, compared, budget, floor, context.policy, artifact.recipe.split.parts)
        attempts.append(Attempt(sample, zeros, reason))
        if not sample.outputs_fresh:
            break
    if not findings.refused:
        last = attempts[-1]
        cold_protocol = TimingProtocol(max(5, context.policy.rounds // 3), SAMPLE_NS, True, first.deadline_ns)
        cold = executor.time([artifact], case.dims, [case.inputs], cold_protocol)[0]
        if (bad := _ended(cold)) is not None:
            findings.refuse(*bad)
        findings.timing = Timing(
            clean(last.sample),
            clean(cold) if cold.fate is Fate.RETURNED else (),
            last.sample.single_call_cpu,
            budget,
            floor,
            last.sample.first_wall_ns,
        )
        findings.details.append(("measurements", str(len(attempts))))
        findings.refuse(settle(attempts, budget))
    if not findings.refused:
        outcome = executor.run(artifact, case.dims, case.inputs, RunTerms(calls=3, snapshots=(3,)))
        if (bad := ended_badly(outcome, "the run after timing")) is not None:
            findings.refuse(*bad)
        else:
            findings.refuse(misbehaved(outcome, "the run after timing", ("late", "threads", "unwritten")))
            findings.judge(case, outcome.outputs[0], "after timing")
    return conclude(Check.TIMING, artifact, executor, context, findings, started)


def rest_ns(repeated: int) -> int:
    """How long the machine is left alone before a measurement that was made ``repeated`` times already."""
    return REST_NS << (repeated - 1) if repeated > 0 else 0


def settle(attempts: Sequence[Attempt], budget_ns: int) -> Reason | None:
    """What all measurements together say: a function of its arguments.

    A candidate is refused if each measurement refuses it.  Raises TimingUntrusted if wall time alone does, and the
    candidate had the processor too rarely in every one of them.
    """
    last = attempts[-1]
    if last.reason is None or not last.sample.outputs_fresh:
        return last.reason
    calm = [a.reason for a in attempts if not _only_wall_speaks(a, budget_ns)]
    if not calm:
        raise TimingUntrusted(
            f"the machine was too busy to judge a kernel: {last.reason.text} in {len(attempts)} measurements",
            remedy="end other work on this machine, or certify elsewhere",
        )
    return calm[-1]


def _only_wall_speaks(attempt: Attempt, budget_ns: int) -> bool:
    """Whether the reason rests on wall time that other processes had."""
    if attempt.reason is None or attempt.reason.kind not in _BY_WALL:
        return False
    if attempt.reason.kind == "too slow" and statistics.median(attempt.sample.cpu) > budget_ns:
        return False
    return any(kept_share(sample) < KEPT_SHARE for sample in (attempt.sample, attempt.zeros))


_BY_WALL: Final = frozenset(("clocks disagree", "too slow", "time depends on the data"))


def _sorts(signature: Signature) -> bool:
    return any(op.kind in _SORTS for op in signature.phase.ops)


def judge_timing(
    sample: TimingSamples,
    zeros: TimingSamples | None,
    budget_ns: int,
    floor_ns: int,
    policy: AdmissionPolicy,
    parts: int,
) -> Reason | None:
    """The verdict on recorded samples: a function of its arguments.

    zeros: samples on zeros, None where time may depend on the data.  parts: threads that share the work; budget and
    floor are those of one.
    """
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
    if hidden > policy.hidden_cpu_ratio * parts and statistics.median(sample.process_cpu) > 10_000:
        return Reason(
            "hidden threads",
            "the process used more CPU time than the calling threads",
            (Figure("process / thread CPU time", f"{hidden:.2f}", f"{policy.hidden_cpu_ratio * parts:.2f}"),),
        )
    fastest = policy.floor_share * floor_ns / parts
    if typical < fastest:
        return Reason(
            IMPOSSIBLE,
            "the time is below what the machine's peaks allow for the useful work",
            (Figure("time", _ns(typical), f">= {_ns(fastest)}"),),
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
    if (tail := _tail(sample, policy.tail_ratio)) is not None:
        return tail
    on_zeros = typical if zeros is None else estimate_ns(zeros)
    share = on_zeros / typical if typical else 1.0
    if share < policy.zero_ratio and typical - on_zeros > RESOLUTION_NS:
        return Reason(
            "time depends on the data",
            "calls on zeros are much faster than calls on ordinary data",
            (Figure("zeros / ordinary", f"{share:.2f}", f">= {policy.zero_ratio:.2f}"),),
        )
    return None


def _tail(sample: TimingSamples, allowed: float) -> Reason | None:
    calls = sample.single_call_cpu
    ratio = tail_ratio(calls, sample.single_call_preempted)
    if ratio <= allowed or (ratio - 1.0) * statistics.median(calls) <= TAIL_NS:
        return None
    return Reason(
        "unstable",
        "some calls take far longer than others",
        (Figure("p99 / median by CPU time", f"{ratio:.1f}", f"{allowed:.1f}"),),
    )


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


def kept_share(sample: TimingSamples) -> float:
    """Share of the samples that kept the processor; 1 without samples."""
    return 1.0 - sum(sample.preempted) / len(sample.preempted) if sample.preempted else 1.0


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


def tail_ratio(calls: Sequence[int], preempted: Sequence[bool] = ()) -> float:
    """99th percentile over median, the largest of up to 100 calls; 1 for fewer than FEWEST_CALLS.

    preempted: which calls lost the processor; those are forgiven REFILL_NS, and no more, so that work which waits for
    such a moment is seen.
    """
    if len(calls) < FEWEST_CALLS:
        return 1.0
    middle = sorted(calls)[len(calls) // 2]
    lost = preempted or (False,) * len(calls)
    ordered = sorted(ns - REFILL_NS if gone else ns for ns, gone in zip(calls, lost, strict=True))
    return max(middle, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]) / middle if middle else 1.0


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
