"""Witnesses: another engine's outputs of the whole model, compared with golden.

Imported by: certification.  Imports: propagation.

A witness tests our golden and our lowering; it judges no candidate.  Foreign engines compute some functions with less
accuracy than a candidate may have (a logistic function that is 0 where it is 1e-8), so a witness is held to the
tensor's allowance alone.  A disagreement stops certification and asks a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tribunus.errors import InputError
from tribunus.numerics.rounding import decode
from tribunus.oracle.ops.call import Array
from tribunus.oracle.propagation import MAXIMA, OutputBudget, ProgramBudget
from tribunus.phaseir.program import Program


@dataclass(frozen=True, slots=True)
class WitnessVerdict:
    """One output.  ratio: largest difference over ``16 T``; for integers the share that differs, over nothing allowed.
    is_reported_only: a jump lies before it."""

    name: str
    ratio: float
    is_reported_only: bool

    @property
    def agrees(self) -> bool:
        """Within the tensor's allowance, or only reported."""
        return self.is_reported_only or self.ratio <= 1.0


def compare_witness(
    program: Program, witness: Mapping[str, Array], budget: ProgramBudget
) -> tuple[WitnessVerdict, ...]:
    """Compare a witness, by the model's output names, with every output that it has.

    Raises InputError if it has none of them, or another shape.
    """
    found = tuple(
        _compare(program.values[b.id].label, witness[program.values[b.id].label], b)
        for b in budget.outputs
        if program.values[b.id].label in witness
    )
    if not found:
        names = ", ".join(program.values[b.id].label for b in budget.outputs)
        raise InputError(f"the witness has none of the outputs {names}")
    return found


def _compare(name: str, stored: Array, budget: OutputBudget) -> WitnessVerdict:
    if stored.shape != budget.gold.shape:
        raise InputError(f"witness of {name} has shape {stored.shape}, golden has {budget.gold.shape}")
    if not budget.dtype.is_float:
        wrong = float(np.mean(stored != budget.gold)) if stored.size else 0.0
        return WitnessVerdict(name, np.inf if wrong else 0.0, budget.is_reported_only)
    held_as_bits = stored.dtype == budget.dtype.numpy and stored.dtype.kind == "u"
    wide = (decode(stored, budget.dtype) if held_as_bits else stored).astype(np.float64)
    with np.errstate(all="ignore"):
        gold = budget.gold.astype(np.float64)
        gap = np.where((wide == gold) | (np.isnan(wide) & np.isnan(gold)), 0.0, np.abs(wide - gold))
    largest = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    return WitnessVerdict(name, largest / (MAXIMA * budget.largest), budget.is_reported_only)
