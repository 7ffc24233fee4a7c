"""What a family of kernels answers: proposals, and the kernel that a proposal stands for.

Imported by: backend, the families beside it.  Imports: candidates, plan, toolchain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.layouts import Layout
from tribunus.plan.code import ONE_PART, PackedWeight, WorkSplit
from tribunus.targets.target import Target
from tribunus_native.toolchain import Contraction, Cpu

Layouts = tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One candidate to be: the choice, and the layouts of inputs then outputs."""

    config: Mapping[str, ConfigValue]
    layouts: Layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """C text with the entry ``kernel`` and how it is called; operands are in signature order.

    input_align, output_align: bytes, 0 for the element size.
    """

    text: str
    contraction: Contraction
    weights: tuple[PackedWeight, ...] = ()
    workspace: Dim = 0
    params: tuple[Dim, ...] = ()
    split: WorkSplit = ONE_PART
    in_place: tuple[tuple[int, int], ...] = ()


class Family(Protocol):
    """Kernels of one template.  ``layouts`` given: only proposals with exactly these."""

    @property
    def name(self) -> str:
        """Value of ``template`` in a config."""
        ...

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        """Why it cannot compute a signature, an empty string if it can."""
        ...

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        """Best first; the first proposal of each layout tuple is its best."""
        ...

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        """The kernel of a proposal."""
        ...
