"""Rules: values that come from nowhere or from shapes.

Imported by: the rule table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from tribunus.errors import LoweringError
from tribunus.frontend import limits
from tribunus.frontend.element_types import dtype_of
from tribunus.frontend.graph import Tensor
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site, f32
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import AttributeValue
from tribunus.phaseir.dims import Dim, Shape
from tribunus.phaseir.program import Array
from tribunus.phaseir.types import TensorType


def _constant(to: Lowering, site: Site) -> Outputs:
    stored = site.tensor("value")
    if stored is not None:
        return (to.stored(stored),)
    for name, dtype in (
        ("value_float", DType.F32),
        ("value_floats", DType.F32),
        ("value_int", DType.I64),
        ("value_ints", DType.I64),
    ):
        value = site.value(name)
        if isinstance(value, int | float | tuple):
            return (to.constant(np.array(value, dtype.numpy), dtype),)
    raise LoweringError("only tensors and numbers are supported as values")


def _shape(to: Lowering, site: Site) -> Outputs:
    shape = site.x().shape
    rank = len(shape)
    start, end = site.integer("start", 0), site.integer("end", rank)
    start, end = (max(0, min(rank, p + rank if p < 0 else p)) for p in (start, end))
    part = shape[start : max(start, end)]
    return (to.extents(part, (len(part),)),)


def _size(to: Lowering, site: Site) -> Outputs:
    return (to.extents((site.x().type.elements,), ()),)


def _elements(shape: Shape) -> int | None:
    numbers = [d for d in shape if isinstance(d, int)]
    return math.prod(numbers) if len(numbers) == len(shape) else None


def filled(to: Lowering, shape: Shape, value: Array, dtype: DType) -> Operand:
    """A tensor of one value."""
    to.require_size(TensorType(dtype, shape))
    count = _elements(shape)
    contents = None
    if count is not None and count <= limits.FOLD_ELEMENTS:
        contents = np.full([d for d in shape if isinstance(d, int)], value, dtype.numpy)
        if not dtype.is_float:
            return to.constant(contents, dtype)
    number = value.astype(np.float64) if dtype.is_float and value.dtype.kind == "f" else None
    attribute: AttributeValue
    if number is not None and (math.isnan(float(number)) or float(np.float32(number)) == float(number)):
        attribute = f32(float(number))
    elif not dtype.is_float and abs(int(value.astype(object))) < 2**53:
        attribute = int(value.astype(object))
    else:
        return to.expand(to.constant(value, dtype), shape)
    return to.generate("fill", {"dtype": dtype.value, "shape": shape, "value": attribute}, contents)


def _constant_of_shape(to: Lowering, site: Site) -> Outputs:
    shape = to.dims_of(site.x(), "the shape")
    stored = site.tensor("value") or Tensor(DType.F32, np.zeros(1, np.float32))
    return (filled(to, shape, stored.array.reshape(-1)[0], stored.dtype),)


def _range(to: Lowering, site: Site) -> Outputs:
    start, limit, step = (site.x(i) for i in range(3))
    dtype = start.dtype
    if dtype.is_float:
        return (_float_range(to, start, limit, step),)
    first, last, stride = (to.dims_of(o, name)[0] for o, name in ((start, "start"), (limit, "limit"), (step, "delta")))
    if not isinstance(stride, int) or stride == 0:
        raise LoweringError("delta must be a number other than 0")
    span = dims.sub(last, first) if stride > 0 else dims.sub(first, last)
    count = dims.ceildiv(to.larger(span, 0), abs(stride))
    origin = first if isinstance(first, int) else 0
    contents = None
    if isinstance(count, int) and count <= limits.FOLD_ELEMENTS:
        contents = np.asarray(origin + stride * np.arange(count), dtype.numpy)
    to.require_size(TensorType(dtype, (count,)))
    attributes: dict[str, AttributeValue] = {
        "dtype": dtype.value,
        "shape": (count,),
        "axis": 0,
        "start": origin,
        "step": stride,
    }
    made = to.generate("iota", attributes, contents)
    return (made,) if isinstance(first, int) else (to.one("add", made, to.extents((first,), (), dtype)),)


def _float_range(to: Lowering, start: Operand, limit: Operand, step: Operand) -> Operand:
    first, last, stride = (to.array_of(o, "a floating point range").reshape(()) for o in (start, limit, step))
    numbers = [float(v.astype(np.float64)) for v in (first, last, stride)]
    if not all(map(math.isfinite, numbers)) or numbers[2] == 0.0:
        raise LoweringError("start, limit and delta must be finite, delta not 0")
    count = max(0, math.ceil((numbers[1] - numbers[0]) / numbers[2]))
    if count * start.dtype.itemsize > limits.GENERATED_BYTES:
        raise LoweringError(f"a range of {count} elements is larger than {limits.GENERATED_BYTES} bytes")
    steps = np.arange(count).astype(first.dtype)
    values = np.asarray(np.add(first, np.multiply(steps, stride)), first.dtype)
    return to.constant(values, start.dtype)


def _one_hot(to: Lowering, site: Site) -> Outputs:
    indices, values = site.x(0), site.x(2)
    depth = to.dims_of(to.cast(site.x(1), DType.I64), "depth")
    if indices.dtype not in (DType.I64, DType.I32):
        indices = to.cast(indices, DType.I64)
    axis = to.axis(site.integer("axis", -1), indices.rank + 1)
    return to.emit("one_hot", [indices, values], {"axis": axis, "depth": depth[:1]})


def _eye_like(to: Lowering, site: Site) -> Outputs:
    x, offset = site.x(), site.integer("k", 0)
    dtype = dtype_of(site.integer("dtype", 0), "the result") if site.has("dtype") else x.dtype
    rows, columns = _grid(to, x.shape)
    on = to.one("equal", to.one("sub", columns, rows), to.scalar(offset, DType.I64))
    return (to.cast(on, dtype),)


def _trilu(to: Lowering, site: Site) -> Outputs:
    x, at = site.x(), site.optional(1)
    offset = 0 if at is None else to.ints_of(at, "k")[0]
    rows, columns = _grid(to, x.shape[-2:])
    kind = "greater_equal" if site.integer("upper", 1) else "less_equal"
    keep = to.one(kind, to.one("sub", columns, rows), to.scalar(offset, DType.I64))
    return to.emit("where", [keep, x, to.scalar(0, x.dtype)])


def _grid(to: Lowering, shape: Shape) -> tuple[Operand, Operand]:
    """Row numbers as a column and column numbers as a row."""
    if len(shape) != 2:
        raise LoweringError("a matrix was expected")

    def numbers(extent: Dim, result: Shape) -> Operand:
        contents = (
            np.arange(extent).reshape([d for d in result if isinstance(d, int)]) if isinstance(extent, int) else None
        )
        if contents is not None and contents.size > limits.FOLD_ELEMENTS:
            contents = None
        axis = 0 if result[0] == extent else 1
        return to.generate("iota", {"dtype": "i64", "shape": result, "axis": axis, "start": 0, "step": 1}, contents)

    return numbers(shape[0], (shape[0], 1)), numbers(shape[1], (1, shape[1]))


def _non_zero(to: Lowering, site: Site) -> Outputs:
    found = site.x().numbers
    if found is None or found.size > limits.FOLD_ELEMENTS:
        raise LoweringError("the shape of its result depends on data")
    return (to.constant(np.stack(np.nonzero(found)).astype(np.int64).reshape(found.ndim, -1), DType.I64),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Constant": _constant,
        "Shape": _shape,
        "Size": _size,
        "ConstantOfShape": _constant_of_shape,
        "Range": _range,
        "OneHot": _one_hot,
        "EyeLike": _eye_like,
        "Trilu": _trilu,
        "NonZero": _non_zero,
    }
)
