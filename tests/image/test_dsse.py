"""Envelopes and statements have one spelling, and the signature covers type and length."""

from __future__ import annotations

import base64
import json

import pytest

from tribunus.canon import Digest
from tribunus.errors import EnvelopeError
from tribunus.image.dsse import Envelope, Statement, Subject, decode_envelope, decode_statement, pae


def an_envelope() -> Envelope:
    return Envelope(b"payload!", "application/vnd.in-toto+json", "ab" * 32, bytes(range(64)))


def edited(change: dict[str, object]) -> bytes:
    fields = json.loads(an_envelope().encode()) | change
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def test_pae_is_the_example_of_the_specification() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_pae_tells_apart_what_concatenation_would_not() -> None:
    assert pae("ab", b"c") != pae("a", b"bc")


def test_an_envelope_survives_its_own_encoding() -> None:
    assert decode_envelope(an_envelope().encode()) == an_envelope()


@pytest.mark.parametrize(
    "payload",
    [
        "cGF5bG9hZCF=",  # non-zero trailing bits are accepted by b64decode(validate=True)
        "cGF5bG9hZCE",
        "cGF5bG9hZCE=\n",
        "cGF5bG9h ZCE=",
        "cGF5bG9hZC_=",
        "cGF5bG9hZCE==",
    ],
)
def test_a_second_spelling_of_base64_is_refused(payload: str) -> None:
    with pytest.raises(EnvelopeError):
        decode_envelope(edited({"payload": payload}))


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one_signature_is_accepted(count: int) -> None:
    only = json.loads(an_envelope().encode())["signatures"][0]
    with pytest.raises(EnvelopeError, match="exactly one signature"):
        decode_envelope(edited({"signatures": [only] * count}))


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"payload": 7},
        {"payloadType": None},
        {"signatures": {}},
        {"signatures": [{"keyid": "a"}]},
        {"signatures": [{"keyid": "a", "sig": base64.b64encode(bytes(63)).decode()}]},
    ],
)
def test_an_envelope_of_another_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(EnvelopeError):
        decode_envelope(edited(change))


def test_an_envelope_that_is_not_canonical_is_refused() -> None:
    with pytest.raises(EnvelopeError):
        decode_envelope(an_envelope().encode() + b" ")


def test_a_statement_survives_its_own_encoding() -> None:
    statement = Statement((Subject("image.json", Digest("ab" * 32)),), "https://x/y", {"a": 1})
    assert decode_statement(statement.encode()) == statement


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicate": []},
        {"subject": [{"name": "a", "digest": {"sha512": "00"}}]},
        {"subject": [{"name": "a", "digest": {"sha256": "AB" * 32}}]},
    ],
)
def test_a_statement_of_another_form_is_refused(change: dict[str, object]) -> None:
    statement = Statement((Subject("image.json", Digest("ab" * 32)),), "https://x/y", {"a": 1})
    fields = json.loads(statement.encode()) | change
    with pytest.raises(EnvelopeError):
        decode_statement(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())
