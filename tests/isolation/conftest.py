"""A compiler, and an executor that ends with the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tribunus_native.toolchain import Unavailable, find_toolchain

from tests.isolation.toys import FlatBackend, Workshop
from tribunus.isolation.worker import CpuExecutor


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Builds kernels; the tests that need one are skipped where there is no compiler."""
    toolchain = find_toolchain()
    if isinstance(toolchain, Unavailable):
        pytest.skip(toolchain.reason)
    return Workshop(toolchain, tmp_path_factory.mktemp("flat"), {})


@pytest.fixture(scope="session")
def executor() -> Iterator[CpuExecutor]:
    """One executor for all tests; each artifact gets a child of its own."""
    made = CpuExecutor({"toy": FlatBackend()}, deadline_ns=2 * 10**9)
    yield made
    made.close()
