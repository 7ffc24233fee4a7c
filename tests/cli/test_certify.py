from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from tribunus_certify import command
from tribunus_certify.options import OPTIONS

from tests.cli.conftest import Said
from tribunus.cli import tool

Tool = Callable[..., Said]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the entry point of an installed package offers it."""
    point = SimpleNamespace(name="certify", load=lambda: command.COMMAND)
    found: Mapping[str, object] = {"certify": point}
    monkeypatch.setattr(tool, "plugin_commands", lambda: found)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every list of words that pytest would have been called with."""
    seen: list[list[str]] = []

    def run(given: list[str]) -> int:
        seen.append(given)
        return 1

    monkeypatch.setattr(pytest, "main", run)
    return seen


def test_every_option_is_explained(tribunus: Tool) -> None:
    said = tribunus("certify", "--help")
    assert said.code == 0
    assert all(f"  {option.name}" in said.out for option in OPTIONS)


def test_help_needs_no_pytest() -> None:
    script = (
        "import sys\n"
        "from tribunus.cli import tool\n"
        "from types import SimpleNamespace\n"
        "from tribunus_certify.command import COMMAND\n"
        "tool.plugin_commands = lambda: {'certify': SimpleNamespace(name='certify', load=lambda: COMMAND)}\n"
        "tool.run_tool(['certify', '--help'])\n"
        "print('pytest' in sys.modules, 'onnx' in sys.modules, 'numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False False"


def test_who_stops_it_while_it_loads_is_told(tribunus: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest, "main", lambda words: 2)
    monkeypatch.delitem(sys.modules, command.SESSION, raising=False)
    said = tribunus("certify", "--model", "m.onnx")
    assert said.code == 2 and said.err.startswith("refused: E_INTERRUPTED: ")


def test_all_words_are_handed_to_pytest_as_they_were_given(tribunus: Tool, words: list[list[str]]) -> None:
    given = ["--model", "m.onnx", "-k", "matmul and not copy", "-x", "--dim", "rows=1:2:8", "--junitxml=out.xml", "-vv"]
    assert tribunus("certify", *given).code == 1
    (seen,) = words
    assert seen[-len(given) :] == given
    assert seen[:2] == ["-p", "tribunus_certify.plugin"] and "--pyargs" in seen


def test_a_model_is_asked_for(tribunus: Tool, words: list[list[str]]) -> None:
    said = tribunus("certify", "--target", "cpu")
    assert said.code == 4 and "--model" in said.err and not words


def test_without_pytest_it_says_how_to_get_it(tribunus: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    said = tribunus("certify", "--model", "m.onnx")
    assert said.code == 50 and "pip install" in said.err


def test_refusals_of_the_plugin_keep_their_exit_code(tmp_path: Path) -> None:
    """In a process and a folder of its own, whose pytest settings must not matter."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "m.onnx").write_bytes(b"not protobuf at all")
    script = (
        "import sys\n"
        "from tribunus.cli import tool\n"
        "from types import SimpleNamespace\n"
        "from tribunus_certify.command import COMMAND\n"
        "tool.plugin_commands = lambda: {'certify': SimpleNamespace(name='certify', load=lambda: COMMAND)}\n"
        "sys.exit(tool.run_tool(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", script, "certify", "--model", "m.onnx"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 40, done.stdout + done.stderr
    assert "E_ONNX" in done.stdout + done.stderr and "Traceback" not in done.stderr
