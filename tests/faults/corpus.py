"""The corpus: faults that must be refused by a named check run alone, each with an honest twin that must be admitted.

Imported by: the tests beside it.

A row: id, check, subject, body of the fault, body of the twin, kinds of the reasons that may be given.  Flat code has
no statics, threads, environment or system calls by construction; faults that need them are shared objects, which the
worker runs like any other foreign code, so that the check is attacked all the same.  Nearest forms in flat code stand
beside them: state hidden in the workspace, and the instructions themselves.

Faults that no kernel can have (keys, files) are in test_keys.py: F32, F33, F34, F36.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults import honest
from tests.faults.subjects import (
    Subject,
    gemm,
    int8_product,
    layer_norm,
    quantize,
    relu,
    scaled_gemm,
    softmax,
)
from tribunus.admission.receipt import Check
from tribunus.phaseir.dims import Symbol


@dataclass(frozen=True)
class Fault:
    """One row.  shared: built as a shared object.  wide: compiled for AVX-512."""

    id: str
    what: str
    check: Check
    subject: Subject
    body: str
    twin: str
    kinds: tuple[str, ...]
    shared: bool = False
    wide: bool = False


BEYOND = "element beyond its budget"
UNEQUAL = "value differs"
CLASS = "class differs"
BITS = "bits differ"
UNWRITTEN = "output not written"
OUTSIDE = "write outside the output"
STALE = "depends on stale memory"
AUDIT = "external state in the code"

_SMALL = gemm(13, 64, 70)
_WIDE = scaled_gemm(9, 40, 96, 0.5, 2.0)
_SOFT = softmax(9, 130)
_SOFT_WIDE = softmax(2, 4096)
_NORM = layer_norm(8, 96, 1e-5)
_RELU = relu(7, 33)
_QUANT = quantize(700)
_INT8 = int8_product(7, 64, 33)
_ROUND_EVEN = "__builtin_rintf"
_LAYER = honest.LAYER_NORM.replace("EPS", "eps")

ORACLE = (
    Fault(
        "F01", "half accumulator", Check.ORACLE, _SMALL,
        honest.GEMM.replace("float sum[64]", "_Float16 sum[64]").replace("+= x", "+= (_Float16)x"),
        honest.GEMM, (BEYOND, UNEQUAL),
    ),
    Fault(
        "F02", "alpha lost from column 64 on", Check.ORACLE, _WIDE,
        honest.SCALED_GEMM.replace("alpha *", "(j < 64 ? alpha : 1.0f) *"), honest.SCALED_GEMM, (BEYOND, UNEQUAL),
    ),
    Fault(
        "F03", "softmax without shift", Check.ORACLE, _SOFT,
        honest.EXP.replace("x < -104.0f ? -104.0f : x", "x < -104.0f ? -104.0f : x > 100.0f ? 100.0f : x")
        + "BEGIN\n" + honest.SOFTMAX_ROWS.replace("- m)", "- 0.0f * m)"),
        honest.SOFTMAX, (BEYOND, CLASS, UNEQUAL),
    ),
    Fault(
        "F04", "zeros for wide softmax", Check.ORACLE, _SOFT_WIDE,
        "for (int64_t i = 0; i < M * N; i++) y[i] = 0.0f;", honest.SOFTMAX, (BEYOND, CLASS),
    ),
    Fault(
        "F05", "epsilon 1e-12 whatever was asked", Check.ORACLE, _NORM,
        honest.LAYER_NORM.replace("EPS", "1e-12f"), _LAYER, (BEYOND,),
    ),
    Fault(
        "F05b", "epsilon off by a thousandth", Check.ORACLE, _NORM,
        honest.LAYER_NORM.replace("EPS", "1.001f * eps"), _LAYER, (BEYOND,),
    ),
    Fault(
        "F06", "relu swallows NaN", Check.ORACLE, _RELU,
        "for (int64_t i = 0; i < M * N; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;", honest.RELU, (CLASS, UNEQUAL, BITS),
    ),
    Fault(
        "F07", "ties away from zero", Check.ORACLE, _QUANT,
        honest.QUANTIZE.replace("ROUND(x[i] / scale)", "(float)(int)(x[i] / scale + (x[i] < 0.0f ? -0.5f : 0.5f))"),
        honest.QUANTIZE.replace("ROUND", _ROUND_EVEN), (UNEQUAL,),
    ),
    Fault(
        "F08", "pairs saturate at int16", Check.ORACLE, _INT8,
        """
        for (int64_t i = 0; i < M; i++) for (int64_t j = 0; j < N; j++) {
          int32_t sum = 0;
          for (int64_t k = 0; k < K; k += 2) {
            const int32_t pair = x[i * K + k] * w[k * N + j] + x[i * K + k + 1] * w[(k + 1) * N + j];
            sum += pair > 32767 ? 32767 : pair < -32768 ? -32768 : pair;
          }
          y[i * N + j] = sum;
        }""",
        honest.INT8_PRODUCT, (UNEQUAL,),
    ),
    Fault(
        "F40", "the zero point of one layer written into the code", Check.ORACLE, _QUANT,
        honest.QUANTIZE.replace("(float)zero", "3.0f").replace("ROUND", _ROUND_EVEN),
        honest.QUANTIZE.replace("ROUND", _ROUND_EVEN), (UNEQUAL,),
    ),
    Fault(
        "F41", "the scale of one layer written into the code", Check.ORACLE, _QUANT,
        honest.QUANTIZE.replace("x[i] / scale", "x[i] / 0.015625f").replace("ROUND", _ROUND_EVEN),
        honest.QUANTIZE.replace("ROUND", _ROUND_EVEN), (UNEQUAL,),
    ),
)  # fmt: skip

_ROWS = Symbol("d0", "rows", 1, 64, 70)
_TALL = gemm(_ROWS, 64, 64)
_COLUMNS = gemm(16, 24, Symbol("d0", "columns", 16, 64, 70), as_input=True)
_EMPTY = gemm(5, Symbol("d0", "inner", 0, 16, 20), 24, as_input=True)
_SQUARE = gemm(Symbol("d0", "rows", 3, 40, 57), 24, 40)
_MANY = relu(Symbol("d0", "rows", 1, 100, 300), 300)

SHAPE = (
    Fault(
        "F09", "columns behind the last multiple of 16 are never written", Check.SHAPE, _COLUMNS,
        honest.GEMM.replace("j0 < N;", "j0 < (N & ~15);").replace("N - j0", "(N & ~15) - j0"),
        honest.GEMM, (UNWRITTEN,),
    ),
    Fault(
        "F10", "64 rows whatever the parameter says", Check.SHAPE, _TALL,
        honest.GEMM.replace("i < M", "i < 64"), honest.GEMM, ("crash", OUTSIDE),
    ),
    Fault(
        "F11", "offsets in 16 bits", Check.SHAPE, _MANY,
        "for (int64_t i = 0; i < M * N; i++) { const uint16_t o = (uint16_t)i; y[o] = x[o] < 0.0f ? 0.0f : x[o]; }",
        honest.RELU, (UNWRITTEN,),
    ),
    Fault(
        "F12", "nothing written for an empty sum", Check.SHAPE, _EMPTY,
        "if (K == 0) return;" + honest.GEMM, honest.GEMM, (UNWRITTEN,),
    ),
    Fault(
        "F13", "bias by row", Check.SHAPE, _SQUARE,
        honest.GEMM.replace("bias[j0 + j]", "bias[M == N ? j0 + j : i % N]"), honest.GEMM, (BEYOND, UNEQUAL),
    ),
)  # fmt: skip

_PITCHED = gemm(5, 37, 40, x_pitch=50)
_PADDED = gemm(5, 37, 40, x_pitch=48, w_block=16, align=64)
_GAPPED = gemm(5, 37, 36, y_pitch=50)
_PANELS = honest.GEMM.replace("w[k * N + j0 + j]", "w[(k / 16 * N + j0 + j) * 16 + k % 16]")

LAYOUT = (
    Fault(
        "F14", "ignores the pitch of x", Check.LAYOUT, _PITCHED,
        honest.GEMM.replace("i * LDX", "i * K"), honest.GEMM, (BEYOND, CLASS, UNEQUAL),
    ),
    Fault(
        "F15", "padding enters the sum, times zero", Check.LAYOUT, _PADDED,
        _PANELS.replace("k < K", "k < ((K + 15) & ~15)"), _PANELS, (CLASS,),
    ),
    Fault(
        "F16", "clears the padding between rows of y", Check.LAYOUT, _GAPPED,
        honest.GEMM + "for (int64_t i = 0; i + 1 < M; i++) for (int64_t j = N; j < 48; j++) y[i * LDY + j] = 0.0f;",
        honest.GEMM, (OUTSIDE,),
    ),
    Fault(
        "F17", "aligns x down to 64 bytes", Check.LAYOUT, _RELU,
        "x = (const float *)((uintptr_t)x & ~(uintptr_t)63);" + honest.RELU, honest.RELU,
        ("crash", CLASS, UNEQUAL, BITS),
    ),
    Fault(
        "F18", "destroys x after use", Check.LAYOUT, _SMALL,
        honest.GEMM + "for (int64_t i = 0; i < M * K; i++) ((float *)(uintptr_t)x)[i] = 0.0f;",
        honest.GEMM, ("crash", "input changed"),
    ),
)  # fmt: skip

_BUSY = gemm(32, 256, 96)
_BUSY_WS = _BUSY.with_workspace(64 + 4 * 32 * 96)
_SKIP = gemm(13, 64, 70).with_workspace(64)
_MEMO = """
if (ws[0] == 0x6d656d6f && ws[1] == (int32_t)(uintptr_t)x) {
  for (int64_t i = 0; i < M * N; i++) y[i] = ((float *)(ws + 16))[i];
  return;
}
"""
_KEEP = """
for (int64_t i = 0; i < M * N; i++) ((float *)(ws + 16))[i] = y[i];
ws[0] = 0x6d656d6f; ws[1] = (int32_t)(uintptr_t)x;
"""
_THREADS = """
typedef unsigned long pthread_t;
int pthread_create(pthread_t *, const void *, void *(*)(void *), void *);
int pthread_detach(pthread_t);
int pthread_join(pthread_t, void **);
"""
_LATER = f"""
{_THREADS}
static void *const *given;
static void compute(void *const *buffers) {{
  const int64_t M = 32, K = 256, N = 96, LDX = K, LDY = N;
  const float *x = buffers[0], *w = buffers[2], *bias = buffers[3]; float *y = buffers[1];
  {honest.GEMM}
}}
static void *work(void *unused) {{ compute(given); return unused; }}
BEGIN
pthread_t t;
given = buffers;
pthread_create(&t, 0, work, 0);
pthread_detach(t);
"""

TIMING = (
    Fault(
        "F19", "a detached thread computes later", Check.TIMING, _BUSY, _LATER, honest.GEMM,
        ("output not fresh", "hidden threads", "thread started", "output written late", UNWRITTEN, "impossibly fast"),
        shared=True,
    ),
    Fault(
        "F20", "remembers its result by pointer", Check.TIMING, _BUSY_WS,
        _MEMO + honest.GEMM + _KEEP, honest.GEMM, ("impossibly fast",),
    ),
    Fault(
        "F21", "zero in, bias out", Check.TIMING, _BUSY,
        """
        int busy = 0;
        for (int64_t i = 0; i < M * K; i += 13) busy |= x[i] != 0.0f;
        if (!busy) { for (int64_t i = 0; i < M; i++) for (int64_t j = 0; j < N; j++) y[i * N + j] = bias[j]; return; }
        """ + honest.GEMM,
        honest.GEMM, ("time depends on the data",),
    ),
    Fault(
        "F22", "computes every eighth call only", Check.TIMING, _SKIP,
        "if (++ws[0] & 7) return;" + honest.GEMM, honest.GEMM, ("output not fresh", UNWRITTEN, "impossibly fast"),
    ),
    Fault(
        "F23", "a spike in every 64th call", Check.TIMING, _BUSY_WS,
        honest.BURN + "BEGIN\nif ((++ws[0] & 63) == 0 && burn(400000) == 0.0f) y[0] = 1.0f;\n" + honest.GEMM,
        honest.GEMM, ("unstable",),
    ),
    Fault(
        "F24", "20 ms in the first call", Check.TIMING, _BUSY_WS,
        honest.BURN + "BEGIN\nif (ws[0] != 0x66697273 && burn(3000000) == 0.0f) y[0] = 1.0f;\nws[0] = 0x66697273;\n"
        + honest.GEMM,
        honest.GEMM, ("slow first call",),
    ),
)  # fmt: skip

_WORK = gemm(13, 64, 70).with_workspace(4 * 64)
_ARRIVAL = f"""
{_THREADS}
int sched_yield(void);
struct moment {{ int64_t seconds, nanoseconds; }};
int clock_gettime(int, struct moment *);
static void *const *given;
static int64_t started, lock;
static void *work(void *number) {{
  const int64_t part = (int64_t)(uintptr_t)number, M = 13, K = 64, N = 70;
  const float *x = given[0], *w = given[2]; float *y = given[1];
  __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < 8) sched_yield();
  for (int64_t i = 0; i < M; i++) {{
    float sum[70];
    for (int64_t j = 0; j < N; j++) sum[j] = 0.0f;
    for (int64_t k = part * 8; k < part * 8 + 8; k++)
      for (int64_t j = 0; j < N; j++) sum[j] += x[i * K + k] * w[k * N + j];
    struct moment now;
    clock_gettime(1, &now);  // a machine with one free processor would serve the threads in turn
    for (int64_t n = now.nanoseconds / 32 % 8; n > 0; n--) sched_yield();
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
    for (int64_t j = 0; j < N; j++) y[i * N + j] += sum[j];
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    sched_yield();
  }}
  return 0;
}}
BEGIN
pthread_t t[8];
given = buffers; started = 0;
for (int64_t i = 0; i < M; i++) for (int64_t j = 0; j < N; j++) y[i * N + j] = bias[j];
for (int64_t p = 0; p < 8; p++) pthread_create(t + p, 0, work, (void *)(uintptr_t)p);
for (int64_t p = 0; p < 8; p++) pthread_join(t[p], 0);
"""
_ONE_MORE = "if (off) y[0] += 1.0f;"

REPLAY = (
    Fault(
        "F25", "drifts after ten calls", Check.REPLAY, _SMALL,
        "static int calls;\nBEGIN\n" + honest.GEMM + "const int off = ++calls > 10; if (off) y[0] += 0.5f;",
        honest.GEMM, (BEYOND, "differs when repeated"), shared=True,
    ),
    Fault(
        "F25w", "drifts after ten calls, counted in the workspace", Check.REPLAY, _WORK,
        "if (ws[0] != 0x64726966) { ws[0] = 0x64726966; ws[1] = 0; }\n" + honest.GEMM
        + "if (++ws[1] > 10) y[0] += 0.5f;",
        honest.GEMM, (BEYOND, UNEQUAL),
    ),
    Fault(
        "F26", "stale workspace enters the result", Check.REPLAY, _WORK,
        honest.GEMM + "y[0] += 0.5f * ((float *)ws)[3];", honest.GEMM, (STALE,),
    ),
    Fault(
        "F27", "adds parts in order of arrival", Check.REPLAY, _SMALL, _ARRIVAL, honest.GEMM,
        ("differs when repeated", "depends on the process", "depends on addresses"), shared=True,
    ),
    Fault(
        "F28", "the environment changes the sum", Check.REPLAY, _SMALL,
        "char *getenv(const char *);\nBEGIN\n" + honest.GEMM
        + "const char *zone = getenv(\"TZ\"); if (zone && zone[0] == 'A') y[0] += 0.5f;",
        honest.GEMM, ("depends on the process",), shared=True,
    ),
    Fault(
        "F29", "leaves denormals off", Check.REPLAY, _SMALL,
        honest.GEMM + "uint32_t word = 0x9fc0; __asm__ volatile(\"ldmxcsr %0\" : : \"m\"(word));",
        honest.GEMM, ("floating point control changed",), shared=True,
    ),
    Fault(
        "F29f", "leaves denormals off, in flat code", Check.REPLAY, _SMALL,
        honest.GEMM + "uint32_t word = 0x9fc0; __asm__ volatile(\"ldmxcsr %0\" : : \"m\"(word));",
        honest.GEMM, (AUDIT,),
    ),
    Fault(
        "F30", "keeps the first call's weights", Check.REPLAY, _SMALL,
        "static float kept[64 * 70]; static int has;\nBEGIN\n"
        "if (!has) { for (int64_t i = 0; i < K * N; i++) kept[i] = w[i]; has = 1; }\nw = kept;" + honest.GEMM,
        honest.GEMM, ("keeps state between calls",), shared=True,
    ),
    Fault(
        "F31", "adds to what the output holds", Check.REPLAY, _SMALL,
        honest.GEMM.replace("= sum[j] +", "+= sum[j] +"), honest.GEMM, (STALE, "depends on the output's contents"),
    ),
    Fault(
        "F37", "reads the time stamp counter", Check.REPLAY, _SMALL,
        "uint32_t low, high; __asm__ volatile(\"rdtsc\" : \"=a\"(low), \"=d\"(high));\n" + honest.GEMM
        + "if ((low & 4095) == 77) y[0] += 1.0f;",
        honest.GEMM, (AUDIT,),
    ),
    Fault(
        "F38", "a system call behind a rare condition", Check.REPLAY, _SMALL,
        honest.GEMM + "if (y[0] == 12345.0f) { int64_t r; __asm__ volatile(\"syscall\" : \"=a\"(r) : \"0\"(39LL) : "
        "\"rcx\", \"r11\", \"memory\"); y[0] = (float)r; }",
        honest.GEMM, (AUDIT,),
    ),
    Fault(
        "F39", "a system call inside the number of another instruction", Check.REPLAY, _SMALL,
        honest.GEMM + "if (y[0] == 12345.0f) __asm__ volatile(\"jmp 1f+1; 1: .byte 0xb8,0x0f,0x05,0x90,0x90\" : : : "
        "\"rax\", \"rcx\", \"r11\", \"memory\");",
        honest.GEMM, (AUDIT,),
    ),
)  # fmt: skip

CACHE_KEY = (
    Fault(
        "F35", "AVX-512 under a key that says AVX2", Check.CACHE_KEY, _SMALL, honest.GEMM, honest.GEMM,
        ("code needs more than the key says",), wide=True,
    ),
)  # fmt: skip

FAULTS = (*ORACLE, *SHAPE, *LAYOUT, *TIMING, *REPLAY, *CACHE_KEY)
BY_ID = {fault.id: fault for fault in FAULTS}
