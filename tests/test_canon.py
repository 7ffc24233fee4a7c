"""Canonical JSON: one byte string for one value, and no second reading of it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunus import canon
from tribunus.admission.receipt import Check
from tribunus.canon import (
    MAX_DEPTH,
    MAX_INTEGER,
    Json,
    bool_of,
    decode,
    digest_bytes,
    digest_of,
    encode,
    f32_to_text,
    f64_to_text,
    int_of,
    is_identifier,
    list_of,
    member_of,
    object_of,
    parse_digest,
    row_of,
    str_of,
    text_to_float,
)
from tribunus.errors import (
    DigestSyntaxError,
    EncodingError,
    JsonCanonError,
    JsonDuplicateKeyError,
    JsonFloatError,
    JsonIntegerError,
    JsonSizeError,
    SchemaError,
    TribunusError,
)

LIMIT = 1_000_000

HOSTILE: dict[str, tuple[bytes, type[EncodingError]]] = {
    "duplicate key": (b'{"a":1,"a":2}', JsonDuplicateKeyError),
    "duplicate key of equal value, deep": (b'[{"b":{"a":1,"a":1}}]', JsonDuplicateKeyError),
    "NaN": (b'{"a":NaN}', JsonFloatError),
    "infinity": (b"[-Infinity]", JsonFloatError),
    "float": (b"[1.0]", JsonFloatError),
    "exponent": (b"[1e3]", JsonFloatError),
    "negative zero": (b"[-0]", JsonCanonError),
    "five thousand digits": (b"[" + b"9" * 5000 + b"]", JsonIntegerError),
    "two to the 53 plus one": (b"[9007199254740993]", JsonIntegerError),
    "a hundred thousand nested lists": (b"[" * 100_000 + b"]" * 100_000, EncodingError),
    "nested deeper than the limit": (b"[" * 34 + b"]" * 34, JsonSizeError),
    "white space": (b'{"a": 1}', JsonCanonError),
    "escaped letter": (b'["\\u0061"]', JsonCanonError),
    "escaped slash": (b'["\\/"]', JsonCanonError),
    "unpaired surrogate": (b'["\\ud800"]', JsonCanonError),
    "byte order mark": (b"\xef\xbb\xbf[]", EncodingError),
    "trailing space": (b"[] ", JsonCanonError),
    "trailing document": (b"[][]", EncodingError),
    "malformed UTF-8": (b'["\xff"]', EncodingError),
    "overlong UTF-8": (b'["\xc0\xaf"]', EncodingError),
    "raw control character": (b'["\x01"]', EncodingError),
    "key order": (b'{"b":1,"a":2}', JsonCanonError),
    "key that is not ASCII": ('{"ä":1}'.encode(), JsonCanonError),
    "UTF-16": ("[1]".encode("utf-16"), EncodingError),
    "leading zero": (b"[01]", EncodingError),
    "nothing": (b"", EncodingError),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_by_its_own_name(name: str) -> None:
    text, error = HOSTILE[name]
    with pytest.raises(error) as caught:
        decode(text, limit=LIMIT)
    assert type(caught.value) is error


def test_the_standard_parser_alone_would_accept_many_of_them() -> None:
    """What the strict reader is for."""
    accepted = []
    for name, (text, _) in HOSTILE.items():
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            continue
        accepted.append(name)
    assert {"duplicate key", "NaN", "float", "negative zero", "white space", "unpaired surrogate"} <= set(accepted)


def test_a_document_above_the_limit_is_refused_before_it_is_parsed() -> None:
    assert decode(b"[1]", limit=3) == [1]
    with pytest.raises(JsonSizeError):
        decode(b"{{{{", limit=3)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([(",", ":"), (", ", ":"), (",", ": ")]), st.booleans(), st.booleans())
def test_of_all_texts_of_a_value_only_the_canonical_one_is_read(
    value: Json, separators: tuple[str, str], ordered: bool, escaped: bool
) -> None:
    text = json.dumps(value, separators=separators, sort_keys=ordered, ensure_ascii=escaped)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    if data == encode(value):
        assert decode(data, limit=LIMIT) == value
    else:
        with pytest.raises(JsonCanonError):
            decode(data, limit=LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[1,2,-0]}',
        b'{"a":[1,2], "b":"x"}',
        b'{"a":{"c":1,"b":2}}',
        b'["a","\\u0062"]',
        b'{"a":1,"a":10}',
        b"[true, 1]",
        b" [null]",
        b"[10 ]",
    ],
)
def test_a_text_that_is_longer_or_in_another_order_than_the_canonical_one_is_refused(text: bytes) -> None:
    with pytest.raises((JsonCanonError, JsonDuplicateKeyError)):
        decode(text, limit=LIMIT)


@pytest.mark.parametrize("number", [0, 9, 10, -1, -9, -10, MAX_INTEGER, -MAX_INTEGER])
def test_numbers_of_any_length_are_read(number: int) -> None:
    assert decode(b"[%d]" % number, limit=LIMIT) == [number]


@given(VALUES)
def test_encoding_and_decoding_are_inverse(value: Json) -> None:
    data = encode(value)
    assert decode(data, limit=LIMIT) == value
    assert encode(decode(data, limit=LIMIT)) == data
    assert digest_of(value) == digest_bytes(data)


@pytest.mark.parametrize(
    "value, text",
    [
        ({"b": 1, "a": [True, None, -5]}, b'{"a":[true,null,-5],"b":1}'),
        ('\u20ac$\u000f\nA\'B"\\\\"/', b'"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ({"": 0, "1": 0, "\r": 0, "\x80"[:0] + "a": 0}, b'{"":0,"\\r":0,"1":0,"a":0}'),
        ("\u2028\x7f", b'"\xe2\x80\xa8\x7f"'),
    ],
)
def test_encoding_is_that_of_rfc_8785(value: Json, text: bytes) -> None:
    assert encode(value) == text


def test_what_has_no_canonical_form_is_refused() -> None:
    deep: Json = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(JsonSizeError):
        encode(deep)
    with pytest.raises(JsonIntegerError):
        encode(MAX_INTEGER + 1)
    with pytest.raises(JsonCanonError):
        encode("\ud800")
    with pytest.raises(JsonCanonError):
        encode({"ä": 1})


@given(st.floats(width=32))
def test_binary32_values_survive_as_bit_strings(value: float) -> None:
    back = text_to_float(f32_to_text(value))
    assert f32_to_text(back) == f32_to_text(value)
    assert back == value or math.isnan(value)


@given(st.floats())
def test_binary64_values_survive_as_bit_strings(value: float) -> None:
    assert f64_to_text(text_to_float(f64_to_text(value))) == f64_to_text(value)


@pytest.mark.parametrize("text", ["", "f32:", "f32:3F800000", "f32:3f8000000", "f64:3f800000", "f16:3c00", "1.0"])
def test_other_texts_are_no_floats(text: str) -> None:
    with pytest.raises(SchemaError):
        text_to_float(text)


@pytest.mark.parametrize("text", ["", "ab", "AB" * 32, "sha256:" + "ab" * 32, "ab" * 32 + "\n", "../" + "a" * 61])
def test_other_texts_are_no_digests(text: str) -> None:
    assert parse_digest("ab" * 32) == "ab" * 32
    with pytest.raises(DigestSyntaxError):
        parse_digest(text)


def test_identifiers_are_lower_case_and_start_with_a_letter_or_digit() -> None:
    assert all(map(is_identifier, ("a", "cpu-x86-64-v4", "a/b.c_d+e", "0")))
    assert not any(map(is_identifier, ("", "A", "-a", "a b", "a\n", "ä", "a" * 129)))


def test_fields_are_taken_by_type_and_true_is_no_integer() -> None:
    assert object_of({"a": 1}, "x", frozenset({"a"}), frozenset({"b"})) == {"a": 1}
    assert row_of([1, "a"], "x", "number", "text") == [1, "a"]
    assert member_of(Check, "oracle", "x") is Check.ORACLE
    assert (list_of([], "x"), int_of(3, "x", 0, 3), str_of("", "x"), bool_of(False, "x")) == ([], 3, "", False)
    for refused in (
        lambda: object_of([], "x", frozenset()),
        lambda: object_of({}, "x", frozenset({"a"})),
        lambda: object_of({"a": 1, "c": 1}, "x", frozenset({"a"})),
        lambda: list_of({}, "x"),
        lambda: row_of([1], "x", "number", "text"),
        lambda: row_of({}, "x"),
        lambda: member_of(Check, "oracles", "x"),
        lambda: member_of(Check, 1, "x"),
        lambda: int_of(True, "x"),
        lambda: int_of("1", "x"),
        lambda: int_of(-1, "x"),
        lambda: int_of(4, "x", 0, 3),
        lambda: str_of(1, "x"),
        lambda: bool_of(1, "x"),
    ):
        with pytest.raises(SchemaError):
            refused()


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**54), 2**54), st.floats(allow_nan=True), st.text(max_size=4)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["a", "b", "B", "é", "1"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(_VALUES, st.booleans(), st.sampled_from(["", " ", '{"a":1,"a":1}', "[" * 40 + "]" * 40, "[" * 33 + "]" * 33]))
def test_the_quick_reading_decides_as_the_exact_one(value: object, ascii_only: bool, other: str) -> None:
    """Whatever the text: the same value, or a refusal of the same class in the same words."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only)
    for data in (text, text + other, f"[{other or 0},{text}]", text.replace(":", ": ", 1), text[:-1]):
        outcomes = []
        for quick in (True, False):
            with pytest.MonkeyPatch.context() as patch:
                if not quick:
                    patch.setattr(canon, "_decode_canonical", lambda raw: (False, None))
                try:
                    outcomes.append(repr(decode(data.encode("utf-8", "surrogatepass"), limit=1 << 16)))
                except TribunusError as refusal:
                    outcomes.append(str(refusal))
        assert outcomes[0] == outcomes[1]
