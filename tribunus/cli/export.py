"""``tribunus export``: PhaseIR back to ONNX, of a model or of the programs in an image.

Imported by: cli.tool.  Imports: frontend, image, phaseir, cli.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from tribunus.cli.command import Command
from tribunus.cli.image_programs import ImagePrograms, programs_of, with_model
from tribunus.cli.models import add_model_options, load_model
from tribunus.cli.output import count_text, field
from tribunus.cli.places import require_place
from tribunus.errors import ToolError, UsageError
from tribunus.image.policy import find_policy
from tribunus.image.read import open_image
from tribunus.phaseir.program import Constants, Program

SUFFIX: Final = ".tci"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a model, or an image (.tci) together with --model")
    parser.add_argument("output", type=Path, metavar="OUT.onnx", help="written whole or not at all")
    parser.add_argument("--model", type=Path, metavar="M.onnx", help="of an image: the model that it was made from")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="which profile, from 0")
    parser.add_argument("--trust", type=Path, metavar="POLICY.json", help="of an image: trust policy")
    add_model_options(parser)
    parser.epilog = (
        "A model is written as it was lowered: that its outputs stay equal proves that\n"
        "nothing was lost.  An image gives the program that its kernels compute; it holds\n"
        "weights packed for those kernels, so their values come from the model."
    )


def _run(arguments: argparse.Namespace) -> int:
    require_place(arguments.output, arguments.source, arguments.model, arguments.inputs, arguments.trust)
    if arguments.source.suffix == SUFFIX:
        found = _of_image(arguments)
        programs, constants = found.programs, found.constants
    else:
        imported, _ = load_model(arguments.source, arguments)
        programs, constants = imported.programs, imported.constants
    if not 0 <= arguments.profile < len(programs):
        raise UsageError(f"there is no profile {arguments.profile}", remedy=f"0 to {len(programs) - 1}")
    write_onnx(programs[arguments.profile], constants, arguments.output)
    print(field("written", str(arguments.output)))
    return 0


def write_onnx(program: Program, constants: Constants, path: Path) -> None:
    """The program as an ONNX file.  Raises LoweringError, DimError, ToolError, EnvironmentFault."""
    try:
        from tribunus.frontend.export import to_onnx
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("onnx", "google")):
            raise
        raise ToolError(
            "writing ONNX needs the package onnx", remedy="pip install 'tribunus-compute[certify]'"
        ) from None
    from tribunus.image.folders import replace_file

    replace_file(path, to_onnx(program, constants).SerializeToString(deterministic=True), 0o644)


def _of_image(arguments: argparse.Namespace) -> ImagePrograms:
    with open_image(arguments.source) as source:
        source.verify_trust(find_policy(arguments.trust, os.environ))
        found = programs_of(source.region(source.targets[0]).phaseir())
        made_from = source.document.model.get("digest")
    if arguments.model is not None:
        found = with_model(found, arguments.model, made_from, external_data=arguments.external_data)
    if missing := found.missing(None):
        raise UsageError(
            f"{count_text(missing, 'constant')} of the image cannot be had: it holds weights packed for its kernels",
            remedy="name the model that it was made from: --model M.onnx",
        )
    return found


COMMAND = Command("export", "write a model back as ONNX, from its PhaseIR", _configure, _run)
