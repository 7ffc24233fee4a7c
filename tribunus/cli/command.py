"""What a command of the ``tribunus`` tool is: a name, its arguments, and a function.

Imported by: cli, and the packages that bring commands of their own (reports, certify) through the entry points
``tribunus.commands``.  Imports: nothing of the core, so that a plug-in can define a command without loading the tool.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command.  ``configure`` adds its arguments to a parser that the tool made; ``run`` does the work.

    ``run`` prints its result to standard output and returns the exit code of an answered question; whatever keeps it
    from answering it raises as a ``TribunusError``, which the tool prints and turns into that error's exit code.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
