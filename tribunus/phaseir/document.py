"""Programs out of documents: the inverse of ``program_to_json``, for documents that nobody vouches for.

Imported by: image, ledger, frontend, text form.  Imports: canon, numerics, phaseir.  Standard library and NumPy only.

Everything that a hostile document can do ends in a SchemaError: unknown or missing keys, ids out of range, numbers
out of range, dim expressions that would grow beyond bounds, and any second spelling of the same program.  Whether the
program is well typed is the verifier's business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tribunus import canon
from tribunus.canon import Digest, Json, int_of, list_of, member_of, object_of, parse_digest, str_of
from tribunus.errors import DigestSyntaxError, DimError, SchemaError
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes, attributes_from_json
from tribunus.phaseir.dims import DimScope, Symbol
from tribunus.phaseir.program import (
    SCHEMA,
    Condition,
    Edge,
    Op,
    Phase,
    Program,
    Provenance,
    Role,
    SourceNode,
    State,
    Value,
    program_to_json,
)
from tribunus.phaseir.types import type_from_json

MAX_ITEMS: Final = 1 << 20
"""Most values, ops, phases or list entries of one program."""
MAX_RANK: Final = 32
MAX_TERMS: Final = 1024
"""Most terms that a dim expression may have once it is multiplied out."""
MAX_EXPRESSION_DEPTH: Final = 16
_SYMBOL_NAME = re.compile(r"[sd](0|[1-9][0-9]{0,4})")
_F32 = re.compile(r"f32:[0-9a-f]{8}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def canonical_bytes(program: Program) -> bytes:
    """The bytes whose SHA-256 is the program's digest."""
    return canon.encode(program_to_json(program))


def program_from_json(value: Json) -> Program:
    """The program of a document.  Raises SchemaError unless the document is the one form of a program."""
    document = object_of(
        value,
        "program",
        frozenset(("schema", "symbols", "values", "phases", "edges", "states", "sources", "provenance")),
    )
    if document["schema"] != SCHEMA:
        raise SchemaError(f"program: schema {str(document['schema'])[:40]!r}, {SCHEMA!r} was expected")
    symbols = _symbols(document["symbols"])
    names = tuple(s.name for s in symbols)
    sources = tuple(
        _source(item, f"sources[{i}]") for i, item in enumerate(_items(document["sources"], "program.sources"))
    )
    values = tuple(
        _value(item, DimScope(symbols), names, f"values[{i}]")
        for i, item in enumerate(_items(document["values"], "program.values"))
    )
    reader = _Ids(len(values), len(sources), names)
    phases = tuple(
        reader.phase(item, f"phases[{i}]") for i, item in enumerate(_items(document["phases"], "program.phases"))
    )
    edges = tuple(
        reader.edge(item, len(phases), f"edges[{i}]")
        for i, item in enumerate(_items(document["edges"], "program.edges"))
    )
    states = tuple(
        reader.state(item, f"states[{i}]") for i, item in enumerate(_items(document["states"], "program.states"))
    )
    program = Program(values, phases, symbols, edges, states, sources, _provenance(document["provenance"]))
    if program_to_json(program) != value:
        raise SchemaError("program: some dim expression or number is not in its normal form")
    return program


class _Ids:
    """Reads what refers to values, sources and symbols by position."""

    def __init__(self, values: int, sources: int, names: Sequence[str]) -> None:
        self._values = values
        self._sources = sources
        self._names = names

    def value(self, item: Json, where: str, low: int = 0) -> int:
        return int_of(item, where, low, self._values - 1)

    def values(self, item: Json, where: str, low: int = 0) -> tuple[int, ...]:
        return tuple(self.value(entry, where, low) for entry in _items(item, where))

    def phase(self, item: Json, where: str) -> Phase:
        document = object_of(item, where, frozenset(("name", "inputs", "outputs", "ops")))
        ops = tuple(
            self._op(entry, f"{where}.ops[{i}]") for i, entry in enumerate(_items(document["ops"], f"{where}.ops"))
        )
        return Phase(
            _text(document["name"], f"{where}.name"),
            self.values(document["inputs"], f"{where}.inputs"),
            self.values(document["outputs"], f"{where}.outputs"),
            ops,
        )

    def edge(self, item: Json, phases: int, where: str) -> Edge:
        document = object_of(item, where, frozenset(("source", "target", "condition", "predicate")))
        condition = member_of(Condition, document["condition"], where)
        predicate = self.value(document["predicate"], f"{where}.predicate", -1)
        if (predicate < 0) != (condition is Condition.ALWAYS):
            raise SchemaError(f"{where}: a predicate belongs to every edge that is not {Condition.ALWAYS.value}")
        return Edge(
            int_of(document["source"], f"{where}.source", 0, phases - 1),
            int_of(document["target"], f"{where}.target", 0, phases - 1),
            condition,
            predicate,
        )

    def state(self, item: Json, where: str) -> State:
        document = object_of(item, where, frozenset(("read", "write", "label")))
        return State(
            self.value(document["read"], f"{where}.read"),
            self.value(document["write"], f"{where}.write"),
            _text(document["label"], f"{where}.label"),
        )

    def _op(self, item: Json, where: str) -> Op:
        document = object_of(item, where, frozenset(("kind", "inputs", "outputs", "attributes", "source")))
        kind = str_of(document["kind"], f"{where}.kind")
        if not _NAME.fullmatch(kind):
            raise SchemaError(f"{where}.kind: {kind[:40]!r} is no name of an op")
        source = tuple(
            int_of(entry, f"{where}.source", 0, self._sources - 1)
            for entry in _items(document["source"], f"{where}.source")
        )
        return Op(
            kind,
            self.values(document["inputs"], f"{where}.inputs", -1),
            self.values(document["outputs"], f"{where}.outputs"),
            self._attributes(document["attributes"], f"{where}.attributes"),
            source,
        )

    def _attributes(self, item: Json, where: str) -> Attributes:
        if type(item) is not dict:
            raise SchemaError(f"{where}: an object was expected")
        for name, value in item.items():
            if not _NAME.fullmatch(name):
                raise SchemaError(f"{where}: {name[:40]!r} is no name of an attribute")
            _check_attribute(value, f"{where}.{name}")
        try:
            return attributes_from_json(item, self._names, where)
        except DimError as error:
            raise SchemaError(f"{where}: {error.detail}") from None


def check_dim(value: Json, where: str) -> None:
    """Refuse a dim expression that is too deep or has too many terms.  Raises SchemaError."""
    _terms(value, where, 0)


def _terms(value: Json, where: str, depth: int) -> int:
    """An upper bound of the terms of an expression's normal form."""
    if depth > MAX_EXPRESSION_DEPTH:
        raise SchemaError(f"{where}: nested deeper than {MAX_EXPRESSION_DEPTH}")
    if type(value) is int:
        int_of(value, where, -canon.MAX_INTEGER)
        return 1
    items = list_of(value, where)
    if items[:1] == ["s"]:
        return 1
    parts = [_terms(item, where, depth + 1) for item in items[1:]]
    total = 1
    for part in parts:
        total = total * part if items[0] == "*" else total + part
        if total > MAX_TERMS:
            raise SchemaError(f"{where}: more than {MAX_TERMS} terms")
    return total


def _check_attribute(value: Json, where: str) -> None:
    if type(value) is int:
        int_of(value, where, -canon.MAX_INTEGER)
    elif type(value) is str:
        _check_f32(value, where)
    elif type(value) is list:
        texts = [type(item) is str for item in _items(value, where)]
        for item in value:
            if type(item) is str:
                _check_f32(item, where)
            else:
                check_dim(item, where)
        if any(texts) and not all(texts):
            raise SchemaError(f"{where}: binary32 numbers and dims are mixed")
    elif type(value) is not dict:
        raise SchemaError(f"{where}: not an attribute value")


def _check_f32(text: str, where: str) -> None:
    if not _F32.fullmatch(text):
        raise SchemaError(f"{where}: {text[:40]!r} is no binary32 bit string")


def _symbols(value: Json) -> tuple[Symbol, ...]:
    found: list[Symbol] = []
    for i, item in enumerate(_items(value, "program.symbols")):
        where = f"symbols[{i}]"
        document = object_of(item, where, frozenset(("name", "label", "lo", "opt", "hi", "step")))
        name = str_of(document["name"], f"{where}.name")
        if not _SYMBOL_NAME.fullmatch(name) or any(name == other.name for other in found):
            raise SchemaError(f"{where}.name: {name[:20]!r} is no new symbol name")
        lo, opt, hi = (int_of(document[key], f"{where}.{key}") for key in ("lo", "opt", "hi"))
        step = int_of(document["step"], f"{where}.step", 1)
        try:
            found.append(Symbol(name, _text(document["label"], f"{where}.label"), lo, opt, hi, step))
        except DimError as error:
            raise SchemaError(f"{where}: {error.detail}") from None
    return tuple(found)


def _value(item: Json, scope: DimScope, names: Sequence[str], where: str) -> Value:
    document = object_of(item, where, frozenset(("type", "role", "label", "constant")))
    role = member_of(Role, document["role"], f"{where}.role")
    type_document = object_of(
        document["type"], f"{where}.type", frozenset(("dtype", "shape")), frozenset(("quantization",))
    )
    shape = _items(type_document["shape"], f"{where}.type.shape")
    if len(shape) > MAX_RANK:
        raise SchemaError(f"{where}.type: rank {len(shape)}, at most {MAX_RANK} allowed")
    for dim in shape:
        check_dim(dim, f"{where}.type.shape")
    try:
        type_ = type_from_json(document["type"], names, f"{where}.type")
        if any(scope.bounds(dim)[1] < 0 for dim in type_.shape):
            raise SchemaError(f"{where}.type: {type_} has a negative extent")
    except DimError as error:
        raise SchemaError(f"{where}.type: {error.detail}") from None
    if role is Role.CONSTANT and not dims.is_static(type_.shape):
        raise SchemaError(f"{where}: a constant has a symbolic shape")
    constant = _digest(document["constant"], f"{where}.constant")
    if (constant is None) == (role is Role.CONSTANT):
        raise SchemaError(f"{where}: a digest belongs to constants and to nothing else")
    return Value(type_, role, _text(document["label"], f"{where}.label"), constant)


def _digest(value: Json, where: str) -> Digest | None:
    if value is None:
        return None
    try:
        return parse_digest(str_of(value, where))
    except DigestSyntaxError as error:
        raise SchemaError(f"{where}: {error.detail}") from None


def _source(value: Json, where: str) -> SourceNode:
    items = _items(value, where)
    if len(items) != 3:
        raise SchemaError(f"{where}: name, operator and domain were expected")
    name, op_type, domain = (_text(item, where) for item in items)
    return SourceNode(name, op_type, domain)


def _provenance(value: Json) -> Provenance | None:
    if value is None:
        return None
    where = "provenance"
    document = object_of(value, where, frozenset(("model", "producer", "opset", "converter", "rounding_passes")))
    passes = tuple(_text(item, where) for item in _items(document["rounding_passes"], where))
    return Provenance(
        _text(document["model"], where),
        _text(document["producer"], where),
        int_of(document["opset"], where),
        _text(document["converter"], where),
        passes,
    )


def _text(value: Json, where: str) -> str:
    """Any text that has canonical bytes."""
    text = str_of(value, where)
    try:
        text.encode("utf-8", "strict")
    except UnicodeEncodeError:
        raise SchemaError(f"{where}: the text holds an unpaired surrogate") from None
    return text


def _items(value: Json, where: str) -> list[Json]:
    items = list_of(value, where)
    if len(items) > MAX_ITEMS:
        raise SchemaError(f"{where}: {len(items)} entries, at most {MAX_ITEMS} allowed")
    return items
