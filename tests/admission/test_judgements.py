"""Judgements over recorded values: replays, keys, declared layouts, outcomes, misbehaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admission.samples import artifact, receipt, replays
from tests.faults.subjects import clip, gemm, relu
from tribunus.admission.cache_key_check import REQUIRED, judge_identity, judge_key
from tribunus.admission.conclude import misbehaved
from tribunus.admission.key import Machine, full_key
from tribunus.admission.layout_check import judge_declaration
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import CHECKS, Check, Receipt, Verdict, receipt_from_json, receipt_to_json
from tribunus.admission.replay_check import MINIMUM_RUNS, judge_replay
from tribunus.admission.series import OutcomeKind, outcome_of
from tribunus.candidates.model import Artifact, Config
from tribunus.canon import JsonObject, decode, digest_bytes, encode
from tribunus.errors import InternalError, SchemaError
from tribunus.isolation.executor import Axis, Death, ExecutorKind, Fate, Outcome
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Code
from tribunus.targets.target import Target

TARGET = Target("cpu", "x86-64-v3", 1)
MACHINE = Machine("none", "processor", TARGET.features)
FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=40)


# replays ------------------------------------------------------------------------------------------------------------
def test_the_standard_policy_demands_enough_replays_along_every_axis() -> None:
    assert {axis for axis, _ in STANDARD.replays} == set(Axis)
    assert sum(count for _, count in STANDARD.replays) >= MINIMUM_RUNS
    assert judge_replay(replays(STANDARD.replays)) is None


@pytest.mark.parametrize("axis", Axis)
def test_a_difference_is_named_by_its_axis(axis: Axis) -> None:
    position = [a for a, count in STANDARD.replays for _ in range(count)].index(axis)
    found = judge_replay(replays(STANDARD.replays, differing=position))
    assert found is not None
    reason, verdict = found
    assert verdict is Verdict.REJECTED
    assert f"on the {axis.value} axis" in reason.text
    assert "element 2 of output 3" in reason.text


def test_kinds_of_the_axes_are_distinct() -> None:
    kinds = set()
    for position in range(sum(count for _, count in STANDARD.replays)):
        found = judge_replay(replays(STANDARD.replays, differing=position))
        assert found is not None
        kinds.add(found[0].kind)
    assert len(kinds) == len(Axis)


def test_too_few_replays_are_mistrusted() -> None:
    found = judge_replay(replays([(Axis.REPEAT, MINIMUM_RUNS - 1)]))
    assert found is not None
    assert found[1] is Verdict.MISTRUSTED


@pytest.mark.parametrize(("fate", "verdict"), [(Fate.CRASHED, Verdict.CRASHED), (Fate.TIMED_OUT, Verdict.TIMED_OUT)])
def test_a_death_is_no_rejection(fate: Fate, verdict: Verdict) -> None:
    runs = replays(STANDARD.replays)
    dead = replace(runs.runs[-1], fate=fate, death=Death("SIGSEGV", 11, ""))
    found = judge_replay(replace(runs, runs=(*runs.runs[:-1], dead)))
    assert found is not None
    assert found[1] is verdict


def test_control_words_that_differ_are_refused() -> None:
    runs = replays(STANDARD.replays)
    other = replace(runs.runs[3], control_after=0x9FC0)
    found = judge_replay(replace(runs, runs=(*runs.runs[:3], other, *runs.runs[4:])))
    assert found is not None
    assert found[0].kind == "floating point control changed"


# keys ---------------------------------------------------------------------------------------------------------------
def key() -> Mapping[str, str]:
    return full_key(artifact(gemm(3, 4, 5)), TARGET, MACHINE)


def test_a_full_key_has_every_required_field_and_equals_itself() -> None:
    assert key().keys() >= REQUIRED
    assert judge_key(key(), key()) is None


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_field_that_differs_or_is_missing_is_named(name: str) -> None:
    changed = judge_key({**key(), name: "other"}, key())
    assert changed is not None
    assert changed.kind == "key differs"
    assert [(f.what, f.seen) for f in changed.figures] == [(name, "other")]
    missing = judge_key({n: v for n, v in key().items() if n != name}, key())
    assert missing is not None
    assert missing.kind == "key lacks a field"
    assert name in missing.text


def test_a_field_that_only_the_record_has_is_named() -> None:
    reason = judge_key(key(), {**key(), "stranger": "x"})
    assert reason is not None
    assert reason.figures[0].seen == "absent"


VARIANTS: Mapping[str, tuple[Artifact, Target, Machine]] = {
    "shape": (artifact(gemm(3, 4, 6)), TARGET, MACHINE),
    "op": (artifact(relu(4, 8)), TARGET, MACHINE),
    "layouts": (artifact(gemm(3, 4, 5, x_pitch=8)), TARGET, MACHINE),
    "recipe": (artifact(gemm(3, 4, 5, align=64)), TARGET, MACHINE),
    "candidate": (artifact(gemm(3, 4, 5), "b"), TARGET, MACHINE),
    "arch": (artifact(gemm(3, 4, 5)), Target("cpu", "x86-64-v4", 1), MACHINE),
    "driver": (artifact(gemm(3, 4, 5)), TARGET, replace(MACHINE, driver="550")),
    "features": (artifact(gemm(3, 4, 5)), TARGET, replace(MACHINE, features=frozenset(("avx",)))),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_differs_shows_in_its_field(name: str) -> None:
    other, target, machine = VARIANTS[name]
    reason = judge_key(full_key(other, target, machine), key())
    assert reason is not None
    assert name in {figure.what for figure in reason.figures}


def test_library_and_toolchain_belong_to_the_key() -> None:
    plain = artifact(gemm(3, 4, 5))
    for field, build in (
        ("library", replace(plain.build, library="oneDNN 3")),
        ("toolchain", replace(plain.build, toolchain=(("zig", "0.16"),))),
    ):
        reason = judge_key(full_key(replace(plain, build=build), TARGET, MACHINE), key())
        assert reason is not None
        assert [figure.what for figure in reason.figures] == [field]


def test_policy_and_inline_constants_belong_to_the_key() -> None:
    six, one = (artifact(clip(3, 4, limit)) for limit in (6.0, 1.0))
    assert judge_key(full_key(six, TARGET, MACHINE), full_key(one, TARGET, MACHINE)) is not None
    strict = replace(six, signature=replace(six.signature, policy=ComputePolicy.FP32_STRICT))
    reason = judge_key(full_key(strict, TARGET, MACHINE), full_key(six, TARGET, MACHINE))
    assert reason is not None
    assert "policy" in {figure.what for figure in reason.figures}


def test_a_key_names_the_artifact_by_content() -> None:
    thing = artifact()
    honest = full_key(thing, TARGET, MACHINE)
    assert judge_identity(honest, thing, thing.signature.digest) is None
    for name in ("signature", "candidate", "artifact", "code"):
        reason = judge_identity({**honest, name: digest_bytes(b"x")}, thing, thing.signature.digest)
        assert reason is not None
        assert [figure.what for figure in reason.figures] == [name]
    other = replace(thing, code=Code(thing.code.format, b"swapped", thing.code.facts))
    assert judge_identity(honest, other, thing.signature.digest) is not None


# layouts ------------------------------------------------------------------------------------------------------------
def test_layouts_are_those_of_candidate_and_plan() -> None:
    thing = artifact()
    plain = thing.candidate.layouts
    assert judge_declaration(thing, plain) is None
    swapped = Layout((1, 0))
    against_plan = judge_declaration(thing, (plain[0], swapped))
    assert against_plan is not None
    assert against_plan.kind == "layout differs from the plan"
    promise = replace(thing, candidate=replace(thing.candidate, layouts=(swapped, plain[1]), config=Config()))
    against_promise = judge_declaration(promise, plain)
    assert against_promise is not None
    assert against_promise.kind == "layout differs"
    fewer = replace(thing, candidate=replace(thing.candidate, layouts=plain[:1]))
    assert judge_declaration(fewer, plain) is not None
    assert judge_declaration(thing, plain[:1]) is not None
    wide = replace(thing.recipe.inputs[0], type=thing.signature.type_of(0).at({}))
    assert judge_declaration(replace(thing, recipe=replace(thing.recipe, inputs=(wide,))), plain) is None
    longer = replace(wide, type=TensorType(DType.F32, (5, 8)))
    other = judge_declaration(replace(thing, recipe=replace(thing.recipe, inputs=(longer,))), plain)
    assert other is not None
    assert other.kind == "operand types differ"


@pytest.mark.parametrize("align", [2, 3, 12])
def test_alignments_are_powers_of_two_of_at_least_an_element(align: int) -> None:
    reason = judge_declaration(artifact(relu(4, 8, align=4)), artifact().candidate.layouts)
    assert reason is None
    thing = artifact()
    operand = replace(thing.recipe.inputs[0], align=align)
    bad = replace(thing, recipe=replace(thing.recipe, inputs=(operand,)))
    found = judge_declaration(bad, thing.candidate.layouts)
    assert found is not None
    assert found.kind == "alignment"


# receipts and outcomes ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("verdict", Verdict)
def test_receipts_round_trip(check: Check, verdict: Verdict) -> None:
    made = receipt(check, verdict)
    again = receipt_from_json(decode(encode(receipt_to_json(made)), limit=1 << 20))
    assert again == made
    assert again.digest == made.digest


def test_impossible_receipts_cannot_be_built() -> None:
    with pytest.raises(InternalError):
        replace(receipt(), verdict=Verdict.REJECTED)
    with pytest.raises(InternalError):
        replace(receipt(verdict=Verdict.REJECTED), reason=None)
    with pytest.raises(InternalError, match="could have said no"):
        replace(receipt(), cases=(replace(receipt().cases[0], counted=False),))


@pytest.mark.parametrize("name", sorted(set(receipt_to_json(receipt())) - {"reason", "timing"}))
def test_a_receipt_with_a_field_of_another_kind_is_refused(name: str) -> None:
    document = receipt_to_json(receipt())
    other: JsonObject = {**document, name: {"x": 1}}
    without: JsonObject = {k: v for k, v in document.items() if k != name}
    for broken in (other, without):
        with pytest.raises(SchemaError):
            receipt_from_json(broken)


def passed(count: int, executor: ExecutorKind = ExecutorKind.DEVICE) -> list[Receipt]:
    return [receipt(check, executor=executor) for check in CHECKS[:count]]


def test_six_passes_admit() -> None:
    assert outcome_of(passed(6)) == (OutcomeKind.ADMITTED, None)
    assert outcome_of(passed(5)) == (OutcomeKind.INCOMPLETE, None)
    assert outcome_of([]) == (OutcomeKind.INCOMPLETE, None)
    assert outcome_of([*passed(5), passed(5)[-1]]) == (OutcomeKind.INCOMPLETE, None)


def test_a_stand_in_only_stages() -> None:
    mixed = [*passed(5), receipt(CHECKS[5], executor=ExecutorKind.QEMU)]
    assert outcome_of(mixed) == (OutcomeKind.STAGED, None)


@FIXED
@given(st.integers(0, 5), st.sampled_from([v for v in Verdict if v is not Verdict.PASSED]), st.booleans())
def test_the_first_refusal_names_the_outcome(position: int, verdict: Verdict, others_after: bool) -> None:
    receipts = [*passed(position), receipt(CHECKS[position], verdict)]
    if others_after:
        receipts += [receipt(check, Verdict.CRASHED) for check in CHECKS[position + 1 :]]
    outcome, check = outcome_of(receipts)
    assert (outcome.value, check) == (verdict.value, CHECKS[position])


# misbehaviour -------------------------------------------------------------------------------------------------------
GOOD = Outcome(Fate.RETURNED, None, ({},), (), (), (), 1, 1, 2, 2, 0, 1, 1, 1)
BAD = {
    "unwritten": (replace(GOOD, unwritten=((3, 7),)), "output not written"),
    "inputs": (replace(GOOD, changed_inputs=(0, -2)), "input changed"),
    "damage": (replace(GOOD, damage=("4 bytes behind output 0 changed",)), "write outside the output"),
    "late": (replace(GOOD, late_writes=4), "output written late"),
    "threads": (replace(GOOD, threads_after=3), "thread started"),
    "control": (replace(GOOD, control_after=9), "floating point control changed"),
}


@pytest.mark.parametrize("part", BAD)
def test_misbehaviour_is_seen_by_those_who_look(part: str) -> None:
    outcome, kind = BAD[part]
    assert misbehaved(GOOD, "x", tuple(BAD)) is None
    reason = misbehaved(outcome, "x", (part,))
    assert reason is not None
    assert reason.kind == kind
    assert misbehaved(outcome, "x", tuple(p for p in BAD if p != part)) is None
