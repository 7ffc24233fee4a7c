"""The reference backend: every op by NumPy in the worker.  The template for a new backend.

A backend is one package with two halves.  This one, the compile-time half, proposes and builds; ``replay.py``, the
run-time half, turns the built bytes into something that can be called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reference_backend.format import FORMAT
from tribunus.candidates.backend import AVAILABLE, Availability, Budget, Feedback
from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility, Signature
from tribunus.canon import Json, digest_bytes, encode
from tribunus.errors import InternalError
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.dims import Sym
from tribunus.phaseir.layouts import channels_last, row_major
from tribunus.phaseir.ops import OPS
from tribunus.phaseir.program import Array, Role, program_to_json
from tribunus.plan.code import Code, CodeFormat, Operand, PackedWeight, Packing, Recipe
from tribunus.targets.target import Target

REPLAYER = "tests.reference_backend.replay:REPLAYER"
POLICIES = (ComputePolicy.FP32, ComputePolicy.FP32_STRICT)


@dataclass(frozen=True, slots=True)
class ReferenceBackend:
    """Proposes one candidate a signature and layout: its ops one by one, each rounded to its dtype."""

    name: str = "reference"
    formats: Sequence[CodeFormat] = (FORMAT,)

    def serves(self, target: Target) -> Availability:
        """NumPy runs on every CPU."""
        return AVAILABLE if target.family == "cpu" else Availability(False, f"no NumPy on {target.family}")

    def covers(self, signature: Signature, target: Target) -> Availability:
        """Every op there is, in single precision."""
        if signature.policy not in POLICIES:
            return Availability(False, f"does not compute in the policy {signature.policy.value}")
        known = OPS.keys()
        strange = sorted({op.kind for op in signature.phase.ops} - known)
        return Availability(False, f"does not know {', '.join(strange)}") if strange else AVAILABLE

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        """Row-major everywhere, and channels last where a border value has spatial axes; or exactly the plan's."""
        ranks = [signature.type_of(v).rank for v in (*signature.inputs, *signature.outputs)]
        choices = [tuple(row_major(rank) for rank in ranks), tuple(channels_last(rank) for rank in ranks)]
        if feedback.layouts is not None:
            choices = [feedback.layouts]
        if not self.covers(signature, target).available:
            return
        refused = {refusal.candidate for refusal in feedback.refusals}
        for layouts in list(dict.fromkeys(choices))[: budget.limit]:
            candidate = Candidate(self.name, signature.digest, Config(), layouts, Reproducibility.D)
            if candidate.digest not in refused:
                yield candidate

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        """The bytes are the program and its inline constants; nothing is compiled."""
        inline: list[Json] = [
            [value, array.tobytes().hex()]
            for value in range(len(signature.program.values))
            if (array := signature.constant(value)) is not None
        ]
        document: Json = {"program": program_to_json(signature.program), "inline": inline}
        data = encode(document)
        border = (*signature.inputs, *signature.outputs)
        operands = [
            Operand(signature.type_of(v), layout, signature.type_of(v).dtype.itemsize)
            for v, layout in zip(border, candidate.layouts, strict=True)
        ]
        count = len(signature.inputs)
        weights = tuple(
            PackedWeight((v,), Packing("layout", layout=row_major(signature.type_of(v).rank)), _nbytes(signature, v))
            for v in signature.weights
        )
        params = tuple(Sym(symbol.name) for symbol in signature.program.symbols)
        recipe = Recipe(tuple(operands[:count]), tuple(operands[count:]), weights, params=params)
        record = BuildRecord((("numpy", "reference"),), (), digest_bytes(data))
        return Artifact(candidate, signature, Code(FORMAT, data), recipe, record)

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        """Every packing of this backend is a layout, which core code makes."""
        raise InternalError(f"unknown packing {packing.name}")

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        """None: this backend has no compiler."""
        return None


def _nbytes(signature: Signature, value: int) -> int:
    size = signature.type_of(value).nbytes
    if not isinstance(size, int) or signature.program.values[value].role is not Role.WEIGHT:
        raise InternalError("a weight of symbolic size")
    return size


BACKEND = ReferenceBackend()
