"""Huge pages are asked for where an arena will be touched, and only there."""

from __future__ import annotations

import gc
import threading

import pytest

from tribunus.runtime.sequence import HUGE_BYTES, HUGE_PAGE, POPULATED_BYTES, _whole_pages, zeroed

QUARTER = HUGE_PAGE // 4


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([], []),
        ([(0, QUARTER - 1)], []),
        ([(0, QUARTER)], [(0, HUGE_PAGE)]),
        ([(2 * QUARTER, HUGE_PAGE + QUARTER)], [(0, 2 * HUGE_PAGE)]),
        ([(2 * HUGE_PAGE, 3 * HUGE_PAGE), (0, HUGE_PAGE)], [(0, HUGE_PAGE), (2 * HUGE_PAGE, 3 * HUGE_PAGE)]),
        ([(0, QUARTER - 8), (0, QUARTER - 8), (16, QUARTER - 8)], []),  # the same bytes count once
        ([(0, QUARTER // 2), (QUARTER, QUARTER + QUARTER // 2)], [(0, HUGE_PAGE)]),
    ],
)
def test_pages_that_are_used_by_a_quarter_become_runs(
    used: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert _whole_pages(used) == expected


@pytest.mark.parametrize("size", [0, 1, HUGE_BYTES - 1, HUGE_BYTES, HUGE_BYTES + 1, 3 * HUGE_PAGE])
@pytest.mark.parametrize("used", [None, [], [(0, 1)], [(0, 2 * HUGE_PAGE)]])
def test_memory_is_zeroed_and_at_least_as_long(size: int, used: list[tuple[int, int]] | None) -> None:
    memory = zeroed(size, None if used is None else [(b, min(e, size)) for b, e in used])
    assert len(memory) >= size
    assert not any(memory[:64]) and not any(memory[-64:])


def test_a_large_arena_is_populated_beside_its_use_and_keeps_what_is_written() -> None:
    before = set(threading.enumerate())
    memory = zeroed(POPULATED_BYTES)
    places = range(0, POPULATED_BYTES, HUGE_PAGE // 2)
    for place in places:
        memory[place] = 7
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert all(memory[place] == 7 and memory[place + 1] == 0 for place in places)


def test_an_arena_that_nobody_wants_any_more_may_go_while_it_is_populated() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        zeroed(POPULATED_BYTES)
        gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert zeroed(HUGE_BYTES)[0] == 0
