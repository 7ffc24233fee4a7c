"""The backend, an executor that ends with the tests, this machine's target; skipped where there is no library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tribunus_onednn.backend import OneDnnBackend
from tribunus_onednn.library import Missing, find_library

from tests.onednn.signatures import CASES, Case
from tribunus.candidates.backend import NO_FEEDBACK, Budget, Effort
from tribunus.candidates.model import Artifact, Candidate
from tribunus.isolation.worker import CpuExecutor
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.running import OutputGolden, golden_with_budget
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target


@dataclass
class Workshop:
    """Builds each artifact once for all tests."""

    backend: OneDnnBackend
    target: Target
    folder: Path
    _made: dict[tuple[str, int], Artifact] = field(default_factory=dict)

    def proposals(self, case: Case, effort: Effort = Effort.EXHAUSTIVE, limit: int = 512) -> list[Candidate]:
        return list(self.backend.propose(case.signature, self.target, Budget(effort, limit), NO_FEEDBACK))

    def build(self, case: Case, candidate: Candidate) -> Artifact:
        return self.backend.build(candidate, case.signature, self.target, self.folder)

    def built(self, name: str, index: int = 0) -> Artifact:
        """The candidate at ``index`` of a case by name."""
        if (name, index) not in self._made:
            case = CASES[name]()
            self._made[name, index] = self.build(case, self.proposals(case)[index])
        return self._made[name, index]


def goldens_of(case: Case) -> tuple[OutputGolden, ...]:
    """Goldens with budgets of a case's operands."""
    s = case.signature
    return golden_with_budget(s.program, case.inputs, s.constants, s.policy, s.label, VectorFamily.RAND)


@pytest.fixture(scope="session")
def target() -> Target:
    """This machine."""
    return Target("cpu", host_arch(), 1)


@pytest.fixture(scope="session")
def backend(target: Target) -> Iterator[OneDnnBackend]:
    """One backend for all tests."""
    place = find_library()
    if isinstance(place, Missing):
        pytest.skip(place.reason)
    made = OneDnnBackend()
    yield made
    made.close()


@pytest.fixture(scope="session")
def workshop(backend: OneDnnBackend, target: Target, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One workshop for all tests."""
    return Workshop(backend, target, tmp_path_factory.mktemp("onednn"))


@pytest.fixture(scope="session")
def executor(backend: OneDnnBackend) -> Iterator[CpuExecutor]:
    """One executor for all tests; each artifact gets a child of its own."""
    made = CpuExecutor({backend.name: backend})
    yield made
    made.close()
