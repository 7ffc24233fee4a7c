"""Canonical JSON and digests: one byte string for one value, and no second reading of it.

Imported by: every room that hashes or stores documents.  Imports: errors, sha256.

The form is RFC 8785 restricted to a subset in which ``json.dumps`` with sorted keys *is* RFC 8785: ASCII keys, no
floats, integers within +-(2**53 - 1).  Floating point values travel as bit strings, ``"f32:3f800000"``.
"""

from __future__ import annotations

import functools
import json
import marshal
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise
from typing import Final, NewType, NoReturn, TypeAlias, TypeVar

from tribunus.errors import (
    DigestSyntaxError,
    EncodingError,
    JsonCanonError,
    JsonDuplicateKeyError,
    JsonFloatError,
    JsonIntegerError,
    JsonSizeError,
    SchemaError,
)
from tribunus.sha256 import sha256

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Digest = NewType("Digest", str)
"""SHA-256 as 64 lowercase hexadecimal digits, without a prefix."""

MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32
T = TypeVar("T")
E = TypeVar("E", bound=Enum)
_PLAIN_MARSHAL: Final = 0
"""The version of marshal that writes equal values as equal bytes and unequal ones, ``1`` and ``True``, as unequal."""
_HEXADECIMAL: Final = "0123456789abcdef"
_ALPHANUMERIC: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_IDENTIFIER: Final = _ALPHANUMERIC + "._/+-"


def encode(value: Json) -> bytes:
    """Canonical bytes of ``value``.  Raises JsonFloatError, JsonIntegerError or JsonCanonError for what has none."""
    if not _is_plain(value):
        _check(value, 0)
    return _dump(value)


def decode(data: bytes | memoryview, *, limit: int) -> Json:
    """The value whose canonical bytes are exactly ``data``; at most ``limit`` bytes.

    Raises JsonSizeError, EncodingError, JsonDuplicateKeyError, JsonIntegerError, JsonFloatError or JsonCanonError.
    """
    if len(data) > limit:
        raise JsonSizeError(f"document of {len(data)} bytes, at most {limit} allowed")
    raw = bytes(data)
    accepted, value = _decode_canonical(raw)
    if accepted:
        return value
    try:
        value = _parse(_STRICT, raw.decode("utf-8", "strict"))
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"not a JSON document: {type(error).__name__}") from None
    _check(value, 0)
    if _dump(value) != raw:
        raise JsonCanonError("the document is not in canonical form")
    return value


def digest_bytes(data: bytes | bytearray | memoryview) -> Digest:
    """SHA-256 of ``data``."""
    return Digest(sha256(data).hex())


def text_of(value: Json) -> str:
    """Canonical text of ``value``, to be put together with other such text.  Raises as ``encode`` does."""
    if type(value) is int and -MAX_INTEGER <= value <= MAX_INTEGER:
        return str(value)
    return encode(value).decode("utf-8")


def digest_of(value: Json) -> Digest:
    """SHA-256 of the canonical bytes of ``value``."""
    return digest_bytes(encode(value))


def parse_digest(text: str) -> Digest:
    """``text`` as a digest.  Raises DigestSyntaxError unless it is 64 lowercase hexadecimal digits."""
    if len(text) != 64 or text.strip(_HEXADECIMAL):
        raise DigestSyntaxError(f"{text[:80]!r} is not a SHA-256 digest")
    return Digest(text)


def digest_from_json(value: Json, where: str) -> Digest:
    """``value`` as a digest.  Raises SchemaError, DigestSyntaxError."""
    if type(value) is str and len(value) == 64 and not value.strip(_HEXADECIMAL):
        return Digest(value)
    return parse_digest(str_of(value, where))


def is_identifier(text: str) -> bool:
    """Whether ``text`` may be used as an identifier in a document (target, op, kernel id)."""
    return 0 < len(text) <= 128 and text[0] in _ALPHANUMERIC and not text.strip(_IDENTIFIER)


def f32_to_text(value: float) -> str:
    """Bits of ``value`` as binary32; ``value`` must be a binary32 number, an infinity or NaN."""
    return "f32:" + struct.pack(">f", value).hex()


def f64_to_text(value: float) -> str:
    """Bits of ``value`` as binary64."""
    return "f64:" + struct.pack(">d", value).hex()


def text_to_float(text: str) -> float:
    """Inverse of ``f32_to_text`` and ``f64_to_text``.  Raises SchemaError for any other text."""
    kind, _, digits = text.partition(":")
    width = {"f32": 8, "f64": 16}.get(kind)
    if width != len(digits) or digits.strip(_HEXADECIMAL):
        raise SchemaError(f"{text[:40]!r} is not a floating point bit string")
    value: float = struct.unpack(">f" if kind == "f32" else ">d", bytes.fromhex(digits))[0]
    return value


def read_once(
    remembered: int,
) -> Callable[[Callable[[Json, tuple[str, ...]], T]], Callable[[Json, Sequence[str], str], T]]:
    """For readers of small documents that a file repeats: equal ones over equal names are read once, as one object.

    remembered: how many.  What is made of ``read(value, names)`` is ``read(value, names, where)``; SchemaErrors are
    said to be there, unless ``where`` is empty.
    """

    def decorate(read: Callable[[Json, tuple[str, ...]], T]) -> Callable[[Json, Sequence[str], str], T]:
        @functools.lru_cache(maxsize=remembered)
        def from_bytes(document: bytes, names: tuple[str, ...]) -> T:
            return read(marshal.loads(document), names)

        def from_json(value: Json, names: Sequence[str], where: str) -> T:
            try:
                return from_bytes(marshal.dumps(value, _PLAIN_MARSHAL), tuple(names))
            except SchemaError as error:
                raise SchemaError(f"{where}: {error.detail}" if where else error.detail) from None

        return from_json

    return decorate


def object_of(value: Json, where: str, required: frozenset[str], optional: frozenset[str] = frozenset()) -> JsonObject:
    """``value`` as an object with exactly these keys.  Raises SchemaError naming the missing or unknown ones."""
    if type(value) is not dict:
        raise SchemaError(f"{where}: an object was expected")
    if value.keys() == required:
        return value
    keys = frozenset(value)
    if missing := required - keys:
        raise SchemaError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown := keys - required - optional:
        raise SchemaError(f"{where}: unknown {', '.join(sorted(unknown))}")
    return value


def list_of(value: Json, where: str) -> list[Json]:
    """``value`` as a list.  Raises SchemaError."""
    if type(value) is not list:
        raise SchemaError(f"{where}: a list was expected")
    return value


def row_of(value: Json, where: str, *names: str) -> list[Json]:
    """``value`` as a list with one item for each of ``names``.  Raises SchemaError."""
    items = list_of(value, where)
    if len(items) != len(names):
        raise SchemaError(f"{where}: [{', '.join(names)}] was expected")
    return items


def int_of(value: Json, where: str, low: int = 0, high: int = MAX_INTEGER) -> int:
    """``value`` as an integer (never a bool) within [low, high].  Raises SchemaError."""
    if type(value) is not int:
        raise SchemaError(f"{where}: an integer was expected")
    if not low <= value <= high:
        raise SchemaError(f"{where}: {value} is outside {low}..{high}")
    return value


def ints_of(value: Json, where: str, low: int = 0, high: int = MAX_INTEGER) -> tuple[int, ...]:
    """``value`` as a list of integers (never bools) within [low, high].  Raises SchemaError."""
    items = list_of(value, where)
    found = [item for item in items if type(item) is int and low <= item <= high]
    return tuple(found) if len(found) == len(items) else tuple(int_of(item, where, low, high) for item in items)


def str_of(value: Json, where: str) -> str:
    """``value`` as a string.  Raises SchemaError."""
    if type(value) is not str:
        raise SchemaError(f"{where}: a string was expected")
    return value


def member_of(kind: type[E], value: Json, where: str) -> E:
    """The member of an enumeration of texts that ``value`` names.  Raises SchemaError."""
    text = str_of(value, where)
    try:
        return kind(text)
    except ValueError:
        raise SchemaError(f"{where}: unknown {kind.__name__} {text[:20]!r}") from None


def bool_of(value: Json, where: str) -> bool:
    """``value`` as a bool.  Raises SchemaError."""
    if type(value) is not bool:
        raise SchemaError(f"{where}: true or false was expected")
    return value


def _decode_canonical(raw: bytes) -> tuple[bool, Json]:
    """Whether ``raw`` is canonical, and its value.  False: it may still be; the exact path decides, and words refusals.

    Of ASCII text without backslashes: the canonical form is the shortest way to write a value.  White space, ``-0`` and
    a repeated key, which is lost in parsing, only make it longer.  So text of exactly that length whose keys are in
    order is canonical, and nothing needs to be encoded again.
    """
    if not raw.isascii() or b"\\" in raw:
        return False, None
    try:
        text = raw.decode("ascii")
        value = _parse(_PLAIN, text)
        accepted = _canonical_length(value) == len(text)
    except (ValueError, RecursionError, JsonFloatError):
        return False, None
    return accepted, value


def _parse(decoder: json.JSONDecoder, text: str) -> Json:
    value: Json = decoder.decode(text)
    return value


def _canonical_length(parsed: Json) -> int:
    """Characters in which a parsed value of plain text is written; -1 if keys are out of order, or a bound is exceeded.

    Level by level: this runs for every document that is opened.
    """
    length = 0
    level = [parsed]
    for _ in range(MAX_DEPTH + 1):
        below: list[Json] = []
        for item in level:
            if type(item) is int:
                if 0 <= item < 10:
                    length += 1
                elif -MAX_INTEGER <= item <= MAX_INTEGER:
                    length += len(str(item))
                else:
                    return -1
            elif type(item) is str:
                length += len(item) + 2
            elif type(item) is list:
                length += len(item) + 1 if item else 2
                below += item
            elif type(item) is dict:
                frame = _frame_length(tuple(item))
                if frame < 0:
                    return -1
                length += frame
                below += item.values()
            else:
                length += 5 if item is False else 4
        if not below:
            return length
        level = below
    return -1


@functools.lru_cache(maxsize=256)
def _frame_length(keys: tuple[str, ...]) -> int:
    """Characters of an object with these keys but for its values; -1 if the keys do not ascend."""
    if any(left >= right for left, right in pairwise(keys)):
        return -1
    return sum(map(len, keys)) + 4 * len(keys) + 1 if keys else 2


def _is_plain(value: object) -> bool:
    """Whether a value has a canonical form for certain; False: ``_check`` decides, and words the refusal."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for item in level:
            if type(item) is str or item is None:
                continue
            if type(item) is int:
                if not -MAX_INTEGER <= item <= MAX_INTEGER:
                    return False
            elif type(item) is list:
                below += item
            elif type(item) is dict:
                if not _are_plain(tuple(item)):
                    return False
                below += item.values()
            elif type(item) is not bool:
                return False
        if not below:
            return True
        level = below
    return False


@functools.lru_cache(maxsize=256)
def _are_plain(keys: tuple[object, ...]) -> bool:
    return all(isinstance(key, str) and key.isascii() for key in keys)


def _dump(value: Json) -> bytes:
    text = _ENCODER.encode(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise JsonCanonError("a string holds an unpaired surrogate") from None


def _check(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise JsonSizeError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str) or value is None or value is True or value is False:
        return
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise JsonIntegerError(f"integer {value} is outside +-(2**53 - 1)")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise JsonCanonError(f"key {key!r} is not ASCII text")
            if type(item) is not str or depth == MAX_DEPTH:
                _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            if type(item) is not str or depth == MAX_DEPTH:
                _check(item, depth + 1)
    elif isinstance(value, float):
        raise JsonFloatError("floats have no canonical form; use a bit string")
    else:
        raise JsonCanonError(f"{type(value).__name__} has no canonical form")


def _no_float(text: str) -> NoReturn:
    raise JsonFloatError(f"{text[:40]} is a float; only integers and bit strings are allowed")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise JsonIntegerError(f"integer {text[:24]} is outside +-(2**53 - 1)")
    return int(text)


def _object(pairs: list[tuple[str, Json]]) -> JsonObject:
    found: JsonObject = dict(pairs)
    if len(found) != len(pairs):
        raise JsonDuplicateKeyError("an object repeats a key")
    return found


_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
_PLAIN: Final = json.JSONDecoder(parse_float=_no_float, parse_constant=_no_float)
_STRICT: Final = json.JSONDecoder(
    parse_float=_no_float, parse_constant=_no_float, parse_int=_integer, object_pairs_hook=_object
)
