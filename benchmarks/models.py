"""All models of the core group: certified, replayed, opened, beside onnxruntime and OpenVINO in the same run.

    python -m benchmarks.models MODELS [--only NAME ...] [--effort E] [--output FOLDER] [--table docs/benchmarks.md]

MODELS is what ``python -m benchmarks.zoo fetch MODELS --group core`` made.  Each model is certified over the range of
dims and with the effort that the zoo's manifest suggests.  Imports: benchmarks.zoo, benchmarks.opening, the commands.
Imported by: nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median_low
from typing import Final

from benchmarks.opening import ROUNDS, Times, measure_in_turn
from benchmarks.zoo.manifest import Model, read_manifest
from tribunus.certification.bench import tool_versions
from tribunus.errors import InputError, ProfileError
from tribunus.targets.detect import machine_facts

ENGINES: Final = ("onnxruntime", "openvino")
LONG_NS: Final = 10**8
"""Replays that take longer are timed in six turns of four calls."""
CALLS: Final = 20
"""Calls a turn of shorter ones."""
TURNS_NS: Final = 6 * 10**9
"""Together their turns take so long, if that makes from 15 to 200 of them."""
KEPT: Final = "<!-- Written by hand from here on. -->"
"""What follows this line in the page of the table stays."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one certification took.  peak_bytes: largest resident set of any of its processes, 0 if not measured."""

    dims: str
    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """What its report says."""

    effort: str
    candidates: str
    error_share: float


@dataclass(frozen=True, slots=True)
class Replay:
    """One subject's CPU time a call: median, and its 99th percentile over that."""

    subject: str
    cpu_ns: int
    tail: float


@dataclass(frozen=True, slots=True)
class Opening:
    """Medians over fresh processes of opening and first run together, (wall, CPU) in ns; of an import the wall time."""

    ours: tuple[int, int]
    theirs: tuple[int, int]
    import_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """What one model gave.  replays: the image first; empty with a note where something failed."""

    model: str
    case: str
    cost: Cost
    found: Found
    opening: Opening | None
    replays: tuple[Replay, ...]
    note: str = ""

    def ratio(self, engine: str) -> float:
        """An engine's time over the image's; NaN where it was not timed."""
        return next((r.cpu_ns / self.replays[0].cpu_ns for r in self.replays if r.subject == engine), math.nan)


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line a model, write the table; 1 if a model could not be certified."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, metavar="MODELS")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--effort", help="for every model (default: what the zoo's manifest says of each)")
    parser.add_argument(
        "--backend",
        action="append",
        metavar="NAME",
        help="default: native, because another's kernels are chosen only where it has none",
    )
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument(
        "--table", type=Path, metavar="FILE.md", help=f"write the tables into this file; what follows {KEPT!r} stays"
    )
    parser.add_argument(
        "--reuse", action="store_true", help="measure images that are there already, certify the others"
    )
    given = parser.parse_args(arguments)
    chosen = [m for m in read_manifest().select(["core"], []) if not given.only or m.name in given.only]
    rows = []
    for model in chosen:
        place = given.output / image_stem(model.name)
        cost = None if not given.reuse else _recorded(place)
        if cost is None:
            code, cost = certify(model, given.models, place, given.effort or model.effort, given.backend or ["native"])
        else:
            code = 0
        rows.append(measure(model, given.models, place, cost, code))
        print(line(rows[-1]), flush=True)
    if given.table is not None:
        before = given.table.read_text(encoding="utf-8") if given.table.exists() else ""
        given.table.write_text(page(rows) + "".join(before.partition(KEPT)[1:]), encoding="utf-8")
    return int(any(row.note for row in rows))


def certify(model: Model, models: Path, place: Path, effort: str, backends: Sequence[str]) -> tuple[int, Cost]:
    """Certify one model afresh; how pytest ended, and what it took."""
    words = [sys.executable, "-m", "pytest", "certify/", "--model", str(models / model.file), "-q"]
    words += ["--inputs", str(models / "inputs" / model.name), "--output", str(place.parent), "--effort", effort]
    words += ["--benchmark-disable", "--ledger", f"{place}.sqlite"]
    words += [word for name in backends for word in ("--backend", name)]
    Path(f"{place}.sqlite").unlink(missing_ok=True)
    dims = ", ".join(model.dims) or "none free"
    code, cost = _timed([*words, *(word for dim in model.dims for word in ("--dim", dim))], place, dims)
    if model.dims and code == InputError.exit_code:
        # Some case lies outside the suggested ranges: then each has a profile of its own.
        code, cost = _timed(words, place, "a profile for every case")
    if code == 0:
        Path(f"{place}.cost.json").write_text(json.dumps(asdict(cost)), encoding="utf-8")
    return code, cost


def _timed(command: Sequence[str], place: Path, dims: str) -> tuple[int, Cost]:
    place.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with Path(f"{place}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, Cost(dims, time.monotonic() - begun, usage.ru_maxrss * 1024)


def _recorded(place: Path) -> Cost | None:
    """What an earlier certification took, if its image is there."""
    if not Path(f"{place}.tci").exists():
        return None
    record = Path(f"{place}.cost.json")
    return Cost(**json.loads(record.read_text(encoding="utf-8"))) if record.exists() else Cost("not recorded", 0.0, 0)


def measure(model: Model, models: Path, place: Path, cost: Cost, code: int) -> Row:
    """Open and replay one image beside the engines, on the first case whose dims it was certified for."""
    image, source = Path(f"{place}.tci"), models / model.file
    cases = sorted(p for p in (models / "inputs" / model.name).glob("*.npz") if not p.name.endswith(".ref.npz"))
    if not cases:
        raise InputError(f"{model.name} has no case", remedy="fetch its inputs: python -m benchmarks.zoo inputs")
    found = _report(Path(f"{place}.report.json"))
    if code != 0 or not image.exists():
        note = f"certification ended with {code}, see {place}.log"
        return Row(model.name, cases[0].stem, cost, found, None, (), note)
    for case in cases:
        probe = _bench(image, source, case, 1, 1)
        if probe.returncode != ProfileError.exit_code:
            break
    if probe.returncode != 0:
        told = probe.stderr.strip().splitlines()[:1] or ["no message"]
        return Row(model.name, case.stem, cost, found, None, (), told[0][:120])
    done = _bench(image, source, case, *turns_for(json.loads(probe.stdout)["subjects"][0]["cpu_p50_ns"]))
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    replays = tuple(
        Replay(s["subject"], s["cpu_p50_ns"], s["cpu_p99_ns"] / max(1, s["cpu_p50_ns"]))
        for s in json.loads(done.stdout)["subjects"]
    )
    return Row(model.name, case.stem, cost, found, _opened(image, source, case), replays)


def turns_for(replay_ns: int) -> tuple[int, int]:
    """Turns, and calls in each: so many that a burst of other work does not reach every hundredth call."""
    if replay_ns > LONG_NS:
        return 6, 4
    return min(200, max(15, TURNS_NS // max(1, CALLS * replay_ns))), CALLS


def _bench(image: Path, model: Path, case: Path, rounds: int, calls: int) -> subprocess.CompletedProcess[str]:
    """The image and the engines in turns."""
    command = [sys.executable, "-m", "tribunus", "bench", str(image), "--against", str(model), "--json"]
    command += ["--inputs", str(case), "--rounds", str(rounds), "--calls", str(calls)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _opened(image: Path, model: Path, case: Path) -> Opening:
    measured = measure_in_turn(image, model, case, ROUNDS)

    def middle(times: Sequence[Times], laps: Sequence[str], clock: str) -> int:
        return median_low(sum(t[f"{lap} {clock}"] for lap in laps) for t in times)

    both = ("open", "first run")
    ours, theirs = ((middle(measured[n], both, "wall"), middle(measured[n], both, "cpu")) for n in _OPENED)
    return Opening(ours, theirs, middle(measured["import"], ["import"], "wall"))


_OPENED: Final = ("tribunus", "onnxruntime")


def image_stem(name: str) -> str:
    """File stem of a model's image on the CPU."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name.lower()) + ".cpu"


def _report(path: Path) -> Found:
    """Effort, how many candidates ended how, largest error share of the program check."""
    if not path.exists():
        return Found("?", "no report", math.nan)
    report = json.loads(path.read_text(encoding="utf-8"))
    shares = [float(row["error_share"]) for row in report["program_checks"]]
    counts: dict[str, int] = {}
    for row in report["candidates"]:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
    return Found(str(report["session"]["effort"]), told, max(shares, default=math.nan))


def line(row: Row) -> str:
    """One model for the terminal."""
    if not row.replays:
        return f"{row.model:28} {row.note}"
    ratios = " ".join(f"{r.subject} {row.ratio(r.subject):.2f}x" for r in row.replays[1:])
    opening = ""
    if row.opening is not None:
        opening = f"  open {row.opening.ours[0] / 1e6:.1f} of {row.opening.theirs[0] / 1e6:.1f} ms"
    return f"{row.model:28} {row.replays[0].cpu_ns / 1e6:9.3f} ms  {ratios}{opening}"


def page(rows: Sequence[Row]) -> str:
    """The tables with everything that makes their figures readable."""
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
        "in f32.  Baselines run with their dims fixed and initializers removed from the graph inputs.  The first case",
        "is timed whose dims were certified, in turns of 20 calls, as many as make six seconds of replays, from 15 to",
        "200 (6 of 4 where a replay takes over 100 ms); p99 is of all calls.  Opening and the first run are medians of",
        "nine fresh processes each, everything verified, NumPy's own threads turned off.",
        "",
        f"Machine: {facts.model}, {facts.processors} usable processors, {facts.kernel.partition('-')[0]}.  Python",
        f"{platform.python_version()}, {tools}.  {datetime.now(UTC):%Y-%m-%d}.",
        f"Load average at the end: {os.getloadavg()[0]:.1f}.",
        "",
        "| model, case | replay ms | onnxruntime | OpenVINO | p99/p50 (ours, ort) "
        "| open + first ms (ours, ort) | its CPU ms (ours, ort) | error / budget |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        *(_timings(row) for row in rows),
        "",
        *_summary([row for row in rows if row.replays]),
        "",
        "## What does certifying cost?",
        "",
        "Fresh ledgers, wall time of the whole command, largest resident set of any of its processes.",
        "",
        "| model | dims | effort | candidates | wall s | peak GB |",
        "|---|---|---|---|--:|--:|",
        *(_cost(row) for row in rows),
        "",
        "",
    ]
    return "\n".join(head)


def _timings(row: Row) -> str:
    if not row.replays or row.opening is None:
        return f"| {row.model}, {row.case} | {row.note} | | | | | | |"
    tails = [f"{r.tail:.2f}" for r in row.replays if r.subject != ENGINES[1]]
    ratios = " | ".join("-" if math.isnan(row.ratio(e)) else f"{row.ratio(e):.2f}x" for e in ENGINES)
    wall, cpu = (f"{o / 1e6:.1f}, {t / 1e6:.1f}" for o, t in zip(row.opening.ours, row.opening.theirs, strict=True))
    replay = row.replays[0].cpu_ns / 1e6
    return (
        f"| {row.model}, {row.case} | {replay:.3f} | {ratios} | {', '.join(tails)} | {wall} | {cpu} "
        f"| {row.found.error_share:.2g} |"
    )


def _cost(row: Row) -> str:
    peak = f"{row.cost.peak_bytes / 1e9:.2f}" if row.cost.peak_bytes else "-"
    dims = f"`{row.cost.dims}`" if "=" in row.cost.dims else row.cost.dims
    return f"| {row.model} | {dims} | {row.found.effort} | {row.found.candidates} | {row.cost.seconds:.0f} | {peak} |"


def _summary(rows: Sequence[Row]) -> list[str]:
    """The figures over all models."""
    if not rows:
        return []
    better = [min(r.cpu_ns for r in row.replays[1:]) / row.replays[0].cpu_ns for row in rows if len(row.replays) > 1]
    first = [row.ratio(ENGINES[0]) for row in rows if not math.isnan(row.ratio(ENGINES[0]))]
    opened = [row.opening for row in rows if row.opening is not None]
    mean = math.exp(sum(map(math.log, better)) / len(better)) if better else math.nan
    quicker = sum(o.ours[0] < o.theirs[0] for o in opened)
    imports = median_low(o.import_ns for o in opened) / 1e6 if opened else math.nan
    return [
        f"Ahead of onnxruntime on {sum(r > 1 for r in first)} of {len(first)}; geometric mean over the better of both",
        f"engines: {mean:.2f}x.  Opening and first run ahead on {quicker} of {len(opened)}.  `import tribunus` adds",
        f"{imports:.1f} ms to NumPy and Ed25519 (median of the models' medians).",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
