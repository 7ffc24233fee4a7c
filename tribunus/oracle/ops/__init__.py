"""The golden table: the defining formula of every op in float64, by kind.

Imported by: golden, running, propagation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import InternalError
from tribunus.oracle.ops import conv, elementwise, matmul, movement, normalize, quantize, recurrent, reduce, resize
from tribunus.oracle.ops.call import Golden

__all__ = ["GOLDENS", "golden_of"]

GOLDENS: Final[Mapping[str, Golden]] = MappingProxyType(
    {
        kind: golden
        for module in (elementwise, reduce, matmul, conv, normalize, recurrent, movement, resize, quantize)
        for kind, golden in module.GOLDENS.items()
    }
)


def golden_of(kind: str) -> Golden:
    """The definition of an op.  Raises InternalError for one without golden."""
    if kind not in GOLDENS:
        raise InternalError(f"op {kind!r} has no golden")
    return GOLDENS[kind]
