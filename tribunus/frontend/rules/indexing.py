"""Rules: gather, scatter, selection of the largest.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site
from tribunus.phaseir.attributes import AttributeValue
from tribunus.phaseir.dims import Dim


def _gather(to: Lowering, site: Site) -> Outputs:
    x, indices = site.x(0), site.x(1)
    return to.emit("gather", [x, indices], {"axis": to.axis(site.integer("axis", 0), x.rank)})


def _gather_elements(to: Lowering, site: Site) -> Outputs:
    x, indices = site.x(0), site.x(1)
    return to.emit("gather_elements", [x, indices], {"axis": to.axis(site.integer("axis", 0), x.rank)})


def _gather_nd(to: Lowering, site: Site) -> Outputs:
    return to.emit("gather_nd", [site.x(0), site.x(1)], {"batch_dims": site.integer("batch_dims", 0)})


def _scatter_elements(to: Lowering, site: Site) -> Outputs:
    operands = [site.x(i) for i in range(3)]
    attributes: dict[str, AttributeValue] = {
        "axis": to.axis(site.integer("axis", 0), operands[0].rank),
        "reduction": site.text("reduction", "none"),
    }
    return to.emit("scatter_elements", operands, attributes)


def _scatter_nd(to: Lowering, site: Site) -> Outputs:
    operands = [site.x(i) for i in range(3)]
    return to.emit("scatter_nd", operands, {"reduction": site.text("reduction", "none")})


def _top_k(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    axis = to.axis(site.integer("axis", -1), x.rank)
    k: Dim = site.integer("k", 0) if site.version < 10 else to.dims_of(site.x(1), "k")[0]
    if not to.scope.at_least(k, 1):
        raise LoweringError("k must be at least 1")
    attributes: dict[str, AttributeValue] = {
        "axis": axis,
        "k": (k,),
        "largest": site.integer("largest", 1),
        "sorted": site.integer("sorted", 1),
    }
    values: tuple[Operand, ...] = to.emit("top_k", [x], attributes)
    return values


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "TopK": _top_k,
    }
)
