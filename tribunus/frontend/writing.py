"""The ONNX graph under construction while a program is exported.

Imported by: export, export_rules.  Knows protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, helper

from tribunus.frontend.element_types import number_of
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.dims import Compound, Dim, Sym
from tribunus.phaseir.program import Array, Op, Program
from tribunus.phaseir.types import TensorType

AttributeArgument = int | float | str | Sequence[int] | Sequence[float] | TensorProto


class Writer:
    """Collects nodes and initializers; turns dim expressions into nodes that compute them from input shapes."""

    def __init__(self, program: Program, names: Sequence[str], places: Mapping[str, tuple[str, int]]) -> None:
        self.program = program
        self.names = names
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._places = places
        self._dims: dict[Dim, str] = {}
        self._count = 0

    def fresh(self) -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"t.{self._count}"

    def name(self, value: int) -> str:
        """Name of a program value; empty for an absent operand."""
        return "" if value < 0 else self.names[value]

    def inputs(self, op: Op) -> list[str]:
        """Names of an op's operands."""
        return [self.name(i) for i in op.inputs]

    def outputs(self, op: Op) -> list[str]:
        """Names of an op's results."""
        return [self.names[o] for o in op.outputs]

    def type_of(self, op: Op, position: int) -> TensorType:
        """Type of a present operand."""
        return self.program.type_of(op.inputs[position])

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        attributes: Mapping[str, AttributeArgument] | None = None,
    ) -> str:
        """Append a node; returns the name of its first result."""
        results = [self.fresh()] if outputs is None else list(outputs)
        found = helper.make_node(op_type, list(inputs), results)
        found.attribute.extend(helper.make_attribute(k, v) for k, v in sorted((attributes or {}).items()))
        self.nodes.append(found)
        return results[0]

    def store(self, name: str, dtype: DType, array: Array) -> str:
        """Append an initializer of this name."""
        self.initializers.append(tensor_proto(name, dtype, array))
        return name

    def constant(self, array: Array, dtype: DType) -> str:
        """An initializer of a fresh name."""
        return self.store(self.fresh(), dtype, array)

    def scalar(self, value: float, dtype: DType) -> str:
        """An initializer of rank 0."""
        return self.constant(np.asarray(value, dtype.numpy), dtype)

    def dims(self, values: Sequence[Dim]) -> str:
        """A rank 1 i64 tensor of dim expressions."""
        numbers = [d for d in values if isinstance(d, int)]
        if len(numbers) == len(values):
            return self.constant(np.array(numbers, np.int64), DType.I64)
        return self.node("Concat", [self.dim(d) for d in values], attributes={"axis": 0})

    def dim(self, value: Dim) -> str:
        """A one-element i64 tensor of a dim expression."""
        if value not in self._dims:
            self._dims[value] = self._dim(value)
        return self._dims[value]

    def _dim(self, value: Dim) -> str:
        if isinstance(value, int):
            return self.constant(np.array([value], np.int64), DType.I64)
        if isinstance(value, Sym):
            source, axis = self._places[value.name]
            return self.node("Shape", [source], attributes={"start": axis, "end": axis + 1})
        return self._compound(value)

    def _compound(self, value: Compound) -> str:
        args = [self.dim(arg) for arg in value.args]
        if value.op in ("min", "max"):
            return self.node("Min" if value.op == "min" else "Max", args)
        if value.op == "mod":
            return self.node("Mod", args)  # the sign of the divisor, which is positive
        if value.op == "floordiv":
            return self._floor(args[0], args[1])
        if value.op == "ceildiv":  # ceil(a / b) = -floor(-a / b)
            return self.node("Neg", [self._floor(self.node("Neg", [args[0]]), args[1])])
        total = args[0]
        for arg in args[1:]:
            total = self.node("Add" if value.op == "+" else "Mul", [total, arg])
        return total

    def _floor(self, left: str, right: str) -> str:
        """ONNX division truncates: subtract the remainder first, then it is exact."""
        return self.node("Div", [self.node("Sub", [left, self.node("Mod", [left, right])]), right])


def tensor_proto(name: str, dtype: DType, array: Array) -> TensorProto:
    """A stored tensor with raw data."""
    found = TensorProto()
    found.name = name
    found.data_type = number_of(dtype)
    found.dims.extend(array.shape)
    if dtype.bits == 4:
        flat = array.reshape(-1).astype(np.uint8) & np.uint8(0x0F)
        padded = np.append(flat, np.zeros(flat.size % 2, np.uint8)).reshape(-1, 2)
        found.raw_data = (padded[:, 0] | (padded[:, 1] << np.uint8(4))).astype(np.uint8).tobytes()
    else:
        found.raw_data = np.ascontiguousarray(array).astype(dtype.numpy.newbyteorder("<"), copy=False).tobytes()
    return found
