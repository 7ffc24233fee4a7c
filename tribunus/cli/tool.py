"""From words to an exit code: finds the command, parses its arguments, turns every refusal into one message.

Imported by: cli.  Imports: errors, cli.table; a command's module only when it is asked for.

A user never sees a traceback: ``TRIBUNUS_DEBUG=1`` asks for it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn, Protocol

import tribunus
from tribunus.cli.command import Command
from tribunus.cli.table import ENTRIES, PLUGIN_GROUPS, Group
from tribunus.errors import EnvironmentFault, GateShut, InternalError, Interrupted, TribunusError, UsageError

ENTRY_POINTS: Final = "tribunus.commands"
DEBUG: Final = "TRIBUNUS_DEBUG"
PASSED_ON: Final = "passed_on"
"""A command whose parser has this default gets all its words there, and words it does not know are no mistake."""
WIDTH: Final = 80


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would leave the process with the exit code of an interruption."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", remedy=f"see `{self.prog} --help`")


class PluginPoint(Protocol):
    """What is needed of an entry point."""

    @property
    def name(self) -> str: ...

    def load(self) -> object: ...


def run_tool(argv: Sequence[str]) -> int:
    """Run the command that ``argv`` names; print its refusal, if any; return the exit code."""
    _open_standard_streams()
    as_json = "--json" in argv
    try:
        status = _guarded(lambda: _dispatch(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()
        return EnvironmentFault.exit_code
    except OSError as error:
        _abandon_output()
        return _refuse(EnvironmentFault(_os_sentence(error)), as_json=False)
    except TribunusError as error:
        return _refuse(error, as_json)
    return status


def _open_standard_streams() -> None:
    """Standard input, output and error that the caller closed are opened on nothing.

    Else the next files that are opened would get their numbers, and what others print would go into them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # the lowest free number
            os.set_inheritable(opened, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _guarded(work: Callable[[], int]) -> int:
    """``work`` with everything that can go wrong as a TribunusError, but a closed pipe."""
    try:
        return work()
    except (TribunusError, BrokenPipeError):
        raise
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted") from error
    except OSError as error:
        raise EnvironmentFault(_os_sentence(error)) from error
    except MemoryError as error:
        raise EnvironmentFault("out of memory", remedy="free memory or raise the limit") from error
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        remedy = f"{DEBUG}=1 with the same command shows the traceback; report it together with the command"
        raise InternalError(text[:400], remedy=remedy) from error


def _os_sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _refuse(error: TribunusError, as_json: bool) -> int:
    """Say no on standard error, and as a document on standard output where the answer was to be one.

    A shut gate has printed its own document before.
    """
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    with contextlib.suppress(OSError, ValueError):
        if as_json and not isinstance(error, GateShut):
            print(json.dumps(refusal_document(error), indent=1), flush=True)
    with contextlib.suppress(OSError, ValueError):
        text = refusal_text(error)
        print(_wrapped(text) if sys.stderr.isatty() else text, file=sys.stderr, flush=True)
    return error.exit_code


def refusal_text(error: TribunusError) -> str:
    """The message of a refusal: what, then what to do; two lines or more, however long, for logs to search."""
    return f"refused: {error}"


def _wrapped(text: str) -> str:
    """The same for a terminal."""
    import textwrap

    fill = textwrap.TextWrapper(WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(fill.fill(line) for line in text.splitlines())


def refusal_document(error: TribunusError) -> dict[str, str | int]:
    """The same for programs."""
    return {
        "schema": "tribunus.refusal/1",
        "refused": error.name,
        "exit_code": error.exit_code,
        "detail": error.detail,
        "remedy": error.remedy,
    }


def _abandon_output() -> None:
    """Give up standard output, so that the interpreter does not try to write the rest and complain."""
    if sys.stdout is sys.__stdout__:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def _dispatch(argv: Sequence[str]) -> int:
    if not argv:
        print(tool_help())
        raise UsageError("no command was given", remedy="name one of the commands above")
    word, rest = argv[0], argv[1:]
    if word in ("-h", "--help", "help") and not rest:
        print(tool_help())
        return 0
    if word in ("-V", "--version", "version") and not rest:
        print(f"tribunus {tribunus.__version__}")
        return 0
    if word == "help":
        word, rest = rest[0], ["--help"]
    if word.startswith("-"):
        raise UsageError(f"unknown option {word[:40]!r}", remedy="see `tribunus --help`")
    command = find_command(word)
    parser = Parser(
        prog=f"tribunus {command.name}",
        description=f"{command.summary[:1].upper()}{command.summary[1:]}.",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    try:
        arguments = _parse(parser, rest)
    except SystemExit as done:  # --help
        return done.code if isinstance(done.code, int) else 0
    return command.run(arguments)


def _parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    if parser.get_default(PASSED_ON) is None:
        return parser.parse_args(list(words))
    arguments, _ = parser.parse_known_args(list(words))
    setattr(arguments, PASSED_ON, tuple(words))
    return arguments


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help of one width everywhere."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=WIDTH, max_help_position=28)


def find_command(name: str) -> Command:
    """The command of this name: the core's, else another package's.  Raises UsageError."""
    for entry in ENTRIES:
        if entry.name == name:
            return _is_command(import_module(f"tribunus.cli.{entry.module}").COMMAND, name)
    points = plugin_commands()
    if name in points:
        return _is_command(points[name].load(), name)
    import difflib

    known = [*(entry.name for entry in ENTRIES), *points]
    near = difflib.get_close_matches(name, known, n=1)
    if not near and name in PLUGIN_GROUPS:
        raise UsageError(f"the command {name!r} is not installed", remedy="pip install 'tribunus-compute[certify]'")
    hint = f"did you mean `tribunus {near[0]}`?" if near else "see `tribunus --help`"
    raise UsageError(f"there is no command {name[:40]!r}", remedy=hint)


def _is_command(found: object, name: str) -> Command:
    if not isinstance(found, Command):
        raise InternalError(f"the package that offers {name!r} brings no command", remedy="reinstall that package")
    return found


def plugin_commands() -> Mapping[str, PluginPoint]:
    """Commands of other packages, by name.  Slow to find out, hence asked for only when needed."""
    from importlib.metadata import entry_points

    return {point.name: point for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)}


def tool_help() -> str:
    """What ``tribunus --help`` prints."""
    rows: dict[Group, list[tuple[str, str]]] = {group: [] for group in Group}
    core = {entry.name for entry in ENTRIES}
    for entry in ENTRIES:
        rows[entry.group].append((entry.name, entry.summary))
    for name, point in plugin_commands().items():
        if name not in core:
            rows[PLUGIN_GROUPS.get(name, Group.OTHER)].append((name, _plugin_summary(point)))
    lines = [
        "usage: tribunus COMMAND [options]",
        "",
        "Certifies the kernels of an ONNX model, freezes the admitted ones into a signed",
        "compute image, and replays exactly what was certified.",
        "",
        "  tribunus certify --model M.onnx --inputs CASES/   make M.cpu.tci",
        "  tribunus verify M.cpu.tci                         is it what was signed?",
        "  tribunus run M.cpu.tci --inputs x.npz --outputs y.npz",
    ]
    for group, entries in rows.items():
        if entries:
            lines += ["", group.value]
            lines += [f"  {name:<11}{summary}"[:WIDTH] for name, summary in entries]
    lines += [
        "",
        "`tribunus COMMAND --help` explains a command.  Exit codes: 0 yes, 1 no,",
        "2 stopped, 3 our fault, 4 usage, 5 nothing to judge, 10 and above: refused.",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _plugin_summary(point: PluginPoint) -> str:
    try:
        found = point.load()
    except ImportError as error:
        return f"(not usable: {error})"
    return found.summary if isinstance(found, Command) else "(not usable: brings no command)"


__all__ = ["DEBUG", "PASSED_ON", "find_command", "plugin_commands", "refusal_document", "refusal_text", "run_tool"]
