"""A pytest plug-in that changes one thing about the session: ``ODD`` says which."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

ODD = os.environ["ODD"]


def pytest_configure(config: pytest.Config) -> None:
    from tribunus.isolation import worker

    measure = worker.measure

    def late(*given: Any, **named: Any) -> Sequence[Any]:
        """The child's clock runs at half the speed of the parent's."""
        return tuple(replace(s, wall=tuple(w // 2 for w in s.wall)) for s in measure(*given, **named))

    def broken(*given: Any, **named: Any) -> Sequence[Any]:
        raise ZeroDivisionError("nobody expects this")

    if ODD == "clock":
        worker.measure = late
    elif ODD == "bug":
        worker.measure = broken
    elif ODD == "xdist":
        config.option.numprocesses = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    if ODD == "toolchain":
        from tribunus.admission import key
        from tribunus.certification import pipeline

        plain = key.full_key
        pipeline.full_key = lambda *given: {**plain(*given), "toolchain": "another compiler"}  # type: ignore[assignment]
