"""Integer products of two operands that are both computed: 8-bit x, 8-bit w, exact int32 sums, bytes or float out.

Imported by: the backend.  Imports: csource, integer_dot, panels, vecmath.

For each item of the batch w is packed into column panels [panel][k/dot][width][dot] in scratch, once for all its rows;
then LINE rows of x at a time are gathered, and multiplied by every panel.
QUADS multiply u8 by s8: an operand of the other kind is shifted by 128, as is its zero point; then
  sum_k (x - x_zero) * (w - w_zero) = sum_k x * w + column_start + row_start
  column_start = k * x_zero * w_zero - x_zero * sum_k w        row_start = -w_zero * sum_k x
PAIRS and SINGLES pack 16-bit numbers, zero points subtracted.  All points give the same bits.
The sums stay below 2^31, starts included, for k up to MOST_DEPTH.
Buffers: x, w; y; numbers (x_zero, w_zero, y_zero, the bits of the float scale); scratch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus_native.templates.csource import (
    ENTRY,
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
    constant,
    constants,
    ordered,
    vector_header,
)
from tribunus_native.templates.integer_dot import (
    Byte,
    Dot,
    QuantizedPoint,
    tile_heights,
    write_byte_store,
    write_dot,
    write_requantisation,
    write_tile,
)
from tribunus_native.templates.panels import Panels, kind_name
from tribunus_native.templates.vecmath import vecmath


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAxis:
    """One axis of the batch.  x, w: whether the operand has it; one that has not is the same for all its items."""

    extent: Size
    x: bool
    w: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedBatchParams:
    """batch x rows x k times batch x k x n, all dense.

    transposed: w lies as n x k.  y_byte: None for float results.  scratch: bytes of one part, ``scratch_bytes``.
    """

    batch: tuple[BatchAxis, ...]
    rows: Size
    n: Size
    k: Size
    x_byte: Byte
    w_byte: Byte
    transposed: bool
    y_byte: Byte | None
    scratch: Size
    point: QuantizedPoint
    avx512: bool

    @property
    def panels(self) -> Panels | None:
        """Panels of a number of columns known before the call."""
        return Panels(self.n, self.point.lanes, self.point.nv) if isinstance(self.n, int) else None


def quantized_batch(params: QuantizedBatchParams) -> KernelSource:
    """The C text of one batch of integer products."""
    return _QuantizedBatch(params).source()


class _QuantizedBatch:
    def __init__(self, params: QuantizedBatchParams) -> None:
        self.p = params
        self.code = Code()
        self.dot = params.point.dot
        self.quads = self.dot is Dot.QUADS
        self.x_type, self.w_type = self.dot.x_type, self.dot.w_type
        self.x_shift = " + 128" if self.quads and params.x_byte is Byte.S8 else ""
        self.w_shift = " - 128" if self.quads and params.w_byte is Byte.U8 else ""
        self.y_type = "float" if params.y_byte is None else params.y_byte.value
        # what a function is told at the call: K, DEPTH, N are names of constants or of its last parameters
        loose = [] if isinstance(params.k, int) else ["K", "DEPTH"]
        loose += [] if isinstance(params.n, int) else ["N"]
        self.loose = "".join(f", int64_t {name}" for name in loose)
        self.pass_loose = "".join(f", {name}" for name in loose)
        self.buffers = ordered(
            [
                Slot("x", Role.INPUT, params.x_byte.value),
                Slot("w", Role.INPUT, params.w_byte.value),
                Slot("y", Role.OUTPUT, self.y_type),
                Slot("numbers", Role.WEIGHT, "int32_t"),
                Slot("scratch", Role.WORKSPACE, "unsigned char"),
            ]
        )
        mr = params.point.mr
        self.heights = tile_heights(mr if isinstance(params.rows, Param) else min(mr, max(1, params.rows)))

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        what = "transposed w" if p.transposed else "w"
        vector_header(code, f"batch of 8-bit products, {what} packed at the call, {self.y_type} out", p.point.lanes)
        vecmath(code, frozenset(), p.point.lanes, avx512=p.avx512)
        write_dot(code, self.dot, p.point.lanes)
        constants(code, self.sizes())
        if isinstance(p.k, int):
            constant(code, "DEPTH", self.dot.depth(p.k), "K in whole dot products")
        constant(code, "LINE", self.heights[0], "rows gathered at a time")
        constant(code, "DOT", self.dot.value)
        self.write_panels()
        code.line("")
        self.pack()
        for vectors, tail in self.kinds():
            for rows in self.heights:
                self.tile(rows, vectors, tail)
            self.walk(vectors, tail)
        self.gather()
        self.kernel()
        scratch = Workspace(p.scratch) if isinstance(p.scratch, int) else Workspace(0, ((p.scratch.index, 1),))
        return KernelSource(code.result(), self.buffers, scratch)

    def sizes(self) -> dict[str, Size]:
        p = self.p
        batch = {f"BATCH_{i}": axis.extent for i, axis in enumerate(p.batch)}
        return {**batch, "ROWS": p.rows, "N": p.n, "K": p.k, "SCRATCH": p.scratch}

    def write_panels(self) -> None:
        code, panels = self.code, self.p.panels
        if panels is not None:
            panels.write_constants(code)
            return
        constant(code, "WIDTH", self.p.point.nv * self.p.point.lanes, "columns of every panel")
        code.line("INLINE int64_t first_column(int64_t panel) { return panel * WIDTH; }")

    def kinds(self) -> tuple[tuple[int, int | None], ...]:
        """(vectors, tail of the last vector) of the panels; a tail of None is a ``count`` known at the call."""
        panels = self.p.panels
        return ((self.p.point.nv, 0), (self.p.point.nv, None)) if panels is None else panels.kinds

    def pack(self) -> None:
        """One w into panels; absent rows and columns are zeros."""
        p, code = self.p, self.code
        starts = ", int32_t *restrict column_start, int32_t x_zero" if self.quads else ""
        head = f"const {p.w_byte.value} *restrict w, {self.w_type} *restrict to, int64_t panels, int32_t w_zero"
        if p.transposed:
            self.group()
        else:
            self.vector()
        with (
            code.block(f"static void pack({head}{starts}{self.loose})"),
            code.block("for (int64_t panel = 0; panel < panels; panel++)"),
        ):
            code.line("const int64_t first = first_column(panel), width = first_column(panel + 1) - first;")
            code.line(f"{self.w_type} *const place = to + first * DEPTH;")
            if p.transposed:
                with code.block("for (int64_t c = 0; c < width; c++)"):
                    code.line("const int64_t depth = first + c < N ? K : 0;", "int64_t k = 0;")
                    each = "group(place + k * width + c * DOT, w + (first + c) * K + k, {}, w_zero);"
                    code.line(f"for (; k + DOT <= depth; k += DOT) {each.format('DOT')}")
                    code.line(f"for (; k < depth; k += DOT) {each.format('depth - k')}")
                    code.line(f"for (; k < DEPTH; k += DOT) {each.format('0')}")
            else:
                head = "for (int64_t k = 0; k < DEPTH; k += DOT) for (int64_t v = 0; v < width; v += LANES)"
                code.line(head)
                code.line("  vector(place + k * width + v * DOT, w + k * N + first + v, K - k, N - first - v, w_zero")
                code.line(f"      {'' if isinstance(p.n, int) else ', N'});")
            if self.quads:
                with code.block("for (int64_t v = 0; v < width; v += LANES)"):
                    code.line("ivec sum = (ivec)(0);")
                    code.line("for (int64_t k = 0; k < DEPTH; k += DOT)")
                    code.line("  sum = dot(sum, (ivec)(0x01010101), columns(place + k * width + v * DOT));")
                    code.line("const ivec start = (int32_t)K * x_zero * w_zero - x_zero * sum;")
                    code.line("*(ivec_memory *)(column_start + first + v) = start;")
        code.line("")

    def group(self) -> None:
        """group(to, from, count, w_zero): ``count`` neighbours along k of one column as a whole dot product."""
        code, byte = self.code, self.p.w_byte
        head = f"INLINE void group({self.w_type} *to, const {byte.value} *from, int64_t count, int32_t w_zero)"
        with code.block(head):
            value = f"({self.w_type})(from[d] ^ 0x80)" if self.quads and byte is Byte.U8 else "from[d]"
            value = value if self.quads else "(int16_t)(from[d] - w_zero)"
            code.line(f"{UNROLL} for (int64_t d = 0; d < DOT; d++) to[d] = d < count ? {value} : 0;")

    def vector(self) -> None:
        """vector(to, from, depth, count, w_zero): DOT rows of LANES columns, of which depth x count exist."""
        p, code, lanes = self.p, self.code, self.p.point.lanes
        loose = "" if isinstance(p.n, int) else ", int64_t N"
        code.line(f"typedef {p.w_byte.lane_type} row_memory __attribute__((ext_vector_type({lanes}), aligned(1)));")
        with code.block(f"INLINE ivec row(const {p.w_byte.value} *from, int64_t count, int32_t absent)"):
            code.line("if (count >= LANES) return __builtin_convertvector(*(const row_memory *)from, ivec);")
            code.line("ivec found = (ivec)(absent);")
            code.line(f"{UNROLL} for (int lane = 0; lane < LANES; lane++) if (lane < count) found[lane] = from[lane];")
            code.line("return found;")
        head = f"{self.w_type} *to, const {p.w_byte.value} *from, int64_t depth, int64_t count, int32_t w_zero{loose}"
        absent = ("128" if p.w_byte is Byte.U8 else "0") if self.quads else "w_zero"
        with code.block(f"INLINE void vector({head})"):
            code.line(f"const ivec absent = (ivec)({absent});")
            for d in range(self.dot.value):
                code.line(f"const ivec row_{d} = {d} < depth ? row(from + {d} * N, count, {absent}) : absent;")
            if self.dot is Dot.SINGLES:
                code.line("*(short_memory *)to = __builtin_convertvector(row_0 - w_zero, short_memory);")
            elif self.dot is Dot.PAIRS:
                code.line("*(ivec_memory *)to = ((row_0 - w_zero) & 0xffff) | ((row_1 - w_zero) << 16);")
            else:
                flip = " ^ (int32_t)0x80808080" if p.w_byte is Byte.U8 else ""
                three = " | ".join(f"((row_{d} & 255) << {8 * d})" for d in range(3))
                code.line(f"*(step_memory *)to = ({three} | (row_3 << 24)){flip};")

    def parameters(self, tail: int | None) -> str:
        starts = ", const int32_t *restrict column_start, const int32_t *restrict row_start" if self.quads else ""
        zero = "" if self.p.y_byte is None else ", int32_t y_zero"
        return (
            f"const {self.x_type} *restrict x, const {self.w_type} *restrict w{starts}, {self.y_type} *restrict y, "
            f"float scale{zero}{', int64_t count' if tail is None else ''}{self.loose}"
        )

    def arguments(self, tail: int | None) -> str:
        zero = "" if self.p.y_byte is None else ", y_zero"
        return f"scale{zero}{', count' if tail is None else ''}{self.pass_loose}"

    def name(self, function: str, vectors: int, tail: int | None) -> str:
        return f"{function}_{vectors}_part" if tail is None else kind_name(function, vectors, tail)

    def tile(self, rows: int, vectors: int, tail: int | None) -> None:
        head = f"static inline void {self.name(f'tile_{rows}', vectors, tail)}({self.parameters(tail)})"
        start = "*(const ivec_memory *)(column_start + j * LANES) + row_start[i]" if self.quads else "(ivec)(0)"
        panel_step = f"{vectors} * LANES * DOT"
        with write_tile(self.code, head, rows, vectors, start=start, step="DOT", panel_step=panel_step):
            self.store(vectors, tail)

    def store(self, vectors: int, tail: int | None) -> None:
        p, code = self.p, self.code
        place = "y + i * N + j * LANES"
        scaled = "__builtin_convertvector(acc[i][j], vec) * scale"
        if p.y_byte is None:
            code.line(f"const vec z = {scaled};")
        else:
            write_requantisation(code, scaled, p.y_byte, around_zero=True)
        count = "count - j * LANES" if tail is None else f"(j == {vectors - 1} ? {tail} : LANES)"
        if tail == 0:
            self.store_whole(place)
            return
        with code.block(f"if ({count} >= LANES)"):
            self.store_whole(place)
        with code.block("else"):
            lanes = f"{UNROLL} for (int lane = 0; lane < LANES; lane++) if (lane < {count})"
            code.line(f"{lanes} ({place})[lane] = ({self.y_type})z[lane];")

    def store_whole(self, place: str) -> None:
        if self.p.y_byte is None:
            self.code.line(f"store({place}, z);")
        else:
            write_byte_store(self.code, place, self.p.y_byte, self.p.point.lanes)

    def walk(self, vectors: int, tail: int | None) -> None:
        """All rows of a line times one panel."""
        code = self.code
        with code.block(f"static void {self.name('panel', vectors, tail)}({self.parameters(tail)}, int64_t rows)"):
            code.line("int64_t i = 0;")
            starts = "column_start, row_start + i, " if self.quads else ""
            for rows in self.heights:
                name = self.name(f"tile_{rows}", vectors, tail)
                code.line(f"for (; i + {rows} <= rows; i += {rows})")
                code.line(f"  {name}(x + i * DEPTH, w, {starts}y + i * N, {self.arguments(tail)});")
        code.line("")

    def gather(self) -> None:
        """Rows of x as the dot product reads them, DEPTH apart; the first addend of each row."""
        p, code = self.p, self.code
        value = f"x[i * K + k]{self.x_shift if self.quads else ' - x_zero'}"
        starts = ", int32_t *restrict row_start, int32_t w_zero" if self.quads else ", int32_t x_zero"
        head = f"const {p.x_byte.value} *restrict x, {self.x_type} *restrict to, int64_t rows{starts}{self.loose}"
        with code.block(f"static void gather({head})"), code.block("for (int64_t i = 0; i < rows; i++)"):
            code.line(f"for (int64_t k = 0; k < K; k++) to[i * DEPTH + k] = ({self.x_type})({value});")
            code.line("for (int64_t k = K; k < DEPTH; k++) to[i * DEPTH + k] = 0;")
            if self.quads:
                code.line("int32_t sum = 0;")
                code.line("for (int64_t k = 0; k < K; k++) sum += to[i * DEPTH + k];")
                code.line("row_start[i] = -w_zero * sum;")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, self.sizes())
            if not isinstance(p.k, int):
                code.line("const int64_t DEPTH = (K + DOT - 1) / DOT * DOT;")
            if p.panels is None:
                code.line("const int64_t PANELS = (N + WIDTH - 1) / WIDTH;")
            code.line(f"const int32_t x_zero = numbers[0]{self.x_shift}, w_zero = numbers[1]{self.w_shift};")
            if p.y_byte is not None:
                code.line("const int32_t y_zero = numbers[2];")
            code.line("float scale;", "__builtin_memcpy(&scale, numbers + 3, 4);")
            self.places()
            items = " * ".join(f"BATCH_{i}" for i in range(len(p.batch))) or "1"
            code.line(f"const int64_t items = {items}, lines = (ROWS + LINE - 1) / LINE, units = items * lines;")
            code.line("int64_t packed = -1;  // which w lies in the panels")
            with code.block("for (int64_t unit = part * units / parts; unit < (part + 1) * units / parts; unit++)"):
                self.unit()

    def places(self) -> None:
        """Where the parts of the scratch lie."""
        code = self.code
        code.line(f"{self.w_type} *const panels = (void *)(scratch + part * SCRATCH);")
        after = "panels + first_column(PANELS) * DEPTH"
        if self.quads:
            code.line(f"int32_t *const column_start = (void *)({after});")
            code.line("int32_t *const row_start = column_start + first_column(PANELS);")
            after = "row_start + LINE"
        code.line(f"{self.x_type} *const gathered = (void *)({after});")

    def unit(self) -> None:
        """LINE rows of one item."""
        p, code = self.p, self.code
        code.line("const int64_t item = unit / lines, top = unit % lines * LINE;")
        code.line("const int64_t rows = ROWS - top < LINE ? ROWS - top : LINE;")
        code.line(f"const int64_t x_item = {self.item([axis.x for axis in p.batch])};")
        code.line(f"const int64_t w_item = {self.item([axis.w for axis in p.batch])};")
        starts = ", column_start, x_zero" if self.quads else ""
        with code.block("if (w_item != packed)"):
            code.line(f"pack(w + w_item * K * N, panels, PANELS, w_zero{starts}{self.pass_loose});", "packed = w_item;")
        starts = "row_start, w_zero" if self.quads else "x_zero"
        code.line(f"gather(x + (x_item * ROWS + top) * K, gathered, rows, {starts}{self.pass_loose});")
        with code.block("for (int64_t panel = 0; panel < PANELS; panel++)"):
            code.line("const int64_t column = first_column(panel);")
            place = "y + (item * ROWS + top) * N + column"
            starts = "column_start + column, row_start, " if self.quads else ""
            before = f"gathered, panels + column * DEPTH, {starts}{place}, "
            if p.panels is not None:
                p.panels.write_dispatch(code, "panel", f"{before}{self.arguments(0)}, rows")
                return
            code.line("const int64_t count = N - column;")
            for condition, tail in (("if (count >= WIDTH)", 0), ("else", None)):
                name = self.name("panel", p.point.nv, tail)
                code.line(f"{condition} {name}({before}{self.arguments(tail)}, rows);")

    def item(self, has: list[bool]) -> str:
        """Which item of an operand belongs to ``item``, given which axes of the batch the operand has."""
        terms: list[str] = []
        inner: list[str] = []  # extents of the axes behind
        own: list[str] = []  # those of them that the operand has
        for index in reversed(range(len(has))):
            extent = f"BATCH_{index}"
            if has[index]:
                digit = f"item / ({' * '.join(inner)})" if inner else "item"
                terms.append(" * ".join([f"{digit} % {extent}", *own]))
                own.append(extent)
            inner.append(extent)
        return " + ".join(reversed(terms)) or "0"
