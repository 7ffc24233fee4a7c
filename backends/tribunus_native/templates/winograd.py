"""3x3 convolution, stride 1, by Winograd F(2x2, 3x3): 16 products of a quarter of the pixels instead of 9 of all.

Imported by: the backend (policy fp32-winograd only).  Imports: csource, epilogue, gemm (rules), panels, tiles.

For a block of output tiles (2x2 pixels each):  V = B^T d B of each 4x4 input patch, M[k] = V[k] @ U[k] for the 16
positions k, y = A^T M A + bias.  Sums are shorter than direct ones, but products are not exact: another policy.
Buffers: x, tensors; y; weights U, bias, vectors; workspace V, M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tribunus_native.templates.csource import (
    ENTRY,
    FLOAT_BYTES,
    UNROLL,
    Code,
    KernelSource,
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
from tribunus_native.templates.epilogue import Epilogue, epilogue_functions, epilogue_lines, epilogue_slots
from tribunus_native.templates.gemm import choose_vectors, most_rows
from tribunus_native.templates.panels import F32, Panels, kind_name
from tribunus_native.templates.tiles import TileStyle, multiply, start_tile, store_tile
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu

_BLOCK_BYTES = 1 << 20  # V and M of one block stay in L2


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradPoint:
    """One point of the search space."""

    lanes: int
    mr: int  # tiles of a register tile
    nv: int
    tile_rows: int  # rows of output tiles per block
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradParams:
    """A 3x3 convolution of stride 1, dilation 1, one group; channels_in a multiple of lanes."""

    batch: Size
    height: int
    width: int
    channels_in: int
    channels_out: int
    pads: tuple[int, int, int, int]
    point: WinogradPoint
    avx512: bool
    bias: bool = True
    epilogue: Epilogue = ()
    y_stride: int = 0
    y_offset: int = 0

    @property
    def out_height(self) -> int:
        return self.height + self.pads[0] + self.pads[2] - 2

    @property
    def out_width(self) -> int:
        return self.width + self.pads[1] + self.pads[3] - 2

    @property
    def panels(self) -> Panels:
        return Panels(self.channels_out, self.point.lanes, self.point.nv)


def pack_winograd(w: F32, params: WinogradParams) -> F32:
    """OIHW 3x3 weights to U = G g G^T, [16][panel][ci][width], computed in float64 and rounded once."""
    g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=np.float64)
    u = np.einsum("ij,ocjk,lk->ilco", g, w.astype(np.float64), g)
    matrices = u.reshape(16, params.channels_in, params.channels_out).astype(np.float32)
    return np.concatenate([params.panels.pack(matrix) for matrix in matrices])


def pack_winograd_vector(vector: F32, params: WinogradParams) -> F32:
    """Bias, scale or shift as the kernel reads it."""
    return params.panels.pack_vector(vector)


def winograd(params: WinogradParams) -> KernelSource:
    """The C text of one Winograd convolution."""
    return _Winograd(params).source()


class _Winograd:
    def __init__(self, params: WinogradParams) -> None:
        self.p = params
        self.code = Code()
        self.panels = params.panels
        self.tiles_wide = ceil_div(params.out_width, 2)
        self.tile_rows = ceil_div(params.out_height, 2)
        self.block_tiles = self.tiles_wide * params.point.tile_rows
        slots = [Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), Slot("weights", Role.WEIGHT)]
        if params.bias:
            slots.append(Slot("bias", Role.WEIGHT))
        slots += epilogue_slots(params.epilogue)
        slots.append(Slot("scratch", Role.WORKSPACE))
        self.buffers = ordered(slots)
        self.style = TileStyle(
            lanes=params.point.lanes,
            channels=params.channels_out,
            bias=params.bias,
            epilogue=params.epilogue,
            y_stride="PADDED_COLUMNS",
        )

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        title = f"winograd F(2x2,3x3), {p.height}x{p.width}x{p.channels_in} -> "
        title += f"{p.out_height}x{p.out_width}x{p.channels_out}, pads {p.pads}"
        vector_header(code, title, p.point.lanes, tuple(f"then {step}" for step in p.epilogue))
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        constants(code, {"BATCH": p.batch})
        constant(code, "CIN", p.channels_in)
        constant(code, "HEIGHT", p.height)
        constant(code, "WIDTH", p.width)
        constant(code, "OUT_HEIGHT", p.out_height)
        constant(code, "OUT_WIDTH", p.out_width)
        constant(code, "Y_STRIDE", p.y_stride or p.channels_out)
        constant(code, "TILES_WIDE", self.tiles_wide)
        constant(code, "TILE_ROWS", self.tile_rows)
        constant(code, "BLOCK_ROWS", p.point.tile_rows, "rows of tiles per block")
        constant(code, "BLOCK_TILES", self.block_tiles)
        self.panels.write_constants(code)
        code.line("")
        self.transform_input()
        for vectors in sorted(set(self.panels.vectors), reverse=True):
            self.product(vectors)
        self.transform_output()
        self.kernel()
        floats = 16 * self.block_tiles * (p.channels_in + self.panels.padded)
        return KernelSource(code.result(), self.buffers, Workspace(floats * FLOAT_BYTES))

    def transform_input(self) -> None:
        p, code = self.p, self.code
        with (
            code.block("static void transform_input(const float *restrict image, float *restrict v, int64_t tile_row)"),
            code.block("for (int64_t t = 0; t < TILES_WIDE; t++)"),
        ):
            code.line(f"const int64_t top = tile_row * 2 - {p.pads[0]}, left = t * 2 - {p.pads[1]};")
            with code.block("for (int64_t c = 0; c < CIN; c += LANES)"):
                code.text(f"""
vec d[4][4], e[4][4];
{UNROLL} for (int i = 0; i < 4; i++) {UNROLL} for (int j = 0; j < 4; j++) {{
  const int64_t row = top + i, column = left + j;
  const int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
  d[i][j] = inside ? load(image + (row * WIDTH + column) * CIN + c) : splat(0.0f);
}}
{UNROLL} for (int j = 0; j < 4; j++) {{
  e[0][j] = d[0][j] - d[2][j];
  e[1][j] = d[1][j] + d[2][j];
  e[2][j] = d[2][j] - d[1][j];
  e[3][j] = d[1][j] - d[3][j];
}}
float *out = v + t * CIN + c;
{UNROLL} for (int i = 0; i < 4; i++) {{
  store(out + (i * 4 + 0) * BLOCK_TILES * CIN, e[i][0] - e[i][2]);
  store(out + (i * 4 + 1) * BLOCK_TILES * CIN, e[i][1] + e[i][2]);
  store(out + (i * 4 + 2) * BLOCK_TILES * CIN, e[i][2] - e[i][1]);
  store(out + (i * 4 + 3) * BLOCK_TILES * CIN, e[i][1] - e[i][3]);
}}
""")
        code.line("")

    def product(self, vectors: int) -> None:
        """M[k] = V[k] @ U[k] for one panel."""
        p, code = self.p, self.code
        width = vectors * p.point.lanes
        tiles = even_tiles(self.block_tiles, p.point.mr)
        plain = TileStyle(lanes=p.point.lanes, channels=0, bias=False, epilogue=(), y_stride="PADDED_COLUMNS")
        for rows, _ in tiles:
            signature = "const float *restrict x, const float *restrict w, float *restrict y"
            with code.block(f"static inline void tile_{rows}_{vectors}({signature})"):
                code.line(f"vec acc[{rows}][{vectors}];")
                start_tile(code, rows, vectors, "splat(0.0f)")
                with code.block(f"for (int64_t k = 0; k < CIN; k++, w += {width})"):
                    multiply(code, 0, rows, vectors, "w", "x[i * CIN + k]")
                store_tile(code, plain, rows, vectors, 0, ())
            code.line("")
        signature = "const float *restrict v, const float *restrict u, float *restrict m"
        with code.block(f"static void {kind_name('product', vectors, 0)}({signature})"):
            first = 0
            for rows, many in tiles:
                head = f"for (int64_t t = {first}; t < {first + rows * many}; t += {rows})"
                code.line(head, f"  tile_{rows}_{vectors}(v + t * CIN, u, m + t * PADDED_COLUMNS);")
                first += rows * many
        code.line("")

    def transform_output(self) -> None:
        p, code = self.p, self.code
        tail = self.panels.tail
        vectors = self.panels.padded // p.point.lanes
        signature = (
            "const float *restrict m, int64_t tile_row, float *restrict y, "
            f"int64_t image_pixels{self.style.parameters()}"
        )
        with (
            code.block(f"static void transform_output({signature})"),
            code.block("for (int64_t t = 0; t < TILES_WIDE; t++)"),
            code.block(f"for (int64_t v = 0; v < {vectors}; v++)"),
        ):
            code.line("const int64_t c = v * LANES;")
            code.text(f"""
vec k[16], r[2][4], z4[2][2];
{UNROLL} for (int i = 0; i < 16; i++) k[i] = load(m + (i * BLOCK_TILES + t) * PADDED_COLUMNS + c);
{UNROLL} for (int j = 0; j < 4; j++) {{
  r[0][j] = k[j] + k[4 + j] + k[8 + j];
  r[1][j] = k[4 + j] - k[8 + j] - k[12 + j];
}}
{UNROLL} for (int i = 0; i < 2; i++) {{
  z4[i][0] = r[i][0] + r[i][1] + r[i][2];
  z4[i][1] = r[i][1] - r[i][2] - r[i][3];
}}
""")
            with code.block(f"{UNROLL} for (int q = 0; q < 4; q++)"):
                code.line("const int64_t row = tile_row * 2 + q / 2, column = t * 2 + q % 2;")
                code.line("if (row >= OUT_HEIGHT || column >= OUT_WIDTH) continue;")
                code.line("const int64_t pixel = image_pixels + row * OUT_WIDTH + column;")
                bias = " + load(bias + c)" if p.bias else ""
                code.line(f"vec z = z4[q / 2][q % 2]{bias};")
                if tail:
                    with code.block(f"if (v == {vectors - 1})"):
                        code.line(*epilogue_lines(p.epilogue, p.channels_out, "pixel", "c", tail))
                        code.line(f"store_part(y + pixel * Y_STRIDE + c, z, {tail});")
                        code.line("continue;")
                code.line(*epilogue_lines(p.epilogue, p.channels_out, "pixel", "c", 0))
                code.line("store(y + pixel * Y_STRIDE + c, z);")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        floats = 16 * self.block_tiles * (p.channels_in + self.panels.padded)
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"BATCH": p.batch})
            code.line(f"float *const v = scratch + part * {floats};")
            code.line("float *const m = v + 16 * BLOCK_TILES * CIN;")
            code.line("const int64_t blocks = (TILE_ROWS + BLOCK_ROWS - 1) / BLOCK_ROWS, all = BATCH * blocks;")
            with code.block("for (int64_t b = part * all / parts; b < (part + 1) * all / parts; b++)"):
                code.line("const int64_t image = b / blocks, first = b % blocks * BLOCK_ROWS;")
                code.line("const int64_t left = TILE_ROWS - first, rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;")
                code.line("for (int64_t t = 0; t < rows; t++)")
                code.line("  transform_input(x + image * HEIGHT * WIDTH * CIN, v + t * TILES_WIDE * CIN, first + t);")
                code.line("// a last block of fewer rows multiplies stale scratch too; those products are never read")
                with (
                    code.block("for (int64_t k = 0; k < 16; k++)"),
                    code.block("for (int64_t panel = 0; panel < PANELS; panel++)"),
                ):
                    code.line("const int64_t column = first_column(panel);")
                    v = "v + k * BLOCK_TILES * CIN"
                    u = "weights + k * CIN * PADDED_COLUMNS + column * CIN"
                    m = "m + k * BLOCK_TILES * PADDED_COLUMNS + column"
                    whole = Panels(self.panels.padded, p.point.lanes, p.point.nv)
                    whole.write_dispatch(code, "product", f"{v}, {u}, {m}")
                moved = self.style.moved(row="", column="0", channel="", base=True)
                code.line("for (int64_t t = 0; t < rows; t++)")
                out = f"y + {p.y_offset}, image * OUT_HEIGHT * OUT_WIDTH{moved}"
                code.line(f"  transform_output(m + t * TILES_WIDE * PADDED_COLUMNS, first + t, {out});")


def winograd_rule(out_height: int, out_width: int, channels_in: int, channels_out: int, cpu: Cpu) -> WinogradPoint:
    """The point chosen without measuring: blocks of about 28 to 98 tiles whose scratch stays in L2."""
    lanes = cpu.native_lanes
    while lanes > 4 and (channels_in % lanes or channels_out % lanes):
        lanes //= 2
    nv = choose_vectors(channels_out, lanes, cpu)
    wide, high = ceil_div(out_width, 2), ceil_div(out_height, 2)
    row_bytes = 16 * wide * (channels_in + channels_out) * FLOAT_BYTES
    fitting = max(1, _BLOCK_BYTES // row_bytes)
    # the whole image where it is small enough, else about 28 tiles in rows as even as possible
    rows = high if high <= fitting and wide * high <= 98 else min(high, ceil_div(28, wide), fitting)
    rows = ceil_div(high, ceil_div(high, rows))
    tiles = wide * rows
    return WinogradPoint(
        lanes=lanes,
        mr=ceil_div(tiles, ceil_div(tiles, most_rows(nv, cpu))),
        nv=nv,
        tile_rows=rows,
        contraction=Contraction.FUSED,
    )


def winograd_points(
    out_height: int, out_width: int, channels_in: int, channels_out: int, cpu: Cpu
) -> tuple[WinogradPoint, ...]:
    """The search space, the rule's point first."""
    first = winograd_rule(out_height, out_width, channels_in, channels_out, cpu)
    wide, high = ceil_div(out_width, 2), ceil_div(out_height, 2)
    points = [first]
    for rows in (first.tile_rows, min(high, first.tile_rows * 2), max(1, first.tile_rows // 2)):
        for nv in (3, 4, 2):
            if nv <= ceil_div(channels_out, first.lanes):
                tiles = wide * rows
                mr = ceil_div(tiles, ceil_div(tiles, most_rows(nv, cpu)))
                points.append(
                    WinogradPoint(lanes=first.lanes, mr=mr, nv=nv, tile_rows=rows, contraction=Contraction.FUSED)
                )
    return tuple(dict.fromkeys(points))
