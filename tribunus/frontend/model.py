"""Import of ONNX models: facts and programs of a file, parsed in a process of its own.

Imported by: certification, cli, certify.  Imports: bindings, facts, transport, phaseir.  This process never parses
ONNX: the child does, under limits on memory and time, and everything that it says is validated again here.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus import canon
from tribunus.canon import digest_bytes
from tribunus.errors import (
    EncodingError,
    EnvironmentFault,
    InternalError,
    ModelError,
    OnnxLimitError,
    OnnxSyntaxError,
    ToolError,
    TribunusError,
    all_leaves,
)
from tribunus.frontend import limits
from tribunus.frontend.bindings import DimBindings, bindings_to_json
from tribunus.frontend.facts import ModelFacts
from tribunus.frontend.transport import Failure, Lowered, read_result
from tribunus.phaseir.program import Constants, Program

_USER_FAMILIES: Final = (40, 41, 42)
_WALL_SECONDS: Final = 2 * limits.PARSER_CPU_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class ImportedModel:
    """A model in PhaseIR: one program a profile, in the order asked for, over one store of constants."""

    facts: ModelFacts
    programs: tuple[Program, ...]
    constants: Constants


def inspect_model(path: Path, *, external_data: bool = False) -> ModelFacts:
    """What the model says of itself.  Raises a ModelError leaf for files that are refused."""
    return _run(path, (), external_data).facts


def import_model(path: Path, profiles: Sequence[DimBindings], *, external_data: bool = False) -> ImportedModel:
    """Programs of the model, one for each of ``profiles``.

    external_data: allow tensors in other regular files of the model's own folder.  Raises a ModelError leaf for files
    that are refused, LoweringError listing every unsupported node, DimError for dims without bounds and for ranges over
    which shapes do not hold.
    """
    return _run(path, profiles, external_data)


def _run(path: Path, profiles: Sequence[DimBindings], external_data: bool) -> ImportedModel:
    constants = Constants()
    with _private_copy(path) as (model, digest), tempfile.TemporaryFile() as result:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if external_data else -1
        try:
            request = canon.encode({"profiles": [bindings_to_json(p) for p in profiles]})
            status = _start(request, model, result.fileno(), folder)
        finally:
            if folder >= 0:
                os.close(folder)
        answer = _answer(result.fileno(), status, constants)
    if isinstance(answer, Failure):
        raise _error_of(answer)
    if answer.facts.digest != digest or len(answer.programs) != len(profiles):
        raise InternalError("the parser answered for another model or other profiles")
    return ImportedModel(answer.facts, answer.programs, constants)


@contextmanager
def _private_copy(path: Path) -> Iterator[tuple[int, str]]:
    """Descriptor of a nameless copy of the file, and its SHA-256: what is parsed is what was hashed."""
    with _opened(path) as source:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode):
            raise OnnxSyntaxError(f"{path.name} is not a regular file")
        if facts.st_size > limits.MODEL_BYTES:
            raise OnnxLimitError(f"{path.name} has {facts.st_size} bytes, at most {limits.MODEL_BYTES} are allowed")
        data = bytearray()
        while len(data) <= limits.MODEL_BYTES and (piece := os.read(source, 1 << 26)):
            data += piece
    with tempfile.TemporaryFile() as copy:
        copy.write(data)
        copy.flush()
        yield copy.fileno(), digest_bytes(data)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error.strerror}", remedy="give the path of an ONNX file") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _start(request: bytes, model: int, result: int, folder: int) -> int:
    """Run the parsing process; returns its exit status, negative for a signal."""
    home = str(Path(__file__).resolve().parents[2])
    environment = {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys((home, *(entry for entry in sys.path if entry)))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "upb",
    }
    descriptors = (model, result) if folder < 0 else (model, result, folder)
    command = [sys.executable, "-s", "-m", "tribunus.frontend.child", str(model), str(result), str(folder)]
    try:
        done = subprocess.run(
            command,
            input=request,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=descriptors,
            cwd="/",
            timeout=_WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OnnxLimitError(f"the parser did not finish within {_WALL_SECONDS} s") from None
    except OSError as error:
        raise EnvironmentFault(f"the parser could not be started: {error.strerror}") from None
    if done.returncode > 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        if "MemoryError" in lines[-1]:
            raise OnnxLimitError("the parser ran out of memory")
        if lines[-1].startswith(("ModuleNotFoundError:", "ImportError:")):
            raise ToolError(
                f"reading ONNX needs a package that cannot be imported ({lines[-1].partition(': ')[2][:200]})",
                remedy="pip install 'tribunus-compute[certify]'",
            )
        raise InternalError(f"the parser failed: {lines[-1][:300]}")
    return done.returncode


def _answer(descriptor: int, status: int, constants: Constants) -> Lowered | Failure:
    if status < 0:
        raise OnnxLimitError(
            f"the parser was killed by signal {-status}: the model needs more memory or time than allowed"
        )
    size = os.fstat(descriptor).st_size
    data = bytearray(size)
    view = memoryview(data)
    position = 0
    while position < size:
        count = os.preadv(descriptor, [view[position : position + (1 << 26)]], position)
        if not count:
            break
        position += count
    try:
        return read_result(view, constants)
    except EncodingError as error:
        raise InternalError(f"the parser's answer is malformed: {error.detail}") from error


def _error_of(failure: Failure) -> TribunusError:
    """The error that the child raised; only errors that a model or its dims can cause are believed."""
    for leaf in all_leaves():
        if leaf.name == failure.name and leaf.exit_code in _USER_FAMILIES:
            return leaf(failure.detail, remedy=failure.remedy)
    return InternalError(f"the parser failed: {failure.name}: {failure.detail}")
