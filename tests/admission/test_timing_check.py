"""The timing check over recorded measurements: how often it measures, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.admission.samples import artifact, samples
from tests.faults.subjects import relu
from tribunus.admission.cases import CaseBook
from tribunus.admission.context import CheckContext
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import Receipt, Verdict, receipt_from_json, receipt_to_json
from tribunus.admission.timing_check import check_timing, tail_ratio
from tribunus.candidates.model import Artifact
from tribunus.canon import digest_bytes
from tribunus.errors import SchemaError
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
from tribunus.targets.target import Peaks, Target

SUBJECT = relu(7, 33)
HONEST, SPIKED = samples(), samples(singles=(10_000,) * 350 + (9_000_000,) * 50)
PEAKS = Peaks(1e11, 1e12, ((1 << 20, 1e11),), 100, digest_bytes(b"peaks"))


class Recorded:
    """An executor that computes relu and answers to timing with recorded samples."""

    kind = ExecutorKind.DEVICE

    def __init__(self, *measurements: TimingSamples) -> None:
        self.measurements = list(measurements)
        self.rests: list[int] = []

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        if protocol.cold:
            return (HONEST,)
        self.rests.append(protocol.rest_ns)
        return (self.measurements.pop(0),) * len(artifacts)

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        x = np.asarray(inputs[0], np.float32)
        right = {SUBJECT.signature.outputs[0]: np.asarray(np.where(x < 0, np.float32(0), x))}
        return Outcome(Fate.RETURNED, None, (right,), (), (), (), 0, 0, 1, 1, 0, 1, 1, 1)

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        raise AssertionError("the timing check does not replay")

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass


def checked(executor: Recorded) -> tuple[Verdict, str]:
    receipt = receipt_of(executor)
    return receipt.verdict, receipt.reason.kind if receipt.reason else ""


def receipt_of(executor: Recorded) -> Receipt:
    made = artifact(SUBJECT)
    context = CheckContext(
        signature=SUBJECT.signature,
        target=Target("cpu", "x86-64-v3", 1),
        policy=replace(STANDARD, slack=1e6),
        cases=CaseBook(SUBJECT.signature),
        layouts=SUBJECT.layouts,
        peaks=PEAKS,
        key_of=lambda a: {},
        expected_key={},
        audit=lambda a: (),
        used_features=lambda a: frozenset(),
        machine=digest_bytes(b"machine"),
        versions=(),
        clock_ns=lambda: 0,
    )
    return check_timing(made, executor, context)


def test_nothing_to_say_against_a_kernel_needs_one_measurement() -> None:
    executor = Recorded(HONEST)
    assert checked(executor) == (Verdict.PASSED, "")
    assert executor.rests == [0]


def test_a_burst_of_other_work_is_waited_out() -> None:
    executor = Recorded(SPIKED, SPIKED, HONEST)
    assert checked(executor) == (Verdict.PASSED, "")
    assert executor.rests == [0, 250_000_000, 500_000_000]


def test_what_is_seen_in_three_measurements_apart_is_refused() -> None:
    executor = Recorded(SPIKED, SPIKED, SPIKED)
    assert checked(executor) == (Verdict.REJECTED, "unstable")
    assert executor.measurements == []


@pytest.mark.parametrize("lost", [True, False])
def test_the_verdict_on_the_tail_follows_from_the_receipt_alone(lost: bool) -> None:
    """An auditor sees which calls lost the processor, and so what they are forgiven."""
    calls = (10_000,) * 350 + (200_000,) * 50
    sample = replace(samples(singles=calls), single_call_preempted=(False,) * 350 + (lost,) * 50)
    receipt = receipt_of(Recorded(sample, sample, sample))
    assert receipt.verdict is (Verdict.PASSED if lost else Verdict.REJECTED)
    read = receipt_from_json(receipt_to_json(receipt))
    assert read == receipt and read.timing is not None
    ratio = tail_ratio(read.timing.cpu_ns, read.timing.cpu_lost)
    assert (ratio <= STANDARD.tail_ratio) is lost


def test_a_receipt_names_no_call_that_was_not_made() -> None:
    document = receipt_to_json(receipt_of(Recorded(HONEST)))
    timing = document["timing"]
    assert isinstance(timing, dict)
    with pytest.raises(SchemaError, match="cpu_lost"):
        receipt_from_json(document | {"timing": timing | {"cpu_lost": [400]}})
