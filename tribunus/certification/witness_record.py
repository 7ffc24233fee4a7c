"""What the program check keeps about a witness: another engine's outputs of a case, held against the golden.

Imported by: certification.program_check, certify.  Imports: oracle.witness, canon.  It never decides about an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tribunus.canon import Json, JsonObject, f64_to_text, int_of, member_of, object_of, str_of, text_to_float
from tribunus.errors import InputError
from tribunus.oracle.propagation import MAXIMA, ProgramBudget
from tribunus.oracle.witness import WitnessVerdict, compare_witness
from tribunus.phaseir.program import Array, Program

ENGINE_ENTRY: Final = "witness"
"""Entry of CASE.ref.npz that may name the engine and its version in one line of text."""
_LONGEST_ENGINE: Final = 120
_NUMBERS: Final = "biuf"


class WitnessAnswer(StrEnum):
    """What a witness says about the golden."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRecord:
    """One case.

    engine: name and version as the file says, empty where it does not.  reason: why it was not compared, else empty.
    output: the one that lies furthest from golden among those that could disagree; among all where none could; empty
    where nothing was measured.  distance, limit: the largest difference of that output, and what is allowed, in units
    of T, the largest deviation that honest rounding gives its tensor.  compared: outputs that could disagree, of
    ``outputs``; the others lie behind a jump, or the file lacks them.
    """

    engine: str
    answer: WitnessAnswer
    reason: str
    output: str
    distance: float
    limit: float
    compared: int
    outputs: int

    def document(self) -> JsonObject:
        """Document form."""
        return {
            "engine": self.engine,
            "answer": self.answer.value,
            "reason": self.reason,
            "output": self.output,
            "distance": f64_to_text(self.distance),
            "limit": f64_to_text(self.limit),
            "compared": self.compared,
            "outputs": self.outputs,
        }

    @property
    def words(self) -> str:
        """For a line of the terminal."""
        if self.answer is WitnessAnswer.NOT_COMPARED:
            return f"not compared: {self.reason}"
        loud = "DISAGREES" if self.answer is WitnessAnswer.DISAGREES else self.answer.value
        return f"{loud}: output {self.output!r} is {self.distance:.6g} T from golden, allowed {self.limit:g} T"


def record_from_json(value: Json) -> WitnessRecord:
    """Inverse of ``WitnessRecord.document``.  Raises SchemaError."""
    where = "witness of a program receipt"
    names = "engine answer reason output distance limit compared outputs"
    document = object_of(value, where, frozenset(names.split()))
    return WitnessRecord(
        engine=str_of(document["engine"], where),
        answer=member_of(WitnessAnswer, document["answer"], where),
        reason=str_of(document["reason"], where),
        output=str_of(document["output"], where),
        distance=text_to_float(str_of(document["distance"], where)),
        limit=text_to_float(str_of(document["limit"], where)),
        compared=int_of(document["compared"], where),
        outputs=int_of(document["outputs"], where),
    )


def judge_witness(program: Program, stored: Mapping[str, Array], budget: ProgramBudget) -> WitnessRecord:
    """Hold a witness against golden; one that cannot be compared is recorded with the reason."""
    labels = [program.values[output.id].label for output in budget.outputs]
    for label in labels:
        if label in stored and stored[label].dtype.kind not in _NUMBERS:
            return not_compared(program, stored, f"witness of {label} holds {stored[label].dtype}, not numbers")
    try:
        found = compare_witness(program, stored, budget)
    except InputError as error:
        return not_compared(program, stored, error.detail)
    able = [verdict for verdict in found if _could_disagree(verdict)]
    worst = max(able or found, key=lambda verdict: verdict.ratio)
    answer = WitnessAnswer.AGREES if all(verdict.agrees for verdict in able) else WitnessAnswer.DISAGREES
    reason = ""
    if not able:
        answer, reason = WitnessAnswer.NOT_COMPARED, "a jump lies before every output that it has"
    return WitnessRecord(
        engine=_engine(labels, stored),
        answer=answer,
        reason=reason,
        output=worst.name,
        distance=worst.ratio * MAXIMA,
        limit=MAXIMA,
        compared=len(able),
        outputs=len(labels),
    )


def not_compared(program: Program, stored: Mapping[str, Array], reason: str) -> WitnessRecord:
    """The record of a witness that was not compared, because of ``reason``."""
    labels = [program.values[value].label for value in program.only_phase.outputs]
    return WitnessRecord(
        engine=_engine(labels, stored),
        answer=WitnessAnswer.NOT_COMPARED,
        reason=reason,
        output="",
        distance=0.0,
        limit=MAXIMA,
        compared=0,
        outputs=len(labels),
    )


def _could_disagree(verdict: WitnessVerdict) -> bool:
    """Behind a jump only agreement says something: honest rounding may land on either side of it."""
    return not verdict.is_reported_only or verdict.ratio <= 1.0


def _engine(labels: list[str], stored: Mapping[str, Array]) -> str:
    """What the file says about its engine: one text beside the outputs, unless the model has an output of that name."""
    text = stored.get(ENGINE_ENTRY)
    if text is None or ENGINE_ENTRY in labels or text.dtype.kind != "U" or text.size != 1:
        return ""
    # an unpaired surrogate has no canonical form
    return str(text.reshape(())).encode("utf-8", "replace").decode("utf-8")[:_LONGEST_ENGINE]
