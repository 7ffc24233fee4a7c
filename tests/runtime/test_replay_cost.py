"""Replay is one call: no Python per launch, no allocation, no mapping; what sessions take is given back."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from pathlib import Path
from types import FrameType

import pytest

import tribunus
from tests.runtime.conftest import MakeImage, Toy, rows
from tribunus.runtime.session import Session


def python_events(session: Session) -> list[str]:
    """Python and C functions that one replay calls."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            seen.append(f"{event} {getattr(argument, '__name__', None) or frame.f_code.co_name}")

    session.replay()
    sys.setprofile(note)
    try:
        session.replay()
    finally:
        sys.setprofile(None)
    return [event for event in seen if event != "c_call setprofile"]


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("parts", [1, 2])
def test_a_replay_is_one_python_call_however_many_launches(make_image: MakeImage, tmp_path: Path, parts: int) -> None:
    counts: list[list[str]] = []
    for launches in (2, 300):
        with tribunus.open(make_image(tmp_path / f"{launches}.tci", Toy(launches=launches, parts=parts))) as image:
            counts.append(python_events(image.bind({"rows": 2})))
    assert counts == [["call replay"], ["call replay"]]


def test_a_replay_allocates_nothing(make_image: MakeImage, tmp_path: Path) -> None:
    with tribunus.open(make_image(tmp_path / "long.tci", Toy(launches=200))) as image:
        session = image.bind({"rows": 64})
        replays = [None] * 1000
        for _ in replays:
            session.replay()
        gc.collect()
        tracemalloc.start()
        try:
            blocks, mapped = sys.getallocatedblocks(), mappings()
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for _ in replays:
                session.replay()
            after, peak = tracemalloc.get_traced_memory()
            kept = sys.getallocatedblocks() - blocks
            remapped = mappings() - mapped
        finally:
            tracemalloc.stop()
    assert after - before < 1024 and abs(kept) < 64 and remapped == 0
    assert peak - before < 2048  # arguments of the one foreign call, whatever the number of launches


def test_memory_of_sessions_is_given_back(path: Path) -> None:
    with tribunus.open(path) as image:
        for count in range(1, 65):
            image.run({"x": rows(count)})
        gc.collect()
        mapped, blocks = mappings(), sys.getallocatedblocks()
        for _ in range(3):
            for count in range(1, 65):
                image.run({"x": rows(count)})
        gc.collect()
        assert mappings() <= mapped + 4
        assert sys.getallocatedblocks() - blocks < 500


def test_memory_of_images_is_given_back(path: Path) -> None:
    def once() -> None:
        tribunus.open(path).run({"x": rows(3)})

    for _ in range(3):
        once()
    gc.collect()
    mapped, blocks = mappings(), sys.getallocatedblocks()
    for _ in range(20):
        once()
    gc.collect()
    assert mappings() <= mapped + 4
    assert sys.getallocatedblocks() - blocks < 1000


def test_code_is_mapped_once_and_is_never_writable(path: Path) -> None:
    def executable() -> set[str]:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return {line for line in lines if "x" in line.split()[1] and len(line.split()) == 5}

    before = executable()
    image = tribunus.open(path)
    session = image.bind({"rows": 2})
    more = executable() - before
    assert 1 <= len(more) <= 3  # the pack, and the two routines that read the control word
    assert all(line.split()[1] == "r-xp" for line in more)
    session.close()
    image.close()
    assert executable() - before == set()
