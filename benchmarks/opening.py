"""Time to the first answer of a signed image beside onnxruntime, each measured in fresh processes taken in turn.

Run: python -m benchmarks.opening IMAGE.tci MODEL.onnx INPUTS.npz [ROUNDS]
Imports: tribunus, or onnxruntime, in the processes it starts.  Imported by: nothing.

Both libraries are imported and the inputs read before the clock starts; files are in the page cache, because the
first round is not counted.  Ours: ``tribunus.open`` with everything verified, then ``run``.  Theirs: an
``InferenceSession`` with all optimisations on one thread, then ``run``.  Beside it stands what importing
``tribunus.runtime.session`` adds to a process that has numpy and Ed25519 already.  Figures are medians over the rounds,
of wall time and of the process's CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median_low
from time import perf_counter_ns, process_time_ns
from typing import Final

ROUNDS: Final = 9
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""NumPy's threads would spin beside the first milliseconds that are measured."""
Times = dict[str, int]


class Laps:
    """Wall and CPU time between calls of ``lap``."""

    def __init__(self) -> None:
        self.times: Times = {}
        self._wall, self._cpu = perf_counter_ns(), process_time_ns()

    def lap(self, name: str) -> None:
        """Note the time since the last lap, or since this object was made, under ``name``."""
        wall, cpu = perf_counter_ns(), process_time_ns()
        self.times |= {f"{name} wall": wall - self._wall, f"{name} cpu": cpu - self._cpu}
        self._wall, self._cpu = perf_counter_ns(), process_time_ns()


def measure_image(image: Path, inputs: Path) -> Times:
    """Open an image and run it once."""
    import numpy as np

    import tribunus
    from tribunus.runtime import session  # noqa: F401  (imported before the clock starts, as onnxruntime is)

    with np.load(inputs, allow_pickle=False) as stored:
        feeds = {name: stored[name] for name in stored.files}
    laps = Laps()
    opened = tribunus.open(image)
    laps.lap("open")
    opened.run(feeds)
    laps.lap("first run")
    return laps.times


def measure_onnxruntime(model: Path, inputs: Path) -> Times:
    """Create a session and run it once."""
    import numpy as np
    import onnxruntime

    with np.load(inputs, allow_pickle=False) as stored:
        feeds = {name: stored[name] for name in stored.files}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    laps = Laps()
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    laps.lap("open")
    session.run(None, feeds)
    laps.lap("first run")
    return laps.times


def measure_import(_subject: Path, _inputs: Path) -> Times:
    """Import the runtime into a process that has its dependencies."""
    laps = Laps()
    import numpy  # noqa: F401
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: F401

    laps.lap("dependencies")
    from tribunus.runtime import session  # noqa: F401

    laps.lap("import")
    return laps.times


SUBJECTS: Final[Mapping[str, Callable[[Path, Path], Times]]] = {
    "tribunus": measure_image,
    "onnxruntime": measure_onnxruntime,
    "import": measure_import,
}


def measure_in_turn(image: Path, model: Path, inputs: Path, rounds: int) -> dict[str, list[Times]]:
    """``rounds`` measurements of each subject, each in its own process, after one that is not counted."""
    found: dict[str, list[Times]] = {name: [] for name in SUBJECTS}
    files = {"tribunus": image, "onnxruntime": model, "import": image}
    for turn in range(rounds + 1):
        for name in SUBJECTS:
            command = [sys.executable, "-m", "benchmarks.opening", "measure", name, str(files[name]), str(inputs)]
            environment = {**os.environ, **ONE_THREAD}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr.strip()[-2000:]}")
            if turn:
                found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return found


def table(found: Mapping[str, list[Times]]) -> str:
    """Medians in milliseconds."""
    lines = [f"{'':12} {'':14} {'wall ms':>9} {'cpu ms':>9}"]
    for name, measured in found.items():
        laps = [key.removesuffix(" wall") for key in measured[0] if key.endswith(" wall")]
        rows = [(lap, [lap]) for lap in laps]
        if name != "import":
            rows.append(("total", laps))
        for label, parts in rows:
            wall, cpu = (
                median_low([sum(times[f"{part} {clock}"] for part in parts) for times in measured]) / 1e6
                for clock in ("wall", "cpu")
            )
            lines.append(f"{name:12} {label:14} {wall:9.2f} {cpu:9.2f}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure and print, or be one of the measured processes."""
    if len(arguments) == 4 and arguments[0] == "measure":
        times = SUBJECTS[arguments[1]](Path(arguments[2]), Path(arguments[3]))
        print(json.dumps(times))
        return 0
    if len(arguments) not in (3, 4) or (len(arguments) == 4 and not arguments[3].isdigit()):
        print("usage: python -m benchmarks.opening IMAGE.tci MODEL.onnx INPUTS.npz [ROUNDS]", file=sys.stderr)
        return 2
    image, model, inputs = map(Path, arguments[:3])
    rounds = int(arguments[3]) if len(arguments) == 4 else ROUNDS
    print(table(measure_in_turn(image, model, inputs, max(1, rounds))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
