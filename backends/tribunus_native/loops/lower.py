"""Any group of ops as one generic kernel: stages over memory, elementwise ops folded into the stages that read them.

Imported by: match.generic.  Imports: the stages beside it.

A value gets memory if it is an output, if an op needs it whole, or if several stages would compute it again at a
price; everything else elementwise is computed where it is read.  Views (transpose, slice, expand) are free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tribunus.candidates.model import Signature
from tribunus.errors import InternalError
from tribunus.phaseir.layouts import Layout, channels_last, row_major
from tribunus.phaseir.program import Op, Role
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Packing
from tribunus_native.loops import stages
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE
from tribunus_native.loops.expression import ELEMENTWISE, Call, why_not
from tribunus_native.loops.frame import Frame, Tensor, dense
from tribunus_native.loops.integer import with_integer_products
from tribunus_native.loops.nest import Apply, Constant, Leaf, Node, emit_map
from tribunus_native.match.kernel import Kernel
from tribunus_native.toolchain import Contraction

CHEAP = frozenset(
    ("add", "sub", "mul", "neg", "abs", "relu", "minimum", "maximum", "cast", "where", "not", "and", "or", "xor",
     "equal", "less", "less_equal", "greater", "greater_equal", "is_nan", "dequantize_linear")
)  # fmt: skip
REDUCTIONS = frozenset(
    ("reduce_sum", "reduce_mean", "reduce_prod", "reduce_l1", "reduce_l2", "reduce_sum_square", "reduce_max",
     "reduce_min")
)  # fmt: skip
MOST_READERS = 3


@dataclass(frozen=True, slots=True)
class LoopPoint:
    """One point of the search space: lanes of a vector, vectors a turn, contraction, float64 sums."""

    lanes: int
    unroll: int
    contraction: Contraction
    parts: int
    avx512: bool
    wide_sums: bool = False


def unsupported(signature: Signature) -> str:
    """Why no generic kernel computes this, an empty string if one does."""
    signature = with_integer_products(signature)
    program = signature.program
    for op in signature.phase.ops:
        if op.kind in ELEMENTWISE:
            reason = why_not(_call(signature, op))
        elif op.kind in REDUCTIONS or op.kind in stages.EMITTERS:
            types = [program.type_of(v) for v in (*op.inputs, *op.outputs) if v >= 0]
            reason = stages.why_not(op.kind, types)
        else:
            reason = f"no generic kernel for {op.kind}"
        if reason:
            return reason
    return ""


def lower(signature: Signature, layouts: Sequence[Layout], point: LoopPoint) -> Kernel:
    """The kernel of a signature with these border layouts."""
    return _Lowering(with_integer_products(signature), layouts, point).kernel()


def _call(signature: Signature, op: Op) -> Call:
    types = [signature.type_of(v).dtype for v in op.inputs if v >= 0]
    return Call(op.kind, op.attributes, tuple(types), signature.type_of(op.outputs[0]).dtype)


class _Lowering(Group):
    """Lowers one group."""

    def __init__(self, signature: Signature, layouts: Sequence[Layout], point: LoopPoint) -> None:
        self.signature = signature
        self.point = point
        self.program = signature.program
        self.ops = signature.phase.ops
        self.unroll = point.unroll
        self.outputs = signature.outputs
        self.readers = self.program.consumers(signature.phase)
        self.producer = self.program.producers(signature.phase)
        self.roots = self._roots()
        staged = [op.kind for op in self.ops if not self._folded(op)]
        parallel = len(staged) == 1 and point.parts > 1 and not stages.is_serial(staged[0])
        steps = tuple(f"{op.kind}" for op in self.ops)
        self.frame = Frame(
            f"{signature.label}: {' '.join(steps[:12])}", self.program.scope, point.lanes,
            avx512=point.avx512, parallel=parallel, wide_sums=point.wide_sums,
        )  # fmt: skip
        self.tensors: dict[int, Tensor] = {}
        self.layouts = tuple(layouts)
        border = (*signature.inputs, *self.outputs)
        for value, layout in zip(border, layouts, strict=True):
            type_ = signature.type_of(value)
            name = self.frame.input(type_.dtype) if value in signature.inputs else self.frame.output(type_.dtype)
            self.tensors[value] = dense(name, type_.dtype, type_.shape, layout)
        self.out_tensors = {value: self.tensors.pop(value) for value in self.outputs if value not in signature.inputs}
        images = (layout.rank for layout in layouts if layout == channels_last(layout.rank))
        self.ranks_channels_last = frozenset(rank for rank in images if rank > 2)

    def _folded(self, op: Op) -> bool:
        return op.kind in ELEMENTWISE and op.outputs[0] not in self.roots

    def _roots(self) -> frozenset[int]:
        """Elementwise results that get memory."""
        roots: set[int] = set()
        reached: dict[int, set[int]] = {}
        for op in reversed(self.ops):
            if op.kind not in ELEMENTWISE:
                continue
            value = op.outputs[0]
            stages_reading: set[int] = set()
            whole = value in self.outputs
            for reader in self.readers.get(value, ()):
                user = self.ops[reader]
                if user.kind in ELEMENTWISE:
                    result = user.outputs[0]
                    stages_reading |= {result} if result in roots else reached.get(result, set())
                elif user.kind in REDUCTIONS:
                    stages_reading.add(user.outputs[0])
                else:
                    whole = True
            repeated = len(stages_reading) > 1 and (op.kind not in CHEAP or len(stages_reading) > MOST_READERS)
            if whole or repeated or self._grows(op):
                roots.add(value)
            else:
                reached[value] = stages_reading
        return frozenset(roots)

    def _grows(self, op: Op) -> bool:
        """Whether a costly value would be computed again for every element of a larger reader."""
        if op.kind in CHEAP or op.kind in ("div", "sqrt", "reciprocal"):
            return False
        own = self.signature.type_of(op.outputs[0]).elements
        return any(
            self.ops[r].kind in ELEMENTWISE and self.signature.type_of(self.ops[r].outputs[0]).elements != own
            for r in self.readers.get(op.outputs[0], ())
        )

    # ------------------------------------------------------------------ what stages ask

    def type_of(self, value: int) -> TensorType:
        return self.signature.type_of(value)

    def layout_for(self, rank: int) -> Layout:
        """Layout of a temporary."""
        return channels_last(rank) if rank in self.ranks_channels_last else row_major(rank)

    def tensor(self, value: int) -> Tensor:
        """A value in memory."""
        if value not in self.tensors:
            held = self.program.values[value]
            if held.role in (Role.WEIGHT, Role.CONSTANT):
                self.tensors[value] = self.weight(value, row_major(held.type.rank))
            else:
                raise InternalError(f"value {value} has no memory")
        return self.tensors[value]

    def weight(self, value: int, layout: Layout) -> Tensor:
        """A weight operand packed in a layout that only permutes."""
        type_ = self.type_of(value)
        nbytes = math.prod(type_.numbers()) * type_.dtype.itemsize
        name = self.frame.weight((value,), Packing("layout", layout=layout), nbytes, STORAGE[type_.dtype])
        return dense(name, type_.dtype, type_.shape, layout)

    def is_weight(self, value: int) -> bool:
        return self.program.values[value].role in (Role.WEIGHT, Role.CONSTANT)

    def result(self, value: int) -> Tensor:
        """Memory for a result: the output, or a temporary."""
        if value in self.out_tensors:
            self.tensors[value] = self.out_tensors[value]
        elif value not in self.tensors:
            type_ = self.type_of(value)
            self.tensors[value] = self.frame.temp(type_.dtype, type_.shape, self.layout_for(type_.rank))
        return self.tensors[value]

    def define(self, value: int, tensor: Tensor) -> None:
        """A value that is a view; copied if it is an output."""
        self.tensors[value] = tensor

    # ------------------------------------------------------------------ stages

    def kernel(self) -> Kernel:
        for op in self.ops:
            if self._folded(op):
                continue
            with self.frame.stage(f"{op.kind} -> {self.type_of(op.outputs[0])}"):
                if op.kind in ELEMENTWISE:
                    self._map(op)
                elif op.kind in REDUCTIONS:
                    self._reduce(op)
                else:
                    stages.EMITTERS[op.kind](self, op)
        text = self.frame.result()
        split = self.point.parts if self.frame.parallel else 1
        return Kernel(
            text=text,
            contraction=self.point.contraction,
            weights=tuple(self.frame.weights),
            workspace=self.frame.workspace,
            params=self.frame.params,
            split=stages.split_of(split),
            in_place=self._in_place(),
        )

    def _in_place(self) -> tuple[tuple[int, int], ...]:
        """A map may overwrite an operand that it reads at the same index with the same element size."""
        if (
            len(self.outputs) != 1
            or any(not self._folded(op) for op in self.ops[:-1])
            or self.ops[-1].kind not in ELEMENTWISE
        ):
            return ()
        out = self.type_of(self.outputs[0])
        layout = self.layouts[-1]
        return tuple(
            (0, i)
            for i, value in enumerate(self.signature.inputs)
            if self.layouts[i] == layout
            and self.type_of(value).shape == out.shape
            and self.type_of(value).dtype.itemsize == out.dtype.itemsize
        )[:1]

    def _map(self, op: Op) -> None:
        value = op.outputs[0]
        out = self.result(value)
        nodes = self._nodes(value, out, computed=value)
        emit_map(self.frame, nodes, out, self.unroll)

    def _reduce(self, op: Op) -> None:
        source, value = op.inputs[0], op.outputs[0]
        axes = op.attributes.integers("axes")
        out = self.result(value)
        shape = self.type_of(source).shape
        if not op.attributes.flag("keepdims"):
            for axis in axes:
                out = out.inserted(axis)
        full = Tensor("", self.type_of(source).dtype, shape, shape)
        nodes = self._nodes(source, full, computed=-1)
        stages.reduce(self, nodes, shape, out, op.kind, axes)

    def _nodes(self, value: int, full: Tensor, *, computed: int) -> list[Node]:
        """Expression of ``value`` over the shape of ``full``, operands before their readers.

        computed: the one value with memory that is computed here all the same.
        """
        nodes: list[Node] = []
        known: dict[tuple[int, int], int] = {}

        def visit(item: int, axis: int) -> int:
            """axis >= 0: a vector along this axis of the result."""
            key = (item, axis)
            if key in known:
                return known[key]
            producer = self.producer.get(item)
            op = None if producer is None else self.ops[producer]
            if op is not None and op.kind in ELEMENTWISE and (item == computed or item not in self.roots):
                args = tuple(visit(v, self._vector_axis(op, i)) for i, v in enumerate(op.inputs) if v >= 0)
                nodes.append(Apply(_call(self.signature, op), args))
            else:
                array = self.signature.constant(item)
                if array is not None and array.size == 1:
                    number: float | int = stages.scalar(array, self.type_of(item).dtype)
                    nodes.append(Constant(number, self.type_of(item).dtype))
                else:
                    tensor = self.tensor(item)
                    if axis >= 0:
                        tensor = _along(tensor, axis)
                    nodes.append(Leaf(tensor.expanded(full.shape)))
            known[key] = len(nodes) - 1
            return known[key]

        visit(value, -1)
        return nodes

    def _vector_axis(self, op: Op, position: int) -> int:
        """Where a scale or zero point varies: rank of the quantized operand times 256 plus the axis; -1: one number."""
        if op.kind not in ("quantize_linear", "dequantize_linear") or position == 0:
            return -1
        vector = self.type_of(op.inputs[position])
        if vector.rank == 0 or vector.elements == 1:
            return -1
        return op.attributes.integer("axis") + (1 << 8) * self.type_of(op.inputs[0]).rank


def _along(tensor: Tensor, code: int) -> Tensor:
    """A vector as a tensor of the rank of the quantized operand, varying along its axis."""
    own, axis = code >> 8, code & 255
    flat = tensor
    for i in range(own):
        if i < axis:
            flat = flat.inserted(0)
        elif i > axis:
            flat = flat.inserted(flat.rank)
    return flat
