"""Admission as a whole: every signature is served, and the assembled image computes the program."""

from __future__ import annotations

import pytest

from tribunus.planning.schedule import Demand
from tribunus_certify.walking import require_program, require_served


def test_signature(demand: Demand, request: pytest.FixtureRequest) -> None:
    """The demand has an admitted candidate, or another cover does without it; its contest ranks the admitted."""
    require_served(demand, request)


def test_program(case: str, request: pytest.FixtureRequest) -> None:
    """The image, replayed on a case before it is signed, is within the program's budget, twice with equal bits."""
    require_program(case, request)
