"""A compiler, measured peaks, and an executor that ends with the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tribunus_native.toolchain import Unavailable, find_toolchain

from tests.faults.shared_object import FORMAT, PLACE
from tests.faults.workshop import TARGET, CorpusBackend, Workshop
from tribunus.admission.key import Machine
from tribunus.isolation.calibration import calibrate
from tribunus.isolation.worker import CpuExecutor
from tribunus.targets.detect import machine_facts


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Builds kernels; skips where there is no compiler, or where its code cannot run."""
    toolchain = find_toolchain()
    if isinstance(toolchain, Unavailable):
        pytest.skip(toolchain.reason)
    facts = machine_facts()
    features = frozenset(facts.features)
    if not TARGET.features <= features:
        pytest.skip(f"the corpus is built for {TARGET.arch}")
    machine = Machine("none", facts.model, features)
    return Workshop(toolchain, tmp_path_factory.mktemp("faults"), calibrate().peaks, machine)


@pytest.fixture(scope="session")
def executor() -> Iterator[CpuExecutor]:
    """One executor for all tests; each artifact gets a child of its own."""
    made = CpuExecutor({"corpus": CorpusBackend()}, {FORMAT: PLACE}, deadline_ns=2 * 10**9)
    yield made
    made.close()
