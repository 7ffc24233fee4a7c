"""Matrix product with weights packed offline: y[M, N] = epilogue(bias + x[M, K] @ W[K, N]).

Imported by: conv (1x1), the backend.  Imports: csource, epilogue, panels, vecmath.

A tile keeps MR rows by NV vectors of accumulators in registers and walks k upward.  Every output is one chain
bias + x[0]*w[0] + x[1]*w[1] + ...: the same bits for every point of the search space (contraction apart), for any
number of parts.  Buffers: x, tensors of the epilogue; y; weights, bias, vectors of the epilogue; workspace (pack_a).
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
    ceil_div,
    constant,
    constants,
    even_tiles,
    ordered,
    vector_header,
)
from tribunus_native.templates.epilogue import Epilogue, epilogue_functions, epilogue_slots
from tribunus_native.templates.panels import F32, Panels, kind_name
from tribunus_native.templates.tiles import TileStyle, multiply, start_tile, store_tile
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu

_PACK_BLOCK_TILES = 16  # row tiles packed at a time: MR 8, K 1024 gives 512 KiB, half of a common L2


@unique
class Order(Enum):
    """Which loop is outermost: a weight panel stays in cache while rows stream, or the reverse."""

    PANELS = "panels"
    ROWS = "rows"


@unique
class Split(Enum):
    """What ``part`` of ``parts`` divides."""

    ROWS = "rows"
    PANELS = "panels"


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPoint:
    """One point of the search space."""

    lanes: int  # float32 lanes of the vector type
    mr: int  # rows of a tile
    nv: int  # vectors of a tile
    kc: int  # k per pass; 0: all of K in one pass
    order: Order
    pack_a: bool  # copy row tiles of x to [k][MR] first
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmParams:
    """One matrix product.  Strides and offsets are in floats; stride 0 means dense (k, n)."""

    rows: Size
    n: int
    k: int
    point: GemmPoint
    avx512: bool
    bias: bool = True
    epilogue: Epilogue = ()
    x_stride: int = 0
    x_offset: int = 0
    y_stride: int = 0
    y_offset: int = 0
    split: Split = Split.ROWS

    @property
    def panels(self) -> Panels:
        return Panels(self.n, self.point.lanes, self.point.nv)


def pack_gemm(w: F32, params: GemmParams) -> F32:
    """W[K, N] row-major to the flat packed form that the kernel reads (see panels)."""
    return params.panels.pack(w)


def pack_gemm_vector(vector: F32, params: GemmParams) -> F32:
    """Bias, scale or shift of N values, zero padded as the kernel reads it."""
    return params.panels.pack_vector(vector)


def gemm(params: GemmParams) -> KernelSource:
    """The C text of one matrix product."""
    return _Gemm(params).source()


class _Gemm:
    def __init__(self, params: GemmParams) -> None:
        self.p = params
        point = params.point
        self.panels = params.panels
        self.split_k = 0 < point.kc < params.k
        self.depth = point.kc if self.split_k else params.k
        self.code = Code()
        if isinstance(params.rows, int):
            self.tiles = even_tiles(params.rows, point.mr)
        else:
            self.tiles = _halving(point.mr)
        slots = [Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), Slot("weights", Role.WEIGHT)]
        if params.bias:
            slots.append(Slot("bias", Role.WEIGHT))
        slots += epilogue_slots(params.epilogue)
        if point.pack_a:
            slots.append(Slot("packed_x", Role.WORKSPACE))
        self.buffers = ordered(slots)
        self.style = TileStyle(
            lanes=point.lanes, channels=params.n, bias=params.bias, epilogue=params.epilogue, y_stride="Y_STRIDE"
        )

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        title = f"y[M, {p.n}] = x[M, {p.k}] @ W[{p.k}, {p.n}]" + (" + bias" if p.bias else "")
        steps = tuple(f"then {step}" for step in p.epilogue)
        vector_header(code, title, p.point.lanes, steps)
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        constants(code, {"ROWS": p.rows})
        constant(code, "K", p.k)
        constant(code, "X_STRIDE", p.x_stride or p.k, "floats from row to row")
        constant(code, "X_OFFSET", p.x_offset)
        constant(code, "Y_STRIDE", p.y_stride or p.n)
        constant(code, "Y_OFFSET", p.y_offset)
        if self.split_k:
            constant(code, "K_BLOCK", self.depth, "k of one pass; partial sums wait in y")
        self.panels.write_constants(code)
        self.first_row()
        for vectors, tail in self.panels.kinds:
            for rows in sorted({size for size, _ in self.tiles}, reverse=True):
                self.tile(rows, vectors, tail)
        if p.point.pack_a:
            self.pack_tile()
        for vectors, tail in self.panels.kinds:
            self.walk_rows(vectors, tail)
        self.kernel()
        workspace = Workspace()
        if p.point.pack_a:
            workspace = Workspace(_PACK_BLOCK_TILES * p.point.mr * self.depth * FLOAT_BYTES)
        return KernelSource(code.result(), self.buffers, workspace)

    def signature(self, names: str) -> str:
        pointers = self.style.parameters()
        passes = ", int64_t depth, int first, int last" if self.split_k else ""
        return f"const float *restrict x, const float *restrict w, float *restrict y{pointers}{passes}{names}"

    def tile(self, rows: int, vectors: int, tail: int) -> None:
        """acc[rows][vectors] over one run of k."""
        p, code = self.p, self.code
        lanes = p.point.lanes
        name = kind_name(f"tile_{rows}", vectors, tail)
        value = f"x[k * {rows} + i]" if p.point.pack_a else "x[i * X_STRIDE + k]"
        start = "load(bias + j * LANES)" if p.bias else "splat(0.0f)"
        with code.block(f"static inline void {name}({self.signature('')})"):
            code.line(f"vec acc[{rows}][{vectors}];")
            if self.split_k:
                with code.block("if (first)"):
                    start_tile(code, rows, vectors, start)
                with code.block("else"):
                    full = vectors - 1 if tail else vectors
                    if full:
                        start_tile(code, rows, full, "load(y + i * Y_STRIDE + j * LANES)")
                    if tail:
                        place = f"y + i * Y_STRIDE + {full * lanes}"
                        code.line(f"{UNROLL} for (int i = 0; i < {rows}; i++)")
                        code.line(f"  acc[i][{full}] = load_part({place}, {tail}, 0.0f);")
            else:
                start_tile(code, rows, vectors, start)
            depth = "depth" if self.split_k else "K"
            with code.block(f"for (int64_t k = 0; k < {depth}; k++, w += {vectors * lanes})"):
                multiply(code, 0, rows, vectors, "w", value)
            if self.split_k and p.epilogue:
                with code.block("if (last)"):
                    store_tile(code, self.style, rows, vectors, tail, p.epilogue)
                with code.block("else"):
                    store_tile(code, self.style, rows, vectors, tail, ())
            else:
                store_tile(code, self.style, rows, vectors, tail, p.epilogue)
        code.line("")

    def first_row(self) -> None:
        p, code = self.p, self.code
        if isinstance(p.rows, int):
            (big, big_count), *rest = self.tiles
            code.line(f"// {' and '.join(f'{many} tiles of {size} rows' for size, many in self.tiles)}")
            with code.block("INLINE int64_t first_row(int64_t tile)"):
                if rest:
                    code.line(
                        f"if (tile > {big_count}) return {big_count * big} + (tile - {big_count}) * {rest[0][0]};"
                    )
                code.line(f"return tile * {big};")
        else:
            code.line(f"INLINE int64_t first_row(int64_t tile) {{ return tile * {p.point.mr}; }}")
        code.line("")

    def pack_tile(self) -> None:
        with self.code.block(
            "static inline void pack_tile(const float *restrict x, float *restrict to, int64_t rows, int64_t depth)"
        ):
            self.code.line(
                "for (int64_t k = 0; k < depth; k++)",
                "  for (int64_t i = 0; i < rows; i++) to[k * rows + i] = x[i * X_STRIDE + k];",
            )
        self.code.line("")

    def each_tile(self, body: str) -> None:
        """The row pieces of ``tile``: ``body`` with {rows} filled in, after ``row`` is set."""
        code = self.code
        if isinstance(self.p.rows, int):
            code.line("const int64_t row = first_row(tile);")
            if len(self.tiles) == 1:
                code.line(body.format(rows=self.tiles[0][0]))
            else:
                code.line(f"if (tile < {self.tiles[0][1]}) {body.format(rows=self.tiles[0][0])}")
                code.line(f"else {body.format(rows=self.tiles[1][0])}")
            return
        mr = self.p.point.mr
        code.line("int64_t row = first_row(tile);")
        with code.block(f"if (row + {mr} <= row_count)"):
            code.line(body.format(rows=mr))
        with code.block("else"):
            for size, _ in self.tiles:
                with code.block(f"for (; row + {size} <= row_count; row += {size})"):
                    code.line(body.format(rows=size))

    def walk_rows(self, vectors: int, tail: int) -> None:
        """All row tiles of a range for one panel."""
        code = self.code
        name = kind_name("panel", vectors, tail)
        names = ", int64_t tile_begin, int64_t tile_end, int64_t row_count"
        x = "x + row * X_STRIDE"
        if self.p.point.pack_a:
            depth = "depth" if self.split_k else "K"
            x = f"x + (row - first_row(tile_begin)) * {depth}"
        passed = self.moved("row", "")
        call = f"tile_{{rows}}_{name.removeprefix('panel_')}({x}, w, y + row * Y_STRIDE{passed});"
        with (
            code.block(f"static void {name}({self.signature(names)})"),
            code.block("for (int64_t tile = tile_begin; tile < tile_end; tile++)"),
        ):
            self.each_tile(call)
        code.line("")

    def moved(self, row: str, column: str) -> str:
        """Extra pointers as arguments, the flags of a pass after them."""
        moved = self.style.moved(row=row, column=column, channel=column, base=bool(column))
        return moved + (", depth, first, last" if self.split_k else "")

    def kernel(self) -> None:
        p, code = self.p, self.code
        mr = p.point.mr
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"ROWS": p.rows})
            total = sum(many for _, many in self.tiles) if isinstance(p.rows, int) else 0
            code.line(f"const int64_t tiles = {total or f'(ROWS + {mr - 1}) / {mr}'};")
            if p.split is Split.ROWS:
                code.line("const int64_t tile_first = part * tiles / parts, tile_last = (part + 1) * tiles / parts;")
                code.line("const int64_t panel_first = 0, panel_last = PANELS;")
            else:
                code.line("const int64_t tile_first = 0, tile_last = tiles;")
                code.line(
                    "const int64_t panel_first = part * PANELS / parts, panel_last = (part + 1) * PANELS / parts;"
                )
            if p.point.pack_a:
                block = _PACK_BLOCK_TILES * mr * self.depth
                code.line(f"float *const own_packed_x = packed_x + part * {block};")
            self.blocks()

    def blocks(self) -> None:
        p, code = self.p, self.code
        if p.point.pack_a:
            step = str(_PACK_BLOCK_TILES)
        elif p.point.order is Order.ROWS:
            step = "1"
        else:
            step = ""
        if step:
            head = f"for (int64_t tile_begin = tile_first; tile_begin < tile_last; tile_begin += {step})"
            with code.block(head):
                code.line(
                    f"const int64_t tile_end = tile_begin + {step} < tile_last ? tile_begin + {step} : tile_last;"
                )
                self.passes()
        else:
            code.line("const int64_t tile_begin = tile_first, tile_end = tile_last;")
            self.passes()

    def passes(self) -> None:
        code = self.code
        if not self.split_k:
            self.one_pass("0")
            return
        with code.block("for (int64_t k0 = 0; k0 < K; k0 += K_BLOCK)"):
            code.line("const int64_t depth = K - k0 < K_BLOCK ? K - k0 : K_BLOCK;")
            code.line("const int first = k0 == 0, last = k0 + depth == K;")
            self.one_pass("k0")

    def one_pass(self, k0: str) -> None:
        p, code = self.p, self.code
        depth = "depth" if self.split_k else "K"
        x = "x + X_OFFSET" + (f" + {k0}" if self.split_k else "")
        if p.point.pack_a:
            with code.block("for (int64_t tile = tile_begin; tile < tile_end; tile++)"):
                place = f"own_packed_x + (row - first_row(tile_begin)) * {depth}"
                self.each_tile(f"pack_tile({x} + row * X_STRIDE, {place}, {{rows}}, {depth});")
            x = "own_packed_x"
        with code.block("for (int64_t panel = panel_first; panel < panel_last; panel++)"):
            code.line("const int64_t column = first_column(panel);")
            width = "(panel < WIDE_PANELS ? WIDE_COLUMNS : NARROW_COLUMNS)"
            w = "weights + column * K" + (f" + {k0} * {width}" if self.split_k else "")
            arguments = f"{x}, {w}, y + Y_OFFSET + column{self.moved('', 'column')}, tile_begin, tile_end, ROWS"
            self.panels.write_dispatch(code, "panel", arguments)


def _halving(mr: int) -> tuple[tuple[int, int], ...]:
    """Tile sizes for a row count known only at the call: mr, then halves down to one row."""
    sizes = [mr]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    return tuple((size, 0) for size in sizes)


# rows of a tile by vectors of a tile: 12 to 28 accumulators of 32 registers, 12 of 16
_MOST_ROWS_32 = {1: 14, 2: 12, 3: 8, 4: 6}
_MOST_ROWS_16 = {1: 8, 2: 6, 3: 4, 4: 2}


def most_rows(nv: int, cpu: Cpu) -> int:
    return (_MOST_ROWS_16 if cpu.vector_registers == 16 else _MOST_ROWS_32)[nv]


def choose_lanes(columns: int, cpu: Cpu) -> int:
    """Widest vector that does not waste more than 5 % of the columns."""
    if not cpu.has_avx512:
        return cpu.native_lanes
    wide, narrow = ceil_div(columns, 16) * 16, ceil_div(columns, 8) * 8
    return 16 if wide <= narrow * 1.05 or columns >= 96 else 8


def choose_vectors(columns: int, lanes: int, cpu: Cpu) -> int:
    """Vectors of a panel: 3 or 4, whichever leaves the panels more even (16 registers: 2, or 3 for exactly 3)."""
    vectors = ceil_div(columns, lanes)
    if cpu.vector_registers == 16:
        return vectors if vectors <= 3 else 2
    if vectors <= 4:
        return vectors
    return min((3, 4), key=lambda nv: ceil_div(vectors, nv) * nv - vectors)


def gemm_rule(rows: Size, n: int, k: int, cpu: Cpu) -> GemmPoint:
    """The point chosen without measuring."""
    lanes = choose_lanes(n, cpu)
    nv = choose_vectors(n, lanes, cpu)
    most = most_rows(nv, cpu)
    mr = most if isinstance(rows, Param) else ceil_div(rows, ceil_div(rows, most))
    return GemmPoint(lanes=lanes, mr=mr, nv=nv, kc=0, order=Order.PANELS, pack_a=False, contraction=Contraction.FUSED)


def gemm_points(rows: Size, n: int, k: int, cpu: Cpu) -> tuple[GemmPoint, ...]:
    """The whole search space in ranked order, the rule's point first.  Tiles that would spill are left out."""
    first = gemm_rule(rows, n, k, cpu)
    widths = (16, 8) if cpu.has_avx512 else (cpu.native_lanes,)
    ranked: list[tuple[int, GemmPoint]] = []
    for lanes in widths:
        for nv in (3, 4, 2, 1):
            if nv > ceil_div(n, lanes):
                continue
            most = most_rows(nv, cpu)
            heights = {most, max(1, most - 2), max(1, most // 2)}
            if isinstance(rows, int):
                heights = {ceil_div(rows, ceil_div(rows, height)) for height in heights}
            for mr in sorted(heights, reverse=True):
                for kc in (0, *(block for block in (512, 256) if block < k)):
                    for order in Order:
                        for pack_a in (False, True):
                            for contraction in Contraction:
                                point = GemmPoint(
                                    lanes=lanes, mr=mr, nv=nv, kc=kc, order=order, pack_a=pack_a,
                                    contraction=contraction,
                                )  # fmt: skip
                                if pack_a and order is Order.ROWS:
                                    continue
                                ranked.append((_distance(point, first), point))
    ranked.sort(key=lambda pair: pair[0])  # stable: ties keep the order above
    points = [point for _, point in ranked if point != first]
    return (first, *points)


def _distance(point: GemmPoint, first: GemmPoint) -> int:
    """How far a point is from the rule's; axes that matter less cost less."""
    return (
        2 * (point.nv != first.nv)
        + 2 * (point.mr != first.mr)
        + 4 * (point.lanes != first.lanes)
        + 3 * (point.kc != 0)
        + 3 * (point.order is not first.order)
        + 4 * point.pack_a
        + 6 * (point.contraction is not first.contraction)
    )
