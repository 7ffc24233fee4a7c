"""What the checks demand: numbers fixed before any candidate runs.

Imported by: the checks, certification.  Imports: nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus.isolation.executor import Axis


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Demands of the six checks.

    slack: time budget in units of the roofline.  floor_share: a time below this share of the physical floor is
    impossible.  tail_ratio: largest p99 / median of single calls by CPU time.  first_call_ratio, first_call_ns: the
    first call may take this many medians plus this much.  clock_agreement: relative difference between the child's and
    the parent's clock.  hidden_cpu_ratio: process CPU time over thread CPU time.  zero_ratio: a call on zeros must
    take at least this share of one on ordinary data.  minimum_cases: counted cases an oracle receipt needs.
    replays: runs along each axis, at least 30 together.  drift_calls: calls after which outputs are judged again.
    rounds: of the timing protocol.
    """

    slack: float
    floor_share: float
    tail_ratio: float
    first_call_ratio: float
    first_call_ns: int
    clock_agreement: float
    hidden_cpu_ratio: float
    zero_ratio: float
    minimum_cases: int
    replays: tuple[tuple[Axis, int], ...]
    drift_calls: tuple[int, ...]
    rounds: int


STANDARD = AdmissionPolicy(
    slack=8.0,
    floor_share=0.7,
    tail_ratio=6.0,
    first_call_ratio=25.0,
    first_call_ns=2_000_000,
    clock_agreement=0.05,
    hidden_cpu_ratio=1.25,
    zero_ratio=0.4,
    minimum_cases=3,
    replays=(
        (Axis.REPEAT, 10),
        (Axis.PROCESS, 3),
        (Axis.ADDRESS, 5),
        (Axis.POISON, 3),
        (Axis.COLD, 2),
        (Axis.LOAD, 2),
        (Axis.INTERLEAVE, 3),
        (Axis.PREFILL, 2),
    ),
    drift_calls=(1, 2, 11, 64, 65),
    rounds=30,
)
"""The policy in force unless another is named; 30 replays in all."""
