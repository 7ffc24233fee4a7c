"""The rule table: how each ONNX op becomes PhaseIR ops.

Imported by: lower.  One file a family, each with a table from op name to rule; rules know the opset version.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.frontend.lowering import Rule
from tribunus.frontend.rules import (
    conv,
    elementwise,
    generate,
    indexing,
    matmul,
    movement,
    normalize,
    quantize,
    recurrent,
    reduce,
    resize,
)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        name: rule
        for family in (
            conv,
            elementwise,
            generate,
            indexing,
            matmul,
            movement,
            normalize,
            quantize,
            recurrent,
            reduce,
            resize,
        )
        for name, rule in family.RULES.items()
    }
)
