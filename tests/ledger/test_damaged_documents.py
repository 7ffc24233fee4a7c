"""Documents that are kept to save work: whatever is wrong with one, it is made again, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.admission.samples import artifact
from tribunus.admission.contest import ContestResult, Place, contest_from_json
from tribunus.admission.probe import ProbeResult, probe_from_json
from tribunus.admission.receipt import Figure, Reason, Verdict
from tribunus.canon import Json, JsonObject, digest_bytes, encode
from tribunus.certification.peaks import peaks_from_json, peaks_to_json
from tribunus.certification.program_check import ProgramReceipt
from tribunus.certification.program_check import receipt_from_json as program_receipt_from_json
from tribunus.certification.witness_record import WitnessAnswer, WitnessRecord
from tribunus.isolation.executor import ExecutorKind
from tribunus.ledger.documents import DocumentStore
from tribunus.targets.target import Peaks

KEY = digest_bytes(b"key")
ONE = artifact().digest
CONTEST = ContestResult(KEY, ExecutorKind.DEVICE, (Place(ONE, 5, 7, 0.25),), ONE, 0.01, 1)
PROBE = ProbeResult({ONE: 7}, (ONE,))
PEAKS = Peaks(1e11, 1e12, ((1 << 20, 1e11),), 100, KEY)
PROGRAM = ProgramReceipt(
    profile="batch 1",
    case="cat",
    verdict=Verdict.REJECTED,
    reason=Reason("too far", "an output is too far from golden", (Figure("error", "3", "2"),)),
    bit_equal=True,
    error_share=1.5,
    elements=12,
    steps=3,
    witness=WitnessRecord(
        engine="onnxruntime",
        answer=WitnessAnswer.AGREES,
        reason="",
        output="y",
        distance=0.5,
        limit=16.0,
        compared=1,
        outputs=1,
    ),
    cpu_ns=10,
    wall_ns=11,
    wall_p99_ns=12,
    started_us=1,
    took_ns=2,
)
KINDS: dict[str, tuple[JsonObject, Callable[[Json], object], object]] = {
    "contest": (CONTEST.document(), contest_from_json, CONTEST),
    "probe": (PROBE.document(), probe_from_json, PROBE),
    "peaks": (peaks_to_json(PEAKS), peaks_from_json, PEAKS),
    "program": (PROGRAM.document(), program_receipt_from_json, PROGRAM),
}
WRONG: list[Json] = [None, True, -1, 2**50, "?", [], {}, [1], ["?", "?", "?"]]


def damaged(document: Json) -> Iterator[Json]:
    """``document`` with one value after the other replaced by what does not belong there, or left out."""
    yield from WRONG
    if isinstance(document, dict):
        for name, value in document.items():
            rest = {other: kept for other, kept in document.items() if other != name}
            yield rest
            for wrong in damaged(value):
                yield rest | {name: wrong}
    if isinstance(document, list):
        for i, item in enumerate(document):
            for wrong in damaged(item):
                yield [*document[:i], wrong, *document[i + 1 :]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    document, read, value = KINDS[kind]
    store = DocumentStore(tmp_path)
    store.put(kind, KEY, document)
    assert store.get(kind, KEY, read) == value


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_of_another_form_is_none_and_nothing_worse(kind: str, tmp_path: Path) -> None:
    document, read, _ = KINDS[kind]
    store = DocumentStore(tmp_path)
    path = tmp_path / f"{kind}-{KEY}.json"
    wrongs = list(damaged(document))
    refused = 0
    for wrong in wrongs:
        path.write_bytes(encode(wrong))
        refused += store.get(kind, KEY, read) is None
    assert refused > len(wrongs) // 2
