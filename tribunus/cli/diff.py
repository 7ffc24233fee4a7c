"""``tribunus diff``: how two images differ, content first, then evidence.

Imported by: cli.tool.  Imports: image, cli.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tribunus.cli.command import Command
from tribunus.cli.output import Document, clip, count_text, print_json
from tribunus.errors import ContentsDiffer
from tribunus.image.diff import Difference, ImageDiff, diff_images
from tribunus.image.read import open_image


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("left", type=Path, metavar="A.tci")
    parser.add_argument("right", type=Path, metavar="B.tci")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = (
        "Exit code 0: the contents are equal (one image id); evidence, that is signers\n"
        "and receipts, may still differ and is listed.  1: the contents differ.\n"
        "Lines: ~ differs, + only in B, - only in A.  Signatures are not judged here."
    )


def _run(arguments: argparse.Namespace) -> int:
    with open_image(arguments.left) as left, open_image(arguments.right) as right:
        found = diff_images(left, right)
    if arguments.json:
        print_json(_document(found))
        return 0 if found.same_content else ContentsDiffer.exit_code
    _print("content", found.content)
    _print("evidence", found.evidence)
    if not found.same_content:
        raise ContentsDiffer(f"{count_text(len(found.content), 'field')} of the content differ")
    return 0


def _print(title: str, differences: tuple[Difference, ...]) -> None:
    print(f"{title}: {count_text(len(differences), 'difference') if differences else 'equal'}")
    for item in differences:
        if item.left is not None and item.right is not None:
            print(f"  ~ {clip(item.where, 76)}")
            print(f"      A {clip(item.left, 72)}")
            print(f"      B {clip(item.right, 72)}")
        else:
            print(f"  {clip(str(item), 78)}")


def _document(found: ImageDiff) -> Document:
    def rows(differences: tuple[Difference, ...]) -> Document:
        return [{"where": item.where, "left": item.left, "right": item.right} for item in differences]

    return {
        "schema": "tribunus.diff/1",
        "same_content": found.same_content,
        "content": rows(found.content),
        "evidence": rows(found.evidence),
    }


COMMAND = Command("diff", "compare the contents of two images", _configure, _run)
