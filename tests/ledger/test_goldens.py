"""Goldens on disk: kept whole, refused damaged, and never more of them than was allowed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tribunus.canon import digest_bytes
from tribunus.ledger import goldens
from tribunus.ledger.goldens import GoldenStore

KEYS = [digest_bytes(bytes([i])) for i in range(4)]


def parts(number: int, size: int = 1000) -> list[bytes | memoryview]:
    return [b"head", memoryview(bytes([number]) * size)]


def taken(store: GoldenStore, number: int) -> bytes | None:
    found = store.get(KEYS[number])
    return None if found is None else found.tobytes()


def test_what_was_put_is_found_by_another_session(tmp_path: Path) -> None:
    GoldenStore(tmp_path / "goldens").put(KEYS[0], parts(7))
    again = GoldenStore(tmp_path / "goldens")
    assert taken(again, 0) == b"head" + bytes([7]) * 1000
    assert taken(again, 1) is None


@pytest.mark.parametrize("place", [0, 20, 60, 500, -1])
def test_a_damaged_file_is_no_golden(tmp_path: Path, place: int) -> None:
    store = GoldenStore(tmp_path)
    store.put(KEYS[0], parts(7))
    file = tmp_path / KEYS[0]
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    assert taken(store, 0) is None
    assert not file.exists(), "it would be read again and again"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path, limit=2500)
    store.put(KEYS[0], parts(0))
    store.put(KEYS[1], parts(1))
    assert taken(store, 0)
    store.put(KEYS[2], parts(2))
    assert [taken(store, i) is not None for i in range(3)] == [True, False, True]
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= 2500
    store.put(KEYS[3], parts(3, 5000))
    assert taken(store, 3) is None, "larger than the store"
    assert taken(store, 2)


def test_half_written_files_of_a_killed_session_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".half.tmp").write_bytes(b"x" * 100)
    GoldenStore(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_loses_the_copy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goldens, "FREE_BYTES", 1 << 62)
    store = GoldenStore(tmp_path)
    store.put(KEYS[0], parts(0))
    assert taken(store, 0) is None
    assert np.array(list(tmp_path.iterdir())).size == 0


def test_threads_that_write_and_make_room_leave_it_whole(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path, limit=20_000)
    keys = [digest_bytes(b"%d" % i) for i in range(60)]

    def use(number: int) -> bool:
        for turn in range(40):
            key = keys[(number * 17 + turn) % len(keys)]
            store.put(key, [key.encode() * 20])
            found = store.get(key)
            if found is not None and found.tobytes() != key.encode() * 20:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(16)))
    again = GoldenStore(tmp_path, limit=20_000)
    assert 0 < sum(f.stat().st_size for f in tmp_path.iterdir()) <= 20_000
    assert any(again.get(key) is not None for key in keys)
