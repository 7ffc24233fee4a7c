"""Attention by the ``attention`` template: scores, scale, mask, softmax and the weighted sum in one kernel.

Imported by: table.  Imports: templates.attention.

Transpositions around the two products become strides: q, k, v and the result are read and written where they lie.
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
from tribunus_native.loops.frame import Tensor, strides_of
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_row_major
from tribunus_native.match.operands import bind
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.attention import (
    AttentionParams,
    AttentionPoint,
    Mask,
    Operand,
    attention,
    attention_points,
)
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True)
class Heads:
    """An attention whose operands have rows at one stride and heads at another.  mask: value id, -1 for none."""

    q: int
    k: int
    v: int
    mask: int
    batch: Dim
    heads: int
    head_size: int
    queries: Dim
    keys: Dim
    scale: float
    operands: tuple[Operand, Operand, Operand, Operand]  # q, k, v, y
    mask_kind: Mask


@dataclass(frozen=True, slots=True)
class _Seen:
    """A group input as an operand of a product, after transpositions.  factor: what it was multiplied with."""

    value: int
    view: Tensor
    factor: float


class _Reader:
    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.ops = signature.phase.ops
        self.producer = signature.program.producers(signature.phase)

    def op(self, value: int) -> Op | None:
        position = self.producer.get(value)
        return None if position is None else self.ops[position]

    def scaled(self, op: Op) -> tuple[int, float] | None:
        """The operand that is scaled by a number, and the factor."""
        if op.kind not in ("mul", "div") or len(op.inputs) != 2:
            return None
        for position, other in enumerate(op.inputs):
            array = self.signature.constant(other)
            if array is None or array.size != 1 or (op.kind == "div" and position == 0):
                continue
            number = float(stages.scalar(array, DType.F32))
            if number == 0.0:
                return None
            return op.inputs[1 - position], number if op.kind == "mul" else 1.0 / number
        return None

    def see(self, value: int) -> _Seen | None:
        """Trace an operand of a product back to a group input."""
        chain: list[tuple[int, ...]] = []
        factor = 1.0
        while (op := self.op(value)) is not None:
            if op.kind == "transpose":
                chain.append(op.attributes.integers("perm"))
                value = op.inputs[0]
                continue
            scaled = self.scaled(op)
            if scaled is None:
                return None
            value, factor = scaled[0], factor * scaled[1]
        if self.signature.program.values[value].role is not Role.INPUT:
            return None
        type_ = self.signature.type_of(value)
        view = Tensor("", type_.dtype, type_.shape, strides_of(type_.shape, range(type_.rank)))
        for perm in reversed(chain):
            view = view.permuted(perm)
        return _Seen(value, view, factor)

    def softmax(self, value: int) -> int | None:
        """What a softmax over the last axis that yields ``value`` normalizes."""
        op = self.op(value)
        if op is None:
            return None
        if op.kind == "softmax":
            rank = self.signature.type_of(value).rank
            return op.inputs[0] if op.attributes.integer("axis") == rank - 1 else None
        if op.kind != "div":
            return None
        power, total = (self.op(v) for v in op.inputs)
        if power is None or total is None or power.kind != "exp" or total.kind != "reduce_sum":
            return None
        shifted = self.op(power.inputs[0])
        if total.inputs[0] != power.outputs[0] or shifted is None or shifted.kind != "sub":
            return None
        top = self.op(shifted.inputs[1])
        rank = self.signature.type_of(value).rank
        last = (rank - 1,)
        if top is None or top.kind != "reduce_max" or top.inputs[0] != shifted.inputs[0]:
            return None
        same = all(o.attributes.integers("axes") == last for o in (top, total))
        return shifted.inputs[0] if same else None


def match_attention(signature: Signature) -> Heads | None:
    """An attention that the template serves; None for anything else."""
    if len(signature.outputs) != 1 or sum(op.kind == "matmul" for op in signature.phase.ops) != 2:
        return None
    if any(signature.type_of(v).dtype is not DType.F32 for v in (*signature.inputs, *signature.outputs)):
        return None
    reader = _Reader(signature)
    last = reader.op(signature.outputs[0])
    perm: tuple[int, ...] | None = None
    if last is not None and last.kind == "transpose":
        perm, last = last.attributes.integers("perm"), reader.op(last.inputs[0])
    if last is None or last.kind != "matmul":
        return None
    scores_in = reader.softmax(last.inputs[0])
    if scores_in is None:
        return None
    current, scale, mask = scores_in, 1.0, -1
    while (op := reader.op(current)) is not None and op.kind != "matmul":
        scaled = reader.scaled(op)
        if scaled is not None:
            current, scale = scaled[0], scale * scaled[1]
            continue
        # a mask is added behind the scale: nothing may be scaled between it and the softmax
        if op.kind != "add" or mask >= 0 or scale != 1.0:
            return None
        sides = [v for v in op.inputs if v in signature.inputs]
        if len(sides) != 1:
            return None
        mask = sides[0]
        current = op.inputs[1] if op.inputs[0] == mask else op.inputs[0]
    product = reader.op(current)
    if product is None:
        return None
    q, k, v = reader.see(product.inputs[0]), reader.see(product.inputs[1]), reader.see(last.inputs[1])
    if q is None or k is None or v is None or v.factor != 1.0:
        return None
    type_ = signature.type_of(signature.outputs[0])
    y = Tensor("", type_.dtype, type_.shape, strides_of(type_.shape, range(type_.rank)))
    if perm is not None:
        y = y.permuted([perm.index(axis) for axis in range(len(perm))])
    return _arranged(signature, q, k, v, y, mask, scale * q.factor * k.factor)


def _arranged(signature: Signature, q: _Seen, k: _Seen, v: _Seen, y: Tensor, mask: int, scale: float) -> Heads | None:
    """Strides of the four operands as the template wants them."""
    rank = q.view.rank
    if rank not in (2, 3, 4) or any(t.rank != rank for t in (k.view, v.view, y)):
        return None
    keys = k.view.permuted([*range(rank - 2), rank - 1, rank - 2])
    views = (q.view, keys, v.view, y)
    head_size = q.view.shape[-1]
    if not isinstance(head_size, int) or any(t.shape[-1] != head_size or t.strides[-1] != 1 for t in views):
        return None
    lead = q.view.shape[:-2]
    if any(t.shape[:-2] != lead for t in views):
        return None
    arranged = _split(views) or _merged(views)
    if arranged is None:
        return None
    batch, heads, operands = arranged
    kind = Mask.NONE
    if mask >= 0:
        shape = signature.type_of(mask).shape
        found = _mask_kind(shape, batch, q.view.shape[-2], keys.shape[-2], lead, heads)
        if found is None:
            return None
        kind = found
    return Heads(
        q.value,
        k.value,
        v.value,
        mask,
        batch,
        heads,
        head_size,
        q.view.shape[-2],
        keys.shape[-2],
        scale,
        operands,
        kind,
    )


_Arranged = tuple[Dim, int, tuple[Operand, Operand, Operand, Operand]]


def _four(found: list[Operand]) -> tuple[Operand, Operand, Operand, Operand]:
    return found[0], found[1], found[2], found[3]


def _split(views: tuple[Tensor, ...]) -> _Arranged | None:
    """Batch outside, heads inside a row: ``b * rows * stride + row * stride + h * head``."""
    lead = views[0].shape[:-2]
    heads = lead[-1] if lead else 1
    batch: Dim = lead[0] if len(lead) == 2 else 1
    if not isinstance(heads, int):
        return None
    found: list[Operand] = []
    for view in views:
        stride = view.strides[-2]
        head = view.strides[-3] if lead else 0
        if not isinstance(stride, int) or not isinstance(head, int):
            return None
        if len(lead) == 2 and batch != 1 and view.strides[0] != dims.mul(view.shape[-2], stride):
            return None
        found.append(Operand(stride=stride, head=head))
    return batch, heads, _four(found)


def _merged(views: tuple[Tensor, ...]) -> _Arranged | None:
    """Every head a batch entry of its own: heads lie one after the other."""
    lead = views[0].shape[:-2]
    found: list[Operand] = []
    for view in views:
        step = dims.mul(view.shape[-2], view.strides[-2])
        for extent, stride in zip(reversed(lead), reversed(view.strides[:-2]), strict=True):
            if extent != 1 and stride != step:
                return None
            step = dims.mul(step, extent)
        row = view.strides[-2]
        if not isinstance(row, int):
            return None
        found.append(Operand(stride=row, head=0))
    return dims.product(lead), 1, _four(found)


def _mask_kind(
    shape: tuple[Dim, ...], batch: Dim, queries: Dim, keys: Dim, lead: tuple[Dim, ...], heads: int
) -> Mask | None:
    full: tuple[Dim, ...] = (1,) * (len(lead) + 2 - len(shape)) + shape
    if len(full) != len(lead) + 2 or full[-1] != keys:
        return None
    if all(d == 1 for d in full[:-2]) and full[-2] == queries and queries != 1:
        return Mask.QUERY_KEY
    split = len(lead) == 2 and heads == lead[1] and batch == lead[0]
    if full[-2] == 1 and split and full[0] == batch and full[1] == 1:
        return Mask.KEY
    return None


class Attention:
    """All heads of one attention."""

    @property
    def name(self) -> str:
        return "attention"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_attention(signature) is not None else "no attention with plain strides"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_attention(signature), all_row_major(signature)
        if found is None or layouts not in (None, border):
            return
        sizes = Sizes()
        for point in attention_points(sizes.size(found.queries), sizes.size(found.keys), found.head_size, cpu):
            if signature.policy is ComputePolicy.FP32_STRICT and point.contraction is not Contraction.SEPARATE:
                continue
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "nv": point.nv,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_attention(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no attention for this template")
        sizes = Sizes()
        contraction = Contraction(config.text("contraction"))
        q, k, v, y = found.operands
        params = AttentionParams(
            batch=sizes.size(found.batch),
            heads=found.heads,
            head_size=found.head_size,
            queries=sizes.size(found.queries),
            keys=sizes.size(found.keys),
            scale=found.scale,
            q=q,
            k=k,
            v=v,
            y=y,
            mask=found.mask_kind,
            point=AttentionPoint(
                lanes=config.integer("lanes"), mr=config.integer("mr"), nv=config.integer("nv"),
                contraction=contraction,
            ),
            avx512=cpu.has_avx512,
        )  # fmt: skip
        source = attention(params)
        inputs = (found.q, found.k, found.v, *((found.mask,) if found.mask >= 0 else ()))
        bound = bind(source, signature, inputs, signature.outputs)
        split = stages.split_of(target.threads)
        return Kernel(
            text=bound.text,
            contraction=contraction,
            weights=bound.extra,
            workspace=sizes.workspace(source.workspace, split.parts),
            params=sizes.params,
            split=split,
        )
