"""All suites.

Imported by: the tests of mutation.
"""

from __future__ import annotations

from tests.oracle.mutants import linear, pointwise, structured
from tests.oracle.mutants.suite import Suite

SUITES: tuple[Suite, ...] = (*pointwise.SUITES, *linear.SUITES, *structured.SUITES)
