"""Replays an assembled region in a process of its own, with the production runtime.

Imported by: certification.  Imports: plan; the runtime in the child.  The child gets files in a private folder and the
names of cases; it returns outputs as files and times as text.  Nothing of it is trusted but its bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tribunus.errors import InternalError
from tribunus.phaseir.program import Array
from tribunus.plan.document import plan_bytes
from tribunus.plan.plan import Plan

TIMEOUT_S: Final = 600
CLOCKED_CALLS: Final = 30


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What a replay of one case gave.  first, second: outputs by label, of two replays in different processes.

    cpu_ns, wall_ns: per replay, in order.  died: why the child ended early, empty if it did not.
    """

    case: str
    first: Mapping[str, Array]
    second: Mapping[str, Array]
    cpu_ns: tuple[int, ...]
    wall_ns: tuple[int, ...]
    died: str


def run_program(
    plan: Plan, kernels: bytes, shards: Sequence[bytes], cases: Mapping[str, Mapping[str, Array]], folder: Path
) -> tuple[ProgramRun, ...]:
    """Replay every case in two fresh processes; ``folder`` is private and empty."""
    (folder / "plan.json").write_bytes(plan_bytes(plan))
    (folder / "kernels").write_bytes(kernels)
    for number, shard in enumerate(shards):
        (folder / f"weights-{number}").write_bytes(shard)
    names = list(cases)
    for number, name in enumerate(names):
        for position, array in enumerate(cases[name].values()):
            np.save(folder / f"in-{number}-{position}.npy", array, allow_pickle=False)
    request = {"cases": [list(cases[name]) for name in names], "shards": len(shards), "calls": CLOCKED_CALLS}
    (folder / "request.json").write_text(json.dumps(request))
    died = [_spawn(folder, f"run{turn}") for turn in (1, 2)]
    return tuple(_collect(folder, number, name, died) for number, name in enumerate(names))


def _spawn(folder: Path, turn: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH")}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "tribunus.isolation.program_child", str(folder), turn]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
    return f"the process ended with status {done.returncode}: {last[0][:300]}"


def _collect(folder: Path, number: int, name: str, died: Sequence[str]) -> ProgramRun:
    problem = next((text for text in died if text), "")
    if problem:
        return ProgramRun(name, {}, {}, (), (), problem)
    outputs: list[dict[str, Array]] = []
    cpu: list[int] = []
    wall: list[int] = []
    for turn in ("run1", "run2"):
        facts = json.loads((folder / f"{turn}-{number}.json").read_text())
        labels = facts["labels"]
        outputs.append(
            {
                label: np.load(folder / f"{turn}-{number}-{position}.npy", allow_pickle=False)
                for position, label in enumerate(labels)
            }
        )
        cpu += facts["cpu_ns"]
        wall += facts["wall_ns"]
    if outputs[0].keys() != outputs[1].keys():
        raise InternalError("two replays of a case name different outputs")
    return ProgramRun(name, outputs[0], outputs[1], tuple(cpu), tuple(wall), "")


def clock_pair() -> tuple[int, int]:
    """CPU time of the process and wall time, ns."""
    return time.process_time_ns(), time.perf_counter_ns()
