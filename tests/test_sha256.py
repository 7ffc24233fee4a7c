"""SHA-256: one hash, whichever library computes it."""

from __future__ import annotations

import hashlib
import threading

import pytest

from tribunus.sha256 import LARGE, sha256


@pytest.mark.parametrize("size", [0, 1, 55, 64, 65536, LARGE - 1, LARGE, LARGE + 1])
def test_the_hash_is_that_of_the_standard_library(size: int) -> None:
    data = bytes(size)
    expected = hashlib.sha256(data).digest()
    assert sha256(data) == sha256(bytearray(data)) == sha256(memoryview(data)) == expected


def test_a_part_of_a_view_is_hashed_alone() -> None:
    assert sha256(memoryview(b"abcdef")[2:4]) == hashlib.sha256(b"cd").digest()


def test_threads_that_hash_at_once_do_not_disturb_each_other() -> None:
    found: dict[int, bytes] = {}

    def work(first: int) -> None:
        found.update((n, sha256(n.to_bytes(8, "big"))) for n in range(first, 2000, 4))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: hashlib.sha256(n.to_bytes(8, "big")).digest() for n in range(2000)}
