"""Times of calls, as they were measured, and the figures that are read off them.

Imported by: benchmarks.baselines and whatever measures beside it.  Imports: the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """One time a call, in the order of the calls.  CPU time is that of the whole process, all of its threads."""

    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.wall_ns) != len(self.cpu_ns) or not self.wall_ns:
            raise ValueError(f"{len(self.wall_ns)} wall times and {len(self.cpu_ns)} CPU times of the same calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What it took a fresh process to get to its first answer, after the interpreter had started."""

    load_library_ns: int
    open_model_ns: int
    first_call_ns: int

    @property
    def to_first_answer_ns(self) -> int:
        return self.load_library_ns + self.open_model_ns + self.first_call_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All calls of one subject, round by round.

    ``clock_ns`` is the time that the two clocks themselves add to each call (median of empty calls); it is reported,
    not subtracted.
    """

    subject: str
    version: str
    start: Start
    rounds: tuple[CallTimes, ...]
    clock_ns: int

    def __post_init__(self) -> None:
        if not self.rounds:
            raise ValueError(f"no rounds of {self.subject}")

    @property
    def wall_ns(self) -> tuple[int, ...]:
        return tuple(time for times in self.rounds for time in times.wall_ns)

    @property
    def cpu_ns(self) -> tuple[int, ...]:
        return tuple(time for times in self.rounds for time in times.cpu_ns)

    @property
    def wall_p50_ns(self) -> int:
        return percentile(self.wall_ns, 50)

    @property
    def wall_p99_ns(self) -> int:
        return percentile(self.wall_ns, 99)

    @property
    def cpu_p50_ns(self) -> int:
        return percentile(self.cpu_ns, 50)

    @property
    def cpu_p99_ns(self) -> int:
        return percentile(self.cpu_ns, 99)

    @property
    def cpu_round_medians_ns(self) -> tuple[int, ...]:
        """One median a round: how far they spread says how far the median can be trusted."""
        return tuple(median_low(times.cpu_ns) for times in self.rounds)

    @property
    def wall_round_medians_ns(self) -> tuple[int, ...]:
        return tuple(median_low(times.wall_ns) for times in self.rounds)


def percentile(times_ns: Sequence[int], share: int) -> int:
    """Nearest rank: the smallest of ``times_ns`` that at least ``share`` per cent of them do not exceed."""
    if not times_ns or not 0 < share <= 100:
        raise ValueError(f"percentile {share} of {len(times_ns)} times")
    return sorted(times_ns)[math.ceil(share * len(times_ns) / 100) - 1]
