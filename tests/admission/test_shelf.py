"""Worked out vectors: few in memory, the rest with the keeper, and worked out again where that lost them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.faults.subjects import gemm
from tribunus.admission.cases import CaseBook
from tribunus.admission.shelf import Shelf
from tribunus.canon import Digest, digest_bytes
from tribunus.oracle.frozen import Worked

SUBJECT = gemm(7, 33, 9)


class Drawer:
    """Keeps bytes in memory and counts."""

    def __init__(self) -> None:
        self.kept: dict[Digest, bytes] = {}
        self.hits = 0

    def get(self, key: Digest) -> npt.NDArray[np.uint8] | None:
        if key not in self.kept:
            return None
        self.hits += 1
        return np.frombuffer(self.kept[key], np.uint8)

    def put(self, key: Digest, parts: list[bytes | memoryview]) -> None:
        self.kept[key] = b"".join(parts)


def a_vector(value: float) -> Worked:
    return Worked({0: np.full(100, value)}, ())


def test_only_what_was_used_last_stays_in_memory() -> None:
    drawer, made = Drawer(), []
    shelf = Shelf(drawer, limit=2000)
    keys = [digest_bytes(bytes([i])) for i in range(3)]

    def fetch(number: int) -> float:
        def work() -> Worked:
            made.append(number)
            return a_vector(float(number))

        return float(shelf.fetch(keys[number], work).inputs[0][0])

    assert [fetch(i) for i in (0, 1, 2, 2, 1)] == [0.0, 1.0, 2.0, 2.0, 1.0]
    assert (made, drawer.hits) == ([0, 1, 2], 0)
    assert fetch(0) == 0.0
    assert (made, drawer.hits) == ([0, 1, 2], 1), "the oldest was not let go, or not kept"
    drawer.kept.clear()
    assert fetch(2) == 2.0
    assert made == [0, 1, 2, 2], "what the keeper lost was not worked out again"


def test_damaged_bytes_are_worked_out_again() -> None:
    drawer, key = Drawer(), digest_bytes(b"key")
    drawer.kept[key] = b"something else"
    assert Shelf(drawer).fetch(key, lambda: a_vector(3.0)).inputs[0][0] == 3.0


def test_a_second_book_takes_its_goldens_from_the_keeper() -> None:
    drawer = Drawer()
    first = CaseBook(SUBJECT.signature, (), drawer)
    records = [case.digest for case in first.oracle_cases()]
    assert drawer.hits == 0
    assert len(drawer.kept) == len(records)
    second = CaseBook(SUBJECT.signature, (), drawer)
    assert [case.digest for case in second.oracle_cases()] == records
    assert drawer.hits == len(records)
    for one, other in zip(first.oracle_cases(), second.oracle_cases(), strict=True):
        outputs = {g.id: g.presented for g in one.goldens}
        assert other.judge(outputs, "dense") == one.judge(outputs, "dense")


def test_captured_operands_are_kept_by_their_contents() -> None:
    drawer = Drawer()
    given = dict(CaseBook(SUBJECT.signature).oracle_cases()[0].inputs)
    CaseBook(SUBJECT.signature, [given], drawer).oracle_cases()
    before = set(drawer.kept)
    changed = {**given, 0: np.asarray(given[0] + 1)}
    CaseBook(SUBJECT.signature, [changed], drawer).oracle_cases()
    assert len(set(drawer.kept) - before) == 1
