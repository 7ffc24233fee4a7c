"""Import through the parsing process: what crosses the border, and how it fails."""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.frontend.models import build_model, lower_model
from tribunus import canon
from tribunus.canon import digest_bytes
from tribunus.errors import (
    InternalError,
    ModelError,
    OnnxExternalDataError,
    OnnxLimitError,
    OnnxSyntaxError,
    SchemaError,
    ToolError,
    TribunusError,
)
from tribunus.frontend import import_model, inspect_model, limits, model, parse_dim_options
from tribunus.frontend.facts import ModelFacts, TensorFact
from tribunus.frontend.transport import Failure, Lowered, read_result, write_failure, write_lowered
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Constants, program_digest

F = TensorProto.FLOAT
SHAPED = ModelFacts(digest_bytes(b""), "", 17, (TensorFact("x", DType.F32, ("n", 3)),), (), 0)


def save(path: Path) -> bytes:
    made = build_model(
        [("Mul", ["x", "w"], ["y"], {})], {"x": (F, ["n", 3])}, ["y"], {"w": np.arange(3, dtype=np.float32)}
    )
    made.producer_name = "maker"
    data: bytes = made.SerializeToString()
    path.write_bytes(data)
    return data


def test_facts_programs_and_constants_arrive(tmp_path: Path) -> None:
    data = save(tmp_path / "m.onnx")
    facts = inspect_model(tmp_path / "m.onnx")
    assert (facts.digest, facts.producer, facts.parameters) == (digest_bytes(data), "maker", 3)
    profiles = [parse_dim_options([option], facts) for option in ("n=1:2:4", "n=7")]
    found = import_model(tmp_path / "m.onnx", profiles)
    assert found.facts == facts
    assert [str(p.type_of(p.only_phase.inputs[0])) for p in found.programs] == ["f32[s0, 3]", "f32[7, 3]"]
    weight = next(i for i, v in enumerate(found.programs[0].values) if v.constant is not None)
    assert found.constants.of(found.programs[0], weight).tolist() == [0, 1, 2]
    provenance = found.programs[0].provenance
    assert provenance is not None and provenance.model == facts.digest


def test_external_data_needs_the_flag(tmp_path: Path) -> None:
    save(tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "m.onnx")
    tensor = made.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(OnnxExternalDataError):
        inspect_model(tmp_path / "m.onnx")
    found = import_model(tmp_path / "m.onnx", [parse_dim_options(["n=2"], SHAPED)], external_data=True)
    weight = next(i for i, v in enumerate(found.programs[0].values) if v.constant is not None)
    assert found.constants.of(found.programs[0], weight).tolist() == [0, 1, 2]


def test_an_error_of_the_child_arrives_as_itself(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nonsense")
    with pytest.raises(OnnxSyntaxError) as caught:
        inspect_model(tmp_path / "m.onnx")
    assert caught.value.exit_code == 40


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.onnx", tmp_path):
        with pytest.raises(ModelError):
            inspect_model(path)


def test_a_file_beyond_the_size_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "m.onnx").open("wb") as file:
        file.truncate(limits.MODEL_BYTES + 1)
    with pytest.raises(OnnxLimitError):
        inspect_model(tmp_path / "m.onnx")


def test_a_killed_parser_is_a_limit_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save(tmp_path / "m.onnx")
    died: subprocess.CompletedProcess[bytes] = subprocess.CompletedProcess([], -9, b"", b"")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: died)
    with pytest.raises(OnnxLimitError, match="signal 9"):
        inspect_model(tmp_path / "m.onnx")


def test_without_the_onnx_package_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save(tmp_path / "m.onnx")
    (tmp_path / "onnx.py").write_text("raise ModuleNotFoundError(\"No module named 'onnx'\")")
    # The parser's path begins with the folder of this package, where no onnx lies; then comes the caller's own.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ToolError, match="No module named 'onnx'") as caught:
        inspect_model(tmp_path / "m.onnx")
    assert "tribunus-compute[certify]" in caught.value.remedy


def test_the_importing_process_does_not_load_onnx() -> None:
    code = "import sys, tribunus.frontend; sys.exit('onnx' in sys.modules or 'google.protobuf' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )


def a_result() -> tuple[bytes, ModelFacts]:
    made = build_model([("Mul", ["x", "w"], ["y"], {})], {"x": (F, [3])}, ["y"], {"w": np.ones(3, np.float32)})
    found = lower_model(made, {"x": (3,)})
    facts = ModelFacts(digest_bytes(b""), "p", 17, (), (), 3)
    with tempfile.TemporaryFile() as file:
        write_lowered(file.fileno(), facts, [found.program], found.constants)
        file.seek(0)
        return file.read(), facts


def test_results_round_trip() -> None:
    data, facts = a_result()
    constants = Constants()
    found = read_result(memoryview(data), constants)
    assert isinstance(found, Lowered)
    assert found.facts == facts
    again = Constants()
    other = read_result(memoryview(data), again)
    assert isinstance(other, Lowered)
    assert program_digest(found.programs[0]) == program_digest(other.programs[0])
    assert list(constants.view()) == list(again.view())


def test_failures_round_trip() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 1000)
        file.flush()
        write_failure(file.fileno(), Failure("E_ONNX", "what", "do"))
        file.seek(0)
        assert read_result(memoryview(file.read()), Constants()) == Failure("E_ONNX", "what", "do")


def test_no_flipped_byte_of_a_result_passes_as_another_program() -> None:
    data, facts = a_result()
    honest = read_result(memoryview(data), Constants())
    assert isinstance(honest, Lowered)
    padding = range(16 + struct.unpack("<Q", data[8:16])[0], -(-(16 + struct.unpack("<Q", data[8:16])[0]) // 64) * 64)
    for position in range(len(data)):
        if position in padding or position >= len(data) - 52:  # zeros that nobody reads
            continue
        changed = bytearray(data)
        changed[position] ^= 1
        try:
            found = read_result(memoryview(changed), Constants())
        except TribunusError:
            continue
        assert isinstance(found, Lowered)
        assert found.facts != facts or found.programs[0] != honest.programs[0]


def test_a_result_without_its_constants_is_refused() -> None:
    data, _ = a_result()
    length = struct.unpack("<Q", data[8:16])[0]
    document = canon.decode(data[16 : 16 + length], limit=1 << 20)
    assert isinstance(document, dict)
    body = canon.encode({**document, "constants": []})
    with pytest.raises(SchemaError):
        read_result(memoryview(data[:8] + struct.pack("<Q", len(body)) + body), Constants())


def test_an_error_name_that_no_model_can_cause_is_our_fault() -> None:
    assert isinstance(model._error_of(Failure("E_SIG", "x", "y")), InternalError)
    assert not isinstance(model._error_of(Failure("E_ONNX_LIMIT", "x", "y")), InternalError)
