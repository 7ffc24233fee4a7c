"""The Backend protocol: where candidates come from.  Adding a backend is one package and no edit of the core.

Imported by: backends, planning, admission, certification.  Imports: candidates.model, targets, plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tribunus.candidates.model import Artifact, Candidate, Signature
from tribunus.canon import Digest
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array
from tribunus.plan.code import Code, CodeFormat, Packing
from tribunus.targets.target import Target


class Effort(StrEnum):
    """How many candidates are proposed for a signature; a plain number is the other form."""

    QUICK = "quick"
    STANDARD = "standard"
    EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True, slots=True)
class Budget:
    """Most candidates a backend should propose for one signature; proposals come best first."""

    effort: Effort
    limit: int


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether something can be done here, and if not, why and what to do about it."""

    available: bool
    reason: str = ""
    remedy: str = ""


AVAILABLE = Availability(True)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an earlier round refused: which candidate, which check, for which reason class, with which figures."""

    candidate: Digest
    check: str
    reason: str
    figures: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a backend may know from earlier: the layouts the plan wants at the border, and refusals of this signature.

    layouts: inputs then outputs; None while the layout plan is not made: then every layout a backend is good at may be
    proposed, and the plan chooses among them.
    """

    layouts: tuple[Layout, ...] | None = None
    refusals: tuple[Refusal, ...] = field(default=())


NO_FEEDBACK = Feedback()


class Backend(Protocol):
    """A source of candidates.  Everything here runs in the parent; what it builds runs in the worker alone."""

    @property
    def name(self) -> str:
        """Identifier, also the prefix of candidate names."""
        ...

    @property
    def formats(self) -> Sequence[CodeFormat]:
        """Code formats of its artifacts; each has a Replayer."""
        ...

    def serves(self, target: Target) -> Availability:
        """Whether artifacts for ``target`` can be built here."""
        ...

    def covers(self, signature: Signature, target: Target) -> Availability:
        """Whether it can compute ``signature``; cheap."""
        ...

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        """Candidates in a deterministic order, best by its own cost model first; cheap."""
        ...

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        """Build in ``workdir`` (private; may hold what an earlier build left there).  Pure: the same bytes every time;
        needs no device.

        Raises ToolError, or InternalError for source that does not build; either way the candidate is out, by name.
        """
        ...

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        """Bytes of a named packing from the arrays of its sources (logical, C order).  Pure."""
        ...

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        """Code that serves a plan (``sequencer``), or None if this backend offers none."""
        ...


def pack_weight(backend: Backend, packing: Packing, arrays: Sequence[Array]) -> bytes:
    """Bytes of a packed weight: by core code where a layout says it all, else by the backend."""
    if packing.layout is not None:
        return packing.layout.pack(arrays[0]).tobytes()
    return backend.pack(packing, arrays)


def packed_weights(backend: Backend, artifact: Artifact, arrays: Mapping[int, Array]) -> tuple[bytes, ...]:
    """Every weight operand of ``artifact`` from the signature's weight arrays (by value id)."""
    found: list[bytes] = []
    for weight in artifact.recipe.weights:
        sources: list[Array] = []
        for value in weight.sources:
            inline = artifact.signature.constant(value)
            sources.append(arrays[value] if inline is None else inline)
        found.append(pack_weight(backend, weight.packing, sources))
    return tuple(found)
