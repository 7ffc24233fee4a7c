from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tribunus.cli import doctor
from tribunus.errors import NoExecError
from tribunus.targets.detect import host_arch

Tool = Callable[..., Said]


def test_this_machine_can_run_images(tribunus: Tool) -> None:
    said = tribunus("doctor", "--json")
    assert said.code == 0 and said.document["can_run"] is True
    targets = said.document["targets"]
    assert isinstance(targets, list)
    assert {t["target"]: t["runs"] for t in targets}[f"cpu-{host_arch()}"] is True
    assert any(not t["runs"] and t["why"] for t in targets)


def test_what_is_said_in_words_names_every_target(tribunus: Tool) -> None:
    said = tribunus("doctor")
    assert said.code == 0 and f"cpu-{host_arch()}" in said.out and "can run here" in said.out


def test_without_executable_memory_nothing_runs(tribunus: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: bytes) -> None:
        raise NoExecError("the system refuses executable memory: Permission denied")

    monkeypatch.setattr(doctor, "ExecutableBytes", refuse)
    said = tribunus("doctor")
    assert said.code == 50 and "MISSING" in said.out and "executable memory" in said.out


def test_a_missing_package_says_how_to_get_it(tribunus: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    said = tribunus("doctor")
    assert said.code == 0 and "cannot be certified here" in said.out
    assert "pip install 'tribunus-compute[certify]'" in said.out


def test_a_folder_that_cannot_be_written_is_named(
    tribunus: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc")
    findings = tribunus("doctor", "--json").document["findings"]
    assert isinstance(findings, list)
    state = next(finding for finding in findings if finding["name"] == "state folder")
    assert state["good"] is False and state["remedy"]


def test_nothing_lasting_is_made(tribunus: Tool, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    tribunus("doctor")
    assert sorted(tmp_path.rglob("*")) == before
