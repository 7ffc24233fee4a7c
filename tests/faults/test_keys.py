"""Faults of keys and files: F32, F33, F34, F36.  No kernel is wrong here; what is said about it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import honest
from tests.faults.subjects import Subject, clip, relu
from tests.faults.workshop import Workshop
from tribunus.admission.cache_key_check import check_cache_key
from tribunus.admission.receipt import Receipt, Verdict
from tribunus.candidates.model import Artifact
from tribunus.canon import digest_bytes
from tribunus.isolation.worker import CpuExecutor
from tribunus.ledger.artifacts import ArtifactStore

KeyOf = Callable[[Artifact], Mapping[str, str]]
_MASK = (1 << 64) - 1


def hash_combine(shape: tuple[int, ...]) -> int:
    """The classic: a constant of 32 bits in 64-bit arithmetic."""
    seed = 0
    for value in shape:
        seed ^= (value + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & _MASK
    return seed & _MASK


def checked(
    workshop: Workshop, executor: CpuExecutor, artifact: Artifact, recorded: Artifact, key_of: KeyOf
) -> Receipt:
    """The check of ``artifact`` under the key that was recorded for ``recorded``."""
    context = replace(workshop.context(artifact), key_of=key_of, expected_key=key_of(recorded))
    return check_cache_key(artifact, executor, context)


def refused(receipt: Receipt) -> str:
    assert receipt.verdict is Verdict.REJECTED
    assert receipt.reason is not None
    return receipt.reason.kind


@pytest.fixture
def pair(workshop: Workshop) -> tuple[Artifact, Artifact]:
    """The same operation at two shapes that collide."""
    first, second = (workshop.artifact(relu(*shape), honest.RELU) for shape in ((3, 17), (1, 152)))
    return first, second


def test_f32_shapes_that_collide_in_a_weak_hash_do_not_share_evidence(
    pair: tuple[Artifact, Artifact], workshop: Workshop, executor: CpuExecutor
) -> None:
    assert hash_combine((3, 17, 1, 1)) == hash_combine((1, 152, 1, 1))
    first, second = pair
    receipt = checked(workshop, executor, second, first, workshop.key_of)
    assert refused(receipt) == "key differs"
    assert receipt.reason is not None
    assert "shape" in {figure.what for figure in receipt.reason.figures}
    for artifact in pair:
        assert checked(workshop, executor, artifact, artifact, workshop.key_of).verdict is Verdict.PASSED


def test_f32_a_key_that_is_only_a_hash_is_refused(
    pair: tuple[Artifact, Artifact], workshop: Workshop, executor: CpuExecutor
) -> None:
    def weak(artifact: Artifact) -> Mapping[str, str]:
        shape = artifact.signature.type_of(artifact.signature.inputs[0]).numbers()
        return {"hash": str(hash_combine((*shape, 1, 1)))}

    first, second = pair
    assert weak(first) == weak(second)
    assert refused(checked(workshop, executor, second, first, weak)) == "key lacks a field"


@pytest.mark.parametrize("field", ["op", "quantization", "signature", "shape", "layouts", "recipe"])
def test_f33_a_key_that_drops_a_field_is_refused(field: str, workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = workshop.artifact(relu(7, 33), honest.RELU)

    def without(artifact: Artifact) -> Mapping[str, str]:
        return {name: value for name, value in workshop.key_of(artifact).items() if name != field}

    assert refused(checked(workshop, executor, artifact, artifact, without)) == "key lacks a field"


def test_f33_a_key_whose_identity_is_made_up_is_refused(workshop: Workshop, executor: CpuExecutor) -> None:
    """Every field is there, but the epilogue decides none of them."""
    artifact = workshop.artifact(relu(7, 33), honest.RELU)

    def same_for_all(artifact: Artifact) -> Mapping[str, str]:
        return {**workshop.key_of(artifact), "signature": digest_bytes(b"matmul"), "op": "matmul"}

    assert refused(checked(workshop, executor, artifact, artifact, same_for_all)) == "key names another thing"


def _limits() -> tuple[Subject, Subject]:
    return clip(7, 33, 6.0), clip(7, 33, 1.0)


def test_f34_a_key_by_name_serves_changed_constants(workshop: Workshop, executor: CpuExecutor) -> None:
    six, one = (workshop.artifact(subject, honest.CLIP) for subject in _limits())
    assert six.signature.label == one.signature.label

    def by_name(artifact: Artifact) -> Mapping[str, str]:
        name = digest_bytes(artifact.signature.label.encode())
        identity = dict.fromkeys(("signature", "candidate", "artifact", "code"), name)
        return {**workshop.key_of(artifact), **identity}

    assert by_name(six) == by_name(one)
    assert refused(checked(workshop, executor, one, six, by_name)) == "key names another thing"
    assert refused(checked(workshop, executor, one, six, workshop.key_of)) == "key differs"
    assert checked(workshop, executor, six, six, workshop.key_of).verdict is Verdict.PASSED


def test_f36_code_swapped_after_its_key_was_recorded(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = workshop.artifact(relu(7, 33), honest.RELU)
    other = workshop.artifact(relu(7, 33), "for (int64_t i = 0; i < M * N; i++) y[i] = x[i];")
    swapped = replace(artifact, code=other.code)
    receipt = checked(workshop, executor, swapped, artifact, workshop.key_of)
    assert refused(receipt) == "key differs"
    assert receipt.reason is not None
    assert {figure.what for figure in receipt.reason.figures} == {"artifact", "code"}


def test_f36_a_stored_file_that_was_swapped_is_no_artifact(workshop: Workshop, tmp_path: Path) -> None:
    artifact = workshop.artifact(relu(7, 33), honest.RELU)
    other = workshop.artifact(relu(7, 33), "for (int64_t i = 0; i < M * N; i++) y[i] = x[i];")
    store, toolchain = ArtifactStore(tmp_path), digest_bytes(b"tools")
    store.put(artifact, toolchain)
    assert store.get(artifact.candidate, artifact.signature, toolchain) == artifact
    (path,) = tmp_path.iterdir()
    assert artifact.code.data in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(artifact.code.data, other.code.data))
    assert store.get(artifact.candidate, artifact.signature, toolchain) is None
