"""Makes the pictures and the table of ops that the pages show.

    python docs/make_pictures.py                          docs/images/floors.svg and docs/ops.md
    python docs/make_pictures.py out/digits.cpu.report.html    docs/images/report.png too, by headless chromium

The floors are those that import-linter enforces, read from pyproject.toml; the ops are those of the tables in the code.

Imported by: tests/docs.  Imports: phaseir.ops, frontend.rules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.frontend.rules import RULES
from tribunus.phaseir.ops import OPS, Family

ROOT: Final = Path(__file__).resolve().parents[1]
FLOORS: Final = ROOT / "docs" / "images" / "floors.svg"
REPORT: Final = ROOT / "docs" / "images" / "report.png"
OP_PAGE: Final = ROOT / "docs" / "ops.md"
WINDOW: Final = (1240, 960)
LARGEST_PNG: Final = 300_000

_ROW, _GAP, _WIDTH, _LEFT = 34, 8, 860, 210
_SAYS: Final = {
    "tribunus_certify": "pytest plug-in and the suites",
    "tribunus_reports": "JSON, HTML, Markdown, JUnit; gate; approve",
    "tribunus_native": "backends: compile-time half",
    "tribunus_onednn": "and replay half",
    "cli": "one file a command",
    "certification": "the pipeline, one page to read first",
    "admission": "six checks, receipts",
    "ledger": "append-only evidence",
    "candidates": "backend protocol",
    "planning": "plans",
    "isolation": "worker processes",
    "runtime": "open, fits, bind, replay",
    "devices": "memory, launches, threads",
    "targets": "facts",
    "oracle": "goldens",
    "passes": "rewrites",
    "frontend": "ONNX in and out",
    "image": "the file",
    "plan": "what replay does, as data",
    "phaseir": "dims, types, layouts, ops, program",
    "numerics": "formats, rounding, ULP, exact sums",
    "canon": "canonical JSON, digests",
    "errors": "one class a failure, one exit code a family",
    "records": "frozen data",
    "version": "the release",
}
_RUNTIME: Final = frozenset(
    ("runtime", "devices", "plan", "phaseir", "canon", "errors", "records", "version", "numerics")
)


@dataclass(frozen=True, slots=True)
class Floor:
    """One row of the picture.  core: whether its rooms lie in the package ``tribunus``."""

    rooms: tuple[str, ...]
    core: bool


def read_floors(project: Path) -> tuple[Floor, ...]:
    """Floors from the top down, as the contracts in ``project`` state them."""
    with project.open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = {contract["name"]: contract["layers"] for contract in contracts if contract["type"] == "layers"}
    above = [Floor(_rooms(line), False) for line in layers["source roots"] if line != "tribunus"]
    return (*above, *(Floor(_rooms(line), True) for line in layers["floors of the core"]))


def _rooms(line: str) -> tuple[str, ...]:
    return tuple(line.replace("|", ":").replace(" ", "").split(":"))


def draw_floors(floors: Sequence[Floor]) -> str:
    """The house as SVG: who stands higher may import who stands lower."""
    height = len(floors) * (_ROW + _GAP) + 50
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Floors: a room may import the rooms below it</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#faf9f7"/>',
        '<text x="16" y="24" fill="#50545b">A room may import the rooms on lower floors. '
        "Green, and the room image: all that replaying needs.</text>",
    ]
    for position, floor in enumerate(floors):
        y = 40 + position * (_ROW + _GAP)
        green = floor.core and _RUNTIME.issuperset(floor.rooms)
        fill = "#d5eadf" if green else "#dbe5f3" if floor.core else "#f0e4cb"
        says = " · ".join(_SAYS[room] for room in floor.rooms if room in _SAYS)
        lines += [
            f'<rect x="16" y="{y}" width="{_WIDTH - 32}" height="{_ROW}" rx="6" fill="{fill}"/>',
            f'<text x="28" y="{y + 22}" fill="#1b1d20" font-weight="620">{" · ".join(floor.rooms)}</text>',
            f'<text x="{_LEFT + 180}" y="{y + 22}" fill="#50545b">{says}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def op_page() -> str:
    """The page that lists every op, from the tables."""
    rows = [
        f"| `{spec.kind}` | {spec.contract.value} | {', '.join(f'`{name}`' for name in spec.attributes)} |"
        for family in Family
        for spec in OPS.values()
        if spec.family is family
    ]
    names = ", ".join(sorted(RULES))
    return f"""# Ops: which ones are known?

```
  {len(RULES)} ONNX ops --(lowering rules)--> {len(OPS)} PhaseIR ops --(backends)--> kernels
```

```sh
tribunus phaseir examples/digits.onnx --inputs examples/inputs/one.npz
```

prints a model in PhaseIR, or every node that cannot be lowered, each with its reason (exit 41). That an op is known
means that it has a type rule, a golden and a budget. Whether a kernel exists depends on dtypes, shapes and target: an
op that no backend covers is listed before anything is built (exit 41). Made by `python docs/make_pictures.py`.

## PhaseIR ops

Contract: what a backend may change about the arithmetic ([how to add an op](add-an-op.md) explains the words).

| op | contract | attributes |
|---|---|---|
{chr(10).join(rows)}

## ONNX ops with a lowering rule

{names}.

An op with a rule can still be refused for one node, for example where the shape of a result depends on data.
"""


def take_picture(page: Path) -> None:
    """A screenshot of a report's first screen.  Needs chromium; raises SystemExit with a sentence otherwise."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    if not page.is_file():
        raise SystemExit(f"{page} is not there: certify the example first, see README.md")
    with tempfile.TemporaryDirectory(prefix="tribunus-picture-") as profile:
        shot = Path(profile) / "report.png"
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-prefers-reduced-motion",
                f"--user-data-dir={profile}/profile",
                f"--window-size={WINDOW[0]},{WINDOW[1]}",
                f"--screenshot={shot}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        data = shot.read_bytes()
    if len(data) > LARGEST_PNG:
        raise SystemExit(f"the picture has {len(data)} bytes, at most {LARGEST_PNG} are wanted")
    REPORT.write_bytes(data)


def main(words: Sequence[str]) -> None:
    """Write the files."""
    FLOORS.write_text(draw_floors(read_floors(ROOT / "pyproject.toml")), encoding="utf-8")
    OP_PAGE.write_text(op_page(), encoding="utf-8")
    if words:
        take_picture(Path(words[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
