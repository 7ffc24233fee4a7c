"""Rules: reductions, extremes with their positions, running sums.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site

_AXES_AS_OPERAND: Final = MappingProxyType({"ReduceSum": 13})
_AXES_AS_OPERAND_ELSE: Final = 18


def reduced_axes(to: Lowering, site: Site) -> tuple[int, ...] | None:
    """Axes to reduce, ascending; None where the op changes nothing (``noop_with_empty_axes``)."""
    x = site.x()
    given, unchanged_if_empty = site.integers("axes"), site.integer("noop_with_empty_axes", 0)
    since = _AXES_AS_OPERAND.get(site.node.id.op_type, _AXES_AS_OPERAND_ELSE)
    operand = site.optional(1)
    if site.version >= since and operand is not None:
        given = to.ints_of(operand, "axes")
    if not given:
        return None if unchanged_if_empty else tuple(range(x.rank))
    return tuple(sorted(to.axes(given, x.rank)))


def _each(to: Lowering, op_type: str, x: Operand) -> Operand:
    """What a reduction over no axis computes: its formula on one element."""
    if op_type in ("ReduceL1", "ReduceL2"):
        return to.one("abs", x)
    if op_type == "ReduceSumSquare":
        return to.one("mul", x, x)
    return to.one("log", x) if op_type == "ReduceLogSum" else x


def _reduction(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        axes, keep = reduced_axes(to, site), bool(site.integer("keepdims", 1))
        x = site.x()
        if axes is None or not x.rank:
            return (_each(to, site.node.id.op_type, x),)
        return (to.reduce(kind, x, axes, keep),)

    return rule


def _log_sum(to: Lowering, site: Site) -> Outputs:
    return (to.one("log", _reduction("reduce_sum")(to, site)[0]),) if site.x().rank else (to.one("log", site.x()),)


def _log_sum_exp(to: Lowering, site: Site) -> Outputs:
    axes, keep = reduced_axes(to, site), bool(site.integer("keepdims", 1))
    x = site.x()
    if axes is None or not x.rank:
        return (x,)
    return to.emit("log", [to.reduce("reduce_sum", to.one("exp", x), axes, keep)])


def _arg(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        x = site.x()
        return to.emit(
            kind,
            [x],
            {
                "axis": to.axis(site.integer("axis", 0), x.rank),
                "keepdims": site.integer("keepdims", 1),
                "select_last": site.integer("select_last_index", 0),
            },
        )

    return rule


def _cumsum(to: Lowering, site: Site) -> Outputs:
    x, found = site.x(), to.ints_of(site.x(1), "axis")
    if len(found) != 1:
        raise LoweringError("axis must be one number")
    return to.emit(
        "cumsum",
        [x],
        {
            "axis": to.axis(found[0], x.rank),
            "exclusive": site.integer("exclusive", 0),
            "reverse": site.integer("reverse", 0),
        },
    )


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "ReduceSum": _reduction("reduce_sum"),
        "ReduceMean": _reduction("reduce_mean"),
        "ReduceMax": _reduction("reduce_max"),
        "ReduceMin": _reduction("reduce_min"),
        "ReduceProd": _reduction("reduce_prod"),
        "ReduceL1": _reduction("reduce_l1"),
        "ReduceL2": _reduction("reduce_l2"),
        "ReduceSumSquare": _reduction("reduce_sum_square"),
        "ReduceLogSum": _log_sum,
        "ReduceLogSumExp": _log_sum_exp,
        "ArgMax": _arg("arg_max"),
        "ArgMin": _arg("arg_min"),
        "CumSum": _cumsum,
    }
)
