"""What crosses the border between the parsing process and ours: one file of canonical JSON and raw payloads.

Imported by: child, model.  Imports: canon, phaseir.

Layout: 8 bytes magic, 8 bytes little-endian length of the document, the document, zeros up to a multiple of 64, then
the payloads at the offsets that the document names.  Nothing in it is trusted: the reader rebuilds programs through
``program_from_json`` and the verifier, and constants through their digests.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tribunus import canon
from tribunus.canon import Json, int_of, list_of, object_of, parse_digest, str_of
from tribunus.errors import InternalError, SchemaError
from tribunus.frontend import limits
from tribunus.frontend.facts import ModelFacts, facts_from_json, facts_to_json
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.document import program_from_json
from tribunus.phaseir.program import Constants, Program, program_to_json
from tribunus.phaseir.types import dtype_of
from tribunus.phaseir.verifier import verify

MAGIC: Final = b"TRBLOW1\n"
_ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the parsing process: the stable name, and what it said."""

    name: str
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Lowered:
    """Facts and programs of a model; their constants are in the store that the reader was given."""

    facts: ModelFacts
    programs: tuple[Program, ...]


def write_failure(descriptor: int, failure: Failure) -> None:
    """Replace the file's contents by an error."""
    document: Json = {"outcome": "error", "name": failure.name, "detail": failure.detail, "remedy": failure.remedy}
    os.ftruncate(descriptor, 0)
    _write(descriptor, _head(document), 0)


def write_lowered(descriptor: int, facts: ModelFacts, programs: Sequence[Program], constants: Constants) -> None:
    """Write facts, programs and the constants that the programs name."""
    dtypes = {v.constant: v.type.dtype for p in programs for v in p.values if v.constant is not None}
    entries: list[Json] = []
    offset = 0
    for digest in sorted(dtypes):
        array = constants.get(digest)
        entries.append(
            {
                "digest": digest,
                "dtype": dtypes[digest].value,
                "shape": [int(d) for d in array.shape],
                "offset": offset,
            }
        )
        offset += -(-array.nbytes // _ALIGN) * _ALIGN
    document: Json = {
        "outcome": "lowered",
        "facts": facts_to_json(facts),
        "programs": [program_to_json(p) for p in programs],
        "constants": entries,
    }
    head = _head(document)
    _write(descriptor, head, 0)
    position = len(head)
    for digest in sorted(dtypes):
        array = constants.get(digest)
        _write(descriptor, np.ascontiguousarray(array).tobytes(), position)
        position += -(-array.nbytes // _ALIGN) * _ALIGN
    os.ftruncate(descriptor, position)


def read_result(data: memoryview, constants: Constants) -> Lowered | Failure:
    """What the parsing process wrote; constants go to ``constants``.

    Raises SchemaError or another encoding error for anything but the one form, InternalError for an ill-typed program.
    """
    if len(data) < 16 or bytes(data[:8]) != MAGIC:
        raise SchemaError("the parser's result is not a result file")
    (length,) = struct.unpack("<Q", data[8:16])
    if length > limits.DOCUMENT_BYTES or 16 + length > len(data):
        raise SchemaError("the parser's result is truncated")
    value = canon.decode(data[16 : 16 + length], limit=limits.DOCUMENT_BYTES)
    if type(value) is dict and value.get("outcome") == "error":
        error = object_of(value, "result", frozenset(("outcome", "name", "detail", "remedy")))
        return Failure(*(str_of(error[key], key) for key in ("name", "detail", "remedy")))
    document = object_of(value, "result", frozenset(("outcome", "facts", "programs", "constants")))
    if document["outcome"] != "lowered":
        raise SchemaError("the parser's result has an unknown outcome")
    start = _aligned(16 + length)
    for entry in list_of(document["constants"], "constants"):
        _read_constant(entry, data[start:], constants)
    programs = tuple(program_from_json(p) for p in list_of(document["programs"], "programs"))
    for program in programs:
        verify(program)
        for value_ in program.values:
            if value_.constant is not None:
                _check_constant(constants, program, program.values.index(value_))
    return Lowered(facts_from_json(document["facts"]), programs)


def _check_constant(constants: Constants, program: Program, value: int) -> None:
    try:
        array = constants.of(program, value)
    except InternalError:
        raise SchemaError(f"the parser's result lacks the payload of value {value}") from None
    type_ = program.values[value].type
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
        raise SchemaError(f"the payload of value {value} is no {type_}")


def _read_constant(entry: Json, payload: memoryview, constants: Constants) -> None:
    document = object_of(entry, "constant", frozenset(("digest", "dtype", "shape", "offset")))
    dtype: DType = dtype_of(document["dtype"], "constant")
    shape = tuple(int_of(d, "constant.shape") for d in list_of(document["shape"], "constant.shape"))
    offset = int_of(document["offset"], "constant.offset")
    nbytes = math.prod(shape) * dtype.itemsize
    if offset + nbytes > len(payload):
        raise SchemaError("a constant reaches past the end of the parser's result")
    array = np.frombuffer(payload[offset : offset + nbytes], dtype.numpy).reshape(shape)
    if constants.add(array, dtype) != parse_digest(str_of(document["digest"], "constant.digest")):
        raise SchemaError("a constant in the parser's result does not have its digest")


def _head(document: Json) -> bytes:
    encoded = canon.encode(document)
    head = MAGIC + struct.pack("<Q", len(encoded)) + encoded
    return head + bytes(_aligned(len(head)) - len(head))


def _aligned(position: int) -> int:
    return -(-position // _ALIGN) * _ALIGN


def _write(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(descriptor, view[: 1 << 26], position)
        view, position = view[written:], position + written
