"""Row by row: LayerNorm and RMSNorm with an optional residual, softmax and log-softmax over the last axis.

Imported by: the backend.  Imports: csource, vecmath.

A row stays in L1 while it is read two or three times: mean, then the sum of squared differences (never one pass), then
the result.  Sum order: ``accumulators`` vectors in turn, added pairwise, then lanes by halving; fixed by the point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, unique

from tribunus_native.templates.csource import (
    ENTRY,
    UNROLL,
    Code,
    KernelSource,
    Role,
    Size,
    Slot,
    bind_buffers,
    bind_sizes,
    c_float,
    constant,
    constants,
    ordered,
    vector_header,
)
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class NormPoint:
    """One point of the search space; both numbers are part of the sum order."""

    lanes: int
    accumulators: int
    contraction: Contraction


@unique
class Norm(Enum):
    LAYER = "layer"  # subtract the mean
    RMS = "rms"


@unique
class Residual(Enum):
    NONE = "none"
    ADDED = "added"  # normalise x + residual
    KEPT = "kept"  # and write x + residual to a second output


@dataclass(frozen=True, slots=True, kw_only=True)
class NormParams:
    """Normalisation of ``rows`` rows of ``n`` floats.  Buffers: x, residual; y, total; scale, shift."""

    rows: Size
    n: int
    epsilon: float
    norm: Norm
    point: NormPoint
    residual: Residual = Residual.NONE
    scale: bool = True
    shift: bool = True


def norm(params: NormParams) -> KernelSource:
    """The C text of one normalisation."""
    p, code = params, Code()
    slots = [Slot("x", Role.INPUT)]
    if p.residual is not Residual.NONE:
        slots.append(Slot("residual", Role.INPUT))
    slots.append(Slot("y", Role.OUTPUT))
    if p.residual is Residual.KEPT:
        slots.append(Slot("total", Role.OUTPUT))
    if p.scale:
        slots.append(Slot("scale", Role.WEIGHT))
    if p.shift:
        slots.append(Slot("shift", Role.WEIGHT))
    buffers = ordered(slots)
    vector_header(code, f"{p.norm.value} norm of rows of {p.n}, residual {p.residual.value}", p.point.lanes)
    vecmath(code, frozenset(), p.point.lanes, avx512=False)
    constants(code, {"ROWS": p.rows})
    constant(code, "N", p.n)
    constant(code, "FULL", p.n // p.point.lanes * p.point.lanes, "elements in whole vectors")
    tail = p.n % p.point.lanes
    vectors = p.n // p.point.lanes
    count = max(1, min(p.point.accumulators, vectors))

    walk = _Walk(code, vectors=vectors, accumulators=count, lanes=p.point.lanes, tail=tail)
    source = "x_row"
    with code.block(ENTRY):
        bind_buffers(code, buffers)
        bind_sizes(code, {"ROWS": p.rows})
        with code.block("for (int64_t r = part * ROWS / parts; r < (part + 1) * ROWS / parts; r++)"):
            code.line("const float *const x_row = x + r * N;", "float *const y_row = y + r * N;")
            if p.residual is not Residual.NONE:
                source = "total_row"
                kept = p.residual is Residual.KEPT
                code.line("const float *const residual_row = residual + r * N;")
                code.line(f"float *const total_row = {'total + r * N' if kept else 'y_row'};")
            adds = p.residual is not Residual.NONE
            layer = p.norm is Norm.LAYER
            if layer:
                code.line(f"vec {', '.join(f's{a} = splat(0.0f)' for a in range(count))};")
            if adds:

                def add(at: _Place, a: int) -> str:
                    total = f"{at.get('x_row')} + {at.get('residual_row')}"
                    return f"{{ const vec t = {total}; {at.put('total_row', 't')}{f' s{a} += t;' if layer else ''} }}"

                walk.each(add)
            elif layer:
                walk.each(lambda at, a: f"s{a} += {at.get('x_row')};")
            center = ""
            if p.norm is Norm.LAYER:
                code.line(f"const float mean = sum_lanes({_pairwise('s', count)}) / {c_float(p.n)};")
                center = " - mean"
            fill = "mean" if center else "0.0f"  # lanes past the row then contribute 0 to the squares
            code.line(f"vec {', '.join(f'q{a} = splat(0.0f)' for a in range(count))};")
            walk.each(lambda at, a: f"{{ const vec d = {at.get(source, fill)}{center}; q{a} += d * d; }}")
            mean_square = f"sum_lanes({_pairwise('q', count)}) / {c_float(p.n)}"
            code.line(f"const float factor = 1.0f / __builtin_sqrtf({mean_square} + {c_float(p.epsilon)});")

            def result(at: _Place, _: int) -> str:
                value = f"({at.get(source)}{center}) * factor"
                if p.scale:
                    value += f" * {at.get('scale')}"
                if p.shift:
                    value += f" + {at.get('shift')}"
                return at.put("y_row", value)

            walk.each(result)
    return KernelSource(code.result(), buffers)


@dataclass(frozen=True, slots=True)
class _Place:
    """One vector of a row: element ``j``, ``tail`` lanes of it exist (0: all)."""

    j: str
    tail: int

    def get(self, name: str, fill: str = "0.0f") -> str:
        return f"load_part({name} + {self.j}, {self.tail}, {fill})" if self.tail else f"load({name} + {self.j})"

    def put(self, name: str, value: str) -> str:
        if self.tail:
            return f"store_part({name} + {self.j}, {value}, {self.tail});"
        return f"store({name} + {self.j}, {value});"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    vectors: int
    accumulators: int
    lanes: int
    tail: int


class _Walk:
    """Writes one statement for every vector of a row, with the accumulators in turn."""

    def __init__(self, code: Code, *, vectors: int, accumulators: int, lanes: int, tail: int) -> None:
        self.code = code
        self.layout = _Layout(vectors=vectors, accumulators=accumulators, lanes=lanes, tail=tail)

    def each(self, body: Callable[[_Place, int], str]) -> None:
        code, at = self.code, self.layout
        grouped = at.vectors // at.accumulators * at.accumulators
        if grouped:
            with code.block(f"for (int64_t j = 0; j < {grouped * at.lanes}; j += {at.accumulators} * LANES)"):
                for a in range(at.accumulators):
                    code.line(body(_Place("j" + (f" + {a} * LANES" if a else ""), 0), a))
        for a in range(at.vectors - grouped):
            code.line(body(_Place(str((grouped + a) * at.lanes), 0), a))
        if at.tail:
            code.line(body(_Place("FULL", at.tail), at.accumulators - 1))


def _pairwise(name: str, count: int) -> str:
    terms = [f"{name}{a}" for a in range(count)]
    while len(terms) > 1:
        pairs = [f"({terms[i]} + {terms[i + 1]})" for i in range(0, len(terms) - 1, 2)]
        terms = pairs + (terms[-1:] if len(terms) % 2 else [])
    return terms[0]


@unique
class SoftmaxKind(Enum):
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log-softmax"


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxPoint:
    """One point of the search space; only lanes is part of the sum order."""

    lanes: int
    rows: int  # rows worked on together: hides the latency of the horizontal steps
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxParams:
    """Softmax of ``rows`` rows of ``n`` floats, dense.  Buffers: x; y."""

    rows: Size
    n: Size
    kind: SoftmaxKind
    point: SoftmaxPoint
    avx512: bool


SUMMED = 16
"""Vectors of a row that are summed before their sum joins the total.

The largest exponential is 1, most others are far below an ulp of it: added one by one to a total that holds the 1 they
vanish, all in the same direction.
"""


def softmax(params: SoftmaxParams) -> KernelSource:
    """The C text of one softmax over the last axis.  A row of -Inf only gives NaN, as the formula does."""
    p, code = params, Code()
    buffers = (Slot("x", Role.INPUT), Slot("y", Role.OUTPUT))
    vector_header(code, f"{p.kind.value} over the last axis", p.point.lanes)
    functions = frozenset({"vec_exp"} | ({"vec_log"} if p.kind is SoftmaxKind.LOG_SOFTMAX else set()))
    vecmath(code, functions, p.point.lanes, avx512=p.avx512)
    constants(code, {"ROWS": p.rows, "N": p.n})
    constant(code, "BLOCK", SUMMED * p.point.lanes, "elements that are summed before the row's total is added to")
    code.line("")
    for rows in sorted({p.point.rows, 1}, reverse=True):
        softmax_rows(code, rows, p.kind)
    with code.block(ENTRY):
        bind_buffers(code, buffers)
        bind_sizes(code, {"ROWS": p.rows, "N": p.n})
        code.line("int64_t r = part * ROWS / parts;")
        code.line("const int64_t last = (part + 1) * ROWS / parts;")
        for rows in sorted({p.point.rows, 1}, reverse=True):
            code.line(f"for (; r + {rows} <= last; r += {rows}) softmax_{rows}(x + r * N, y + r * N, N);")
    return KernelSource(code.result(), buffers)


def softmax_rows(code: Code, rows: int, kind: SoftmaxKind) -> None:
    """Function softmax_ROWS(x, y, n): so many dense rows in step."""
    each = f"{UNROLL} for (int i = 0; i < {rows}; i++)"
    log = kind is SoftmaxKind.LOG_SOFTMAX
    with code.block(f"static void softmax_{rows}(const float *x, float *y, int64_t n)"):
        code.line("const float low = -__builtin_inff();")
        code.line("const int64_t full = n / LANES * LANES, rest = n - full;")
        code.line(f"vec most[{rows}], total[{rows}];", f"float top[{rows}], factor[{rows}];")
        with code.block(each):
            code.line(
                "most[i] = rest ? load_part(x + i * n + full, rest, low) : splat(low);", "total[i] = splat(0.0f);"
            )
        with code.block("for (int64_t j = 0; j < full; j += LANES)"), code.block(each):
            code.line("const vec t = load(x + i * n + j);", "most[i] = most[i] < t ? t : most[i];")
        code.line(f"{each} top[i] = max_lanes(most[i]);")
        with code.block("for (int64_t block = 0; block < full; block += BLOCK)"):
            code.line("const int64_t end = block + BLOCK < full ? block + BLOCK : full;")
            code.line(f"vec sum[{rows}];", f"{each} sum[i] = splat(0.0f);")
            with code.block("for (int64_t j = block; j < end; j += LANES)"), code.block(each):
                code.line("const vec t = vec_exp(load(x + i * n + j) - top[i]);", "sum[i] += t;")
                if not log:
                    code.line("store(y + i * n + j, t);")
            code.line(f"{each} total[i] += sum[i];")
        with code.block("if (rest)"), code.block(each):
            code.line("const vec t = vec_exp(load_part(x + i * n + full, rest, low) - top[i]);")
            code.line("// lanes past the row stay out of the sum even where top is -Inf and they are NaN")
            code.line(f"{UNROLL} for (int lane = 0; lane < LANES; lane++) if (lane < rest) total[i][lane] += t[lane];")
            if not log:
                code.line("store_part(y + i * n + full, t, rest);")
        code.line(
            f"{each} factor[i] = {'vec_log(splat(sum_lanes(total[i])))[0]' if log else '1.0f / sum_lanes(total[i])'};"
        )
        value = "(load(x + i * n + j) - top[i]) - factor[i]" if log else "load(y + i * n + j) * factor[i]"
        with code.block("for (int64_t j = 0; j < full; j += LANES)"), code.block(each):
            code.line(f"store(y + i * n + j, {value});")
        read = "load_part(x + i * n + full, rest, 0.0f) - top[i] - factor[i]"
        if not log:
            read = "load_part(y + i * n + full, rest, 0.0f) * factor[i]"
        code.line(f"if (rest) {each} store_part(y + i * n + full, {read}, rest);")
    code.line("")


def norm_rule(n: int, cpu: Cpu) -> NormPoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    while lanes > 4 and n < 2 * lanes:
        lanes //= 2
    return NormPoint(lanes=lanes, accumulators=4, contraction=Contraction.FUSED)


def norm_points(n: int, cpu: Cpu) -> tuple[NormPoint, ...]:
    """The search space, the rule's point first."""
    first = norm_rule(n, cpu)
    others = [NormPoint(lanes=first.lanes, accumulators=a, contraction=c) for c in Contraction for a in (4, 2, 8)]
    return tuple(dict.fromkeys((first, *others)))


def softmax_rule(n: Size, cpu: Cpu) -> SoftmaxPoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    while isinstance(n, int) and lanes > 4 and n < lanes:
        lanes //= 2
    return SoftmaxPoint(lanes=lanes, rows=4, contraction=Contraction.FUSED)


def softmax_points(n: Size, cpu: Cpu) -> tuple[SoftmaxPoint, ...]:
    """The search space, the rule's point first."""
    first = softmax_rule(n, cpu)
    others = [SoftmaxPoint(lanes=first.lanes, rows=rows, contraction=c) for c in Contraction for rows in (4, 2, 1)]
    return tuple(dict.fromkeys((first, *others)))
