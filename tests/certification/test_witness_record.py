"""What is kept about another engine's outputs, and when a kept receipt may serve again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tribunus.admission.captured import CapturedCase
from tribunus.certification.program_check import judge_case, program_key, receipt_from_json
from tribunus.certification.witness_record import WitnessAnswer, WitnessRecord, judge_witness
from tribunus.isolation.program_run import ProgramRun
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.propagation import MAXIMA, OutputBudget, ProgramBudget
from tribunus.phaseir.program import Array, Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

FP32 = ComputePolicy.FP32
T = 0.5


def two_outputs() -> Program:
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (2, 3)), "x")
    (near,) = builder.op("relu", (x,), labels=("near",))
    (far,) = builder.op("neg", (x,), labels=("far",))
    return builder.finish("main", (x,), (near, far))


def record(stored: Mapping[str, Array], *, jumps: tuple[str, ...] = ()) -> WitnessRecord:
    """Of a program whose golden is 0 everywhere."""
    program = two_outputs()
    gold, sigma = np.zeros((2, 3)), np.zeros((2, 3))
    labels = {value: program.values[value].label for value in program.only_phase.outputs}
    outputs = tuple(OutputBudget(value, DType.F32, gold, sigma, T, label in jumps) for value, label in labels.items())
    return judge_witness(program, stored, ProgramBudget(outputs, 1))


def off(units: float) -> Array:
    """Away from golden by so many T in one element."""
    array = np.zeros((2, 3), np.float32)
    array[1, 2] = units * T
    return array


def test_the_output_that_lies_furthest_is_named_with_its_distance() -> None:
    found = record({"near": off(3), "far": off(-15.5)})
    assert (found.answer, found.output, found.distance) == (WitnessAnswer.AGREES, "far", 15.5)
    assert (found.limit, found.compared, found.outputs, found.reason) == (MAXIMA, 2, 2, "")
    found = record({"near": off(17), "far": off(1)})
    assert (found.answer, found.output, found.distance) == (WitnessAnswer.DISAGREES, "near", 17)
    assert found.words == "DISAGREES: output 'near' is 17 T from golden, allowed 16 T"
    assert record({"near": np.full((2, 3), np.nan, np.float32)}).distance == np.inf


def test_an_output_that_the_witness_lacks_is_not_counted() -> None:
    found = record({"far": off(1)})
    assert (found.answer, found.compared, found.outputs) == (WitnessAnswer.AGREES, 1, 2)


def test_behind_a_jump_only_agreement_says_something() -> None:
    found = record({"near": off(1), "far": off(99)}, jumps=("far",))
    assert (found.answer, found.output, found.compared) == (WitnessAnswer.AGREES, "near", 1)
    found = record({"near": off(1), "far": off(2)}, jumps=("near", "far"))
    assert (found.answer, found.output, found.compared) == (WitnessAnswer.AGREES, "far", 2)
    found = record({"far": off(99)}, jumps=("near", "far"))
    assert (found.answer, found.output, found.distance) == (WitnessAnswer.NOT_COMPARED, "far", 99)
    assert found.compared == 0 and "a jump lies before every output" in found.reason


@pytest.mark.parametrize("odd", [off(0)[:1], np.array([["a"] * 3] * 2), np.zeros((2, 3), np.complex64)])
def test_what_cannot_be_compared_is_told_with_the_reason(odd: Array) -> None:
    found = record({"near": off(0), "far": odd})
    assert (found.answer, found.output, found.compared) == (WitnessAnswer.NOT_COMPARED, "", 0)
    assert "witness of far" in found.reason


@pytest.mark.parametrize(
    ("entry", "engine"),
    [
        (np.array("onnxruntime 1.23.2"), "onnxruntime 1.23.2"),
        (np.array(["one"]), "one"),
        (np.array("x" * 900), "x" * 120),
        (np.array("a\ud800b"), "a?b"),
        (np.array(["one", "two"]), ""),
        (np.zeros(1, np.float32), ""),
    ],
)
def test_a_file_may_name_its_engine_in_one_text(entry: Array, engine: str) -> None:
    assert record({"near": off(0), "witness": entry}).engine == engine


def a_case(name: str, witness: Mapping[str, Array] | None) -> tuple[CapturedCase, ProgramRun]:
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    outputs = {"near": np.maximum(x, 0), "far": -x}
    return CapturedCase(name, {"x": x}, witness), ProgramRun(name, outputs, outputs, (1,), (1,), "")


def test_a_receipt_keeps_its_witness_even_where_the_replay_died() -> None:
    program = two_outputs()
    case, run = a_case("one", {"far": off(0)})
    for seen, answer in ((run, WitnessAnswer.DISAGREES), (replace(run, died="signal 11"), WitnessAnswer.NOT_COMPARED)):
        receipt = judge_case(program, Constants(), case, {}, seen, "main", FP32)
        assert receipt.witness is not None and receipt.witness.answer is answer
        assert receipt_from_json(receipt.document()) == receipt
    alone = judge_case(program, Constants(), replace(case, witness=None), {}, run, "main", FP32)
    assert alone.witness is None and receipt_from_json(alone.document()) == alone


def test_a_kept_receipt_serves_only_the_case_and_the_witness_it_was_made_of() -> None:
    program = two_outputs()

    def key(name: str, witness: Mapping[str, Array] | None, profile: str = "main") -> str:
        case, run = a_case(name, witness)
        return program_key(program, case, run, profile, FP32, ())

    keys = [
        key("one", None),
        key("two", None),
        key("one", None, "other"),
        key("one", {"far": off(0)}),
        key("one", {"far": off(1)}),
        key("one", {"far": off(0).reshape(3, 2)}),
        key("one", {"far": off(0), "witness": np.array("a 1")}),
    ]
    assert len(set(keys)) == len(keys) and key("one", None) == keys[0]
