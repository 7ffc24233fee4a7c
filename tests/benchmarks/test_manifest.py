"""The zoo's manifest pins every file, and refuses to be read if it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.zoo.cases import case_names
from benchmarks.zoo.manifest import DEFAULT_PATH, Group, Manifest, read_manifest
from tribunus.errors import SchemaError, UsageError

CORE = {
    "magika-v3_3",
    "silero_vad_16k_sequence",
    "oww-melspectrogram",
    "oww-embedding",
    "ppocr-cls",
    "ppocrv4-det",
    "ppocrv4-rec",
    "centerface-dyn",
    "swift-f0",
    "dnsmos-sig_bak_ovr",
    "plcmos_v2",
    "smart-turn-v3.2-int8-qdq",
    "minilm-l3-fp32",
    "ddddocr-det-yolox",
}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return read_manifest()


def test_the_core_group_is_the_fourteen_models_to_support_first(manifest: Manifest) -> None:
    assert {model.name for model in manifest.select([Group.CORE], [])} == CORE


def test_without_a_choice_the_core_group_is_chosen(manifest: Manifest) -> None:
    assert manifest.select([], []) == manifest.select(["core"], [])


def test_a_name_is_chosen_in_addition_to_groups_and_alone_without_them(manifest: Manifest) -> None:
    assert [model.name for model in manifest.select([], ["swift-f0"])] == ["swift-f0"]
    assert len(manifest.select(["refuse"], ["swift-f0"])) == 6


def test_an_unknown_name_is_refused(manifest: Manifest) -> None:
    with pytest.raises(UsageError, match="no-such-model"):
        manifest.select([], ["no-such-model"])


def test_every_wheel_is_needed_and_every_core_and_refuse_model_has_cases(manifest: Manifest) -> None:
    assert manifest.wheels_of(manifest.models) == tuple(manifest.wheels.values())
    assert [m.name for m in manifest.models if m.group is not Group.WIDER and not case_names(m.name)] == []


def test_a_wheel_that_fits_one_platform_says_how_to_ask_for_it(manifest: Manifest) -> None:
    for wheel in manifest.wheels.values():
        anywhere = wheel.file.endswith("-none-any.whl")
        assert anywhere == (wheel.platform == ""), wheel.file
        assert wheel.platform in wheel.file
        assert wheel.abi == "" or f"-{wheel.abi}-" in wheel.file


@pytest.mark.parametrize(
    ("pinned", "spoiled"),
    [
        pytest.param('sha256 = "3e9b', 'sha256 = "3E9B', id="upper-case hash"),
        pytest.param('sha256 = "3e9b', 'sha256 = "', id="short hash"),
        pytest.param("bytes = 16244594", "bytes = 0", id="no size"),
        pytest.param('version = "1.0.3"', 'version = "1.0.4"', id="another version than the file's"),
        pytest.param('file = "magika', 'file = "../magika', id="file outside the folder"),
        pytest.param('"magika/models', '"../models', id="member outside the wheel"),
        pytest.param('parts = [["magika"', 'parts = [["magick"', id="unknown wheel"),
        pytest.param('name = "magika-v3_3"', 'name = "a/b"', id="name with a folder"),
        pytest.param('name = "magika-v3_3"', 'name = "swift-f0"', id="name twice"),
        pytest.param('group = "core"', 'group = "best"', id="unknown group"),
        pytest.param('"unk__214=1:1:8"', '"unk__214"', id="dim without bounds"),
        pytest.param("schema = 1", "schema = 2", id="another schema"),
        pytest.param("schema = 1", "schema = ", id="no TOML"),
    ],
)
def test_a_manifest_that_does_not_pin_is_refused(tmp_path: Path, pinned: str, spoiled: str) -> None:
    text = DEFAULT_PATH.read_text(encoding="utf-8")
    assert pinned in text
    path = tmp_path / "zoo.toml"
    path.write_text(text.replace(pinned, spoiled, 1), encoding="utf-8")
    with pytest.raises(SchemaError):
        read_manifest(path)
