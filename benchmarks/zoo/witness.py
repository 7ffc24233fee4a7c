"""Witnesses: what onnxruntime computes for a case, without optimisation and on one thread.

Imported by: benchmarks.zoo.  Imports: tribunus.cli.bench_model; onnxruntime and onnx only when asked.

A witness is a second opinion to look at when a model disagrees with its golden, not the golden.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.zoo.archive import Array
from benchmarks.zoo.cases import Feeds
from tribunus.cli.bench_model import bind_model


def can_witness() -> bool:
    """True if onnxruntime and onnx are installed."""
    return find_spec("onnxruntime") is not None and find_spec("onnx") is not None


def engine() -> Array:
    """Name and version of what makes the witnesses, as their files carry it."""
    return np.array(f"onnxruntime {version('onnxruntime')}, not optimised")


def make_witness(model: Path, feeds: Feeds) -> dict[str, Array]:
    """Outputs by name.  Outputs that are not tensors (sequences, maps) are left out."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        bound = Path(folder) / "bound.onnx"
        outputs = bind_model(model, {name: array.shape for name, array in feeds.items()}, bound)
        session = onnxruntime.InferenceSession(str(bound), options, providers=["CPUExecutionProvider"])
    found = zip(outputs, session.run(list(outputs), feeds), strict=True)
    return {name: value for name, value in found if isinstance(value, np.ndarray)}
