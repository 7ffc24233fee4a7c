"""Arrays of a user's file: numbers by name, or one sentence about the file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tribunus.errors import EnvironmentFault, InputError
from tribunus.image.arrays import read_arrays, write_arrays


def member(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    """A .npy file whose header tells of ``shape``."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name.replace("_", "."), data)
    return path


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.array(3.0)})
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == ["x", "y"] and found["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["y"].shape == ()


def test_every_beginning_of_a_file_is_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"x": np.arange(6, dtype=np.float32)})
    data, cut = (tmp_path / "a.npz").read_bytes(), tmp_path / "cut.npz"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        with pytest.raises(InputError, match="is no readable"):
            read_arrays(cut)


def test_one_array_without_a_name_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(InputError, match="holds one array without a name"):
        read_arrays(tmp_path / "a.npy")


def test_objects_are_never_unpickled_nor_is_it_advised(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    (tmp_path / "b.npz").write_bytes(b"\x80\x04K\x01.")
    for name in ("a.npz", "b.npz"):
        with pytest.raises(InputError) as refused:
            read_arrays(tmp_path / name)
        assert "pickle" not in str(refused.value)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"x_npy": member((1 << 50,))}, "larger than memory"),
        ({"x_npy": member((4,), b"\0\0")}, "is no readable"),
        ({"x_npy": b"no array"}, "is no readable|is no array"),
        ({"x_txt": b"no array"}, "is no array"),
    ],
)
def test_members_that_are_no_arrays_are_refused(members: dict[str, bytes], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        read_arrays(archive(tmp_path / "a.npz", **members))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="nothing was left behind"):
        write_arrays(tmp_path / "missing" / "a.npz", {"x": np.zeros(3)})
    assert list(tmp_path.iterdir()) == []
