"""Timing judged from recorded samples: each reason, and what noise may not cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.admission.samples import ROUNDS, samples
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import Reason
from tribunus.admission.timing_check import (
    Attempt,
    clean,
    disagreement,
    estimate_ns,
    judge_timing,
    kept_share,
    rest_ns,
    settle,
    tail_ratio,
)
from tribunus.errors import TimingUntrusted
from tribunus.isolation.executor import TimingSamples

BUDGET, FLOOR = 80_000, 1_000


def kinds(sample: TimingSamples, zeros: TimingSamples | None = None, parts: int = 1) -> list[str]:
    return [reason.kind for reason in judge_timing(sample, zeros or sample, BUDGET, FLOOR, STANDARD, parts)]


def judged(sample: TimingSamples, zeros: TimingSamples | None = None, parts: int = 1) -> str | None:
    """The only reason; None where there is none."""
    found = kinds(sample, zeros, parts)
    assert len(found) <= 1, found
    return found[0] if found else None


def test_an_honest_kernel_passes() -> None:
    assert judged(samples()) is None


@pytest.mark.parametrize(
    ("sample", "kind"),
    [
        (samples(fresh=False), "output not fresh"),
        (samples(parent=1.5), "clocks disagree"),
        (samples(process=20_000), "hidden threads"),
        (samples(500), "impossibly fast"),
        (samples(90_000), "too slow"),
        (samples(first=20_000_000), "slow first call"),
        (samples(singles=[10_000] * 390 + [3_000_000] * 10), "unstable"),
        (samples(singles=[10_000] * 29 + [3_000_000]), "unstable"),
    ],
)
def test_each_reason_has_its_samples(sample: TimingSamples, kind: str) -> None:
    assert judged(sample) == kind


def test_time_that_depends_on_the_data_is_refused_unless_it_may() -> None:
    assert judged(samples(), samples(1_000)) == "time depends on the data"
    assert judge_timing(samples(), None, BUDGET, FLOOR, STANDARD, 1) == ()


def test_threads_that_share_the_work_are_not_hidden_and_may_be_faster() -> None:
    assert judged(samples(process=40_000)) == "hidden threads"
    assert judged(samples(process=40_000), parts=4) is None
    assert judged(samples(300)) == "impossibly fast"
    assert judged(samples(300), parts=4) is None


def test_a_handful_of_calls_has_no_tail() -> None:
    assert judged(samples(singles=[10_000] * 28 + [3_000_000])) is None


def test_an_interrupt_is_no_tail() -> None:
    """A tail of a few microseconds on a kernel of a few hundred nanoseconds is the machine's."""
    sample = samples(singles=[300] * 390 + [9_000] * 10)
    assert tail_ratio(sample.single_call_cpu, ()) > STANDARD.tail_ratio
    assert judged(sample) is None


def test_the_parents_clock_may_be_late_in_all_samples_but_one() -> None:
    late = replace(samples(), parent_wall=(20_000,) * (ROUNDS - 1) + (10_000,))
    assert disagreement(late) == 0.0
    assert judged(late) is None


def test_preempted_samples_do_not_count() -> None:
    wall = (10_000, 900_000) * (ROUNDS // 2)
    sample = replace(samples(preempted=(False, True) * (ROUNDS // 2)), wall=wall, parent_wall=wall)
    assert clean(sample) == (10_000,) * (ROUNDS // 2)
    assert kept_share(sample) == 0.5
    assert estimate_ns(sample) == 10_000


def test_long_calls_are_judged_by_cpu_time() -> None:
    assert estimate_ns(samples(9_000_000, cpu=6_000_000)) == 6_000_000


SLOW = Reason("too slow", "the time is above the budget")
SPIKES = Reason("unstable", "some calls take far longer than others")


def attempt(sample: TimingSamples, *reasons: Reason) -> Attempt:
    return Attempt(sample, sample, reasons)


def test_a_difference_of_nanoseconds_is_no_dependence_on_the_data() -> None:
    assert judge_timing(samples(8), samples(3), BUDGET, 0, STANDARD, 1) == ()
    (reason,) = judge_timing(samples(9), samples(3), BUDGET, 0, STANDARD, 1)
    assert reason.kind == "time depends on the data"


def test_a_measurement_gives_all_its_reasons_the_gravest_first() -> None:
    spiked = samples(90_000, singles=(90_000,) * 390 + (3_000_000,) * 10)
    assert kinds(spiked, samples(9_000)) == ["too slow", "unstable", "time depends on the data"]
    assert kinds(samples(90_000, fresh=False)) == ["output not fresh"]


@pytest.mark.parametrize(
    ("slow", "lost", "kind"),
    [
        (150_000, False, "unstable"),
        (150_000, True, None),
        (3_000_000, True, "unstable"),
    ],
)
def test_a_call_that_lost_the_processor_finds_its_caches_cold_and_no_more(
    slow: int, lost: bool, kind: str | None
) -> None:
    sample = replace(
        samples(singles=(10_000,) * 390 + (slow,) * 10),
        single_call_preempted=(False,) * 390 + (lost,) * 10,
    )
    assert judged(sample) == kind


def test_a_busy_machine_leaves_no_kernel_without_a_tail() -> None:
    """Where every call lost the processor, spikes beyond cold caches still stand out."""
    spikes = samples(singles=(10_000,) * 390 + (3_000_000,) * 10)
    assert judged(replace(spikes, single_call_preempted=(True,) * 400)) == "unstable"


def test_one_quiet_measurement_is_enough() -> None:
    assert settle([attempt(samples(), SLOW), attempt(samples())], BUDGET) is None


def test_what_holds_in_every_quiet_measurement_is_refused() -> None:
    assert settle([attempt(samples(), SLOW)] * 3, BUDGET) == SLOW


def test_a_busy_machine_cannot_refuse_by_wall_time() -> None:
    robbed = samples(900_000, cpu=10_000, preempted=(True,) * ROUNDS)
    with pytest.raises(TimingUntrusted, match="too busy"):
        settle([attempt(robbed, SLOW)] * 3, BUDGET)
    assert settle([attempt(robbed, SLOW)] * 2 + [attempt(samples(), SLOW)], BUDGET) == SLOW


def test_a_busy_machine_can_refuse_by_cpu_time() -> None:
    robbed = (True,) * ROUNDS
    slow = samples(900_000, cpu=900_000, preempted=robbed)
    assert settle([attempt(slow, SLOW)] * 3, BUDGET) == SLOW
    assert settle([attempt(samples(preempted=robbed), SPIKES)] * 3, BUDGET) == SPIKES


def test_the_reason_given_is_one_that_all_measurements_give() -> None:
    """Noise may add a tail to a kernel whose time depends on the data, even in every measurement that counts."""
    data = Reason("time depends on the data", "calls on zeros are much faster than calls on ordinary data")
    disturbed, calm = attempt(samples(), SPIKES, data), attempt(samples(), data)
    assert settle([disturbed, calm, disturbed], BUDGET) == data
    assert settle([disturbed] * 3, BUDGET) == SPIKES


def test_different_reasons_in_every_measurement_are_reasons() -> None:
    assert settle([attempt(samples(), SLOW), attempt(samples(), SPIKES)], BUDGET) == SPIKES


def test_a_measurement_whose_gravest_reason_is_other_work_does_not_count() -> None:
    robbed = samples(900_000, cpu=10_000, preempted=(True,) * ROUNDS)
    with pytest.raises(TimingUntrusted, match="too busy"):
        settle([attempt(robbed, SLOW, SPIKES)] * 3, BUDGET)
    assert settle([attempt(robbed, SPIKES, SLOW)] * 3, BUDGET) == SPIKES


def test_stale_outputs_need_one_measurement() -> None:
    stale = Reason("output not fresh", "outputs of some timed calls were not written by them")
    assert settle([attempt(samples(fresh=False), stale)], BUDGET) == stale


def test_each_repeated_measurement_waits_twice_as_long() -> None:
    assert [rest_ns(repeated) for repeated in range(-1, 4)] == [0, 0, 250_000_000, 500_000_000, 1_000_000_000]
