"""Rules: convolutions and pooling; automatic padding becomes explicit pads.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import AttributeValue
from tribunus.phaseir.dims import Dim


def _window(to: Lowering, site: Site, kernel: Sequence[int]) -> dict[str, AttributeValue]:
    """Strides, dilations and explicit pads of a sliding window."""
    x, n = site.x(), len(kernel)
    if x.rank != n + 2:
        raise LoweringError(f"a window of {n} axes does not fit an operand of rank {x.rank}")
    strides = site.integers("strides") or (1,) * n
    dilations = site.integers("dilations") or (1,) * n
    pads = site.integers("pads") or (0,) * (2 * n)
    mode = site.text("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * n)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        totals: list[int] = []
        for i in range(n):
            positions = dims.ceildiv(x.shape[2 + i], strides[i])
            reach = dims.add(dims.mul(dims.sub(positions, 1), strides[i]), dilations[i] * (kernel[i] - 1) + 1)
            totals.append(to.settled(to.larger(dims.sub(reach, x.shape[2 + i]), 0), f"the padding of spatial axis {i}"))
        pads = _both_ends(totals, mode)
    elif mode != "NOTSET":
        raise LoweringError(f"auto_pad {mode} is unknown")
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        raise LoweringError("strides, dilations or pads do not fit the window")
    return {"strides": strides, "dilations": dilations, "pads": pads}


def _both_ends(totals: Sequence[int], mode: str) -> tuple[int, ...]:
    """Starts, then ends; the odd one goes to the end for SAME_UPPER."""
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


def _kernel_of(site: Site, w: Operand) -> tuple[int, ...]:
    found = tuple(d for d in w.shape[2:] if isinstance(d, int))
    if len(found) != w.rank - 2 or not found:
        raise LoweringError("the window of the weight is not known")
    given = site.integers("kernel_shape")
    if given is not None and given != found:
        raise LoweringError(f"kernel_shape {given} does not fit the weight")
    return found


def _conv(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        operands = [*site.operands]
        while operands[-1] is None:
            operands.pop()
        attributes = _window(to, site, _kernel_of(site, site.x(1)))
        return to.emit(kind, operands, {**attributes, "group": site.integer("group", 1)})

    return rule


def _conv_transpose(to: Lowering, site: Site) -> Outputs:
    x, w, bias = site.x(0), site.x(1), site.optional(2)
    kernel = _kernel_of(site, w)
    n = len(kernel)
    strides = site.integers("strides") or (1,) * n
    dilations = site.integers("dilations") or (1,) * n
    extra = site.integers("output_padding") or (0,) * n
    pads = site.integers("pads") or (0,) * (2 * n)
    mode, wanted = site.text("auto_pad", "NOTSET"), site.integers("output_shape")
    if wanted is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        totals: list[int] = []
        for i in range(n):
            extent: Dim = dims.mul(x.shape[2 + i], strides[i]) if wanted is None else wanted[-n:][i]
            full = dims.add(
                dims.mul(strides[i], dims.sub(x.shape[2 + i], 1)), dilations[i] * (kernel[i] - 1) + 1 + extra[i]
            )
            totals.append(to.settled(dims.sub(full, extent), f"the padding of spatial axis {i}"))
        extra = tuple(e + max(0, -t) for e, t in zip(extra, totals, strict=True))  # what padding cannot take away
        totals = [max(0, t) for t in totals]
        pads = _both_ends(totals, "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER")
    elif mode == "VALID":
        pads = (0,) * (2 * n)
    operands = [x, w] if bias is None else [x, w, bias]
    attributes: dict[str, AttributeValue] = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "group": site.integer("group", 1),
        "output_padding": extra,
    }
    return to.emit("conv_transpose", operands, attributes)


def _pool_window(to: Lowering, site: Site) -> dict[str, AttributeValue]:
    x, kernel = site.x(), site.integers("kernel_shape")
    if not kernel:
        raise LoweringError("kernel_shape is missing")
    found = _window(to, site, kernel)
    ceil_mode = 0
    if site.integer("ceil_mode", 0) and site.text("auto_pad", "NOTSET") == "NOTSET":
        ceil_mode = _ceil_mode(to, x, kernel, site)
    return {**found, "kernel": kernel, "ceil_mode": ceil_mode}


def _ceil_mode(to: Lowering, x: Operand, kernel: Sequence[int], site: Site) -> int:
    """1 where rounding up adds a window that starts inside the operand or its leading pad, 0 where it adds none.

    Raises LoweringError where axes disagree: then neither rounding gives the shape.
    """
    n = len(kernel)
    strides = site.integers("strides") or (1,) * n
    dilations = site.integers("dilations") or (1,) * n
    pads = site.integers("pads") or (0,) * (2 * n)
    votes: set[int] = set()
    for i in range(n):
        room = dims.sub(dims.add(x.shape[2 + i], pads[i] + pads[n + i]), dilations[i] * (kernel[i] - 1) + 1)
        up, down = dims.ceildiv(room, strides[i]), dims.floordiv(room, strides[i])
        if to.scope.equal(up, down):
            continue
        start = dims.mul(up, strides[i])
        inside = to.settled(
            to.larger(to.smaller(dims.sub(dims.add(x.shape[2 + i], pads[i]), start), 1), 0), "ceil_mode"
        )
        votes.add(inside)
    if len(votes) > 1:
        raise LoweringError("ceil_mode adds a window on one axis and none on another")
    return votes.pop() if votes else 0


def _max_pool(to: Lowering, site: Site) -> Outputs:
    site.refuse_live(1, "Indices")
    return to.emit("max_pool", [site.x()], _pool_window(to, site))


def _average_pool(to: Lowering, site: Site) -> Outputs:
    attributes = {**_pool_window(to, site), "count_include_pad": site.integer("count_include_pad", 0)}
    return to.emit("average_pool", [site.x()], attributes)


def _global(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        x = site.x()
        if x.rank < 3:
            raise LoweringError("the operand has no spatial axis")
        return (to.reduce(kind, x, range(2, x.rank), keepdims=True),)

    return rule


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Conv": _conv("conv"),
        "ConvInteger": _conv("conv_integer"),
        "ConvTranspose": _conv_transpose,
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "GlobalAveragePool": _global("reduce_mean"),
        "GlobalMaxPool": _global("reduce_max"),
    }
)
