"""From a code format to something that can be called: the same in the worker that certifies and in the runtime.

Imported by: runtime, isolation, backends' replay halves.  Imports: plan.  No compiler, no backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tribunus.records import dataclass

if TYPE_CHECKING:  # the children that run candidates have no NumPy, which plan's types need
    from tribunus.plan.code import Code, CodeFormat, Recipe


@dataclass(frozen=True, slots=True)
class Words:
    """One call as machine words: ``function(a0, a1, a2, a3)``; what the sequencer's launch list holds.

    Native kernels take (buffers, params, part, parts).  A launch of several parts has one of these a part.
    """

    function: int
    a0: int
    a1: int
    a2: int
    a3: int


class BoundCode(Protocol):
    """Code that was loaded: immutable, callable from any thread."""

    def launch(self, buffers: Sequence[int], params: Sequence[int], parts: int) -> tuple[Words, ...]:
        """Words of each part of a launch on these addresses and parameter values.

        buffers: addresses in recipe order (inputs, outputs, weights, workspace).  params: int64 values.  What the
        words point to lives as long as this object.
        """
        ...

    def close(self) -> None:
        """Release what was loaded; no call may be running or follow."""
        ...


class PlacedReplayer(Protocol):
    """A replayer whose code may lie anywhere in executable memory, so that a whole pack is mapped at once."""

    def bind_placed(self, address: int, size: int, facts: Sequence[tuple[str, int | str]], recipe: Recipe) -> BoundCode:
        """What launches the verified code at ``address``; the caller keeps that memory mapped.  Raises DriverError."""
        ...


class Replayer(Protocol):
    """Loads one code format."""

    @property
    def format(self) -> CodeFormat:
        """Which format."""
        ...

    def bind(self, code: Code, recipe: Recipe) -> BoundCode:
        """Load ``code``.  Raises NoExecError, DriverError or FeatureError where this machine cannot."""
        ...
