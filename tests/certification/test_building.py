"""Builds: from the store or by the backend, in folders that last, with failures by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.certification.conftest import Certify, ToyBackend, admit
from tribunus.admission.receipt import Check, Receipt
from tribunus.certification import building
from tribunus.certification.pipeline import Item, JitUse
from tribunus.errors import EnvironmentFault, InternalError


def test_only_what_is_asked_for_is_built(certify: Certify, backend: ToyBackend) -> None:
    certification = certify(limit=5)
    items = certification.propose()
    certification.build(items[1:3])
    assert [item.artifact is not None for item in items] == [False, True, True, False, False]
    assert len(backend.places) == 2 and items[1].key["candidate"] == items[1].candidate.digest


def test_what_was_built_once_is_taken_from_the_store(certify: Certify, backend: ToyBackend) -> None:
    first, second = certify(limit=3), certify(limit=3)
    first.build(first.propose())
    backend.unbuildable = frozenset(range(9))
    second.build(second.propose())
    assert [i.artifact for i in second.items] == [i.artifact for i in first.items]
    assert len(backend.places) == 3 and not any(item.note for item in second.items)


def test_builds_share_folders_that_go_with_the_session(certify: Certify, backend: ToyBackend) -> None:
    certification = certify(limit=6)
    certification.build(certification.propose())
    assert len(backend.places) == 6 and len(set(backend.places)) <= 2
    assert all(place.is_dir() and place.name == "toy" for place in backend.places)
    certification.close()
    assert not any(place.exists() for place in backend.places)


def test_a_failed_build_on_a_full_disk_is_the_disks(
    certify: Certify, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.unbuildable = frozenset((1,))
    certification = certify(limit=3)
    items = certification.propose()
    certification.build(items)
    assert [bool(item.note) for item in items] == [False, True, False]
    monkeypatch.setattr(building, "LEAST_BYTES", 1 << 62)
    again = certify(limit=3)
    with pytest.raises(EnvironmentFault, match="full"):
        again.build(again.propose())


def test_kernels_that_generate_code_are_left_out_where_asked(certify: Certify, backend: ToyBackend) -> None:
    backend.generates = True
    certification = certify(jit=JitUse.NEVER)
    certification.build(certification.propose())
    assert certification.items[0].artifact is None and "--jit-at-open never" in certification.items[0].note


def test_a_plan_needs_a_sequencer(certify: Certify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tribunus.certification.pipeline.installed_backends", lambda: ())
    with pytest.raises(InternalError, match="no backend offers a sequencer"):
        certify().host_code("sequencer")


def test_a_contest_of_one_needs_no_run(certify: Certify) -> None:
    certification = certify()
    [item] = certification.propose()
    certification.build([item])
    admit(item)
    result = certification.contest(item.demand)
    assert result.winner == item.candidate.digest
    [place] = result.places
    timing = timed(item.receipts)
    assert min(timing) <= place.time_ns <= place.p99_ns <= max(timing)
    assert place.error_share == item.error_share > 0


def timed(receipts: Sequence[Receipt]) -> tuple[int, ...]:
    [found] = [receipt.timing for receipt in receipts if receipt.check is Check.TIMING]
    assert found is not None
    return found.warm_ns


def test_items_of_a_demand_are_found_by_it(certify: Certify) -> None:
    certification = certify(limit=3)
    items: list[Item] = certification.propose()
    assert list(certification.items_of(items[0].demand)) == items
    other = certify(limit=3)
    assert list(other.items_of(items[0].demand)) == []
