"""Normalizations and softmax of rows by the ``rowwise`` templates, spelt as one op or as a group of primitive ones.

Imported by: table.  Imports: templates.rowwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Op, Role
from tribunus.targets.target import Target
from tribunus_native.loops import stages
from tribunus_native.match.epilogues import Vector
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_row_major
from tribunus_native.match.operands import rebind, same_shape
from tribunus_native.match.packing import vector_weight
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.rowwise import (
    Norm,
    NormParams,
    NormPoint,
    Residual,
    SoftmaxKind,
    SoftmaxParams,
    SoftmaxPoint,
    norm,
    norm_points,
    softmax,
    softmax_points,
)
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True)
class Normalization:
    """Rows of ``n`` floats.  residual: a second input that is added first, -1 for none.  scale, shift: vectors."""

    norm: Norm
    x: int
    residual: int
    rows: Dim
    n: int
    eps: float
    scale: Vector | None
    shift: Vector | None


def match_normalization(signature: Signature) -> Normalization | None:
    """layer_norm or rms_norm over the last axes, alone or behind the sum of two tensors."""
    ops = list(signature.phase.ops)
    if len(signature.outputs) != 1 or not ops:
        return None
    inputs = signature.inputs
    residual = -1
    value: int
    if ops[0].kind == "add" and len(ops) > 1 and all(v in inputs for v in ops[0].inputs):
        first, residual = ops[0].inputs
        value = ops[0].outputs[0]
        same = same_shape(signature, signature.type_of(first).shape, signature.type_of(residual).shape)
        if not same or first == residual:
            return None
        ops = ops[1:]
    elif len(inputs) == 1:
        first = value = inputs[0]
    else:
        return None
    if any(signature.type_of(v).dtype is not DType.F32 for v in (first, *signature.outputs)):
        return None
    found = _one_op(signature, ops, value) if len(ops) == 1 else _spelt(signature, ops, value)
    if found is None:
        return None
    norm_kind, axis, eps, scale, shift = found
    shape = signature.type_of(value).shape
    tail = shape[axis:]
    if axis >= len(shape) or not all(isinstance(d, int) for d in tail):
        return None
    n = dims.product(tail)
    if not isinstance(n, int) or n < 1:
        return None
    if not same_shape(signature, signature.type_of(signature.outputs[0]).shape, shape):
        return None
    for vector in (scale, shift):
        if vector is not None and not _is_row_vector(signature, vector.sources[0], shape, axis):
            return None
    return Normalization(norm_kind, first, residual, dims.product(shape[:axis]), n, eps, scale, shift)


_Found = tuple[Norm, int, float, Vector | None, Vector | None]


def _is_row_vector(signature: Signature, value: int, shape: tuple[Dim, ...], axis: int) -> bool:
    """A constant that covers the normalized axes, or is one number."""
    held = signature.program.values[value]
    if held.role not in (Role.WEIGHT, Role.CONSTANT) or held.type.dtype is not DType.F32:
        return False
    if held.type.elements == 1:
        return True
    own = held.type.shape
    lead = len(own) - (len(shape) - axis)
    return lead >= 0 and all(d == 1 for d in own[:lead]) and own[lead:] == shape[axis:]


def _one_op(signature: Signature, ops: list[Op], value: int) -> _Found | None:
    op = ops[0]
    if op.kind not in ("layer_norm", "rms_norm") or op.inputs[0] != value:
        return None
    vectors = [None if v < 0 else Vector("plain", (v,)) for v in op.inputs[1:]] + [None, None]
    kind = Norm.LAYER if op.kind == "layer_norm" else Norm.RMS
    return kind, op.attributes.integer("axis"), op.attributes.f32("eps"), vectors[0], vectors[1]


class _Walk:
    """Reads a group op by op."""

    def __init__(self, signature: Signature, ops: list[Op]) -> None:
        self.signature = signature
        self.ops = ops

    def take(self, kind: str, *inputs: int) -> Op | None:
        """The first op of a kind that reads exactly these values (in any order for add and mul)."""
        for op in self.ops:
            same = op.inputs == inputs or (kind in ("add", "mul") and op.inputs == inputs[::-1])
            if op.kind == kind and same:
                self.ops.remove(op)
                return op
        return None

    def with_constant(self, kind: str, value: int) -> tuple[Op, int] | None:
        """The first op of a kind that combines ``value`` with a constant."""
        for op in self.ops:
            if op.kind != kind or value not in op.inputs or len(op.inputs) != 2:
                continue
            other = op.inputs[1] if op.inputs[0] == value else op.inputs[0]
            if self.signature.program.values[other].role in (Role.WEIGHT, Role.CONSTANT):
                self.ops.remove(op)
                return op, other
        return None

    def scalar(self, value: int) -> float | None:
        array = self.signature.constant(value)
        return None if array is None or array.size != 1 else float(stages.scalar(array, DType.F32))


def _spelt(signature: Signature, ops: list[Op], value: int) -> _Found | None:
    """mean, difference, square, mean, + eps, sqrt, division, scale, shift as single ops."""
    walk = _Walk(signature, ops)
    centred = value
    axes: tuple[int, ...] | None = None
    kind = Norm.RMS
    mean = walk.take("reduce_mean", value)
    if mean is not None:
        difference = walk.take("sub", value, mean.outputs[0])
        if difference is None:
            return None
        centred, axes, kind = difference.outputs[0], mean.attributes.integers("axes"), Norm.LAYER
    square = walk.take("mul", centred, centred)
    if square is None:
        power = walk.with_constant("pow", centred)
        if power is None or walk.scalar(power[1]) != 2.0 or power[0].inputs[0] != centred:
            return None
        square = power[0]
    variance = walk.take("reduce_mean", square.outputs[0])
    if variance is None or (axes is not None and variance.attributes.integers("axes") != axes):
        return None
    axes = variance.attributes.integers("axes")
    rank = signature.type_of(value).rank
    if axes != tuple(range(rank - len(axes), rank)) or not axes or not variance.attributes.flag("keepdims"):
        return None
    shifted = walk.with_constant("add", variance.outputs[0])
    if shifted is None or (eps := walk.scalar(shifted[1])) is None:
        return None
    root = walk.take("sqrt", shifted[0].outputs[0])
    if root is None:
        return None
    divided = walk.take("div", centred, root.outputs[0])
    if divided is None:
        inverse = walk.take("reciprocal", root.outputs[0])
        divided = None if inverse is None else walk.take("mul", centred, inverse.outputs[0])
    if divided is None:
        return None
    current = divided.outputs[0]
    scale = shift = None
    if (scaled := walk.with_constant("mul", current)) is not None:
        scale, current = Vector("plain", (scaled[1],)), scaled[0].outputs[0]
    if (added := walk.with_constant("add", current)) is not None:
        shift, current = Vector("plain", (added[1],)), added[0].outputs[0]
    if walk.ops or (current,) != signature.outputs:
        return None
    return kind, rank - len(axes), eps, scale, shift


class RowNorm:
    """LayerNorm and RMSNorm, with an optional residual."""

    @property
    def name(self) -> str:
        return "norm"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_normalization(signature) is not None else "no normalization of float32 rows"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_normalization(signature), all_row_major(signature)
        if found is None or layouts not in (None, border):
            return
        for point in norm_points(found.n, cpu):
            if signature.policy is ComputePolicy.FP32_STRICT and point.contraction is not Contraction.SEPARATE:
                continue
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "accumulators": point.accumulators,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_normalization(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no normalization")
        sizes = Sizes()
        contraction = Contraction(config.text("contraction"))
        params = NormParams(
            rows=sizes.size(found.rows),
            n=found.n,
            epsilon=found.eps,
            norm=found.norm,
            point=NormPoint(
                lanes=config.integer("lanes"), accumulators=config.integer("accumulators"), contraction=contraction
            ),
            residual=Residual.NONE if found.residual < 0 else Residual.ADDED,
            scale=found.scale is not None,
            shift=found.shift is not None,
        )
        source = norm(params)
        inputs = (found.x,) if found.residual < 0 else (found.x, found.residual)
        vectors = [v for v in (found.scale, found.shift) if v is not None]
        return Kernel(
            text=rebind(source, signature, inputs, signature.outputs),
            contraction=contraction,
            weights=tuple(vector_weight(v, found.n, 1) for v in vectors),
            params=sizes.params,
            split=stages.split_of(target.threads),
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Softmax over the last axis: rows of n."""

    rows: Dim
    n: Dim
    kind: SoftmaxKind


def match_softmax(signature: Signature) -> Rows | None:
    """softmax or log_softmax over the last axis, as one op or spelt."""
    ops = list(signature.phase.ops)
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        return None
    x = signature.inputs[0]
    type_ = signature.type_of(x)
    if type_.dtype is not DType.F32 or type_.rank == 0:
        return None
    last = type_.rank - 1
    rows = Rows(dims.product(type_.shape[:-1]), type_.shape[-1], SoftmaxKind.SOFTMAX)
    if len(ops) == 1:
        if ops[0].kind not in ("softmax", "log_softmax") or ops[0].attributes.integer("axis") != last:
            return None
        return rows if ops[0].kind == "softmax" else Rows(rows.rows, rows.n, SoftmaxKind.LOG_SOFTMAX)
    walk = _Walk(signature, ops)
    top = walk.take("reduce_max", x)
    shifted = None if top is None else walk.take("sub", x, top.outputs[0])
    power = None if shifted is None else walk.take("exp", shifted.outputs[0])
    total = None if power is None else walk.take("reduce_sum", power.outputs[0])
    if top is None or power is None or total is None:
        return None
    result = walk.take("div", power.outputs[0], total.outputs[0])
    if result is None or walk.ops or result.outputs != signature.outputs:
        return None
    same = all(op.attributes.integers("axes") == (last,) and op.attributes.flag("keepdims") for op in (top, total))
    return rows if same else None


class RowSoftmax:
    """Softmax and log-softmax of dense rows."""

    @property
    def name(self) -> str:
        return "softmax"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_softmax(signature) is not None else "no softmax over the last axis of float32"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_softmax(signature), all_row_major(signature)
        if found is None or layouts not in (None, border):
            return
        for point in softmax_points(Sizes().size(found.n), cpu):
            if signature.policy is ComputePolicy.FP32_STRICT and point.contraction is not Contraction.SEPARATE:
                continue
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "rows": point.rows,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_softmax(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no softmax of rows")
        sizes = Sizes()
        contraction = Contraction(config.text("contraction"))
        point = SoftmaxPoint(lanes=config.integer("lanes"), rows=config.integer("rows"), contraction=contraction)
        params = SoftmaxParams(
            rows=sizes.size(found.rows), n=sizes.size(found.n), kind=found.kind, point=point, avx512=cpu.has_avx512
        )
        return Kernel(
            text=rebind(softmax(params), signature, signature.inputs, signature.outputs),
            contraction=contraction,
            params=sizes.params,
            split=stages.split_of(target.threads),
        )
