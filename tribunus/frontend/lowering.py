"""Lowering of one node: operands, what is known of them, and how rules emit ops.

Imported by: lower, rules.  Imports: graph, folding, phaseir.  Knows no protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tribunus.errors import LoweringError
from tribunus.frontend import folding, limits
from tribunus.frontend.graph import Node, NodeAttribute, Tensor
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32, Attributes, AttributeValue
from tribunus.phaseir.dims import Dim, DimScope, Shape
from tribunus.phaseir.ops import TypeRuleError, spec_of
from tribunus.phaseir.program import Array, ProgramBuilder, Role
from tribunus.phaseir.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A value during lowering.

    contents: its elements, where they are known (see ``folding``).  key: position in the lowering's table of
    materialised values.  label: the model's name for it.
    """

    type: TensorType
    key: int
    contents: Array | None = None
    label: str = ""

    @property
    def shape(self) -> Shape:
        """Extents of the axes."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.type.rank

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def numbers(self) -> Array | None:
        """Contents where every element is a number, else None."""
        return None if self.contents is None or folding.is_symbolic(self.contents) else self.contents


@dataclass(frozen=True, slots=True)
class Site:
    """One node with its operands, as its rule sees it.

    version: opset of the node's domain.  live: which outputs something reads.  asked: attributes that the rule looked
    at; one that it did not know of must not pass in silence.
    """

    node: Node
    version: int
    operands: tuple[Operand | None, ...]
    live: tuple[bool, ...]
    asked: set[str] = field(default_factory=set, compare=False)

    def x(self, position: int = 0) -> Operand:
        """A required operand.  Raises LoweringError if it is absent."""
        found = self.optional(position)
        if found is None:
            raise LoweringError(f"operand {position} is missing")
        return found

    def optional(self, position: int) -> Operand | None:
        """An optional operand, None where absent."""
        return self.operands[position] if position < len(self.operands) else None

    def all(self) -> tuple[Operand, ...]:
        """Every operand of a variadic op."""
        return tuple(self.x(i) for i in range(len(self.operands)))

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return self.value(name) is not None

    def value(self, name: str) -> NodeAttribute | None:
        """An attribute of any kind, None where absent."""
        self.asked.add(name)
        return self.node.attributes.get(name)

    def ignored(self) -> tuple[str, ...]:
        """Attributes that nobody looked at."""
        return tuple(sorted(set(self.node.attributes) - self.asked))

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.value(name)
        value = default if value is None else value
        if not isinstance(value, int):
            raise LoweringError(f"attribute {name} is no integer")
        return value

    def number(self, name: str, default: float) -> float:
        """A floating point attribute; a default is rounded to binary32 as the file would hold it."""
        value = self.value(name)
        value = float(np.float32(default)) if value is None else value
        if not isinstance(value, float):
            raise LoweringError(f"attribute {name} is no floating point number")
        return value

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        value = self.value(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise LoweringError(f"attribute {name} is no text")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, None where absent."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise LoweringError(f"attribute {name} is no list of integers")
        found = tuple(v for v in value if isinstance(v, int))
        if len(found) != len(value):
            raise LoweringError(f"attribute {name} is no list of integers")
        return found

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """A list of floating point numbers, None where absent."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise LoweringError(f"attribute {name} is no list of numbers")
        found = tuple(float(v) for v in value if isinstance(v, int | float))
        if len(found) != len(value):
            raise LoweringError(f"attribute {name} is no list of numbers")
        return found

    def tensor(self, name: str) -> Tensor | None:
        """A tensor attribute, None where absent."""
        value = self.value(name)
        if value is not None and not isinstance(value, Tensor):
            raise LoweringError(f"attribute {name} is no tensor")
        return value

    def refuse_live(self, position: int, what: str) -> None:
        """Raises LoweringError if something reads output ``position``."""
        if position < len(self.live) and self.live[position]:
            raise LoweringError(f"its output {what} is used, which is not supported")


Outputs: TypeAlias = "tuple[Operand, ...]"
Rule: TypeAlias = "Callable[[Lowering, Site], Outputs]"


class Lowering:
    """Emits ops into a builder.  One object lowers one program; ``source`` is the node being lowered."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self.builder = builder
        self.scope = DimScope(builder.symbols)
        self.source: tuple[int, ...] = ()
        self._ids: dict[int, int] = {}
        self._count = 0

    # operands -------------------------------------------------------------------------------------------------------
    def input(self, type_: TensorType, label: str) -> Operand:
        """A value given by the caller."""
        return self._operand(type_, self.builder.input(type_, label), None, label)

    def stored(self, tensor: Tensor, label: str = "") -> Operand:
        """A constant of the model; it enters the program when an op reads it."""
        return self._operand(TensorType(tensor.dtype, tensor.array.shape), None, tensor.array, label)

    def constant(self, array: Array, dtype: DType) -> Operand:
        """A constant that lowering makes itself."""
        if array.nbytes > limits.GENERATED_BYTES:
            raise LoweringError(
                f"it needs a constant of {array.nbytes} bytes, at most {limits.GENERATED_BYTES} are made"
            )
        return self.stored(Tensor(dtype, np.asarray(array, dtype.numpy)))

    def scalar(self, value: float, dtype: DType) -> Operand:
        """A constant of rank 0, rounded once to ``dtype``."""
        if dtype is DType.BF16:
            bits = np.asarray(value, np.float32).view(np.uint32).astype(np.uint64)
            rounded = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
            return self.constant(rounded.astype(np.uint16), dtype)
        if dtype in (DType.F8E4M3FN, DType.F8E5M2):
            raise LoweringError(f"arithmetic in {dtype} is not defined")
        return self.constant(np.asarray(value, dtype.numpy), dtype)

    def extents(self, values: Sequence[Dim], shape: tuple[int, ...], dtype: DType = DType.I64) -> Operand:
        """An integer tensor of dim expressions."""
        return self._operand(TensorType(dtype, shape), None, folding.contents_of_dims(values, shape, dtype), "")

    def named(self, operand: Operand, label: str) -> Operand:
        """The operand under the model's name for it, unless it has one."""
        if operand.label or not label:
            return operand
        if operand.key in self._ids and not self.builder.value(self._ids[operand.key]).label:
            self.builder.relabel(self._ids[operand.key], label)
        return replace(operand, label=label)

    def id_of(self, operand: Operand) -> int:
        """The program value of an operand; what was only known becomes a constant or ``extents`` now."""
        if operand.key not in self._ids:
            self._ids[operand.key] = self._materialise(operand)
        return self._ids[operand.key]

    def _materialise(self, operand: Operand) -> int:
        contents = operand.contents
        if contents is None:
            raise LoweringError("a value was used before it was made")
        if not folding.is_symbolic(contents):
            return self.builder.constant(contents, operand.dtype, operand.label)
        attributes = Attributes.of(
            {
                "dtype": operand.dtype.value,
                "shape": tuple(contents.shape),
                "values": folding.dims_of_contents(contents),
            }
        )
        return self.builder.op("extents", (), attributes, (operand.label,), self.source)[0]

    def _operand(self, type_: TensorType, value: int | None, contents: Array | None, label: str) -> Operand:
        operand = Operand(type_, self._count, contents, label)
        self._count += 1
        if value is not None:
            self._ids[operand.key] = value
        return operand

    # what is known --------------------------------------------------------------------------------------------------
    def dims_of(self, operand: Operand, what: str) -> tuple[Dim, ...]:
        """Elements of an integer operand, row-major.  Raises LoweringError if they depend on data."""
        if operand.contents is None:
            name = f" ({operand.label})" if operand.label else ""
            raise LoweringError(f"{what}{name} depends on data, so a shape would")
        if operand.dtype.is_float:
            raise LoweringError(f"{what} is no integer tensor")
        return folding.dims_of_contents(operand.contents)

    def ints_of(self, operand: Operand, what: str) -> tuple[int, ...]:
        """Elements of an integer operand as numbers.  Raises LoweringError if they depend on data or symbols."""
        found = self.dims_of(operand, what)
        numbers = tuple(int(d) for d in found if isinstance(d, int))
        if len(numbers) != len(found):
            raise LoweringError(f"{what} depends on a symbolic dim")
        return numbers

    def array_of(self, operand: Operand, what: str) -> Array:
        """Contents of an operand as numbers.  Raises LoweringError if they are not known."""
        if operand.numbers is None:
            raise LoweringError(f"{what} is not known when the model is imported")
        return operand.numbers

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front.  Raises LoweringError if out of range."""
        if not -rank <= axis < rank:
            raise LoweringError(f"axis {axis} of rank {rank}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, in the given order.  Raises LoweringError if out of range or repeated."""
        found = tuple(self.axis(a, rank) for a in axes)
        if len(set(found)) != len(found):
            raise LoweringError(f"axes {tuple(axes)} repeat an axis")
        return found

    # ops ------------------------------------------------------------------------------------------------------------
    def emit(
        self, kind: str, operands: Sequence[Operand | None], attributes: Mapping[str, AttributeValue] | None = None
    ) -> Outputs:
        """Apply an op.  Small integer results of known operands are only remembered; others are ops of the program.

        Raises TypeRuleError where the op does not allow the operands.
        """
        given = Attributes.of(attributes or {})
        known = self._fold(kind, operands, given)
        if known is not None and (not known.dtype.is_float or (kind in folding.MOVES and self._are_stored(operands))):
            return (known,)
        ids = tuple(-1 if o is None else self.id_of(o) for o in operands)
        outputs = self.builder.op(kind, ids, given, (), self.source)
        for output in outputs:
            self.require_size(self.builder.type_of(output))
        contents = None if known is None else known.contents
        return tuple(
            self._operand(self.builder.type_of(o), o, contents if i == 0 else None, "") for i, o in enumerate(outputs)
        )

    def _are_stored(self, operands: Sequence[Operand | None]) -> bool:
        """Whether the contents are the model's own bytes, not what lowering computed beside an op."""
        ids = [self._ids[o.key] for o in operands if o is not None and o.key in self._ids]
        return all(self.builder.value(i).role is Role.CONSTANT for i in ids)

    def require_size(self, type_: TensorType) -> None:
        """Raises LoweringError for a tensor that no memory can hold."""
        if self.scope.bounds(type_.nbytes)[1] > limits.TENSOR_BYTES:
            raise LoweringError(f"a tensor {type_} is larger than {limits.TENSOR_BYTES} bytes")

    def _fold(self, kind: str, operands: Sequence[Operand | None], attributes: Attributes) -> Operand | None:
        present = [o for o in operands if o is not None]
        arrays = [o.contents for o in present if o.contents is not None]
        if not present or len(arrays) != len(operands):
            return None
        types = [o.type for o in present]
        results = spec_of(kind).infer(types, attributes, self.scope)
        if len(results) != 1:
            return None
        contents = folding.fold(kind, arrays, types, attributes, results[0], self.scope)
        return None if contents is None else self._operand(results[0], None, contents, "")

    def generate(self, kind: str, attributes: Mapping[str, AttributeValue], contents: Array | None) -> Operand:
        """An op without operands (``fill``, ``iota``), with its contents where they are small enough to track."""
        value = self.builder.op(kind, (), Attributes.of(attributes), (), self.source)[0]
        return self._operand(self.builder.type_of(value), value, contents, "")

    def one(self, kind: str, *operands: Operand) -> Operand:
        """The result of an op without attributes."""
        return self.emit(kind, operands)[0]

    def cast(self, x: Operand, dtype: DType) -> Operand:
        """``x`` in another dtype."""
        return x if x.dtype is dtype else self.emit("cast", [x], {"to": dtype.value})[0]

    def reshape(self, x: Operand, shape: Shape) -> Operand:
        """``x`` with another shape; itself where nothing changes."""
        return x if x.shape == shape else self.emit("reshape", [x], {"shape": shape})[0]

    def transpose(self, x: Operand, perm: Sequence[int]) -> Operand:
        """``x`` with its axes permuted; a stored tensor is permuted at once."""
        order = tuple(perm)
        if order == tuple(range(x.rank)):
            return x
        if x.numbers is not None and x.key not in self._ids:
            return self.stored(Tensor(x.dtype, np.ascontiguousarray(np.transpose(x.numbers, order))), x.label)
        return self.emit("transpose", [x], {"perm": order})[0]

    def expand(self, x: Operand, shape: Shape) -> Operand:
        """``x`` broadcast to ``shape``; itself where nothing changes."""
        return x if x.shape == shape else self.emit("expand", [x], {"shape": shape})[0]

    def slice(self, x: Operand, starts: Sequence[Dim], sizes: Sequence[Dim], steps: Sequence[int]) -> Operand:
        """A strided part of ``x``; itself where nothing changes."""
        if tuple(sizes) == x.shape and all(s == 1 for s in steps):
            return x
        return self.emit("slice", [x], {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)})[0]

    def part(self, x: Operand, axis: int, start: Dim, size: Dim) -> Operand:
        """``size`` entries of one axis."""
        starts: list[Dim] = [0] * x.rank
        sizes = list(x.shape)
        starts[axis], sizes[axis] = start, size
        return self.slice(x, starts, sizes, [1] * x.rank)

    def concat(self, parts: Sequence[Operand], axis: int) -> Operand:
        """Parts joined along ``axis``."""
        return parts[0] if len(parts) == 1 else self.emit("concat", parts, {"axis": axis})[0]

    def reduce(self, kind: str, x: Operand, axes: Sequence[int], keepdims: bool) -> Operand:
        """A reduction over axes counted from the front."""
        return self.emit(kind, [x], {"axes": tuple(sorted(axes)), "keepdims": int(keepdims)})[0]

    # dims -----------------------------------------------------------------------------------------------------------
    def smaller(self, left: Dim, right: Dim) -> Dim:
        """Minimum, decided where the range decides it."""
        if self.scope.at_least(dims.sub(right, left), 0):
            return left
        return right if self.scope.at_least(dims.sub(left, right), 0) else dims.minimum(left, right)

    def larger(self, left: Dim, right: Dim) -> Dim:
        """Maximum, decided where the range decides it."""
        if self.scope.at_least(dims.sub(left, right), 0):
            return left
        return right if self.scope.at_least(dims.sub(right, left), 0) else dims.maximum(left, right)

    def settled(self, dim: Dim, what: str) -> int:
        """The one number that ``dim`` is throughout the range.  Raises TypeRuleError if there are several."""
        lo, hi = self.scope.bounds(dim)
        if lo == hi:
            return lo
        value = dims.evaluate(dim, self.scope.optimum())
        if self.scope.equal(dim, value):
            return value
        raise TypeRuleError(f"{what} is {dim}, which changes with the dims")


def f32(value: float) -> F32:
    """A binary32 attribute: ``value`` rounded once."""
    return F32(float(np.float32(value)))


def f32s(values: Sequence[float]) -> tuple[F32, ...]:
    """Binary32 attributes."""
    return tuple(f32(v) for v in values)
