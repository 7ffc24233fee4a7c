"""``tribunus phaseir``: a model, or the programs in an image, in PhaseIR as text.

Imported by: cli.tool.  Imports: frontend, phaseir, passes, image, cli.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tribunus.cli.command import Command
from tribunus.cli.models import add_model_options, load_model
from tribunus.cli.places import require_place
from tribunus.errors import UsageError
from tribunus.phaseir.program import Constants, Program
from tribunus.phaseir.text import op_line, to_text

IMAGE_SUFFIX: Final = ".tci"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx", help="or IMAGE.tci: the programs that it computes")
    add_model_options(parser)
    parser.add_argument("--passes", action="store_true", help="after all passes, and cut into groups for kernels")
    parser.add_argument("--output", type=Path, metavar="FILE.pir", help="write there; one profile without --passes")
    parser.epilog = (
        "One op a line.  Without --passes the text parses back to the same program.\n"
        "Groups: what one kernel may compute; the first alternative is the most fused."
    )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.model.suffix == IMAGE_SUFFIX:
        return _print_image(arguments)
    if arguments.output is not None:
        require_place(arguments.output, arguments.model, arguments.inputs)
    imported, profiles = load_model(arguments.model, arguments)
    texts: list[str] = []
    for program, profile in zip(imported.programs, profiles, strict=True):
        head = f"# profile {profile}\n" if len(profiles) > 1 else ""
        body = _optimised(program, imported.constants) if arguments.passes else to_text(program)
        texts.append(head + body)
    if arguments.output is None:
        print("\n".join(texts), end="")
        return 0
    if len(texts) > 1 or arguments.passes:
        raise UsageError("--output takes one program as it was lowered", remedy="fix the dims with --dim")
    from tribunus.image.folders import replace_file

    replace_file(arguments.output, texts[0].encode(), 0o644)
    print(arguments.output)
    return 0


def _print_image(arguments: argparse.Namespace) -> int:
    from tribunus.cli.image_programs import programs_of
    from tribunus.image.read import open_image

    if arguments.passes or arguments.dim or arguments.inputs or arguments.output:
        raise UsageError("the programs of an image are what they are", remedy="leave the options out")
    with open_image(arguments.model) as source:
        texts = [
            f"# region {target}\n{to_text(program)}"
            for target in source.targets
            for program in programs_of(source.region(target).phaseir()).programs
        ]
    print("\n".join(texts), end="")
    return 0


def _optimised(program: Program, constants: Constants) -> str:
    from tribunus.passes.partition import partition
    from tribunus.passes.pipeline import run_passes

    done = run_passes(program, constants)
    lines = [to_text(done)]
    for index, phase in enumerate(done.phases):
        cut = partition(done, index, constants)
        lines.append(f"\n# groups of phase {phase.name!r}: {len(cut.regions)}\n")
        for number, region in enumerate(cut.regions):
            lines.append(
                f"# {number}: " + " | ".join(" ".join(use.label for use in uses) for uses in region.alternatives)
            )
            lines += [f"#   {op_line(done, phase.ops[op])}" for op in region.ops]
        if cut.aliases:
            lines.append(
                "# the same memory with another shape: " + ", ".join(f"%{a.value}=%{a.source}" for a in cut.aliases)
            )
    return "\n".join(lines) + "\n"


COMMAND = Command("phaseir", "print a model in PhaseIR, as lowered or as optimised", _configure, _run)
