"""Parser of the text form.

Imported by: cli, tests of passes.  Imports: phaseir.  A mistake in the text is a SchemaError with its line number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from tribunus.canon import Digest, text_to_float
from tribunus.errors import DimError, SchemaError
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32, Attributes, AttributeValue
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.document import program_from_json
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
from tribunus.phaseir.types import Quantization, TensorType, dtype_of

_TOKEN = re.compile(
    r"\s*("
    r'"(?:[^"\\]|\\.)*"'
    r"|f32:[0-9a-f]{8}"
    r"|[0-9a-f]{64}(?![0-9a-zA-Z_])"
    r"|-?[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?f(?![0-9a-zA-Z_])"
    r"|-?[0-9]+"
    r"|->"
    r"|[A-Za-z_][A-Za-z0-9_.-]*(?:/[0-9]+)?"
    r"|[%=():;,{}\[\]+*]"
    r")"
)
_DIVISIONS: Final = {"floordiv": dims.floordiv, "ceildiv": dims.ceildiv, "mod": dims.mod}
T = TypeVar("T")


def parse(text: str) -> Program:
    """The program of a text form; comments are lines that start with ``//``.  Raises SchemaError."""
    draft = _Draft()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("//"):
            try:
                draft.read(_Line(_tokens(line)))
            except (SchemaError, DimError) as error:
                raise SchemaError(f"line {number}: {error.detail}") from None
    return draft.finish()


def _tokens(line: str) -> list[str]:
    found: list[str] = []
    position, end = 0, len(line.rstrip())
    while position < end:
        match = _TOKEN.match(line, position)
        if match is None:
            raise SchemaError(f"unexpected {line[position : position + 20]!r}")
        found.append(match.group(1))
        position = match.end()
    return found


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek
        self._next += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek != token:
            return False
        self._next += 1
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise SchemaError(f"{token!r} was expected, not {self.peek[:40]!r}")

    def end(self) -> None:
        if self.peek:
            raise SchemaError(f"unexpected {self.peek[:40]!r}")

    def integer(self) -> int:
        token = self.take()
        if not re.fullmatch(r"-?[0-9]{1,18}", token):
            raise SchemaError(f"an integer was expected, not {token[:40]!r}")
        return int(token)

    def text(self) -> str:
        token = self.take()
        if not token.startswith('"'):
            raise SchemaError(f"quoted text was expected, not {token[:40]!r}")
        try:
            decoded = json.loads(token)
        except ValueError:
            raise SchemaError(f"{token[:40]} is not valid text") from None
        return str(decoded)

    def word(self) -> str:
        token = self.take()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*(/[0-9]+)?", token):
            raise SchemaError(f"a name was expected, not {token[:40]!r}")
        return token

    def id(self) -> int:
        self.expect("%")
        return self.integer()

    def operand(self) -> int:
        return -1 if self.accept("_") else self.id()

    def sequence(self, opening: str, closing: str, item: Callable[[], T]) -> tuple[T, ...]:
        self.expect(opening)
        found: list[T] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(item())
        return tuple(found)


@dataclass(slots=True)
class _Draft:
    """What was read so far."""

    values: dict[int, Value] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    sources: list[SourceNode] = field(default_factory=list)
    provenance: Provenance | None = None
    begun: bool = False

    def read(self, line: _Line) -> None:
        if not self.begun:
            line.expect("program")
            line.expect(SCHEMA)
            line.end()
            self.begun = True
            return
        if line.peek == "%":
            self._op(line)
        else:
            self._declaration(line)
        line.end()

    def finish(self) -> Program:
        if sorted(self.values) != list(range(len(self.values))):
            raise SchemaError("value ids must be 0, 1, 2, ... without a gap")
        program = Program(
            tuple(self.values[i] for i in range(len(self.values))),
            tuple(self.phases),
            tuple(self.symbols),
            tuple(self.edges),
            tuple(self.states),
            tuple(self.sources),
            self.provenance,
        )
        return program_from_json(program_to_json(program))

    def _declaration(self, line: _Line) -> None:
        word = line.word()
        if word == "value":
            index, label, type_ = self._head(line)
            role = _member(Role, line.word())
            self._define(index, Value(type_, role, label, Digest(line.take()) if role is Role.CONSTANT else None))
        elif word == "symbol":
            name, label, lo = line.word(), line.text(), line.integer()
            rest: list[int] = []
            for _ in range(3):
                line.expect(":")
                rest.append(line.integer())
            self.symbols.append(Symbol(name, label, lo, *rest))
        elif word == "source":
            self.sources.append(SourceNode(line.text(), line.text(), line.text()))
        elif word == "phase":
            name, inputs = line.text(), line.sequence("(", ")", line.id)
            line.expect("->")
            self.phases.append(Phase(name, inputs, line.sequence("(", ")", line.id), ()))
        elif word == "edge":
            self._edge(line)
        elif word == "state":
            label, read = line.text(), line.id()
            line.expect("->")
            self.states.append(State(read, line.id(), label))
        elif word == "provenance":
            self._provenance(line)
        else:
            raise SchemaError(f"unknown declaration {word[:40]!r}")

    def _edge(self, line: _Line) -> None:
        source = line.integer()
        line.expect("->")
        target, condition = line.integer(), _member(Condition, line.word())
        self.edges.append(Edge(source, target, condition, -1 if condition is Condition.ALWAYS else line.id()))

    def _provenance(self, line: _Line) -> None:
        texts: dict[str, str] = {}
        opset = 0
        for key in ("model", "producer", "opset", "converter"):
            line.expect(key)
            line.expect("=")
            if key == "opset":
                opset = line.integer()
            else:
                texts[key] = line.text()
        line.expect("rounding_passes")
        line.expect("=")
        passes = line.sequence("[", "]", line.text)
        self.provenance = Provenance(texts["model"], texts["producer"], opset, texts["converter"], passes)

    def _op(self, line: _Line) -> None:
        if not self.phases:
            raise SchemaError("an op before any phase")
        outputs: list[int] = []
        while not outputs or line.accept(";"):
            index, label, type_ = self._head(line)
            self._define(index, Value(type_, Role.TEMP, label))
            outputs.append(index)
        line.expect("=")
        kind, inputs = line.word(), line.sequence("(", ")", line.operand)
        attributes: dict[str, AttributeValue] = {}
        if line.peek == "{":
            attributes = dict(line.sequence("{", "}", lambda: self._attribute(line)))
        source: list[int] = []
        if line.accept("from"):
            source.append(line.integer())
            while line.accept(","):
                source.append(line.integer())
        phase = self.phases.pop()
        op = Op(kind, inputs, tuple(outputs), Attributes.of(attributes), tuple(source))
        self.phases.append(Phase(phase.name, phase.inputs, phase.outputs, (*phase.ops, op)))

    def _head(self, line: _Line) -> tuple[int, str, TensorType]:
        index = line.id()
        label = line.text() if line.peek.startswith('"') else ""
        line.expect(":")
        return index, label, self._type(line)

    def _define(self, index: int, value: Value) -> None:
        if self.values.setdefault(index, value) != value:
            raise SchemaError(f"value %{index} is given twice, differently")

    def _type(self, line: _Line) -> TensorType:
        dtype = dtype_of(line.word(), "type")
        shape = line.sequence("[", "]", lambda: self._dim(line))
        if not line.accept("quantized"):
            return TensorType(dtype, shape)
        numbers: dict[str, int] = {}
        symmetric = False
        for name, number in line.sequence("(", ")", lambda: _quantization_part(line)):
            symmetric = symmetric or name == "symmetric"
            numbers[name] = number
        return TensorType(dtype, shape, Quantization(numbers.get("axis"), numbers.get("block"), symmetric))

    def _dim(self, line: _Line) -> Dim:
        if line.accept("("):
            total = self._dim(line)
            while not line.accept(")"):
                build = dims.add if line.peek == "+" else dims.mul
                line.expect("+" if line.peek == "+" else "*")
                total = build(total, self._dim(line))
            return total
        if re.fullmatch(r"-?[0-9]+", line.peek):
            return line.integer()
        name = line.word()
        if line.peek != "(":
            if all(s.name != name for s in self.symbols):
                raise SchemaError(f"unknown symbol {name[:40]!r}")
            return Sym(name)
        args = line.sequence("(", ")", lambda: self._dim(line))
        if name in ("min", "max") and args:
            return (dims.minimum if name == "min" else dims.maximum)(*args)
        if name not in _DIVISIONS or len(args) != 2:
            raise SchemaError(f"{name[:40]!r} with {len(args)} arguments is no dim expression")
        return _DIVISIONS[name](*args)

    def _attribute(self, line: _Line) -> tuple[str, AttributeValue]:
        name = line.word()
        line.expect("=")
        if line.peek.startswith('"'):
            return name, line.text()
        if _is_f32(line.peek):
            return name, _f32(line)
        if line.peek != "[":
            return name, line.integer()
        items = line.sequence("[", "]", lambda: _f32(line) if _is_f32(line.peek) else self._dim(line))
        numbers = tuple(item for item in items if isinstance(item, F32))
        extents = tuple(item for item in items if not isinstance(item, F32))
        if numbers and extents:
            raise SchemaError(f"attribute {name} mixes binary32 numbers and dims")
        return name, numbers or extents


def _is_f32(token: str) -> bool:
    return token.startswith("f32:") or re.fullmatch(r"-?[0-9].*f", token) is not None


def _f32(line: _Line) -> F32:
    token = line.take()
    if token.startswith("f32:"):
        return F32(text_to_float(token))
    return F32(float(np.float32(float(token[:-1]))))


def _quantization_part(line: _Line) -> tuple[str, int]:
    name = line.word()
    if name == "symmetric":
        return name, 1
    if name not in ("axis", "block"):
        raise SchemaError(f"unknown part of a quantization: {name[:40]!r}")
    line.expect("=")
    return name, line.integer()


Member = TypeVar("Member", Role, Condition)


def _member(kind: type[Member], text: str) -> Member:
    try:
        return kind(text)
    except ValueError:
        raise SchemaError(f"{text[:40]!r} is none of {', '.join(kind)}") from None
