"""The schedule: a phase as an ordered list of steps over values that have one layout each.

Imported by: planning, certification.  Imports: passes.groups, candidates, phaseir.  Types only.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus.candidates.model import Signature
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.types import TensorType


@dataclass(frozen=True, slots=True)
class Demand:
    """A signature at given layouts: what is certified, and what a contest ranks candidates for."""

    signature: Signature
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class ScheduledValue:
    """A value with its layout.

    origin: the program's value id it holds.  alias_of: schedule value whose memory this is, None if it has its own.
    """

    type: TensorType
    layout: Layout
    origin: int
    alias_of: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call.  inputs, outputs: schedule values.  weights: program value ids of the signature's WEIGHTs.

    bind: the signature's symbols over the program's.  ops: indices of the phase's ops it computes, none for a
    conversion between layouts.
    """

    demand: Demand
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[int, ...]
    bind: tuple[Dim, ...]
    ops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in execution order.  inputs, outputs: schedule values of the phase's inputs and outputs, row-major."""

    values: tuple[ScheduledValue, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def root(self, value: int) -> int:
        """The value that owns the memory of ``value``."""
        while (source := self.values[value].alias_of) is not None:
            value = source
        return value

    def demands(self) -> tuple[Demand, ...]:
        """Every demand once, in order of first use."""
        return tuple(dict.fromkeys(step.demand for step in self.steps))
