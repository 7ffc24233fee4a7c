"""Text of the sequencer: the code that walks a launch list, part by part.

Imported by: backend, tests.  Imports: tribunus.plan.launch_list (the contract).
"""

from __future__ import annotations

from importlib import resources

from tribunus.plan.launch_list import ROLE

SEQUENCER_ROLE = ROLE


def sequencer_code() -> str:
    """The C text."""
    return resources.files("tribunus_native").joinpath("sequencer.c").read_text(encoding="utf-8")
