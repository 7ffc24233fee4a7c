"""What integer products share: the modes of the dot product, its C text, tiles, requantisation, the search space.

Imported by: quantized, quantized_batch, and their families.  Imports: csource, gemm (tile sizes).

- QUADS: u8 x s8 dot products of four (AVX-512 VNNI);
- PAIRS: both operands widened to 16 bits, dot products of two (any x86; 255 * 255 * 2 < 2^31, no saturation);
- SINGLES: int32 multiply and add, any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from tribunus_native.templates.csource import UNROLL, Code, Param, Size, ceil_div
from tribunus_native.templates.gemm import choose_vectors, most_rows
from tribunus_native.toolchain import Contraction, Cpu

MOST_DEPTH: Final = 1 << 14
"""Products of 8-bit numbers, zero points subtracted, whose sum no int32 step on the way to it can overflow."""


@unique
class Dot(Enum):
    """How many products one instruction sums."""

    QUADS = 4
    PAIRS = 2
    SINGLES = 1

    @property
    def x_type(self) -> str:
        """C type of gathered x."""
        return "uint8_t" if self is Dot.QUADS else "int16_t"

    @property
    def w_type(self) -> str:
        """C type of w in panels."""
        return "int8_t" if self is Dot.QUADS else "int16_t"

    @property
    def element_bytes(self) -> int:
        """Of gathered x and of w in panels."""
        return 1 if self is Dot.QUADS else 2

    def depth(self, k: int) -> int:
        """k rounded up to whole dot products."""
        return ceil_div(k, self.value) * self.value


@unique
class Byte(Enum):
    """The value is the C type of an element."""

    U8 = "uint8_t"
    S8 = "int8_t"

    @property
    def lane_type(self) -> str:
        """C type of an element of a vector."""
        return "unsigned char" if self is Byte.U8 else "signed char"


@unique
class Result(Enum):
    INT32 = "int32"
    BYTES = "bytes"  # clip(round(sum * scale + shift) + zero), rounding half to even
    FLOAT32 = "float32"  # sum * scale + shift, then the epilogue


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedPoint:
    """One point of the search space; no number changes a bit of the result."""

    dot: Dot
    lanes: int  # int32 lanes
    mr: int
    nv: int
    contraction: Contraction


def write_dot(code: Code, dot: Dot, lanes: int) -> None:
    """ivec dot(sum, a, b): a holds the same dot.value elements in every lane, b those of each column."""
    bits, size = lanes * 32, lanes * 4
    code.line(f"typedef int32_t ivec_memory __attribute__((ext_vector_type({lanes}), aligned(4)));")
    if dot is Dot.QUADS:
        code.line(f"typedef int native_int __attribute__((__vector_size__({size})));")
        code.line(f"typedef int32_t step_memory __attribute__((ext_vector_type({lanes}), aligned(1)));")
        code.text(f"""
INLINE ivec dot(ivec sum, ivec a, ivec b) {{
  return (ivec)__builtin_ia32_vpdpbusd{bits}((native_int)sum, (native_int)a, (native_int)b);
}}
INLINE ivec spread(const uint8_t *from) {{ int32_t four; __builtin_memcpy(&four, from, 4); return (ivec)(four); }}
INLINE ivec columns(const int8_t *from) {{ return *(const step_memory *)from; }}
""")
    elif dot is Dot.PAIRS:
        code.line(f"typedef short native_short __attribute__((__vector_size__({size})));")
        code.text(f"""
INLINE ivec dot(ivec sum, ivec a, ivec b) {{
  return sum + (ivec)__builtin_ia32_pmaddwd{bits}((native_short)a, (native_short)b);
}}
INLINE ivec spread(const int16_t *from) {{ int32_t two; __builtin_memcpy(&two, from, 4); return (ivec)(two); }}
INLINE ivec columns(const int16_t *from) {{ return *(const ivec_memory *)from; }}
""")
    else:
        code.line(f"typedef int16_t short_memory __attribute__((ext_vector_type({lanes}), aligned(2)));")
        code.text("""
INLINE ivec dot(ivec sum, ivec a, ivec b) { return sum + a * b; }
INLINE ivec spread(const int16_t *from) { return (ivec)((int32_t)*from); }
INLINE ivec columns(const int16_t *from) { return __builtin_convertvector(*(const short_memory *)from, ivec); }
""")


def tile_heights(most: int) -> tuple[int, ...]:
    """Rows of the tiles, halved until one row is left."""
    heights = [most]
    while heights[-1] > 1:
        heights.append(heights[-1] // 2)
    return tuple(heights)


@contextmanager
def write_tile(
    code: Code, head: str, rows: int, vectors: int, *, start: str, step: str, panel_step: str
) -> Iterator[None]:
    """A function, ``head``, that multiplies rows of x, DEPTH apart, by a panel of w; the body stores ``acc[i][j]``.

    start: the first addend of acc[i][j], an ivec.  step, panel_step: elements that one dot product moves on in a row
    of x, and in the panel.
    """
    each = f"{UNROLL} for (int i = 0; i < {rows}; i++)"
    each_vector = f"{UNROLL} for (int j = 0; j < {vectors}; j++)"
    with code.block(head):
        code.line(f"ivec acc[{rows}][{vectors}];", f"{each} {each_vector} acc[i][j] = {start};")
        with code.block(f"for (int64_t k = 0; k < DEPTH; k += {step}, w += {panel_step})"):
            code.line(f"ivec b[{vectors}];", f"{each_vector} b[j] = columns(w + j * LANES * {step});")
            with code.block(each):
                code.line("const ivec a = spread(x + i * DEPTH + k);")
                code.line(f"{each_vector} acc[i][j] = dot(acc[i][j], a, b[j]);")
        with code.block(each), code.block(each_vector):
            yield
    code.line("")


def write_requantisation(code: Code, scaled: str, byte: Byte, *, around_zero: bool) -> None:
    """ivec z: ``scaled``, a vec, clipped and rounded.  around_zero: add ``y_zero``, an int32_t."""
    least, most = (0, 255) if byte is Byte.U8 else (-128, 127)
    code.line(f"vec t = {scaled};")
    code.line("// clipped first, rounded half to even by the addition, zero added as an integer: an odd zero")
    code.line("// added before the rounding would flip ties")
    low, high = (f"(float)({e} - y_zero)" if around_zero else f"{e}.0f" for e in (least, most))
    code.line(f"t = at_most(at_least(t, {low}), {high});")
    code.line(f"const ivec z = (ivec)(t + 12582912.0f) - 0x4b400000{' + y_zero' if around_zero else ''};")


def write_byte_store(code: Code, place: str, byte: Byte, lanes: int) -> None:
    """All lanes of ``z`` as bytes."""
    code.line(f"typedef {byte.lane_type} bytes __attribute__((ext_vector_type({lanes}), aligned(1)));")
    code.line(f"*(bytes *)({place}) = __builtin_convertvector(z, bytes);")


def quantized_rule(rows: Size, n: Size, cpu: Cpu) -> QuantizedPoint:
    """The point chosen without measuring."""
    if cpu.has_vnni:
        dot, lanes = Dot.QUADS, 16
    elif cpu.is_x86:
        dot, lanes = Dot.PAIRS, cpu.native_lanes
    else:
        dot, lanes = Dot.SINGLES, cpu.native_lanes
    nv = choose_vectors(n, lanes, cpu) if isinstance(n, int) else 2 if cpu.vector_registers == 16 else 3
    most = most_rows(nv, cpu)
    mr = most if isinstance(rows, Param) else ceil_div(rows, ceil_div(rows, most))
    return QuantizedPoint(dot=dot, lanes=lanes, mr=mr, nv=nv, contraction=Contraction.FUSED)


def quantized_points(rows: Size, n: Size, cpu: Cpu) -> tuple[QuantizedPoint, ...]:
    """The search space, the rule's point first: VNNI and the exact form without it where both exist."""
    first = quantized_rule(rows, n, cpu)
    points = [first]
    dots = [first.dot] + ([Dot.PAIRS] if cpu.has_vnni else [])
    for dot in dots:
        for nv in (3, 4, 2, 1):
            if isinstance(n, Param) or nv <= ceil_div(n, first.lanes):
                most = most_rows(nv, cpu)
                mr = most if isinstance(rows, Param) else ceil_div(rows, ceil_div(rows, most))
                points.append(QuantizedPoint(dot=dot, lanes=first.lanes, mr=mr, nv=nv, contraction=Contraction.FUSED))
    return tuple(dict.fromkeys(points))
