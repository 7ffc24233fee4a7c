"""Inputs and goldens of a vector as bytes, and back: what lies on disk between two uses.

Imported by: admission, tests.  Imports: running, canon, numerics.

A canonical JSON header names the outputs and where each array lies; the arrays follow, aligned.  A budget of zeros and
a mask that is the same everywhere are only named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.canon import (
    Json,
    JsonObject,
    bool_of,
    decode,
    encode,
    f64_to_text,
    int_of,
    list_of,
    member_of,
    object_of,
    row_of,
    str_of,
    text_to_float,
)
from tribunus.errors import EncodingError, StructureError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.numerics.rounding import encode as stored
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.ops.call import Array
from tribunus.oracle.running import Choice, OutputGolden
from tribunus.oracle.value import Exactness

_ALIGN: Final = 64
_HEADER_LIMIT: Final = 1 << 24
_DOCUMENT: Final = frozenset(["inputs", "outputs", "arrays"])
_NUMBERS: Final = ("value", "budget", "exact", "low", "high", "choice")
_OUTPUT: Final = frozenset([*_NUMBERS, "id", "dtype", "k", "exactness", "linear", "policy", "family", "label"])
_CHOICE: Final = frozenset(["kind", "values", "errors", "axis", "keepdims"])


@dataclass(frozen=True, slots=True)
class Worked:
    """A vector worked out.  inputs: arrays by value id, as stored."""

    inputs: Mapping[int, Array]
    goldens: tuple[OutputGolden, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        held = [a.nbytes for a in self.inputs.values()]
        for g in self.goldens:
            held += [g.value.nbytes, g.presented.nbytes, g.budget.nbytes, g.exact.nbytes]
            held += [a.nbytes for a in (g.low, g.high) if a is not None]
            held += [] if g.choice is None else [g.choice.values.nbytes, g.choice.errors.nbytes]
        return sum(held)


@dataclass(slots=True)
class _Writer:
    rows: list[Json] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    size: int = 0

    def add(self, array: Array) -> int:
        """Number of an array in the table."""
        self.rows.append([array.dtype.str, list(array.shape), self.size])
        self.arrays.append(np.ascontiguousarray(array))
        self.size += -(-array.nbytes // _ALIGN) * _ALIGN
        return len(self.rows) - 1

    def maybe(self, array: Array | None) -> Json:
        return None if array is None else self.add(array)


def freeze(worked: Worked) -> list[bytes | memoryview]:
    """The parts of a file, in order."""
    writer = _Writer()
    inputs: list[Json] = [[value, writer.add(array)] for value, array in sorted(worked.inputs.items())]
    outputs: list[Json] = [_golden_document(golden, writer) for golden in worked.goldens]
    header = encode({"inputs": inputs, "outputs": outputs, "arrays": writer.rows}) + b"\n"
    parts: list[bytes | memoryview] = [header, bytes(-len(header) % _ALIGN)]
    for array in writer.arrays:
        parts += [array.reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGN)]
    return parts


def _golden_document(golden: OutputGolden, writer: _Writer) -> JsonObject:
    choice: Json = None
    if golden.choice is not None:
        c = golden.choice
        values, errors = writer.add(c.values), writer.add(c.errors)
        choice = {"kind": c.kind, "values": values, "errors": errors, "axis": c.axis, "keepdims": c.keepdims}
    exact: Json = bool(golden.exact.all())
    if not exact and golden.exact.any():
        exact = writer.add(golden.exact)
    return {
        "id": golden.id,
        "dtype": golden.dtype.value,
        "value": writer.add(golden.value),
        "budget": writer.maybe(golden.budget if golden.budget.any() else None),
        "k": f64_to_text(golden.k),
        "exactness": golden.exactness.value,
        "exact": exact,
        "low": writer.maybe(golden.low),
        "high": writer.maybe(golden.high),
        "choice": choice,
        "linear": golden.is_linear,
        "policy": golden.policy.value,
        "family": golden.family.value,
        "label": golden.label,
    }


def thaw(data: npt.NDArray[np.uint8]) -> Worked:
    """The vector in a file's bytes; arrays cannot be written to.

    Raises EncodingError or StructureError for anything else than what ``freeze`` wrote.
    """
    end = _header_end(data)
    document = object_of(decode(data[:end].tobytes(), limit=_HEADER_LIMIT), "golden", _DOCUMENT)
    start = -(-(end + 1) // _ALIGN) * _ALIGN  # the newline counts
    arrays = [_array(data, start, row) for row in list_of(document["arrays"], "golden")]
    pairs = [row_of(row, "golden", "value", "array") for row in list_of(document["inputs"], "golden")]
    inputs = {int_of(pair[0], "golden"): _at(arrays, pair[1]) for pair in pairs}
    return Worked(inputs, tuple(_golden(row, arrays) for row in list_of(document["outputs"], "golden")))


def _header_end(data: npt.NDArray[np.uint8]) -> int:
    step = 1 << 16
    for start in range(0, min(len(data), _HEADER_LIMIT), step):
        found = np.flatnonzero(data[start : start + step] == ord("\n"))
        if found.size:
            return start + int(found[0])
    raise EncodingError("a golden has no header")


def _array(data: npt.NDArray[np.uint8], start: int, row: Json) -> Array:
    name, extents, offset = row_of(row, "golden", "dtype", "shape", "offset")
    shape = tuple(int_of(extent, "golden") for extent in list_of(extents, "golden"))
    dtype, begin = np.dtype(str_of(name, "golden")), start + int_of(offset, "golden")
    end = begin + math.prod(shape) * dtype.itemsize
    if end > len(data) or dtype.hasobject:
        raise StructureError("a golden is shorter than its header says")
    array = data[begin:end].view(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _at(arrays: Sequence[Array], place: Json) -> Array:
    index = int_of(place, "golden", 0, len(arrays) - 1)
    return arrays[index]


def _maybe(arrays: Sequence[Array], place: Json) -> Array | None:
    return None if place is None else _at(arrays, place)


def _golden(row: Json, arrays: Sequence[Array]) -> OutputGolden:
    found = object_of(row, "golden", _OUTPUT)
    value, dtype = _at(arrays, found["value"]), member_of(DType, found["dtype"], "golden")
    budget, exact = _maybe(arrays, found["budget"]), found["exact"]
    mask = np.full(value.shape, exact) if isinstance(exact, bool) else _at(arrays, exact).astype(np.bool_)
    choice = None
    if found["choice"] is not None:
        c = object_of(found["choice"], "golden", _CHOICE)
        choice = Choice(
            str_of(c["kind"], "golden"),
            np.asarray(_at(arrays, c["values"]), dtype=np.float64),
            np.asarray(_at(arrays, c["errors"]), dtype=np.float64),
            int_of(c["axis"], "golden", -64),
            bool_of(c["keepdims"], "golden"),
        )
    return OutputGolden(
        id=int_of(found["id"], "golden"),
        dtype=dtype,
        value=value,
        presented=stored(value, dtype),
        budget=np.zeros(value.shape) if budget is None else np.asarray(budget, dtype=np.float64),
        k=text_to_float(str_of(found["k"], "golden")),
        exactness=member_of(Exactness, found["exactness"], "golden"),
        exact=mask,
        low=_maybe(arrays, found["low"]),
        high=_maybe(arrays, found["high"]),
        choice=choice,
        is_linear=bool_of(found["linear"], "golden"),
        policy=member_of(ComputePolicy, found["policy"], "golden"),
        family=member_of(VectorFamily, found["family"], "golden"),
        label=str_of(found["label"], "golden"),
    )
