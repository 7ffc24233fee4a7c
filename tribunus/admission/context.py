"""What a check is given beside the artifact and the executor.

Imported by: the checks, series, certification.  Imports: candidates, isolation, targets, admission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tribunus.admission.policy import AdmissionPolicy
from tribunus.admission.receipt import CaseRecord, Reason
from tribunus.candidates.model import Artifact, Signature
from tribunus.canon import Digest
from tribunus.isolation.executor import Inputs
from tribunus.oracle.families import VectorFamily
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array
from tribunus.targets.target import Peaks, Target


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outputs of one run held against the golden: the record for the receipt, and a reason if they are refused."""

    record: CaseRecord
    reason: Reason | None


class Case(Protocol):
    """One set of inputs with its golden and with what the gates said about it."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Values of the signature's symbols."""
        ...

    @property
    def inputs(self) -> Inputs:
        """Logical arrays by value id."""
        ...

    @property
    def name(self) -> str:
        """Vector family and seed, or the name of a captured case."""
        ...

    @property
    def counted(self) -> bool:
        """Whether it could say no."""
        ...

    def judge(self, outputs: Mapping[int, Array], terms: str) -> Judgement:
        """Hold ``outputs`` (logical arrays by value id) against the golden."""
        ...


class CaseSource(Protocol):
    """The cases of one signature.  Goldens are computed once and shared by all its candidates."""

    def oracle_cases(self) -> Sequence[Case]:
        """Every vector of the signature at the expected dims."""
        ...

    def shape_cases(self) -> Sequence[Case]:
        """A few vectors at each other representative of the dims; at the declared shape where all are numbers."""
        ...

    def layout_cases(self) -> Sequence[Case]:
        """Vectors whose golden notices a misplaced element."""
        ...

    def replay_cases(self) -> Sequence[Case]:
        """Order-sensitive vectors (ordinary and positive ones); the first is replayed, the others interleave."""
        ...

    def timing_case(self) -> Case:
        """Ordinary data at the expected dims."""
        ...

    def zeros(self) -> Inputs:
        """The timing case's inputs with every floating point activation zero; weights as they are."""
        ...

    def representatives(self) -> Sequence[Mapping[str, int]]:
        """Dims at which the signature is certified."""
        ...

    def insensitive(self) -> Sequence[int]:
        """Value ids of inputs that moved the golden beyond its budget in no counted oracle case."""
        ...

    def is_heavy(self) -> bool:
        """Whether a golden costs so much that an adversary should draw few."""
        ...

    def families(self) -> Sequence[tuple[VectorFamily, int, int]]:
        """Families that an adversary may draw from, each with its smallest and largest exponent."""
        ...

    def adversarial(self, family: VectorFamily, seed: int, exponent: int) -> Case:
        """A case that an adversary draws, at the expected dims.  Raises GoldenUnstable."""
        ...


class Adversary(Protocol):
    """Looks for a case that refuses a candidate which every prepared case accepted."""

    def search(self, cases: CaseSource, attempt: Callable[[Case], bool]) -> Case | None:
        """A case on which ``attempt`` returns False, as simple as it could be made; None if none was found."""
        ...


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Everything a check may know.

    layouts: what the layout plan wants at the border, inputs then outputs.  key_of: recomputes the cache key of an
    artifact on this machine.  expected_key: the key that the certification recorded at build.  audit: static audit of
    code by format.  used_features: what the code uses of the processor.  clock_ns: wall clock.  adversary: searches
    further oracle cases.
    """

    signature: Signature
    target: Target
    policy: AdmissionPolicy
    cases: CaseSource
    layouts: tuple[Layout, ...]
    peaks: Peaks | None
    key_of: Callable[[Artifact], Mapping[str, str]]
    expected_key: Mapping[str, str]
    audit: Callable[[Artifact], tuple[str, ...]]
    used_features: Callable[[Artifact], frozenset[str]]
    machine: Digest
    versions: tuple[tuple[str, str], ...]
    clock_ns: Callable[[], int]
    adversary: Adversary | None = None
