"""Attention: scores, scale and mask, softmax, weighted sum, with the transpositions around them.

Imported by: partition.  Imports: view, normalization, draft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tribunus.passes.patterns.draft import Alternatives, Draft, distinct, finest, single
from tribunus.passes.patterns.normalization import Norm
from tribunus.passes.view import PhaseView

MAX_SCORE_OPS: Final = 4
Free = Callable[[int], bool]


def match_attention(view: PhaseView, softmax: Norm, free: Free) -> Alternatives | None:
    """The region around a softmax whose probabilities are used by one matrix product; None where there is none."""
    product = view.only_user(softmax.value)
    if product is None or view.kind(product) != "matmul" or view.ops[product].inputs[0] != softmax.value:
        return None
    if _axis(view, softmax) != view.type_of(softmax.source).rank - 1:
        return None
    found = _scores(view, softmax.source)
    if found is None or (view.only_user(softmax.source) is None and len(softmax.ops) == 1):
        return None
    scores, between = found
    core = (scores, *between, *softmax.ops, product)
    if not all(free(op) for op in core if op not in softmax.ops) or not view.has_one_exit(core):
        return None
    around = _around(view, (*view.ops[scores].inputs, view.ops[product].inputs[1]), free)
    after = view.only_user(view.result(product))
    if after is not None and view.kind(after) == "transpose" and free(after):
        around = (*around, after)
    middle = Draft.of("chain+softmax" if between else softmax.label, (*between, *softmax.ops))
    products = (single(view, scores), single(view, product))
    outside = finest(view, around)
    return distinct(
        (
            (Draft.of("attention", (*core, *around)),),
            (Draft.of("attention", core), *outside),
            (middle, *products, *outside),
            (*finest(view, between), Draft.of(softmax.label, softmax.ops), *products, *outside),
            finest(view, (*core, *around)),
        )
    )


def _axis(view: PhaseView, softmax: Norm) -> int:
    if len(softmax.ops) == 1:
        return view.ops[softmax.ops[0]].attributes.integer("axis")
    return view.ops[softmax.ops[0]].attributes.integers("axes")[0]


def _scores(view: PhaseView, value: int) -> tuple[int, tuple[int, ...]] | None:
    """The matrix product that ``value`` comes from, and the scale and mask ops between."""
    between: list[int] = []
    current = value
    while len(between) <= MAX_SCORE_OPS:
        op = view.producer(current)
        if op is None or (current != value and view.only_user(current) is None):
            return None
        kind = view.kind(op)
        if kind == "matmul":
            dynamic = not any(view.is_constant(v) for v in view.ops[op].inputs)
            return (op, tuple(reversed(between))) if dynamic else None
        if kind not in ("mul", "div", "add", "sub", "where", "maximum", "minimum"):
            return None
        operands = view.ops[op].inputs[1:] if kind == "where" else view.ops[op].inputs
        inner = [v for v in operands if view.producer(v) is not None and view.same_shape(v, current)]
        inner = [v for v in inner if not _is_mask(view, v)]
        if len(inner) != 1:
            return None
        between.append(op)
        current = inner[0]
    return None


def _is_mask(view: PhaseView, value: int) -> bool:
    """Whether a tensor of the scores' shape is not the scores: no product leads to it within a few ops."""
    current = value
    for _ in range(MAX_SCORE_OPS + 1):
        op = view.producer(current)
        if op is None:
            return True
        if view.kind(op) == "matmul":
            return False
        candidates = [v for v in view.operands(op) if view.same_shape(v, value)]
        if not candidates:
            return True
        current = candidates[0]
    return True


def _around(view: PhaseView, operands: tuple[int, ...], free: Free) -> tuple[int, ...]:
    """Transpositions and scalings that only serve the two products."""
    found: list[int] = []
    for operand in operands:
        value = operand
        while (op := view.producer(value)) is not None and view.only_user(value) is not None and free(op):
            scaled = view.kind(op) in ("mul", "div") and any(view.scalar(v) is not None for v in view.operands(op))
            if view.kind(op) != "transpose" and not scaled:
                break
            found.append(op)
            value = next(v for v in view.ops[op].inputs if view.scalar(v) is None)
    return tuple(dict.fromkeys(found))
