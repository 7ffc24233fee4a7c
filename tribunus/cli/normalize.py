"""``tribunus normalize``: a copy from a registry or another tool, back into the canonical file.

Imported by: cli.tool.  Imports: image, cli.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tribunus.cli.command import Command
from tribunus.cli.output import field
from tribunus.cli.places import require_place
from tribunus.image.normalize import normalize


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="SOURCE", help="OCI layout: a folder, or an uncompressed archive")
    parser.add_argument("image", type=Path, metavar="IMAGE.tci", help="written whole or not at all")
    parser.epilog = (
        "From a registry:\n"
        "  skopeo copy --all docker://REGISTRY/NAME:TAG oci:FOLDER\n"
        "  tribunus normalize FOLDER NAME.tci\n"
        "Without --all skopeo drops the evidence.  Signatures are judged by verify."
    )


def _run(arguments: argparse.Namespace) -> int:
    require_place(arguments.image)  # the source may be replaced: it is read whole before
    image_id = normalize(arguments.source, arguments.image)
    print(field("image", image_id))
    print(field("written", str(arguments.image)))
    return 0


COMMAND = Command("normalize", "bring a copy from a registry back into the canonical file", _configure, _run)
