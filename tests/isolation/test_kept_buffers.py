"""Buffers of earlier runs are kept within bounds, and a run does not depend on which are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.isolation.toys import HONEST, Workshop, add_artifact, operands
from tribunus.isolation import worker
from tribunus.isolation.executor import RunTerms
from tribunus.isolation.worker import CpuExecutor


def test_large_buffers_make_room_for_each_other(
    workshop: Workshop, executor: CpuExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = workshop.code(HONEST)
    made = [add_artifact(code, shape=(rows, 64)) for rows in (8, 16, 24)]
    monkeypatch.setattr(worker, "_KEPT_BYTES", 1)
    first = [executor.run(a, {}, operands(a), RunTerms()).outputs[0] for a in made]
    again = [executor.run(a, {}, operands(a), RunTerms()).outputs[0] for a in made]
    for one, other in zip(first, again, strict=True):
        assert all(np.array_equal(one[v], other[v]) for v in one)
    assert executor.buffers(made[0], {}, RunTerms()) is executor.buffers(made[0], {}, RunTerms())
    kept = executor.buffers(made[1], {}, RunTerms())
    executor.buffers(made[2], {}, RunTerms())
    assert executor.buffers(made[1], {}, RunTerms()) is not kept
