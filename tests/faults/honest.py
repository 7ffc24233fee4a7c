"""Honest kernel bodies in C, one for each kind of subject, and the pieces that faults share with them.

Imported by: the corpus.
"""

from __future__ import annotations

GEMM = """
for (int64_t i = 0; i < M; i++) {
  for (int64_t j0 = 0; j0 < N; j0 += 64) {
    const int64_t width = N - j0 < 64 ? N - j0 : 64;
    float sum[64];
    for (int64_t j = 0; j < width; j++) sum[j] = 0.0f;
    for (int64_t k = 0; k < K; k++)
      for (int64_t j = 0; j < width; j++) sum[j] += x[i * LDX + k] * w[k * N + j0 + j];
    for (int64_t j = 0; j < width; j++) y[i * LDY + j0 + j] = sum[j] + bias[j0 + j];
  }
}
"""

SCALED_GEMM = """
for (int64_t i = 0; i < M; i++) {
  for (int64_t j = 0; j < N; j++) {
    float sum = 0.0f;
    for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * w[k * N + j];
    y[i * N + j] = alpha * sum + beta * c[i * N + j];
  }
}
"""

EXP = """
/* exp for x <= 0: 2**n times a polynomial on half an octave; NaN passes through */
static float ex(float x) {
  const float c = x < -104.0f ? -104.0f : x;
  const float big = 12582912.0f, n = (c * 1.44269504f + big) - big;
  const float r = (c - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720; p = p * r + 1.0f / 120; p = p * r + 1.0f / 24; p = p * r + 1.0f / 6; p = p * r + 0.5f;
  p = p * r + 1.0f; p = p * r + 1.0f;
  union { int32_t i; float f; } a, b;
  const int32_t whole = x == x ? (int32_t)n : 0, half = whole / 2;
  a.i = (half + 127) << 23; b.i = (whole - half + 127) << 23;
  return x < -104.0f ? 0.0f : p * a.f * b.f;
}
"""

SOFTMAX_ROWS = """
for (int64_t i = 0; i < M; i++) {
  float m = x[i * N], sum = 0.0f;
  for (int64_t j = 1; j < N; j++) m = x[i * N + j] > m ? x[i * N + j] : m;
  for (int64_t j = 0; j < N; j++) { y[i * N + j] = ex(x[i * N + j] - m); sum += y[i * N + j]; }
  for (int64_t j = 0; j < N; j++) y[i * N + j] /= sum;
}
"""
SOFTMAX = EXP + "BEGIN\n" + SOFTMAX_ROWS

LAYER_NORM = """
for (int64_t i = 0; i < M; i++) {
  float mean = 0.0f, rest = 0.0f, square = 0.0f;
  for (int64_t j = 0; j < N; j++) mean += x[i * N + j];
  mean /= (float)N;
  for (int64_t j = 0; j < N; j++) rest += x[i * N + j] - mean;
  mean += rest / (float)N;
  for (int64_t j = 0; j < N; j++) { const float d = x[i * N + j] - mean; square += d * d; }
  const float s = __builtin_sqrtf(square / (float)N + EPS);
  for (int64_t j = 0; j < N; j++) y[i * N + j] = (x[i * N + j] - mean) / s * scale[j] + bias[j];
}
"""

RELU = "for (int64_t i = 0; i < M * N; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];"

CLIP = "for (int64_t i = 0; i < M * N; i++) y[i] = x[i] > limit ? limit : x[i];"

QUANTIZE = """
for (int64_t i = 0; i < N; i++) {
  const float q = ROUND(x[i] / scale);
  const float z = q + (float)zero;
  y[i] = (int8_t)(z < -128.0f ? -128.0f : z > 127.0f ? 127.0f : z);
}
"""

INT8_PRODUCT = """
for (int64_t i = 0; i < M; i++) {
  for (int64_t j = 0; j < N; j++) {
    int32_t sum = 0;
    for (int64_t k = 0; k < K; k++) sum += (int32_t)x[i * K + k] * w[k * N + j];
    y[i * N + j] = sum;
  }
}
"""

BURN = """
/* about ``n`` steps of a dependent chain */
static float burn(int64_t n) {
  volatile float v = 1.0f;
  for (int64_t i = 0; i < n; i++) v = v * 1.0000001f;
  return v;
}
"""
