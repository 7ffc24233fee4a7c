"""A pytest plug-in that changes one thing about the session: ``ODD`` says which."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from tribunus.isolation.executor import TimingSamples

ODD = os.environ["ODD"]
Measure = Callable[..., Sequence[TimingSamples]]


def busy(measure: Measure) -> Measure:
    """Others had the processor nearly all the time: much passed for the caller that the calls did not take."""

    def timed(*given: object) -> Sequence[TimingSamples]:
        found = measure(*given)
        return [_late(s) for s in found]

    return timed


def _late(sample: TimingSamples) -> TimingSamples:
    clock = tuple(1000 * wall + 1_000_000_000 for wall in sample.parent_wall)
    return replace(sample, parent_wall=clock, preempted=(True,) * len(sample.wall))


def fail(kind: type[BaseException]) -> Callable[..., None]:
    """What nobody expects."""

    def failing(*given: object) -> None:
        raise kind

    return failing


def another_compiler(key: Callable[..., Mapping[str, str]]) -> Callable[..., Mapping[str, str]]:
    """Keys with another toolchain."""
    return lambda *given: {**key(*given), "toolchain": "another compiler"}


def pytest_addoption() -> None:
    """Early, because the certification begins before most plug-ins are configured."""
    from tribunus.admission.key import full_key
    from tribunus.isolation.timing import measure

    patch = pytest.MonkeyPatch()
    if ODD == "clock":
        patch.setattr("tribunus.isolation.worker.measure", busy(measure))
    elif ODD == "bug":
        patch.setattr("tribunus.isolation.worker.measure", fail(ZeroDivisionError))
    elif ODD == "early":
        patch.setattr("tribunus.certification.pipeline.run_passes", fail(KeyboardInterrupt))
    elif ODD == "patient":
        from tribunus.admission.policy import STANDARD

        patch.setattr("tribunus_certify.asking.STANDARD", replace(STANDARD, slack=1e6))
    elif ODD == "toolchain":
        patch.setattr("tribunus.certification.pipeline.full_key", another_compiler(full_key))


def pytest_cmdline_main(config: pytest.Config) -> None:
    """As if pytest-xdist were there and asked for two processes."""
    if ODD == "xdist":
        config.option.numprocesses = 2
