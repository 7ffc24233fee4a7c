"""Functions of float64 vectors in C: exp, log, tanh, sigmoid, sin, cos, erf.

Imported by: expression.  Imports: nothing.

Few models compute in float64, so these favour accuracy over speed: long series, one division where it helps.
"""

from __future__ import annotations

NAMES: dict[str, str] = {
    "exp": "wide_exp",
    "log": "wide_log",
    "tanh": "wide_tanh",
    "sigmoid": "wide_sigmoid",
    "sin": "wide_sin",
    "cos": "wide_cos",
    "erf": "wide_erf",
}

TEXT = """
INLINE vec_f64 wide_power_of_two(vec_i64 n) { return (vec_f64)((n + 1023) << 52); }
// exp(x) = 2^n exp(r), |r| <= ln2/2; the power of two in two halves, so that results round once
INLINE vec_f64 wide_exp(vec_f64 x) {
  const vec_f64 high = (vec_f64)(710.0), low = (vec_f64)(-746.0);
  x = high < x ? high : x;
  x = low > x ? low : x;
  const vec_f64 whole = __builtin_elementwise_roundeven(x * 1.4426950408889634);
  const vec_i64 n = __builtin_convertvector(whole == whole ? whole : (vec_f64)(0.0), vec_i64);
  const vec_f64 r = (x - whole * 0x1.62e42feep-1) - whole * 0x1.a39ef35793c76p-33;
  vec_f64 p = (vec_f64)(1.0 / 6227020800.0);
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = (p * r * r + r) + 1.0;
  const vec_i64 half = n >> 1;
  return p * wide_power_of_two(half) * wide_power_of_two(n - half);
}
// log(x) = k ln2 + 2 atanh(z), z = (m - 1)/(m + 1), m in [sqrt(1/2), sqrt(2))
INLINE vec_f64 wide_log(vec_f64 x) {
  const vec_i64 tiny = x < (vec_f64)(0x1p-1022);
  const vec_f64 scaled = tiny ? x * 0x1p54 : x;
  const vec_i64 bits = (vec_i64)scaled;
  const vec_i64 k = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  const vec_f64 m = (vec_f64)(bits - (k << 52));
  const vec_f64 e = __builtin_convertvector(k - (tiny & 54), vec_f64);
  const vec_f64 f = m - 1.0, z = f / (m + 1.0), s = z * z;
  vec_f64 p = s * (1.0 / 23) + 1.0 / 21;
  p = p * s + 1.0 / 19;
  p = p * s + 1.0 / 17;
  p = p * s + 1.0 / 15;
  p = p * s + 1.0 / 13;
  p = p * s + 1.0 / 11;
  p = p * s + 1.0 / 9;
  p = p * s + 1.0 / 7;
  p = p * s + 1.0 / 5;
  p = p * s + 1.0 / 3;
  // 2z = f - f z, exactly enough: the leading term is f itself
  vec_f64 r = e * 0x1.62e42feep-1 + (f - (f * z - (2.0 * z * s * p + e * 0x1.a39ef35793c76p-33)));
  const vec_f64 inf = (vec_f64)(__builtin_inf());
  r = x == inf ? inf : r;
  r = x == (vec_f64)(0.0) ? -inf : r;
  return x >= (vec_f64)(0.0) ? r : (vec_f64)(__builtin_nan(""));
}
INLINE vec_f64 wide_abs(vec_f64 x) { return (vec_f64)((vec_i64)x & 0x7fffffffffffffffLL); }
INLINE vec_f64 wide_with_sign(vec_f64 magnitude, vec_f64 sign) {
  return (vec_f64)((vec_i64)magnitude | ((vec_i64)sign & (-0x7fffffffffffffffLL - 1)));
}
INLINE vec_f64 wide_sigmoid(vec_f64 x) {
  const vec_f64 z = wide_exp(-wide_abs(x));
  return (x < (vec_f64)(0.0) ? z : (vec_f64)(1.0)) / (z + 1.0);
}
// expm1 of 2|x| by its series near 0, else by exp
INLINE vec_f64 wide_tanh(vec_f64 x) {
  const vec_f64 a = wide_abs(x), limit = (vec_f64)(20.0);
  const vec_f64 t = 2.0 * (limit < a ? limit : a);
  const vec_f64 small = t < (vec_f64)(0.5) ? t : (vec_f64)(0.0);
  vec_f64 p = small * (1.0 / 1307674368000.0) + 1.0 / 87178291200.0;
  p = p * small + 1.0 / 6227020800.0;
  p = p * small + 1.0 / 479001600.0;
  p = p * small + 1.0 / 39916800.0;
  p = p * small + 1.0 / 3628800.0;
  p = p * small + 1.0 / 362880.0;
  p = p * small + 1.0 / 40320.0;
  p = p * small + 1.0 / 5040.0;
  p = p * small + 1.0 / 720.0;
  p = p * small + 1.0 / 120.0;
  p = p * small + 1.0 / 24.0;
  p = p * small + 1.0 / 6.0;
  p = p * small + 0.5;
  p = p * small * small + small;
  const vec_f64 grown = t < (vec_f64)(0.5) ? p : wide_exp(t) - 1.0;
  const vec_f64 value = grown / (grown + 2.0);
  return x == x ? wide_with_sign(value, x) : x;
}
// x = n pi/2 + r in three fused steps
typedef struct { vec_f64 sine, cosine; vec_i64 quadrant; } wide_angle;
INLINE wide_angle wide_split(vec_f64 x) {
  const vec_f64 n = __builtin_elementwise_roundeven(x * 0.63661977236758138);
  vec_f64 r = __builtin_elementwise_fma(-n, (vec_f64)(0x1.921fb54442d18p+0), x);
  r = __builtin_elementwise_fma(-n, (vec_f64)(0x1.1a62633145c07p-54), r);
  const vec_f64 s = r * r;
  vec_f64 p = s * (1.0 / 355687428096000.0) - 1.0 / 1307674368000.0;
  p = p * s + 1.0 / 6227020800.0;
  p = p * s - 1.0 / 39916800.0;
  p = p * s + 1.0 / 362880.0;
  p = p * s - 1.0 / 5040.0;
  p = p * s + 1.0 / 120.0;
  p = p * s - 1.0 / 6.0;
  vec_f64 q = s * (1.0 / 20922789888000.0) - 1.0 / 87178291200.0;
  q = q * s + 1.0 / 479001600.0;
  q = q * s - 1.0 / 3628800.0;
  q = q * s + 1.0 / 40320.0;
  q = q * s - 1.0 / 720.0;
  q = q * s + 1.0 / 24.0;
  const vec_f64 whole = n == n ? n : (vec_f64)(0.0);
  const vec_f64 kept = wide_abs(whole) < (vec_f64)(0x1p62) ? whole : (vec_f64)(0.0);
  return (wide_angle){p * (s * r) + r, q * (s * s) + (1.0 - 0.5 * s), __builtin_convertvector(kept, vec_i64)};
}
INLINE vec_f64 wide_rotate(wide_angle a, vec_i64 quadrant) {
  const vec_f64 value = (quadrant & 1) != 0 ? a.cosine : a.sine;
  return (vec_f64)((vec_i64)value ^ ((quadrant & 2) << 62));
}
INLINE vec_f64 wide_sin(vec_f64 x) {
  const wide_angle a = wide_split(x);
  return x == (vec_f64)(0.0) ? x : wide_rotate(a, a.quadrant);
}
INLINE vec_f64 wide_cos(vec_f64 x) {
  const wide_angle a = wide_split(x);
  return wide_rotate(a, a.quadrant + 1);
}
"""

ERF = """
// |x| < 2: the series of erf; else 1 - erfc by its continued fraction, 40 terms from the end
INLINE vec_f64 wide_erf(vec_f64 x) {
  const vec_f64 a = wide_abs(x), limit = (vec_f64)(6.0);
  const vec_f64 t = limit < a ? limit : a;
  const vec_f64 near = t < (vec_f64)(2.0) ? t : (vec_f64)(0.0), s = near * near;
  vec_f64 sum = (vec_f64)(1.0), term = (vec_f64)(1.0);
  for (int n = 1; n < 48; n++) {
    term = term * s * (2.0 / (2 * n + 1));
    sum = sum + term;
  }
  const vec_f64 inside = 1.1283791670955126 * near * wide_exp(-s) * sum;
  const vec_f64 far = t < (vec_f64)(2.0) ? (vec_f64)(2.0) : t;
  vec_f64 fraction = (vec_f64)(0.0);
  for (int n = 60; n > 0; n--) fraction = (0.5 * n) / (far + fraction);
  const vec_f64 outside = 1.0 - wide_exp(-far * far) * 0.56418958354775629 / (far + fraction);
  const vec_f64 value = t < (vec_f64)(2.0) ? inside : outside;
  return x == x ? wide_with_sign(value, x) : x;
}
"""
