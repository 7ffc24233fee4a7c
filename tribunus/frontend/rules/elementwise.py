"""Rules: arithmetic, comparison, selection, casts, activations.

Imported by: the rule table.  Sums are chains of binary ops; activations that PhaseIR lacks become their definitions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from tribunus.errors import LoweringError
from tribunus.frontend.element_types import dtype_of
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site, f32
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.program import Array


def _plain(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        return to.emit(kind, site.all())

    return rule


def _rounding(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        x = site.x()
        return to.emit(kind, [x]) if x.dtype.is_float else (x,)

    return rule


def _chain(kind: str) -> Rule:
    def rule(to: Lowering, site: Site) -> Outputs:
        return (functools.reduce(lambda a, b: to.one(kind, a, b), site.all()),)

    return rule


def _mean(to: Lowering, site: Site) -> Outputs:
    operands = site.all()
    total = functools.reduce(lambda a, b: to.one("add", a, b), operands)
    return (total,) if len(operands) == 1 else (to.one("div", total, to.scalar(len(operands), total.dtype)),)


def _pow(to: Lowering, site: Site) -> Outputs:
    x, exponent = site.x(0), site.x(1)
    known = exponent.numbers
    if known is not None and exponent.dtype is not x.dtype and exponent.dtype.is_integer and _fits(known, x.dtype):
        exponent = to.constant(known, x.dtype)
    return to.emit("pow", [x, to.cast(exponent, x.dtype)])


def _fits(numbers: Array, dtype: DType) -> bool:
    """Whether small integers are elements of ``dtype`` as they are."""
    return dtype in (DType.F64, DType.F32, DType.F16) and bool(np.all(np.abs(numbers.astype(np.float64)) <= 2048))


def _mod(to: Lowering, site: Site) -> Outputs:
    a, b = site.x(0), site.x(1)
    if a.dtype.is_float:
        raise LoweringError("the remainder of floating point numbers is not supported")
    rest = to.one("sub", a, to.one("mul", to.one("div", a, b), b))  # integer division truncates: the sign of a
    if site.integer("fmod", 0):
        return (rest,)
    zero = to.scalar(0, a.dtype)
    crosses = to.one("xor", to.one("less", rest, zero), to.one("less", b, zero))
    crosses = to.one("and", crosses, to.one("not", to.one("equal", rest, zero)))
    return to.emit("where", [crosses, to.one("add", rest, b), rest])


def _clip(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    if site.version < 11:
        bounds = [to.scalar(site.number(n, 0.0), x.dtype) if site.has(n) else None for n in ("min", "max")]
    else:
        bounds = [site.optional(1), site.optional(2)]
    for kind, bound in zip(("maximum", "minimum"), bounds, strict=True):
        if bound is not None and not _is_extreme(bound, kind):
            x = to.one(kind, x, bound)
    return (x,)


def _is_extreme(bound: Operand, kind: str) -> bool:
    """A bound that no element can exceed: an infinity."""
    wanted = -math.inf if kind == "maximum" else math.inf
    return (
        bound.dtype.is_float
        and bound.numbers is not None
        and bound.dtype.numpy.kind == "f"
        and bool(np.all(bound.numbers == wanted))
    )


def _leaky_relu(to: Lowering, site: Site) -> Outputs:
    return to.emit("leaky_relu", [site.x()], {"alpha": f32(site.number("alpha", 0.01))})


def _hard_sigmoid(to: Lowering, site: Site) -> Outputs:
    alpha, beta = site.number("alpha", 0.2), site.number("beta", 0.5)
    return to.emit("hard_sigmoid", [site.x()], {"alpha": f32(alpha), "beta": f32(beta)})


def _hard_swish(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    gate = to.emit("hard_sigmoid", [x], {"alpha": f32(1.0 / 6.0), "beta": f32(0.5)})[0]
    return to.emit("mul", [x, gate])


def _softplus_of(to: Lowering, x: Operand) -> Operand:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which cannot overflow."""
    small = to.one("exp", to.one("neg", to.one("abs", x)))
    return to.one("add", to.one("relu", x), to.one("log", to.one("add", to.scalar(1, x.dtype), small)))


def _softplus(to: Lowering, site: Site) -> Outputs:
    return (_softplus_of(to, site.x()),)


def _mish(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    return to.emit("mul", [x, to.one("tanh", _softplus_of(to, x))])


def _gelu(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    one, half = to.scalar(1, x.dtype), to.scalar(0.5, x.dtype)
    if site.text("approximate", "none") == "tanh":
        cube = to.one("mul", to.one("mul", x, x), x)
        inner = to.one("add", x, to.one("mul", cube, to.scalar(0.044715, x.dtype)))
        gate = to.one("tanh", to.one("mul", inner, to.scalar(math.sqrt(2.0 / math.pi), x.dtype)))
    else:
        gate = to.one("erf", to.one("div", x, to.scalar(math.sqrt(2.0), x.dtype)))
    return to.emit("mul", [to.one("mul", x, to.one("add", gate, one)), half])


def _swish(to: Lowering, site: Site) -> Outputs:
    x, alpha = site.x(), site.number("alpha", 1.0)
    inner = x if alpha == 1.0 else to.one("mul", x, to.scalar(alpha, x.dtype))
    return to.emit("mul", [x, to.one("sigmoid", inner)])


def _below_zero(to: Lowering, x: Operand, negative: Operand, positive: Operand) -> Outputs:
    return to.emit("where", [to.one("less", x, to.scalar(0, x.dtype)), negative, positive])


def _exp_minus_one(to: Lowering, x: Operand) -> Operand:
    """exp(min(x, 0)) - 1: used below zero only, so the clamp keeps the other side finite."""
    clamped = to.one("minimum", x, to.scalar(0, x.dtype))
    return to.one("sub", to.one("exp", clamped), to.scalar(1, x.dtype))


def _elu(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    negative = to.one("mul", _exp_minus_one(to, x), to.scalar(site.number("alpha", 1.0), x.dtype))
    return _below_zero(to, x, negative, x)


def _celu(to: Lowering, site: Site) -> Outputs:
    x, alpha = site.x(), to.scalar(site.number("alpha", 1.0), site.x().dtype)
    negative = to.one("mul", _exp_minus_one(to, to.one("div", x, alpha)), alpha)
    return _below_zero(to, x, negative, x)


def _selu(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    alpha = to.scalar(site.number("alpha", 1.67326319217681884765625), x.dtype)
    gamma = to.scalar(site.number("gamma", 1.05070102214813232421875), x.dtype)
    chosen = _below_zero(to, x, to.one("mul", _exp_minus_one(to, x), alpha), x)[0]
    return to.emit("mul", [chosen, gamma])


def _prelu(to: Lowering, site: Site) -> Outputs:
    x, slope = site.x(0), site.x(1)
    return _below_zero(to, x, to.one("mul", x, slope), x)


def _softsign(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    return to.emit("div", [x, to.one("add", to.one("abs", x), to.scalar(1, x.dtype))])


def _thresholded_relu(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    above = to.one("greater", x, to.scalar(site.number("alpha", 1.0), x.dtype))
    return to.emit("where", [above, x, to.scalar(0, x.dtype)])


def _is_inf(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    found: list[Operand] = []
    for name, value in (("detect_positive", math.inf), ("detect_negative", -math.inf)):
        if site.integer(name, 1):
            found.append(to.one("equal", x, to.scalar(value, x.dtype)))
    if not found:
        raise LoweringError("it detects neither sign")
    return (functools.reduce(lambda a, b: to.one("or", a, b), found),)


def _cast(to: Lowering, site: Site) -> Outputs:
    return (to.cast(site.x(), dtype_of(site.integer("to", 0), "the result")),)


def _cast_like(to: Lowering, site: Site) -> Outputs:
    return (to.cast(site.x(0), site.x(1).dtype),)


def _identity(to: Lowering, site: Site) -> Outputs:
    return (site.x(),)


def _dropout(to: Lowering, site: Site) -> Outputs:
    site.refuse_live(1, "mask")
    training = site.optional(2)
    if training is not None and bool(np.any(to.array_of(training, "training_mode"))):
        raise LoweringError("training mode is not supported")
    return (site.x(),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **{
            name: _plain(kind)
            for name, kind in {
                "Abs": "abs",
                "Neg": "neg",
                "Sign": "sign",
                "Relu": "relu",
                "Sqrt": "sqrt",
                "Reciprocal": "reciprocal",
                "Exp": "exp",
                "Log": "log",
                "Tanh": "tanh",
                "Sigmoid": "sigmoid",
                "Erf": "erf",
                "Sin": "sin",
                "Cos": "cos",
                "Add": "add",
                "Sub": "sub",
                "Mul": "mul",
                "Div": "div",
                "Equal": "equal",
                "Less": "less",
                "LessOrEqual": "less_equal",
                "Greater": "greater",
                "GreaterOrEqual": "greater_equal",
                "And": "and",
                "Or": "or",
                "Xor": "xor",
                "Not": "not",
                "Where": "where",
                "IsNaN": "is_nan",
            }.items()
        },
        "Floor": _rounding("floor"),
        "Ceil": _rounding("ceil"),
        "Round": _rounding("round"),
        "Max": _chain("maximum"),
        "Min": _chain("minimum"),
        "Sum": _chain("add"),
        "Mean": _mean,
        "Pow": _pow,
        "Mod": _mod,
        "Clip": _clip,
        "LeakyRelu": _leaky_relu,
        "HardSigmoid": _hard_sigmoid,
        "HardSwish": _hard_swish,
        "Softplus": _softplus,
        "Mish": _mish,
        "Gelu": _gelu,
        "Swish": _swish,
        "Elu": _elu,
        "Celu": _celu,
        "Selu": _selu,
        "PRelu": _prelu,
        "Softsign": _softsign,
        "ThresholdedRelu": _thresholded_relu,
        "IsInf": _is_inf,
        "Cast": _cast,
        "CastLike": _cast_like,
        "Identity": _identity,
        "Dropout": _dropout,
    }
)
