"""Launches cut into parts: the same results on any number of threads, no deadlock, nothing left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

import tribunus
from tests.runtime.conftest import MakeImage, Toy, rows
from tribunus.errors import DeviceError
from tribunus.plan.plan import Plan
from tribunus.runtime.session import Session

CPUS = len(os.sched_getaffinity(0))
REPLAYS = 40


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tribunus-helper"]


def outputs_of(session: Session, count: int) -> list[bytes]:
    found = []
    for seed in range(count):
        session.inputs["x"][...] = rows(session.dims["rows"], seed)
        session.replay()
        found.append(session.outputs["y"].tobytes())
    return found


@pytest.mark.parametrize("parts", [2, 3, 2 * CPUS + 1])
@pytest.mark.parametrize("count", [1, 64])
def test_parts_give_what_one_thread_gives(
    make_image: MakeImage, path: Path, tmp_path: Path, parts: int, count: int
) -> None:
    """With more parts than processors, and with parts that have nothing to do."""
    with tribunus.open(path) as single:
        expected = outputs_of(single.bind({"rows": count}), REPLAYS)
    with tribunus.open(make_image(tmp_path / "parts.tci", Toy(parts=parts))) as image:
        session = image.bind({"rows": count})
        assert len(helpers()) == parts - 1
        assert outputs_of(session, REPLAYS) == expected
    assert helpers() == []


def test_helpers_that_have_parked_are_woken(make_image: MakeImage, tmp_path: Path) -> None:
    toy = Toy(parts=2)
    with tribunus.open(make_image(tmp_path / "parts.tci", toy)) as image:
        session = image.bind({"rows": 8})
        for seed in range(5):
            threading.Event().wait(0.02)  # far longer than anybody spins
            session.reset()
            session.inputs["x"][...] = rows(8, seed)
            session.replay()
            np.testing.assert_array_equal(session.outputs["y"], toy.expected(rows(8, seed)))


def test_launches_of_one_part_need_no_helper_and_no_barrier(make_image: MakeImage, tmp_path: Path) -> None:
    def one_part(plan: Plan) -> Plan:
        profiles = [replace(p, launches=tuple(replace(c, parts=1) for c in p.launches)) for p in plan.profiles]
        return replace(plan, profiles=tuple(profiles))

    toy = Toy(parts=3)
    with tribunus.open(make_image(tmp_path / "parts.tci", toy, change=one_part)) as image:
        assert image.plan.threads == 3
        np.testing.assert_array_equal(image.run({"x": rows(6)})["y"], toy.expected(rows(6)))
        assert helpers() == []


def test_launches_of_one_part_and_of_several_mix(make_image: MakeImage, tmp_path: Path) -> None:
    def every_other(plan: Plan) -> Plan:
        profile = plan.profiles[0]
        launches = [replace(c, parts=1 + n % 2 * 2) for n, c in enumerate(profile.launches)]
        return replace(plan, profiles=(replace(profile, launches=tuple(launches)),))

    toy = Toy(parts=3, launches=9)
    with tribunus.open(make_image(tmp_path / "parts.tci", toy, change=every_other)) as image:
        session = image.bind({"rows": 33})
        for seed in range(REPLAYS):
            session.reset()
            session.inputs["x"][...] = rows(33, seed)
            session.replay()
            np.testing.assert_array_equal(session.outputs["y"], toy.expected(rows(33, seed)))


def test_a_session_that_nobody_refers_to_ends_its_helpers(make_image: MakeImage, tmp_path: Path) -> None:
    image = tribunus.open(make_image(tmp_path / "parts.tci", Toy(parts=3)))
    session = image.bind({"rows": 4})
    session.replay()
    assert len(helpers()) == 2
    del session
    gc.collect()
    assert helpers() == []
    image.close()


def test_closing_ends_helpers_and_is_idempotent(make_image: MakeImage, tmp_path: Path) -> None:
    image = tribunus.open(make_image(tmp_path / "parts.tci", Toy(parts=4)))
    sessions = [image.bind({"rows": count}) for count in (1, 2, 3)]
    assert len(helpers()) == 9
    sessions[0].close()
    assert len(helpers()) == 6
    image.close()
    assert helpers() == []
    sessions[1].close()


def test_a_thread_that_cannot_start_is_an_error_and_not_a_deadlock(
    make_image: MakeImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tribunus.open(make_image(tmp_path / "parts.tci", Toy(parts=4)))
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def third_fails(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_fails)
    with pytest.raises(DeviceError, match=r"part 3 of 4 cannot start"):
        image.bind({"rows": 2})
    assert len(started) == 2 and helpers() == []
    image.close()


def test_a_process_with_helpers_ends_by_itself(
    make_image: MakeImage, tmp_path: Path, fresh: Callable[..., CompletedProcess[str]]
) -> None:
    script = (
        "import sys, tribunus; image = tribunus.open(sys.argv[1]); session = image.bind({'rows': 3});"
        "session.replay(); print('replayed')"
    )
    done = fresh(script, make_image(tmp_path / "parts.tci", Toy(parts=3)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "replayed\n", "")
