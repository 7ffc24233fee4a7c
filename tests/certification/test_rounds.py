"""What is proposed, and what is proposed next once everything was refused."""

from __future__ import annotations

import pytest

from tests.certification.conftest import Certify, ToyBackend, admit, refuse
from tribunus.admission.probe import KEPT, ProbeResult, fastest
from tribunus.admission.receipt import Check
from tribunus.candidates.model import Artifact
from tribunus.certification import pipeline
from tribunus.certification.pipeline import ROUNDS
from tribunus.errors import InputError
from tribunus.frontend.bindings import Bound


def numbers(items: object) -> list[int]:
    assert isinstance(items, list)
    return [item.candidate.config.integer("n") for item in items]


def test_a_refused_candidate_is_followed_by_the_next_best(certify: Certify) -> None:
    certification = certify()
    first = certification.propose()
    refuse(first)
    second = certification.next_round()
    assert (numbers(first), numbers(second)) == ([0], [1])
    assert [item.round for item in certification.items] == [1, 2]


def test_backends_hear_what_was_refused_by_which_check_and_why(certify: Certify, backend: ToyBackend) -> None:
    certification = certify()
    [item] = certification.propose()
    refuse([item], Check.LAYOUT)
    certification.next_round()
    [refusal] = backend.heard[-1]
    assert (refusal.candidate, refusal.check) == (item.candidate.digest, "layout")
    assert refusal.reason == "element beyond its budget" and refusal.figures == (("error", "3 ulp", "2 ulp"),)


def test_rounds_are_limited(certify: Certify) -> None:
    certification = certify()
    fresh = certification.propose()
    for _ in range(ROUNDS):
        refuse(fresh)
        fresh = certification.next_round()
    assert not fresh and numbers(certification.items) == list(range(ROUNDS))


def test_a_backend_that_has_nothing_else_ends_the_rounds(certify: Certify, backend: ToyBackend) -> None:
    backend.amount = 1
    certification = certify()
    refuse(certification.propose())
    assert certification.next_round() == []
    assert len(certification.refused()) == 1


@pytest.mark.parametrize("judged", [False, True])
def test_no_round_follows_while_a_candidate_is_unjudged_or_admitted(certify: Certify, judged: bool) -> None:
    certification = certify(limit=2)
    refused, other = certification.propose()
    refuse([refused])
    if judged:
        admit(other)
    assert certification.refused() == () and certification.next_round() == []


def test_a_candidate_that_cannot_be_built_counts_as_refused(certify: Certify, backend: ToyBackend) -> None:
    backend.unbuildable = frozenset((0,))
    certification = certify()
    certification.build(certification.propose())
    assert certification.items[0].note == "the build failed: the compiler is away"
    assert numbers(certification.next_round()) == [1]


def test_a_case_outside_the_range_is_refused_by_name(certify: Certify) -> None:
    with pytest.raises(InputError, match=r"case 'large' does not fit batch=1:2:5: x \[9, 4\]"):
        certify(batch=Bound(1, 2, 5), cases={"small": 3, "large": 9})


def test_intermediates_are_captured_at_two_different_dims(certify: Certify) -> None:
    cases = {"a": 3, "b": 3, "c": 5, "d": 1}
    certification = certify(batch=Bound(1, 2, 5), cases=cases)
    [demand] = certification.demands
    book = certification._case_book(demand.signature)
    captured = [case for case in book.oracle_cases() if case.descriptor.family.value == "captured"]
    assert [case.dims["d0"] for case in captured] == [3, 5]


def test_cases_inside_the_range_are_kept(certify: Certify) -> None:
    certification = certify(batch=Bound(1, 2, 5), cases={"low": 1, "high": 5})
    assert [case.name for case in certification.captured] == ["low", "high"]


def probed(monkeypatch: pytest.MonkeyPatch, times: dict[int, int]) -> list[int]:
    """Replaces the timing of a probe by told times; returns how many took part each time."""
    held: list[int] = []

    def hold(artifacts: list[Artifact], case: object, executor: object, *, jit_is_free: bool) -> ProbeResult:
        held.append(len(artifacts))
        told = {a.digest: times[a.candidate.config.integer("n")] for a in artifacts}
        return ProbeResult(told, tuple(a.digest for a in fastest(artifacts, told, KEPT, jit_is_free=jit_is_free)))

    monkeypatch.setattr(pipeline, "hold_probe", hold)
    return held


TIMES = {n: 100 * (9 - n) for n in range(9)}
"""The last one proposed is the fastest."""


def test_slow_candidates_are_passed_over_before_the_first_check(
    certify: Certify, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = probed(monkeypatch, TIMES)
    certification = certify(limit=9)
    items = certification.propose()
    certification.build(items)
    for item in items:
        certification.probe(item)
    assert held == [9]
    assert numbers([i for i in items if not i.passed_over]) == [5, 6, 7, 8]
    assert items[0].passed_over.startswith("passed over: 9.00 times the fastest")
    again = certify(limit=9)
    again.build(again.propose())
    again.probe(again.items[0])
    assert held == [9], "the same probe was held twice"
    assert [i.passed_over for i in again.items] == [i.passed_over for i in items]


def test_who_was_passed_over_comes_back_when_the_others_were_refused(
    certify: Certify, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed(monkeypatch, TIMES)
    certification = certify(limit=9)
    items = certification.propose()
    certification.build(items)
    certification.probe(items[0])
    asked = len(backend.heard)
    refuse([i for i in items if not i.passed_over])
    second = certification.next_round()
    assert numbers(second) == [4, 3, 2, 1], "not the fastest that are left"
    refuse(second)
    assert numbers(certification.next_round()) == [0]
    assert len(backend.heard) == asked, "a backend was asked while candidates were waiting"
    assert len(certification.items) == 9


def test_what_was_chosen_by_hand_is_checked(certify: Certify, monkeypatch: pytest.MonkeyPatch) -> None:
    held = probed(monkeypatch, TIMES)
    certification = certify(limit=9)
    items = certification.propose()
    certification.build(items[:2])
    certification.probe(items[0])
    assert held == [] and not any(item.passed_over for item in items)
