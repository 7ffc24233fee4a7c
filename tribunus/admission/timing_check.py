"""The timing check: is the time possible, affordable, steady, and spent where it is measured?

Imported by: series.  Effects only through the Executor; ``judge_timing`` is a function of recorded samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
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
HIDDEN_NS: Final = 10_000
"""A call whose whole process used no more than this is too short to hide a thread."""
TAIL_NS: Final = 20_000
"""A tail this much above the median is the machine's own: interrupts, migrations."""
REFILL_NS: Final = 200_000
"""What a call may take longer for having lost the processor: another process has used its caches meanwhile."""
_SORTS: Final = frozenset(("top_k",))
"""Ops of which honest kernels are faster on equal numbers."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One measurement: the candidate on ordinary data and on zeros, and everything in it that speaks against it."""

    sample: TimingSamples
    zeros: TimingSamples
    reasons: tuple[Reason, ...]


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
    while not attempts or (attempts[-1].reasons and len(attempts) < ATTEMPTS):
        inputs = [case.inputs, context.cases.zeros()]
        protocol = replace(first, rest_ns=rest_ns(len(attempts)))
        sample, zeros = executor.time([artifact, artifact], case.dims, inputs, protocol)
        if (bad := _ended(sample) or _ended(zeros)) is not None:
            findings.refuse(*bad)
            break
        compared = None if _sorts(context.signature) else zeros
        reasons = judge_timing(sample, compared, budget, floor, context.policy, artifact.recipe.split.parts)
        attempts.append(Attempt(sample, zeros, reasons))
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
            lost_calls(last.sample),
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

    A candidate is refused if each measurement refuses it, for a reason that all of them give if there is one: a burst
    of other work may add another to some.  Raises TimingUntrusted if wall time alone speaks against it, and it had the
    processor too rarely in every one of them.
    """
    last = attempts[-1]
    if not last.reasons:
        return None
    if not last.sample.outputs_fresh:
        return last.reasons[0]
    calm = [trusted for a in attempts if (trusted := _trusted(a, budget_ns))]
    if not calm:
        raise TimingUntrusted(
            f"the machine was too busy to judge a kernel: {last.reasons[0].text} in {len(attempts)} measurements",
            remedy="end other work on this machine, or certify elsewhere",
        )
    shared = set.intersection(*({reason.kind for reason in reasons} for reasons in calm))
    return next((reason for reason in calm[-1] if reason.kind in shared), calm[-1][0])


def _trusted(attempt: Attempt, budget_ns: int) -> list[Reason]:
    """Its reasons without those by wall time that other processes had; none if the gravest is such a one."""
    if all(kept_share(sample) >= KEPT_SHARE for sample in (attempt.sample, attempt.zeros)):
        return list(attempt.reasons)
    slow_by_cpu = statistics.median(attempt.sample.cpu) > budget_ns
    kept = [r for r in attempt.reasons if r.kind not in _BY_WALL or (r.kind == "too slow" and slow_by_cpu)]
    return kept if kept[:1] == list(attempt.reasons[:1]) else []


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
) -> tuple[Reason, ...]:
    """Everything in recorded samples that speaks against a candidate, the gravest first: a function of its arguments.

    zeros: samples on zeros, None where time may depend on the data.  parts: threads that share the work; budget and
    floor are those of one.  Of outputs that no call wrote, times say nothing: that is then the only reason.
    """
    if not sample.outputs_fresh:
        return (Reason("output not fresh", "outputs of some timed calls were not written by them"),)
    typical = estimate_ns(sample)
    found = (
        _clocks(sample, policy.clock_agreement),
        _hidden(sample, policy.hidden_cpu_ratio * parts),
        _amount(typical, policy.floor_share * floor_ns / parts, budget_ns),
        _first_call(sample, policy.first_call_ratio * typical + policy.first_call_ns),
        _tail(sample, policy.tail_ratio),
        _data(typical, typical if zeros is None else estimate_ns(zeros), policy.zero_ratio),
    )
    return tuple(reason for reason in found if reason is not None)


def _clocks(sample: TimingSamples, allowed: float) -> Reason | None:
    if (clocks := disagreement(sample)) <= allowed:
        return None
    return Reason(
        "clocks disagree",
        "time passed for the caller that the kernel's own clock does not show",
        (Figure("difference", f"{clocks:.1%}", f"{allowed:.0%}"),),
    )


def _hidden(sample: TimingSamples, allowed: float) -> Reason | None:
    hidden = _ratio(sample.process_cpu, sample.cpu)
    if hidden <= allowed or statistics.median(sample.process_cpu) <= HIDDEN_NS:
        return None
    return Reason(
        "hidden threads",
        "the process used more CPU time than the calling threads",
        (Figure("process / thread CPU time", f"{hidden:.2f}", f"{allowed:.2f}"),),
    )


def _amount(typical: float, fastest: float, budget_ns: int) -> Reason | None:
    if typical < fastest:
        return Reason(
            IMPOSSIBLE,
            "the time is below what the machine's peaks allow for the useful work",
            (Figure("time", _ns(typical), f">= {_ns(fastest)}"),),
        )
    if typical > budget_ns:
        return Reason("too slow", "the time is above the budget", (Figure("time", _ns(typical), _ns(budget_ns)),))
    return None


def _first_call(sample: TimingSamples, allowed: float) -> Reason | None:
    if sample.first_cpu_ns <= allowed:
        return None
    return Reason(
        "slow first call",
        "the first call took far longer than the later ones",
        (Figure("first call", _ns(sample.first_cpu_ns), _ns(allowed)),),
    )


def _data(typical: float, on_zeros: float, allowed: float) -> Reason | None:
    share = on_zeros / typical if typical else 1.0
    if share >= allowed or typical - on_zeros <= RESOLUTION_NS:
        return None
    return Reason(
        "time depends on the data",
        "calls on zeros are much faster than calls on ordinary data",
        (Figure("zeros / ordinary", f"{share:.2f}", f">= {allowed:.2f}"),),
    )


def _tail(sample: TimingSamples, allowed: float) -> Reason | None:
    calls = sample.single_call_cpu
    ratio = tail_ratio(calls, lost_calls(sample))
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


def lost_calls(sample: TimingSamples) -> tuple[int, ...]:
    """Positions of the calls timed one by one that lost the processor."""
    return tuple(i for i, lost in enumerate(sample.single_call_preempted) if lost)


def tail_ratio(calls: Sequence[int], lost: Collection[int]) -> float:
    """99th percentile over median, the largest of up to 100 calls; 1 for fewer than FEWEST_CALLS.

    lost: positions of calls that lost the processor; those are forgiven REFILL_NS, and no more, so that work which
    waits for such a moment is seen.
    """
    if len(calls) < FEWEST_CALLS:
        return 1.0
    middle = sorted(calls)[len(calls) // 2]
    ordered = sorted(ns - REFILL_NS * (i in lost) for i, ns in enumerate(calls))
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
