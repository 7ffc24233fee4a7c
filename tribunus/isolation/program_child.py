"""The process in which an assembled region is replayed: ``python -m tribunus.isolation.program_child FOLDER TURN``.

Imported by: nobody.  Imports: runtime, plan.
"""

from __future__ import annotations

import json
import mmap
import sys
from pathlib import Path

import numpy as np

from tribunus.canon import decode
from tribunus.isolation.program_run import clock_pair
from tribunus.plan.document import plan_from_json
from tribunus.plan.plan import Plan
from tribunus.runtime.fitness import PLAN_LIMIT
from tribunus.runtime.region import LoadedRegion, RegionBytes
from tribunus.runtime.replayers import find_replayer
from tribunus.runtime.session import Session, match_inputs


def main(folder: Path, turn: str) -> None:
    """Replay every case of the request and write what came out."""
    request = json.loads((folder / "request.json").read_text())
    plan = plan_from_json(decode((folder / "plan.json").read_bytes(), limit=PLAN_LIMIT))
    weights = tuple(_aligned((folder / f"weights-{number}").read_bytes()) for number in range(request["shards"]))
    held = RegionBytes(plan, memoryview((folder / "kernels").read_bytes()), weights)
    region = LoadedRegion(held, find_replayer)
    for number, labels in enumerate(request["cases"]):
        inputs = {
            label: np.load(folder / f"in-{number}-{position}.npy", allow_pickle=False)
            for position, label in enumerate(labels)
        }
        given = {label: array for label, array in inputs.items() if label not in _state_labels(plan)}
        profile, values = match_inputs(plan, given)
        session = Session(region, profile, values)
        for label, view in session.inputs.items():
            np.copyto(view, inputs[label])
        cpu: list[int] = []
        wall: list[int] = []
        spent = 0
        for _ in range(request["calls"]):
            for label, view in session.states.items():
                np.copyto(view, inputs[label])
            cpu_before, wall_before = clock_pair()
            session.replay()
            cpu_after, wall_after = clock_pair()
            cpu.append(cpu_after - cpu_before)
            wall.append(wall_after - wall_before)
            spent += wall[-1]
            if spent > 2_000_000_000:
                break
        for position, view in enumerate(session.outputs.values()):
            np.save(folder / f"{turn}-{number}-{position}.npy", view, allow_pickle=False)
        facts = {"labels": list(session.outputs), "cpu_ns": cpu, "wall_ns": wall}
        (folder / f"{turn}-{number}.json").write_text(json.dumps(facts))
        session.close()


def _state_labels(plan: Plan) -> frozenset[str]:
    """Inputs of the model that the plan keeps as states: a case says what they hold before the replay."""
    return frozenset(state.label for profile in plan.profiles for state in profile.states)


def _aligned(data: bytes) -> memoryview:
    """A copy at a page-aligned address, as the image reader hands weights out."""
    if not data:
        return memoryview(b"")
    area = mmap.mmap(-1, len(data))
    area.write(data)
    return memoryview(area)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
