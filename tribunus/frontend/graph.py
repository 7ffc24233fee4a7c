"""The model as plain data: what loading makes of ONNX, and all that lowering sees of it.

Imported by: the frontend.  Imports: numerics.  Knows no protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tribunus.frontend.facts import ModelFacts
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Array


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A stored tensor: NumPy storage of ``dtype``."""

    dtype: DType
    array: Array


@dataclass(frozen=True, slots=True)
class NodeId:
    """What people know a node by."""

    name: str
    op_type: str
    domain: str


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A subgraph attribute: only which nodes it holds, nested ones included."""

    nodes: tuple[NodeId, ...]


NodeAttribute: TypeAlias = (
    "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Tensor | Subgraph"
)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One node.  Absent optional inputs and outputs are empty names.  ``captures``: outer values its subgraphs read."""

    id: NodeId
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, NodeAttribute]
    captures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A checked model.  ``nodes`` are in topological order; initializers that are also inputs are initializers."""

    facts: ModelFacts
    nodes: tuple[Node, ...]
    initializers: Mapping[str, Tensor]
    opsets: Mapping[str, int]
