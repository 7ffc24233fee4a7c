"""From the ops after an anchor to the steps of an epilogue, with the weights that they read.

Imported by: the families of products, convolutions and pooling.  Imports: templates.epilogue.

Ops with one running value and numbers become one inline step; a vector along the channels becomes the bias (first) or a
ScaleShift; a tensor of the result's shape becomes a WithTensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Op, Role
from tribunus_native.loops import stages
from tribunus_native.loops.expression import ELEMENTWISE, Call, expression, why_not
from tribunus_native.match.operands import same_shape
from tribunus_native.templates.csource import c_float
from tribunus_native.templates.epilogue import Combine, Epilogue, Inline, ScaleShift, Step, WithTensor

_SWAPPED = {"sub": Combine.SUBTRACT_FROM, "div": Combine.DIVIDE_INTO}
_COMBINE = {"add": Combine.ADD, "sub": Combine.SUBTRACT, "mul": Combine.MULTIPLY, "div": Combine.DIVIDE}


@dataclass(frozen=True, slots=True)
class Vector:
    """A weight vector along the channels.  source: value id, -1 for none.  fold: how it becomes bias, scale or shift.

    kind: ``plain``, ``negated``, ``ones``, ``zeros``, ``inverse``, ``norm_scale``, ``norm_shift`` (of a batch norm:
    sources are scale, bias, mean, variance).
    """

    kind: str
    sources: tuple[int, ...] = ()
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class Parsed:
    """An epilogue.  bias: None for none.  vectors: scale and shift of each ScaleShift, in step order.

    tensors: value ids of the WithTensor operands, in step order.
    """

    bias: Vector | None
    steps: Epilogue
    vectors: tuple[Vector, ...]
    tensors: tuple[int, ...]


@dataclass(slots=True)
class _Running:
    signature: Signature
    value: int
    channel_axis: int
    bias: Vector | None
    steps: list[Step] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    tensors: list[int] = field(default_factory=list)


def parse_epilogue(
    signature: Signature, ops: Sequence[Op], value: int, channel_axis: int, bias: Vector | None
) -> Parsed | None:
    """The epilogue that turns ``value`` into the output with ``ops``; None if some op has no step."""
    run = _Running(signature, value, channel_axis, bias)
    left = list(ops)
    while left:
        taken = _vector_step(run, left[0]) or _tensor_step(run, left[0])
        if taken:
            left.pop(0)
            continue
        count = _inline(run, left)
        if count == 0:
            return None
        del left[:count]
    if (run.value,) != signature.outputs:
        return None
    return Parsed(run.bias, tuple(run.steps), tuple(run.vectors), tuple(run.tensors))


def _is_channel_vector(run: _Running, value: int) -> bool:
    """A float32 weight or constant with more than one element that varies along the channels only."""
    held = run.signature.program.values[value]
    type_ = held.type
    if held.role not in (Role.WEIGHT, Role.CONSTANT) or type_.dtype is not DType.F32 or not type_.is_static:
        return False
    full = run.signature.type_of(run.value)
    shift = full.rank - type_.rank
    if shift < 0:
        return False
    channels = full.shape[run.channel_axis]
    return (
        all(extent == (channels if axis + shift == run.channel_axis else 1) for axis, extent in enumerate(type_.shape))
        and run.channel_axis >= shift
    )


def _vector_step(run: _Running, op: Op) -> bool:
    """Bias, scale, shift, batch norm."""
    if op.kind == "batch_norm" and op.inputs[0] == run.value and run.channel_axis == 1:
        if not all(run.signature.program.values[v].role in (Role.WEIGHT, Role.CONSTANT) for v in op.inputs[1:]):
            return False
        eps = op.attributes.f32("eps")
        run.steps.append(ScaleShift())
        run.vectors += [Vector("norm_scale", op.inputs[1:], eps), Vector("norm_shift", op.inputs[1:], eps)]
        run.value = op.outputs[0]
        return True
    if op.kind not in _COMBINE or len(op.inputs) != 2 or run.value not in op.inputs:
        return False
    left, right = op.inputs
    other = right if left == run.value else left
    if other == run.value or not _is_channel_vector(run, other):
        return False
    if op.kind == "add" and not run.steps and run.bias is None:
        run.bias = Vector("plain", (other,))
    elif op.kind == "add":
        run.vectors += [Vector("ones"), Vector("plain", (other,))]
        run.steps.append(ScaleShift())
    elif op.kind == "sub" and left == run.value:
        run.vectors += [Vector("ones"), Vector("negated", (other,))]
        run.steps.append(ScaleShift())
    elif op.kind == "mul":
        run.vectors += [Vector("plain", (other,)), Vector("zeros")]
        run.steps.append(ScaleShift())
    else:
        return False
    run.value = op.outputs[0]
    return True


def _tensor_step(run: _Running, op: Op) -> bool:
    """Another tensor of the same shape."""
    if op.kind not in _COMBINE or len(op.inputs) != 2 or run.value not in op.inputs:
        return False
    left, right = op.inputs
    other = right if left == run.value else left
    held = run.signature.program.values[other]
    full = run.signature.type_of(run.value)
    if other == run.value or held.role is not Role.INPUT or held.type.dtype is not DType.F32:
        return False
    if not same_shape(run.signature, held.type.shape, full.shape):
        return False
    combine = _COMBINE[op.kind] if left == run.value else _SWAPPED.get(op.kind, _COMBINE[op.kind])
    run.steps.append(WithTensor(combine))
    run.tensors.append(other)
    run.value = op.outputs[0]
    return True


def _inline(run: _Running, ops: Sequence[Op]) -> int:
    """The longest prefix of ``ops`` that computes one value from the running value and numbers; how many ops."""
    names = {run.value: "z"}
    lines: list[str] = []
    functions: set[str] = set()
    best = 0
    best_lines: list[str] = []
    best_value = run.value
    best_functions: set[str] = set()
    for count, op in enumerate(ops, 1):
        if op.kind not in ELEMENTWISE or op.kind in ("cast", "quantize_linear", "dequantize_linear", "where"):
            break
        arguments: list[str] = []
        dtypes: list[DType] = []
        for value in op.inputs:
            type_ = run.signature.type_of(value)
            array = run.signature.constant(value)
            dtypes.append(type_.dtype)
            if value in names:
                arguments.append(names[value])
            elif array is not None and array.size == 1 and type_.dtype is DType.F32:
                arguments.append(f"splat({c_float(float(stages.scalar(array, DType.F32)))})")
            else:
                break
        result = run.signature.type_of(op.outputs[0])
        if len(arguments) != len(op.inputs) or result.dtype is not DType.F32:
            break
        if not same_shape(run.signature, result.shape, run.signature.type_of(run.value).shape):
            break
        call = Call(op.kind, op.attributes, tuple(dtypes), DType.F32)
        if why_not(call):
            break
        text = expression(call, arguments)
        name = f"e{count}"
        lines.append(f"const vec {name} = {text.expression};")
        functions.update(text.functions)
        names[op.outputs[0]] = name
        # a prefix may stop only where nothing later reads an inner value
        inner = {v for o in ops[:count] for v in o.outputs[:1]} - {op.outputs[0]} | {run.value}
        if not any(v in inner for o in ops[count:] for v in o.inputs):
            best, best_value = count, op.outputs[0]
            best_lines, best_functions = [*lines, f"z = {name};"], set(functions)
    if best:
        run.steps.append(Inline(tuple(best_lines), frozenset(best_functions)))
        run.value = best_value
    return best
