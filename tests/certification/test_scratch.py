"""Scratch folders: they go with their process, and nothing else goes with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tribunus.certification.scratch import Scratch, remove_left_over
from tribunus.errors import EnvironmentFault

_KILLED = """
import os, signal
from tribunus.certification.scratch import Scratch
made = Scratch("build")
(made.path / "0").mkdir()
(made.path / "0" / "kernel.c").write_text("int x;")
os.kill(os.getpid(), signal.SIGKILL)
"""
_LEFT_OPEN = 'from tribunus.certification.scratch import Scratch; made = Scratch("build"); print(made.path)'


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(found))
    return found


@pytest.fixture
def left_over(parent: Path) -> Path:
    """What a process left that was killed."""
    done = subprocess.run([sys.executable, "-c", _KILLED], env={**os.environ, "TMPDIR": str(parent)}, check=False)
    [found] = parent.iterdir()
    assert done.returncode == -9 and (found / "work" / "0" / "kernel.c").exists()
    return found


def test_a_folder_goes_when_it_is_closed(parent: Path) -> None:
    with Scratch("build") as made:
        assert made.path.is_dir() and made.path.parent.name.startswith("tribunus-build-")
        assert made.path.parent.stat().st_mode & 0o077 == 0
        (made.path / "file").write_bytes(b"x")
    assert not list(parent.iterdir())
    made.close()


def test_a_folder_that_nobody_closed_goes_when_its_process_ends(parent: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LEFT_OPEN], env={**os.environ, "TMPDIR": str(parent)}, check=True, capture_output=True
    )
    assert Path(done.stdout.decode().strip()).is_relative_to(parent) and not list(parent.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_folder(parent: Path, left_over: Path) -> None:
    with Scratch("program") as made:
        assert list(parent.iterdir()) == [made.path.parent] != [left_over]


def test_a_folder_whose_owner_lives_stays(parent: Path) -> None:
    with Scratch("build") as first, Scratch("build") as second:
        remove_left_over(parent)
        assert first.path.is_dir() and second.path.is_dir()


def test_a_folder_that_is_being_made_stays(parent: Path, left_over: Path) -> None:
    """Its lock has not its name before it is locked."""
    (left_over / ".scratch-lock").rename(left_over / ".scratch-lock.new")
    remove_left_over(parent)
    assert (left_over / "work" / "0" / "kernel.c").exists()


def test_folders_that_are_none_of_ours_stay(parent: Path) -> None:
    (parent / "tribunus-notes" / "work" / "lock").mkdir(parents=True)
    (parent / "tribunus-file").write_bytes(b"x")
    remove_left_over(parent)
    assert sorted(path.name for path in parent.rglob("*")) == ["lock", "tribunus-file", "tribunus-notes", "work"]


def test_folders_of_other_users_stay(parent: Path, left_over: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: left_over.stat().st_uid + 1)
    remove_left_over(parent)
    assert (left_over / "work" / "0" / "kernel.c").exists()


@pytest.mark.parametrize("name", ["", "work", ".scratch-lock", "work/0/link"])
def test_links_are_not_followed(parent: Path, left_over: Path, tmp_path: Path, name: str) -> None:
    """Whatever of a left-over folder is a link: what it points to stays."""
    kept = tmp_path / "kept"
    (kept / "work").mkdir(parents=True)
    for path in (kept / ".scratch-lock", kept / "work" / "file"):
        path.write_bytes(b"kept")
    place = left_over / name
    if place.exists():
        place.rename(tmp_path / "away")
    place.symlink_to(kept / name if name in ("work", ".scratch-lock") else kept)
    remove_left_over(parent)
    assert (kept / ".scratch-lock").read_bytes() == (kept / "work" / "file").read_bytes() == b"kept"
    assert place.is_symlink() == (name != "work/0/link")


def test_what_cannot_be_removed_now_is_known_later(
    parent: Path, left_over: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *given, **named: None)
        remove_left_over(parent)
    assert (left_over / ".scratch-lock").exists()
    remove_left_over(parent)
    assert not left_over.exists()


def test_no_room_for_a_folder_is_the_environments_fault(parent: Path) -> None:
    parent.rmdir()
    with pytest.raises(EnvironmentFault, match="cannot make a folder for temporary files"):
        Scratch("build")
