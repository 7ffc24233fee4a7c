"""Captured inputs from files: ``--inputs`` names a folder of ``CASE.npz``, or one such file.

Imported by: certify, cli.  Imports: admission.captured, frontend facts, image.arrays.
"""

from __future__ import annotations

from pathlib import Path

from tribunus.admission.captured import CapturedCase
from tribunus.errors import InputError
from tribunus.frontend.facts import ModelFacts
from tribunus.image.arrays import read_arrays

WITNESS_SUFFIX = ".ref.npz"


def load_captured(place: Path, facts: ModelFacts) -> tuple[CapturedCase, ...]:
    """Every case of a folder in alphabetical order, or the one of a file; ``CASE.ref.npz`` is its witness.

    Raises InputError naming the file and the input for a wrong name, dtype or rank, or an unreadable file.
    """
    if place.is_dir():
        files = sorted(p for p in place.glob("*.npz") if not p.name.endswith(WITNESS_SUFFIX))
        if not files:
            raise InputError(f"{place} holds no CASE.npz", remedy="name a folder of .npz files, or one file")
    elif place.is_file():
        files = [place]
    else:
        raise InputError(f"{place} does not exist", remedy="name a folder of .npz files, or one file")
    return tuple(_case(path, facts) for path in files)


def _case(path: Path, facts: ModelFacts) -> CapturedCase:
    arrays = read_arrays(path)
    for fact in facts.inputs:
        array = arrays.get(fact.label)
        if array is None:
            raise InputError(f"{path}: input {fact.label!r} is missing", remedy=_expected(facts))
        if array.dtype != fact.dtype.numpy:
            raise InputError(f"{path}: input {fact.label!r} is {array.dtype}, {fact.dtype.numpy} was expected")
        if array.ndim != len(fact.dims):
            raise InputError(f"{path}: input {fact.label!r} has rank {array.ndim}, the model declares {len(fact.dims)}")
    if unknown := sorted(arrays.keys() - {fact.label for fact in facts.inputs}):
        raise InputError(f"{path}: unknown input {unknown[0]!r}", remedy=_expected(facts))
    reference = path.with_name(path.name.removesuffix(".npz") + WITNESS_SUFFIX)
    witness = read_arrays(reference) if reference.is_file() else None
    labels = [fact.label for fact in facts.outputs]
    if witness is not None and not witness.keys() & set(labels):
        known = ", ".join(repr(label) for label in labels)
        raise InputError(f"{reference} has none of the model's outputs", remedy=f"they are {known}")
    return CapturedCase(path.name.removesuffix(".npz"), arrays, witness)


def _expected(facts: ModelFacts) -> str:
    return "the model takes " + ", ".join(repr(fact.label) for fact in facts.inputs)
