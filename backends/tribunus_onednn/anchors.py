"""The ops that a oneDNN primitive can begin with: one function a family.

Imported by: backend.  Imports: match, epilogue, phaseir.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from tribunus.candidates.model import Signature
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Op, Role
from tribunus_onednn.epilogue import Combine, Unmatched, read_steps
from tribunus_onednn.library import USE_GLOBAL_STATS, USE_SCALE, USE_SHIFT
from tribunus_onednn.match import (
    Arrangement,
    Dims,
    Matched,
    Placement,
    ProblemBuilder,
    dense_strides,
    memory_in,
    plain_memory,
    why_not,
)
from tribunus_onednn.problem import Memory

Found: TypeAlias = "Matched | Unmatched"
POLICIES: Final = frozenset((ComputePolicy.FP32, ComputePolicy.FP32_STRICT))


def match_signature(signature: Signature, arrangement: Arrangement) -> Found:
    """The problem of a signature with its activations in ``arrangement``."""
    if signature.policy not in POLICIES:
        return Unmatched(f"it computes in fp32, not in {signature.policy}")
    if reason := why_not(signature):
        return Unmatched(reason)
    ops = signature.phase.ops
    if not ops:
        return Unmatched("the group is empty")
    if arrangement is Arrangement.CHANNELS_LAST and not _knows_channels(ops[0].kind):
        return Unmatched(f"{ops[0].kind} is served in plain layouts only")
    builder = ProblemBuilder(signature, arrangement)
    if signature.label == "softmax" and ops[0].kind == "reduce_max":
        return _spelt_softmax(builder)
    if signature.label == "layer_norm" and ops[0].kind == "reduce_mean":
        return _spelt_layer_norm(builder)
    family = _FAMILIES.get(ops[0].kind)
    if family is not None:
        return family(builder, ops[0])
    return _elementwise(builder)


def arrangements(signature: Signature) -> tuple[Arrangement, ...]:
    """Border layouts worth trying, the better first."""
    kinds = {op.kind for op in signature.phase.ops}
    shapes = [signature.type_of(v).shape for v in (*signature.inputs, *signature.outputs)]
    ranks = {len(shape) for shape in shapes if len(shape) >= 3}
    first = signature.phase.ops[0].kind if signature.phase.ops else ""
    if len(ranks) != 1 or not _knows_channels(first):
        return (Arrangement.PLAIN,)
    if kinds & _WINDOWS:
        return (Arrangement.CHANNELS_LAST, Arrangement.PLAIN)
    return (Arrangement.PLAIN, Arrangement.CHANNELS_LAST)


def _knows_channels(kind: str) -> bool:
    """Whether a group that begins with this op may have its activations in channels-last."""
    return kind in _WINDOWS or kind == "batch_norm" or kind not in _FAMILIES


_WINDOWS: Final = frozenset(("conv", "conv_transpose", "max_pool", "average_pool", "resize"))


def _finish(
    builder: ProblemBuilder,
    op: Op,
    placed: Placement,
    bias: Memory | None,
    made: Callable[[], Matched],
) -> Found:
    """Follow the anchor with its post-ops."""
    position = builder.signature.phase.ops.index(op) + 1
    reason = builder.follow(op.outputs[0], position, placed, bias)
    return Unmatched(reason) if reason else made()


# Matrix products ----------------------------------------------------------------------------------------------------


def _matmul(builder: ProblemBuilder, op: Op) -> Found:
    a, b = op.inputs
    left, right = builder.shape(a), builder.shape(b)
    flat = len(right) == 2 and len(left) > 2
    found = _matmul_as(builder, op, flat)
    if isinstance(found, Unmatched) and flat:
        return _matmul_as(ProblemBuilder(builder.signature, builder.arrangement), op, False)
    return found


def _matmul_as(builder: ProblemBuilder, op: Op, flat: bool) -> Found:
    a, b = op.inputs
    left, right, result = builder.shape(a), builder.shape(b), builder.shape(op.outputs[0])
    src: Dims
    wei: Dims
    dst: Dims
    if a == b:
        return Unmatched("both factors are one tensor")
    if flat:
        rows = math.prod(left[:-1])
        src, wei, dst = (rows, left[-1]), right, (rows, right[-1])
    else:
        rank = max(len(left), len(right), 2)
        src = (1,) * (rank - max(2, len(left))) + (left if len(left) > 1 else (1, *left))
        wei = (1,) * (rank - max(2, len(right))) + (right if len(right) > 1 else (*right, 1))
        batch = tuple(max(x, y) for x, y in zip(src[:-2], wei[:-2], strict=True))
        dst = (*batch, src[-2], wei[-1])
    builder.bind("src", a, plain_memory(src))
    if builder.is_weight(b):
        builder.bind_chosen("weights", b, plain_memory(wei))
    else:
        builder.bind("weights", b, plain_memory(wei))
    builder.bind("dst", builder.signature.outputs[0], plain_memory(dst))
    bias = plain_memory((*(1,) * (len(dst) - 1), dst[-1]))
    placed = Placement(result, dst, flat)
    return _finish(builder, op, placed, bias, lambda: builder.finish("matmul"))


# Windows ------------------------------------------------------------------------------------------------------------


def _conv(builder: ProblemBuilder, op: Op) -> Found:
    x, w = op.inputs[:2]
    group = op.attributes.integer("group")
    if not builder.is_weight(w):
        return Unmatched("the filter of the convolution is computed")
    shape, result = builder.shape(w), builder.shape(op.outputs[0])
    stored = plain_memory(shape if group == 1 else (group, shape[0] // group, *shape[1:]))
    builder.bind("src", x, builder.border(x))
    builder.bind_chosen("weights", w, stored)
    builder.bind("dst", builder.signature.outputs[0], builder.border(builder.signature.outputs[0]))
    return _window(builder, op, "convolution", "convolution_direct", result, op.attributes.integers("pads"))


def _conv_transpose(builder: ProblemBuilder, op: Op) -> Found:
    x, w = op.inputs[:2]
    group = op.attributes.integer("group")
    if not builder.is_weight(w):
        return Unmatched("the filter of the convolution is computed")
    shape, result = builder.shape(w), builder.shape(op.outputs[0])
    # Stored (in, out / group, spatial ...); seen as (group, out / group, in / group, spatial ...).
    split = (group, shape[0] // group, *shape[1:])
    strides = dense_strides(split, range(len(split)))
    dims = (split[0], split[2], split[1], *split[3:])
    steps = (strides[0], strides[2], strides[1], *strides[3:])
    stored = Memory(dims, steps) if group > 1 else Memory(dims[1:], steps[1:])
    builder.bind("src", x, builder.border(x))
    builder.bind_chosen("weights", w, stored)
    builder.bind("dst", builder.signature.outputs[0], builder.border(builder.signature.outputs[0]))
    n = len(result) - 2
    pads, extra = op.attributes.integers("pads"), op.attributes.integers("output_padding")
    ends = (*pads[:n], *(p - e for p, e in zip(pads[n:], extra, strict=True)))
    return _window(builder, op, "deconvolution", "deconvolution_direct", result, ends)


def _window(
    builder: ProblemBuilder, op: Op, primitive: str, alg: str, result: tuple[int, ...], pads: tuple[int, ...]
) -> Found:
    n = len(result) - 2
    numbers = (
        ("strides", op.attributes.integers("strides")),
        ("dilates", tuple(d - 1 for d in op.attributes.integers("dilations"))),
        ("padding_l", pads[:n]),
        ("padding_r", pads[n:]),
    )
    vector = plain_memory((result[1],))
    bias: Memory | None = plain_memory((1, result[1], *(1,) * n))
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        builder.bind("bias", op.inputs[2], vector)
        bias = None
    placed = Placement(result, result, bias=vector)
    return _finish(builder, op, placed, bias, lambda: builder.finish(primitive, alg, numbers))


def _pool(builder: ProblemBuilder, op: Op) -> Found:
    x, y = op.inputs[0], op.outputs[0]
    image, result = builder.shape(x), builder.shape(y)
    n = len(image) - 2
    kernel, strides = op.attributes.integers("kernel"), op.attributes.integers("strides")
    dilations, pads = op.attributes.integers("dilations"), op.attributes.integers("pads")
    ends = tuple(
        (result[2 + i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - image[2 + i] - pads[i] for i in range(n)
    )
    beyond = any(end > pad for end, pad in zip(ends, pads[n:], strict=True))
    if op.kind == "max_pool":
        alg = "pooling_max"
    elif op.attributes.flag("count_include_pad"):
        alg = "pooling_avg_include_padding"
        if beyond:
            return Unmatched("a window reaches beyond the padding, which oneDNN would count")
    else:
        alg = "pooling_avg_exclude_padding"
    numbers = (
        ("strides", strides),
        ("kernel", kernel),
        ("dilates", tuple(d - 1 for d in dilations)),
        ("padding_l", pads[:n]),
        # Rows behind the last window belong to no window: the padding that oneDNN's own shape rule wants.
        ("padding_r", tuple(max(end, 0) for end in ends)),
    )
    builder.bind("src", x, builder.border(x))
    builder.bind("dst", builder.signature.outputs[0], builder.border(builder.signature.outputs[0]))
    placed = Placement(result, result)
    return _finish(builder, op, placed, None, lambda: builder.finish("pooling", alg, numbers))


def _resize(builder: ProblemBuilder, op: Op) -> Found:
    x = op.inputs[0]
    image, result = builder.shape(x), builder.shape(op.outputs[0])
    if not 3 <= len(image) <= 5 or image[:2] != result[:2]:
        return Unmatched("only spatial axes are resized here")
    scales = op.attributes.f32s("scales")
    if any(abs(s * i - o) > 0 for s, i, o in zip(scales, image, result, strict=True)):
        return Unmatched("oneDNN takes its scale from the extents, and these differ")
    mode, coordinate = op.attributes.text("mode"), op.attributes.text("coordinate")
    if mode == "linear" and coordinate == "half_pixel":
        alg = "resampling_linear"
    elif mode == "nearest" and coordinate == "half_pixel" and op.attributes.text("nearest") == "round_prefer_ceil":
        alg = "resampling_nearest"
    elif (
        mode == "nearest"
        and all(o % i == 0 for i, o in zip(image, result, strict=True))
        and (
            (coordinate, op.attributes.text("nearest"))
            in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"))
        )
    ):
        # For whole factors these rules pick the same element: no position is a tie.
        alg = "resampling_nearest"
    else:
        return Unmatched(f"oneDNN has no {mode} resampling with {coordinate} coordinates")
    builder.bind("src", x, builder.border(x))
    builder.bind("dst", builder.signature.outputs[0], builder.border(builder.signature.outputs[0]))
    placed = Placement(result, result)
    return _finish(builder, op, placed, None, lambda: builder.finish("resampling", alg))


# Normalizations -----------------------------------------------------------------------------------------------------


def _softmax(builder: ProblemBuilder, op: Op) -> Found:
    alg = "softmax_log" if op.kind == "log_softmax" else "softmax_accurate"
    return _softmax_of(builder, op.inputs[0], op.attributes.integer("axis"), alg)


def _softmax_of(builder: ProblemBuilder, x: int, axis: int, alg: str) -> Found:
    if len(builder.signature.phase.ops) > 1 and builder.signature.phase.ops[0].kind != "reduce_max":
        return Unmatched("oneDNN applies nothing behind a softmax in one primitive")
    shape = builder.shape(x)
    # Axes before and behind the softmax's own are rows: three axes say it all.
    dims = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    view = plain_memory(dims if dims[2] > 1 else dims[:2])
    builder.bind("src", x, view)
    builder.bind("dst", builder.signature.outputs[0], view)
    return builder.finish("softmax", alg, (("axis", 1),))


def _spelt_softmax(builder: ProblemBuilder) -> Found:
    ops = builder.signature.phase.ops
    if [op.kind for op in ops] != ["reduce_max", "sub", "exp", "reduce_sum", "div"]:
        return Unmatched("the softmax is spelt in an unknown order")
    highest, subtract, exp, total, divide = ops
    x, axes = highest.inputs[0], highest.attributes.integers("axes")
    wired = (
        subtract.inputs == (x, highest.outputs[0])
        and exp.inputs == subtract.outputs
        and total.inputs == exp.outputs
        and divide.inputs == (exp.outputs[0], total.outputs[0])
    )
    if not wired or len(axes) != 1 or total.attributes.integers("axes") != axes:
        return Unmatched("the ops do not spell a softmax over one axis")
    return _softmax_of(builder, x, axes[0], "softmax_accurate")


def _layer_norm(builder: ProblemBuilder, op: Op) -> Found:
    if len(builder.signature.phase.ops) > 1:
        return Unmatched("oneDNN applies nothing behind a layer normalization in one primitive")
    scale = op.inputs[1] if len(op.inputs) > 1 else -1
    shift = op.inputs[2] if len(op.inputs) > 2 else -1
    return _layer_norm_of(builder, op.inputs[0], op.attributes.integer("axis"), op.attributes.f32("eps"), scale, shift)


def _layer_norm_of(builder: ProblemBuilder, x: int, axis: int, eps: float, scale: int, shift: int) -> Found:
    shape = builder.shape(x)
    width = math.prod(shape[axis:])
    view = plain_memory((math.prod(shape[:axis]), width))
    builder.bind("src", x, view)
    flags = 0
    for name, value, flag in (("scale", scale, USE_SCALE), ("shift", shift, USE_SHIFT)):
        if value < 0:
            continue
        if math.prod(builder.shape(value)) != width:
            return Unmatched(f"the {name} does not cover the normalized axes")
        builder.bind(name, value, plain_memory((width,)))
        flags |= flag
    builder.bind("dst", builder.signature.outputs[0], view)
    return builder.finish("layer_normalization", "", (("epsilon", eps), ("flags", flags)))


def _spelt_layer_norm(builder: ProblemBuilder) -> Found:
    """mean, x - mean, its square, mean of that, + eps, sqrt, quotient, then scale and shift."""
    signature = builder.signature
    ops = signature.phase.ops
    kinds = [op.kind for op in ops]
    if (
        len(ops) < 7
        or kinds[0] != "reduce_mean"
        or kinds[1] != "sub"
        or kinds[3:7] != ["reduce_mean", "add", "sqrt", "div"]
    ):
        return Unmatched("the layer normalization is spelt in an unknown order")
    mean, subtract, square, variance, plus, root, divide = ops[:7]
    x, axes, rank = mean.inputs[0], mean.attributes.integers("axes"), len(builder.shape(mean.inputs[0]))
    from_eps = [v for v in plus.inputs if v != variance.outputs[0]]
    squared = square.kind == "mul" or (square.kind == "pow" and _number(signature, square.inputs[1]) == 2.0)
    wired = (
        subtract.inputs == (x, mean.outputs[0])
        and squared
        and square.inputs[0] == subtract.outputs[0]
        and (square.kind == "pow" or square.inputs[1] == subtract.outputs[0])
        and variance.inputs == square.outputs
        and root.inputs == plus.outputs
        and divide.inputs == (subtract.outputs[0], root.outputs[0])
        and axes == variance.attributes.integers("axes") == tuple(range(rank - len(axes), rank))
        and len(from_eps) == 1
    )
    eps = _number(signature, from_eps[0]) if len(from_eps) == 1 else None
    if not wired or eps is None:
        return Unmatched("the ops do not spell a layer normalization")
    steps = read_steps(signature, divide.outputs[0], 7)
    if isinstance(steps, Unmatched):
        return steps
    operands = [(step.alg, step.operand) for step in steps if isinstance(step, Combine)]
    if len(operands) != len(steps) or [alg for alg, _ in operands] not in (
        [], ["binary_mul"], ["binary_add"], ["binary_mul", "binary_add"],
    ):  # fmt: skip
        return Unmatched("what follows the quotient is no scale and shift")
    found = dict(operands)
    return _layer_norm_of(builder, x, rank - len(axes), eps, found.get("binary_mul", -1), found.get("binary_add", -1))


def _number(signature: Signature, value: int) -> float | None:
    array = signature.constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _batch_norm(builder: ProblemBuilder, op: Op) -> Found:
    x, scale, shift, mean, variance = op.inputs
    result = builder.shape(op.outputs[0])
    if len(result) < 2:
        return Unmatched("a batch normalization of rank 1")
    vector = plain_memory((result[1],))
    builder.bind("src", x, builder.border(x))
    for name, value in (("mean", mean), ("variance", variance), ("scale", scale), ("shift", shift)):
        builder.bind(name, value, vector)
    builder.bind("dst", builder.signature.outputs[0], builder.border(builder.signature.outputs[0]))
    flags = USE_GLOBAL_STATS | USE_SCALE | USE_SHIFT
    numbers = (("epsilon", op.attributes.f32("eps")), ("flags", flags))
    placed = Placement(result, result)
    return _finish(builder, op, placed, None, lambda: builder.finish("batch_normalization", "", numbers))


# Reductions, movement, elementwise ------------------------------------------------------------------------------------

_REDUCTIONS: Final = MappingProxyType(
    {
        "reduce_max": ("reduction_max", 0.0),
        "reduce_min": ("reduction_min", 0.0),
        "reduce_sum": ("reduction_sum", 0.0),
        "reduce_mean": ("reduction_mean", 0.0),
        "reduce_prod": ("reduction_mul", 0.0),
        "reduce_l1": ("reduction_norm_lp_sum", 1.0),
        "reduce_l2": ("reduction_norm_lp_sum", 2.0),
        "reduce_sum_square": ("reduction_norm_lp_power_p_sum", 2.0),
    }
)


def _reduce(builder: ProblemBuilder, op: Op) -> Found:
    x, axes = op.inputs[0], op.attributes.integers("axes")
    shape = builder.shape(x)
    if not axes or builder.arrangement is not Arrangement.PLAIN:
        return Unmatched("the reduction has no axes or no plain layout")
    dims = tuple(1 if i in axes else d for i, d in enumerate(shape))
    if dims == shape:
        return Unmatched("nothing is reduced: the axes have one element")
    builder.bind("src", x, plain_memory(shape))
    builder.bind("dst", builder.signature.outputs[0], plain_memory(dims))
    alg, power = _REDUCTIONS[op.kind]
    placed = Placement(builder.shape(op.outputs[0]), dims)
    return _finish(builder, op, placed, None, lambda: builder.finish("reduction", alg, (("p", power), ("eps", 0.0))))


def _transpose(builder: ProblemBuilder, op: Op) -> Found:
    if len(builder.signature.phase.ops) > 1:
        return Unmatched("a transposition with other ops")
    x, permutation = op.inputs[0], op.attributes.integers("perm")
    shape = builder.shape(x)
    strides = dense_strides(shape, range(len(shape)))
    dims = tuple(shape[axis] for axis in permutation)
    builder.bind("src", x, Memory(dims, tuple(strides[axis] for axis in permutation)))
    builder.bind("dst", builder.signature.outputs[0], plain_memory(dims))
    return builder.finish("reorder")


def match_copy(signature: Signature, source: Layout, target: Layout) -> Found:
    """A conversion of layouts."""
    if signature.policy not in POLICIES or (reason := why_not(signature)):
        return Unmatched(reason if signature.policy in POLICIES else "another compute policy")
    ops = signature.phase.ops
    x = signature.inputs[0] if signature.inputs else -1
    if len(ops) != 1 or ops[0].kind not in ("copy", "reshape") or x < 0:
        return Unmatched("no copy")
    shape, result = signature.type_of(x).numbers(), signature.type_of(signature.outputs[0]).numbers()
    if source.blocks or target.blocks or source.pitch or target.pitch:
        return Unmatched("blocked and strided layouts are not converted here")
    if shape != result and not (source.is_row_major and target.is_row_major):
        return Unmatched("a reshape between layouts")
    from_, to = (source, target) if shape and shape == result else (Layout((0,)), Layout((0,)))
    seen = shape if shape and shape == result else (math.prod(shape),)
    builder = ProblemBuilder(signature, Arrangement.PLAIN)
    builder.bind("src", x, memory_in(seen, from_))
    builder.bind("dst", signature.outputs[0], memory_in(seen, to))
    return replace(builder.finish("reorder"), layouts=(source, target))


def _copy(builder: ProblemBuilder, op: Op) -> Found:
    ranks = [len(builder.shape(v)) for v in (*builder.signature.inputs, *builder.signature.outputs)]
    return match_copy(builder.signature, Layout(tuple(range(ranks[0]))), Layout(tuple(range(ranks[-1]))))


def _elementwise(builder: ProblemBuilder) -> Found:
    """A function of one tensor, or a combination of two, with post-ops."""
    signature = builder.signature
    result = builder.shape(signature.outputs[0])
    rank = len(result)
    if builder.arrangement is Arrangement.CHANNELS_LAST and any(
        len(builder.shape(v)) not in (0, rank) for v in signature.inputs
    ):
        return Unmatched("operands of several ranks have no common channels")
    starts = [
        v
        for v in signature.phase.ops[0].inputs
        if v >= 0 and signature.program.values[v].role is Role.INPUT and builder.shape(v) == result
    ]
    reason = f"{signature.phase.ops[0].kind} is no op that a oneDNN primitive begins with"
    for start in dict.fromkeys(starts):
        steps = read_steps(signature, start, 0)
        if isinstance(steps, Unmatched):
            reason = steps.reason
            continue
        if not steps:
            continue
        return _elementwise_from(builder, start, result)
    return Unmatched(reason)


def _elementwise_from(builder: ProblemBuilder, start: int, result: tuple[int, ...]) -> Found:
    dims = result or (1,)
    source = builder.border(start) if result else plain_memory(dims)
    builder.bind("src", start, source)
    target = builder.border(builder.signature.outputs[0]) if result else plain_memory(dims)
    builder.bind("dst", builder.signature.outputs[0], target)
    if reason := builder.follow(start, 0, Placement(result, dims), None):
        return Unmatched(reason)
    first = builder.promote_first()
    if first.memory:
        return builder.finish("binary", first.alg)
    return builder.finish("eltwise", first.alg, (("alpha", first.alpha), ("beta", first.beta)))


_FAMILIES: Final[MappingProxyType[str, Callable[[ProblemBuilder, Op], Found]]] = MappingProxyType(
    {
        "matmul": _matmul,
        "conv": _conv,
        "conv_transpose": _conv_transpose,
        "max_pool": _pool,
        "average_pool": _pool,
        "softmax": _softmax,
        "log_softmax": _softmax,
        "layer_norm": _layer_norm,
        "batch_norm": _batch_norm,
        "resize": _resize,
        "transpose": _transpose,
        "copy": _copy,
        "reshape": _copy,
        **dict.fromkeys(_REDUCTIONS, _reduce),
    }
)
