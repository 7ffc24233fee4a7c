"""The op table: every op that PhaseIR knows, by kind.

Imported by: program, verifier, and every room that asks what an op promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import InternalError
from tribunus.phaseir.ops import conv, elementwise, matmul, movement, normalize, quantize, recurrent, reduce
from tribunus.phaseir.ops.spec import Contract, Family, OpSpec, TypeRuleError

__all__ = ["OPS", "Contract", "Family", "OpSpec", "TypeRuleError", "spec_of"]

OPS: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        spec.kind: spec
        for module in (elementwise, reduce, matmul, conv, normalize, recurrent, movement, quantize)
        for spec in module.SPECS
    }
)


def spec_of(kind: str) -> OpSpec:
    """The specification of an op.  Raises InternalError for an unknown kind."""
    if kind not in OPS:
        raise InternalError(f"unknown op {kind!r}")
    return OPS[kind]
