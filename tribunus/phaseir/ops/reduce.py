"""Reductions over axes.

Imported by: the op table.  ``axes`` are ascending and counted from the front; ``keepdims`` is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Dim, DimScope
from tribunus.phaseir.ops.spec import (
    Contract,
    Family,
    OpSpec,
    Types,
    operand,
    per_input_element,
    require,
)
from tribunus.phaseir.types import TensorType


def _reduced(type_: TensorType, axes: tuple[int, ...], keepdims: bool, kind: str) -> tuple[Dim, ...]:
    require(kind, tuple(sorted(set(axes))) == axes, f"axes {axes} must ascend")
    require(kind, all(0 <= a < type_.rank for a in axes), f"axes {axes} of rank {type_.rank}")
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(type_.shape))
    return tuple(d for i, d in enumerate(type_.shape) if i not in axes)


def _infer_axes(kind: str) -> Callable[[Types, Attributes, DimScope], tuple[TensorType, ...]]:
    def infer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
        x = operand(types, 0, kind)
        require(kind, x.dtype is not DType.BOOL, "bool operands are not defined")
        return (TensorType(x.dtype, _reduced(x, attributes.integers("axes"), attributes.flag("keepdims"), kind)),)

    return infer


def _infer_arg(kind: str) -> Callable[[Types, Attributes, DimScope], tuple[TensorType, ...]]:
    def infer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
        x = operand(types, 0, kind)
        shape = _reduced(x, (attributes.integer("axis"),), attributes.flag("keepdims"), kind)
        return (TensorType(DType.I64, shape),)

    return infer


def _infer_cumsum(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "cumsum")
    require("cumsum", 0 <= attributes.integer("axis") < x.rank, "axis out of range")
    return (TensorType(x.dtype, x.shape),)


_ONNX: Final = "ONNX ReduceX, ArgMax, ArgMin, CumSum"
_AXES: Final = ("axes", "keepdims")

SPECS: Final[tuple[OpSpec, ...]] = (
    *(
        OpSpec(k, Family.REDUCE, (1, 1), _AXES, Contract.SUM, _infer_axes(k), per_input_element(w), _ONNX)
        for k, w in (
            ("reduce_sum", 1),
            ("reduce_mean", 1),
            ("reduce_prod", 1),
            ("reduce_l1", 1),
            ("reduce_l2", 2),
            ("reduce_sum_square", 2),
        )
    ),
    # NaN in a slice gives NaN
    *(
        OpSpec(k, Family.REDUCE, (1, 1), _AXES, Contract.EXACT, _infer_axes(k), per_input_element(1), _ONNX)
        for k in ("reduce_max", "reduce_min")
    ),
    # select_last: 1 takes the last of equal extremes, 0 the first
    *(
        OpSpec(
            k,
            Family.DISCRETE,
            (1, 1),
            ("axis", "keepdims", "select_last"),
            Contract.DISCRETE,
            _infer_arg(k),
            per_input_element(1),
            _ONNX,
        )
        for k in ("arg_max", "arg_min")
    ),
    OpSpec(
        "cumsum",
        Family.REDUCE,
        (1, 1),
        ("axis", "exclusive", "reverse"),
        Contract.SUM,
        _infer_cumsum,
        per_input_element(1),
        _ONNX,
    ),
)
