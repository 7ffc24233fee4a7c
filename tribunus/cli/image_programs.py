"""The programs in an image, with the values of their constants: small ones from the image, weights from the model.

Imported by: export, recertify.  Imports: phaseir, frontend (when a model is named), passes, cli.verify.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tribunus.canon import Json, decode, int_of, list_of, object_of, str_of
from tribunus.cli.verify import PHASEIR_LIMIT, phaseir_programs
from tribunus.errors import ContentsDiffer, SchemaError, UsageError, VerifierError
from tribunus.frontend.bindings import Bound, DimBindings
from tribunus.frontend.facts import ModelFacts
from tribunus.frontend.model import import_model, inspect_model
from tribunus.phaseir.dims import Dim, Sym
from tribunus.phaseir.document import program_from_json
from tribunus.phaseir.program import INLINE_ELEMENTS, Constants, Program, Role
from tribunus.phaseir.types import dtype_of
from tribunus.phaseir.verifier import verify


@dataclass(frozen=True, slots=True)
class ImagePrograms:
    """Programs of a region, one a profile, in the plan's order.  constants: those whose values are known."""

    programs: tuple[Program, ...]
    constants: Constants

    def missing(self, largest: int | None) -> int:
        """How many constants have no value here, of those with at most ``largest`` elements (None: of all)."""
        known = self.constants.view().keys()
        found = set()
        for program in self.programs:
            for value in program.values:
                if value.role is Role.CONSTANT and value.constant is not None and value.constant not in known:
                    elements = int(np.prod(value.type.numbers(), dtype=np.int64))
                    if largest is None or elements <= largest:
                        found.add(value.constant)
        return len(found)


def programs_of(phaseir: bytes) -> ImagePrograms:
    """Programs and small constants of a region's PhaseIR document.  Raises SchemaError."""
    document = decode(phaseir, limit=PHASEIR_LIMIT)
    programs: list[Program] = []
    for number, item in enumerate(phaseir_programs(document)):
        program = program_from_json(item)
        try:
            verify(program)
        except VerifierError as error:
            raise SchemaError(f"phaseir: program {number} breaks a law: {error.detail}") from None
        programs.append(program)
    constants = Constants()
    if isinstance(document, dict):
        for item in list_of(document.get("constants", []), "phaseir.constants"):
            _read_constant(item, constants)
    return ImagePrograms(tuple(programs), constants)


def _read_constant(value: Json, constants: Constants) -> None:
    where = "phaseir.constants"
    fields = object_of(value, where, frozenset({"dtype", "shape", "data"}))
    dtype = dtype_of(fields["dtype"], where)
    shape = tuple(int_of(extent, where, 0, INLINE_ELEMENTS) for extent in list_of(fields["shape"], where))
    try:
        data = binascii.unhexlify(str_of(fields["data"], where))
    except ValueError:
        raise SchemaError(f"{where}: data is no hexadecimal text") from None
    count = int(np.prod(shape, dtype=np.int64))
    if count > INLINE_ELEMENTS or len(data) != count * dtype.itemsize:
        raise SchemaError(f"{where}: {len(data)} bytes for shape {list(shape)} of {dtype.value}")
    constants.add(np.frombuffer(data, dtype=dtype.numpy).reshape(shape), dtype)


def with_model(found: ImagePrograms, path: Path, made_from: object, *, external_data: bool) -> ImagePrograms:
    """The same programs with every constant that the model gives, folded ones included.

    made_from: SHA-256 of the model that image.json names.  Raises ContentsDiffer for another model.
    """
    from tribunus.passes.pipeline import run_passes

    facts = inspect_model(path, external_data=external_data)
    if facts.digest != made_from:
        raise ContentsDiffer(
            f"the image was made from model {str(made_from)[:16]}, {path.name} is {facts.digest[:16]}",
            remedy="name the model that was certified",
        )
    profiles = tuple(bindings_of(facts, program) for program in found.programs)
    imported = import_model(path, profiles, external_data=external_data)
    for program in imported.programs:
        run_passes(program, imported.constants)  # computes the constants that the passes fold
    return ImagePrograms(found.programs, imported.constants)


def bindings_of(facts: ModelFacts, program: Program) -> DimBindings:
    """The bindings of a model's dims under which ``program`` was made.  Raises UsageError if it is another model's."""
    shapes = {program.values[v].label: program.type_of(v).shape for v in program.only_phase.inputs}
    labelled: dict[str, set[Bound]] = {}
    places: list[tuple[str, int, str | None, Bound]] = []
    for fact in facts.inputs:
        shape: Sequence[Dim] = shapes.get(fact.label, ())
        if len(shape) != len(fact.dims):
            raise UsageError(f"the image has no input {fact.label[:60]!r} as the model has it")
        for axis, (declared, dim) in enumerate(zip(fact.dims, shape, strict=True)):
            if isinstance(dim, int) and declared == dim:
                continue
            bound = _bound(program, dim, f"{fact.label}[{axis}]")
            label = declared if isinstance(declared, str) else None
            if label is not None:
                labelled.setdefault(label, set()).add(bound)
            places.append((fact.label, axis, label, bound))
    named = {label: next(iter(bounds)) for label, bounds in labelled.items() if len(bounds) == 1}
    axes = tuple((i, a, b) for i, a, label, b in sorted(places, key=lambda p: p[:2]) if label not in named)
    return DimBindings(tuple(sorted(named.items(), key=lambda item: item[0])), axes)


def _bound(program: Program, dim: Dim, where: str) -> Bound:
    if isinstance(dim, int):
        return Bound(dim, dim, dim)
    if not isinstance(dim, Sym):
        raise UsageError(f"dim {where} of the image is {dim}, which is no symbol of its own")
    symbol = program.scope.symbol(dim.name)
    return Bound(symbol.lo, symbol.opt, symbol.hi, symbol.step)
