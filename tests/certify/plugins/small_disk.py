"""A pytest plug-in after whose checks no file can grow beyond a limit, as on a disk that is full."""

import os
import resource

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["DISK_BYTES"]), resource.RLIM_INFINITY))
