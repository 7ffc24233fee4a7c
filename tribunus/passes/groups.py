"""What partitioning yields: regions of a phase, each with alternative ways to cut it into groups.

Imported by: passes, candidates, planning, certification.  Imports: phaseir.  Types only.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus.errors import InternalError
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Program


@dataclass(frozen=True, slots=True)
class Use:
    """One occurrence of a signature: which ops it computes, and which program values are its operands.

    label: what the group is (``conv+scale+relu``, ``layer_norm``, ``attention``, ...); also the name of the phase of
    ``signature``, because budgets depend on it.
    ops: indices into the phase's ops, ascending.
    signature: closed sub-program of one phase with canonical names: equal computations are equal programs.  Value ids:
    inputs first (in order of first use), then weights, then inline constants, then temporaries in op order.  Its
    symbols are d0, d1, ... with bounds.
    bind: value of d0, d1, ... as expressions over the program's symbols.
    inputs, weights, outputs: program value ids of the signature's INPUT and WEIGHT values and of its phase outputs.
    """

    label: str
    ops: tuple[int, ...]
    signature: Program
    bind: tuple[Dim, ...]
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """Ops of a phase that some groupings compute together.

    alternatives: each is a list of uses that covers exactly ``ops``, none twice; the most fused first.
    """

    ops: tuple[int, ...]
    alternatives: tuple[tuple[Use, ...], ...]

    def __post_init__(self) -> None:
        for uses in self.alternatives:
            covered = sorted(op for use in uses for op in use.ops)
            if tuple(covered) != self.ops:
                raise InternalError(f"an alternative covers {covered}, the region has {self.ops}")


@dataclass(frozen=True, slots=True)
class Alias:
    """A value that is another value's memory seen with another shape: a reshape needs no kernel."""

    op: int
    source: int
    value: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A phase cut into regions; ops that are aliases belong to no region."""

    phase: int
    regions: tuple[Region, ...]
    aliases: tuple[Alias, ...]
