"""The child that loads the library at compile time: lists implementations, describes one, packs weights.

Run by: listing, as ``python -m tribunus_onednn.probe LIBRARY ISA``.  Imports: primitives, generated, canon.  No NumPy.

One request a line of standard input, one answer a line of standard output, both canonical JSON.  Packing answers are
followed by the packed bytes, packing requests by the plain ones.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import BinaryIO, Final

from tribunus import canon
from tribunus.canon import Json, JsonObject, int_of, object_of, str_of
from tribunus.errors import TribunusError
from tribunus_onednn.generated import generated_ranges, new_code, read_mappings
from tribunus_onednn.library import Library, Place
from tribunus_onednn.primitives import Primitive, ZeroBuffers, create_memory_desc, list_implementations
from tribunus_onednn.problem import (
    Argument,
    Memory,
    Problem,
    memory_from_json,
    memory_to_json,
    problem_from_json,
)

REQUEST_LIMIT: Final = 1 << 20


def main(arguments: list[str]) -> int:
    """Answer requests until standard input ends."""
    library = Library(Place(Path(arguments[0])), int(arguments[1]))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        payload = b""
        try:
            answer, payload = _answer(library, canon.decode(line.rstrip(b"\n"), limit=REQUEST_LIMIT), source)
        except TribunusError as failure:
            answer = {"failed": failure.detail, "remedy": failure.remedy}
        sink.write(canon.encode(answer) + b"\n" + payload)
        sink.flush()
    return 0


def _answer(library: Library, request: Json, source: BinaryIO) -> tuple[JsonObject, bytes]:
    document = object_of(
        request, "request", frozenset(("ask",)), frozenset(("problem", "implementation", "from", "to", "nbytes"))
    )
    match str_of(document["ask"], "ask"):
        case "hello":
            return {"version": library.version, "commit": library.commit}, b""
        case "list":
            return _list(library, problem_from_json(document["problem"], "problem")), b""
        case "describe":
            problem = problem_from_json(document["problem"], "problem")
            return _describe(library, problem, str_of(document["implementation"], "implementation")), b""
        case _:
            data = source.read(int_of(document["nbytes"], "nbytes"))
            plain, packed = memory_from_json(document["from"], "from"), memory_from_json(document["to"], "to")
            result = pack(library, plain, packed, data)
            return {"nbytes": len(result)}, result


def _list(library: Library, problem: Problem) -> JsonObject:
    return {
        "version": library.version,
        "commit": library.commit,
        "implementations": [
            {
                "name": found.name,
                "weights": None if found.weights is None else memory_to_json(found.weights),
                "weights_bytes": found.weights_bytes,
                "scratchpad": found.scratchpad,
            }
            for found in list_implementations(library, problem)
        ],
    }


def _describe(library: Library, problem: Problem, implementation: str) -> JsonObject:
    """Create the primitive and call it once on zeros: how much scratchpad, which code, and when it is generated."""
    before = generated_ranges(read_mappings())
    start = time.perf_counter_ns()
    primitive = Primitive(library, problem, implementation)
    created = time.perf_counter_ns() - start
    code = new_code(before)
    zeros = ZeroBuffers(library, problem, primitive.scratchpad)
    primitive.execute(zeros.addresses)
    after = new_code(before)
    primitive.close()
    return {
        "scratchpad": primitive.scratchpad,
        "code": list(after),
        "late": code != after,
        "creation_ns": created,
        "version": library.version,
        "commit": library.commit,
    }


def pack(library: Library, plain: Memory, packed: Memory, data: bytes) -> bytes:
    """``data``, laid out as ``plain``, in the layout ``packed``; padding is zero."""
    problem = Problem(
        "reorder",
        "",
        (("src", plain), ("dst", packed)),
        (),
        (),
        (Argument("src", 0, "src"), Argument("dst", 1, "dst")),
    )
    implementation = list_implementations(library, problem)[0].name
    primitive = Primitive(library, problem, implementation)
    descriptor = create_memory_desc(library, packed)
    size = library.size(descriptor)
    library.call("memory_desc_destroy", descriptor)
    source = ctypes.create_string_buffer(data, max(1, len(data)))
    result, scratch = ctypes.create_string_buffer(max(1, size)), ctypes.create_string_buffer(primitive.scratchpad + 64)
    aligned = (ctypes.addressof(scratch) + 63) // 64 * 64
    primitive.execute((ctypes.addressof(source), ctypes.addressof(result), aligned))
    primitive.close()
    return result.raw[:size]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
