"""Convolution with few output channels (1 to 4): vectors lie along the input channels.

Imported by: the backend.  Imports: conv (window), csource, epilogue, rows, vecmath.

With one or two output channels the ordinary template spends a broadcast per multiply.  Here one vector of LANES input
channels is multiplied with one weight vector per output and the lanes are added once at the end.  The order of the
sum is another one than in conv, so this is a candidate of its own, never a point of conv.
Buffers: x, tensors; y; weights [co][kh][kw][ci padded], bias, vectors (padded to LANES).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tribunus_native.templates.conv import Extents, Window, each_row, image_sizes
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
    ceil_div,
    constant,
    constants,
    ordered,
    vector_header,
)
from tribunus_native.templates.epilogue import Epilogue, epilogue_functions, epilogue_lines, epilogue_slots
from tribunus_native.templates.panels import F32
from tribunus_native.templates.rows import Tile
from tribunus_native.templates.tiles import TileStyle
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu

MOST_OUTPUTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowPoint:
    """One point of the search space; lanes is part of the sum order."""

    lanes: int
    mr: int  # output pixels of a tile
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowParams:
    """One convolution of at most MOST_OUTPUTS output channels, one group; strides are floats from pixel to pixel."""

    batch: Size
    window: Window
    channels_in: int
    channels_out: int
    point: NarrowPoint
    avx512: bool
    bias: bool = True
    epilogue: Epilogue = ()
    x_stride: int = 0
    x_offset: int = 0
    y_stride: int = 0
    y_offset: int = 0
    extents: Extents | None = None


def pack_narrow(w: F32, params: NarrowParams) -> F32:
    """OIHW to [o][kh][kw][i padded to lanes], flat."""
    out, channels, rows, columns = w.shape
    lanes = params.point.lanes
    full = np.zeros((out, rows, columns, ceil_div(channels, lanes) * lanes), dtype=np.float32)
    full[..., :channels] = w.transpose(0, 2, 3, 1)
    return full.ravel()


def pack_narrow_vector(vector: F32, params: NarrowParams) -> F32:
    """Bias, scale or shift, padded to one vector."""
    full = np.zeros(params.point.lanes, dtype=np.float32)
    full[: vector.size] = vector
    return full


def narrow(params: NarrowParams) -> KernelSource:
    """The C text of one narrow convolution."""
    return _Narrow(params).source()


class _Narrow:
    def __init__(self, params: NarrowParams) -> None:
        self.p = params
        self.code = Code()
        self.rows = params.window.rows(params.point.mr)
        self.names = {kind: f"tile_{index}" for index, kind in enumerate(self.rows.kinds())}
        self.sizes: dict[str, Size] = {"BATCH": params.batch, **image_sizes(params.window, params.extents)}
        slots = [Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), Slot("weights", Role.WEIGHT)]
        if params.bias:
            slots.append(Slot("bias", Role.WEIGHT))
        self.buffers = ordered(slots + epilogue_slots(params.epilogue))
        self.style = TileStyle(
            lanes=params.point.lanes,
            channels=params.channels_out,
            bias=params.bias,
            epilogue=params.epilogue,
            y_stride="Y_STRIDE",
        )

    def source(self) -> KernelSource:
        p, w, code = self.p, self.p.window, self.code
        size = "x".join(map(str, w.kernel))
        title = f"narrow conv {size}, {w.height}x{w.width}x{p.channels_in} -> "
        title += f"{w.out_height}x{w.out_width}x{p.channels_out}"
        detail = f"stride {w.stride}, pads {w.pads}, dilation {w.dilation}"
        vector_header(code, title, p.point.lanes, (detail, *(f"then {step}" for step in p.epilogue)))
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        padded = ceil_div(p.channels_in, p.point.lanes) * p.point.lanes
        constants(code, self.sizes)
        constant(code, "CIN_FULL", p.channels_in // p.point.lanes * p.point.lanes, "input channels in whole vectors")
        constant(code, "CIN_PADDED", padded)
        constant(code, "W_OUTPUT", w.kernel[0] * w.kernel[1] * padded, "weights of one output channel")
        constant(code, "X_STRIDE", p.x_stride or p.channels_in, "floats from pixel to pixel")
        self.rows.write_type(code)
        if self.rows.is_fixed:
            constant(code, "X_ROW", (p.x_stride or p.channels_in) * w.width)
        constant(code, "Y_STRIDE", p.y_stride or p.channels_out)
        code.line("")
        for kind, name in self.names.items():
            self.tile(name, kind)
        self.kernel()
        return KernelSource(code.result(), self.buffers)

    def tile(self, name: str, kind: Tile) -> None:
        p, w, code, pixels = self.p, self.p.window, self.code, kind.pixels
        outputs = p.channels_out
        signature = (
            f"const float *restrict x, const float *restrict w, float *restrict y{self.style.parameters()}, "
            f"int64_t h_first, int64_t h_last{self.rows.parameter}"
        )
        with code.block(f"static void {name}({signature})"):
            code.line(f"vec acc[{pixels}][{outputs}];")
            code.line(f"{UNROLL} for (int i = 0; i < {pixels}; i++)")
            code.line(f"  {UNROLL} for (int o = 0; o < {outputs}; o++) acc[i][o] = splat(0.0f);")
            with code.block("for (int64_t h = h_first; h < h_last; h++)"):
                code.line(f"const float *x_row = x + h * {w.dilation[0]} * {self.rows.x_row};")
                for tap in range(w.kernel[1]):
                    first, last = kind.pixels_of(self.rows.line, tap * w.dilation[1])
                    if first < last:
                        self.tap(tap, first, last)
            with code.block(f"{UNROLL} for (int i = 0; i < {pixels}; i++)"):
                code.line("vec z = splat(0.0f);")
                code.line(f"{UNROLL} for (int o = 0; o < {outputs}; o++) z[o] = sum_lanes(acc[i][o]);")
                if p.bias:
                    code.line("z = z + load(bias);")
                code.line(*epilogue_lines(p.epilogue, outputs, "i", "0", outputs))
                code.line(f"store_part(y + i * Y_STRIDE, z, {outputs});")
        code.line("")

    def tap(self, tap: int, first: int, last: int) -> None:
        p, w, code = self.p, self.p.window, self.code
        shift = tap * w.dilation[1] - w.pads[1]
        place = f"x_row + (i * {w.stride[1]} + {shift}) * X_STRIDE + c"
        tail = p.channels_in % p.point.lanes
        each = f"{UNROLL} for (int o = 0; o < {p.channels_out}; o++)"

        def body(value: str) -> None:
            code.line(f"vec b[{p.channels_out}];", f"{each} b[o] = load(taps + o * W_OUTPUT + c);")
            with code.block(f"{UNROLL} for (int i = {first}; i < {last}; i++)"):
                code.line(f"const vec a = {value};", f"{each} acc[i][o] += a * b[o];")

        with code.block(""):
            code.line(f"const float *taps = w + (h * {w.kernel[1]} + {tap}) * CIN_PADDED;")
            if p.channels_in >= p.point.lanes:
                with code.block("for (int64_t c = 0; c < CIN_FULL; c += LANES)"):
                    body(f"load({place})")
            if tail:
                with code.block(""):
                    code.line("const int64_t c = CIN_FULL;")
                    body(f"load_part({place}, {tail}, 0.0f)")

    def kernel(self) -> None:
        p, w, code = self.p, self.p.window, self.code
        step = w.dilation[0]
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, self.sizes)
            self.rows.write_plan(code, "X_STRIDE * WIDTH", "WIDTH", "OUT_WIDTH")
            code.line("const int64_t rows = BATCH * OUT_HEIGHT;")
            code.line("const int64_t row_first = part * rows / parts, row_last = (part + 1) * rows / parts;")
            with each_row(code):
                code.line("const int64_t pixel = r * OUT_WIDTH;")
                code.line(f"const int64_t top = out_row * {w.stride[0]} - {w.pads[0]};")
                code.line(f"const int64_t h_first = top < 0 ? (-top + {step - 1}) / {step} : 0;")
                code.line(f"int64_t h_last = top < HEIGHT ? (HEIGHT - top + {step - 1}) / {step} : 0;")
                code.line(f"if (h_last > {w.kernel[0]}) h_last = {w.kernel[0]};")
                code.line(f"const float *x_top = x + {p.x_offset} + (image * HEIGHT + top) * {self.rows.x_row};")
                self.rows.walk(code, self.call)

    def call(self, kind: Tile, column: str) -> str:
        """One tile at an output column."""
        p = self.p
        moved = self.style.moved(row=f"pixel + {column}", column="0", channel="", base=True)
        where = f"y + {p.y_offset} + (pixel + {column}) * Y_STRIDE"
        x = f"x_top + {column} * {p.window.stride[1]} * X_STRIDE"
        return f"{self.names[kind]}({x}, weights, {where}{moved}, h_first, h_last{self.rows.argument});"


def narrow_rule(window: Window, channels_in: int, cpu: Cpu) -> NarrowPoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    while lanes > 4 and channels_in < lanes:
        lanes //= 2
    return NarrowPoint(lanes=lanes, mr=window.row_tile(4), contraction=Contraction.FUSED)


def narrow_points(window: Window, channels_in: int, cpu: Cpu) -> tuple[NarrowPoint, ...]:
    """The search space, the rule's point first."""
    first = narrow_rule(window, channels_in, cpu)
    points = [first]
    for lanes in (first.lanes, 8, 4):
        for most in (4, 2, 6):
            if lanes <= max(4, cpu.native_lanes):
                mr = window.row_tile(most)
                points.append(NarrowPoint(lanes=lanes, mr=mr, contraction=Contraction.FUSED))
    return tuple(dict.fromkeys(points))
