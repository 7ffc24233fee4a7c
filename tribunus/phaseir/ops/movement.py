"""Data movement, indexing, generation, resizing.

Imported by: the op table.  All of it is bit-exact but ``resize``.  Negative indices count from the end.
"""

from __future__ import annotations

from typing import Final

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Dim, DimScope
from tribunus.phaseir.ops.spec import (
    Contract,
    Family,
    OpSpec,
    Types,
    broadcast,
    operand,
    per_element,
    require,
    require_equal,
)
from tribunus.phaseir.types import TensorType


def _infer_copy(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return (operand(types, 0, "copy"),)


def _infer_reshape(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, shape = operand(types, 0, "reshape"), attributes.dims("shape")
    require_equal("reshape", "element count", scope, x.elements, dims.product(shape))
    return (TensorType(x.dtype, shape),)


def _infer_transpose(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, perm = operand(types, 0, "transpose"), attributes.integers("perm")
    require("transpose", sorted(perm) == list(range(x.rank)), f"perm {perm} of rank {x.rank}")
    return (TensorType(x.dtype, tuple(x.shape[p] for p in perm), None),)


def _infer_slice(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "slice")
    starts, sizes, steps = attributes.dims("starts"), attributes.dims("sizes"), attributes.integers("steps")
    require("slice", len(starts) == len(sizes) == len(steps) == x.rank, "one entry an axis was expected")
    require("slice", all(step != 0 for step in steps), "steps must not be 0")
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        last = dims.add(start, dims.mul(step, dims.sub(size, 1)))
        inside = scope.at_least(start, 0) and scope.at_least(size, 0)
        high, low = (last, start) if step > 0 else (start, last)
        inside = inside and (
            scope.bounds(size)[1] == 0 or scope.at_least(dims.sub(dims.sub(x.shape[axis], 1), high), 0)
        )
        inside = inside and (scope.bounds(size)[1] == 0 or scope.at_least(low, 0))
        require(
            "slice", inside, f"axis {axis}: start {start}, size {size}, step {step} may leave extent {x.shape[axis]}"
        )
    return (TensorType(x.dtype, sizes),)


def _infer_concat(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    first, axis = operand(types, 0, "concat"), attributes.integer("axis")
    require("concat", 0 <= axis < first.rank, f"axis {axis} of rank {first.rank}")
    extent: Dim = 0
    for i in range(len(types)):
        t = operand(types, i, "concat")
        require("concat", t.dtype is first.dtype and t.rank == first.rank, f"operand {i} differs in dtype or rank")
        for a in range(first.rank):
            if a != axis:
                require_equal("concat", f"axis {a} of operand {i}", scope, t.shape[a], first.shape[a])
        extent = dims.add(extent, t.shape[axis])
    return (TensorType(first.dtype, (*first.shape[:axis], extent, *first.shape[axis + 1 :])),)


def _infer_pad(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, before, after = operand(types, 0, "pad"), attributes.dims("before"), attributes.dims("after")
    require("pad", attributes.text("mode") in ("constant", "reflect", "edge", "wrap"), "unknown mode")
    require("pad", len(before) == len(after) == x.rank, "one entry an axis was expected")
    shape = tuple(dims.add(d, dims.add(b, a)) for d, b, a in zip(x.shape, before, after, strict=True))
    return (TensorType(x.dtype, shape),)


def _infer_expand(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, shape = operand(types, 0, "expand"), attributes.dims("shape")
    found = broadcast("expand", scope, x.shape, shape)
    require("expand", len(found) == len(shape), f"{x} does not expand to rank {len(shape)}")
    return (TensorType(x.dtype, found),)


def _infer_tile(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, repeats = operand(types, 0, "tile"), attributes.dims("repeats")
    require("tile", len(repeats) == x.rank, "one repeat an axis was expected")
    return (TensorType(x.dtype, tuple(dims.mul(d, r) for d, r in zip(x.shape, repeats, strict=True))),)


def _infer_fill(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return (TensorType(attributes.dtype("dtype"), attributes.dims("shape")),)


def _infer_iota(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    return (TensorType(attributes.dtype("dtype"), attributes.dims("shape")),)


def _infer_extents(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    values, shape = attributes.dims("values"), attributes.integers("shape")
    require_equal("extents", "element count", scope, len(values), dims.product(shape))
    return (TensorType(attributes.dtype("dtype"), shape),)


def _indices(kind: str, types: Types, position: int) -> TensorType:
    found = operand(types, position, kind)
    require(kind, found.dtype in (DType.I64, DType.I32), "indices must be i64 or i32")
    return found


def _infer_gather(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, indices, axis = operand(types, 0, "gather"), _indices("gather", types, 1), attributes.integer("axis")
    require("gather", 0 <= axis < x.rank, f"axis {axis} of rank {x.rank}")
    return (TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _infer_gather_elements(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, indices = operand(types, 0, "gather_elements"), _indices("gather_elements", types, 1)
    require("gather_elements", indices.rank == x.rank, "indices and data differ in rank")
    return (TensorType(x.dtype, indices.shape),)


def _infer_gather_nd(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, indices, batch = (
        operand(types, 0, "gather_nd"),
        _indices("gather_nd", types, 1),
        attributes.integer("batch_dims"),
    )
    depth = indices.shape[-1]
    require("gather_nd", isinstance(depth, int), "the last extent of indices must be a number")
    taken = batch + (depth if isinstance(depth, int) else 0)
    return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[taken:])),)


def _infer_scatter_elements(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    kind = "scatter_elements"
    x, indices, updates = operand(types, 0, kind), _indices(kind, types, 1), operand(types, 2, kind)
    require(kind, indices.rank == x.rank == updates.rank, "operands differ in rank")
    require(kind, attributes.text("reduction") in ("none", "add", "mul", "min", "max"), "unknown reduction")
    return (TensorType(x.dtype, x.shape),)


def _infer_scatter_nd(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "scatter_nd")
    _indices("scatter_nd", types, 1)
    return (TensorType(x.dtype, x.shape),)


def _infer_one_hot(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    indices, values = operand(types, 0, "one_hot"), operand(types, 1, "one_hot")
    axis, depth = attributes.integer("axis"), attributes.dims("depth")
    return (TensorType(values.dtype, (*indices.shape[:axis], *depth, *indices.shape[axis:])),)


def _infer_resize(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, sizes = operand(types, 0, "resize"), attributes.dims("sizes")
    require("resize", len(sizes) == x.rank, "one size an axis was expected")
    require("resize", attributes.text("mode") in ("nearest", "linear", "cubic"), "unknown mode")
    return (TensorType(x.dtype, sizes),)


def _infer_top_k(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x, axis = operand(types, 0, "top_k"), attributes.integer("axis")
    shape = (*x.shape[:axis], *attributes.dims("k"), *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType(DType.I64, shape)


_M: Final = Family.MOVEMENT
_X: Final = Family.INDEX
_E: Final = Contract.EXACT
_ONE: Final = per_element(1)

SPECS: Final[tuple[OpSpec, ...]] = (
    # the same values, in whatever layout each side has: also the conversion between layouts
    OpSpec("copy", _M, (1, 1), (), _E, _infer_copy, _ONE, "ONNX Identity"),
    OpSpec("reshape", _M, (1, 1), ("shape",), _E, _infer_reshape, _ONE, "ONNX Reshape, Squeeze, Unsqueeze, Flatten"),
    OpSpec("transpose", _M, (1, 1), ("perm",), _E, _infer_transpose, _ONE, "ONNX Transpose"),
    # starts and sizes per axis, already clamped; steps may be negative
    OpSpec("slice", _M, (1, 1), ("starts", "sizes", "steps"), _E, _infer_slice, _ONE, "ONNX Slice, Split"),
    OpSpec("concat", _M, (1, 1 << 16), ("axis",), _E, _infer_concat, _ONE, "ONNX Concat"),
    # operands: x, value? (a scalar; 0 where absent); negative entries crop
    OpSpec("pad", _M, (1, 2), ("mode", "before", "after"), _E, _infer_pad, _ONE, "ONNX Pad"),
    OpSpec("expand", _M, (1, 1), ("shape",), _E, _infer_expand, _ONE, "ONNX Expand"),
    OpSpec("tile", _M, (1, 1), ("repeats",), _E, _infer_tile, _ONE, "ONNX Tile"),
    # value: binary32 number, or an integer
    OpSpec("fill", _M, (0, 0), ("dtype", "shape", "value"), _E, _infer_fill, _ONE, "ONNX ConstantOfShape"),
    # start + step * index along ``axis``; start and step are integers
    OpSpec("iota", _M, (0, 0), ("dtype", "shape", "axis", "start", "step"), _E, _infer_iota, _ONE, "ONNX Range"),
    # an integer tensor whose elements (row-major) are dim expressions: what is left of Shape where it is used as data
    OpSpec("extents", _M, (0, 0), ("dtype", "shape", "values"), _E, _infer_extents, _ONE, "ONNX Shape, Size"),
    OpSpec("gather", _X, (2, 2), ("axis",), _E, _infer_gather, _ONE, "ONNX Gather"),
    OpSpec("gather_elements", _X, (2, 2), ("axis",), _E, _infer_gather_elements, _ONE, "ONNX GatherElements"),
    OpSpec("gather_nd", _X, (2, 2), ("batch_dims",), _E, _infer_gather_nd, _ONE, "ONNX GatherND"),
    OpSpec(
        "scatter_elements",
        _X,
        (3, 3),
        ("axis", "reduction"),
        _E,
        _infer_scatter_elements,
        _ONE,
        "ONNX ScatterElements",
    ),
    OpSpec("scatter_nd", _X, (3, 3), ("reduction",), _E, _infer_scatter_nd, _ONE, "ONNX ScatterND"),
    # operands: indices, values (off, on)
    OpSpec("one_hot", _X, (2, 2), ("axis", "depth"), _E, _infer_one_hot, _ONE, "ONNX OneHot"),
    # coordinate: half_pixel, asymmetric, align_corners, pytorch_half_pixel; nearest: floor, ceil, round_prefer_floor,
    # round_prefer_ceil; scales: one binary32 number an axis, as the coordinates use it
    OpSpec(
        "resize",
        Family.RESIZE,
        (1, 1),
        ("mode", "coordinate", "nearest", "sizes", "scales", "cubic_a", "exclude_outside"),
        Contract.RUNNING,
        _infer_resize,
        per_element(8),
        "ONNX Resize, Upsample",
    ),
    # k: a tuple of one dim; results: values, indices
    OpSpec(
        "top_k",
        Family.DISCRETE,
        (1, 1),
        ("axis", "k", "largest", "sorted"),
        Contract.DISCRETE,
        _infer_top_k,
        _ONE,
        "ONNX TopK",
    ),
)
