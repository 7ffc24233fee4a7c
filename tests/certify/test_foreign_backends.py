"""A backend with a code format of its own, known only by the entry points of another distribution."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.certify.conftest import ROOT, Desk, Said, install, no_traceback, save_case

BACKENDS = "[tribunus.backends]\nreference = tests.reference_backend.backend:BACKEND\n"
REPLAYERS = "\n[tribunus.replayers]\nnumpy = tests.reference_backend.replay:REPLAYER\n"


def patient(desk: Desk, points: str) -> tuple[Said, dict[str, str]]:
    """A session with that backend alone, which does not hurry NumPy."""
    site = desk.folder / "site"
    install(site, "numpy-backend", points)
    path = os.pathsep.join([str(site), str(ROOT), desk.environ({})["PYTHONPATH"]])
    extra = {"ODD": "patient", "PYTHONPATH": path}
    given = ("--dim", "batch=1:2:3", "--backend", "reference", "--effort", "1", "-p", "odd_session")
    return desk.certify("small.onnx", *given, extra=extra), extra


@pytest.fixture(scope="module")
def admitted(desk: Desk) -> tuple[Said, dict[str, str]]:
    """Every kernel is NumPy; the sequencer is that of a backend which was not asked for kernels."""
    return patient(desk, BACKENDS + REPLAYERS)


def test_its_kernels_are_admitted_and_make_an_image(admitted: tuple[Said, dict[str, str]]) -> None:
    said, _ = admitted
    assert said.code == 0, said.text
    candidates = said.report()["candidates"]
    assert isinstance(candidates, list)
    assert {(row["backend"], row["outcome"]) for row in candidates} == {("reference", "admitted")}
    assert len(candidates) == 3


def test_its_image_replays_where_it_is_installed_and_is_refused_elsewhere(
    admitted: tuple[Said, dict[str, str]], desk: Desk
) -> None:
    said, extra = admitted
    case = desk.folder / "case.npz"
    save_case(case, 2)
    words = ["run", str(said.file("tci")), "--inputs", str(case), "--outputs"]
    command = [sys.executable, "-m", "tribunus", *words]
    here = desk.run([*command, str(desk.folder / "y.npz")], desk.folder, extra)
    assert here.code == 0, here.text
    with np.load(desk.folder / "y.npz") as found:
        np.testing.assert_allclose(found["y"].sum(axis=-1), np.ones(2), rtol=1e-5)
    elsewhere = desk.run([*command, str(desk.folder / "z.npz")], desk.folder, {})
    assert elsewhere.code != 0 and no_traceback(elsewhere) and not (desk.folder / "z.npz").exists()
    assert "format 'numpy'" in elsewhere.err and "tribunus.replayers" in elsewhere.err


def test_a_format_without_replayer_is_one_message(fresh: Desk) -> None:
    said, _ = patient(fresh, BACKENDS)
    assert said.code != 0 and no_traceback(said)
    assert "no replayer for code of format 'numpy' is installed" in said.text and "tribunus.replayers" in said.text
    assert not list(Path(fresh.folder / "out").glob("*.tci"))
