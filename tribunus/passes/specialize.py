"""Fix symbols of a program to numbers.

Imported by: certification, planning.  Imports: phaseir.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from tribunus.errors import DimError
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Program, rename_symbols


def specialize(program: Program, numbers: Mapping[str, int]) -> Program:
    """``program`` with the named symbols (s0, s1, ...) replaced by numbers; the others stay.

    Raises DimError for an unknown symbol or a number that is none of its values.
    """
    for name, number in numbers.items():
        symbol = program.scope.symbol(name)
        if number not in symbol.values():
            raise DimError(f"{symbol.label}: {number} is not in {symbol.lo}:{symbol.opt}:{symbol.hi}:{symbol.step}")
    replacements: dict[str, Dim] = dict(numbers)
    return rename_symbols(program, replacements, tuple(s for s in program.symbols if s.name not in numbers))
