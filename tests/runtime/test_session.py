"""Binding, running, closing: what a caller of an opened image sees."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tribunus
from tests.runtime.conftest import MAX_ROWS, MakeImage, Toy, rows
from tribunus.devices.cpu import ExecutableBytes, Walker, host_machine_code
from tribunus.errors import DeviceError, InputError, ProfileError, UsageError
from tribunus.runtime import session as session_module
from tribunus.runtime.session import SESSIONS_KEPT, Image, Session


def test_outputs_are_copies_of_what_the_program_computes(image: Image) -> None:
    x = rows(7)
    first = image.run({"x": x})["y"]
    np.testing.assert_array_equal(first, Toy().expected(x))
    kept = first.copy()
    image.run({"x": x + 1})
    np.testing.assert_array_equal(first, kept)


def test_the_zero_copy_form_shares_memory_with_the_session(image: Image) -> None:
    session = image.bind({"rows": 5})
    x = rows(5)
    assert session.inputs["x"].shape == session.outputs["y"].shape == (5, 4)
    assert session.inputs["x"].flags.aligned and session.inputs["x"].ctypes.data % 64 == 0
    session.inputs["x"][...] = x
    session.replay()
    np.testing.assert_array_equal(session.outputs["y"], Toy().expected(x))
    assert session.dims == {"rows": 5} and dict(session.phases) == {session.profile.name: session}
    with pytest.raises(TypeError):
        session.inputs["x"] = x  # type: ignore[index]


def test_states_belong_to_the_session_and_reset_restores_them(image: Image) -> None:
    one, two = image.bind({"rows": 3}), image.bind({"rows": 3})
    x = rows(3)
    for session in (one, two):
        session.inputs["x"][...] = x
    once = Toy().expected(x)
    one.replay()
    one.replay()
    two.replay()
    np.testing.assert_array_equal(one.outputs["y"], once + once)
    np.testing.assert_array_equal(two.outputs["y"], once)
    one.reset()
    one.replay()
    np.testing.assert_array_equal(one.outputs["y"], once)


def test_without_dims_the_expected_ones_are_bound(image: Image) -> None:
    assert image.bind().inputs["x"].shape == (1, 4)


def test_run_keeps_eight_sessions_and_drops_the_least_recently_used(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[int] = []

    class Counted(Session):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            bound.append(self.dims["rows"])

    monkeypatch.setattr(session_module, "Session", Counted)
    for count in [*range(1, SESSIONS_KEPT + 1), 1, SESSIONS_KEPT + 1, 1, 3, 2]:
        image.run({"x": rows(count)})
    assert bound == [*range(1, SESSIONS_KEPT + 2), 2]


def test_the_profile_follows_from_the_shapes(make_image: MakeImage, tmp_path: Path) -> None:
    toy = Toy(rows=((1, 4), (8, 16)))
    with tribunus.open(make_image(tmp_path / "two.tci", toy)) as image:
        for count in (2, 9, 16):
            x = rows(count)
            np.testing.assert_array_equal(image.run({"x": x})["y"], toy.expected(x))
        assert image.bind({"rows": 9}).profile.name == "rows=8:16"
        with pytest.raises(ProfileError, match=r"rows is 5, certified are 1 to 4.*rows is 5, certified are 8 to 16"):
            image.run({"x": rows(5)})


def test_dims_choose_among_profiles_that_have_them_as_numbers(image: Image) -> None:
    [profile] = image.plan.profiles
    names = ("rows=4 input.1[0]=2", "rows=8 input.1[0]=2")
    plan = replace(image.plan, profiles=tuple(replace(profile, name=name, symbols=()) for name in names))
    assert session_module._select(plan, {"rows": 8})[0].name == names[1]
    assert session_module._select(plan, {"input.1[0]": 2})[0].name == names[0]
    assert session_module._select(plan, {})[0].name == names[0]
    with pytest.raises(ProfileError, match=r"rows is 4 in rows=4 input.1\[0\]=2, not 5; rows is 8"):
        session_module._select(plan, {"rows": 5})
    with pytest.raises(ProfileError, match="no dim 'columns'"):
        session_module._select(plan, {"rows": 8, "columns": 1})


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "input 'x' is missing"),
        ({"x": rows(2), "z": rows(2)}, "unknown input 'z'"),
        ({"x": rows(2).astype(np.float64)}, "input 'x' is float64, float32 was expected"),
        ({"x": rows(2).astype(">f4")}, "input 'x' is >f4, float32 was expected"),
        ({"x": rows(2)[0]}, "input 'x' has rank 1, 2 was expected"),
        ({"x": rows(2).tolist()}, "input 'x' is a list, an array was expected"),
    ],
)
def test_wrong_inputs_are_refused_by_name(image: Image, inputs: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as refusal:
        image.run(inputs)
    assert refusal.value.detail.startswith(text)
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((0, 4), "rows is 0, certified are 1 to 64"),
        ((MAX_ROWS + 1, 4), "rows is 65, certified are 1 to 64"),
        ((2, 5), "input 'x' axis 1 is 5, 4 was expected"),
    ],
)
def test_shapes_that_no_profile_has_are_refused(image: Image, shape: tuple[int, int], text: str) -> None:
    with pytest.raises(ProfileError, match=text):
        image.run({"x": np.zeros(shape, np.float32)})


@pytest.mark.parametrize(
    ("dims", "text"),
    [({"rows": 0}, "rows is 0"), ({"rows": 65}, "certified are 1 to 64"), ({"columns": 4}, "no dim 'columns'")],
)
def test_dims_that_no_profile_has_are_refused(image: Image, dims: dict[str, int], text: str) -> None:
    with pytest.raises(ProfileError, match=text):
        image.bind(dims)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x[::-1],
        lambda x: np.ascontiguousarray(x.T).T,
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    ],
)
def test_inputs_of_any_strides_are_accepted_by_copy(
    image: Image, view: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
) -> None:
    x = view(rows(6))
    np.testing.assert_array_equal(image.run({"x": x})["y"], Toy().expected(np.ascontiguousarray(x)))


def test_a_closed_image_refuses_and_does_not_crash(path: Path) -> None:
    image = tribunus.open(path)
    session = image.bind({"rows": 2})
    session.inputs["x"][...] = 1
    session.replay()
    y = session.outputs["y"]
    image.close()
    image.close()
    with pytest.raises(UsageError, match="the session is closed"):
        session.replay()
    with pytest.raises(UsageError, match="the image is closed"):
        image.bind()
    with pytest.raises(UsageError, match="the image is closed"):
        image.run({"x": rows(2)})
    del session, image
    gc.collect()
    assert np.isfinite(y).all()  # a view keeps its memory


def test_a_closed_session_leaves_the_others_alone(image: Image) -> None:
    one, two = image.bind({"rows": 2}), image.bind({"rows": 2})
    one.close()
    one.close()
    with pytest.raises(UsageError):
        one.replay()
    two.inputs["x"][...] = rows(2)
    two.replay()
    np.testing.assert_array_equal(two.outputs["y"], Toy().expected(rows(2)))


def test_a_session_outlives_the_name_of_its_image(path: Path) -> None:
    session = tribunus.open(path).bind({"rows": 2})
    gc.collect()
    session.inputs["x"][...] = rows(2)
    session.replay()
    np.testing.assert_array_equal(session.outputs["y"], Toy().expected(rows(2)))


def test_two_images_live_side_by_side(path: Path, make_image: MakeImage, tmp_path: Path) -> None:
    longer = Toy(launches=9, name="longer")
    with tribunus.open(path) as one, tribunus.open(make_image(tmp_path / "longer.tci", longer)) as two:
        assert one.image_id != two.image_id
        for count in (1, 5, 64):
            x = rows(count)
            np.testing.assert_array_equal(one.run({"x": x})["y"], Toy().expected(x))
            np.testing.assert_array_equal(two.run({"x": x})["y"], longer.expected(x))


def test_threads_that_share_an_image_take_turns(image: Image) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = rows(9, seed)
        session = image.bind({"rows": 9})
        for _ in range(20):
            session.reset()
            session.inputs["x"][...] = x
            session.replay()
            if not np.array_equal(session.outputs["y"], Toy().expected(x)):
                wrong.append(seed)
            own = image.run({"x": rows(seed + 1, seed)})["y"]
            if own.shape != (seed + 1, 4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_that_flushes_subnormals_cannot_bind(image: Image) -> None:
    if "x86" not in image.plan.arch:
        pytest.skip("MXCSR is a register of x86-64")
    import ctypes

    code = ExecutableBytes(bytes.fromhex("0fae17c3"))  # ldmxcsr [rdi]; ret
    load = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)
    flushing, plain = ctypes.c_uint32(0x9FC0), ctypes.c_uint32(Walker().control_word())
    load(ctypes.addressof(flushing))
    try:
        with pytest.raises(DeviceError, match="control word flushes subnormals"):
            image.bind({"rows": 2})
    finally:
        load(ctypes.addressof(plain))
    image.bind({"rows": 2}).replay()
    assert host_machine_code().walk
