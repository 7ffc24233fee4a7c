"""The rule table: what error honest arithmetic may make in each op, by kind.

Imported by: running.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import InternalError
from tribunus.oracle.rules import elementwise, movement, norms, quantize, recurrent, reductions, sums
from tribunus.oracle.value import Rule

__all__ = ["RULES", "rule_of"]

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        kind: rule
        for module in (elementwise, reductions, sums, norms, recurrent, movement, quantize)
        for kind, rule in module.RULES.items()
    }
)


def rule_of(kind: str) -> Rule:
    """The budget rule of an op.  Raises InternalError for one without."""
    if kind not in RULES:
        raise InternalError(f"op {kind!r} has no budget rule")
    return RULES[kind]
