"""The backends that are installed, each with what its two halves are called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tribunus.candidates.backend import Backend
from tribunus.isolation.worker import CpuExecutor
from tribunus.runtime.replayers import OWN_FORMATS
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target


@dataclass(frozen=True)
class Entry:
    """backend: module and attribute.  replayers: of formats beside our own.  compile_time: modules that a replay half
    must not bring in.  refused: signatures whose every candidate the oracle rightly refuses, and for what."""

    name: str
    backend: str
    replay: str
    compile_time: tuple[str, ...]
    replayers: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


ENTRIES = (
    Entry("native", "tribunus_native.backend:BACKEND", "tribunus.devices.flat", ("tribunus_native.backend",)),
    Entry(
        "onednn",
        "tribunus_onednn.backend:BACKEND",
        "tribunus_onednn.replay",
        ("tribunus_onednn.backend",),
        # The library's relu and maximum swallow NaN.
        refused=(("relu", "class differs"), ("conv", "class differs"), ("max_pool", "class differs")),
    ),
    Entry(
        "reference",
        "tests.reference_backend.backend:BACKEND",
        "tests.reference_backend.replay",
        ("tests.reference_backend.backend",),
        (("numpy", "tests.reference_backend.replay:REPLAYER"),),
    ),
)


@dataclass(frozen=True)
class Subject:
    """A backend under the suite."""

    entry: Entry
    backend: Backend
    target: Target


@pytest.fixture(scope="session", params=ENTRIES, ids=[entry.name for entry in ENTRIES])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each installed backend; what cannot be had here skips with its reason."""
    entry: Entry = request.param
    module, _, attribute = entry.backend.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)
    target = Target("cpu", host_arch(), 1)
    answer = backend.serves(target)
    if not answer.available:
        pytest.skip(f"{entry.name}: {answer.reason}")
    return Subject(entry, backend, target)


@pytest.fixture(scope="session")
def executor(subject: Subject) -> Iterator[CpuExecutor]:
    """One executor a backend."""
    made = CpuExecutor({subject.backend.name: subject.backend}, dict(subject.entry.replayers))
    yield made
    made.close()


def replay_place(entry: Entry, format_: str) -> str:
    """Where the replayer of a format is."""
    return {**OWN_FORMATS, **dict(entry.replayers)}[format_]
