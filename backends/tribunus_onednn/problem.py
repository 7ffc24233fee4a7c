"""A oneDNN problem as data: memories, algorithm, post-ops, and which buffer is which argument.

Imported by: match, probe, replay, backend.  Imports: canon, errors.  No NumPy, no library.

Every name is oneDNN's own without its prefix, so that a reader can look it up in the library's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tribunus.canon import Json, f32_to_text, int_of, list_of, object_of, str_of, text_to_float
from tribunus.errors import SchemaError

ANY = "any"
"""Tag of a memory whose layout the implementation chooses."""

Number: TypeAlias = "int | float | tuple[int, ...]"


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory descriptor.  dims: logical extents.  strides: in elements; None: ``tag`` says it instead.

    tag: oneDNN's format tag (``any``, ``BA16a64b``): upper case axes are blocked, inner blocks follow slowest first.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...] | None
    tag: str = ""
    dtype: str = "f32"

    @property
    def is_any(self) -> bool:
        """Whether the implementation chooses."""
        return self.tag == ANY


@dataclass(frozen=True, slots=True)
class PostOp:
    """An operation on the result before it is stored.  memory: name of the second operand of a binary one."""

    alg: str
    alpha: float = 0.0
    beta: float = 0.0
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """Execution argument: its name, the buffer that holds it (recipe order), the name of its memory."""

    name: str
    buffer: int
    memory: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What a primitive is asked to do.  op: oneDNN's primitive.  numbers: its other parameters, sorted by name."""

    op: str
    alg: str
    memories: tuple[tuple[str, Memory], ...]
    numbers: tuple[tuple[str, Number], ...]
    post_ops: tuple[PostOp, ...]
    arguments: tuple[Argument, ...]

    def memory(self, name: str) -> Memory:
        """A memory by name.  Raises SchemaError."""
        for key, value in self.memories:
            if key == name:
                return value
        raise SchemaError(f"the problem {self.op} has no memory {name!r}")

    def has(self, name: str) -> bool:
        """Whether there is a memory of this name."""
        return any(key == name for key, _ in self.memories)

    def with_memories(self, known: Mapping[str, Memory]) -> Problem:
        """The same problem with some memories replaced."""
        return replace(self, memories=tuple((k, known.get(k, v)) for k, v in self.memories))

    def integer(self, name: str) -> int:
        """An integer parameter.  Raises SchemaError."""
        value = dict(self.numbers).get(name)
        if type(value) is not int:
            raise SchemaError(f"the problem {self.op} has no integer {name!r}")
        return value

    def real(self, name: str) -> float:
        """A binary32 parameter.  Raises SchemaError."""
        value = dict(self.numbers).get(name)
        if not isinstance(value, float):
            raise SchemaError(f"the problem {self.op} has no number {name!r}")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A list parameter.  Raises SchemaError."""
        value = dict(self.numbers).get(name)
        if not isinstance(value, tuple):
            raise SchemaError(f"the problem {self.op} has no list {name!r}")
        return value


def memory_to_json(memory: Memory) -> Json:
    """Document form."""
    return {
        "dims": list(memory.dims),
        "strides": None if memory.strides is None else list(memory.strides),
        "tag": memory.tag,
        "dtype": memory.dtype,
    }


def memory_from_json(value: Json, where: str) -> Memory:
    """Inverse of ``memory_to_json``.  Raises SchemaError."""
    document = object_of(value, where, frozenset(("dims", "strides", "tag", "dtype")))
    strides = document["strides"]
    return Memory(
        _integers(document["dims"], where),
        None if strides is None else _integers(strides, where),
        str_of(document["tag"], where),
        str_of(document["dtype"], where),
    )


def problem_to_json(problem: Problem) -> Json:
    """Document form."""
    return {
        "op": problem.op,
        "alg": problem.alg,
        "memories": [[name, memory_to_json(memory)] for name, memory in problem.memories],
        "numbers": [[name, _number_to_json(value)] for name, value in problem.numbers],
        "post_ops": [
            {"alg": p.alg, "alpha": f32_to_text(p.alpha), "beta": f32_to_text(p.beta), "memory": p.memory}
            for p in problem.post_ops
        ],
        "arguments": [[a.name, a.buffer, a.memory] for a in problem.arguments],
    }


def problem_from_json(value: Json, where: str) -> Problem:
    """Inverse of ``problem_to_json``.  Raises SchemaError."""
    document = object_of(value, where, frozenset(("op", "alg", "memories", "numbers", "post_ops", "arguments")))
    memories: list[tuple[str, Memory]] = []
    for entry in list_of(document["memories"], where):
        name, memory = _row(entry, 2, where)
        memories.append((str_of(name, where), memory_from_json(memory, where)))
    numbers: list[tuple[str, Number]] = []
    for entry in list_of(document["numbers"], where):
        name, number = _row(entry, 2, where)
        numbers.append((str_of(name, where), _number_from_json(number, where)))
    post_ops: list[PostOp] = []
    for entry in list_of(document["post_ops"], where):
        part = object_of(entry, where, frozenset(("alg", "alpha", "beta", "memory")))
        post_ops.append(
            PostOp(
                str_of(part["alg"], where),
                text_to_float(str_of(part["alpha"], where)),
                text_to_float(str_of(part["beta"], where)),
                str_of(part["memory"], where),
            )
        )
    arguments: list[Argument] = []
    for entry in list_of(document["arguments"], where):
        name, buffer, memory = _row(entry, 3, where)
        arguments.append(Argument(str_of(name, where), int_of(buffer, where), str_of(memory, where)))
    return Problem(
        str_of(document["op"], where),
        str_of(document["alg"], where),
        tuple(memories),
        tuple(numbers),
        tuple(post_ops),
        tuple(arguments),
    )


def _row(value: Json, length: int, where: str) -> Sequence[Json]:
    row = list_of(value, where)
    if len(row) != length:
        raise SchemaError(f"{where}: {length} entries were expected")
    return row


def _integers(value: Json, where: str) -> tuple[int, ...]:
    # pads may be negative
    return tuple(int_of(item, where, -(1 << 40), 1 << 40) for item in list_of(value, where))


def _number_to_json(value: Number) -> Json:
    if isinstance(value, tuple):
        return list(value)
    return f32_to_text(value) if isinstance(value, float) else value


def _number_from_json(value: Json, where: str) -> Number:
    if isinstance(value, list):
        return _integers(value, where)
    if isinstance(value, str):
        return text_to_float(value)
    return int_of(value, where, -(1 << 40), 1 << 40)
