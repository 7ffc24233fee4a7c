"""The passes in their order, each with the reason for its place.

Imported by: certification, cli.  Imports: the passes, verifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tribunus.errors import InternalError, VerifierError
from tribunus.passes.common_subexpressions import common_subexpressions
from tribunus.passes.eliminate_dead import eliminate_dead
from tribunus.passes.exact_algebra import exact_algebra
from tribunus.passes.fold_constants import fold_constants
from tribunus.passes.fold_shapes import fold_shapes
from tribunus.passes.keep_reduced_axes import keep_reduced_axes
from tribunus.passes.materialise_outputs import materialise_outputs
from tribunus.passes.normalise import normalise
from tribunus.passes.sink_movement import sink_movement
from tribunus.passes.split_dequantize import split_dequantize
from tribunus.phaseir.program import Constants, Program
from tribunus.phaseir.verifier import verify

MAX_ROUNDS: Final = 16


@dataclass(frozen=True, slots=True)
class Pass:
    """One step.  apply: pure and idempotent.  reason: why it stands here."""

    name: str
    apply: Callable[[Program, Constants], Program]
    reason: str


PIPELINE: Final[tuple[Pass, ...]] = (
    Pass("fold_shapes", fold_shapes, "extents that are known become constants, which the next pass computes with"),
    Pass("fold_constants", fold_constants, "weights that the model reshapes or transposes become weights"),
    Pass("normalise", normalise, "data movement that moves nothing hides patterns"),
    Pass("keep_reduced_axes", keep_reduced_axes, "reductions in one spelling, for patterns and broadcasting"),
    Pass("sink_movement", sink_movement, "movement between elementwise ops hides chains and epilogues"),
    Pass("exact_algebra", exact_algebra, "one spelling of a computation, for the patterns and for what follows"),
    Pass("common_subexpressions", common_subexpressions, "after the spellings agree, equal computations are seen"),
    Pass("eliminate_dead", eliminate_dead, "what the passes before bypassed has no reader left"),
    Pass("split_dequantize", split_dequantize, "after merging, each reader gets its own dequantization to fuse"),
    Pass("materialise_outputs", materialise_outputs, "last: planning wants each output to be the result of an op"),
)


def run_passes(program: Program, constants: Constants) -> Program:
    """``program`` after all passes, repeated until nothing changes; verified after each.

    Raises VerifierError naming the pass that broke a law.
    """
    verify(program)
    for _ in range(MAX_ROUNDS):
        before = program
        for step in PIPELINE:
            program = _run(step, program, constants)
        if program == before:
            return program
    raise InternalError(f"the passes did not settle within {MAX_ROUNDS} rounds")


def _run(step: Pass, program: Program, constants: Constants) -> Program:
    changed = step.apply(program, constants)
    try:
        verify(changed)
    except VerifierError as error:
        raise VerifierError(f"after {step.name}: {error.detail}") from error
    return changed
