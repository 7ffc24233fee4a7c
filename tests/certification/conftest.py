"""A certification of one ReLU whose backend is a toy, so that nothing is compiled and nothing runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.admission.samples import receipt
from tribunus.admission.captured import CapturedCase
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import CHECKS, Check, Verdict
from tribunus.candidates.backend import AVAILABLE, Availability, Budget, Effort, Feedback, Refusal
from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility, Signature
from tribunus.candidates.registry import Registry
from tribunus.canon import digest_bytes
from tribunus.certification.bench import open_bench
from tribunus.certification.pipeline import Bench, Certification, Item, JitUse, Request
from tribunus.errors import ToolError
from tribunus.frontend.bindings import Bound, DimBindings
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.layouts import row_major
from tribunus.phaseir.program import Array
from tribunus.plan.code import Code, CodeFormat, Operand, Packing, Recipe
from tribunus.targets.target import Target

TARGET = Target("cpu", "x86-64-v3", 1)


@dataclass
class ToyBackend:
    """Proposes ``amount`` candidates; builds bytes that are no code, but for those in ``unbuildable``."""

    amount: int = 9
    name: str = "toy"
    formats: Sequence[CodeFormat] = (CodeFormat("flat"),)
    unbuildable: frozenset[int] = frozenset()
    generates: bool = False
    heard: list[tuple[Refusal, ...]] = field(default_factory=list)
    places: list[Path] = field(default_factory=list)

    def serves(self, target: Target) -> Availability:
        return AVAILABLE

    def covers(self, signature: Signature, target: Target) -> Availability:
        return AVAILABLE

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        self.heard.append(feedback.refusals)
        border = (*signature.inputs, *signature.outputs)
        layouts = tuple(row_major(signature.type_of(v).rank) for v in border)
        for number in itertools.islice(range(self.amount), budget.limit):
            yield Candidate(self.name, signature.digest, Config.of({"n": number}), layouts, Reproducibility.R)

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        self.places.append(workdir)
        number = candidate.config.integer("n")
        if number in self.unbuildable:
            raise ToolError("the compiler is away")
        operands = [
            Operand(signature.type_of(v), layout, 64)
            for v, layout in zip((*signature.inputs, *signature.outputs), candidate.layouts, strict=True)
        ]
        recipe = Recipe((operands[0],), (operands[1],), (), 0, (), jit_at_open=self.generates)
        code = Code(CodeFormat("flat"), b"code %d" % number, (("text_size", 4),))
        return Artifact(candidate, signature, code, recipe, BuildRecord((("cc", "1"),), ("cc",), digest_bytes(b"c")))

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        return b""

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        return None


@pytest.fixture
def backend() -> ToyBackend:
    return ToyBackend()


@pytest.fixture
def bench(backend: ToyBackend, tmp_path: Path) -> Iterator[Bench]:
    said: list[str] = []
    made = open_bench(Registry({backend.name: backend}), TARGET, tmp_path / "ledger.sqlite", said.append)
    yield made
    made.close()


Certify = Callable[..., Certification]


@pytest.fixture
def certify(bench: Bench, tmp_path: Path) -> Iterator[Certify]:
    """Certifications of ``y = relu(x)``, x f32[batch, 4]."""
    made: list[Certification] = []
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "toy", value[:1], value[1:])
    path = tmp_path / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def make(
        *, limit: int = 1, batch: Bound | None = None, cases: Mapping[str, int] | None = None, jit: JitUse = JitUse.FREE
    ) -> Certification:
        request = Request(
            model=path,
            external_data=False,
            profiles=(DimBindings((("batch", batch or Bound(2, 2, 2)),)),),
            target=TARGET,
            compute=ComputePolicy.FP32,
            effort=Budget(Effort.STANDARD, limit),
            policy=STANDARD,
            jobs=2,
            jit=jit,
            states=(),
            choices=None,
        )
        captured = [
            CapturedCase(name, {"x": np.zeros((rows, 4), np.float32)}, None) for name, rows in (cases or {}).items()
        ]
        found = Certification(request, bench, captured)
        made.append(found)
        return found

    yield make
    for certification in made:
        certification.close()


def refuse(items: Sequence[Item], check: Check = Check.ORACLE) -> None:
    """As if ``check`` had refused each of ``items``."""
    for item in items:
        item.receipts.append(receipt(check, Verdict.REJECTED, candidate=item.candidate.digest))


def admit(item: Item) -> None:
    """As if every check had passed."""
    item.receipts.extend(replace(receipt(check), candidate=item.candidate.digest) for check in CHECKS)
