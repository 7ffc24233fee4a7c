"""All models of the core group: certified, replayed, compared with onnxruntime and OpenVINO in the same run.

    python -m benchmarks.models MODELS [--only NAME ...] [--effort quick] [--output FOLDER] [--table docs/benchmarks.md]

MODELS is what ``python -m benchmarks.zoo fetch MODELS --group core`` made.  Imports: benchmarks.zoo, the commands.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.zoo.manifest import Model, read_manifest
from tribunus.certification.bench import tool_versions
from tribunus.errors import InputError, ProfileError
from tribunus.targets.detect import machine_facts

ENGINES = ("onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Row:
    """What one model gave.  Times in ns; 0 where something was not measured; note: why."""

    model: str
    case: str
    effort: str
    certify_s: float
    candidates: str
    error_share: float
    cpu_ns: int
    p99_share: float
    open_ns: int
    peers: tuple[tuple[str, int, float, int], ...]
    note: str


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line a model, write the table; 1 if a model could not be certified."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, metavar="MODELS")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--effort", default="standard")
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="write the table into this file")
    parser.add_argument(
        "--reuse", action="store_true", help="measure images that are there already, certify the others"
    )
    given = parser.parse_args(arguments)
    chosen = [m for m in read_manifest().select(["core"], []) if not given.only or m.name in given.only]
    rows = []
    for model in chosen:
        row = measure(model, given.models, given.output, given.effort, reuse=given.reuse)
        rows.append(row)
        print(line(row), flush=True)
    if given.table is not None:
        given.table.write_text(page(rows), encoding="utf-8")
    return int(any(row.note for row in rows))


def measure(model: Model, models: Path, output: Path, effort: str, *, reuse: bool) -> Row:
    """Certify one model and time its image beside the engines."""
    stem = image_stem(model.name)
    image = output / f"{stem}.tci"
    inputs = models / "inputs" / model.name
    cases = sorted(p for p in inputs.glob("*.npz") if not p.name.endswith(".ref.npz"))
    case = cases[0].stem
    note = ""
    if not (reuse and image.exists()):
        command = [sys.executable, "-m", "pytest", "certify/", "--model", str(models / f"{model.name}.onnx"), "-q"]
        command += ["--inputs", str(inputs), "--output", str(output), "--effort", effort, "--benchmark-disable"]
        command += ["--ledger", str(output / "ledger.sqlite")]
        ranges = [word for dim in model.dims for word in ("--dim", dim)]
        done = subprocess.run([*command, *ranges], capture_output=True, text=True, check=False)
        if ranges and done.returncode == InputError.exit_code:
            # Some case lies outside the suggested ranges: then each has a profile of its own.
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            note = f"certification ended with {done.returncode}"
    share, candidates, certify_s, asked = _report(output / f"{stem}.report.json")
    empty = Row(model.name, case, asked, certify_s, candidates, share, 0, 0.0, 0, (), note)
    if note or not image.exists():
        return empty
    done, case = _bench(image, models / f"{model.name}.onnx", cases)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()[:1] or ["no message"]
        return Row(model.name, case, asked, certify_s, candidates, share, 0, 0.0, 0, (), told[0][:120])
    subjects = json.loads(done.stdout)["subjects"]
    own = subjects[0]
    peers = tuple(
        (s["subject"], s["cpu_p50_ns"], s["cpu_p99_ns"] / max(1, s["cpu_p50_ns"]), s["open_ns"] + s["first_ns"])
        for s in subjects[1:]
    )
    p99 = own["cpu_p99_ns"] / max(1, own["cpu_p50_ns"])
    open_ns = own["open_ns"] + own["first_ns"]
    return Row(model.name, case, asked, certify_s, candidates, share, own["cpu_p50_ns"], p99, open_ns, peers, "")


def _bench(image: Path, model: Path, cases: Sequence[Path]) -> tuple[subprocess.CompletedProcess[str], str]:
    """Times on the first case whose dims the image was certified for, and that case's name."""
    done, name = None, cases[0].stem
    for case in cases:
        command = [sys.executable, "-m", "tribunus", "bench", str(image), "--against", str(model), "--json"]
        done = subprocess.run([*command, "--inputs", str(case)], capture_output=True, text=True, check=False)
        name = case.stem
        if done.returncode != ProfileError.exit_code:
            break
    if done is None:
        raise InputError(f"{model.name} has no case", remedy="fetch its inputs: python -m benchmarks.zoo inputs")
    return done, name


def image_stem(name: str) -> str:
    """File stem of a model's image on the CPU."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name.lower()) + ".cpu"


def _report(path: Path) -> tuple[float, str, float, str]:
    """Largest error share of the program check, how many candidates ended how, seconds and effort."""
    if not path.exists():
        return math.nan, "no report", 0.0, "?"
    report = json.loads(path.read_text(encoding="utf-8"))
    shares = [float(row["error_share"]) for row in report["program_checks"]]
    counts: dict[str, int] = {}
    for row in report["candidates"]:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
    return max(shares, default=math.nan), told, float(report["session"]["seconds"]), str(report["session"]["effort"])


def line(row: Row) -> str:
    """One model for the terminal."""
    ratios = " ".join(f"{name} {ns / max(1, row.cpu_ns):.2f}x" for name, ns, _, _ in row.peers)
    return f"{row.model:28} {row.cpu_ns / 1e6:9.3f} ms  {ratios}  {row.note}"


def page(rows: Sequence[Row]) -> str:
    """The table with everything that makes its figures readable."""
    facts = machine_facts()
    tools = ", ".join(f"{name} {version}" for name, version in tool_versions(("numpy", "ziglang", *ENGINES)))
    head = [
        "# Benchmarks: how fast are images beside other engines?",
        "",
        "```",
        "  image       ──┐",
        "  onnxruntime ──┼── the same input, in turns, one thread each ──> CPU time, medians",
        "  OpenVINO    ──┘",
        "```",
        "",
        "```sh",
        "python -m benchmarks.zoo fetch models --group core",
        "python -m benchmarks.models models --table docs/benchmarks.md",
        "```",
        "",
        "`x` is the other engine's time over the image's: above 1 means that the image is faster.  OpenVINO computes",
        "in f32.  Baselines run with their dims fixed and initializers removed from the graph inputs.  A certification",
        "that could reuse receipts shows the seconds of its last run only.",
        "",
        f"Machine: {facts.model}, {facts.processors} usable processors, {facts.kernel}.  Python",
        f"{platform.python_version()}, {tools}.  {datetime.now(UTC):%Y-%m-%d}.",
        f"Load average at the end: {os.getloadavg()[0]:.1f}.",
        "",
        "| model, case | replay ms | onnxruntime | OpenVINO | p99/p50 (ours, ort) | open + first ms (ours, ort) "
        "| effort | certify s | error / budget | candidates |",
        "|---|--:|--:|--:|--:|--:|---|--:|--:|---|",
    ]
    body = []
    for row in rows:
        peers = {name: (ns, tail, opening) for name, ns, tail, opening in row.peers}
        ratio = {name: f"{peers[name][0] / max(1, row.cpu_ns):.2f}x" if name in peers else "-" for name in ENGINES}
        ort = peers.get("onnxruntime", (0, 0.0, 0))
        body.append(
            f"| {row.model}, {row.case} | {row.cpu_ns / 1e6:.3f} | {ratio['onnxruntime']} | {ratio['openvino']} "
            f"| {row.p99_share:.2f}, {ort[1]:.2f} | {row.open_ns / 1e6:.1f}, {ort[2] / 1e6:.1f} "
            f"| {row.effort} | {row.certify_s:.0f} | {row.error_share:.2g} "
            f"| {row.candidates}{'; ' if row.note else ''}{row.note} |"
        )
    best = [min(ns for _, ns, _, _ in row.peers) / row.cpu_ns for row in rows if row.peers and row.cpu_ns]
    ort_ratios = [ns / row.cpu_ns for row in rows if row.cpu_ns for name, ns, _, _ in row.peers if name == ENGINES[0]]
    tail = [""]
    if best:
        mean = math.exp(sum(map(math.log, best)) / len(best))
        ahead = sum(ratio > 1 for ratio in ort_ratios)
        tail += [
            f"Ahead of onnxruntime on {ahead} of {len(ort_ratios)}; geometric mean over the better of both engines: "
            f"{mean:.2f}x."
        ]
    return "\n".join([*head, *body, *tail, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
