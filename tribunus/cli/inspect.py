"""``tribunus inspect``: what an image holds, in words and figures.  Judges nothing.

Imported by: cli.tool.  Imports: image, plan, cli.  No compiler, no onnx.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tribunus.canon import decode
from tribunus.cli.command import Command
from tribunus.cli.opening import signers
from tribunus.cli.output import Document, bytes_text, clip, count_text, field, print_json, table, time_text
from tribunus.image.admissions import AdmissionLine, decode_lines
from tribunus.image.read import ImageFile, open_image
from tribunus.phaseir.dims import Symbol
from tribunus.plan.document import plan_from_json
from tribunus.plan.plan import Plan, Port, Profile
from tribunus.runtime.fitness import PLAN_LIMIT

KERNELS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class _Region:
    """What is shown of a region.  lines: admissions by kernel id."""

    target: str
    plan: Plan
    lines: dict[str, AdmissionLine]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument(
        "--all", action="store_true", help=f"every kernel, not only the {KERNELS_SHOWN} that take longest"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = "Signatures are not judged here; tribunus verify does that."


def _run(arguments: argparse.Namespace) -> int:
    with open_image(arguments.image) as source:
        regions = [_Region(target, plan_of(source, target), _admitted(source, target)) for target in source.targets]
        if arguments.json:
            print_json(_document(source, regions))
            return 0
        _print_head(source)
        for region in regions:
            _print_region(source, region, None if arguments.all else KERNELS_SHOWN)
    return 0


def plan_of(source: ImageFile, target: str) -> Plan:
    """Plan of a region; its form is checked, its soundness not."""
    return plan_from_json(decode(source.region(target).plan(), limit=PLAN_LIMIT))


def _admitted(source: ImageFile, target: str) -> dict[str, AdmissionLine]:
    return {line.kernel: line for line in decode_lines(source.region(target).admissions())}


def _print_head(source: ImageFile) -> None:
    document = source.document
    print(field("image", f"{document.name}, epoch {document.epoch}"))
    print(field("id", source.image_id))
    print(field("file", f"{source.size:,} bytes"))
    print(field("model", ", ".join(_model_facts(source))))
    print(field("made with", ", ".join(f"{tool} {version}" for tool, version in sorted(document.toolchain.items()))))
    for line in signers(source, None):
        print(field("signed by", line))
    print(field("", "signatures are not judged here: tribunus verify does"))
    if source.absent:
        print(field("absent", ", ".join(name[:24] for name in source.absent)))


def _model_facts(source: ImageFile) -> list[str]:
    model = source.document.model
    found = [str(model.get("digest", "unknown"))[:16]]
    if isinstance(parameters := model.get("parameters"), int):
        found.append(count_text(parameters, "parameter"))
    if isinstance(opset := model.get("opset"), int):
        found.append(f"opset {opset}")
    if isinstance(producer := model.get("producer"), str) and producer:
        found.append(f"from {clip(producer, 40)}")
    return found


def _print_region(source: ImageFile, region: _Region, limit: int | None) -> None:
    manifest, plan = source.region(region.target).manifest, region.plan
    print()
    print(field("region", region.target))
    print(field("needs", f"{plan.arch}: {', '.join(plan.features) or 'nothing'}"))
    print(field("threads", str(plan.threads)))
    weights = sum(blob.size for blob in manifest.weights)
    goldens = 0 if manifest.goldens is None else manifest.goldens.size
    print(
        field(
            "bytes",
            f"code {bytes_text(manifest.kernels.size)}, weights {bytes_text(weights)}, "
            f"recorded cases {bytes_text(goldens)}",
        )
    )
    for profile in plan.profiles:
        print(field("profile", clip(profile.name, 400)))
        for symbol in profile.symbols:
            print(field("  dim", _symbol_text(symbol)))
        for port in profile.inputs:
            print(field("  takes", port_text(port, profile)))
        for port in profile.outputs:
            print(field("  gives", port_text(port, profile)))
        cases = ", ".join(clip(golden.case, 40) for golden in profile.goldens)
        launches = count_text(len(profile.launches), "launch", "launches")
        print(
            field(
                "  replay", f"{launches}, arena {bytes_text(profile.arena)}, {count_text(len(profile.states), 'state')}"
            )
        )
        print(field("  recorded", cases or "no case"))
    print()
    _print_kernels(plan, region.lines, limit)


def _print_kernels(plan: Plan, lines: dict[str, AdmissionLine], limit: int | None) -> None:
    counts = Counter(launch.kernel for profile in plan.profiles for launch in profile.launches)
    rows: list[tuple[int, list[str]]] = []
    for number, kernel in enumerate(plan.kernels):
        line = lines.get(kernel.id)
        time = "?" if line is None else time_text(line.time_ns)
        budget = "?" if line is None or not line.budget_ns else f"{line.time_ns / line.budget_ns:.0%}"
        share = "?" if line is None else f"{line.error_share:.3f}"
        cost = 0 if line is None else line.time_ns * counts[number]
        rows.append((cost, [kernel.id, str(counts[number]), time, budget, share, bytes_text(kernel.size)]))
    rows.sort(key=lambda row: -row[0])
    shown = rows if limit is None else rows[:limit]
    for text in table(("kernel", "uses", "a call", "of budget", "error", "code"), [row for _, row in shown]):
        print(text)
    if len(rows) > len(shown):
        print(f"... and {len(rows) - len(shown)} more: --all shows them")
    print("error: largest error in units of what was allowed; a call: median at admission")


def _symbol_text(symbol: Symbol) -> str:
    step = f" in steps of {symbol.step}" if symbol.step > 1 else ""
    return f"{clip(symbol.label, 60)}: {symbol.lo} to {symbol.hi}{step}, expected {symbol.opt}"


def port_text(port: Port, profile: Profile) -> str:
    """``'x' f32[batch, 3]``, with the labels that the model gives its dims."""
    labels = {symbol.name: symbol.label for symbol in profile.symbols}
    shape = ", ".join(labels.get(str(dim), str(dim)) for dim in port.type.shape)
    return f"{clip(repr(port.label), 60)} {port.type.dtype.value}[{clip(shape, 120)}]"


def _document(source: ImageFile, regions: list[_Region]) -> Document:
    document = source.document
    return {
        "schema": "tribunus.inspect/1",
        "name": document.name,
        "image": source.image_id,
        "epoch": document.epoch,
        "bytes": source.size,
        "model": _plain(document.model),
        "toolchain": _plain(document.toolchain),
        "signers": [source.envelope(position).keyid for position in range(len(source.contents.evidence))],
        "absent": list(source.absent),
        "regions": [_region_document(source, region) for region in regions],
    }


def _plain(value: object) -> Document:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | str) or value is None else str(value)


def _region_document(source: ImageFile, region: _Region) -> Document:
    plan, lines = region.plan, region.lines
    manifest = source.region(region.target).manifest
    counts = Counter(launch.kernel for profile in plan.profiles for launch in profile.launches)
    return {
        "target": region.target,
        "arch": plan.arch,
        "features": list(plan.features),
        "threads": plan.threads,
        "code_bytes": manifest.kernels.size,
        "weight_bytes": sum(blob.size for blob in manifest.weights),
        "profiles": [
            {
                "name": profile.name,
                "dims": [
                    {"label": s.label, "lo": s.lo, "opt": s.opt, "hi": s.hi, "step": s.step} for s in profile.symbols
                ],
                "inputs": [port_text(port, profile) for port in profile.inputs],
                "outputs": [port_text(port, profile) for port in profile.outputs],
                "arena_bytes": profile.arena,
                "launches": len(profile.launches),
                "states": [state.label for state in profile.states],
                "recorded": [golden.case for golden in profile.goldens],
            }
            for profile in plan.profiles
        ],
        "kernels": [
            {
                "id": kernel.id,
                "signature": kernel.signature,
                "candidate": kernel.candidate,
                "format": kernel.format,
                "code_bytes": kernel.size,
                "launches": counts[number],
                "time_ns": lines[kernel.id].time_ns if kernel.id in lines else None,
                "budget_ns": lines[kernel.id].budget_ns if kernel.id in lines else None,
                "error_share": lines[kernel.id].error_share if kernel.id in lines else None,
                "receipts": _receipts(lines.get(kernel.id)),
            }
            for number, kernel in enumerate(plan.kernels)
        ],
    }


def _receipts(line: AdmissionLine | None) -> Document:
    return {} if line is None else {check: digest for check, (_, digest) in line.checks.items()}


COMMAND = Command("inspect", "show what an image holds: kernels, profiles, memory, signers", _configure, _run)
