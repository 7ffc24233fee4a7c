"""An image whose kernel has a true signature, y = x + w with w inline: its checks can be repeated from the image."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.conftest import MAX_ROWS, WEIGHT, Array, Built, Said
from tribunus.admission.key import Machine, content_key, full_key
from tribunus.canon import Digest, JsonObject, digest_bytes, encode
from tribunus.cli import recertify
from tribunus.cli.image_programs import programs_of
from tribunus.cli.recertify_kernels import artifact_of, signatures_of
from tribunus.image.admissions import CHECK_NAMES, AdmissionLine, decode_lines, encode_lines
from tribunus.image.content import to_jsonl
from tribunus.image.read import open_image
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.program import Constants, ProgramBuilder, Role, program_to_json
from tribunus.phaseir.types import TensorType
from tribunus.plan.plan import Plan, PlanKernel
from tribunus.targets.detect import machine_facts
from tribunus.targets.target import Target

Tool = Callable[..., Said]
Maker = Callable[..., Path]
CONSTANT: JsonObject = {"dtype": "f32", "shape": [4], "data": WEIGHT.tobytes().hex()}


def a_program(weight: Array = WEIGHT, kind: str = "add") -> JsonObject:
    constants = Constants()
    builder = ProgramBuilder(constants, (Symbol("s0", "rows", 1, 4, MAX_ROWS),))
    x = builder.input(TensorType(DType.F32, (Sym("s0"), 4)), "x")
    (y,) = builder.op(kind, (x, builder.constant(weight, DType.F32)))
    program = builder.finish("main", (x,), (y,))
    return {"schema": "tribunus.phaseir-set/1", "programs": [program_to_json(program)], "constants": [CONSTANT]}


@pytest.fixture
def certified(make_image: Maker, built: Built, tmp_path: Path) -> Callable[..., Path]:
    """Write the image; the arguments put other things in the place of the honest ones.

    kind: what the kernel is said to compute; it adds.
    """
    target = Target("cpu", built.arch, 1)

    def make(phaseir: JsonObject | None = None, artifact: Digest | None = None, kind: str = "add") -> Path:
        programs = programs_of(encode(a_program(kind=kind)))
        (signature,) = [s for s in signatures_of(programs, ComputePolicy.FP32) if s.label != "copy"]
        (constant,) = [i for i, v in enumerate(signature.program.values) if v.role is Role.CONSTANT]
        plans: list[PlanKernel] = []

        def change(plan: Plan) -> Plan:
            (kernel,) = plan.kernels
            (weight,) = kernel.recipe.weights
            recipe = dataclasses.replace(kernel.recipe, weights=(dataclasses.replace(weight, sources=(constant,)),))
            key = dataclasses.replace(kernel.key, backend="native")
            kernel = dataclasses.replace(kernel, signature=signature.digest, recipe=recipe, key=key)
            made = artifact_of(kernel, signature, memoryview(built.add[0]))
            kernel = dataclasses.replace(kernel, key=content_key(made.candidate, signature, target))
            plans.append(kernel)
            profile = plan.profiles[0]
            first, second = profile.launches
            launch = dataclasses.replace(first, args=(first.args[0], second.args[1], first.args[2]))
            return dataclasses.replace(
                plan, kernels=(kernel,), profiles=(dataclasses.replace(profile, launches=(launch,)),)
            )

        def lines(admissions: bytes, receipts: bytes) -> tuple[bytes, bytes]:
            made = artifact_of(plans[-1], signature, memoryview(built.add[0]))
            named = artifact or made.digest
            key = dict(full_key(made, target, Machine("none", "", frozenset(machine_facts().features))))
            key["toolchain"] = "as it was"
            documents = {name: receipt(name, named) for name in CHECK_NAMES}
            checks = {name: ("passed", digest_bytes(document)) for name, document in documents.items()}
            line = AdmissionLine(
                plans[-1].id, named, key, checks, 0.5, 900, 4000, "cd" * 32, "device", Digest("ef" * 32)
            )
            return encode_lines([line]), to_jsonl(documents.values())

        def goldens(blob: bytes) -> bytes:
            x = np.frombuffer(blob[:48], np.float32).reshape(3, 4)
            return blob[:48] + (x + WEIGHT).tobytes()

        document = phaseir or a_program(kind=kind)
        return make_image(tmp_path / "certified.tci", change, phaseir=document, lines=lines, goldens=goldens)

    return make


def receipt(check: str, artifact: str) -> bytes:
    return encode({"check": check, "verdict": "passed", "artifact": artifact})


def artifact_in(path: Path) -> str:
    with open_image(path) as source:
        (line,) = decode_lines(source.region(source.targets[0]).admissions())
    return line.artifact


def test_the_image_replays_what_it_recorded(tribunus: Tool, certified: Callable[..., Path]) -> None:
    path = certified()
    assert tribunus("verify", path).code == 0
    assert tribunus("selftest", path).code == 0


@pytest.mark.parametrize("check", ["oracle", "shape", "layout", "replay", "cache-key"])
def test_one_receipt_is_repeated(tribunus: Tool, certified: Callable[..., Path], check: str) -> None:
    path = certified()
    said = tribunus("recertify", path, "--receipt", digest_bytes(receipt(check, artifact_in(path)))[:20], "--json")
    assert said.code == 0, said.err
    (kernel,) = said.document["kernels"]
    assert kernel["here"] == {check: "passed"} and said.document["agrees"] is True


def test_a_kernel_that_computes_something_else_is_found_out(
    tribunus: Tool, certified: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recertify, "calibrate", lambda: SimpleNamespace(peaks=None))
    said = tribunus("recertify", certified(kind="sub"))
    assert said.code == 1 and "refused: E_DIFFERS: 1 kernel" in said.err
    assert "rejected: oracle" in said.out


def test_an_unknown_receipt_or_kernel_is_a_usage_error(tribunus: Tool, certified: Callable[..., Path]) -> None:
    path = certified()
    assert tribunus("recertify", path, "--receipt", "00" * 32).code == 4
    assert tribunus("recertify", path, "--kernel", "nothing").code == 4


def test_an_admission_of_another_artifact_is_refused(tribunus: Tool, certified: Callable[..., Path]) -> None:
    said = tribunus("recertify", certified(artifact=Digest("ab" * 32)))
    assert said.code == 31 and "another artifact" in said.err


def test_a_kernel_that_the_programs_do_not_contain_is_refused(tribunus: Tool, certified: Callable[..., Path]) -> None:
    program = a_program(WEIGHT + 1)
    program["constants"] = [{**CONSTANT, "data": (WEIGHT + 1).tobytes().hex()}]
    said = tribunus("recertify", certified(phaseir=program))
    assert said.code == 12 and "do not contain" in said.err


def test_without_the_small_constants_the_model_is_asked_for(tribunus: Tool, certified: Callable[..., Path]) -> None:
    program = a_program()
    del program["constants"]
    said = tribunus("recertify", certified(phaseir=program))
    assert said.code == 4 and "--model" in said.err


def test_constants_of_the_wrong_size_are_refused(tribunus: Tool, certified: Callable[..., Path]) -> None:
    program = a_program()
    program["constants"] = [{**CONSTANT, "data": "00"}]
    assert tribunus("recertify", certified(phaseir=program)).code == 11
