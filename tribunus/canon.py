"""Canonical JSON and digests: one byte string for one value, and no second reading of it.

Imported by: every room that hashes or stores documents.  Imports: errors.  Standard library only (the runtime uses it).

The form is RFC 8785 restricted to a subset in which ``json.dumps`` with sorted keys *is* RFC 8785: ASCII keys, no
floats, integers within +-(2**53 - 1).  Floating point values travel as bit strings, ``"f32:3f800000"``.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from typing import Final, NewType, NoReturn, TypeAlias

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

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Digest = NewType("Digest", str)
"""SHA-256 as 64 lowercase hexadecimal digits, without a prefix."""

MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32
_HEXADECIMAL: Final = "0123456789abcdef"
_ALPHANUMERIC: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_IDENTIFIER: Final = _ALPHANUMERIC + "._/+-"


def encode(value: Json) -> bytes:
    """Canonical bytes of ``value``.  Raises JsonFloatError, JsonIntegerError or JsonCanonError for what has none."""
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
    return Digest(hashlib.sha256(data).hexdigest())


def digest_of(value: Json) -> Digest:
    """SHA-256 of the canonical bytes of ``value``."""
    return digest_bytes(encode(value))


def parse_digest(text: str) -> Digest:
    """``text`` as a digest.  Raises DigestSyntaxError unless it is 64 lowercase hexadecimal digits."""
    if len(text) != 64 or text.strip(_HEXADECIMAL):
        raise DigestSyntaxError(f"{text[:80]!r} is not a SHA-256 digest")
    return Digest(text)


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


def int_of(value: Json, where: str, low: int = 0, high: int = MAX_INTEGER) -> int:
    """``value`` as an integer (never a bool) within [low, high].  Raises SchemaError."""
    if type(value) is not int:
        raise SchemaError(f"{where}: an integer was expected")
    if not low <= value <= high:
        raise SchemaError(f"{where}: {value} is outside {low}..{high}")
    return value


def str_of(value: Json, where: str) -> str:
    """``value`` as a string.  Raises SchemaError."""
    if type(value) is not str:
        raise SchemaError(f"{where}: a string was expected")
    return value


def bool_of(value: Json, where: str) -> bool:
    """``value`` as a bool.  Raises SchemaError."""
    if type(value) is not bool:
        raise SchemaError(f"{where}: true or false was expected")
    return value


def _decode_canonical(raw: bytes) -> tuple[bool, Json]:
    """Whether ``raw`` is canonical, and its value.  False: it may still be; the exact path decides, and words refusals.

    Nothing of Python runs for each number or object here.  A repeated key is lost in parsing, so that encoding gives
    other bytes; long integers and depth are looked at afterwards; text beyond ASCII is left to the exact path.
    """
    try:
        if not raw.isascii():
            return False, None
        text = raw.decode("ascii")
        value = _parse(_PLAIN, text)
        accepted = _ENCODER.encode(value) == text and _is_bounded([value], 0)
    except (ValueError, RecursionError, JsonFloatError):
        return False, None
    return accepted, value


def _parse(decoder: json.JSONDecoder, text: str) -> Json:
    value: Json = decoder.decode(text)
    return value


def _is_bounded(values: Iterable[Json], depth: int) -> bool:
    """Whether integers and depth of parsed values are within bounds."""
    if depth > MAX_DEPTH:
        return not any(True for _ in values)
    for value in values:
        if type(value) is str:
            continue
        if isinstance(value, dict):
            if not _is_bounded(value.values(), depth + 1):
                return False
        elif isinstance(value, list):
            if not _is_bounded(value, depth + 1):
                return False
        elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            return False
    return True


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


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_PLAIN: Final = json.JSONDecoder(parse_float=_no_float, parse_constant=_no_float)
_STRICT: Final = json.JSONDecoder(
    parse_float=_no_float, parse_constant=_no_float, parse_int=_integer, object_pairs_hook=_object
)
