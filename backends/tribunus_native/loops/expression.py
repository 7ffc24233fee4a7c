"""Elementwise ops as C expressions over vectors of LANES elements.

Imported by: nest, lower.  Imports: ctypes (C types), phaseir, vecmath's function names.

Golden rules kept here: NaN passes through relu, minimum, maximum and clips; integer arithmetic wraps; float to integer
truncates toward zero; add, sub and mul round once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import INTEGER_RANGE
from tribunus.phaseir.attributes import Attributes
from tribunus_native.loops import wide as f64
from tribunus_native.loops.ctypes import compute_dtype, is_signed, literal, signed, splat, unsigned, vector
from tribunus_native.templates.csource import c_float
from tribunus_native.templates.vecmath import Fn

TRANSCENDENTAL: dict[str, str] = {
    "exp": Fn.EXP.value,
    "log": Fn.LOG.value,
    "tanh": Fn.TANH.value,
    "sigmoid": Fn.SIGMOID.value,
    "erf": Fn.ERF.value,
    "sin": Fn.SIN.value,
    "cos": Fn.COS.value,
    "pow": Fn.POW.value,
}
_COMPARE = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "sqrt": "sqrt"}
ELEMENTWISE = frozenset(
    (
        *TRANSCENDENTAL, *_COMPARE, *_LOGIC, *_ARITHMETIC, *_ROUNDING, "abs", "neg", "sign", "relu", "reciprocal",
        "leaky_relu", "hard_sigmoid", "div", "minimum", "maximum", "not", "where", "cast", "is_nan",
        "quantize_linear", "dequantize_linear",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One elementwise op.  dtypes: of the operands and the result as stored (f16 is computed with as f32)."""

    kind: str
    attributes: Attributes
    operands: tuple[DType, ...]
    result: DType


@dataclass(frozen=True, slots=True)
class Text:
    """A C expression and the vecmath functions that it calls."""

    expression: str
    functions: tuple[str, ...] = ()


def why_not(call: Call) -> str:
    """Why an op cannot be computed, an empty string if it can."""
    if call.kind not in ELEMENTWISE:
        return f"{call.kind} is no elementwise op"
    if call.kind == "pow" and DType.F64 in call.operands:
        return "pow of f64 has no vector function"
    moved = (*call.operands, call.result)
    narrow = [d for d in moved if d in (DType.F8E4M3FN, DType.F8E5M2, DType.I4, DType.U4)]
    return f"{call.kind} of {narrow[0]} is not computed" if narrow else ""


def expression(call: Call, names: Sequence[str]) -> Text:
    """The result of ``call`` on C values ``names``."""
    kind = call.kind
    first = compute_dtype(call.operands[0])
    a = names[0]
    if kind in TRANSCENDENTAL and first is DType.F32:
        return Text(f"{TRANSCENDENTAL[kind]}({', '.join(names)})", (TRANSCENDENTAL[kind],))
    if kind in f64.NAMES and first is DType.F64:
        return Text(f"{f64.NAMES[kind]}({', '.join(names)})", (f64.NAMES[kind],))
    if kind in _COMPARE:
        return Text(_truth(f"({a} {_COMPARE[kind]} {names[1]})"))
    if kind == "is_nan":
        return Text(_truth(f"({a} != {a})"))
    if kind in _LOGIC:
        return Text(f"{a} {_LOGIC[kind]} {names[1]}")
    if kind == "not":
        return Text(f"{a} ^ (vec_u8)(uint8_t)1")
    if kind == "where":
        result = compute_dtype(call.result)
        return Text(f"({_mask(a, result)}) ? {names[1]} : {names[2]}")
    if kind == "cast":
        return Text(_cast(call.operands[0], call.result, a))
    if kind == "quantize_linear":
        return Text(_quantize(call, names))
    if kind == "dequantize_linear":
        return Text(_dequantize(call, names))
    return _float(call, first, names) if first.is_float else _integer(kind, first, names)


def _float(call: Call, dtype: DType, names: Sequence[str]) -> Text:
    kind, a = call.kind, names[0]
    zero, one = splat(literal(0, dtype), dtype), splat(literal(1, dtype), dtype)
    b = names[1] if len(names) > 1 else ""
    if kind in _ARITHMETIC:
        return Text(f"{a} {_ARITHMETIC[kind]} {b}")
    if kind == "div":
        return Text(f"{a} / {b}")
    if kind in _ROUNDING:
        return Text(f"__builtin_elementwise_{_ROUNDING[kind]}({a})")
    if kind == "reciprocal":
        return Text(f"{one} / {a}")
    if kind == "neg":
        return Text(f"-{a}")
    if kind == "abs":
        return Text(f"__builtin_elementwise_abs({a})")
    if kind == "sign":
        return Text(f"{a} > {zero} ? {one} : ({a} < {zero} ? -{one} : {a})")
    if kind == "relu":
        return Text(f"{a} < {zero} ? {zero} : {a}")
    if kind in ("minimum", "maximum"):
        return Text(f"{a} != {a} ? {a} : ({a} {'<' if kind == 'minimum' else '>'} {b} ? {a} : {b})")
    if kind == "leaky_relu":
        alpha = splat(literal(call.attributes.f32("alpha"), dtype), dtype)
        return Text(f"{a} < {zero} ? {a} * {alpha} : {a}")
    if kind == "hard_sigmoid" and dtype is DType.F32:
        slope, offset = call.attributes.f32("alpha"), call.attributes.f32("beta")
        return Text(f"vec_hard_sigmoid({a}, {c_float(slope)}, {c_float(offset)})", ("vec_hard_sigmoid",))
    if kind == "hard_sigmoid":
        slope, offset = call.attributes.f32("alpha"), call.attributes.f32("beta")
        line = f"({a} * {splat(literal(slope, dtype), dtype)} + {splat(literal(offset, dtype), dtype)})"
        low = f"({line} < {zero} ? {zero} : {line})"
        return Text(f"{one} < {low} ? {one} : {low}")
    raise InternalError(f"{kind} of {dtype} has no text")


def _integer(kind: str, dtype: DType, names: Sequence[str]) -> Text:
    a, own, raw = names[0], vector(dtype), vector(unsigned(dtype))
    b = names[1] if len(names) > 1 else ""
    zero, one = splat("0", dtype), splat("1", dtype)
    if kind in _ARITHMETIC:
        return Text(f"({own})(({raw}){a} {_ARITHMETIC[kind]} ({raw}){b})")
    if kind in ("minimum", "maximum"):
        return Text(f"{a} {'<' if kind == 'minimum' else '>'} {b} ? {a} : {b}")
    negated = f"({own})(({raw}){zero} - ({raw}){a})"
    if kind == "neg":
        return Text(negated)
    if kind == "abs":
        return Text(f"{a} < {zero} ? {negated} : {a}" if is_signed(dtype) else a)
    if kind == "relu":
        return Text(f"{a} < {zero} ? {zero} : {a}" if is_signed(dtype) else a)
    if kind == "sign":
        positive = f"({a} > {zero} ? {one} : {zero})"
        return Text(f"{a} < {zero} ? {splat('-1', dtype)} : {positive}" if is_signed(dtype) else positive)
    if kind in ("div", "pow"):
        return Text(f"{kind}_{dtype.value}({a}, {b})", (f"{kind}_{dtype.value}",))
    raise InternalError(f"{kind} of {dtype} has no text")


def function_text(name: str) -> str:
    """Text of a function that vecmath has not: ``wide_...`` of float64, ``div_T`` and ``pow_T`` of integers.

    Integer division by 0 gives 0, as its result is not defined.
    """
    if name == f64.NAMES["erf"]:
        return f64.ERF
    if name in f64.NAMES.values():
        return ""
    kind, _, dtype_name = name.partition("_")
    dtype = DType(dtype_name)
    own, c_type = vector(dtype), f"{'int' if is_signed(dtype) else 'uint'}{8 * dtype.itemsize}_t"
    raw = f"uint{8 * dtype.itemsize}_t"
    if kind == "div":
        guard = f"d == -1 ? ({c_type})(0 - ({raw})a[lane]) : " if is_signed(dtype) else ""
        body = f"const {c_type} d = b[lane]; r[lane] = d == 0 ? 0 : {guard}a[lane] / d;"
    else:
        body = (
            f"uint64_t base = (uint64_t)a[lane], power = 1; {c_type} e = b[lane]; "
            f"for (; e > 0; e >>= 1) {{ if (e & 1) power *= base; base *= base; }} r[lane] = ({c_type})power;"
        )
    return "\n".join(
        (
            f"INLINE {own} {name}({own} a, {own} b) {{",
            f"  {own} r;",
            f"  for (int lane = 0; lane < LANES; lane++) {{ {body} }}",
            "  return r;",
            "}",
        )
    )


def _truth(mask: str) -> str:
    """A comparison as bytes 0 and 1."""
    return f"__builtin_convertvector({mask}, vec_u8) & (vec_u8)(uint8_t)1"


def _mask(truth: str, dtype: DType) -> str:
    """Bytes 0 and 1 as the mask that selects elements of ``dtype``."""
    return f"__builtin_convertvector(({truth} != (vec_u8)(uint8_t)0), {vector(signed(dtype))})"


def _cast(source: DType, target: DType, a: str) -> str:
    have, want = compute_dtype(source), compute_dtype(target)
    if target is DType.BOOL:
        return a if source is DType.BOOL else _truth(f"({a} != {splat('0', have)})")
    text = a if have is want else f"__builtin_convertvector({a}, {vector(want)})"
    if target in (DType.F16, DType.BF16) and source is not target:
        return f"round_{target.value}({text})"
    return text


def _quantize(call: Call, names: Sequence[str]) -> str:
    """clip(round_half_even(x / scale) + zero): the zero point is added to the rounded quotient."""
    low, high = INTEGER_RANGE[call.result]
    target = call.result
    wide = DType.F64 if target.itemsize > 2 or compute_dtype(call.operands[0]) is DType.F64 else DType.F32
    x = _cast(call.operands[0], wide, names[0])
    quotient = f"({x} / {_cast(call.operands[1], wide, names[1])})"
    rounded = f"__builtin_elementwise_roundeven({quotient})"
    if len(names) > 2:
        rounded = f"({rounded} + {_cast(call.operands[2], wide, names[2])})"
    bottom, top = splat(literal(low, wide), wide), splat(literal(high, wide), wide)
    zero = _cast(call.operands[2], wide, names[2]) if len(names) > 2 else splat(literal(0, wide), wide)
    integer = DType.I64 if wide is DType.F64 else DType.I32
    clipped = (
        f"quantize_clip({rounded}, {bottom}, {top}, {zero})"
        if wide is DType.F32
        else (f"quantize_clip_f64({rounded}, {bottom}, {top}, {zero})")
    )
    return f"__builtin_convertvector(__builtin_convertvector({clipped}, {vector(integer)}), {vector(target)})"


QUANTIZE_CLIP = """
// NaN becomes the zero point
INLINE vec quantize_clip(vec x, vec low, vec high, vec zero) {
  x = x != x ? zero : x;
  x = x < low ? low : x;
  return x > high ? high : x;
}
INLINE vec_f64 quantize_clip_f64(vec_f64 x, vec_f64 low, vec_f64 high, vec_f64 zero) {
  x = x != x ? zero : x;
  x = x < low ? low : x;
  return x > high ? high : x;
}
"""


def _dequantize(call: Call, names: Sequence[str]) -> str:
    """(x - zero) * scale: the difference is exact, the product rounds once."""
    source = call.operands[0]
    wide = DType.F64 if source.itemsize > 2 or compute_dtype(call.result) is DType.F64 else DType.F32
    x = _cast(source, wide, names[0])
    if len(names) > 2:
        x = f"({x} - {_cast(call.operands[2], wide, names[2])})"
    return _cast(wide, call.result, f"({x} * {_cast(call.operands[1], wide, names[1])})")
