"""What a user can get wrong: one clear message with a remedy, the documented exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper
from tribunus_reports.schema import published

from tests.certify.conftest import PLUGINS, QUICK, WIDTH, Desk, Said, no_traceback, save_case

FIXED = ("--dim", "batch=2")
Sessions = Mapping[str, Said]


def unknown_op(path: Path) -> None:
    """A model with nodes that nothing knows."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    nodes = [helper.make_node(op, [a], [b], domain="lab") for op, a, b in (("Frob", "x", "h"), ("Wibble", "h", "y"))]
    graph = helper.make_graph(nodes, "odd", info[:1], info[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("lab", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def no_element(path: Path) -> None:
    """A model whose input and output have no row."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [0, WIDTH]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "empty", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def everything(desk: Desk) -> dict[str, list[str]]:
    """Words of every session."""
    made = desk.folder / "made"
    made.mkdir()
    unknown_op(made / "odd.onnx")
    no_element(made / "empty.onnx")
    (made / "noise.onnx").write_bytes(bytes(range(256)) * 8)
    (made / "short.onnx").write_bytes((desk.models / "small.onnx").read_bytes()[:-200])
    (made / "file").write_bytes(b"")
    rows = np.zeros((2, WIDTH), np.float32)
    np.savez(made / "name.npz", z=rows)
    np.savez(made / "extra.npz", x=rows, z=rows)
    np.savez(made / "dtype.npz", x=rows.astype(np.float64))
    np.savez(made / "rank.npz", x=rows[0])
    np.savez(made / "width.npz", x=rows[:, :-1])
    (made / "text.npz").write_text("not an archive")
    np.save(made / "one.npy", rows)
    np.savez(made / "objects.npz", x=np.array([{}], dtype=object))
    np.savez(made / "empty.npz", x=rows[:0])
    save_case(made / "witness" / "case.npz", 2)
    np.savez(made / "witness" / "case.ref.npz", z=rows)
    save_case(made / "mixed" / "inside.npz", 2)
    save_case(made / "mixed" / "outside.npz", 9)
    (made / "locked").mkdir()
    (made / "locked").chmod(0o500)
    (made / "choices.json").write_text("{}")
    (made / "key").write_text("no key")
    (made / "key").chmod(0o600)

    def model(place: Path) -> list[str]:
        return ["--model", str(place), "--output", str(desk.folder / "out"), *QUICK]

    def small(*given: str) -> list[str]:
        return [*model(desk.models / "small.onnx"), *given]

    def inputs(name: str) -> list[str]:
        return small("--inputs", str(made / name))

    return {
        "no file": [*model(made / "missing.onnx"), *FIXED],
        "noise": [*model(made / "noise.onnx"), *FIXED],
        "cut short": [*model(made / "short.onnx"), *FIXED],
        "a folder": [*model(made), *FIXED],
        "unknown ops": model(made / "odd.onnx"),
        "unbounded": small(),
        "no such dim": small("--dim", "rows=2"),
        "unordered": small("--dim", "batch=5:2:1"),
        "no bound": small("--dim", "batch"),
        "twice": small("--dim", "batch=1", "--dim", "batch=2"),
        "name": inputs("name.npz"),
        "extra": inputs("extra.npz"),
        "dtype": inputs("dtype.npz"),
        "rank": inputs("rank.npz"),
        "width": inputs("width.npz"),
        "text": inputs("text.npz"),
        "one array": inputs("one.npy"),
        "objects": inputs("objects.npz"),
        "no row": inputs("empty.npz"),
        "no rows": small("--dim", "batch=0"),
        "declared empty": model(made / "empty.onnx"),
        "witness": inputs("witness"),
        "no inputs": inputs("missing"),
        "empty folder": inputs("locked"),
        "outside": [*inputs("mixed"), "--dim", "batch=1:2:5"],
        "backend": small(*FIXED, "--backend", "nobody"),
        "target": small(*FIXED, "--target", "abacus"),
        "compute": small(*FIXED, "--compute", "fp7"),
        "effort": small(*FIXED, "--effort", "heroic"),
        "jit": small(*FIXED, "--jit-at-open", "sometimes"),
        "choices": small(*FIXED, "--choices", str(made / "choices.json")),
        "key": small(*FIXED, "--key", str(made / "key")),
        "jobs": small(*FIXED, "--jobs", "0"),
        "threads": small(*FIXED, "--threads", "0"),
        "many threads": small(*FIXED, "--threads", "9" * 9),
        "epoch": small(*FIXED, "--epoch", "9" * 20),
        "long name": small(*FIXED, "--name", "n" * 300),
        "no disk": small(*FIXED, "--output", "/proc/nowhere"),
        "output": small(*FIXED, "--output", str(made / "file" / "below")),
        "locked output": small(*FIXED, "--output", str(made / "locked")),
        "ledger": small(*FIXED, "--ledger", str(made / "file" / "ledger")),
        "no ledger": small(*FIXED, "--ledger", str(made / "key")),
        "a lock": small(*FIXED, "--ledger", str(made / "ledger.lock")),
    }


@pytest.fixture(scope="module")
def sessions(desk: Desk) -> Sessions:
    """Every session, run once."""
    words = {
        name: ["--ledger", str(desk.folder / "ledgers" / name), *given] for name, given in everything(desk).items()
    }
    place = desk.folder / "said"
    place.mkdir()
    (place / "words.json").write_text(json.dumps(words))
    done = desk.run([sys.executable, str(PLUGINS / "refusals.py"), str(place)], desk.folder / "out", {})
    assert done.code == 0, done.text
    codes = json.loads((place / "codes.json").read_text())
    return {
        name: Said(code, (place / f"{name}.out").read_text(), (place / f"{name}.err").read_text(), done.output)
        for name, code in codes.items()
    }


REFUSED: Mapping[str, tuple[int, str]] = {
    "no file": (40, "missing.onnx cannot be opened"),
    "noise": (40, "E_ONNX"),
    "cut short": (40, "E_ONNX"),
    "a folder": (40, "is not a regular file"),
    "unknown ops": (41, "Wibble"),
    "unbounded": (42, "dims without bounds: batch"),
    "no such dim": (42, "the model has no dim rows"),
    "unordered": (42, "E_DIM"),
    "no bound": (42, "is not NAME=min:opt:max"),
    "twice": (42, "dim batch is given twice"),
    "name": (42, "input 'x' is missing"),
    "extra": (42, "unknown input 'z'"),
    "dtype": (42, "input 'x' is float64, float32 was expected"),
    "rank": (42, "input 'x' has rank 1"),
    "width": (42, "case 'width': input 'x' is [2, 15], x "),
    "text": (42, "is no readable .npz file: it is no archive"),
    "one array": (42, "one.npy holds one array without a name"),
    "objects": (42, "it holds Python objects, not numbers"),
    "no row": (42, "batch: with an extent of 0"),
    "no rows": (42, "batch: with an extent of 0"),
    "declared empty": (42, "y has the shape [0, 16]: it has no element, and relu"),
    "witness": (42, "case.ref.npz has none of the model's outputs"),
    "no inputs": (42, "does not exist"),
    "empty folder": (42, "holds no CASE.npz"),
    "outside": (42, "case 'outside' does not fit batch=1:2:5: x [9, 16]"),
    "backend": (4, "there is no backend 'nobody'"),
    "target": (4, "abacus"),
    "compute": (4, "compute policy 'fp7'"),
    "effort": (4, "effort 'heroic'"),
    "jit": (4, "--jit-at-open 'sometimes'"),
    "choices": (4, "is no choices file"),
    "key": (4, "key"),
    "jobs": (4, "--jobs"),
    "threads": (4, "threads"),
    "many threads": (4, "--threads 999999999"),
    "epoch": (4, "--epoch 999"),
    "long name": (4, "--name has 300 characters"),
    "no disk": (50, "cannot write to /proc/nowhere"),
    "output": (50, "below"),
    "locked output": (50, "locked"),
    "ledger": (50, "ledger"),
    "no ledger": (25, "cannot be read: it is no database"),
    "a lock": (25, "would be its own lock"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_one_message_with_a_remedy(sessions: Sessions, name: str) -> None:
    if name == "locked output" and os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    said, (code, part) = sessions[name], REFUSED[name]
    assert said.code == code, said.text
    assert part in said.err and no_traceback(said)
    lines = [line for line in said.err.splitlines() if "E_" in line]
    assert len(lines) == 1 and "refused: E_" in lines[0]
    assert said.err.count("remedy: ") == 1
    assert not said.out.strip()


def test_every_unknown_op_is_named(sessions: Sessions) -> None:
    assert "Frob" in sessions["unknown ops"].err and "Wibble" in sessions["unknown ops"].err


def test_a_refused_session_leaves_no_file(sessions: Sessions) -> None:
    assert not any(said.output.exists() for said in sessions.values())


def test_a_witness_is_told_and_reported_and_never_decides(fresh: Desk) -> None:
    """Of another shape, far off, and right: the verdict is always that of the program check, the row its own."""
    cases = fresh.folder / "cases"
    save_case(cases / "case.npz", 2)
    right = np.maximum(np.load(cases / "case.npz")["x"], 0)

    def certify(y: npt.NDArray[np.float32], engine: str = "other 1.0") -> tuple[Said, dict[str, object]]:
        np.savez(cases / "case.ref.npz", y=y, witness=np.array(engine))
        said = fresh.certify("one.onnx", "--inputs", str(cases), *QUICK)
        assert said.code == 0 and said.file("tci").is_file(), said.text
        report = said.report()
        jsonschema.Draft202012Validator(json.loads(published())).validate(report)
        programs, rows = report["program_checks"], report["witnesses"]
        assert isinstance(programs, list) and isinstance(rows, list) and len(programs) == len(rows) == 1
        assert rows[0]["receipt"] == programs[0]["digest"] and rows[0]["case"] == "case"
        return said, rows[0]

    said, row = certify(np.zeros((2, WIDTH + 1), np.float32))
    assert "witness of case 'case': not compared: witness of y has shape (2, 17)" in said.out
    assert row["verdict"] == "not compared" and "has shape (2, 17)" in str(row["reason"])
    said, row = certify(right + np.float32(1), "other 2.0")
    assert "witness of case 'case': DISAGREES: output 'y' is " in said.out
    assert (row["verdict"], row["witness"], row["output"]) == ("disagrees", "other 2.0", "y")
    assert isinstance(row["distance"], float) and row["distance"] > 16 == row["limit"]
    said, row = certify(right, "other 2.1")
    assert "witnesses that agree: 1 of 1" in said.out and "DISAGREES" not in said.text
    expected = {"verdict": "agrees", "reason": "", "output": "y", "distance": 0, "compared": 1, "outputs": 1}
    assert {name: row[name] for name in expected} == expected and row["witness"] == "other 2.1"
    assert certify(right, "other 2.1")[1] == row, "remembered with the receipt of the program check"
    page = said.file("report.md").read_text()
    assert "## Witnesses" in page and "<code>other 2.1</code>" in page


def test_spreading_over_processes_is_refused_with_the_reason(fresh: Desk) -> None:
    said = fresh.certify("one.onnx", *FIXED, "-p", "odd_session", extra={"ODD": "xdist"})
    assert said.code == 4 and "in series: leave -n out" in said.err and no_traceback(said)


def test_the_suites_without_a_model_say_what_is_missing(fresh: Desk) -> None:
    said = fresh.run([sys.executable, "-m", "pytest", "certify/", "-p", "no:cacheprovider"], fresh.folder, {})
    assert said.code == 4 and "--model M.onnx" in said.err and no_traceback(said)
