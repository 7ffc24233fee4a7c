"""How each PhaseIR op is written in ONNX (opset 18).

Imported by: export.  Knows protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from tribunus.errors import LoweringError
from tribunus.frontend.element_types import number_of
from tribunus.frontend.writing import AttributeArgument, Writer, tensor_proto
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Op

Export: TypeAlias = "Callable[[Writer, Op], None]"


def _plain(op_type: str) -> Export:
    def write(to: Writer, op: Op) -> None:
        to.node(op_type, to.inputs(op), to.outputs(op))

    return write


def _floats(op_type: str, names: Mapping[str, str]) -> Export:
    """An op whose attributes are binary32 numbers under other names."""

    def write(to: Writer, op: Op) -> None:
        found = {theirs: op.attributes.f32(ours) for ours, theirs in names.items()}
        to.node(op_type, to.inputs(op), to.outputs(op), found)

    return write


def _integers(op_type: str, names: Mapping[str, str]) -> Export:
    """An op whose attributes are integers under other names."""

    def write(to: Writer, op: Op) -> None:
        found = {theirs: op.attributes.integer(ours) for ours, theirs in names.items()}
        to.node(op_type, to.inputs(op), to.outputs(op), found)

    return write


def _cast(to: Writer, op: Op) -> None:
    to.node("Cast", to.inputs(op), to.outputs(op), {"to": number_of(op.attributes.dtype("to"))})


def _reduce(op_type: str) -> Export:
    def write(to: Writer, op: Op) -> None:
        inputs = [*to.inputs(op), to.dims(op.attributes.integers("axes"))]
        flags = {"keepdims": op.attributes.integer("keepdims"), "noop_with_empty_axes": 1}
        to.node(op_type, inputs, to.outputs(op), flags)

    return write


def _cumsum(to: Writer, op: Op) -> None:
    axis = to.constant(np.asarray(op.attributes.integer("axis"), np.int64), DType.I64)
    flags = {name: op.attributes.integer(name) for name in ("exclusive", "reverse")}
    to.node("CumSum", [*to.inputs(op), axis], to.outputs(op), flags)


def _window(op: Op) -> dict[str, AttributeArgument]:
    return {name: list(op.attributes.integers(name)) for name in ("strides", "pads", "dilations")}


def _conv(op_type: str) -> Export:
    def write(to: Writer, op: Op) -> None:
        attributes = {**_window(op), "group": op.attributes.integer("group")}
        if op_type == "ConvTranspose":
            attributes["output_padding"] = list(op.attributes.integers("output_padding"))
        to.node(op_type, to.inputs(op), to.outputs(op), attributes)

    return write


def _max_pool(to: Writer, op: Op) -> None:
    kernel = list(op.attributes.integers("kernel"))
    attributes = {**_window(op), "kernel_shape": kernel, "ceil_mode": op.attributes.integer("ceil_mode")}
    to.node("MaxPool", to.inputs(op), to.outputs(op), attributes)


def _average_pool(to: Writer, op: Op) -> None:
    if any(d != 1 for d in op.attributes.integers("dilations")):
        raise LoweringError("average_pool with dilations has no form in opset 18")
    attributes: dict[str, AttributeArgument] = {
        "strides": list(op.attributes.integers("strides")),
        "pads": list(op.attributes.integers("pads")),
        "kernel_shape": list(op.attributes.integers("kernel")),
        "ceil_mode": op.attributes.integer("ceil_mode"),
        "count_include_pad": op.attributes.integer("count_include_pad"),
    }
    to.node("AveragePool", to.inputs(op), to.outputs(op), attributes)


def _layer_norm(to: Writer, op: Op) -> None:
    inputs = to.inputs(op)
    axis, eps = op.attributes.integer("axis"), op.attributes.f32("eps")
    if len(inputs) < 2 or not inputs[1]:
        shape = to.type_of(op, 0).shape[axis:]
        one = to.scalar(1.0, to.type_of(op, 0).dtype)
        inputs = [inputs[0], to.node("Expand", [one, to.dims(shape)]), *inputs[2:]]
    to.node("LayerNormalization", inputs, to.outputs(op), {"axis": axis, "epsilon": eps})


def _rms_norm(to: Writer, op: Op) -> None:
    """x / sqrt(mean(x^2) + eps) * scale; opset 18 has no op for it."""
    x, type_ = to.name(op.inputs[0]), to.type_of(op, 0)
    axes = to.dims(tuple(range(op.attributes.integer("axis"), type_.rank)))
    mean = to.node("ReduceMean", [to.node("Mul", [x, x]), axes], attributes={"keepdims": 1})
    root = to.node("Sqrt", [to.node("Add", [mean, to.scalar(op.attributes.f32("eps"), type_.dtype)])])
    if len(op.inputs) == 1:
        to.node("Div", [x, root], to.outputs(op))
    else:
        to.node("Mul", [to.node("Div", [x, root]), to.name(op.inputs[1])], to.outputs(op))


def _group_norm(to: Writer, op: Op) -> None:
    """Instances are groups of one channel; larger groups are instances of a reshaped operand, scaled afterwards."""
    x, scale, bias = to.inputs(op)
    type_, groups, eps = to.type_of(op, 0), op.attributes.integer("groups"), op.attributes.f32("eps")
    if type_.shape[1] == groups:
        to.node("InstanceNormalization", [x, scale, bias], to.outputs(op), {"epsilon": eps})
        return
    grouped = to.node("Reshape", [x, to.constant(np.array([0, groups, -1], np.int64), DType.I64)])
    ones = to.constant(np.ones(groups, type_.dtype.numpy), type_.dtype)
    zeros = to.constant(np.zeros(groups, type_.dtype.numpy), type_.dtype)
    normal = to.node("InstanceNormalization", [grouped, ones, zeros], attributes={"epsilon": eps})
    back = to.node("Reshape", [normal, to.dims(type_.shape)])
    column = to.constant(np.array([-1] + [1] * (type_.rank - 2), np.int64), DType.I64)
    scaled = to.node("Mul", [back, to.node("Reshape", [scale, column])])
    to.node("Add", [scaled, to.node("Reshape", [bias, column])], to.outputs(op))


def _recurrent(op_type: str) -> Export:
    def write(to: Writer, op: Op) -> None:
        attributes: dict[str, AttributeArgument] = {
            "direction": op.attributes.text("direction"),
            "hidden_size": op.attributes.integer("hidden"),
        }
        if op_type == "GRU":
            attributes["linear_before_reset"] = op.attributes.integer("linear_before_reset")
        to.node(op_type, to.inputs(op), to.outputs(op), attributes)

    return write


def _reshape(to: Writer, op: Op) -> None:
    shape = to.dims(op.attributes.dims("shape"))
    to.node("Reshape", [*to.inputs(op), shape], to.outputs(op), {"allowzero": 1})


def _transpose(to: Writer, op: Op) -> None:
    to.node("Transpose", to.inputs(op), to.outputs(op), {"perm": list(op.attributes.integers("perm"))})


def _slice(to: Writer, op: Op) -> None:
    starts, sizes = op.attributes.dims("starts"), op.attributes.dims("sizes")
    steps = op.attributes.integers("steps")
    ends: list[Dim] = []
    for start, size, step in zip(starts, sizes, steps, strict=True):
        end = dims.add(start, dims.mul(size, step))
        # a descending slice may end before index 0, where Slice would count from the end: ends are 2^40 lower there
        ends.append(
            end if step > 0 else dims.sub(end, dims.mul(2**40, dims.maximum(0, dims.minimum(1, dims.sub(0, end)))))
        )
    inputs = [*to.inputs(op), to.dims(starts), to.dims(ends), to.dims(tuple(range(len(starts)))), to.dims(steps)]
    to.node("Slice", inputs, to.outputs(op))


def _pad(to: Writer, op: Op) -> None:
    pads = to.dims((*op.attributes.dims("before"), *op.attributes.dims("after")))
    inputs = to.inputs(op)
    to.node("Pad", [inputs[0], pads, *inputs[1:]], to.outputs(op), {"mode": op.attributes.text("mode")})


def _with_dims(op_type: str, name: str) -> Export:
    """An op whose second operand is a list of dims."""

    def write(to: Writer, op: Op) -> None:
        to.node(op_type, [*to.inputs(op), to.dims(op.attributes.dims(name))], to.outputs(op))

    return write


def _fill(to: Writer, op: Op) -> None:
    dtype, value = op.attributes.dtype("dtype"), op.attributes.get("value")
    number = value.value if isinstance(value, F32) else op.attributes.integer("value")
    stored = tensor_proto("", dtype, np.asarray([number], dtype.numpy))
    to.node("ConstantOfShape", [to.dims(op.attributes.dims("shape"))], to.outputs(op), {"value": stored})


def _iota(to: Writer, op: Op) -> None:
    shape, axis = op.attributes.dims("shape"), op.attributes.integer("axis")
    start, step, dtype = op.attributes.integer("start"), op.attributes.integer("step"), op.attributes.dtype("dtype")
    empty = to.dims(())
    count = to.node("Reshape", [to.dim(shape[axis]), empty])
    i64 = DType.I64
    line = to.node("Range", [to.scalar(0, i64), count, to.scalar(1, i64)])
    line = to.node("Add", [to.node("Mul", [line, to.scalar(step, i64)]), to.scalar(start, i64)])
    column = [1] * len(shape)
    column[axis] = -1
    line = to.node("Reshape", [line, to.dims(tuple(column))])
    full = to.node("Expand", [line, to.dims(shape)])
    to.node("Cast", [full], to.outputs(op), {"to": number_of(dtype)})


def _extents(to: Writer, op: Op) -> None:
    flat = to.dims(op.attributes.dims("values"))
    shaped = to.node("Reshape", [flat, to.dims(op.attributes.dims("shape"))], attributes={"allowzero": 1})
    to.node("Cast", [shaped], to.outputs(op), {"to": number_of(op.attributes.dtype("dtype"))})


def _scatter_elements(to: Writer, op: Op) -> None:
    attributes: dict[str, AttributeArgument] = {
        "axis": op.attributes.integer("axis"),
        "reduction": op.attributes.text("reduction"),
    }
    to.node("ScatterElements", to.inputs(op), to.outputs(op), attributes)


def _scatter_nd(to: Writer, op: Op) -> None:
    to.node("ScatterND", to.inputs(op), to.outputs(op), {"reduction": op.attributes.text("reduction")})


def _one_hot(to: Writer, op: Op) -> None:
    indices, values = to.inputs(op)
    depth = to.dims(op.attributes.dims("depth"))
    to.node("OneHot", [indices, depth, values], to.outputs(op), {"axis": op.attributes.integer("axis")})


def _resize(to: Writer, op: Op) -> None:
    a = op.attributes
    attributes: dict[str, AttributeArgument] = {
        "mode": a.text("mode"),
        "coordinate_transformation_mode": a.text("coordinate"),
        "nearest_mode": a.text("nearest"),
        "cubic_coeff_a": a.f32("cubic_a"),
        "exclude_outside": a.integer("exclude_outside"),
    }
    scales = np.array(a.f32s("scales"), np.float32)
    sizes = a.dims("sizes")
    extents = to.type_of(op, 0).shape
    # scales define the coordinates, so they are written wherever they give the sizes
    if all(_scaled(e, float(s)) == size for e, s, size in zip(extents, scales, sizes, strict=True)):
        inputs = [*to.inputs(op), "", to.constant(scales, DType.F32)]
    else:
        inputs = [*to.inputs(op), "", "", to.dims(sizes)]
    to.node("Resize", inputs, to.outputs(op), attributes)


def _scaled(extent: Dim, scale: float) -> Dim:
    if isinstance(extent, int):
        return int(np.floor(np.float32(extent) * np.float32(scale)))
    return dims.mul(extent, int(scale)) if scale == int(scale) else -1


def _top_k(to: Writer, op: Op) -> None:
    attributes = {name: op.attributes.integer(name) for name in ("axis", "largest", "sorted")}
    to.node("TopK", [*to.inputs(op), to.dims(op.attributes.dims("k"))], to.outputs(op), attributes)


def _quantize(op_type: str) -> Export:
    def write(to: Writer, op: Op) -> None:
        inputs, axis = to.inputs(op), op.attributes.integer("axis")
        if op_type == "QuantizeLinear" and (len(inputs) < 3 or not inputs[2]):
            dtype = op.attributes.dtype("to")
            scale = to.type_of(op, 1)
            zero = to.constant(np.zeros([d for d in scale.shape if isinstance(d, int)], dtype.numpy), dtype)
            inputs = [*inputs[:2], zero]
        to.node(op_type, inputs, to.outputs(op), {"axis": axis} if axis >= 0 else {})

    return write


_ARG: Final = MappingProxyType({"axis": "axis", "keepdims": "keepdims", "select_last": "select_last_index"})
_AXIS: Final = MappingProxyType({"axis": "axis"})

EXPORTS: Final[Mapping[str, Export]] = MappingProxyType(
    {
        **{
            kind: _plain(op_type)
            for kind, op_type in {
                "abs": "Abs",
                "neg": "Neg",
                "sign": "Sign",
                "relu": "Relu",
                "floor": "Floor",
                "ceil": "Ceil",
                "round": "Round",
                "sqrt": "Sqrt",
                "reciprocal": "Reciprocal",
                "exp": "Exp",
                "log": "Log",
                "tanh": "Tanh",
                "sigmoid": "Sigmoid",
                "erf": "Erf",
                "sin": "Sin",
                "cos": "Cos",
                "add": "Add",
                "sub": "Sub",
                "mul": "Mul",
                "div": "Div",
                "pow": "Pow",
                "minimum": "Min",
                "maximum": "Max",
                "equal": "Equal",
                "less": "Less",
                "less_equal": "LessOrEqual",
                "greater": "Greater",
                "greater_equal": "GreaterOrEqual",
                "and": "And",
                "or": "Or",
                "xor": "Xor",
                "not": "Not",
                "where": "Where",
                "is_nan": "IsNaN",
                "copy": "Identity",
                "matmul": "MatMul",
                "matmul_integer": "MatMulInteger",
                "dynamic_quantize_linear": "DynamicQuantizeLinear",
            }.items()
        },
        **{
            kind: _reduce(op_type)
            for kind, op_type in {
                "reduce_sum": "ReduceSum",
                "reduce_mean": "ReduceMean",
                "reduce_prod": "ReduceProd",
                "reduce_l1": "ReduceL1",
                "reduce_l2": "ReduceL2",
                "reduce_sum_square": "ReduceSumSquare",
                "reduce_max": "ReduceMax",
                "reduce_min": "ReduceMin",
            }.items()
        },
        "leaky_relu": _floats("LeakyRelu", MappingProxyType({"alpha": "alpha"})),
        "hard_sigmoid": _floats("HardSigmoid", MappingProxyType({"alpha": "alpha", "beta": "beta"})),
        "batch_norm": _floats("BatchNormalization", MappingProxyType({"eps": "epsilon"})),
        "cast": _cast,
        "arg_max": _integers("ArgMax", _ARG),
        "arg_min": _integers("ArgMin", _ARG),
        "softmax": _integers("Softmax", _AXIS),
        "log_softmax": _integers("LogSoftmax", _AXIS),
        "concat": _integers("Concat", _AXIS),
        "gather": _integers("Gather", _AXIS),
        "gather_elements": _integers("GatherElements", _AXIS),
        "gather_nd": _integers("GatherND", MappingProxyType({"batch_dims": "batch_dims"})),
        "cumsum": _cumsum,
        "conv": _conv("Conv"),
        "conv_integer": _conv("ConvInteger"),
        "conv_transpose": _conv("ConvTranspose"),
        "max_pool": _max_pool,
        "average_pool": _average_pool,
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "group_norm": _group_norm,
        "lstm": _recurrent("LSTM"),
        "gru": _recurrent("GRU"),
        "reshape": _reshape,
        "transpose": _transpose,
        "slice": _slice,
        "pad": _pad,
        "expand": _with_dims("Expand", "shape"),
        "tile": _with_dims("Tile", "repeats"),
        "fill": _fill,
        "iota": _iota,
        "extents": _extents,
        "scatter_elements": _scatter_elements,
        "scatter_nd": _scatter_nd,
        "one_hot": _one_hot,
        "resize": _resize,
        "top_k": _top_k,
        "quantize_linear": _quantize("QuantizeLinear"),
        "dequantize_linear": _quantize("DequantizeLinear"),
    }
)
