"""Rules: normalizations and softmax.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site, f32
from tribunus.phaseir import dims


def _batch(to: Lowering, site: Site) -> Outputs:
    for position, name in enumerate(("Y", "mean", "var", "saved_mean", "saved_var")):
        if position:
            site.refuse_live(position, name)
    if site.integer("training_mode", 0) or not site.integer("spatial", 1):
        raise LoweringError("only inference over the channel axis is supported")
    operands = [site.x(i) for i in range(5)]
    operands[1:] = [to.cast(o, operands[0].dtype) for o in operands[1:]]
    return to.emit("batch_norm", operands, {"eps": f32(site.number("epsilon", 1e-5))})


def _layer(to: Lowering, site: Site) -> Outputs:
    site.refuse_live(1, "Mean")
    site.refuse_live(2, "InvStdDev")
    x, bias = site.x(0), site.optional(2)
    operands = [x, site.x(1)] if bias is None else [x, site.x(1), bias]
    axis = to.axis(site.integer("axis", -1), x.rank)
    return to.emit("layer_norm", operands, {"axis": axis, "eps": f32(site.number("epsilon", 1e-5))})


def _rms(to: Lowering, site: Site) -> Outputs:
    x = site.x(0)
    axis = to.axis(site.integer("axis", -1), x.rank)
    return to.emit("rms_norm", [x, site.x(1)], {"axis": axis, "eps": f32(site.number("epsilon", 1e-5))})


def _instance(to: Lowering, site: Site) -> Outputs:
    x = site.x(0)
    channels = x.shape[1]
    if not isinstance(channels, int):
        raise LoweringError("the number of channels is symbolic")
    return _group_norm(to, site, channels)


def _group(to: Lowering, site: Site) -> Outputs:
    groups = site.integer("num_groups", 1)
    if site.version < 21:
        raise LoweringError("GroupNormalization before opset 21 has one scale a group, which is not supported")
    return _group_norm(to, site, groups)


def _group_norm(to: Lowering, site: Site, groups: int) -> Outputs:
    operands = [site.x(i) for i in range(3)]
    return to.emit("group_norm", operands, {"groups": groups, "eps": f32(site.number("epsilon", 1e-5))})


def _softmax(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        x = site.x()
        coerced = site.version < 13
        axis = to.axis(site.integer("axis", 1 if coerced else -1), x.rank)
        if not coerced or axis == x.rank - 1:
            return to.emit(kind, [x], {"axis": axis})
        matrix = to.reshape(x, (dims.product(x.shape[:axis]), dims.product(x.shape[axis:])))
        return (to.reshape(to.emit(kind, [matrix], {"axis": 1})[0], x.shape),)

    return rule


def _lp(to: Lowering, site: Site) -> Outputs:
    x, order = site.x(), site.integer("p", 2)
    axis = to.axis(site.integer("axis", -1), x.rank)
    if order not in (1, 2):
        raise LoweringError(f"p {order} is not supported")
    norm: Operand = to.reduce("reduce_l1" if order == 1 else "reduce_l2", x, [axis], keepdims=True)
    zero, one = to.scalar(0, x.dtype), to.scalar(1, x.dtype)
    divisor = to.emit("where", [to.one("equal", norm, zero), one, norm])[0]  # a zero vector stays zero
    return to.emit("div", [x, divisor])


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "BatchNormalization": _batch,
        "LayerNormalization": _layer,
        "RMSNormalization": _rms,
        "InstanceNormalization": _instance,
        "GroupNormalization": _group,
        "LpNormalization": _lp,
        "Softmax": _softmax("softmax"),
        "LogSoftmax": _softmax("log_softmax"),
    }
)
