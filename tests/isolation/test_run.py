"""What a run reports of honest kernels, in every form of buffer; and that a second run costs no new child."""

from __future__ import annotations

import numpy as np
import pytest

from tests.isolation.toys import (
    HONEST,
    HONEST_WEIGHT,
    ROWS_OF_EIGHT,
    FlatBackend,
    Workshop,
    add_artifact,
    operands,
    total,
)
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import ExecutorKind, Fate, Guard, Outcome, Poison, RunTerms
from tribunus.isolation.worker import CpuExecutor
from tribunus.phaseir.dims import Sym
from tribunus.phaseir.layouts import Layout

ALL_TERMS = [
    RunTerms(guard=guard, poison=poison, shift=shift) for guard in Guard for poison in Poison for shift in (0, 4, 60)
]


def is_clean(outcome: Outcome) -> bool:
    return (
        outcome.fate is Fate.RETURNED
        and outcome.death is None
        and not (outcome.unwritten or outcome.changed_inputs or outcome.damage or outcome.late_writes)
        and outcome.control_before == outcome.control_after
        and outcome.threads_before == outcome.threads_after
    )


def honest(workshop: Workshop, name: str) -> Artifact:
    plain, weight = workshop.code(HONEST), workshop.code(HONEST_WEIGHT)
    return {
        "row major": lambda: add_artifact(plain),
        "column major": lambda: add_artifact(plain, layout=Layout((1, 0))),
        "blocked with padding": lambda: add_artifact(plain, layout=Layout((0, 1), ((1, 4),))),
        "rows apart": lambda: add_artifact(workshop.code(ROWS_OF_EIGHT), layout=Layout((0, 1), (), 8)),
        "aligned by 64": lambda: add_artifact(plain, align=64),
        "a weight": lambda: add_artifact(weight, weight=True),
        "a packed weight": lambda: add_artifact(weight, weight=True, layout=Layout((1, 0), ((0, 2),))),
        "a workspace": lambda: add_artifact(plain, workspace=100),
        "two parts": lambda: add_artifact(plain, parts=2),
        "no elements": lambda: add_artifact(plain, shape=(0, 7)),
        "one element": lambda: add_artifact(plain, shape=(1,)),
        "several pages": lambda: add_artifact(plain, shape=(3, 5000)),
    }[name]()


@pytest.mark.parametrize("name", [
    "row major", "column major", "blocked with padding", "rows apart", "aligned by 64", "a weight", "a packed weight",
    "a workspace", "two parts", "no elements", "one element", "several pages",
])  # fmt: skip
def test_an_honest_kernel_is_clean_under_all_terms(workshop: Workshop, executor: CpuExecutor, name: str) -> None:
    artifact = honest(workshop, name)
    inputs = operands(artifact)
    for terms in ALL_TERMS:
        outcome = executor.run(artifact, {}, inputs, terms)
        assert is_clean(outcome), (terms, outcome)
        assert np.array_equal(outcome.outputs[0][2], total(inputs)), terms


def test_the_executor_is_the_device(executor: CpuExecutor) -> None:
    assert executor.kind is ExecutorKind.DEVICE


def test_symbols_arrive_as_parameters(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST), shape=(Sym("d0"), 3))
    for rows in (1, 7, 64):
        dims = {"d0": rows}
        inputs = operands(artifact, dims)
        outcome = executor.run(artifact, dims, inputs, RunTerms())
        assert is_clean(outcome)
        assert np.array_equal(outcome.outputs[0][2], total(inputs))


def test_in_place_the_output_takes_the_input_s_memory(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code("out[0] = 0; " + HONEST), in_place=True)
    inputs = operands(artifact)
    apart = executor.run(artifact, {}, inputs, RunTerms())
    together = executor.run(artifact, {}, inputs, RunTerms(in_place=True, calls=3, snapshots=(1, 3)))
    assert np.array_equal(apart.outputs[0][2], total(inputs))
    assert together.outputs[0][2].flat[0] == inputs[1].flat[0]  # a[0] was overwritten before it was read
    assert np.array_equal(together.outputs[0][2].flat[1:], total(inputs).flat[1:])
    assert np.array_equal(together.outputs[1][2], together.outputs[0][2])


def test_a_changed_weight_is_packed_anew(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST_WEIGHT), weight=True)
    inputs = operands(artifact)
    executor.run(artifact, {}, inputs, RunTerms())
    weight = np.asarray(inputs[1])
    weight[0, 0] = 1000.0  # the same array, other contents
    assert np.array_equal(executor.run(artifact, {}, inputs, RunTerms()).outputs[0][2], total(inputs))
    frozen = weight.copy()
    frozen.flags.writeable = False
    again = {**inputs, 1: frozen}
    assert np.array_equal(executor.run(artifact, {}, again, RunTerms()).outputs[0][2], total(again))


def test_snapshots_are_of_the_calls_that_were_asked_for(workshop: Workshop, executor: CpuExecutor) -> None:
    counting = "float *count = buffers[3]; count[0] = count[0] + 1; for (int64_t i = 0; i < n; i++) out[i] = count[0];"
    artifact = add_artifact(workshop.code(counting), workspace=4)
    terms = RunTerms(poison=Poison.ZERO, calls=5, snapshots=(4, 1), repoison=False)
    outcome = executor.run(artifact, {}, operands(artifact), terms)
    assert [float(np.asarray(o[2]).flat[0]) for o in outcome.outputs] == [4.0, 1.0]
    fresh = executor.run(artifact, {}, operands(artifact), RunTerms(poison=Poison.ZERO, calls=3, snapshots=(3,)))
    assert float(np.asarray(fresh.outputs[0][2]).flat[0]) == 1.0


def test_a_child_serves_many_runs_until_another_artifact_comes(workshop: Workshop) -> None:
    made = CpuExecutor({"toy": FlatBackend()})
    first, second = add_artifact(workshop.code(HONEST)), add_artifact(workshop.code(HONEST), parts=2)
    try:
        pids = []
        for artifact in (first, first, second, first):
            made.run(artifact, {}, operands(artifact), RunTerms())
            pids.append(made.child_pid)
        made.renew()
        assert made.child_pid == 0
        made.run(first, {}, operands(first), RunTerms())
        assert pids[0] == pids[1]
        assert len({*pids, made.child_pid}) == 4
    finally:
        made.close()
