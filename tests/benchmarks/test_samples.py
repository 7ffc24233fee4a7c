"""Figures read off recorded times."""

from __future__ import annotations

import pytest

from benchmarks.samples import CallTimes, Samples, Start, percentile


def a_sample(*rounds: tuple[int, ...]) -> Samples:
    return Samples(
        subject="engine",
        version="1",
        start=Start(load_library_ns=1, open_model_ns=20, first_call_ns=300),
        rounds=tuple(CallTimes(wall_ns=times, cpu_ns=tuple(2 * time for time in times)) for times in rounds),
        clock_ns=1,
    )


def test_percentiles_are_times_that_occurred() -> None:
    times = list(range(100, 0, -1))
    assert [percentile(times, share) for share in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7], 99) == 7


@pytest.mark.parametrize("share", [0, 101])
def test_a_percentile_that_does_not_exist_is_refused(share: int) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([1, 2], share)


def test_rounds_keep_their_own_medians() -> None:
    samples = a_sample((5, 1, 3), (9, 7, 8))
    assert samples.wall_round_medians_ns == (3, 8)
    assert samples.cpu_round_medians_ns == (6, 16)
    assert (samples.wall_p50_ns, samples.cpu_p50_ns, samples.wall_p99_ns, samples.cpu_p99_ns) == (5, 10, 9, 18)
    assert samples.start.to_first_answer_ns == 321


def test_times_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="1 wall times and 2 CPU times"):
        CallTimes(wall_ns=(1,), cpu_ns=(1, 2))
    with pytest.raises(ValueError, match="no rounds"):
        a_sample()
