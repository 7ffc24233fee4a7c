"""Convolutions and matrix products with what follows them: bias, scale, activation, residual, quantization.

Imported by: partition.  Imports: view, activation, draft.

An epilogue part reads the value so far and constants; at most one part reads another tensor of the same shape.  A
part is taken only if nothing else reads the value before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tribunus.passes.patterns.activation import Step, match_activation
from tribunus.passes.patterns.chains import chain_label
from tribunus.passes.patterns.draft import Alternatives, Draft, distinct, finest, own_label
from tribunus.passes.view import PhaseView
from tribunus.phaseir.ops import Family
from tribunus.phaseir.types import TensorType

MAX_STEPS: Final = 10
ANCHORS: Final = frozenset(("conv", "conv_transpose", "matmul", "conv_integer", "matmul_integer"))
Free = Callable[[int], bool]


class Epilogue:
    """An anchor op with the parts that were found after it, in order."""

    def __init__(self, view: PhaseView, anchor: int, prologue: tuple[int, ...], steps: tuple[Step, ...]) -> None:
        self.view = view
        self.anchor = anchor
        self.prologue = prologue
        self.steps = steps

    @property
    def ops(self) -> tuple[int, ...]:
        """All ops, ascending."""
        return tuple(sorted((self.anchor, *self.prologue, *(op for step in self.steps for op in step.ops))))

    @property
    def last(self) -> Step | None:
        """The last part."""
        return self.steps[-1] if self.steps else None

    def draft(self, count: int) -> Draft:
        """The group of the anchor and its first ``count`` parts."""
        taken = self.steps[:count]
        parts = [own_label(self.view, self.anchor)]
        for step in taken:
            if step.label != parts[-1]:
                parts.append(step.label)
        label = ("qdq_" if self.prologue else "") + "+".join(parts)
        return Draft.of(label, (self.anchor, *self.prologue, *(op for step in taken for op in step.ops)))

    def without(self, count: int) -> tuple[Draft, ...]:
        """The parts after the first ``count``, as groups of their own."""
        rest = self.steps[count:]
        ops = [op for step in rest for op in step.ops]
        if not ops:
            return ()
        if any(self.view.family(op) is not Family.ELEMENTWISE for op in ops):
            return tuple(d for step in rest for d in _step_drafts(self.view, step))
        return (Draft.of("chain", ops),) if len(ops) > 1 else finest(self.view, ops)

    def alternatives(self) -> Alternatives:
        """Everything fused; without residual; anchor with bias only; every op on its own."""
        residual = next((i for i, step in enumerate(self.steps) if step.label in ("add", "mul")), len(self.steps))
        biased = 1 if self.steps and self.steps[0].label == "bias" else 0
        cuts = dict.fromkeys((len(self.steps), residual, biased))
        return distinct((*((self.draft(count), *self.without(count)) for count in cuts), finest(self.view, self.ops)))


def grow(view: PhaseView, anchor: int, free: Free) -> Epilogue:
    """The longest epilogue of ``anchor`` among the ops that are free."""
    prologue = _dequantized(view, anchor, free)
    steps: list[Step] = []
    value = view.result(anchor)
    while len(steps) < MAX_STEPS:
        step = _next_step(view, anchor, value, steps, bool(prologue))
        if step is None or not all(free(op) for op in step.ops):
            break
        steps.append(step)
        value = step.value
        if step.label == "quantize":
            break
    return Epilogue(view, anchor, prologue, tuple(steps))


def _next_step(view: PhaseView, anchor: int, value: int, steps: list[Step], quantized: bool) -> Step | None:
    if value in view.kept:
        return None
    op = view.only_user(value)
    if op is not None and quantized and view.kind(op) == "quantize_linear" and view.ops[op].inputs[0] == value:
        return Step("quantize", (op,), view.result(op))
    if op is not None and view.kind(op) == "cast" and view.kind(anchor).endswith("_integer") and not steps:
        return Step("cast", (op,), view.result(op))
    if op is not None and view.kind(op) == "batch_norm" and view.ops[op].inputs[0] == value:
        constant = all(view.is_constant(v) for v in view.ops[op].inputs[1:])
        return Step("scale", (op,), view.result(op)) if constant else None
    binary = None if op is None else _binary(view, anchor, value, op, steps)
    return binary or match_activation(view, value)


def _binary(view: PhaseView, anchor: int, value: int, op: int, steps: list[Step]) -> Step | None:
    """Bias, scale, or residual."""
    kind = view.kind(op)
    if kind not in ("add", "sub", "mul", "div") or not view.same_shape(view.result(op), value):
        return None
    left, right = view.ops[op].inputs
    other = right if left == value else left
    if other == value:
        return None
    type_ = view.type_of(value)
    helper = _constant_dequantize(view, other, op)
    source = other if helper is None else view.ops[helper].inputs[0]
    ops = (op,) if helper is None else (helper, op)
    if view.is_vector(source, type_):
        bias = kind == "add" and not steps and _along_channels(view, anchor, source, type_)
        return Step("bias" if bias else "scale", ops, view.result(op))
    residual = kind in ("add", "mul") and view.same_shape(other, value) and helper is None
    if residual and all(step.label not in ("add", "mul") for step in steps):
        return Step(kind, (op,), view.result(op))
    return None


def _along_channels(view: PhaseView, anchor: int, vector: int, type_: TensorType) -> bool:
    """Whether a vector varies along the axis of output channels (or is a number)."""
    shape = (1,) * (type_.rank - view.type_of(vector).rank) + view.type_of(vector).shape
    axis = 1 if view.family(anchor) is Family.CONV else type_.rank - 1
    return all(d == 1 or i == axis for i, d in enumerate(shape))


def _constant_dequantize(view: PhaseView, value: int, user: int) -> int | None:
    """The op that dequantizes constants into ``value`` for ``user`` alone."""
    op = view.producer(value)
    if op is None or view.kind(op) != "dequantize_linear" or view.only_user(value) != user:
        return None
    return op if all(view.is_constant(v) for v in view.operands(op)) else None


def _dequantized(view: PhaseView, anchor: int, free: Free) -> tuple[int, ...]:
    """The dequantizations that feed an anchor, if both of its factors are quantized; else none."""
    found: list[int] = []
    for position, value in enumerate(view.ops[anchor].inputs):
        op = None if value < 0 else view.producer(value)
        fits = op is not None and view.kind(op) == "dequantize_linear" and view.only_user(value) == anchor
        if op is not None and fits and free(op):
            found.append(op)
        elif position < 2:
            return ()
    return tuple(found)


def _step_drafts(view: PhaseView, step: Step) -> tuple[Draft, ...]:
    return (Draft.of(chain_label(view, step.ops), step.ops),) if len(step.ops) > 1 else finest(view, step.ops)
