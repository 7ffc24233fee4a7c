"""A pytest plug-in that ends its own process by a signal after some checks, as a person or the system would."""

import os
import signal

import pytest

SIGNAL = signal.Signals[os.environ["STOP_BY"]]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell hands it down ignored
left = int(os.environ["STOP_AFTER"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    global left
    if report.when == "call":
        left -= 1
        if left == 0:
            for _ in range(2 if signal.SIGTERM is SIGNAL else 1):  # ``timeout`` sends two
                os.kill(os.getpid(), SIGNAL)
