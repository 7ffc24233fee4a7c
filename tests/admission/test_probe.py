"""The probe keeps what is worth checking: the fastest, one of each backend, and whatever died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.admission.samples import artifact, samples
from tests.faults.subjects import relu
from tribunus.admission.cases import CaseBook
from tribunus.admission.probe import KEPT, ProbeResult, fastest, hold_probe, probe_from_json, probe_key
from tribunus.candidates.model import Artifact
from tribunus.canon import Digest, Json, digest_bytes
from tribunus.errors import EncodingError, StructureError
from tribunus.isolation.executor import (
    Axis,
    DimValues,
    ExecutorKind,
    Fate,
    Inputs,
    Outcome,
    ReplayRuns,
    RunTerms,
    TimingProtocol,
    TimingSamples,
)

SUBJECT = relu(3, 5)
CASE = CaseBook(SUBJECT.signature).timing_case()


def named(name: str, backend: str = "toy", *, jit: bool = False) -> Artifact:
    made = artifact(SUBJECT, name)
    candidate = replace(made.candidate, backend=backend)
    return replace(made, candidate=candidate, recipe=replace(made.recipe, jit_at_open=jit))


MANY = [named(f"k{i}") for i in range(12)]


class Clock:
    """An executor that only times: each artifact takes what it is told."""

    kind = ExecutorKind.DEVICE

    def __init__(self, times: Mapping[Digest, int]) -> None:
        self.times = times
        self.held: list[tuple[int, int]] = []

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        self.held.append((len(artifacts), protocol.rounds))
        found = []
        for one in artifacts:
            told = self.times[one.digest]
            sample = samples(max(1, told))
            found.append(sample if told else replace(sample, fate=Fate.CRASHED, wall=()))
        return tuple(found)

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        raise AssertionError("a probe judges nothing")

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        raise AssertionError("a probe replays nothing")

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass


def kept(artifacts: Sequence[Artifact], told: Sequence[int], *, free: bool = False) -> list[Artifact]:
    times = {one.digest: time for one, time in zip(artifacts, told, strict=True)}
    return fastest(artifacts, times, 2, jit_is_free=free)


def test_the_fastest_are_kept_in_their_order() -> None:
    assert kept(MANY[:4], [40, 10, 30, 20]) == [MANY[1], MANY[3]]


def test_of_each_backend_the_fastest_is_kept() -> None:
    other = [named("o1", "other"), named("o2", "other")]
    assert kept([*MANY[:3], *other], [10, 20, 30, 99, 98]) == [MANY[0], MANY[1], other[1]]


def test_generated_code_takes_no_place_that_frozen_code_needs() -> None:
    jit = [named(f"j{i}", "other", jit=True) for i in range(3)]
    assert kept([*MANY[:3], *jit], [10, 20, 30, 1, 2, 3]) == [MANY[0], MANY[1], jit[0]]
    assert kept([*MANY[:3], *jit], [10, 20, 30, 1, 2, 3], free=True) == [jit[0], jit[1], MANY[0]]
    assert kept(jit, [1, 2, 3]) == jit[:2]


def test_what_died_is_kept_for_a_check_to_say_why() -> None:
    assert kept(MANY[:4], [10, 20, 30, 0]) == [MANY[3], MANY[0]]
    jit = named("j", "other", jit=True)
    assert kept([*MANY[:3], jit], [10, 20, 30, 0]) == [MANY[0], MANY[1], jit]


def test_half_of_them_are_timed_again_for_longer() -> None:
    told = {one.digest: 1000 * (i + 1) for i, one in enumerate(MANY)}
    clock = Clock(told)
    result = hold_probe(MANY, CASE, clock, jit_is_free=False)
    assert result.kept == tuple(one.digest for one in MANY[:KEPT])
    assert clock.held == [(12, 2), (6, 4)]
    assert set(result.times) == set(told)


def test_many_share_children_in_parts() -> None:
    many = [named(f"m{i}") for i in range(40)]
    clock = Clock({one.digest: 1000 + i for i, one in enumerate(many)})
    assert len(hold_probe(many, CASE, clock, jit_is_free=False).kept) == KEPT
    assert [count for count, _ in clock.held] == [16, 16, 8, 16, 4, 10, 5]


def test_the_document_round_trips_and_nothing_else_is_taken_for_one() -> None:
    result = ProbeResult({MANY[0].digest: 7, MANY[1].digest: 0}, (MANY[0].digest,))
    assert probe_from_json(result.document()) == result
    wrongs: list[Json] = [None, {}, {"times": [], "kept": 3}, {"times": [[MANY[0].digest]], "kept": []}]
    for wrong in wrongs:
        with pytest.raises((EncodingError, StructureError)):
            probe_from_json(wrong)


@pytest.mark.parametrize("other", [MANY[:5], [*MANY[:5], MANY[6]]])
def test_the_key_names_who_takes_part(other: list[Artifact]) -> None:
    machine = digest_bytes(b"machine")
    assert probe_key(MANY[:6], machine, "needed") != probe_key(other, machine, "needed")
    assert probe_key(other, machine, "needed") != probe_key(other, machine, "free")
