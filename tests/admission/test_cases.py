"""Cases of a signature: what counts, what does not, and what an adversary finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from tribunus_certify.adversary import HypothesisAdversary

from tests.admission.samples import artifact
from tests.faults.subjects import Subject, clip, gemm, relu, softmax
from tribunus.admission.cases import CaseBook, bindings_of
from tribunus.admission.context import Case, CheckContext
from tribunus.admission.oracle_check import check_oracle
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import Receipt, Verdict
from tribunus.candidates.model import Artifact, Signature
from tribunus.canon import digest_bytes
from tribunus.isolation.executor import (
    Axis,
    DimValues,
    ExecutorKind,
    Fate,
    Inputs,
    Outcome,
    ReplayRuns,
    RunTerms,
    TimingProtocol,
    TimingSamples,
)
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle import vectors
from tribunus.oracle.families import VectorFamily
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Symbol
from tribunus.phaseir.program import Array, Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.targets.target import Target


class Formula:
    """An executor that computes with a Python function."""

    kind = ExecutorKind.DEVICE

    def __init__(self, output: int) -> None:
        self._output = output
        self.runs = 0

    def compute(self, inputs: Inputs) -> Array:
        x = np.asarray(inputs[0], np.float32)
        return np.asarray(np.where(x < 0, np.float32(0), x))

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        self.runs += 1
        outputs = tuple({self._output: np.asarray(self.compute(inputs))} for _ in terms.snapshots)
        return Outcome(Fate.RETURNED, None, outputs, (), (), (), 0, 0, 1, 1, 0, 1, 1, 1)

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        raise AssertionError("the oracle does not time")

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        raise AssertionError("the oracle does not replay")

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass


class Remembering(Formula):
    """Right on everything that was prepared, wrong on data it has not seen."""

    def __init__(self, output: int, seen: Sequence[Inputs]) -> None:
        super().__init__(output)
        self._seen = {np.asarray(inputs[0]).tobytes() for inputs in seen}

    def compute(self, inputs: Inputs) -> Array:
        right = np.asarray(super().compute(inputs), np.float32)
        return right if np.asarray(inputs[0]).tobytes() in self._seen else np.asarray(right + np.float32(1))


def context(subject: Subject, book: CaseBook) -> CheckContext:
    made = artifact(subject)
    return CheckContext(
        signature=subject.signature,
        target=Target("cpu", "x86-64-v3", 1),
        policy=STANDARD,
        cases=book,
        layouts=subject.layouts,
        peaks=None,
        key_of=lambda a: {},
        expected_key={"candidate": made.candidate.digest},
        audit=lambda a: (),
        used_features=lambda a: frozenset(),
        machine=digest_bytes(b"machine"),
        versions=(),
        clock_ns=lambda: 0,
    )


def checked(subject: Subject, executor: Formula, given: CheckContext) -> Receipt:
    return check_oracle(artifact(subject), executor, given)


SUBJECT = relu(7, 33)
OUTPUT = SUBJECT.signature.outputs[0]


def test_the_adversary_finds_nothing_wrong_with_an_honest_kernel() -> None:
    executor = Formula(OUTPUT)
    given = replace(context(SUBJECT, CaseBook(SUBJECT.signature)), adversary=HypothesisAdversary())
    receipt = checked(SUBJECT, executor, given)
    assert receipt.verdict is Verdict.PASSED
    assert ("drawn cases", "8 tried, none refused") in receipt.details
    assert executor.runs == len(receipt.cases) + 8


@pytest.mark.parametrize(("work", "tried"), [(1, 2), (1 << 31, 8)])
def test_few_cases_are_drawn_where_a_golden_is_costly(work: int, tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "HEAVY_WORK", work)
    drawn: list[str] = []

    def attempt(case: Case) -> bool:
        drawn.append(case.name)
        return True

    assert HypothesisAdversary().search(CaseBook(gemm(7, 12, 8).signature), attempt) is None
    assert len(drawn) == tried


def test_a_kernel_that_knows_the_prepared_cases_is_refused_by_a_drawn_one() -> None:
    book = CaseBook(SUBJECT.signature)
    executor = Remembering(OUTPUT, [case.inputs for case in book.oracle_cases()])
    plain = context(SUBJECT, book)
    assert checked(SUBJECT, executor, plain).verdict is Verdict.PASSED
    receipt = checked(SUBJECT, executor, replace(plain, adversary=HypothesisAdversary()))
    assert receipt.verdict is Verdict.REJECTED
    assert receipt.cases[-1].terms == "drawn"
    assert receipt.cases[-1].seed == 16, "the counterexample was not made simple"
    again = checked(SUBJECT, executor, replace(plain, adversary=HypothesisAdversary()))
    assert again.cases == receipt.cases


def test_equal_bytes_are_judged_once_and_recorded_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    book = CaseBook(SUBJECT.signature)
    receipt = checked(SUBJECT, Formula(OUTPUT), context(SUBJECT, book))
    assert len(receipt.cases) == len(book.oracle_cases())
    assert len({case.vector + str(case.seed) for case in receipt.cases}) == len(receipt.cases)


def _two_inputs() -> Signature:
    """``x * x + 0 * z``: z decides nothing."""
    builder = ProgramBuilder(Constants())
    x, z = (builder.input(TensorType(DType.F32, (5, 7)), "") for _ in range(2))
    zero = builder.constant(np.zeros((), np.float32), DType.F32)
    (nothing,) = builder.op("mul", (z, zero))
    (square,) = builder.op("mul", (x, x))
    (moved,) = builder.op("add", (square, nothing))
    return Signature(builder.finish("idle", (x, z), (moved,)), ComputePolicy.FP32, builder.constants)


def test_an_input_that_decides_nothing_makes_the_cases_mistrusted() -> None:
    signature = _two_inputs()
    book = CaseBook(signature)
    assert book.insensitive() == (1,)
    (output,) = signature.outputs

    class Copy(Formula):
        def compute(self, inputs: Inputs) -> Array:
            with np.errstate(all="ignore"):
                x, z = (np.asarray(inputs[i], np.float32) for i in (0, 1))
                return np.asarray(x * x + z * np.float32(0))

    subject = replace(SUBJECT, signature=signature, layouts=(SUBJECT.layouts[0],) * 3, aligns=())
    receipt = checked(subject, Copy(output), context(subject, book))
    assert receipt.verdict is Verdict.MISTRUSTED
    assert receipt.reason is not None
    assert receipt.reason.kind == "an input decides nothing"


def test_too_few_counted_cases_are_mistrusted() -> None:
    given = context(SUBJECT, CaseBook(SUBJECT.signature))
    demanding = replace(given, policy=replace(STANDARD, minimum_cases=99))
    receipt = checked(SUBJECT, Formula(OUTPUT), demanding)
    assert receipt.verdict is Verdict.MISTRUSTED
    assert receipt.reason is not None
    assert receipt.reason.kind == "too few cases counted"


@pytest.mark.parametrize("subject", [relu(1, 1), clip(1, 2, 0.5)], ids=["relu", "clip"])
def test_cases_of_one_number_count_together(subject: Subject) -> None:
    """Zero or a copy is right in each case, but neither is in all of them."""
    book = CaseBook(subject.signature)
    assert sum(case.counted for case in book.oracle_cases()) >= STANDARD.minimum_cases
    (output,) = subject.signature.outputs

    class Zeros(Formula):
        def compute(self, inputs: Inputs) -> Array:
            return np.zeros_like(inputs[0])

    assert checked(subject, Zeros(output), context(subject, book)).verdict is Verdict.REJECTED


def test_a_mask_that_becomes_a_bias_has_enough_cases_without_a_capture() -> None:
    """``(1 - mask) * -largest``: any mask but of zeros and ones overflows, and counts for nothing."""
    builder = ProgramBuilder(Constants())
    mask = builder.input(TensorType(DType.I64, (1, 1, 1, 32)), "mask")
    (real,) = builder.op("cast", (mask,), Attributes.of({"to": DType.F32}))
    one, least = (builder.constant(np.array(v, np.float32), DType.F32) for v in (1.0, np.finfo(np.float32).min))
    (inverted,) = builder.op("sub", (one, real))
    (bias,) = builder.op("mul", (inverted, least))
    signature = Signature(builder.finish("chain", (mask,), (bias,)), ComputePolicy.FP32, builder.constants)
    book = CaseBook(signature)
    assert sum(case.counted for case in book.oracle_cases()) >= STANDARD.minimum_cases
    assert book.insensitive() == ()


def test_shape_cases_cover_the_bounds_and_an_odd_dim() -> None:
    subject = gemm(Symbol("d0", "rows", 2, 8, 32), 12, 8)
    book = CaseBook(subject.signature)
    rows = {case.dims["d0"] for case in book.shape_cases()}
    assert {2, 32} <= rows
    assert any(r % 2 for r in rows)
    assert 8 not in rows
    assert all(case.dims["d0"] == 8 for case in book.oracle_cases())


def test_replay_cases_are_order_sensitive_and_layout_cases_finite() -> None:
    book = CaseBook(softmax(4, 9).signature)
    assert {c.descriptor.family for c in book.replay_cases()} <= {VectorFamily.RAND, VectorFamily.POS}
    assert all(np.isfinite(g.value).all() for c in book.layout_cases() for g in c.goldens)
    assert not np.any(book.zeros()[0])


def test_bindings_are_read_from_shapes_or_refused() -> None:
    program = gemm(Symbol("d0", "rows", 2, 8, 32), 12, 8).signature.program
    weights = {1: np.zeros((12, 8), np.float32), 2: np.zeros(8, np.float32)}
    assert bindings_of(program, {0: np.zeros((5, 12), np.float32), **weights}) == {"d0": 5}
    for wrong in ((40, 12), (5, 13)):
        assert bindings_of(program, {0: np.zeros(wrong, np.float32), **weights}) is None
    assert bindings_of(program, {0: np.zeros(12, np.float32), **weights}) is None
