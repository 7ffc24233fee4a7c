"""Replays: honest kernels give equal bits along every axis; what depends on anything else is caught by its axis."""

from __future__ import annotations

import numpy as np
import pytest

from tests.isolation.toys import HONEST, HONEST_WEIGHT, Workshop, add_artifact, operands, total
from tribunus.isolation.executor import Axis, Fate, ReplayRuns
from tribunus.isolation.worker import CpuExecutor

DEPENDS_ON_ADDRESS = "for (int64_t i = 0; i < n; i++) out[i] = a[i] + ((uintptr_t)a % 64);"
DEPENDS_ON_WORKSPACE = "float *w = buffers[3]; for (int64_t i = 0; i < n; i++) out[i] = a[i] + (w[0] != w[0]);"
DEPENDS_ON_OUTPUT = "for (int64_t i = 0; i < n; i++) if (out[i] != out[i]) out[i] = a[i]; else out[i] = b[i];"
DEPENDS_ON_PROCESS = (
    "for (int64_t i = 0; i < n; i++) out[i] = a[i] + ((uintptr_t)__builtin_frame_address(0) >> 12) % 65536;"
)


def differing(runs: ReplayRuns) -> set[Axis]:
    return {run.axis for run in runs.runs if run.outputs != runs.reference}


@pytest.mark.parametrize(("weight", "parts"), [(False, 1), (True, 1), (False, 2)])
def test_an_honest_kernel_is_equal_along_every_axis(
    workshop: Workshop, executor: CpuExecutor, weight: bool, parts: int
) -> None:
    body = HONEST_WEIGHT if weight else HONEST
    artifact = add_artifact(workshop.code(body), weight=weight, parts=parts, workspace=64)
    inputs = operands(artifact)
    others = [operands(artifact, seed=seed) for seed in (2, 3)]
    axes = dict.fromkeys(Axis, 2)
    runs = executor.replay(artifact, {}, inputs, others, axes)
    assert [(run.axis, run.index) for run in runs.runs] == [(axis, i) for axis in Axis for i in range(2)]
    assert all(run.fate is Fate.RETURNED for run in runs.runs)
    assert differing(runs) == set()
    assert runs.differing is None
    assert len({run.control_after for run in runs.runs}) == 1
    assert np.array_equal(runs.arrays[2], total(inputs))


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        (DEPENDS_ON_ADDRESS, Axis.ADDRESS),
        (DEPENDS_ON_WORKSPACE, Axis.POISON),
        (DEPENDS_ON_OUTPUT, Axis.PREFILL),
        (DEPENDS_ON_PROCESS, Axis.PROCESS),
    ],
)
def test_hidden_inputs_are_caught_by_their_axis(
    workshop: Workshop, executor: CpuExecutor, body: str, axis: Axis
) -> None:
    artifact = add_artifact(workshop.code(body), workspace=64)
    runs = executor.replay(artifact, {}, operands(artifact), [operands(artifact, seed=2)], {axis: 4})
    assert differing(runs) == {axis}
    assert runs.differing is not None


def test_a_death_ends_the_replays_and_is_named(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(
        workshop.code("float *w = buffers[3]; if (w[0] == 0) __builtin_trap();" + HONEST), workspace=64
    )
    runs = executor.replay(artifact, {}, operands(artifact), [], {Axis.REPEAT: 2, Axis.POISON: 4, Axis.COLD: 2})
    assert [run.fate for run in runs.runs] == [Fate.RETURNED, Fate.RETURNED, Fate.CRASHED]
    assert runs.runs[-1].axis is Axis.POISON
    assert runs.runs[-1].death is not None


def test_a_reference_that_dies_is_the_only_run(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code("__builtin_trap();"))
    runs = executor.replay(artifact, {}, operands(artifact), [], {Axis.REPEAT: 3})
    assert [run.fate for run in runs.runs] == [Fate.CRASHED]
    assert dict(runs.arrays) == {}
