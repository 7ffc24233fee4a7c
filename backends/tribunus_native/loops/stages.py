"""The table of stages: op kind -> what writes its loops.

Imported by: lower, match.generic.  Imports: the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Shape
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array, Op
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import ONE_PART, WorkSplit
from tribunus_native.loops import (
    indexing,
    integer_product,
    movement,
    normalize,
    product,
    recurrent,
    resize,
    search,
    window,
)
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import COMPUTABLE
from tribunus_native.loops.frame import Tensor
from tribunus_native.loops.nest import Node, Reduction, emit_copy, emit_reduce, reading_order

Emitter = Callable[[Group, Op], None]

EMITTERS: Mapping[str, Emitter] = MappingProxyType(
    {
        **movement.EMITTERS,
        **indexing.EMITTERS,
        **search.EMITTERS,
        **normalize.EMITTERS,
        **product.EMITTERS,
        **integer_product.EMITTERS,
        **window.EMITTERS,
        **resize.EMITTERS,
        **recurrent.EMITTERS,
    }
)
_MOVES = frozenset((*movement.EMITTERS, *indexing.MOVES))
_FLOAT32_ONLY = frozenset((*recurrent.EMITTERS,))
_SERIAL = frozenset(
    (*normalize.EMITTERS, *product.EMITTERS, *integer_product.EMITTERS, *recurrent.EMITTERS, *resize.EMITTERS,
     *indexing.SERIAL, *search.EMITTERS, "pad", "reshape")
)  # fmt: skip


def why_not(kind: str, types: Sequence[TensorType]) -> str:
    """Why a stage does not take operands of these types."""
    if kind in _MOVES:
        return ""
    bad = [t.dtype for t in types if t.dtype not in COMPUTABLE]
    if bad:
        return f"{kind} of {bad[0]} is not computed"
    if kind in _FLOAT32_ONLY and any(t.dtype.is_float and t.dtype is not DType.F32 for t in types):
        return f"{kind} is computed in f32 only"
    return ""


def is_serial(kind: str) -> bool:
    """Whether a stage shares memory between its loops, so that parts cannot split it."""
    return kind in _SERIAL


def split_of(parts: int) -> WorkSplit:
    """The static partition of a kernel."""
    return ONE_PART if parts == 1 else WorkSplit("outermost axis", parts)


def scalar(array: Array, dtype: DType) -> float | int:
    """The number in an inline constant of one element."""
    value = np.asarray(array).reshape(-1)[0]
    if dtype is DType.BF16:
        return float((np.asarray([value], dtype=np.uint32) << 16).view(np.float32)[0])
    return float(value) if dtype.is_float else int(value)


def reduce(group: Group, nodes: Sequence[Node], shape: Shape, out: Tensor, kind: str, axes: tuple[int, ...]) -> None:
    """Fold an expression over ``axes``.

    Where the result lies in another order than what is read, it is folded in the order of reading, which is far more
    of both, and the result copied.
    """
    count = dims.product([shape[a] for a in axes])
    order = reading_order(group.frame, nodes, out, axes)
    target = out
    if order is not None and not group.frame.parallel:
        target = group.frame.temp(out.dtype, out.shape, Layout(order))
    emit_reduce(group.frame, nodes, shape, target, Reduction(kind, axes, count), group.unroll)
    if target is not out:
        emit_copy(group.frame, target, out)
