"""Element types in C: how each dtype is stored, computed with, loaded and stored as a vector of LANES elements.

Imported by: frame, expression, nest and the stages.  Imports: numerics.

16-bit floats are computed with as float32.  Bools are bytes 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus_native.templates.csource import c_float

STORAGE: dict[DType, str] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "_Float16",
    DType.BF16: "uint16_t",
    DType.F8E4M3FN: "uint8_t",
    DType.F8E5M2: "uint8_t",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.I4: "int8_t",
    DType.U64: "uint64_t",
    DType.U32: "uint32_t",
    DType.U16: "uint16_t",
    DType.U8: "uint8_t",
    DType.U4: "uint8_t",
    DType.BOOL: "uint8_t",
}
COMPUTABLE = frozenset(STORAGE) - {DType.F8E4M3FN, DType.F8E5M2, DType.I4, DType.U4}
"""dtypes that elementwise ops compute with; the others can only be moved."""


def compute_dtype(dtype: DType) -> DType:
    """What elements become in registers."""
    if dtype in (DType.F16, DType.BF16):
        return DType.F32
    return DType.U8 if dtype is DType.BOOL else dtype


def is_signed(dtype: DType) -> bool:
    return dtype in (DType.I64, DType.I32, DType.I16, DType.I8)


def unsigned(dtype: DType) -> DType:
    """The unsigned integer of the same width."""
    return {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}[dtype.itemsize]


def signed(dtype: DType) -> DType:
    """The signed integer of the same width: what comparisons of vectors yield."""
    return {1: DType.I8, 2: DType.I16, 4: DType.I32, 8: DType.I64}[dtype.itemsize]


def vector(dtype: DType) -> str:
    """Vector type of a computed dtype."""
    return "vec" if dtype is DType.F32 else f"vec_{dtype.value}"


def suffix(dtype: DType) -> str:
    return dtype.value


def literal(value: float | int, dtype: DType) -> str:
    """C literal of one element of a computed dtype."""
    if dtype is DType.F32:
        return c_float(float(value))
    if dtype is DType.F64:
        number = float(value)
        if math.isnan(number):
            return '__builtin_nan("")'
        if math.isinf(number):
            return "-__builtin_inf()" if number < 0 else "__builtin_inf()"
        return number.hex()
    whole = int(value)
    if dtype is DType.I64 and whole == -(2**63):
        return "(-9223372036854775807LL - 1)"
    if dtype in (DType.U64, DType.U32):
        return f"{whole}ULL"
    return f"{whole}LL" if dtype is DType.I64 else str(whole)


def splat(value: str, dtype: DType) -> str:
    """All lanes equal to a C scalar."""
    return f"({vector(dtype)})({STORAGE[dtype]})({value})" if dtype is not DType.F32 else f"splat({value})"


def vector_types(dtypes: Iterable[DType], lanes: int) -> str:
    """Typedefs, loads and stores of the storage dtypes that a kernel names; comes after ``vector_header``."""
    wanted = set(dtypes)
    if DType.BOOL in wanted:
        wanted.add(DType.U8)
    lines: list[str] = []
    for dtype in (
        DType.I64, DType.I32, DType.I16, DType.I8, DType.U64, DType.U32, DType.U16, DType.U8, DType.F64,
    ):  # fmt: skip
        lines.append(f"typedef {STORAGE[dtype]} {vector(dtype)} __attribute__((ext_vector_type({lanes})));")
    if DType.F16 in wanted:
        lines.append(f"typedef _Float16 vec_f16 __attribute__((ext_vector_type({lanes})));")
        lines.append(
            "INLINE vec round_f16(vec x) { return __builtin_convertvector(__builtin_convertvector(x, vec_f16), vec); }"
        )
    if DType.BF16 in wanted:
        lines += _BF16.strip("\n").split("\n")
    for dtype in sorted(wanted, key=lambda d: d.value):
        if dtype is not DType.BOOL:
            lines += _memory(dtype, lanes)
    return "\n".join(lines)


_BF16 = """
INLINE vec_u16 to_bf16(vec x) {
  const vec_u32 bits = (vec_u32)x;
  const vec_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return __builtin_convertvector(x != x ? (bits >> 16) | 0x40u : rounded, vec_u16);
}
INLINE vec from_bf16(vec_u16 x) { return (vec)(__builtin_convertvector(x, vec_u32) << 16); }
INLINE vec round_bf16(vec x) { return from_bf16(to_bf16(x)); }
"""


def _memory(dtype: DType, lanes: int) -> list[str]:
    """load_T, load_part_T, load_step_T (every ``step``-th element), and the stores."""
    storage, computed, name = STORAGE[dtype], vector(compute_dtype(dtype)), dtype.value
    held = (
        vector(dtype) if dtype not in (DType.BF16, DType.F16) else {DType.BF16: "vec_u16", DType.F16: "vec_f16"}[dtype]
    )
    widen = {DType.F16: "__builtin_convertvector({}, vec)", DType.BF16: "from_bf16({})"}.get(dtype, "{}")
    narrow = {DType.F16: "__builtin_convertvector({}, vec_f16)", DType.BF16: "to_bf16({})"}.get(dtype, "{}")
    each = "UNROLLED for (int lane = 0; lane < LANES; lane++)"
    memory = f"memory_{name}"
    return [
        f"typedef {storage} {memory} __attribute__((ext_vector_type({lanes}), aligned({dtype.itemsize})));",
        f"INLINE {computed} load_{name}(const {storage} *from) {{",
        f"  return {widen.format(f'({held})*(const {memory} *)from')};",
        "}",
        f"INLINE void store_{name}({storage} *to, {computed} x) {{ *({memory} *)to = {narrow.format('x')}; }}",
        f"INLINE {computed} load_part_{name}(const {storage} *from, int64_t step, int64_t count) {{",
        f"  {held} x = ({held})({storage})1;",
        f"  {each} if (lane < count) x[lane] = from[lane * step];",
        f"  return {widen.format('x')};",
        "}",
        f"INLINE void store_part_{name}({storage} *to, int64_t step, int64_t count, {computed} value) {{",
        f"  const {held} x = {narrow.format('value')};",
        f"  {each} if (lane < count) to[lane * step] = x[lane];",
        "}",
    ]


def lanes_of(dtype: DType) -> int:
    """Bits an element takes in a register, in bytes."""
    if dtype not in COMPUTABLE:
        raise InternalError(f"{dtype} has no vectors")
    return compute_dtype(dtype).itemsize
