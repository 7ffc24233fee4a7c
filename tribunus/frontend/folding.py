"""Values known while lowering: what an op makes of small tensors whose elements are numbers or dim expressions.

Imported by: lowering.  Imports: dims, ratio.

Contents are NumPy arrays: of the dtype's own storage where every element is a number, of objects where some are dim
expressions (integers: Dim; floating point: Ratio).  Numbers follow the dtype's own arithmetic exactly.  ``fold``
answers None wherever the result is not decided for every value of the symbols.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import numpy as np

from tribunus.frontend import limits
from tribunus.frontend.element_types import integer_range
from tribunus.frontend.ratio import Ratio
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Compound, Dim, DimScope, Sym
from tribunus.phaseir.program import Array
from tribunus.phaseir.types import TensorType

Element: TypeAlias = "int | Sym | Compound | Ratio | bool"

_NATIVE: Final = frozenset(
    (
        DType.F64,
        DType.F32,
        DType.F16,
        DType.I64,
        DType.I32,
        DType.I16,
        DType.I8,
        DType.U64,
        DType.U32,
        DType.U16,
        DType.U8,
        DType.BOOL,
    )
)


class _Undecided(Exception):
    """The result depends on the values of the symbols."""


def is_symbolic(array: Array) -> bool:
    """Whether some element is a dim expression."""
    return array.dtype == np.object_


def contents_of_dims(values: Sequence[Dim], shape: tuple[int, ...], dtype: DType) -> Array:
    """Contents of an integer tensor whose elements, row-major, are ``values``."""
    found = np.empty(len(values), np.object_)
    for i, value in enumerate(values):
        found[i] = value
    return _settle(found.reshape(shape), dtype)


def dims_of_contents(array: Array) -> tuple[Dim, ...]:
    """Elements of an integer tensor, row-major."""
    return tuple(cast(Dim, element) for element in array.astype(np.object_).reshape(-1))


def fold(
    kind: str,
    arrays: Sequence[Array],
    types: Sequence[TensorType],
    attributes: Attributes,
    result: TensorType,
    scope: DimScope,
) -> Array | None:
    """Contents of the op's result, or None where they are not known or too large to track."""
    if not result.is_static:
        return None
    shape = result.numbers()
    if max((math.prod(shape), *(int(a.size) for a in arrays))) > limits.FOLD_ELEMENTS:
        return None
    move = MOVES.get(kind)
    if move is not None:
        return move(arrays, attributes, shape)
    if any(t.dtype not in _NATIVE for t in types) or result.dtype not in _NATIVE:
        return None
    if any(is_symbolic(a) for a in arrays):
        return _fold_symbolic(kind, arrays, types, attributes, result, scope)
    with np.errstate(all="ignore"):
        return _fold_numbers(kind, arrays, attributes, result)


# movement: the same for numbers and expressions ---------------------------------------------------------------------
def _slice(arrays: Sequence[Array], attributes: Attributes, shape: tuple[int, ...]) -> Array | None:
    found = arrays[0]
    starts, steps = attributes.dims("starts"), attributes.integers("steps")
    for axis, (start, size, step) in enumerate(zip(starts, shape, steps, strict=True)):
        if not isinstance(start, int):
            return None
        found = np.take(found, start + step * np.arange(size), axis=axis)
    return found


def _gather(arrays: Sequence[Array], attributes: Attributes, shape: tuple[int, ...]) -> Array | None:
    data, indices = arrays
    axis = attributes.integer("axis")
    extent = data.shape[axis]
    if is_symbolic(indices) or not bool(
        np.all((indices.astype(np.int64) >= -extent) & (indices.astype(np.int64) < extent))
    ):
        return None
    taken: Array = np.asarray(np.take(data, indices.astype(np.int64), axis=axis))
    return taken


def _pad(arrays: Sequence[Array], attributes: Attributes, shape: tuple[int, ...]) -> Array | None:
    before, after = attributes.dims("before"), attributes.dims("after")
    widths = [(b, a) for b, a in zip(before, after, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if attributes.text("mode") != "constant" or len(widths) != len(before) or min(map(min, widths), default=0) < 0:
        return None
    if (len(arrays) == 2 and is_symbolic(arrays[1])) or arrays[0].dtype.kind not in "iuO":
        return None
    value = int(arrays[1].reshape(-1).astype(np.int64)[0]) if len(arrays) == 2 else 0
    return np.pad(arrays[0], widths, constant_values=value)


_Move: TypeAlias = "Callable[[Sequence[Array], Attributes, tuple[int, ...]], Array | None]"

MOVES: Final[Mapping[str, _Move]] = MappingProxyType(
    {
        "copy": lambda arrays, attributes, shape: arrays[0],
        "reshape": lambda arrays, attributes, shape: arrays[0].reshape(shape),
        "transpose": lambda arrays, attributes, shape: np.transpose(arrays[0], attributes.integers("perm")),
        "expand": lambda arrays, attributes, shape: np.broadcast_to(arrays[0], shape),
        "concat": lambda arrays, attributes, shape: np.concatenate(_alike(arrays), axis=attributes.integer("axis")),
        "tile": lambda arrays, attributes, shape: np.tile(arrays[0], attributes.integers("repeats")),
        "slice": _slice,
        "gather": _gather,
        "pad": _pad,
    }
)


def _alike(arrays: Sequence[Array]) -> list[Array]:
    symbolic = any(is_symbolic(a) for a in arrays)
    return [a.astype(np.object_) if symbolic else a for a in arrays]


# numbers ------------------------------------------------------------------------------------------------------------
_UNARY: Final[Mapping[str, Callable[[Array], Array]]] = MappingProxyType(
    {
        "abs": np.abs,
        "neg": np.negative,
        "sign": np.sign,
        "floor": np.floor,
        "ceil": np.ceil,
        "round": np.rint,
        "sqrt": np.sqrt,
        "reciprocal": np.reciprocal,
        "not": np.logical_not,
        "is_nan": np.isnan,
    }
)
_BINARY: Final[Mapping[str, Callable[[Array, Array], Array]]] = MappingProxyType(
    {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "minimum": np.minimum,
        "maximum": np.maximum,
        "equal": np.equal,
        "less": np.less,
        "less_equal": np.less_equal,
        "greater": np.greater,
        "greater_equal": np.greater_equal,
        "and": np.logical_and,
        "or": np.logical_or,
        "xor": np.logical_xor,
    }
)
_REDUCE: Final = MappingProxyType({"reduce_max": np.max, "reduce_min": np.min})


def _fold_numbers(kind: str, arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array | None:
    storage = result.dtype.numpy
    if kind == "relu":
        return np.asarray(np.maximum(arrays[0], np.zeros((), storage)), storage)
    if kind in _UNARY:
        return np.asarray(_UNARY[kind](arrays[0]), storage)
    if kind in _BINARY:
        return np.asarray(_BINARY[kind](arrays[0], arrays[1]), storage)
    if kind == "div":
        return _divide(arrays[0], arrays[1], result.dtype)
    if kind == "where":
        return np.asarray(np.where(arrays[0], arrays[1], arrays[2]), storage)
    if kind == "cast":
        return _cast(arrays[0], result.dtype)
    if kind in ("reduce_max", "reduce_min", "reduce_sum", "reduce_prod") and arrays[0].size and result.dtype.is_integer:
        axes, keep = attributes.integers("axes"), attributes.flag("keepdims")
        if kind in _REDUCE:
            return np.asarray(_REDUCE[kind](arrays[0], axis=axes, keepdims=keep), storage)
        reduce: np.ufunc = np.add if kind == "reduce_sum" else np.multiply
        return np.asarray(reduce.reduce(arrays[0], axis=axes, keepdims=keep, dtype=storage), storage)
    if (
        kind == "cumsum"
        and result.dtype.is_integer
        and not attributes.flag("exclusive")
        and not attributes.flag("reverse")
    ):
        return np.asarray(np.add.accumulate(arrays[0], axis=attributes.integer("axis"), dtype=storage), storage)
    return None


def _divide(left: Array, right: Array, dtype: DType) -> Array | None:
    if dtype.is_float:
        return np.asarray(np.divide(left, right), dtype.numpy)
    if not bool(np.all(right != 0)):
        return None
    numbers = _map(_truncated, [left.astype(np.object_), right.astype(np.object_)])
    return np.asarray(numbers).astype(dtype.numpy)


def _truncated(left: int, right: int) -> int:
    """The quotient rounded toward zero, as integer division is defined."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _cast(array: Array, dtype: DType) -> Array | None:
    if array.dtype.kind == "f" and not dtype.is_float:
        if dtype is DType.BOOL:
            return np.asarray(array != 0)
        low, high = integer_range(dtype)
        wide = array.astype(np.float64)
        if not bool(np.all(np.isfinite(wide) & (wide > float(low) - 1) & (wide < float(high)))):
            return None
    return array.astype(dtype.numpy)


# expressions --------------------------------------------------------------------------------------------------------
def _fold_symbolic(
    kind: str,
    arrays: Sequence[Array],
    types: Sequence[TensorType],
    attributes: Attributes,
    result: TensorType,
    scope: DimScope,
) -> Array | None:
    boxed = [_box(a, t.dtype) for a, t in zip(arrays, types, strict=True)]
    if any(b is None for b in boxed):
        return None
    found = [b for b in boxed if b is not None]
    floats = types[0].dtype.is_float
    try:
        if kind == "where":
            return (
                None
                if is_symbolic(arrays[0])
                else _settle(np.asarray(np.where(arrays[0], found[1], found[2]), np.object_), result.dtype)
            )
        if kind == "cast":
            convert = functools.partial(_cast_element, source=types[0].dtype, target=result.dtype, scope=scope)
            return _settle(_map(convert, found), result.dtype)
        if kind.startswith("reduce_") and not floats:
            return _reduce(kind, found[0], attributes, result, scope)
        table = _ON_RATIOS if floats else _ON_DIMS
        if kind not in table:
            return None
        combined = _map(functools.partial(table[kind], scope), found)
        if floats:
            _require_exact(combined, types[0].dtype, scope)
        return _settle(combined, result.dtype)
    except _Undecided:
        return None


def _box(array: Array, dtype: DType) -> Array | None:
    """Contents as objects: Dim for integers, Ratio for floating point, bool; None where a number has no exact form."""
    if is_symbolic(array):
        return array
    if not dtype.is_float:
        return array.astype(np.object_)
    if not bool(np.all(np.isfinite(array))):
        return None
    return _map(lambda x: Ratio(*Fraction(float(x)).as_integer_ratio()), [array.astype(np.object_)])


def _map(function: Callable[..., object], arrays: Sequence[Array]) -> Array:
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), np.object_)


def _settle(array: Array, dtype: DType) -> Array:
    """Back to the dtype's own storage where every element is a number."""
    elements: list[object] = list(array.reshape(-1))
    integers = [int(e) for e in elements if isinstance(e, int | np.integer | np.bool_)]
    if len(integers) == len(elements):
        return np.array(integers, dtype.numpy).reshape(array.shape)
    numbers = [e.numerator / e.denominator for e in elements if isinstance(e, Ratio) and isinstance(e.numerator, int)]
    if len(numbers) == len(elements):
        return np.array(numbers, dtype.numpy).reshape(array.shape)
    return array


def _reduce(kind: str, array: Array, attributes: Attributes, result: TensorType, scope: DimScope) -> Array | None:
    steps: dict[str, Callable[[Dim, Dim], Dim]] = {
        "reduce_sum": dims.add,
        "reduce_prod": dims.mul,
        "reduce_max": functools.partial(_extreme, scope, "max"),
        "reduce_min": functools.partial(_extreme, scope, "min"),
    }
    if kind not in steps or not array.size:
        return None
    axes = attributes.integers("axes")
    moved = np.moveaxis(array, axes, range(len(axes)))
    rows = moved.reshape(-1, *moved.shape[len(axes) :])
    total = functools.reduce(lambda a, b: _map(steps[kind], [a, b]), list(rows))
    return _settle(np.asarray(total, np.object_).reshape(result.numbers()), result.dtype)


def _extreme(scope: DimScope, which: str, left: Dim, right: Dim) -> Dim:
    if scope.at_least(dims.sub(right, left), 0):
        return right if which == "max" else left
    if scope.at_least(dims.sub(left, right), 0):
        return left if which == "max" else right
    return dims.maximum(left, right) if which == "max" else dims.minimum(left, right)


def _quotient(scope: DimScope, left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int) and right:
        return _truncated(left, right)
    if not scope.at_least(right, 1):
        raise _Undecided
    if not scope.at_least(left, 0) and dims.mul(dims.floordiv(left, right), right) != left:
        raise _Undecided  # truncation and floor differ below zero
    return dims.floordiv(left, right)


def _relation(test: Callable[[int, int], bool], scope: DimScope, left: Dim, right: Dim) -> bool:
    """The comparison with 0 of a difference whose sign is decided."""
    lo, hi = scope.bounds(dims.sub(left, right))
    if test(lo, 0) == test(hi, 0) and (test is not operator.eq or lo == hi or lo > 0 or hi < 0):
        return test(lo, 0)
    if scope.equal(left, right):
        return test(0, 0)
    raise _Undecided


def _sign_decided(scope: DimScope, value: Dim) -> Dim:
    if scope.at_least(value, 0):
        return value
    if scope.bounds(value)[1] <= 0:
        return dims.mul(value, -1)
    raise _Undecided


_ON_DIMS: Final[Mapping[str, Callable[..., object]]] = MappingProxyType(
    {
        "add": lambda scope, a, b: dims.add(a, b),
        "sub": lambda scope, a, b: dims.sub(a, b),
        "mul": lambda scope, a, b: dims.mul(a, b),
        "div": _quotient,
        "neg": lambda scope, a: dims.mul(a, -1),
        "abs": _sign_decided,
        "relu": lambda scope, a: _extreme(scope, "max", a, 0),
        "minimum": lambda scope, a, b: _extreme(scope, "min", a, b),
        "maximum": lambda scope, a, b: _extreme(scope, "max", a, b),
        "equal": functools.partial(_relation, operator.eq),
        "less": functools.partial(_relation, operator.lt),
        "less_equal": functools.partial(_relation, operator.le),
        "greater": functools.partial(_relation, operator.gt),
        "greater_equal": functools.partial(_relation, operator.ge),
    }
)


def _times(scope: DimScope, left: Ratio, right: Ratio) -> Ratio:
    if isinstance(right.numerator, int):
        return left.times(Fraction(right.numerator, right.denominator))
    if isinstance(left.numerator, int):
        return right.times(Fraction(left.numerator, left.denominator))
    return Ratio(dims.mul(left.numerator, right.numerator), left.denominator * right.denominator)


def _over(scope: DimScope, left: Ratio, right: Ratio) -> Ratio:
    if isinstance(right.numerator, int) and right.numerator > 0:
        return left.times(Fraction(right.denominator, right.numerator))
    raise _Undecided


_ON_RATIOS: Final[Mapping[str, Callable[..., object]]] = MappingProxyType(
    {
        "add": lambda scope, a, b: a.plus(b),
        "sub": lambda scope, a, b: a.plus(b.times(Fraction(-1))),
        "mul": _times,
        "div": _over,
        "neg": lambda scope, a: a.times(Fraction(-1)),
        "floor": lambda scope, a: Ratio(a.floor()),
        "ceil": lambda scope, a: Ratio(a.ceil()),
    }
)


def _cast_element(element: Element, source: DType, target: DType, scope: DimScope) -> object:
    if isinstance(element, Ratio):
        if target.is_float:
            return element
        if target is DType.BOOL:
            raise _Undecided
        if not scope.at_least(element.numerator, 0) and element.denominator != 1:
            raise _Undecided  # truncation and floor differ below zero
        return element.floor()
    if target.is_float:
        boxed = Ratio(element)
        _require_exact_element(boxed, target, scope)
        return boxed
    if target is DType.BOOL:
        return not _relation(operator.eq, scope, element, 0)
    low, high = integer_range(target)
    lo, hi = scope.bounds(element)
    if lo < low or hi > high:
        raise _Undecided
    return element


def _require_exact(array: Array, dtype: DType, scope: DimScope) -> None:
    for element in array.reshape(-1):
        if isinstance(element, Ratio):
            _require_exact_element(element, dtype, scope)


def _require_exact_element(element: Ratio, dtype: DType, scope: DimScope) -> None:
    """Numerators below 2**p keep floor and ceil of a rounded quotient equal to those of the exact one."""
    precision = {DType.F64: 53, DType.F32: 24, DType.F16: 11}[dtype]
    lo, hi = scope.bounds(element.numerator)
    if max(abs(lo), abs(hi)) >= 2**precision or element.denominator >= 2**precision:
        raise _Undecided
