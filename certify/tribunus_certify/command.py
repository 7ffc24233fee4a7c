"""Command ``tribunus certify``: pytest on the installed suites, with the same options and exit codes.

Imported by: cli, through the entry points ``tribunus.commands``.  Imports: options; pytest only to run.

    tribunus certify ...   is   pytest -p tribunus_certify.plugin --pyargs tribunus_certify ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tribunus.cli.command import Command
from tribunus.errors import Interrupted, ToolError, UsageError
from tribunus_certify.options import OPTIONS, Option

PLUGIN: Final = "tribunus_certify.plugin"
SUITES: Final = "tribunus_certify"
SESSION: Final = "tribunus_certify.session"
"""Loaded when a certification begins."""
SETTINGS: Final = Path(__file__).with_name("certify.ini")
"""pytest's settings for the suites: those of the folder in which somebody certifies belong to other tests."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "tribunus certify --model M.onnx [options] [options of pytest]"
    for option in OPTIONS:
        _add(parser, option)
    parser.set_defaults(passed_on=())
    parser.epilog = (
        "First try, with the shapes and values of your own inputs (CASES/*.npz):\n"
        "  tribunus certify --model M.onnx --inputs CASES/\n"
        "  tribunus certify --model M.onnx --inputs CASES/ --collect-only -q\n"
        "\n"
        "Other words go to pytest: -k SIGNATURE, -x, -q, --lf, --junitxml=FILE.\n"
        "Exit codes: 0 admitted and image written (or, with -k, nothing refused and no\n"
        "image), 1 rejected, 2 stopped (the same command resumes), 3 our fault, 4 usage,\n"
        "5 nothing selected, 10 and above: refused, and why."
    )


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.kind == "flag":
        parser.add_argument(option.name, action="store_true", help=text)
    elif option.kind == "list":
        parser.add_argument(option.name, action="append", metavar=option.metavar, help=text)
    else:
        default = "" if option.default is None else f" (default {option.default})"
        kind = int if option.kind == "number" else str
        parser.add_argument(option.name, type=kind, metavar=option.metavar, help=text + default)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.model is None:
        raise UsageError("tribunus certify: --model is missing", remedy="tribunus certify --model M.onnx")
    if find_spec("pytest") is None:
        raise ToolError("certifying needs pytest", remedy="pip install 'tribunus-compute[certify]'")
    import pytest

    status = int(pytest.main(pytest_words(arguments.passed_on)))
    if status == Interrupted.exit_code and SESSION not in sys.modules:
        raise Interrupted("interrupted before anything was checked")  # pytest says nothing so early
    return status


def pytest_words(passed_on: Sequence[str]) -> list[str]:
    """The words after ``pytest``."""
    own = ["-p", PLUGIN, "-c", str(SETTINGS), f"--rootdir={Path.cwd()}", "--pyargs", SUITES]
    return [*own, *passed_on]


COMMAND = Command("certify", "check every kernel of a model, write a signed image", _configure, _run)
