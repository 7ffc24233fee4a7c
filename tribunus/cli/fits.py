"""``tribunus fits``: whether an image can run on this machine; every region, everything that it misses.

Imported by: cli.tool.  Imports: image, plan, runtime, cli.  No compiler, no onnx.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from tribunus.cli.command import Command
from tribunus.cli.output import Document, bytes_text, field, print_json
from tribunus.errors import DriverError, FeatureError, TargetError
from tribunus.image.read import ImageFile, open_image
from tribunus.plan.plan import Plan
from tribunus.runtime.fitness import fits
from tribunus.runtime.replayers import find_replayer


@dataclass(frozen=True, slots=True)
class Fitness:
    """One region here.  missing: what keeps it from running.  notes: what would make it slower."""

    target: str
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = (
        "Exit code 0: some region can run here.  32: none can.\n"
        "Signatures are not judged here; tribunus verify does that."
    )


def _run(arguments: argparse.Namespace) -> int:
    with open_image(arguments.image) as source:
        found = fitness(source)
    good = any(not region.missing for region in found)
    if arguments.json:
        print_json(_document(found))
        return 0 if good else TargetError.exit_code
    for region in found:
        print(field("region", region.target))
        for text in region.missing:
            print(field("  missing", text))
        for text in region.notes:
            print(field("  note", text))
        if not region.missing:
            print(field("  fits", "yes"))
    if not good:
        missing = [text for region in found for text in region.missing]
        only_features = all(text.startswith("cpu feature") for text in missing)
        raise (FeatureError if only_features else TargetError)("no region of the image can run on this machine")
    return 0


def fitness(source: ImageFile) -> tuple[Fitness, ...]:
    """Every region of the file against this machine: processor, memory, and what replays its code."""
    available = available_memory()
    found: list[Fitness] = []
    for fit in fits(source):
        missing = list(fit.missing)
        notes: list[str] = []
        if not missing:
            missing += _absent_replayers(fit.plan)
            needed = memory_needed(source, fit.plan)
            if available is not None and needed > available:
                missing.append(f"memory: {bytes_text(needed)} needed, {bytes_text(available)} available")
            usable = len(os.sched_getaffinity(0))
            if fit.plan.threads > usable:
                notes.append(f"made for {fit.plan.threads} threads, {usable} processors are usable here")
        found.append(Fitness(fit.target, tuple(missing), tuple(notes)))
    return tuple(found)


def _absent_replayers(plan: Plan) -> list[str]:
    missing: list[str] = []
    for format_ in dict.fromkeys([*(k.format for k in plan.kernels), *(h.format for h in plan.host)]):
        try:
            find_replayer(format_)
        except DriverError as error:
            missing.append(f"{error.detail}: {error.remedy}")
    return missing


def memory_needed(source: ImageFile, plan: Plan) -> int:
    """Bytes of code, weights and the largest arena."""
    manifest = source.region(plan.target).manifest
    weights = sum(blob.size for blob in manifest.weights)
    return manifest.kernels.size + weights + max((profile.arena for profile in plan.profiles), default=0)


def available_memory() -> int | None:
    """Bytes that the system says can still be used; None where it does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemAvailable" and words and words[0].isdigit():
            return int(words[0]) * 1024
    return None


def _document(found: tuple[Fitness, ...]) -> Document:
    return {
        "schema": "tribunus.fits/1",
        "fits": any(not region.missing for region in found),
        "regions": [
            {
                "target": region.target,
                "fits": not region.missing,
                "missing": list(region.missing),
                "notes": list(region.notes),
            }
            for region in found
        ],
    }


COMMAND = Command("fits", "say whether an image can run on this machine, and why not", _configure, _run)
