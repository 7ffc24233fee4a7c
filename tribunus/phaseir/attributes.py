"""Attributes of an op: a small closed set of value kinds with exact document and text forms.

Imported by: phaseir and the rooms that read ops.  Imports: canon, numerics, dims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tribunus.canon import Json, f32_to_text, list_of, object_of, str_of, text_to_float
from tribunus.errors import InternalError, SchemaError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim


@dataclass(frozen=True, slots=True)
class F32:
    """A binary32 number as stored in the model: ``value`` is exactly representable in binary32 (or NaN, infinite)."""

    value: float


AttributeValue: TypeAlias = "int | str | F32 | tuple[Dim, ...] | tuple[F32, ...]"


@dataclass(frozen=True, slots=True)
class Attributes:
    """Sorted (name, value) pairs.  Accessors raise InternalError where an op lacks what its specification promises."""

    items: tuple[tuple[str, AttributeValue], ...] = ()

    @staticmethod
    def of(values: Mapping[str, AttributeValue]) -> Attributes:
        """Attributes from a mapping, in sorted order."""
        return Attributes(tuple(sorted(values.items(), key=lambda item: item[0])))

    def __iter__(self) -> Iterator[tuple[str, AttributeValue]]:
        return iter(self.items)

    def get(self, name: str) -> AttributeValue | None:
        """The value, or None."""
        for key, value in self.items:
            if key == name:
                return value
        return None

    def integer(self, name: str) -> int:
        """An integer attribute."""
        value = self.get(name)
        if not isinstance(value, int):
            raise InternalError(f"attribute {name} is {value!r}, an integer was expected")
        return value

    def flag(self, name: str) -> bool:
        """An integer attribute that is 0 or 1."""
        return self.integer(name) != 0

    def f32(self, name: str) -> float:
        """A binary32 attribute, widened exactly."""
        value = self.get(name)
        if not isinstance(value, F32):
            raise InternalError(f"attribute {name} is {value!r}, a binary32 number was expected")
        return value.value

    def text(self, name: str) -> str:
        """A text attribute."""
        value = self.get(name)
        if not isinstance(value, str):
            raise InternalError(f"attribute {name} is {value!r}, text was expected")
        return value

    def dtype(self, name: str) -> DType:
        """A text attribute that names a dtype."""
        return DType(self.text(name))

    def dims(self, name: str) -> tuple[Dim, ...]:
        """A tuple of dims (numbers or expressions)."""
        value = self.get(name)
        if not isinstance(value, tuple):
            raise InternalError(f"attribute {name} is {value!r}, a tuple of dims was expected")
        found = tuple(d for d in value if not isinstance(d, F32))
        if len(found) != len(value):
            raise InternalError(f"attribute {name} holds binary32 numbers, dims were expected")
        return found

    def integers(self, name: str) -> tuple[int, ...]:
        """A tuple of plain integers."""
        found = self.dims(name)
        numbers = tuple(d for d in found if isinstance(d, int))
        if len(numbers) != len(found):
            raise InternalError(f"attribute {name} is symbolic, integers were expected")
        return numbers

    def f32s(self, name: str) -> tuple[float, ...]:
        """A tuple of binary32 numbers."""
        value = self.get(name)
        if not isinstance(value, tuple):
            raise InternalError(f"attribute {name} is {value!r}, binary32 numbers were expected")
        return tuple(v.value for v in value if isinstance(v, F32))

    def substitute(self, replacements: Mapping[str, Dim]) -> Attributes:
        """Attributes with the symbols in their dims replaced."""
        return Attributes(tuple((k, _substitute(v, replacements)) for k, v in self.items))


NO_ATTRIBUTES: Final = Attributes()


def attributes_to_json(attributes: Attributes, index: Mapping[str, int]) -> Json:
    """Document form: integers and lists as they are, text as ``{"text": ...}``, binary32 as bit strings."""
    return {name: _value_to_json(value, index) for name, value in attributes}


def attributes_from_json(value: Json, names: Sequence[str], where: str) -> Attributes:
    """Inverse of ``attributes_to_json``.  Raises SchemaError."""
    if type(value) is not dict:
        raise SchemaError(f"{where}: attributes must be an object")
    return Attributes.of({key: _value_from_json(item, names, f"{where}.{key}") for key, item in value.items()})


def _substitute(value: AttributeValue, replacements: Mapping[str, Dim]) -> AttributeValue:
    if not isinstance(value, tuple):
        return value
    numbers = tuple(v for v in value if isinstance(v, F32))
    if numbers:
        return numbers
    return tuple(dims.substitute(v, replacements) for v in value if not isinstance(v, F32))


def _value_to_json(value: AttributeValue, index: Mapping[str, int]) -> Json:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, F32):
        return f32_to_text(value.value)
    return [f32_to_text(v.value) if isinstance(v, F32) else dims.to_json(v, index) for v in value]


def _value_from_json(value: Json, names: Sequence[str], where: str) -> AttributeValue:
    if type(value) is int:
        return value
    if type(value) is str:
        return F32(text_to_float(value))
    if type(value) is dict:
        return str_of(object_of(value, where, frozenset(("text",)))["text"], where)
    items = list_of(value, where)
    if items and type(items[0]) is str:
        return tuple(F32(text_to_float(str_of(item, where))) for item in items)
    return tuple(dims.from_json(item, names, where) for item in items)
