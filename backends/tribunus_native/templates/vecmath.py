"""Vector functions in C: exp, log, tanh, sigmoid, erf, sin, cos, pow and the activations built on them.

Imported by: the other templates.  Imports: csource.

Polynomials are minimax fits (weighted by the relative error of the function, coefficients rounded one by one with the
rest refitted); no table, no branch, no library.  Rules kept everywhere:
- a clamp is written ``high < x ? high : x``, so that NaN falls through;
- powers of two are applied by multiplication in two halves: overflow gives Inf, results below 2^-126 round once;
- the same bits for every lane count and instruction set (scalef of AVX-512 rounds exactly as the two halves do).
"""

from __future__ import annotations

from enum import Enum, unique

from tribunus_native.templates.csource import Code


@unique
class Fn(Enum):
    """A C function of this module, by its name in the text."""

    EXP = "vec_exp"
    LOG = "vec_log"
    TANH = "vec_tanh"
    SIGMOID = "vec_sigmoid"
    SILU = "vec_silu"
    ERF = "vec_erf"
    GELU = "vec_gelu"
    GELU_TANH = "vec_gelu_tanh"
    SOFTPLUS = "vec_softplus"
    MISH = "vec_mish"
    SIN = "vec_sin"
    COS = "vec_cos"
    POW = "vec_pow"
    RELU = "vec_relu"
    HARD_SWISH = "vec_hard_swish"
    SQRT = "vec_sqrt"
    ABS = "vec_abs"
    RECIPROCAL = "vec_reciprocal"


_BASE = """
INLINE vec select(ivec mask, vec yes, vec no) { return mask ? yes : no; }
INLINE vec vec_abs(vec x) { return (vec)((ivec)x & 0x7fffffff); }
INLINE vec with_sign(vec magnitude, vec sign) {
  return (vec)(((ivec)magnitude & 0x7fffffff) | ((ivec)sign & (int32_t)0x80000000));
}
INLINE vec at_most(vec x, float high) { return splat(high) < x ? splat(high) : x; }  // NaN stays NaN
INLINE vec at_least(vec x, float low) { return splat(low) > x ? splat(low) : x; }    // NaN stays NaN
INLINE vec power_of_two(ivec n) { return (vec)((n + 127) << 23); }  // -126 <= n <= 127
"""

_EXP = """
// exp(x) = mantissa * 2^n, with x = n*ln2 + r, |r| <= ln2/2.  2^n comes in two halves.
typedef struct { vec mantissa, scale_1, scale_2; } exp_parts;
INLINE exp_parts split_exp(vec x) {
  constexpr float LOG2_E = 1.44269504f, LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194442e-4f;
  constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
  x = at_least(at_most(x, 89.0f), -112.0f);
  const vec shifted = x * LOG2_E + TO_INTEGER;
  const ivec n = (ivec)shifted - 0x4b400000;
  const vec whole = shifted - TO_INTEGER;
  vec r = x - whole * LN2_HIGH;
  r = r - whole * LN2_LOW;
  vec p = r * 1.38201355e-3f + 8.36868584e-3f;
  p = p * r + 4.16682735e-2f;
  p = p * r + 1.66665211e-1f;
  p = p * r + 4.9999994e-1f;
  p = p * (r * r) + r;
  const ivec half = n >> 1;
  return (exp_parts){p + 1.0f, power_of_two(half), power_of_two(n - half)};
}
"""

_EXP_PLAIN = """
INLINE vec vec_exp(vec x) {
  const exp_parts e = split_exp(x);
  return e.mantissa * e.scale_1 * e.scale_2;
}
"""

# One instruction for 2^n with overflow and subnormal results; the two halves above are dead code then.
_EXP_SCALEF = """
typedef float native_vec __attribute__((__vector_size__(64)));
INLINE vec vec_exp(vec x) {
  constexpr float LOG2_E = 1.44269504f, LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194442e-4f;
  constexpr float TO_INTEGER = 12582912.0f;
  x = at_least(at_most(x, 89.0f), -112.0f);
  const vec whole = (x * LOG2_E + TO_INTEGER) - TO_INTEGER;
  vec r = x - whole * LN2_HIGH;
  r = r - whole * LN2_LOW;
  vec p = r * 1.38201355e-3f + 8.36868584e-3f;
  p = p * r + 4.16682735e-2f;
  p = p * r + 1.66665211e-1f;
  p = p * r + 4.9999994e-1f;
  p = p * (r * r) + r;
  p = p + 1.0f;
  return (vec)__builtin_ia32_scalefps512_mask((native_vec)p, (native_vec)whole, (native_vec)p, (unsigned short)-1, 4);
}
"""

_LOG = """
// log(x) = k*ln2 + log(m), m in [sqrt(1/2), sqrt(2)); subnormal x is scaled by 2^23 first
INLINE vec vec_log(vec x) {
  constexpr float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194442e-4f;
  const ivec tiny = x < splat(1.17549435e-38f);
  const ivec bits = (ivec)select(tiny, x * 8388608.0f, x);
  const ivec k = (bits - 0x3f3504f3) >> 23;
  const vec exponent = __builtin_convertvector(k - (tiny & 23), vec);
  const vec f = (vec)(bits - (k << 23)) - 1.0f;
  vec p = f * 6.74871579e-2f - 1.16722085e-1f;
  p = p * f + 1.1884819e-1f;
  p = p * f - 1.24060407e-1f;
  p = p * f + 1.42202064e-1f;
  p = p * f - 1.66679919e-1f;
  p = p * f + 2.0002076e-1f;
  p = p * f - 2.50000089e-1f;
  p = p * f + 3.33333135e-1f;
  const vec square = f * f;
  vec low = p * f * square;
  low = exponent * LN2_LOW + low;
  low = low - 0.5f * square;
  vec r = f + low;
  r = exponent * LN2_HIGH + r;
  const vec inf = splat(__builtin_inff());
  r = select(x == inf, inf, r);
  r = select(x == splat(0.0f), -inf, r);
  return select(x >= splat(0.0f), r, splat(__builtin_nanf("")));
}
"""

_SIGMOID = """
// 1/(1+exp(-x)) from exp(-|x|): no overflow, and the left tail keeps its relative accuracy
INLINE vec vec_sigmoid(vec x) {
  const vec z = vec_exp(-vec_abs(x));
  return select(x < splat(0.0f), z, splat(1.0f)) / (z + 1.0f);
}
"""

_SILU = """
// x*sigmoid(x).  For x < 0 the last factor of exp(x) is applied at the end, so that subnormal results round once.
// x*0 makes SiLU(-Inf) the NaN that the formula gives.
INLINE vec vec_silu(vec x) {
  const exp_parts e = split_exp(-vec_abs(x));
  const vec z = e.mantissa * e.scale_1;
  const vec denominator = z * e.scale_2 + 1.0f;
  const vec clamped = at_least(x, -112.0f);
  return select(x < splat(0.0f), (clamped * z) / denominator * e.scale_2 + x * 0.0f, x / denominator);
}
"""

_TANH = """
// |x| < 0.625: odd polynomial; else 1 - 2/(exp(2|x|)+1)
INLINE vec vec_tanh(vec x) {
  const vec s = x * x;
  vec p = s * -5.69229666e-3f + 2.06281673e-2f;
  p = p * s - 5.37365153e-2f;
  p = p * s + 1.33314058e-1f;
  p = p * s - 3.33332807e-1f;
  p = p * s * x + x;
  const vec magnitude = at_most(vec_abs(x), 9.02f);
  const vec tail = 1.0f - 2.0f / (vec_exp(magnitude * 2.0f) + 1.0f);
  return with_sign(select(vec_abs(x) < splat(0.625f), p, tail), x);
}
"""

_ERF = """
// |x| < 1: odd polynomial; else 1 - exp(log erfc(|x|)) with a polynomial for the logarithm
INLINE vec vec_erf(vec x) {
  const vec s = x * x;
  vec p = s * 7.80690389e-5f - 7.9978531e-4f;
  p = p * s + 5.1871622e-3f;
  p = p * s - 2.68533472e-2f;
  p = p * s + 1.12835787e-1f;
  p = p * s - 3.7612626e-1f;
  p = p * s + 1.28379166e-1f;
  p = p * x + x;
  const vec a = at_most(vec_abs(x), 4.2f);
  vec q = a * -2.16937497e-5f + 4.41433309e-4f;
  q = q * a - 4.20512492e-3f;
  q = q * a + 2.52100062e-2f;
  q = q * a - 1.08421721e-1f;
  q = q * a - 6.33216619e-1f;
  q = q * a - 1.12958026f;
  q = q * a + 1.88468533e-4f;
  const vec tail = 1.0f - vec_exp(q);
  return with_sign(select(vec_abs(x) < splat(1.0f), p, tail), x);
}
"""

_GELU = """
// the definition: 0.5*x*(1 + erf(x/sqrt 2))
INLINE vec vec_gelu(vec x) { return 0.5f * x * (1.0f + vec_erf(x * 0.707106769f)); }
"""

_GELU_TANH = """
// the tanh form: 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)))
INLINE vec vec_gelu_tanh(vec x) {
  const vec inner = 0.797884583f * (x + 0.044715f * (x * x * x));
  return 0.5f * x * (1.0f + vec_tanh(inner));
}
"""

_SOFTPLUS = """
// max(x, 0) + log(1 + z), z = exp(-|x|); the rounding of 1+z is corrected by its exactly known rest
INLINE vec vec_softplus(vec x) {
  const vec z = vec_exp(-vec_abs(x));
  const vec one_z = 1.0f + z;
  const vec rest = z - (one_z - 1.0f);
  const vec positive = select(splat(0.0f) > x, splat(0.0f), x);
  return positive + (vec_log(one_z) + rest / one_z);
}
"""

_MISH = """
// x*tanh(softplus(x)) = x*w*(w+2)/(w*(w+2)+2), w = exp(x).  Large x clamps w, where the quotient is 1.  For x < 0 the
// last factor of w is applied at the end, as in SiLU.
INLINE vec vec_mish(vec x) {
  const exp_parts e = split_exp(at_most(x, 30.0f));
  const vec z = e.mantissa * e.scale_1, w = z * e.scale_2;
  const vec t = w * (w + 2.0f);
  const vec below = at_least(x, -112.0f) * z * ((w + 2.0f) / (t + 2.0f)) * e.scale_2 + x * 0.0f;
  return select(x < splat(0.0f), below, x * (t / (t + 2.0f)));
}
"""

_SIN_COS = """
// x = n*pi/2 + r, |r| <= pi/4, in three fused steps: good to 1 ulp of the result's scale for |x| <= 2^15
typedef struct { vec sine, cosine; ivec quadrant; } angle_parts;
INLINE angle_parts split_angle(vec x) {
  constexpr float TWO_OVER_PI = 0.636619747f, TO_INTEGER = 12582912.0f;
  const vec shifted = x * TWO_OVER_PI + TO_INTEGER;
  const vec n = shifted - TO_INTEGER;
  vec r = __builtin_elementwise_fma(-n, splat(1.57079637f), x);
  r = __builtin_elementwise_fma(-n, splat(-4.37113883e-8f), r);
  r = __builtin_elementwise_fma(-n, splat(-1.71512451e-15f), r);
  const vec s = r * r;
  vec p = s * 2.83268014e-6f - 1.98530717e-4f;
  p = p * s + 8.3333794e-3f;
  p = p * s - 1.66666672e-1f;
  vec q = s * -2.88784491e-7f + 2.48220076e-5f;
  q = q * s - 1.388898e-3f;
  q = q * s + 4.16666679e-2f;
  return (angle_parts){p * (s * r) + r, q * (s * s) + (1.0f - 0.5f * s), (ivec)shifted};
}
INLINE vec rotate_angle(angle_parts a, ivec quadrant) {
  const vec value = select((quadrant & 1) != 0, a.cosine, a.sine);
  return (vec)((ivec)value ^ ((quadrant & 2) << 30));
}
INLINE vec vec_sin(vec x) {
  const angle_parts a = split_angle(x);
  return select(x == splat(0.0f), x, rotate_angle(a, a.quadrant));  // sin(-0) = -0
}
INLINE vec vec_cos(vec x) {
  const angle_parts a = split_angle(x);
  return rotate_angle(a, a.quadrant + 1);
}
"""

_POW = """
// |x|^y = exp(y*log|x|): the logarithm and the product in double, the exponential in float with the low half of the
// product added to the mantissa.  Signs and special values as C's pow has them.
typedef double wide_vec __attribute__((ext_vector_type(LANES)));
typedef int64_t wide_ivec __attribute__((ext_vector_type(LANES)));
INLINE vec vec_pow(vec x, vec y) {
  const vec inf = splat(__builtin_inff()), zero = splat(0.0f), one = splat(1.0f);
  const vec base = vec_abs(x);
  const wide_vec wide = __builtin_convertvector(base, wide_vec);
  const wide_ivec bits = (wide_ivec)wide;
  const wide_ivec k = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  const wide_vec m = (wide_vec)(bits - (k << 52));
  const wide_vec z = (m - 1.0) / (m + 1.0), s = z * z;
  wide_vec series = s * (1.0 / 15) + 1.0 / 13;
  series = series * s + 1.0 / 11;
  series = series * s + 1.0 / 9;
  series = series * s + 1.0 / 7;
  series = series * s + 1.0 / 5;
  series = series * s + 1.0 / 3;
  const wide_vec log_base = __builtin_convertvector(k, wide_vec) * 0x1.62e42fefa39efp-1 + (2 * z + 2 * z * s * series);
  const wide_vec product = log_base * __builtin_convertvector(y, wide_vec);
  const vec high = __builtin_convertvector(product, vec);
  const vec low = __builtin_convertvector(product - __builtin_convertvector(high, wide_vec), vec);
  const exp_parts e = split_exp(high);
  // beyond the clamp of split_exp the result is 0 or Inf whatever `low` says
  const ivec moderate = vec_abs(high) < splat(112.0f);
  const vec mantissa = select(moderate, e.mantissa + e.mantissa * low, e.mantissa);
  vec r = mantissa * e.scale_1 * e.scale_2;
  const ivec grows = (base > one) == (y > zero);  // |x|^y > 1 for x, y that are not 0, 1
  r = select(base == zero, select(y < zero, inf, zero), r);
  r = select(base == inf, select(y < zero, zero, inf), r);
  r = select(vec_abs(y) == inf, select(base == one, one, select(grows, inf, zero)), r);
  const vec magnitude = vec_abs(y);
  const vec truncated = select(magnitude < splat(8388608.0f), __builtin_elementwise_trunc(y), y);
  const vec half = y * 0.5f;
  const vec half_truncated = select(magnitude < splat(16777216.0f), __builtin_elementwise_trunc(half), half);
  const ivec integer = (truncated == y) & (magnitude < inf);
  const ivec odd = integer & (half_truncated != half);
  const ivec negative = (ivec)x < 0;
  r = select(negative & odd, -r, r);
  const ivec no_power = (x < zero) & ~integer & (magnitude < inf) & (base < inf);
  r = select(no_power | (x != x) | (y != y), splat(__builtin_nanf("")), r);
  return select((y == zero) | (x == one), one, r);
}
"""

_SIMPLE = """
INLINE vec vec_relu(vec x) { return x < splat(0.0f) ? splat(0.0f) : x; }  // NaN stays NaN
INLINE vec vec_hard_sigmoid(vec x, float slope, float offset) {
  return at_most(at_least(x * slope + offset, 0.0f), 1.0f);
}
INLINE vec vec_hard_swish(vec x) { return x * vec_hard_sigmoid(x, 0.166666672f, 0.5f); }
INLINE vec vec_leaky_relu(vec x, float slope) { return x < splat(0.0f) ? x * slope : x; }
INLINE vec vec_clip(vec x, float low, float high) { return at_most(at_least(x, low), high); }
INLINE vec vec_elu(vec x, float alpha) {
  const vec small = x < splat(-0.25f) ? splat(0.0f) : x;  // near 0 by its own series, exp(x)-1 cancels there
  vec p = small * 1.38888892e-3f + 8.33333377e-3f;
  p = p * small + 4.16666679e-2f;
  p = p * small + 1.66666672e-1f;
  p = p * small + 0.5f;
  p = p * (small * small) + small;
  const vec below = x < splat(-0.25f) ? vec_exp(x) - 1.0f : p;
  return x < splat(0.0f) ? alpha * below : x;
}
INLINE vec vec_minimum(vec x, vec y) { return x != x ? x : (x < y ? x : y); }  // NaN of either side wins
INLINE vec vec_maximum(vec x, vec y) { return x != x ? x : (x > y ? x : y); }
INLINE vec vec_negate(vec x) { return -x; }
INLINE vec vec_floor(vec x) { return __builtin_elementwise_floor(x); }
INLINE vec vec_ceil(vec x) { return __builtin_elementwise_ceil(x); }
INLINE vec vec_round(vec x) { return __builtin_elementwise_roundeven(x); }
INLINE vec vec_sign(vec x) { return select(x == splat(0.0f), x, select(x == x, with_sign(splat(1.0f), x), x)); }
INLINE vec vec_sqrt(vec x) { return __builtin_elementwise_sqrt(x); }
INLINE vec vec_reciprocal(vec x) { return 1.0f / x; }
"""

_ORDER: tuple[tuple[str, str], ...] = (
    ("log", _LOG),
    ("sigmoid", _SIGMOID),
    ("silu", _SILU),
    ("tanh", _TANH),
    ("erf", _ERF),
    ("gelu", _GELU),
    ("gelu_tanh", _GELU_TANH),
    ("softplus", _SOFTPLUS),
    ("mish", _MISH),
    ("sin_cos", _SIN_COS),
    ("pow", _POW),
    ("simple", _SIMPLE),
)
# parts that a function needs, beside exp; functions not listed are in "simple"
_NEEDS: dict[str, tuple[str, ...]] = {
    Fn.EXP.value: (),
    Fn.LOG.value: ("log",),
    Fn.SIGMOID.value: ("sigmoid",),
    Fn.SILU.value: ("silu",),
    Fn.TANH.value: ("tanh",),
    Fn.ERF.value: ("erf",),
    Fn.GELU.value: ("erf", "gelu"),
    Fn.GELU_TANH.value: ("tanh", "gelu_tanh"),
    Fn.SOFTPLUS.value: ("log", "softplus"),
    Fn.MISH.value: ("mish",),
    Fn.SIN.value: ("sin_cos",),
    Fn.COS.value: ("sin_cos",),
    Fn.POW.value: ("pow",),
    Fn.ABS.value: (),
}


def vecmath(code: Code, functions: frozenset[str], lanes: int, *, avx512: bool) -> None:
    """Write the named functions and what they need.  Comes after ``vector_header``."""
    code.text(_BASE)
    if not functions:
        code.line("")
        return
    wanted = {part for name in functions for part in _NEEDS.get(name, ("simple",))}
    code.text(_EXP)
    code.text(_EXP_SCALEF if avx512 and lanes == 16 else _EXP_PLAIN)
    for part, body in _ORDER:
        if part in wanted:
            code.text(body)
    code.line("")
