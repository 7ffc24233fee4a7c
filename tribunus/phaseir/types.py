"""Tensor types: dtype, shape, and quantization as part of the type.

Imported by: every room.  Imports: numerics, canon, dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tribunus.canon import Json, int_of, object_of, str_of
from tribunus.errors import SchemaError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Shape
from tribunus.records import dataclass

_TYPE_KEYS: Final = frozenset(("dtype", "shape"))
_QUANTIZATION: Final = frozenset(("quantization",))
_DTYPES: Final = {dtype.value: dtype for dtype in DType}


@dataclass(frozen=True, slots=True)
class Quantization:
    """How integers stand for real numbers: ``real = (q - zero_point) * scale``.

    axis: the scale varies along this axis; None: one scale for the tensor.  block: elements of ``axis`` that share a
    scale; None: one scale an index.  symmetric: the zero point is 0 everywhere.  Scales and zero points are operands.
    """

    axis: int | None
    block: int | None
    symmetric: bool


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype and shape of a value; ``quantization`` where its integers stand for real numbers."""

    dtype: DType
    shape: Shape
    quantization: Quantization | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        """Number of elements."""
        return dims.product(self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes in the plain row-major layout."""
        return dims.mul(self.elements, self.dtype.itemsize)

    @property
    def is_static(self) -> bool:
        """Whether every dim is a number."""
        return dims.is_static(self.shape)

    def at(self, bindings: dims.Bindings) -> TensorType:
        """The same type with every symbol replaced by its value."""
        return TensorType(self.dtype, dims.evaluate_shape(self.shape, bindings), self.quantization)

    def numbers(self) -> tuple[int, ...]:
        """The shape as integers.  Raises SchemaError if it is symbolic."""
        if not all(isinstance(d, int) for d in self.shape):
            raise SchemaError(f"{self} is symbolic")
        return tuple(d for d in self.shape if isinstance(d, int))

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        q = self.quantization
        if q is not None:
            parts = [] if q.axis is None else [f"axis={q.axis}"]
            parts += [] if q.block is None else [f"block={q.block}"]
            parts += ["symmetric"] if q.symmetric else []
            text += f" quantized({', '.join(parts)})"
        return text


def type_to_json(type_: TensorType, index: Mapping[str, int]) -> Json:
    """Document form; ``index`` maps symbol names to positions."""
    document: dict[str, Json] = {
        "dtype": type_.dtype.value,
        "shape": [dims.to_json(d, index) for d in type_.shape],
    }
    if (q := type_.quantization) is not None:
        document["quantization"] = {"axis": q.axis, "block": q.block, "symmetric": q.symmetric}
    return document


def type_from_json(value: Json, names: Sequence[str], where: str) -> TensorType:
    """Inverse of ``type_to_json``.  Raises SchemaError."""
    document = object_of(value, where, _TYPE_KEYS, _QUANTIZATION)
    shape = dims.shape_from_json(document["shape"], names, where)
    quantization = _quantization(document["quantization"], where) if "quantization" in document else None
    return TensorType(dtype_of(document["dtype"], where), shape, quantization)


def dtype_of(value: Json, where: str) -> DType:
    """``value`` as a DType.  Raises SchemaError."""
    text = str_of(value, where)
    found = _DTYPES.get(text)
    if found is None:
        raise SchemaError(f"{where}: unknown dtype {text[:20]!r}")
    return found


def _quantization(value: Json, where: str) -> Quantization | None:
    if value is None:
        return None
    document = object_of(value, where, frozenset(("axis", "block", "symmetric")))
    axis, block, symmetric = document["axis"], document["block"], document["symmetric"]
    if type(symmetric) is not bool:
        raise SchemaError(f"{where}: symmetric must be true or false")
    return Quantization(
        None if axis is None else int_of(axis, where), None if block is None else int_of(block, where, 1), symmetric
    )
