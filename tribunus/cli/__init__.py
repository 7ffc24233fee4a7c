"""The command line: ``tribunus COMMAND``.

Imported by: ``python -m tribunus``, the console script; ``cli.command`` by packages that bring commands of their own.
Nothing is imported until ``main`` is called, and then only the module of the command that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.  argv: words after the program's name; None: those of the process."""
    import sys

    from tribunus.cli.tool import run_tool

    return run_tool(sys.argv[1:] if argv is None else argv)
