"""The 14 core models of the zoo: lowered, evaluated and exported, against outputs that a foreign runtime gave.

Needs the folder of ``python -m benchmarks.zoo`` with its inputs, named by the variable TRIBUNUS_ZOO.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo.manifest import DEFAULT_PATH, Group, read_manifest
from tests.frontend.models import Array
from tests.frontend.test_export import run
from tribunus.errors import DimError
from tribunus.frontend import bindings_from_inputs, import_model, inspect_model, parse_dim_options
from tribunus.frontend.export import to_onnx
from tribunus.oracle.golden import evaluate

FOLDER = Path(os.environ.get("TRIBUNUS_ZOO") or "/nonexistent")
CORE = [m for m in read_manifest(DEFAULT_PATH).models if m.group is Group.CORE]
# fp64 against fp32: the variance of magika is a difference of large numbers; smart-turn's quantizers amplify rounding
SHARES = {"magika-v3_3": 2e-3, "smart-turn-v3.2-int8-qdq": 0.3}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="TRIBUNUS_ZOO does not name a folder of fetched models"),
]


def cases(name: str) -> list[Path]:
    return sorted(p for p in (FOLDER / "inputs" / name).glob("*.npz") if not p.name.endswith(".ref.npz"))


def arrays(path: Path) -> dict[str, Array]:
    with np.load(path) as data:
        return {key: data[key] for key in data.files}


def share(found: Array, witness: Array) -> float:
    """Largest difference in units of the witness's largest magnitude."""
    assert found.shape == witness.shape
    difference = np.abs(np.asarray(found, np.float64) - witness.astype(np.float64))
    return float(difference.max() / max(np.abs(witness.astype(np.float64)).max(), 1e-30))


@pytest.mark.parametrize("name", [m.name for m in CORE])
def test_every_case_agrees_with_its_witness(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    facts = inspect_model(path)
    for case in cases(name)[:2]:
        inputs = arrays(case)
        found = import_model(path, [bindings_from_inputs(facts, {k: a.shape for k, a in inputs.items()})])
        (program,) = found.programs
        phase = program.only_phase
        values = evaluate(
            program, {i: inputs[program.values[i].label] for i in phase.inputs}, found.constants, keep=phase.outputs
        )
        witness = arrays(case.with_suffix(".ref.npz"))
        for output in phase.outputs:
            worst = share(np.asarray(values[output]), witness[program.values[output].label])
            assert worst <= SHARES.get(name, 3e-5), (case.name, program.values[output].label)


@pytest.mark.parametrize("name", [m.name for m in CORE])
def test_the_declared_range_is_one_program_and_its_export_agrees(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    facts = inspect_model(path)
    dims = next(m.dims for m in CORE if m.name == name)
    found = import_model(path, [parse_dim_options(dims, facts)])
    exported = to_onnx(found.programs[0], found.constants)
    inputs = arrays(cases(name)[-1])
    witness = arrays(cases(name)[-1].with_suffix(".ref.npz"))
    for output, array in zip(found.programs[0].only_phase.outputs, run(exported, **inputs), strict=True):
        assert share(array, witness[found.programs[0].values[output].label]) <= 2e-5


def test_heights_between_multiples_of_32_are_refused_with_the_step() -> None:
    path = FOLDER / "ppocrv4-det.onnx"
    facts = inspect_model(path)
    names = facts.labels()
    options = [f"{names[0]}=1", f"{names[1]}=160:320:640", f"{names[2]}=320"]
    with pytest.raises(DimError) as caught:
        import_model(path, [parse_dim_options(options, facts)])
    assert f"{names[1]}=161 is the least value that fails" in caught.value.detail
    assert "a step of 32 holds throughout" in caught.value.remedy
