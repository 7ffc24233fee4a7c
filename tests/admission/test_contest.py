"""Contests ranked from recorded samples: order, ties, and when the clock cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.admission.samples import artifact, samples
from tribunus.admission.contest import PATIENCE, Entry, hold_contest, rank
from tribunus.admission.context import Judgement
from tribunus.candidates.model import Artifact
from tribunus.errors import InternalError, TimingUntrusted
from tribunus.isolation.executor import (
    Axis,
    DimValues,
    ExecutorKind,
    Inputs,
    Outcome,
    ReplayRuns,
    RunTerms,
    TimingProtocol,
    TimingSamples,
)
from tribunus.phaseir.program import Array


def entry(name: str, share: float = 0.1, *, jit: bool = False) -> Entry:
    made = artifact(name=name, jit_at_open=jit)
    return Entry(made.candidate, made, share, 1.0)


def ranked(entries: Sequence[Entry], times: Sequence[int], spread: float = 0.0) -> tuple[list[str], int]:
    result = rank(entries, [samples(ns) for ns in times], spread, ExecutorKind.DEVICE)
    names = {e.candidate.digest: e.candidate.config.text("name") for e in entries}
    assert result.winner == result.places[0].candidate
    return [names[place.candidate] for place in result.places], result.tied


def test_the_fastest_wins() -> None:
    assert ranked([entry("a"), entry("b"), entry("c")], [30_000, 10_000, 20_000]) == (["b", "c", "a"], 1)


def test_ties_go_to_the_smaller_error_then_the_smaller_digest() -> None:
    assert ranked([entry("a", 0.5), entry("b", 0.2)], [10_000, 10_100]) == (["b", "a"], 2)
    assert ranked([entry("a", 0.5), entry("b", 0.2)], [10_000, 10_300]) == (["a", "b"], 1)
    equal = [entry("a"), entry("b")]
    smaller = min(equal, key=lambda e: e.candidate.digest).candidate.config.text("name")
    assert ranked(equal, [10_000, 10_000])[0][0] == smaller
    assert ranked(equal[::-1], [10_000, 10_000])[0][0] == smaller


def test_noise_widens_ties() -> None:
    assert ranked([entry("a", 0.5), entry("b", 0.2)], [10_000, 10_500], spread=0.02) == (["b", "a"], 2)


def test_nanoseconds_decide_nothing() -> None:
    """A call of a few nanoseconds, in whole ones: one more is a seventh."""
    assert ranked([entry("a", 0.5), entry("b", 0.2)], [3, 8]) == (["b", "a"], 2)
    assert ranked([entry("a", 0.5), entry("b", 0.2)], [3, 9]) == (["a", "b"], 1)
    result = hold_contest(PAIR, OneCase(), runs((7, 12, 40)), cold=False)
    assert (result.spread, result.winner) == (0.0, PAIR[0].candidate.digest)


def test_a_pair_that_waits_for_memory_widens_the_ties() -> None:
    """Of 300 ns, 45 are a seventh and half a wait for memory: no reason to end a certification."""
    executor = runs(*[(300, 345, 395)] * 3)
    result = hold_contest([entry("a", 0.5), entry("b", 0.2)], OneCase(), executor, cold=True)
    assert executor.rests == [0, 0, 0]
    assert result.spread == pytest.approx(40 / 300)
    assert [place.time_ns for place in result.places] == [395, 345], "a tie, which the smaller error wins"


def test_code_that_is_generated_at_open_wins_only_alone() -> None:
    assert ranked([entry("a", jit=True), entry("b")], [1_000, 10_000])[0] == ["b", "a"]
    assert ranked([entry("a", jit=True), entry("b", jit=True)], [10_000, 1_000])[0] == ["b", "a"]


def test_code_that_is_generated_at_open_may_be_allowed_to_win() -> None:
    entries = [entry("a", jit=True), entry("b")]
    times = [samples(1_000), samples(10_000)]
    result = rank(entries, times, 0.0, ExecutorKind.DEVICE, jit_is_free=True)
    assert result.winner == entries[0].candidate.digest


@dataclass(frozen=True)
class OneCase:
    """A case that is never judged."""

    dims: Mapping[str, int] = field(default_factory=dict)
    inputs: Inputs = field(default_factory=lambda: {0: np.zeros(1, np.float32)})
    name: str = "rand/0"
    counted: bool = True

    def judge(self, outputs: Mapping[int, Array], terms: str) -> Judgement:
        raise AssertionError("a contest judges no outputs")


class Recorded:
    """An executor that answers with recorded samples."""

    kind = ExecutorKind.DEVICE

    def __init__(self, answers: Sequence[Sequence[TimingSamples]]) -> None:
        self.answers = list(answers)
        self.rests: list[int] = []

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        self.rests.append(protocol.rest_ns)
        found = tuple(self.answers.pop(0))
        assert len(found) == len(artifacts) == len(inputs)
        return found

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        raise AssertionError("a contest only times")

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        raise AssertionError("a contest only times")

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass


PAIR = [entry("a"), entry("b")]


def runs(*rows: tuple[int, int, int]) -> Recorded:
    """Times of the first participant, of the same again, and of the second, run by run; each run begins one later."""
    return Recorded(
        [[samples(row[(slot + run) % 3]) for slot in range(3)] for run, row in enumerate(rows)],
    )


def test_an_unsteady_pair_is_timed_again_and_the_fastest_of_each_counts() -> None:
    executor = runs((10_000, 10_800, 9_900), (10_900, 10_050, 30_000))
    result = hold_contest([PAIR[0], entry("b", 0.9)], OneCase(), executor, cold=False)
    assert executor.answers == []
    assert executor.rests == [0, 0]
    assert result.spread == pytest.approx(0.0045), "what samples do not resolve is not counted"
    assert [place.time_ns for place in result.places] == [10_050, 9_900], "a tie, which the smaller error wins"


def test_places_in_memory_are_given_to_each_in_turn() -> None:
    """What lies second is slow, whoever it is: after three runs everyone lay everywhere."""
    slow = 12_000
    executor = Recorded([[samples(10_000), samples(slow), samples(10_000)] for _ in range(3)])
    result = hold_contest(PAIR, OneCase(), executor, cold=False)
    assert result.spread == 0.0
    assert {place.time_ns for place in result.places} == {10_000}
    assert len(executor.answers) == 1, "two runs are enough"


def test_a_clock_that_cannot_tell_a_kernel_from_itself_ranks_nothing() -> None:
    with pytest.raises(TimingUntrusted):
        hold_contest(PAIR, OneCase(), runs(*[(10_000, 12_000, 5_000)] * PATIENCE), cold=False)


def test_a_wild_clock_is_given_more_and_more_time_and_may_calm_down() -> None:
    executor = runs(*[(10_000, 12_000, 20_000)] * (PATIENCE - 1), (10_000, 10_500, 20_000))
    assert hold_contest(PAIR, OneCase(), executor, cold=False).winner == PAIR[0].candidate.digest
    assert executor.answers == []
    quarter = 250_000_000
    assert executor.rests == [0, 0, 0, quarter, 2 * quarter, 4 * quarter, 8 * quarter, 16 * quarter]


def test_one_participant_wins_whatever_the_clock_says() -> None:
    executor = Recorded([[samples(10_000), samples(20_000)]])
    result = hold_contest(PAIR[:1], OneCase(), executor, cold=False)
    assert result.winner == PAIR[0].candidate.digest
    assert executor.answers == []


def test_a_contest_needs_participants() -> None:
    with pytest.raises(InternalError):
        hold_contest([], OneCase(), Recorded([]), cold=False)
