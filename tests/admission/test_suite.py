"""The suite's identity covers the source of everything that judges."""

from __future__ import annotations

from importlib import resources

from tribunus.admission.receipt import SUITE
from tribunus.admission.suite import ROOMS, suite_identity


def test_it_names_the_version_and_is_stable() -> None:
    assert suite_identity().startswith(f"{SUITE} ")
    assert suite_identity() == suite_identity()


def test_every_room_that_judges_is_there() -> None:
    for room in ROOMS:
        assert any(entry.name.endswith(".py") for entry in resources.files(room).iterdir())
