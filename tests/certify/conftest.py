"""Whole certifications of tiny models, in pytest processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = Path(__file__).with_name("plugins")
WIDTH, HIDDEN, CLASSES = 16, 8, 4
QUICK = ("--backend", "native", "--effort", "1")
"""One candidate a signature, and only from our own compiler."""


@dataclass(frozen=True)
class Said:
    """How a session ended, and what it said."""

    code: int
    out: str
    err: str
    output: Path

    @property
    def text(self) -> str:
        return self.out + self.err

    def file(self, suffix: str) -> Path:
        """The one file of this certification that ends so."""
        [found] = self.output.glob(f"*.{suffix}")
        return found

    def report(self) -> dict[str, object]:
        document = json.loads(self.file("report.json").read_text())
        assert isinstance(document, dict)
        return document

    def counts(self) -> dict[str, int]:
        """``{"passed": 3}`` from pytest's last line."""
        words = self.out.strip().splitlines()[-1].strip("= ").split(" in ")[0].split(", ")
        return {word.split(" ", 1)[1]: int(word.split(" ", 1)[0]) for word in words}


@dataclass(frozen=True)
class Desk:
    """A place to certify from: its own keys, ledger and output folder."""

    folder: Path
    models: Path

    def ledger(self) -> Path:
        return self.folder / "ledger.sqlite"

    def environ(self, extra: Mapping[str, str]) -> dict[str, str]:
        own_words = ("PYTEST", "TRIBUNUS", "XDG", "COV", "PYTHONDONTWRITEBYTECODE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(own_words)}
        paths = [str(PLUGINS), *(p for p in (os.environ.get("PYTHONPATH"),) if p)]
        own = {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONPYCACHEPREFIX": str(self.models / "bytecode"),
            "HOME": str(self.folder / "home"),
        }
        return {**kept, **own, **extra}

    def words(self, model: str, *given: str, output: str = "out") -> list[str]:
        place = str(self.folder / output)
        return ["--model", str(self.models / model), "--ledger", str(self.ledger()), "--output", place, *given]

    def certify(
        self, model: str, *given: str, output: str = "out", extra: Mapping[str, str] | None = None, tool: bool = False
    ) -> Said:
        """``pytest certify/ --model ...``; ``tribunus certify --model ...`` with ``tool``."""
        own = ["-o", f"cache_dir={self.folder / 'cache'}", *self.words(model, *given, output=output)]
        start = ["tribunus", "certify"] if tool else ["pytest", "certify/"]
        return self.run([sys.executable, "-m", *start, *own], self.folder / output, extra or {})

    def run(self, command: Sequence[str], output: Path, extra: Mapping[str, str]) -> Said:
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ(extra), capture_output=True, text=True, check=False, timeout=300
        )
        return Said(done.returncode, done.stdout, done.stderr, output)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of ``small.onnx`` (three signatures) and ``one.onnx`` (one), both with a free batch."""
    folder = tmp_path_factory.mktemp("models")
    draw = np.random.Generator(np.random.PCG64(5))

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(draw.uniform(-1, 1, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1),
    ]
    weights = [weight("w", WIDTH, HIDDEN), weight("b", HIDDEN), weight("v", HIDDEN, CLASSES)]
    save_model(folder / "small.onnx", nodes, weights, CLASSES)
    save_model(folder / "one.onnx", [helper.make_node("Relu", ["x"], ["y"])], [], WIDTH)
    return folder


def save_model(path: Path, nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto], width: int) -> None:
    """A model from ``x`` f32[batch, 16] to ``y`` f32[batch, width]."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_case(path: Path, batch: int) -> None:
    """A case of ``batch`` rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.Generator(np.random.PCG64(batch))
    np.savez(path, x=draw.uniform(-2, 2, (batch, WIDTH)).astype(np.float32))


def install(site: Path, name: str, points: str) -> None:
    """Another distribution in the folder ``site``, with nothing but its entry points."""
    facts = site / f"{name.replace('-', '_')}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(points)


def no_traceback(said: Said) -> bool:
    """Whether people were spared the inside of the program."""
    return "Traceback" not in said.text and "INTERNALERROR" not in said.text and "\nE  " not in said.out


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Desk:
    """One a module."""
    return Desk(tmp_path_factory.mktemp("desk"), models)


@pytest.fixture
def fresh(tmp_path: Path, models: Path) -> Desk:
    """One a test."""
    return Desk(tmp_path, models)
