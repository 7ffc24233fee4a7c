"""Peaks: measured when they are needed, the best ever seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tribunus.canon import digest_bytes
from tribunus.certification.peaks import PeakMeter, merge, peaks_from_json, peaks_to_json
from tribunus.ledger.documents import DocumentStore
from tribunus.targets.target import Peaks

MACHINE = digest_bytes(b"machine")
PLAIN = Peaks(1e11, 2e11, ((1 << 15, 3e11), (1 << 30, 1e10)), 40, digest_bytes(b"samples"))
QUIET = replace(PLAIN, flops=1.5e11, launch_ns=30)


@pytest.fixture
def documents(tmp_path: Path) -> DocumentStore:
    return DocumentStore(tmp_path)


class Measure:
    """Gives recorded peaks, one after another."""

    def __init__(self, *peaks: Peaks) -> None:
        self.left = list(peaks)

    def __call__(self) -> Peaks:
        return self.left.pop(0)


def test_nothing_is_measured_before_it_is_needed(documents: DocumentStore) -> None:
    measure = Measure(PLAIN)
    meter = PeakMeter(measure, documents, MACHINE)
    assert meter.seen is None and measure.left
    assert meter.best.flops == PLAIN.flops and meter.seen == meter.best and not measure.left


def test_earlier_sessions_count(documents: DocumentStore) -> None:
    assert PeakMeter(Measure(QUIET), documents, MACHINE).best.flops == QUIET.flops
    measure = Measure(PLAIN)
    meter = PeakMeter(measure, documents, MACHINE)
    assert meter.seen is not None and meter.seen.flops == QUIET.flops and measure.left
    assert meter.best.flops == QUIET.flops and meter.best.launch_ns == QUIET.launch_ns and not measure.left


def test_measuring_again_says_whether_it_helped(documents: DocumentStore) -> None:
    meter = PeakMeter(Measure(PLAIN, PLAIN, QUIET), documents, MACHINE)
    assert [meter.again(), meter.again()] == [False, True]
    assert meter.best.flops == QUIET.flops


def test_a_damaged_document_is_measured_again(documents: DocumentStore) -> None:
    documents.put("peaks", MACHINE, {"flops": "many"})
    assert PeakMeter(Measure(PLAIN), documents, MACHINE).best == PLAIN


def test_the_better_rate_wins_and_the_document_is_lossless() -> None:
    both = merge(PLAIN, QUIET)
    assert (both.flops, both.launch_ns, both.bandwidth) == (QUIET.flops, QUIET.launch_ns, PLAIN.bandwidth)
    assert peaks_from_json(peaks_to_json(both)) == both
