"""Candidates computed in children: numbers against float64, bits across processes, and recipes that do not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tribunus_onednn.recipe import PrimitiveRecipe, decode_recipe, encode_recipe

from tests.onednn import signatures
from tests.onednn.conftest import Workshop, goldens_of
from tests.onednn.signatures import CASES
from tribunus import canon
from tribunus.candidates.backend import Budget, Effort, Feedback
from tribunus.candidates.model import Artifact
from tribunus.errors import SchemaError
from tribunus.isolation.executor import Fate, Guard, Outcome, Poison, RunTerms
from tribunus.isolation.worker import CpuExecutor
from tribunus.oracle.verdict import Failure, judge
from tribunus.phaseir.layouts import channels_last, row_major
from tribunus.phaseir.program import Array
from tribunus.plan.code import Code

SMOKE = 2e-4
"""Share of the largest result that a working fp32 kernel never misses the float64 value by."""
FAMILIES = (
    "matmul+bias+gelu", "matmul-batched+scale", "conv+add+relu", "conv-depthwise", "conv+scale+relu",
    "conv_transpose-grouped", "max_pool-ceil", "average_pool-include", "softmax-spelt", "layer_norm-spelt",
    "mul-channels", "reduce_mean", "resize-linear", "transpose",
)  # fmt: skip


def outputs(outcome: Outcome) -> Mapping[int, Array]:
    assert outcome.fate is Fate.RETURNED, outcome.death
    return outcome.outputs[0]


def with_recipe(artifact: Artifact, recipe: PrimitiveRecipe) -> Artifact:
    return replace(artifact, code=Code(artifact.code.format, encode_recipe(recipe), artifact.code.facts))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_candidate_computes_its_signature(name: str, workshop: Workshop, executor: CpuExecutor) -> None:
    case = CASES[name]()
    outcome = executor.run(workshop.built(name), {}, case.inputs, RunTerms(Guard.AFTER, Poison.NAN))
    goldens, found = goldens_of(case), outputs(outcome)
    for golden in goldens:
        error = np.max(np.abs(found[golden.id].astype(np.float64) - golden.value.astype(np.float64)))
        assert error <= SMOKE * np.max(np.abs(golden.value))
    assert judge(found, goldens).accepted
    assert not outcome.unwritten and not outcome.damage and not outcome.changed_inputs and not outcome.late_writes
    assert outcome.control_before == outcome.control_after
    assert outcome.threads_before == outcome.threads_after


def test_every_implementation_of_a_convolution_agrees_with_the_golden(
    workshop: Workshop, executor: CpuExecutor
) -> None:
    case = signatures.conv(channels=8, out=16, extent=6, then="leaky_relu")
    goldens = goldens_of(case)
    candidates = workshop.proposals(case, Effort.STANDARD, 4)
    assert len(candidates) > 3
    for candidate in candidates:
        artifact = workshop.build(case, candidate)
        assert judge(outputs(executor.run(artifact, {}, case.inputs, RunTerms())), goldens).accepted, str(candidate)


def test_the_oracle_refuses_an_approximation_that_is_not_fp32(workshop: Workshop, executor: CpuExecutor) -> None:
    """The library's vector logarithm of a softmax misses its budget: news for the ledger, not an error."""
    case = CASES["log_softmax"]()
    artifact = workshop.built("log_softmax")
    if not artifact.candidate.config.text("implementation").startswith("jit"):
        pytest.skip("this processor gets the reference implementation, which is accurate")
    assert not judge(outputs(executor.run(artifact, {}, case.inputs, RunTerms())), goldens_of(case)).accepted


def test_a_relu_that_loses_a_nan_is_refused_by_the_oracle(workshop: Workshop, executor: CpuExecutor) -> None:
    """A known deviation of the library: should this test fail one day, the table of deviations is out of date."""
    case = CASES["relu"]()
    value = case.signature.inputs[0]
    hurt = case.inputs[value].copy()
    hurt.reshape(-1)[7] = np.nan
    special = replace(case, inputs={**case.inputs, value: hurt})
    found = outputs(executor.run(workshop.built("relu"), {}, special.inputs, RunTerms()))
    verdict = judge(found, goldens_of(special))
    assert verdict.worst.failure is Failure.CLASS and verdict.worst.worst == (0, 7)


@pytest.mark.parametrize("name", ["matmul+bias+gelu", "conv+add+relu", "layer_norm-spelt"])
def test_two_processes_give_the_same_bits(name: str, workshop: Workshop, executor: CpuExecutor) -> None:
    case, artifact = CASES[name](), workshop.built(name)
    value = case.signature.outputs[0]
    first = outputs(executor.run(artifact, {}, case.inputs, RunTerms(Guard.AFTER)))[value].tobytes()
    executor.renew()
    second = outputs(executor.run(artifact, {}, case.inputs, RunTerms(Guard.BEFORE, Poison.NAN)))[value].tobytes()
    assert first == second


def test_code_that_the_first_call_generates_is_made_and_compared_when_the_recipe_is_bound(
    workshop: Workshop, executor: CpuExecutor
) -> None:
    case, artifact = CASES["matmul"](), workshop.built("matmul", 1)
    recipe = decode_recipe(artifact.code.data)
    assert recipe.implementation == "gemm:jit:f32" and recipe.late and recipe.code
    outputs(executor.run(artifact, {}, case.inputs, RunTerms()))
    changed = with_recipe(artifact, replace(recipe, code=recipe.code[1:]))
    foreign = executor.run(changed, {}, case.inputs, RunTerms())
    assert foreign.death is not None and "other code" in foreign.death.cause


def test_recipes_that_share_generated_code_are_bound_in_one_process(workshop: Workshop, executor: CpuExecutor) -> None:
    """The second finds the kernels that the first one's call had generated."""
    child = executor.forked([workshop.built("matmul", 1), workshop.built("matmul"), workshop.built("matmul-row", 1)])
    child.close()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("version", "3.1.0", "version 3.2.0 is installed, 3.1.0 was certified"),
        ("commit", "0" * 40, "commit"),
        ("library", "0" * 64, "library file"),
        ("implementation", "brg:unheard_of", "no implementation 'brg:unheard_of'"),
        ("scratchpad", 1 << 20, "bytes of workspace"),
        ("code", ["0" * 32], "other code than was certified"),
        ("isa", 0x1FEF, "instruction set"),
    ],
)
def test_a_recipe_that_does_not_fit_this_library_is_refused(
    field: str, value: canon.Json, words: str, workshop: Workshop, executor: CpuExecutor
) -> None:
    case, artifact = CASES["matmul"](), workshop.built("matmul")
    document = json.loads(artifact.code.data)
    place = {"version": "library", "commit": "library", "code": "generated"}.get(field)
    place = "library" if field == "library" else place
    if place is None:
        document[field] = value
    else:
        document[place]["digest" if field == "library" else field] = value
    changed = replace(artifact, code=Code(artifact.code.format, canon.encode(document), artifact.code.facts))
    outcome = executor.run(changed, {}, case.inputs, RunTerms())
    assert outcome.fate is Fate.CRASHED and outcome.death is not None
    assert words in outcome.death.cause


def test_a_recipe_of_another_schema_is_refused(workshop: Workshop) -> None:
    document = json.loads(workshop.built("matmul").code.data)
    document["schema"] = "tribunus.onednn-recipe/2"
    with pytest.raises(SchemaError, match="onednn-recipe/2"):
        decode_recipe(canon.encode(document))


def test_a_conversion_moves_every_element(workshop: Workshop, executor: CpuExecutor) -> None:
    case = CASES["copy"]()
    plan = (row_major(4), channels_last(4))
    feedback = Feedback(plan)
    found = workshop.backend.propose(case.signature, workshop.target, Budget(Effort.STANDARD, 1), feedback)
    artifact = workshop.build(case, next(iter(found)))
    moved = outputs(executor.run(artifact, {}, case.inputs, RunTerms()))
    assert moved[case.signature.outputs[0]].tobytes() == case.inputs[case.signature.inputs[0]].tobytes()
