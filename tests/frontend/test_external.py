"""External data comes from regular files of the model's own folder, exactly as long as the tensor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from tribunus.errors import OnnxExternalDataError, OnnxLimitError, OnnxTensorError
from tribunus.frontend.external import read_external

VALUES = np.arange(4, dtype=np.float32)


def a_tensor(**keys: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", **keys}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "w.bin").write_bytes(bytes(16) + VALUES.tobytes())
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_data_at_an_offset_is_read(folder: int) -> None:
    tensor = a_tensor(offset="16", length="16")
    read_external([tensor], folder, 1000)
    assert tensor.raw_data == VALUES.tobytes()
    assert not len(tensor.external_data)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "sub/../w.bin", "..", ".", "", "a\x00b", "missing.bin"]
)
def test_locations_outside_the_folder_are_refused(folder: int, location: str) -> None:
    with pytest.raises(OnnxExternalDataError):
        read_external([a_tensor(location=location)], folder, 1000)


def test_symbolic_links_are_refused(folder: int, tmp_path: Path) -> None:
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(OnnxExternalDataError):
        read_external([a_tensor(location="link.bin")], folder, 1000)


def test_files_with_a_second_name_are_refused(folder: int, tmp_path: Path) -> None:
    os.link(tmp_path / "w.bin", tmp_path / "again.bin")
    with pytest.raises(OnnxExternalDataError):
        read_external([a_tensor()], folder, 1000)


def test_pipes_are_refused_without_waiting(folder: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bin")
    with pytest.raises(OnnxExternalDataError):
        read_external([a_tensor(location="pipe.bin")], folder, 1000)


@pytest.mark.parametrize("offset", ["17", "1000000000000", "-4", "1e3"])
def test_ranges_past_the_end_are_refused(folder: int, offset: str) -> None:
    with pytest.raises(OnnxExternalDataError):
        read_external([a_tensor(offset=offset)], folder, 1000)


@pytest.mark.parametrize("length", ["4", "15", "17"])
def test_a_length_other_than_the_tensor_needs_is_refused(folder: int, length: str) -> None:
    with pytest.raises(OnnxTensorError):
        read_external([a_tensor(length=length)], folder, 1000)


@pytest.mark.parametrize("key", ["checksum", "__class__", "name"])
def test_other_keys_are_refused(folder: int, key: str) -> None:
    with pytest.raises(OnnxExternalDataError):
        read_external([a_tensor(**{key: "x"})], folder, 1000)


def test_repeated_keys_are_refused(folder: int) -> None:
    tensor = a_tensor()
    tensor.external_data.add(key="location", value="w.bin")
    with pytest.raises(OnnxExternalDataError):
        read_external([tensor], folder, 1000)


def test_more_data_than_the_budget_is_refused_before_it_is_read(folder: int) -> None:
    tensor = a_tensor(offset="0")
    tensor.dims[0] = 2**40
    with pytest.raises(OnnxLimitError):
        read_external([tensor], folder, 1000)
