"""Kernels one by one: every step is judged on what it really gets, and the image must give the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.planning.models import Model, images, rows, schedule, winner
from tests.reference_backend.backend import BACKEND, REPLAYER
from tests.reference_backend.format import FORMAT
from tribunus.admission.captured import CapturedCase
from tribunus.admission.receipt import Verdict
from tribunus.candidates.model import Artifact
from tribunus.certification.program_check import ProgramReceipt, judge_case, receipt_from_json
from tribunus.certification.stepwise import Stepwise, run_stepwise
from tribunus.isolation.executor import (
    Axis,
    DimValues,
    Inputs,
    Outcome,
    ReplayRuns,
    RunTerms,
    TimingProtocol,
    TimingSamples,
)
from tribunus.isolation.program_run import ProgramRun
from tribunus.isolation.worker import CpuExecutor
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.golden import evaluate
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.program import Array, Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.planning.assemble import ProfileDraft, Winner
from tribunus.planning.schedule import Demand

FP32 = ComputePolicy.FP32


@pytest.fixture
def executor() -> Iterator[CpuExecutor]:
    made = CpuExecutor({BACKEND.name: BACKEND}, {FORMAT: REPLAYER})
    yield made
    made.close()


def draft_of(model: Model, folder: Path) -> tuple[ProfileDraft, dict[Demand, Winner]]:
    made = schedule(model)
    return ProfileDraft("p", model.program, made, ()), {d: winner(d, folder) for d in made.demands()}


def case_of(model: Model, bindings: Mapping[str, int]) -> CapturedCase:
    random = np.random.default_rng(7)
    program = model.program
    arrays: dict[str, Array] = {
        program.values[v].label: random.standard_normal(program.type_of(v).at(bindings).numbers()).astype(np.float32)
        for v in program.only_phase.inputs
    }
    return CapturedCase("case", arrays, None)


@pytest.mark.parametrize(("model", "bindings"), [(images(), {}), (rows(), {"s0": 5})], ids=["images", "rows"])
def test_every_step_of_an_honest_program_is_accepted(
    model: Model, bindings: dict[str, int], executor: CpuExecutor, tmp_path: Path
) -> None:
    """Aliases, conversions between layouts and dims of a range on the way."""
    draft, winners = draft_of(model, tmp_path)
    case = case_of(model, bindings)
    found = run_stepwise(draft, winners, model.constants, case, bindings, executor, FP32)
    assert found.reason is None
    assert found.steps == len(draft.schedule.steps) > 3
    assert 0.0 < found.share <= 1.0
    program = model.program
    inputs = {v: case.inputs[program.values[v].label] for v in program.only_phase.inputs}
    golden = evaluate(program, inputs, model.constants, bindings=bindings)
    for value in program.only_phase.outputs:
        seen = found.outputs[program.values[value].label].astype(np.float64)
        np.testing.assert_allclose(seen, golden[value].astype(np.float64), rtol=1e-4, atol=1e-5)


class Spoilt:
    """An executor that spoils one element of one call."""

    def __init__(self, honest: CpuExecutor, call: int) -> None:
        self.kind = honest.kind
        self._honest, self._left = honest, call

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        outcome = self._honest.run(artifact, dims, inputs, terms)
        self._left -= 1
        if self._left != 0:
            return outcome
        spoilt = {value: np.array(array) for value, array in outcome.outputs[0].items()}
        for array in spoilt.values():
            array.reshape(-1)[3] = np.float32(99.0)
        return replace(outcome, outputs=(spoilt,))

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        raise AssertionError("nothing is timed here")

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        raise AssertionError("nothing is replayed here")

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("call", [1, 3])
def test_a_wrong_kernel_is_refused_at_its_step(call: int, executor: CpuExecutor, tmp_path: Path) -> None:
    model = images()
    draft, winners = draft_of(model, tmp_path)
    found = run_stepwise(draft, winners, model.constants, case_of(model, {}), {}, Spoilt(executor, call), FP32)
    assert found.reason is not None
    assert found.reason.text.startswith(f"kernel call {call} of {len(draft.schedule.steps)}, ")
    assert (found.steps, dict(found.outputs)) == (call - 1, {})


def largest() -> Model:
    """Where the largest sum is: a choice among rounded numbers, so that the end says little."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (3, 8)), "x")
    w = builder.constant(np.random.default_rng(3).standard_normal((8, 5)).astype(np.float32), DType.F32)
    (scores,) = builder.op("matmul", (x, w))
    attributes = Attributes.of({"axis": 1, "keepdims": 0, "select_last": 0})
    (place,) = builder.op("arg_max", (scores,), attributes, labels=("place",))
    return Model(builder.finish("main", (x,), (place,)), builder.constants)


def judged(model: Model, case: CapturedCase, outputs: Mapping[str, Array], steps: Stepwise | None) -> ProgramReceipt:
    run = ProgramRun("case", outputs, outputs, (1, 2, 3), tuple(range(1, 61)), "")
    stepwise = None if steps is None else lambda: steps
    return judge_case(model.program, model.constants, case, {}, run, "p", FP32, stepwise)


def test_an_image_behind_a_choice_is_held_to_its_kernels_bit_for_bit(executor: CpuExecutor, tmp_path: Path) -> None:
    model = largest()
    draft, winners = draft_of(model, tmp_path)
    case = case_of(model, {})
    steps = run_stepwise(draft, winners, model.constants, case, {}, executor, FP32)
    assert steps.reason is None
    right = judged(model, case, steps.outputs, steps)
    assert (right.verdict, right.steps) == (Verdict.PASSED, steps.steps)
    assert right.error_share == steps.share > 0.0
    assert (right.wall_ns, right.wall_p99_ns) == (31, 60)
    assert receipt_from_json(right.document()) == right
    other = {"place": np.asarray(steps.outputs["place"].astype(np.int64) ^ 1)}
    assert judged(model, case, other, None).verdict is Verdict.PASSED, "without its kernels the end is only reported"
    wrong = judged(model, case, other, steps)
    assert wrong.verdict is Verdict.REJECTED
    assert wrong.reason is not None and wrong.reason.kind == "image wired differently"


def test_a_program_without_jumps_is_judged_by_its_end(executor: CpuExecutor, tmp_path: Path) -> None:
    model = images()
    draft, winners = draft_of(model, tmp_path)
    case = case_of(model, {})
    steps = run_stepwise(draft, winners, model.constants, case, {}, executor, FP32)
    receipt = judged(model, case, steps.outputs, replace(steps, outputs={}))
    assert (receipt.verdict, receipt.steps) == (Verdict.PASSED, 0)
