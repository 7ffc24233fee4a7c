"""From a signature to a oneDNN problem, or the reason why there is none.

Imported by: backend.  Imports: anchors, epilogue, problem, candidates, phaseir.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias

from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.layouts import Layout, channels_last, row_major
from tribunus.phaseir.program import Role
from tribunus_onednn.epilogue import Affine, Combine, Function, Unmatched, read_steps
from tribunus_onednn.problem import ANY, Argument, Memory, Number, PostOp, Problem

Dims: TypeAlias = "tuple[int, ...]"


class Arrangement(Enum):
    """Layout of the activations at the border."""

    PLAIN = "plain"
    CHANNELS_LAST = "channels-last"

    def layout(self, rank: int) -> Layout:
        """Layout of an operand of this rank."""
        return row_major(rank) if self is Arrangement.PLAIN else channels_last(rank)


class Making(Enum):
    """How the bytes of a weight operand are made."""

    PLAIN = "plain"  # as stored
    CHOSEN = "chosen"  # in the layout that the implementation wants
    SCALE = "batch-norm-scale"  # scale / sqrt(variance + eps)
    SHIFT = "batch-norm-shift"  # bias - mean * scale / sqrt(variance + eps)


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight operand.  sources: value ids.  stored: the plain bytes as oneDNN sees them.  eps: of SCALE and SHIFT."""

    sources: tuple[int, ...]
    memory: str
    making: Making
    stored: Memory
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class Matched:
    """A problem for a signature; memory ``weights`` may still be the implementation's choice."""

    problem: Problem
    weights: tuple[Weight, ...]
    layouts: tuple[Layout, ...]


def dense_strides(dims: Sequence[int], order: Sequence[int]) -> Dims:
    """Strides of a dense tensor whose axes lie in ``order``, slowest first."""
    strides = [1] * len(dims)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, dims[axis])
    return tuple(strides)


def plain_memory(dims: Sequence[int]) -> Memory:
    """A dense row-major memory."""
    return Memory(tuple(dims), dense_strides(dims, range(len(dims))))


def memory_in(dims: Sequence[int], layout: Layout) -> Memory:
    """A dense memory in ``layout``, which must not be blocked."""
    return Memory(tuple(dims), dense_strides(dims, layout.order))


@dataclass(slots=True)
class ProblemBuilder:
    """Collects memories, arguments and weights of a problem."""

    signature: Signature
    arrangement: Arrangement
    memories: list[tuple[str, Memory]] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    post_ops: list[PostOp] = field(default_factory=list)
    _bound: list[tuple[str, int, bool]] = field(default_factory=list)  # argument, value id or weight index, is weight

    def shape(self, value: int) -> Dims:
        """Extents of a value."""
        return self.signature.type_of(value).numbers()

    def is_weight(self, value: int) -> bool:
        """Whether the value's bytes are known when an image is made."""
        return self.signature.program.values[value].role in (Role.WEIGHT, Role.CONSTANT)

    def border(self, value: int) -> Memory:
        """Memory of an input, an output or a stored weight in its own axes."""
        shape = self.shape(value)
        return plain_memory(shape) if self.is_weight(value) else memory_in(shape, self.arrangement.layout(len(shape)))

    def bind(self, name: str, value: int, memory: Memory) -> None:
        """``value`` becomes the argument ``name``, seen as ``memory``."""
        self.memories.append((name, memory))
        if self.is_weight(value):
            self._weight(name, Weight((value,), name, Making.PLAIN, memory))
        else:
            self._bound.append((name, value, False))

    def bind_chosen(self, name: str, value: int, stored: Memory) -> None:
        """A weight in the layout that the implementation chooses; ``stored``: the plain bytes seen in its axes."""
        self.memories.append((name, Memory(stored.dims, None, ANY)))
        self._weight(name, Weight((value,), name, Making.CHOSEN, stored))

    def _weight(self, name: str, weight: Weight) -> None:
        self._bound.append((name, len(self.weights), True))
        self.weights.append(weight)

    def follow(self, value: int, position: int, placed: Placement, bias: Memory | None) -> str:
        """Add what follows ``value`` as bias and post-ops; the reason why that is impossible, or nothing.

        bias: memory of a bias that the primitive takes itself, None where it takes none.
        """
        steps = read_steps(self.signature, value, position)
        if isinstance(steps, Unmatched):
            return steps.reason
        for step in steps:
            if isinstance(step, Function):
                self.post_ops.append(PostOp(step.alg, step.alpha, step.beta))
            elif isinstance(step, Affine):
                self._affine(step, placed)
            elif (reason := self._combine(step, placed, bias)) != "":
                return reason
            bias = None
        return ""

    def _combine(self, step: Combine, placed: Placement, bias: Memory | None) -> str:
        memory = placed.memory(self, step.operand)
        if memory is None:
            return f"an operand of shape {self.shape(step.operand)} has no place beside {placed.result}"
        if bias is not None and step.alg == "binary_add" and memory == bias and self.is_weight(step.operand):
            self.bind("bias", step.operand, memory if placed.bias is None else placed.bias)
            return ""
        name = f"post{len(self.post_ops)}"
        self.post_ops.append(PostOp(step.alg, memory=name))
        self.bind(name, step.operand, memory)
        return ""

    def _affine(self, step: Affine, placed: Placement) -> None:
        channels = placed.dims[1]
        memory = plain_memory(tuple(channels if i == 1 else 1 for i in range(len(placed.dims))))
        for making, alg in ((Making.SCALE, "binary_mul"), (Making.SHIFT, "binary_add")):
            name = f"post{len(self.post_ops)}"
            self.post_ops.append(PostOp(alg, memory=name))
            self.memories.append((name, memory))
            self._weight(name, Weight(step.sources, name, making, memory, step.eps))

    def promote_first(self) -> PostOp:
        """Take the first post-op off: it is the primitive itself, its operand ``src_1``; the others move up by one."""
        names = {"post0": "src_1"} | {f"post{i}": f"post{i - 1}" for i in range(1, len(self.post_ops))}
        first, *rest = (replace(p, memory=names.get(p.memory, "")) for p in self.post_ops)
        self.post_ops = rest
        self.memories = [(names.get(name, name), memory) for name, memory in self.memories]
        self.weights = [replace(w, memory=names.get(w.memory, w.memory)) for w in self.weights]
        self._bound = [(names.get(name, name), index, weight) for name, index, weight in self._bound]
        return first

    def finish(self, op: str, alg: str = "", numbers: Sequence[tuple[str, Number]] = ()) -> Matched:
        """The problem; buffers are inputs, outputs, weights."""
        border = (*self.signature.inputs, *self.signature.outputs)
        position = {value: i for i, value in enumerate(border)}
        arguments = tuple(
            Argument(name, len(border) + index if weight else position[index], name)
            for name, index, weight in self._bound
        )
        problem = Problem(op, alg, tuple(self.memories), tuple(sorted(numbers)), tuple(self.post_ops), arguments)
        layouts = tuple(self.arrangement.layout(len(self.shape(v))) for v in border)
        return Matched(problem, tuple(self.weights), layouts)


@dataclass(frozen=True, slots=True)
class Placement:
    """How operands that broadcast against the result are seen in the primitive's axes.

    result: shape of the result.  dims: the same in the primitive's axes.  rows: whether all axes but the last became
    one.  bias: memory of the bias where the primitive wants other axes than the result's.
    """

    result: Dims
    dims: Dims
    rows: bool = False
    bias: Memory | None = None

    def memory(self, builder: ProblemBuilder, value: int) -> Memory | None:
        """Memory of an operand, None where its axes cannot be mapped."""
        shape = builder.shape(value)
        if len(shape) > len(self.result):
            return None
        padded = (1,) * (len(self.result) - len(shape)) + shape
        if self.rows:
            if padded == self.result:
                return plain_memory(self.dims)
            return plain_memory((1, padded[-1])) if all(d == 1 for d in padded[:-1]) else None
        if self.dims != self.result:
            return plain_memory(self.dims) if padded == self.result else None
        if builder.is_weight(value):
            return plain_memory(padded)
        layout = builder.arrangement.layout(len(shape))
        if len(shape) != len(self.result):
            return plain_memory(padded) if layout.is_row_major else None
        return memory_in(shape, layout)


SUPPORTED: Final = frozenset((DType.F32,))


def why_not(signature: Signature) -> str:
    """What keeps any primitive from serving the signature, or nothing."""
    if signature.symbols:
        return "its primitives are made for one shape, and the signature has symbolic dims"
    if len(signature.outputs) != 1:
        return "the group has several results"
    for index, value in enumerate(signature.program.values):
        if value.role is Role.CONSTANT and signature.constant(index) is not None and value.type.elements == 1:
            continue
        if value.type.dtype not in SUPPORTED:
            return f"only f32 is served here, and an operand is {value.type.dtype}"
        if any(extent == 0 for extent in value.type.numbers()):
            return "an operand is empty"
    return ""
