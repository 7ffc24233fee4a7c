"""Signed bytes: DSSE envelopes with one signature, and the in-toto Statement v1 inside them.

Imported by: image.statement, image.read, image.write, image.policy.  Imports: errors, canon, image.media.

The stored payload bytes are what is signed and verified; nothing is serialised again before a signature is checked.
"""

from __future__ import annotations

import binascii
from typing import Final

from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    decode,
    digest_from_json,
    encode,
    list_of,
    object_of,
    str_of,
)
from tribunus.errors import EncodingError, EnvelopeError, StructureError
from tribunus.image import media
from tribunus.records import dataclass

SIGNATURE_BYTES: Final = 64


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: the bytes that a signature covers, type and lengths included."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One payload with exactly one signature.  Law: ``decode_envelope(e.encode()) == e``."""

    payload: bytes
    payload_type: str
    keyid: str
    """Unauthenticated hint for finding the key."""
    signature: bytes

    def signed_bytes(self) -> bytes:
        """What the signature covers."""
        return pae(self.payload_type, self.payload)

    def encode(self) -> bytes:
        """Canonical bytes of the envelope."""
        return encode(
            {
                "payload": _to_base64(self.payload),
                "payloadType": self.payload_type,
                "signatures": [{"keyid": self.keyid, "sig": _to_base64(self.signature)}],
            }
        )


def decode_envelope(data: bytes) -> Envelope:
    """The envelope whose canonical bytes are ``data``.  Raises EnvelopeError for everything else."""
    try:
        fields = object_of(
            decode(data, limit=media.MAX_BLOB[media.ENVELOPE]),
            "envelope",
            frozenset({"payload", "payloadType", "signatures"}),
        )
        signatures = list_of(fields["signatures"], "envelope signatures")
        if len(signatures) != 1:
            raise EnvelopeError(f"an envelope has exactly one signature, this one has {len(signatures)}")
        only = object_of(signatures[0], "envelope signature", frozenset({"keyid", "sig"}))
        envelope = Envelope(
            payload=_from_base64(str_of(fields["payload"], "envelope payload")),
            payload_type=str_of(fields["payloadType"], "envelope payloadType"),
            keyid=str_of(only["keyid"], "envelope keyid"),
            signature=_from_base64(str_of(only["sig"], "envelope signature")),
        )
    except EncodingError as error:
        raise EnvelopeError(f"not an envelope: {error.detail}") from None
    if len(envelope.signature) != SIGNATURE_BYTES:
        raise EnvelopeError(f"an Ed25519 signature has {SIGNATURE_BYTES} bytes, this one {len(envelope.signature)}")
    return envelope


@dataclass(frozen=True, slots=True)
class Subject:
    """A thing that a statement speaks of."""

    name: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class Statement:
    """An in-toto Statement v1.  Law: ``decode_statement(s.encode()) == s``."""

    subjects: tuple[Subject, ...]
    predicate_type: str
    predicate: JsonObject

    def encode(self) -> bytes:
        """Canonical bytes, the payload of an envelope."""
        subjects: list[Json] = [{"name": s.name, "digest": {"sha256": s.digest}} for s in self.subjects]
        return encode(
            {
                "_type": media.STATEMENT_TYPE,
                "subject": subjects,
                "predicateType": self.predicate_type,
                "predicate": self.predicate,
            }
        )


def decode_statement(data: bytes) -> Statement:
    """The statement whose canonical bytes are ``data``.  Raises EnvelopeError for everything else."""
    try:
        fields = object_of(
            decode(data, limit=media.MAX_BLOB[media.ENVELOPE]),
            "statement",
            frozenset({"_type", "subject", "predicateType", "predicate"}),
        )
        if fields["_type"] != media.STATEMENT_TYPE:
            raise EnvelopeError("the payload is not an in-toto Statement v1")
        predicate = fields["predicate"]
        if not isinstance(predicate, dict):
            raise EnvelopeError("the predicate is not an object")
        return Statement(
            subjects=tuple(_subject(item) for item in list_of(fields["subject"], "statement subject")),
            predicate_type=str_of(fields["predicateType"], "statement predicateType"),
            predicate=predicate,
        )
    except (EncodingError, StructureError) as error:
        raise EnvelopeError(f"not a statement: {error.detail}") from None


def _subject(value: Json) -> Subject:
    fields = object_of(value, "statement subject", frozenset({"name", "digest"}))
    digest = object_of(fields["digest"], "statement subject digest", frozenset({"sha256"}))
    return Subject(
        name=str_of(fields["name"], "statement subject name"),
        digest=digest_from_json(digest["sha256"], "statement subject sha256"),
    )


def _to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _from_base64(text: str) -> bytes:
    """Standard alphabet, padded, no second spelling: non-zero trailing bits and line breaks are refused."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise EnvelopeError("base64 text is malformed") from None
    if _to_base64(data) != text:
        raise EnvelopeError("base64 text is not in canonical form")
    return data
