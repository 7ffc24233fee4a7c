"""The timing check, one test a candidate; pytest-benchmark carries its samples, read from the executor's clock."""

from __future__ import annotations

import pytest

from tribunus.admission.receipt import Check
from tribunus.certification.pipeline import Item
from tribunus_certify.clock import ReceiptClock
from tribunus_certify.walking import walk


def test_timing(item: Item, request: pytest.FixtureRequest) -> None:
    """Run the check; hand its samples to pytest-benchmark."""
    receipt = walk(item, Check.TIMING, request)
    if receipt.timing is None or not receipt.timing.warm_ns or not request.config.pluginmanager.hasplugin("benchmark"):
        return
    clock = request.node.stash[ReceiptClock.KEY]
    clock.load(receipt.timing.warm_ns)
    benchmark = request.getfixturevalue("benchmark")
    benchmark.extra_info.update(budget_ns=receipt.timing.budget_ns, floor_ns=receipt.timing.floor_ns)
    benchmark.pedantic(clock.tick, rounds=len(receipt.timing.warm_ns), iterations=1)
