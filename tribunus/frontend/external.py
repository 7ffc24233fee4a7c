"""External tensor data: read through one folder descriptor, from regular files of that folder alone.

Imported by: loading.  Knows protobuf.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Final

from onnx import TensorProto

from tribunus.errors import OnnxExternalDataError, OnnxLimitError, OnnxTensorError
from tribunus.frontend import limits
from tribunus.frontend.element_types import dtype_of
from tribunus.frontend.tensors import element_count, raw_bytes

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_KEYS: Final = frozenset(("location", "offset", "length"))


def read_external(tensors: Iterable[TensorProto], folder: int | None, budget_bytes: int) -> None:
    """Move the external data of ``tensors`` into them.  ``folder``: descriptor of the model's folder, or None.

    Raises OnnxExternalDataError for any reference while ``folder`` is None, for names outside the folder, links, files
    that are shared or not regular, unknown keys and ranges past the end; OnnxTensorError for a length other than the
    tensor needs; OnnxLimitError beyond ``budget_bytes``.
    """
    left = budget_bytes
    files: dict[str, int] = {}
    try:
        for tensor in tensors:
            if tensor.data_location != TensorProto.EXTERNAL and not len(tensor.external_data):
                continue
            what = f"tensor {tensor.name[:60]!a}"
            if folder is None:
                raise OnnxExternalDataError(f"{what} keeps its data in another file")
            location, offset, length = _reference(tensor, what)
            needed = raw_bytes(dtype_of(tensor.data_type, what), element_count(tensor, what))
            if length is not None and length != needed:
                raise OnnxTensorError(f"{what}: external length is {length}, its dims and dtype need {needed}")
            left -= needed
            if left < 0:
                raise OnnxLimitError(f"model and external data exceed {limits.MODEL_BYTES} bytes")
            if location not in files:
                files[location] = _open(location, folder, what)
            tensor.raw_data = _read(files[location], offset, needed, what)
            del tensor.external_data[:]
            tensor.ClearField("data_location")
    finally:
        for descriptor in files.values():
            os.close(descriptor)


def _reference(tensor: TensorProto, what: str) -> tuple[str, int, int | None]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) != len(tensor.external_data):
        raise OnnxExternalDataError(f"{what}: an external data key is repeated")
    if unknown := sorted(set(entries) - _KEYS):
        raise OnnxExternalDataError(f"{what}: external data key {unknown[0][:40]!a} is refused")
    location = entries.get("location", "")
    if not _NAME.fullmatch(location) or location in (".", ".."):
        raise OnnxExternalDataError(f"{what}: {location[:60]!a} is not a file name in the model's folder")
    for key in ("offset", "length"):
        if key in entries and not re.fullmatch(r"[0-9]{1,18}", entries[key]):
            raise OnnxExternalDataError(f"{what}: external {key} {entries[key][:40]!a} is not a number")
    if tensor.HasField("raw_data"):
        raise OnnxTensorError(f"{what} holds data both inside and outside the model")
    return location, int(entries.get("offset", "0")), int(entries["length"]) if "length" in entries else None


def _open(location: str, folder: int, what: str) -> int:
    try:
        descriptor = os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise OnnxExternalDataError(f"{what}: {location} cannot be opened: {error.strerror}") from None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        os.close(descriptor)
        raise OnnxExternalDataError(f"{what}: {location} is not a regular file of its own")
    return descriptor


def _read(descriptor: int, offset: int, length: int, what: str) -> bytes:
    if offset + length > os.fstat(descriptor).st_size:
        raise OnnxExternalDataError(f"{what}: {length} bytes at {offset} reach past the end of the file")
    data = bytearray()
    while len(data) < length:
        piece = os.pread(descriptor, min(length - len(data), 1 << 26), offset + len(data))
        if not piece:
            raise OnnxExternalDataError(f"{what}: the file became shorter while it was read")
        data += piece
    return bytes(data)
