"""``tribunus selftest``: replay the cases that certification recorded, and compare every bit.

Imported by: cli.tool.  Imports: runtime, cli.  No compiler, no onnx.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tribunus.cli.command import Command
from tribunus.cli.opening import Opened, Recorded, opened_image
from tribunus.cli.output import Document, clip, count_text, field, print_json
from tribunus.errors import NothingToJudge, SelftestDiffers
from tribunus.runtime.session import Array


@dataclass(frozen=True, slots=True)
class Compared:
    """One recorded case here.  differing: elements whose bits are others; first: output and index of the first."""

    case: str
    elements: int
    differing: int
    first: str


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--trust", type=Path, metavar="POLICY.json", help="trust policy; TRIBUNUS_TRUST or the user's")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = "Exit code 1: this machine gives other bits than the one that certified it."


def _run(arguments: argparse.Namespace) -> int:
    with opened_image(arguments.image, arguments.trust) as image:
        cases = image.recorded()
        if not cases:
            raise NothingToJudge(
                "the image carries no recorded case", remedy="certify again: cases of up to 64 MB are recorded"
            )
        found = [compare(image, case) for case in cases]
    wrong = [case for case in found if case.differing]
    if arguments.json:
        print_json(_document(found))
        return SelftestDiffers.exit_code if wrong else 0
    for case in found:
        elements = count_text(case.elements, "element")
        said = f"{elements} equal" if not case.differing else f"{case.differing:,} of {elements} differ"
        print(field("case", f"{clip(case.case, 50)}: {said}"))
        if case.first:
            print(field("  first", case.first))
    if wrong:
        raise SelftestDiffers(f"{len(wrong)} of {count_text(len(found), 'recorded case')} gave other bits")
    return 0


def compare(image: Opened, case: Recorded) -> Compared:
    """Replay one recorded case in a new session and compare its outputs bit for bit."""
    session = image.session(case.inputs)
    try:
        session.replay()
        elements = differing = 0
        first = ""
        for label, expected in case.outputs.items():
            got = session.outputs[label]
            elements += expected.size
            wrong = np.flatnonzero(_bits(got) != _bits(expected))
            if wrong.size:
                differing += int(wrong.size)
                index = int(wrong[0])
                seen, recorded = got.reshape(-1)[index], expected.reshape(-1)[index]
                first = first or f"output {clip(repr(label), 40)} element {index}: {seen!s}, recorded {recorded!s}"
    finally:
        session.close()
    return Compared(case.name, elements, differing, first)


def _bits(array: Array) -> Array:
    """Elements as unsigned integers, in one row."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _document(found: list[Compared]) -> Document:
    return {
        "schema": "tribunus.selftest/1",
        "equal": not any(case.differing for case in found),
        "cases": [
            {"case": c.case, "elements": c.elements, "differing": c.differing, "first": c.first or None} for c in found
        ],
    }


COMMAND = Command("selftest", "replay the recorded cases of an image and compare every bit", _configure, _run)
