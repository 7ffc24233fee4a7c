"""What certifying costs and what it finds, on models that are made here.

    python -m benchmarks.certifying products     the admitted product of either backend, ranked in one contest,
                                                and the image beside NumPy
    python -m benchmarks.certifying layers       time in checks of 12 equal layers over that of 2

Imports: tribunus, onnx, numpy.  Imported by: nothing.  Each certification has a fresh ledger, so nothing is reused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

import tribunus

SIZES: Final = ((1024, 1024, 1024), (128, 1536, 384), (32, 384, 384))
"""Rows, columns, depth."""
WIDTH: Final = 96
WIDER: Final = 384
ROWS: Final = 64
LAYERS: Final = (2, 12)
TURNS: Final = 21
Weights = dict[str, npt.NDArray[np.float32]]


def product_model(rows: int, columns: int, depth: int) -> onnx.ModelProto:
    """``x @ w`` with a stored w."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((depth, columns), dtype=np.float32) / np.float32(depth**0.5)}
    return _model([helper.make_node("MatMul", ["x", "w"], ["y"])], (rows, depth), (rows, columns), weights)


def layers_model(count: int) -> onnx.ModelProto:
    """A stack of equal layers: a product, a gelu, a product, the residual, a layer normalization; weights differ."""
    rng = np.random.default_rng(0)
    weights: Weights = {}
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int) -> str:
        weights[name] = rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[0] ** 0.5)
        return name

    value = "x"
    for i in range(count):
        after = "y" if i == count - 1 else f"out{i}"
        nodes += [
            helper.make_node("MatMul", [value, weight(f"up{i}", WIDTH, WIDER)], [f"a{i}"]),
            helper.make_node("Add", [f"a{i}", weight(f"ub{i}", WIDER)], [f"b{i}"]),
            helper.make_node("Gelu", [f"b{i}"], [f"c{i}"]),
            helper.make_node("MatMul", [f"c{i}", weight(f"down{i}", WIDER, WIDTH)], [f"d{i}"]),
            helper.make_node("Add", [f"d{i}", weight(f"db{i}", WIDTH)], [f"e{i}"]),
            helper.make_node("Add", [f"e{i}", value], [f"f{i}"]),
            helper.make_node(
                "LayerNormalization", [f"f{i}", weight(f"g{i}", WIDTH), weight(f"h{i}", WIDTH)], [after], axis=-1
            ),
        ]
        value = after
    return _model(nodes, (ROWS, WIDTH), (ROWS, WIDTH), weights)


def _model(
    nodes: Sequence[onnx.NodeProto], x: tuple[int, ...], y: tuple[int, ...], weights: Weights
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(y))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def certified(folder: Path, model: onnx.ModelProto, *options: str) -> Mapping[str, object]:
    """The report of a certification; the image lies beside it.  Ends the program if it fails."""
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    command = [sys.executable, "-m", "pytest", "certify/", "--model", str(folder / "m.onnx"), "-q"]
    command += ["--output", str(folder), "--ledger", str(folder / "l.sqlite"), "--benchmark-disable", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"certification ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-500:]}")
    report: dict[str, object] = json.loads((folder / "m.cpu.report.json").read_text(encoding="utf-8"))
    return report


def _fresh_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tribunus-certifying-")


def turns(image: Path, depth: int, columns: int) -> Mapping[str, float]:
    """Median CPU microseconds of replaying a product and of NumPy's, in turns in this process; NumPy's library.

    The weights are those of ``product_model``; NumPy writes into memory that it is given.
    """
    weights = np.random.default_rng(0).standard_normal((depth, columns), dtype=np.float32) / np.float32(depth**0.5)
    with tribunus.open(image) as opened:
        session = opened.bind()
        x, y = session.inputs["x"], session.outputs["y"]
        x[...] = np.random.default_rng(1).standard_normal(x.shape, dtype=np.float32)
        given = np.array(x)
        made = np.empty(y.shape, np.float32)
        session.replay()
        np.matmul(given, weights, out=made)
        if not np.allclose(made, y, rtol=1e-3, atol=1e-3):
            sys.exit("the two products differ")
        calls = max(1, int(2e9 / (2 * made.size * depth) / 10))
        times: dict[str, list[float]] = {"image": [], "numpy": []}
        for _ in range(TURNS):
            for name, call in (("image", session.replay), ("numpy", lambda: np.matmul(given, weights, out=made))):
                begin = process_time_ns()
                for _ in range(calls):
                    call()
                times[name].append((process_time_ns() - begin) / calls / 1e3)
    return {name: median(found) for name, found in times.items()}


def _rows(report: Mapping[str, object], name: str) -> list[dict[str, object]]:
    found = report[name]
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def products() -> None:
    """Best admitted product of each backend, as one contest ranked them; the whole image beside NumPy's OpenBLAS."""
    print(
        f"{'product':16s} {'native us':>10s} {'onednn us':>10s} {'onednn / native':>16s} {'admitted':>9s}"
        f" {'image us':>10s} {'numpy us':>10s} {'numpy / image':>14s}"
    )
    for rows, columns, depth in SIZES:
        with _fresh_folder() as name:
            report = certified(Path(name), product_model(rows, columns, depth), "--jit-at-open", "free")
            command = [sys.executable, "-m", "benchmarks.certifying", "turns", f"{name}/m.cpu.tci"]
            alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            found = subprocess.run(
                [*command, str(depth), str(columns)], env=alone, check=True, stdout=subprocess.PIPE, text=True
            )
            beside: dict[str, float] = json.loads(found.stdout)
        # Conversions of layouts have contests of their own: the product's is that with most participants.
        contest = max(_rows(report, "contests"), key=lambda c: len(_rows(c, "entries")))
        best: dict[str, int] = {}
        for entry in _rows(contest, "entries"):
            backend, time = str(entry["candidate"]).partition("-")[0], int(str(entry["p50_ns"]))
            best[backend] = min(time, best.get(backend, time))
        native, other = best.get("native", 0), best.get("onednn", 0)
        print(
            f"{f'{rows}x{columns}x{depth}':16s} {native / 1e3:10.1f} {other / 1e3:10.1f} "
            f"{other / max(1, native):16.3f} {len(_rows(contest, 'entries')):9d}"
            f" {beside['image']:10.1f} {beside['numpy']:10.1f} {beside['numpy'] / beside['image']:14.3f}",
            flush=True,
        )


def layers() -> None:
    """Seconds in the six checks, and their ratio."""
    seconds: list[float] = []
    for count in LAYERS:
        with _fresh_folder() as name:
            receipts = _rows(certified(Path(name), layers_model(count)), "receipts")
        seconds.append(sum(int(str(receipt["took_ms"])) for receipt in receipts) / 1e3)
        print(f"{count:3d} layers: {seconds[-1]:7.1f} s in {len(receipts)} checks", flush=True)
    print(f"ratio {seconds[1] / seconds[0]:.2f}")


def main(arguments: Sequence[str]) -> int:
    """One of the two; ``turns IMAGE DEPTH COLUMNS`` is what ``products`` starts for its last columns."""
    if len(arguments) == 4 and arguments[0] == "turns":
        print(json.dumps(turns(Path(arguments[1]), int(arguments[2]), int(arguments[3]))))
        return 0
    chosen = {"products": products, "layers": layers}.get(arguments[0] if len(arguments) == 1 else "")
    if chosen is None:
        print(__doc__, file=sys.stderr)
        return 4
    chosen()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
