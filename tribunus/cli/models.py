"""What commands about models share: the options that choose a profile, and the import.

Imported by: phaseir, export, recertify.  Imports: frontend.model and bindings; the ONNX parser runs in a child.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from tribunus.errors import InputError
from tribunus.frontend.bindings import DimBindings, bindings_from_inputs, parse_dim_options
from tribunus.frontend.model import ImportedModel, import_model, inspect_model
from tribunus.image.arrays import read_arrays

WITNESS = ".ref.npz"


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options that fix a model's dims, as certify has them."""
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=MIN:OPT:MAX", help="bounds of a dim, or one number"
    )
    parser.add_argument("--inputs", type=Path, metavar="PLACE", help="CASE.npz, or a folder of them: their shapes")
    parser.add_argument("--external-data", action="store_true", help="allow external data in the model's own folder")


def load_model(path: Path, arguments: argparse.Namespace) -> tuple[ImportedModel, tuple[DimBindings, ...]]:
    """The model with one program a profile, and the profiles.  Raises ModelError, LoweringError, DimError leaves."""
    facts = inspect_model(path, external_data=arguments.external_data)
    if arguments.dim:
        profiles: tuple[DimBindings, ...] = (parse_dim_options(arguments.dim, facts),)
    elif arguments.inputs is not None:
        found = [bindings_from_inputs(facts, shapes) for shapes in _shapes(arguments.inputs)]
        profiles = tuple(dict.fromkeys(found))
    else:
        profiles = (DimBindings(),)
    return import_model(path, profiles, external_data=arguments.external_data), profiles


def _shapes(place: Path) -> list[Mapping[str, tuple[int, ...]]]:
    files = [place]
    if place.is_dir():
        files = sorted(p for p in place.glob("*.npz") if not p.name.endswith(WITNESS))
        if not files:
            raise InputError(f"{place} holds no CASE.npz", remedy="name a folder of .npz files, or one file")
    return [{name: array.shape for name, array in read_arrays(file).items()} for file in files]
