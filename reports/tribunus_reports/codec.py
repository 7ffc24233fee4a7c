"""Frozen dataclasses to JSON and back, strictly; and the JSON schema that says the same.

Imported by: store, schema.  Imports: errors.

One table of rules (fields are keys, nothing optional, nothing extra, tuples are arrays, enums their values) serves
writer, reader and schema, so that they cannot drift apart.  JSON has no infinities: a float that is not finite travels
as one of the strings "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from tribunus.errors import InternalError, SchemaError

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
T = TypeVar("T")
MAX_INTEGER: Final = 2**53 - 1
_NON_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def plain_float(value: float) -> float | str:
    """``value``, or its name if JSON has no number for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_plain(value: object) -> Plain:
    """A dataclass of this package as JSON values."""
    if isinstance(value, StrEnum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return plain_float(value)
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise InternalError(f"report: a {type(value).__name__} has no JSON form")


class Reader:
    """Reads one tree; keeps the types of each class it met, since resolving them is dear."""

    def __init__(self) -> None:
        self._hints: dict[type, dict[str, object]] = {}

    def read(self, cls: type[T], value: Plain, where: str) -> T:
        """``value`` as an instance of the dataclass ``cls``.  Raises SchemaError naming the place."""
        return cast(T, self._object(cls, value, where))

    def _object(self, cls: type, value: Plain, where: str) -> object:
        hints = self._hints.get(cls)
        if hints is None:
            hints = self._hints[cls] = dict(get_type_hints(cls))
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: an object was expected")
        if missing := hints.keys() - value.keys():
            raise SchemaError(f"{where}: missing {', '.join(sorted(missing))}")
        if unknown := value.keys() - hints.keys():
            raise SchemaError(f"{where}: unknown {', '.join(sorted(ascii(key)[:60] for key in unknown))}")
        build = cast("Callable[..., object]", cls)
        return build(**{name: self._value(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})

    def _value(self, hint: object, value: Plain, where: str) -> object:
        if hint is str:
            if not isinstance(value, str):
                raise SchemaError(f"{where}: a string was expected")
            return value
        if hint is bool:
            if not isinstance(value, bool):
                raise SchemaError(f"{where}: true or false was expected")
            return value
        if hint is int:
            if type(value) is not int or abs(value) > MAX_INTEGER:
                raise SchemaError(f"{where}: an integer within +-(2**53 - 1) was expected")
            return value
        if hint is float:
            if isinstance(value, str) and value in _NON_FINITE:
                return float(value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SchemaError(f"{where}: a number was expected")
            return _float(value, where)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            if value not in list(hint):
                raise SchemaError(f"{where}: {ascii(value)[:60]} is none of {', '.join(hint)}")
            return hint(value)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._object(hint, value, where)
        if get_origin(hint) is types.UnionType:
            return None if value is None else self._value(_some(hint), value, where)
        if get_origin(hint) is tuple:
            return self._tuple(get_args(hint), value, where)
        raise InternalError(f"report: no reading rule for {hint}")

    def _tuple(self, parts: tuple[object, ...], value: Plain, where: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise SchemaError(f"{where}: a list was expected")
        if parts[-1] is Ellipsis:
            return tuple(self._value(parts[0], item, f"{where}[{at}]") for at, item in enumerate(value))
        if len(value) != len(parts):
            raise SchemaError(f"{where}: {len(parts)} items were expected, not {len(value)}")
        return tuple(self._value(part, item, where) for part, item in zip(parts, value, strict=True))


def schema_of(cls: type, identity: str) -> dict[str, Plain]:
    """JSON schema (draft 2020-12) of the documents that ``Reader`` accepts for ``cls``, its own laws apart."""
    definitions: dict[str, Plain] = {}
    _define(cls, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identity,
        "title": f"A document of schema {identity}",
        "$ref": f"#/$defs/{cls.__name__}",
        "$defs": definitions,
    }


def _define(cls: type, definitions: dict[str, Plain]) -> None:
    if cls.__name__ in definitions:
        return
    definitions[cls.__name__] = None  # reserved: the order of definitions is the order of first mention
    text = " ".join((cls.__doc__ or "").split())
    if issubclass(cls, StrEnum):
        definitions[cls.__name__] = {"description": text, "enum": [member.value for member in cls]}
        return
    properties = {name: _schema(hint, definitions) for name, hint in get_type_hints(cls).items()}
    definitions[cls.__name__] = {
        "description": text,
        "type": "object",
        "properties": cast("Plain", properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema(hint: object, definitions: dict[str, Plain]) -> Plain:
    if hint is str:
        return {"type": "string"}
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        return {"type": "integer", "minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
    if hint is float:
        return {"anyOf": [{"type": "number"}, {"enum": list(_NON_FINITE)}]}
    if get_origin(hint) is types.UnionType:
        return {"anyOf": [_schema(_some(hint), definitions), {"type": "null"}]}
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1] is Ellipsis:
            return {"type": "array", "items": _schema(parts[0], definitions)}
        items = [_schema(part, definitions) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(parts), "maxItems": len(parts)}
    if isinstance(hint, type):
        _define(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise InternalError(f"report: no schema rule for {hint}")


def _some(hint: object) -> object:
    return next(part for part in get_args(hint) if part is not type(None))


def _float(value: int | float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise SchemaError(f"{where}: {str(value)[:24]}... is beyond a float") from None
    if not math.isfinite(number):
        raise SchemaError(f"{where}: a finite number was expected")
    return number
