"""From the bytes of an ONNX file to plain data, refusing everything that the rest does not want to see.

Imported by: child.  Runs in a process of its own with limits on memory and time.  Knows protobuf.

Order: size, wire form, unknown fields, counts and depths, names, external data, onnx's own checker, then the rules
that the checker lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from tribunus.canon import digest_bytes
from tribunus.errors import LoweringError, ModelError, OnnxFieldError, OnnxLimitError, OnnxSyntaxError
from tribunus.frontend import limits
from tribunus.frontend.element_types import dtype_of
from tribunus.frontend.external import read_external
from tribunus.frontend.facts import DeclaredDim, ModelFacts, TensorFact
from tribunus.frontend.graph import Model, Node, NodeAttribute, NodeId, Subgraph, Tensor
from tribunus.frontend.names import checked_name
from tribunus.frontend.tensors import read_tensor

OLDEST_OPSET: Final = 7
NEWEST_OPSET: Final = 26
_GRAPH_FIELD: Final = 7
_SINGULAR_FIELDS: Final = frozenset((1, 2, 3, 4, 5, 6, _GRAPH_FIELD))
_UNUSABLE_LABELS: Final = frozenset(("", "?", "-1", "None", "unknown"))


def load_model(data: bytes, folder: int | None) -> Model:
    """The model in ``data``.  ``folder``: descriptor of the folder that external data may come from, or None.

    Raises a ModelError leaf for what is malformed, hostile or refused, and LoweringError for an opset out of range.
    """
    proto = _parse(data)
    _check_counts(proto)
    _check_names(proto)
    read_external(_tensors_of(proto), folder, limits.MODEL_BYTES - len(data))
    _run_checker(proto)
    proto = _inline(proto)
    opsets = {entry.domain: int(entry.version) for entry in proto.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", 0))
    opsets[""] = opset
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise LoweringError(
            f"the model uses opset {opset}; {OLDEST_OPSET} to {NEWEST_OPSET} are known",
            remedy="convert the model with onnx.version_converter, or export it again",
        )
    initializers = {t.name: read_tensor(t, f"initializer {t.name[:60]!a}") for t in proto.graph.initializer}
    nodes = tuple(_node(n) for n in proto.graph.node)
    stored = [*initializers.values(), *(v for n in nodes for v in n.attributes.values() if isinstance(v, Tensor))]
    facts = ModelFacts(
        digest_bytes(data),
        checked_name(f"{proto.producer_name} {proto.producer_version}".strip(), "producer"),
        opset,
        tuple(_fact(v, "input") for v in proto.graph.input if v.name not in initializers),
        tuple(_fact(v, "output") for v in proto.graph.output),
        sum(int(t.array.size) for t in stored if t.dtype.is_float or (t.dtype.is_integer and t.dtype.bits <= 8)),
    )
    return Model(facts, nodes, initializers, opsets)


def _parse(data: bytes) -> ModelProto:
    if not data:
        raise OnnxSyntaxError("the file is empty")
    if len(data) > limits.MODEL_BYTES:
        raise OnnxLimitError(f"the file has {len(data)} bytes, at most {limits.MODEL_BYTES} are allowed")
    fields = list(_top_level_fields(data))
    if _GRAPH_FIELD not in fields:
        raise OnnxSyntaxError("the file holds no ONNX graph")
    if repeated := sorted(f for f in _SINGULAR_FIELDS if fields.count(f) > 1):
        raise OnnxSyntaxError(f"field {repeated[0]} of the model is repeated: several models were joined in one file")
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise OnnxSyntaxError("the file is not an ONNX model: it is damaged, or nested too deeply") from None
    size = proto.ByteSize()
    proto.DiscardUnknownFields()
    if proto.ByteSize() != size:
        raise OnnxFieldError("the file holds fields that the ONNX format does not define")
    return proto


def _top_level_fields(data: bytes) -> Iterator[int]:
    """Field numbers of the outermost message in file order.  Raises OnnxSyntaxError for a broken wire form."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = 0
        for shift in range(0, 70, 7):
            if position >= len(data):
                raise OnnxSyntaxError("the file ends inside a field: it is truncated")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise OnnxSyntaxError("the file is not an ONNX model: a number in it is too long")

    while position < len(data):
        tag = varint()
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            varint()
        elif wire in (1, 2, 5):
            length = varint() if wire == 2 else 8 if wire == 1 else 4
            position += length
        else:
            raise OnnxSyntaxError("the file is not an ONNX model")
        if position > len(data) or not field:
            raise OnnxSyntaxError("the file ends inside a field: it is truncated, or not an ONNX model")
        yield field


def _check_counts(proto: ModelProto) -> None:
    if len(proto.functions) > limits.FUNCTIONS:
        raise OnnxLimitError(
            f"the model defines {len(proto.functions)} functions, at most {limits.FUNCTIONS} are allowed"
        )
    if len(proto.training_info):
        raise OnnxFieldError("the model holds training information, which is refused")
    _check_nodes(proto.graph.node, 0)
    for graph in _graphs(proto):
        if len(graph.sparse_initializer):
            raise OnnxFieldError("the model holds sparse initializers, which are refused")
        if len(graph.quantization_annotation):
            raise OnnxFieldError("the model holds quantization annotations, which are refused")
    _inlined_count(proto)


def _check_nodes(nodes: Iterable[NodeProto], depth: int) -> None:
    if depth > limits.SUBGRAPH_DEPTH:
        raise OnnxLimitError(f"subgraphs are nested deeper than {limits.SUBGRAPH_DEPTH}")
    for node in nodes:
        for attribute in node.attribute:
            for graph in _attribute_graphs(attribute):
                _check_nodes(graph.node, depth + 1)


def _inlined_count(proto: ModelProto) -> None:
    """Nodes after inlining all functions, refused beyond the limit; recursion is refused."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    if len(functions) != len(proto.functions):
        raise OnnxFieldError("a function is defined twice")
    sizes: dict[tuple[str, str, str], int] = {}

    def size_of(key: tuple[str, str, str], active: frozenset[tuple[str, str, str]]) -> int:
        if key in active or len(active) > 64:
            raise OnnxLimitError(f"function {key[1][:60]!a} is recursive, or functions are nested too deeply")
        if key not in sizes:
            sizes[key] = count(functions[key].node, active | {key})
        return sizes[key]

    def count(nodes: Iterable[NodeProto], active: frozenset[tuple[str, str, str]]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            total += size_of(key, active) if key in functions else 1
            for attribute in node.attribute:
                for graph in _attribute_graphs(attribute):
                    total += count(graph.node, active)
            if total > limits.NODES:
                raise OnnxLimitError(f"the model has more than {limits.NODES} nodes after inlining its functions")
        return total

    for key in functions:
        size_of(key, frozenset())
    count(proto.graph.node, frozenset())


def _check_names(proto: ModelProto) -> None:
    for what, name in _names_of(proto):
        checked_name(name, what)


def _names_of(proto: ModelProto) -> Iterator[tuple[str, str]]:
    for entry in proto.opset_import:
        yield "domain", entry.domain
    for tensor in _tensors_of(proto):
        for pair in tensor.external_data:
            yield "external data key", pair.key
            yield "external data value", pair.value
    for graph in _graphs(proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield "value", value.name
            for dim in value.type.tensor_type.shape.dim:
                yield "dim", dim.dim_param
        for tensor in graph.initializer:
            yield "initializer", tensor.name
        yield from _node_names(graph.node)
    for function in proto.functions:
        for name in (function.name, function.domain, *function.input, *function.output, *function.attribute):
            yield "function", name
        yield from _node_names(function.node)


def _node_names(nodes: Iterable[NodeProto]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        yield "node", node.name
        yield "op", node.op_type
        yield "domain", node.domain
        for name in (*node.input, *node.output):
            yield "value", name
        for attribute in node.attribute:
            yield "attribute", attribute.name


def _run_checker(proto: ModelProto) -> None:
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        text = " ".join(str(error).split())[:400]
        raise ModelError(f"onnx.checker refuses the model: {text}") from None


def _inline(proto: ModelProto) -> ModelProto:
    if not len(proto.functions):
        return proto
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except RuntimeError:
        raise ModelError("a function is called with operands or attributes that it does not declare") from None


def _fact(value: ValueInfoProto, what: str) -> TensorFact:
    if value.type.WhichOneof("value") != "tensor_type":
        kind = value.type.WhichOneof("value") or "no type"
        raise OnnxFieldError(f"{what} {value.name[:60]!a} is no tensor ({kind}), which is refused")
    tensor = value.type.tensor_type
    if what == "input" and not tensor.HasField("shape"):
        raise OnnxFieldError(f"input {value.name[:60]!a} declares no rank")
    dims = tuple(_declared(d.dim_value if d.HasField("dim_value") else d.dim_param) for d in tensor.shape.dim)
    return TensorFact(value.name, dtype_of(tensor.elem_type, f"{what} {value.name[:60]!a}"), dims)


def _declared(dim: int | str) -> DeclaredDim:
    if isinstance(dim, str):
        return None if dim in _UNUSABLE_LABELS else dim
    return int(dim) if dim >= 0 else None


def _node(node: NodeProto) -> Node:
    domain = "" if node.domain == "ai.onnx" else node.domain
    captures: dict[str, None] = {}
    for attribute in node.attribute:
        for graph in _attribute_graphs(attribute):
            captures.update(dict.fromkeys(_free_names(graph)))
    return Node(
        NodeId(node.name, node.op_type, domain),
        tuple(node.input),
        tuple(node.output),
        {a.name: _attribute(a, node) for a in node.attribute},
        tuple(captures),
    )


def _attribute(attribute: AttributeProto, node: NodeProto) -> NodeAttribute:
    kind, what = attribute.type, f"attribute {attribute.name[:40]!a} of {node.op_type} {node.name[:60]!a}"
    if kind == AttributeProto.FLOAT:
        return float(attribute.f)
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.STRING:
        return _text(attribute.s, what)
    if kind == AttributeProto.FLOATS:
        return tuple(float(v) for v in attribute.floats)
    if kind == AttributeProto.INTS:
        return tuple(int(v) for v in attribute.ints)
    if kind == AttributeProto.STRINGS:
        return tuple(_text(v, what) for v in attribute.strings)
    if kind == AttributeProto.TENSOR:
        return read_tensor(attribute.t, what)
    if kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return Subgraph(tuple(i for g in _attribute_graphs(attribute) for i in _node_ids(g)))
    raise OnnxFieldError(f"{what} has the kind {AttributeProto.AttributeType.Name(kind)}, which is refused")


def _text(data: bytes, what: str) -> str:
    try:
        return checked_name(data.decode("utf-8"), what)
    except UnicodeDecodeError:
        raise OnnxFieldError(f"{what} is not valid UTF-8") from None


def _node_ids(graph: GraphProto) -> Iterator[NodeId]:
    for node in graph.node:
        yield NodeId(node.name, node.op_type, "" if node.domain == "ai.onnx" else node.domain)
        for attribute in node.attribute:
            for inner in _attribute_graphs(attribute):
                yield from _node_ids(inner)


def _free_names(graph: GraphProto) -> Iterator[str]:
    """Names that a subgraph reads and does not define."""
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    for node in graph.node:
        used = set(node.input)
        for attribute in node.attribute:
            for inner in _attribute_graphs(attribute):
                used.update(_free_names(inner))
        yield from sorted(used - defined - {""})
        defined.update(node.output)
    yield from sorted({v.name for v in graph.output} - defined)


def _attribute_graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _graphs(proto: ModelProto) -> Iterator[GraphProto]:
    """The main graph and every subgraph, those in functions included."""
    yield proto.graph
    pending: list[NodeProto] = [*proto.graph.node, *(n for f in proto.functions for n in f.node)]
    while pending:
        for attribute in pending.pop().attribute:
            for graph in _attribute_graphs(attribute):
                yield graph
                pending.extend(graph.node)


def _tensors_of(proto: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor of the file."""
    graphs = list(_graphs(proto))
    for graph in graphs:
        yield from graph.initializer
    for nodes in (*(g.node for g in graphs), *(f.node for f in proto.functions)):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
