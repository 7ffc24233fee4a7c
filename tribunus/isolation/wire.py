"""Messages between the parent and its children: length-prefixed JSON frames over a Unix socket, with descriptors.

Imported by: zygote, fresh, child, children.  Imports: standard library.  No NumPy.

What a child sends is never unpickled and never believed: verdicts come from memory that the parent wrote and reads.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final, TypeAlias

Message: TypeAlias = "dict[str, Field]"
Field: TypeAlias = "bool | int | str | list[Field] | dict[str, Field] | None"

_HEADER: Final = struct.Struct("<II")  # bytes of JSON, bytes of raw data behind it
_LIMIT: Final = 1 << 30
MAX_DESCRIPTORS: Final = 32


class Hangup(Exception):
    """The other end is gone."""


class Deadline(Exception):
    """No whole frame came in time."""


def send(link: socket.socket, message: Message, descriptors: Sequence[int] = (), raw: bytes = b"") -> None:
    """One frame.  Raises Hangup."""
    text = json.dumps(message, separators=(",", ":")).encode()
    data = _HEADER.pack(len(text), len(raw)) + text + raw
    try:
        sent = socket.send_fds(link, [data], list(descriptors)) if descriptors else link.send(data)
        if sent < len(data):
            link.sendall(data[sent:])
    except (BrokenPipeError, ConnectionResetError) as gone:
        raise Hangup from gone


def receive(link: socket.socket, until_ns: int | None = None) -> tuple[Message, list[int], bytes]:
    """The next frame: message, descriptors, raw bytes.  until_ns: monotonic clock.  Raises Hangup, Deadline."""
    descriptors: list[int] = []
    header = _exactly(link, _HEADER.size, until_ns, descriptors)
    text_size, raw_size = _HEADER.unpack(header)
    if text_size > _LIMIT or raw_size > _LIMIT:
        raise Hangup
    body = _exactly(link, text_size + raw_size, until_ns, descriptors)
    try:
        message = json.loads(body[:text_size])
    except ValueError as broken:
        raise Hangup from broken
    if not isinstance(message, dict):
        raise Hangup
    return message, descriptors, body[text_size:]


def _exactly(link: socket.socket, size: int, until_ns: int | None, descriptors: list[int]) -> bytes:
    parts: list[bytes] = []
    missing = size
    while missing:
        if until_ns is not None:
            left = until_ns - time.monotonic_ns()
            if left <= 0:
                raise Deadline
            link.settimeout(left / 1e9)
        try:
            data, more, _, _ = socket.recv_fds(link, missing, MAX_DESCRIPTORS)
        except TimeoutError as late:
            raise Deadline from late
        except ConnectionResetError as gone:
            raise Hangup from gone
        descriptors += more
        if not data:
            raise Hangup
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def integer(message: Message, key: str) -> int:
    """An integer field.  Raises Hangup: the other end does not speak this protocol."""
    value = message.get(key)
    if type(value) is not int:
        raise Hangup
    return value


def text(message: Message, key: str) -> str:
    """A text field.  Raises Hangup."""
    value = message.get(key)
    if not isinstance(value, str):
        raise Hangup
    return value


def rows(message: Message, key: str) -> list[list[int]]:
    """A list of lists of integers.  Raises Hangup."""
    value = message.get(key)
    if not isinstance(value, list):
        raise Hangup
    found: list[list[int]] = []
    for row in value:
        if not isinstance(row, list):
            raise Hangup
        numbers = [n for n in row if type(n) is int]
        if len(numbers) != len(row):
            raise Hangup
        found.append(numbers)
    return found


def integers(message: Message, key: str) -> list[int]:
    """A list of integers.  Raises Hangup."""
    value = message.get(key)
    if not isinstance(value, list):
        raise Hangup
    numbers = [n for n in value if type(n) is int]
    if len(numbers) != len(value):
        raise Hangup
    return numbers
