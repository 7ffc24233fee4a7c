"""What every backend promises, whoever wrote it.  A new one adds a line to ENTRIES and passes unchanged."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.conftest import Subject, replay_place
from tests.conformance.signatures import CANONICAL, foreign_policy, unknown
from tribunus.admission.cases import CaseBook
from tribunus.admission.context import CheckContext
from tribunus.admission.flat_audit import audit_artifact, features_used
from tribunus.admission.key import Machine, full_key
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import CHECKS, Check
from tribunus.admission.series import OutcomeKind, outcome_of, run_series
from tribunus.candidates.backend import NO_FEEDBACK, Budget, Effort, Feedback, Refusal, packed_weights
from tribunus.candidates.model import Artifact, Candidate, Signature
from tribunus.canon import digest_bytes
from tribunus.isolation.calibration import calibrate
from tribunus.isolation.executor import Axis
from tribunus.isolation.worker import CpuExecutor
from tribunus.phaseir import dims
from tribunus.targets.detect import machine_facts
from tribunus.targets.target import Peaks, Target

BUDGET = Budget(Effort.STANDARD, 6)
TRIES = 3
REPLAYS = (
    (Axis.REPEAT, 14),
    (Axis.PROCESS, 1),
    (Axis.ADDRESS, 5),
    (Axis.POISON, 3),
    (Axis.COLD, 1),
    (Axis.LOAD, 1),
    (Axis.INTERLEAVE, 3),
    (Axis.PREFILL, 2),
)
POLICY = replace(STANDARD, slack=1e6, first_call_ratio=1e6, zero_ratio=0.0, replays=REPLAYS)
"""Speed is the contest's business, not conformance."""
_EACH = pytest.mark.parametrize("name", CANONICAL)


@pytest.fixture(scope="session")
def peaks() -> Peaks:
    return calibrate().peaks


@pytest.fixture(scope="session")
def books() -> Callable[[Signature], CaseBook]:
    """Cases, made once for all backends."""
    made: dict[str, CaseBook] = {}

    def book(signature: Signature) -> CaseBook:
        return made.setdefault(signature.digest, CaseBook(signature))

    return book


def covered(subject: Subject, name: str) -> Signature:
    """The signature, if the backend says that it covers it."""
    signature = CANONICAL[name]()
    answer = subject.backend.covers(signature, subject.target)
    if not answer.available:
        assert answer.reason, "a refusal without a reason"
        pytest.skip(f"{subject.entry.name} does not cover {name}: {answer.reason}")
    return signature


def proposals(subject: Subject, signature: Signature, feedback: Feedback = NO_FEEDBACK) -> list[Candidate]:
    return list(subject.backend.propose(signature, subject.target, BUDGET, feedback))


def build(subject: Subject, signature: Signature, candidate: Candidate, folder: Path) -> Artifact:
    folder.mkdir(parents=True)
    return subject.backend.build(candidate, signature, subject.target, folder)


def test_a_foreign_target_is_refused_with_a_reason(subject: Subject) -> None:
    answer = subject.backend.serves(Target("cuda", "sm_90", 1))
    assert not answer.available
    assert answer.reason


@pytest.mark.parametrize("make", [unknown, foreign_policy])
def test_what_nobody_computes_is_refused_with_a_reason(make: Callable[[], Signature], subject: Subject) -> None:
    signature = make()
    answer = subject.backend.covers(signature, subject.target)
    assert not answer.available
    assert answer.reason
    assert proposals(subject, signature) == []


@_EACH
def test_proposals_are_deterministic_distinct_and_of_this_signature(name: str, subject: Subject) -> None:
    signature = covered(subject, name)
    first, second = proposals(subject, signature), proposals(subject, CANONICAL[name]())
    assert first == second
    assert 0 < len(first) <= BUDGET.limit
    assert len({candidate.digest for candidate in first}) == len(first)
    ranks = [signature.type_of(v).rank for v in (*signature.inputs, *signature.outputs)]
    for candidate in first:
        assert candidate.backend == subject.backend.name
        assert candidate.signature == signature.digest
        assert [layout.rank for layout in candidate.layouts] == ranks
        assert list(candidate.config.items) == sorted(candidate.config.items)


@_EACH
def test_planned_layouts_are_honoured_and_refused_candidates_are_not_proposed(name: str, subject: Subject) -> None:
    signature = covered(subject, name)
    for layouts in dict.fromkeys(candidate.layouts for candidate in proposals(subject, signature)):
        planned = proposals(subject, signature, Feedback(layouts=layouts))
        assert planned
        assert {candidate.layouts for candidate in planned} == {layouts}
        refusal = Refusal(planned[0].digest, "oracle", "element beyond its budget", ())
        again = proposals(subject, signature, Feedback(layouts, (refusal,)))
        assert planned[0].digest not in {candidate.digest for candidate in again}


@_EACH
def test_a_build_is_pure_and_its_recipe_fits_the_signature(
    name: str, subject: Subject, tmp_path: Path, books: Callable[[Signature], CaseBook]
) -> None:
    signature = covered(subject, name)
    candidate = proposals(subject, signature)[0]
    artifact, again = (build(subject, signature, candidate, tmp_path / place) for place in ("one", "another"))
    assert artifact.code.data == again.code.data
    assert artifact.digest == again.digest
    assert artifact.build == again.build
    assert str(tmp_path) not in " ".join(artifact.build.argv)
    assert artifact.code.format in subject.backend.formats
    recipe = artifact.recipe
    border = (*signature.inputs, *signature.outputs)
    operands = (*recipe.inputs, *recipe.outputs)
    assert [operand.type for operand in operands] == [signature.type_of(value) for value in border]
    assert tuple(operand.layout for operand in operands) == candidate.layouts
    assert recipe.buffer_count == len(operands) + len(recipe.weights) + recipe.has_workspace
    for operand in operands:
        assert operand.align >= operand.type.dtype.itemsize
        assert operand.align & (operand.align - 1) == 0
    for size in (recipe.workspace, *recipe.params):
        assert dims.evaluate(size, signature.program.scope.optimum()) >= 0
    assert all(0 <= o < len(recipe.outputs) and 0 <= i < len(recipe.inputs) for o, i in recipe.in_place)
    inputs = books(signature).timing_case().inputs
    packed = packed_weights(subject.backend, artifact, inputs)
    assert [len(data) for data in packed] == [weight.nbytes for weight in recipe.weights]
    assert packed == packed_weights(subject.backend, artifact, inputs)
    sources = {value for weight in recipe.weights for value in weight.sources}
    inline = {v for v in range(len(signature.program.values)) if signature.constant(v) is not None}
    assert sources <= {*signature.weights, *inline}


@_EACH
def test_the_series_admits_a_candidate(
    name: str,
    subject: Subject,
    executor: CpuExecutor,
    peaks: Peaks,
    books: Callable[[Signature], CaseBook],
    tmp_path: Path,
) -> None:
    signature = covered(subject, name)
    facts = machine_facts()
    machine = Machine("none", facts.model, frozenset(facts.features))
    reasons: list[str] = []
    for number, candidate in enumerate(proposals(subject, signature)[:TRIES]):
        artifact = build(subject, signature, candidate, tmp_path / str(number))

        def key_of(artifact: Artifact) -> dict[str, str]:
            return dict(full_key(artifact, subject.target, machine))

        context = CheckContext(
            signature=signature,
            target=subject.target,
            policy=POLICY,
            cases=books(signature),
            layouts=candidate.layouts,
            peaks=peaks,
            key_of=key_of,
            expected_key=key_of(artifact),
            audit=audit_artifact,
            used_features=features_used,
            machine=digest_bytes(b"machine"),
            versions=(),
            clock_ns=time.monotonic_ns,
        )
        receipts = list(run_series(artifact, executor, context))
        if known := dict(subject.entry.refused).get(name):
            assert receipts[-1].reason is not None
            assert (receipts[-1].check, receipts[-1].reason.kind) == (Check.ORACLE, known)
            continue
        if outcome_of(receipts) == (OutcomeKind.ADMITTED, None):
            assert [receipt.check for receipt in receipts] == list(CHECKS)
            return
        reasons.append(f"{candidate}: {receipts[-1].check} {receipts[-1].reason}")
    if name not in dict(subject.entry.refused):
        pytest.fail("\n".join(reasons))


def test_the_replay_half_comes_without_the_compile_half(subject: Subject) -> None:
    others = ("onnx", "pytest", "torch", "tribunus.candidates.backend", "tribunus.admission")
    forbidden = (*subject.entry.compile_time, *others)
    text = (
        f"import sys, {subject.entry.replay} as half\n"
        f"assert half.REPLAYER.format in {[str(f) for f in subject.backend.formats]!r}\n"
        f"found = [name for name in {forbidden!r} if name in sys.modules]\n"
        "assert not found, found\n"
    )
    answer = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    for format_ in subject.backend.formats:
        assert replay_place(subject.entry, format_).partition(":")[0] == subject.entry.replay
