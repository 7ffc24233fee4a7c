"""The adversary: Hypothesis draws further oracle cases, and makes what it finds as simple as it can.

Imported by: runner.  Imports: admission; hypothesis when it searches.

What is drawn is the descriptor of a vector (family, seed, exponent), not its arrays: a counterexample is a line that
anyone can run again.  Derandomized, without a database: every session draws the same cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tribunus.admission.context import Case, CaseSource
from tribunus.errors import GoldenUnstable

EXAMPLES: Final = 8
HEAVY_EXAMPLES: Final = 2
FIRST_SEED: Final = 16
"""Below it are seeds that the prepared vectors use."""
LAST_SEED: Final = 1 << 16


class _Refused(Exception):
    """A drawn case was refused."""


@dataclass(frozen=True, slots=True)
class HypothesisAdversary:
    """Searches with a fixed number of examples, fewer where each takes seconds."""

    examples: int = EXAMPLES

    def search(self, cases: CaseSource, attempt: Callable[[Case], bool]) -> Case | None:
        """The simplest case found that ``attempt`` refuses, None if there was none."""
        families = cases.families()
        if not families:
            return None
        # Half a second, which a session that draws nothing need not spend.
        from hypothesis import HealthCheck, Phase, Verbosity, assume, given, settings
        from hypothesis import strategies as st

        found: list[Case] = []

        @settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=min(self.examples, HEAVY_EXAMPLES) if cases.is_heavy() else self.examples,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
        )
        @given(st.integers(0, len(families) - 1), st.integers(FIRST_SEED, LAST_SEED), st.integers(0, 1 << 10))
        def draw(position: int, seed: int, place: int) -> None:
            family, low, high = families[position]
            try:
                case = cases.adversarial(family, seed, low + place % (high - low + 1))
            except GoldenUnstable:
                assume(False)  # no golden to hold anything against
                return
            if not attempt(case):
                found.append(case)
                raise _Refused

        try:
            draw()
        except _Refused:
            return found[-1]  # the simplest is run last
        return None
