"""Attention: y = softmax(scale * q k^T + mask) v, head by head, no score tensor, nothing transposed in memory.

Imported by: the backend.  Imports: csource, gemm (most_rows), vecmath.

q, k, v are read in place (row and head strides; all three may lie in one fused projection).  Per head: K^T is packed
into key panels through a register transpose; then for MR queries at a time the scores go to scratch, the softmax of
the MR rows runs in step and unnormalised, and P*V accumulates in registers with 1/sum applied at the store.
Sum orders: a score is one chain over the head size, an output one chain over the keys, both upward.
Buffers: q, k, v, mask; y; scratch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

from tribunus_native.templates.csource import (
    ENTRY,
    FLOAT_BYTES,
    UNROLL,
    Code,
    KernelSource,
    Param,
    Role,
    Size,
    Slot,
    Workspace,
    bind_buffers,
    bind_sizes,
    c_float,
    ceil_div,
    constant,
    constants,
    even_tiles,
    ordered,
    vector_header,
)
from tribunus_native.templates.tiles import write_transpose
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@unique
class Mask(Enum):
    """Additive mask: 0 or -Inf (or any bias) added to the scaled scores."""

    NONE = "none"
    KEY = "key"  # [batch][keys]
    QUERY_KEY = "query-key"  # [queries][keys], the same for every head and batch entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """Where q, k, v or y lies, in floats: ``[b * rows * stride + row * stride + h * head + offset]``.

    rows: queries or keys of one batch entry.
    """

    stride: int
    head: int
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPoint:
    """One point of the search space."""

    lanes: int
    mr: int  # queries of a tile
    nv: int  # key vectors of a score tile
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionParams:
    """One attention over ``batch`` entries and ``heads`` heads of ``head_size`` floats."""

    batch: Size
    heads: int
    head_size: int
    queries: Size
    keys: Size
    scale: float
    q: Operand
    k: Operand
    v: Operand
    y: Operand
    mask: Mask
    point: AttentionPoint
    avx512: bool


def attention(params: AttentionParams) -> KernelSource:
    """The C text of one attention."""
    return _Attention(params).source()


class _Attention:
    def __init__(self, params: AttentionParams) -> None:
        self.p = params
        self.code = Code()
        point = params.point
        self.width = point.nv * point.lanes
        if isinstance(params.queries, int):
            self.heights = [size for size, _ in even_tiles(params.queries, point.mr)]
        else:
            self.heights = [point.mr]
            while self.heights[-1] > 1:
                self.heights.append(self.heights[-1] // 2)
        if isinstance(params.keys, int):
            vectors = ceil_div(params.keys, point.lanes)
            rest = vectors % point.nv
            self.panels = ([point.nv] if vectors >= point.nv else []) + ([rest] if rest else [])
        else:
            self.panels = list(range(point.nv, 0, -1))
        # P*V keeps mr x value_vectors accumulators; wider heads are done in several passes over the keys
        head_vectors = ceil_div(params.head_size, point.lanes)
        self.value_vectors = min(head_vectors, point.nv)
        slots = [Slot("q", Role.INPUT), Slot("k", Role.INPUT), Slot("v", Role.INPUT)]
        if params.mask is not Mask.NONE:
            slots.append(Slot("mask", Role.INPUT))
        slots += [Slot("y", Role.OUTPUT), Slot("scratch", Role.WORKSPACE)]
        self.buffers = ordered(slots)

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        title = f"attention, {p.heads} heads of {p.head_size}, mask {p.mask.value}"
        vector_header(code, title, p.point.lanes)
        vecmath(code, frozenset({"vec_exp"}), p.point.lanes, avx512=p.avx512)
        constants(code, {"BATCH": p.batch, "QUERIES": p.queries, "KEYS": p.keys})
        constant(code, "HEADS", p.heads)
        constant(code, "HEAD_SIZE", p.head_size)
        for name, operand in (("Q", p.q), ("K", p.k), ("V", p.v), ("Y", p.y)):
            constant(code, f"{name}_STRIDE", operand.stride, "floats from row to row")
        code.line(f"constexpr float SCALE = {c_float(p.scale)};", "")
        write_transpose(code, p.point.lanes)
        self.pack_keys()
        for height in self.heights:
            for vectors in self.panels:
                self.scores(height, vectors)
            self.softmax(height)
            first = 0
            head_vectors = ceil_div(p.head_size, p.point.lanes)
            passes: list[str] = []
            while first < head_vectors:
                count = min(self.value_vectors, head_vectors - first)
                passes.append(self.values(height, first, count))
                first += count
            self.block(height, passes)
        self.kernel()
        return KernelSource(code.result(), self.buffers, self.workspace())

    def workspace(self) -> Workspace:
        """K^T panels and MR score rows of one part."""
        p = self.p
        spare = self.width + 2 * p.point.lanes
        per_key = p.head_size + p.point.mr
        if isinstance(p.keys, Param):
            return Workspace(spare * per_key * FLOAT_BYTES, ((p.keys.index, per_key * FLOAT_BYTES),))
        return Workspace((p.keys + spare) * per_key * FLOAT_BYTES)

    def pack_keys(self) -> None:
        code, size = self.code, self.p.head_size
        whole = size // self.p.point.lanes * self.p.point.lanes
        code.line("// keys [first, first + count) as [HEAD_SIZE][width], absent keys as 0")
        head = "static void pack_keys(const float *keys, int64_t count, int64_t width, float *restrict to)"
        with code.block(head):
            code.line("const int64_t blocks = count / LANES * LANES;")
            if whole:
                with code.block("for (int64_t j = 0; j < blocks; j += LANES)"):
                    code.line(f"for (int64_t p = 0; p < {whole}; p += LANES)")
                    code.line("  transpose(keys + j * K_STRIDE + p, K_STRIDE, to + p * width + j, width);")
            if whole < size:
                code.line("for (int64_t j = 0; j < blocks; j++)")
                code.line(
                    f"  for (int64_t p = {whole}; p < HEAD_SIZE; p++) to[p * width + j] = keys[j * K_STRIDE + p];"
                )
            code.line("for (int64_t j = blocks; j < count; j++)")
            code.line("  for (int64_t p = 0; p < HEAD_SIZE; p++) to[p * width + j] = keys[j * K_STRIDE + p];")
            code.line("for (int64_t p = 0; p < HEAD_SIZE; p++)")
            code.line("  for (int64_t j = count; j < width; j++) to[p * width + j] = 0.0f;")
        code.line("")

    def scores(self, height: int, vectors: int) -> None:
        code, lanes = self.code, self.p.point.lanes
        width = vectors * lanes
        signature = "const float *restrict q, const float *restrict kt, float *restrict e, int64_t e_stride"
        with code.block(f"static inline void scores_{height}_{vectors}({signature})"):
            each = f"{UNROLL} for (int i = 0; i < {height}; i++)"
            each_vector = f"{UNROLL} for (int j = 0; j < {vectors}; j++)"
            code.line(f"vec acc[{height}][{vectors}];")
            code.line(f"{each} {each_vector} acc[i][j] = splat(0.0f);")
            with code.block(f"for (int64_t p = 0; p < HEAD_SIZE; p++, kt += {width})"):
                code.line(f"vec b[{vectors}];", f"{each_vector} b[j] = load(kt + j * LANES);")
                with code.block(each):
                    code.line("const vec a = splat(q[i * Q_STRIDE + p]);", f"{each_vector} acc[i][j] += a * b[j];")
            code.line(f"{each} {each_vector} store(e + i * e_stride + j * LANES, acc[i][j] * SCALE);")
        code.line("")

    def softmax(self, height: int) -> None:
        """exp(score - max) in place, 1/sum per row; ``count`` is a multiple of LANES."""
        code, each = self.code, f"{UNROLL} for (int i = 0; i < {height}; i++)"
        signature = "float *restrict e, int64_t e_stride, int64_t count, float *restrict inverse"
        with code.block(f"static inline void softmax_{height}({signature})"):
            code.line(f"vec most[{height}], total[{height}];", f"float top[{height}];")
            code.line(f"{each} {{ most[i] = load(e + i * e_stride); total[i] = splat(0.0f); }}")
            with code.block("for (int64_t j = LANES; j < count; j += LANES)"), code.block(each):
                code.line("const vec t = load(e + i * e_stride + j);", "most[i] = most[i] < t ? t : most[i];")
            code.line(f"{each} top[i] = max_lanes(most[i]);")
            with code.block("for (int64_t j = 0; j < count; j += LANES)"), code.block(each):
                code.line("const vec t = vec_exp(load(e + i * e_stride + j) - top[i]);")
                code.line("store(e + i * e_stride + j, t);", "total[i] += t;")
            code.line(f"{each} inverse[i] = 1.0f / sum_lanes(total[i]);")
        code.line("")

    def values(self, height: int, first: int, count: int) -> str:
        """P*V for value vectors [first, first + count); returns the function's name."""
        p, code = self.p, self.code
        lanes = p.point.lanes
        tail = p.head_size - (first + count - 1) * lanes
        tail = tail if tail < lanes else 0
        full = count - 1 if tail else count
        name = f"values_{height}_{first}"
        signature = (
            "const float *restrict e, int64_t e_stride, const float *restrict v, int64_t keys, "
            "const float *restrict inverse, float *restrict y"
        )
        with code.block(f"static inline void {name}({signature})"):
            each = f"{UNROLL} for (int i = 0; i < {height}; i++)"
            each_vector = f"{UNROLL} for (int j = 0; j < {count}; j++)"
            code.line(f"vec acc[{height}][{count}];", f"{each} {each_vector} acc[i][j] = splat(0.0f);")
            with code.block("for (int64_t p = 0; p < keys; p++, v += V_STRIDE)"):
                code.line(f"vec b[{count}];")
                if full:
                    code.line(f"{UNROLL} for (int j = 0; j < {full}; j++) b[j] = load(v + j * LANES);")
                if tail:
                    code.line(f"b[{full}] = load_part(v + {full * lanes}, {tail}, 0.0f);")
                with code.block(each):
                    code.line("const vec a = splat(e[i * e_stride + p]);", f"{each_vector} acc[i][j] += a * b[j];")
            with code.block(each):
                if full:
                    loop = f"{UNROLL} for (int j = 0; j < {full}; j++)"
                    code.line(f"{loop} store(y + i * Y_STRIDE + j * LANES, acc[i][j] * inverse[i]);")
                if tail:
                    place = f"y + i * Y_STRIDE + {full * lanes}"
                    code.line(f"store_part({place}, acc[i][{full}] * inverse[i], {tail});")
        code.line("")
        return name

    def block(self, height: int, passes: list[str]) -> None:
        """Some queries of one head: scores, softmax, values."""
        p, code = self.p, self.code
        mask = ", const float *mask_row" if p.mask is not Mask.NONE else ""
        signature = (
            "const float *q, const float *kt, const float *v, float *y, float *e, int64_t e_stride, int64_t keys" + mask
        )
        with code.block(f"static void block_{height}({signature})"):
            code.line("const int64_t count = (keys + LANES - 1) / LANES * LANES;")
            code.line("int64_t j = 0;")
            for vectors in self.panels:
                width = vectors * p.point.lanes
                head = f"for (; j + {width} <= count; j += {width})"
                code.line(head, f"  scores_{height}_{vectors}(q, kt + j * HEAD_SIZE, e + j, e_stride);")
            with code.block(f"for (int i = 0; i < {height}; i++)"):
                if p.mask is not Mask.NONE:
                    row = "mask_row" if p.mask is Mask.KEY else "mask_row + i * keys"
                    code.line(f"const float *m = {row};", "int64_t c = 0;")
                    code.line("for (; c + LANES <= keys; c += LANES)")
                    code.line("  store(e + i * e_stride + c, load(e + i * e_stride + c) + load(m + c));")
                    code.line("for (; c < keys; c++) e[i * e_stride + c] += m[c];")
                code.line("for (int64_t c = keys; c < count; c++) e[i * e_stride + c] = -__builtin_inff();")
            code.line(f"float inverse[{height}];", f"softmax_{height}(e, e_stride, count, inverse);")
            lanes = p.point.lanes
            for index, name in enumerate(passes):
                shift = f" + {index * self.value_vectors * lanes}" if index else ""
                code.line(f"{name}(e, e_stride, v{shift}, keys, inverse, y{shift});")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        lanes = p.point.lanes
        per_key = p.head_size + p.point.mr
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"BATCH": p.batch, "QUERIES": p.queries, "KEYS": p.keys})
            code.line(f"const int64_t padded = (KEYS + {self.width - 1}) / {self.width} * {self.width};")
            code.line("// one more vector where rows would lie a power of two apart")
            code.line("const int64_t e_stride = padded % 256 ? padded : padded + LANES;")
            spare = self.width + 2 * lanes
            code.line(f"float *const kt = scratch + part * ((KEYS + {spare}) * {per_key});")
            code.line("float *const e = kt + padded * HEAD_SIZE;")
            code.line("const int64_t all = BATCH * HEADS;")
            with code.block("for (int64_t u = part * all / parts; u < (part + 1) * all / parts; u++)"):
                code.line("const int64_t b = u / HEADS, h = u % HEADS;")
                for name, rows, operand in (("q", "QUERIES", p.q), ("k", "KEYS", p.k), ("v", "KEYS", p.v)):
                    place = f"{name} + b * {rows} * {name.upper()}_STRIDE + h * {operand.head} + {operand.offset}"
                    code.line(f"const float *const {name}_head = {place};")
                code.line(f"float *const y_head = y + b * QUERIES * Y_STRIDE + h * {p.y.head} + {p.y.offset};")
                code.line("const int64_t count = (KEYS + LANES - 1) / LANES * LANES;")
                code.line("int64_t j = 0;")
                for vectors in self.panels:
                    width = vectors * lanes
                    with code.block(f"for (; j + {width} <= count; j += {width})"):
                        code.line(f"const int64_t there = KEYS - j < {width} ? KEYS - j : {width};")
                        code.line(f"pack_keys(k_head + j * K_STRIDE, there, {width}, kt + j * HEAD_SIZE);")
                code.line("int64_t i = 0;")
                mask = {Mask.NONE: "", Mask.KEY: ", mask + b * KEYS", Mask.QUERY_KEY: ", mask + i * KEYS"}[p.mask]
                arguments = f"q_head + i * Q_STRIDE, kt, v_head, y_head + i * Y_STRIDE, e, e_stride, KEYS{mask}"
                if isinstance(p.queries, int):
                    end = 0
                    for size, many in even_tiles(p.queries, p.point.mr):
                        end += size * many
                        code.line(f"for (; i < {end}; i += {size}) block_{size}({arguments});")
                else:
                    for size in self.heights:
                        code.line(f"for (; i + {size} <= QUERIES; i += {size}) block_{size}({arguments});")


def attention_rule(queries: Size, keys: Size, head_size: int, cpu: Cpu) -> AttentionPoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    if cpu.vector_registers == 16:
        mr, nv = 6, 2
    else:
        short = isinstance(keys, int) and keys < 64
        mr, nv = (8, 2) if short else (6, 4)
    vectors = ceil_div(keys, lanes) if isinstance(keys, int) else nv
    nv = min(nv, vectors)
    if isinstance(queries, int):
        mr = ceil_div(queries, ceil_div(queries, mr))
    return AttentionPoint(lanes=lanes, mr=mr, nv=nv, contraction=Contraction.FUSED)


def attention_points(queries: Size, keys: Size, head_size: int, cpu: Cpu) -> tuple[AttentionPoint, ...]:
    """The search space, the rule's point first."""
    first = attention_rule(queries, keys, head_size, cpu)
    shapes = ((6, 2), (3, 2), (8, 1)) if cpu.vector_registers == 16 else ((6, 4), (4, 4), (8, 3), (8, 2))
    points = [first]
    for contraction in Contraction:
        for mr, nv in shapes:
            height = ceil_div(queries, ceil_div(queries, mr)) if isinstance(queries, int) else mr
            points.append(AttentionPoint(lanes=first.lanes, mr=height, nv=nv, contraction=contraction))
    return tuple(dict.fromkeys(points))
