"""Signatures, candidates and artifacts: what is to be computed, one way to do it, and the bytes that came of it.

Imported by: backends, planning, isolation, admission, certification.  Imports: phaseir, plan, numerics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tribunus.canon import Digest, Json, digest_of
from tribunus.errors import InternalError
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.layouts import Layout, layout_to_json
from tribunus.phaseir.program import Array, Constants, Phase, Program, Role, program_to_json
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Code, Recipe, recipe_to_json


@dataclass(frozen=True, slots=True)
class Signature:
    """One computation to be served: a closed sub-program of one phase, and the policy it may be computed in.

    The phase's name is the label of the group (``conv+scale+relu``); its inputs are the INPUT values in order.
    constants: payloads of the inline constants; no part of the identity beyond the digests that the program names.
    """

    program: Program
    policy: ComputePolicy
    constants: Constants = field(compare=False, repr=False)
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        document: Json = {"program": program_to_json(self.program), "policy": self.policy.value}
        object.__setattr__(self, "digest", digest_of(document))

    @property
    def phase(self) -> Phase:
        """The one phase."""
        return self.program.only_phase

    @property
    def label(self) -> str:
        """What the group is."""
        return self.phase.name

    @property
    def name(self) -> str:
        """Short name for people and test ids: label and the first eight digits of the digest."""
        return f"{self.label}-{self.digest[:8]}"

    @property
    def inputs(self) -> tuple[int, ...]:
        """Value ids of the INPUT operands, in order."""
        return self.phase.inputs

    @property
    def weights(self) -> tuple[int, ...]:
        """Value ids of the WEIGHT operands, in order."""
        return tuple(i for i, v in enumerate(self.program.values) if v.role is Role.WEIGHT)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Value ids of the results, in order."""
        return self.phase.outputs

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols: d0, d1, ..."""
        return tuple(s.name for s in self.program.symbols)

    def type_of(self, value: int) -> TensorType:
        """Type of a value."""
        return self.program.values[value].type

    def constant(self, value: int) -> Array | None:
        """The array of an inline constant, None for any other value."""
        digest = self.program.values[value].constant
        return None if digest is None else self.constants.get(digest)


class Reproducibility(StrEnum):
    """What a backend promises about bits, and the replay check proves."""

    R = "R"  # bit-reproducible and batch-invariant: fixed order whatever the tile
    D = "D"  # deterministic run to run, with an order of its own


ConfigValue: TypeAlias = "int | str"


@dataclass(frozen=True, slots=True)
class Config:
    """The whole choice of a candidate: sorted (name, value) pairs, nothing implicit."""

    items: tuple[tuple[str, ConfigValue], ...] = ()

    @staticmethod
    def of(values: Mapping[str, ConfigValue]) -> Config:
        """A config from a mapping."""
        return Config(tuple(sorted(values.items())))

    def integer(self, name: str) -> int:
        """An integer entry.  Raises InternalError."""
        value = dict(self.items).get(name)
        if not isinstance(value, int):
            raise InternalError(f"config entry {name} is {value!r}, an integer was expected")
        return value

    def text(self, name: str) -> str:
        """A text entry.  Raises InternalError."""
        value = dict(self.items).get(name)
        if not isinstance(value, str):
            raise InternalError(f"config entry {name} is {value!r}, text was expected")
        return value

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.items)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a signature.  layouts: at its border, inputs then outputs."""

    backend: str
    signature: Digest
    config: Config
    layouts: tuple[Layout, ...]
    reproducibility: Reproducibility
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        document: Json = {
            "backend": self.backend,
            "signature": self.signature,
            "config": [[k, v] for k, v in self.config.items],
            "layouts": [layout_to_json(layout) for layout in self.layouts],
            "reproducibility": self.reproducibility.value,
        }
        object.__setattr__(self, "digest", digest_of(document))

    @property
    def name(self) -> str:
        """Short name for people and test ids: backend and the first six digits of the digest."""
        return f"{self.backend}-{self.digest[:6]}"

    def __str__(self) -> str:
        return f"{self.name}: {self.config}"


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """How an artifact was built: enough to build it again and compare bytes.

    toolchain: (name, version or digest) pairs.  argv: with the folder replaced by ``.``.  library: name and version of
    a vendor library the code needs at run time, empty where there is none.
    """

    toolchain: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]
    source: Digest
    library: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built candidate: immutable, and all that replay needs."""

    candidate: Candidate
    signature: Signature
    code: Code
    recipe: Recipe
    build: BuildRecord
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        document: Json = {
            "candidate": self.candidate.digest,
            "format": self.code.format,
            "code": self.code.digest,
            "facts": [[k, v] for k, v in self.code.facts],
            "recipe": recipe_to_json(self.recipe, self.signature.symbols),
        }
        object.__setattr__(self, "digest", digest_of(document))
