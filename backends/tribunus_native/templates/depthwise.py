"""Depthwise convolution, channels last: every channel with its own kernel.

Imported by: the backend.  Imports: conv (window, row tiles), csource, epilogue, vecmath.

Vectors lie along channels, a tile is MR neighbouring output pixels; each input vector is loaded once per kernel row and
used by every tap that needs it.  The last channel block starts at C - LANES and computes a few channels twice, which
needs outputs that are no inputs.  Sum order: kernel row, kernel column, upward from the bias.
Buffers: x, tensors; y; weights [kh][kw][C], bias, vectors (none padded).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

import numpy as np

from tribunus_native.templates.conv import RowTile, Window, row_tiles
from tribunus_native.templates.csource import (
    ENTRY,
    ROLLED,
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
from tribunus_native.templates.tiles import TileStyle
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@unique
class ChannelLoop(Enum):
    """Where the loop over channel blocks stands."""

    OUTER = "outer"
    INNER = "inner"


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwisePoint:
    """One point of the search space."""

    lanes: int
    mr: int  # output pixels of a tile
    channels: ChannelLoop
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseParams:
    """One depthwise convolution of ``channels`` channels; strides are floats from pixel to pixel."""

    batch: Size
    window: Window
    channels: int
    point: DepthwisePoint
    avx512: bool
    bias: bool = True
    epilogue: Epilogue = ()
    x_stride: int = 0
    x_offset: int = 0
    y_stride: int = 0
    y_offset: int = 0


def pack_depthwise(w: F32) -> F32:
    """[C, 1, kh, kw] to [kh][kw][C], flat."""
    return np.ascontiguousarray(w[:, 0].transpose(1, 2, 0)).ravel()


def depthwise(params: DepthwiseParams) -> KernelSource:
    """The C text of one depthwise convolution."""
    return _Depthwise(params).source()


class _Depthwise:
    def __init__(self, params: DepthwiseParams) -> None:
        self.p = params
        self.code = Code()
        self.tiles = row_tiles(params.window, params.point.mr)
        distinct = dict.fromkeys((tile.pixels, tile.taps) for tile in self.tiles)
        self.names = {key: f"tile_{index}" for index, key in enumerate(distinct)}
        # fewer channels than lanes: one block, loaded and stored by lanes that exist
        self.tail = params.channels if params.channels < params.point.lanes else 0
        slots = [Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), Slot("weights", Role.WEIGHT)]
        if params.bias:
            slots.append(Slot("bias", Role.WEIGHT))
        self.buffers = ordered(slots + epilogue_slots(params.epilogue))
        self.style = TileStyle(
            lanes=params.point.lanes,
            channels=params.channels,
            bias=params.bias,
            epilogue=params.epilogue,
            y_stride="Y_STRIDE",
        )

    def read(self, place: str) -> str:
        return f"load_part({place}, {self.tail}, 0.0f)" if self.tail else f"load({place})"

    def source(self) -> KernelSource:
        p, w, code = self.p, self.p.window, self.code
        size = "x".join(map(str, w.kernel))
        title = f"depthwise {size}, {w.height}x{w.width}x{p.channels} -> {w.out_height}x{w.out_width}"
        detail = f"stride {w.stride}, pads {w.pads}, dilation {w.dilation}"
        vector_header(code, title, p.point.lanes, (detail, *(f"then {step}" for step in p.epilogue)))
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        constants(code, {"BATCH": p.batch})
        constant(code, "CHANNELS", p.channels)
        constant(code, "HEIGHT", w.height)
        constant(code, "OUT_HEIGHT", w.out_height)
        constant(code, "OUT_WIDTH", w.out_width)
        constant(code, "KERNEL_HEIGHT", w.kernel[0])
        constant(code, "X_STRIDE", p.x_stride or p.channels, "floats from pixel to pixel")
        constant(code, "X_ROW", (p.x_stride or p.channels) * w.width)
        constant(code, "Y_STRIDE", p.y_stride or p.channels)
        constant(code, "BLOCKS", ceil_div(p.channels, p.point.lanes), "of LANES channels")
        code.line("")
        for (pixels, taps), name in self.names.items():
            self.tile(name, pixels, taps)
        self.row()
        self.kernel()
        return KernelSource(code.result(), self.buffers)

    def signature(self) -> str:
        return (
            f"const float *restrict x, const float *restrict w, float *restrict y{self.style.parameters()}, "
            "int64_t kernel_rows"
        )

    def tile(self, name: str, pixels: int, taps: tuple[tuple[int, int], ...]) -> None:
        p, w, code = self.p, self.p.window, self.code
        columns, step = w.kernel[1], w.dilation[1]
        used = [k for k in range(columns) if any(first <= k < last for first, last in taps)]
        # which taps read which input column, so that each input vector is loaded once
        readers: dict[int, list[tuple[int, int]]] = {}
        for i in range(pixels):
            for k in range(*taps[i]):
                readers.setdefault(i * w.stride[1] + k * step - w.pads[1], []).append((i, k))
        with code.block(f"static inline void {name}({self.signature()})"):
            start = self.read("bias") if p.bias else "splat(0.0f)"
            code.line(f"vec {', '.join(f'acc{i} = {start}' for i in range(pixels))};")
            head = f"for (int64_t h = 0; h < kernel_rows; h++, x += {w.dilation[0]} * X_ROW, w += {columns} * CHANNELS)"
            with code.block(f"{ROLLED} {head}"):
                if used:
                    reads = ", ".join(f"w{k} = {self.read(f'w + {k} * CHANNELS')}" for k in used)
                    code.line(f"const vec {reads};")
                for column in sorted(readers):
                    adds = " ".join(f"acc{i} += a * w{k};" for i, k in readers[column])
                    code.line(f"{{ const vec a = {self.read(f'x + ({column}) * X_STRIDE')}; {adds} }}")
            for i in range(pixels):
                with code.block(""):
                    code.line(f"vec z = acc{i};")
                    code.line(*epilogue_lines(p.epilogue, p.channels, str(i), "0", self.tail))
                    place = f"y + {i} * Y_STRIDE"
                    code.line(f"store_part({place}, z, {self.tail});" if self.tail else f"store({place}, z);")
        code.line("")

    def row(self) -> None:
        """One output row of one channel block."""
        code = self.code
        with code.block(f"static inline void row({self.signature()})"):
            for tile in self.tiles:
                self.run(tile)
        code.line("")

    def run(self, tile: RowTile) -> None:
        code, stride = self.code, self.p.window.stride[1]
        column, pad = str(tile.first), ""
        if tile.many > 1:
            last = tile.first + tile.many * tile.pixels
            code.line(f"for (int64_t c = {tile.first}; c < {last}; c += {tile.pixels})")
            column, pad = "c", "  "
        moved = self.style.moved(row=column, column="", channel="", base=False)
        name = self.names[(tile.pixels, tile.taps)]
        x = f"x + {column} * {stride} * X_STRIDE"
        code.line(f"{pad}{name}({x}, w, y + {column} * Y_STRIDE{moved}, kernel_rows);")

    def kernel(self) -> None:
        p, w, code = self.p, self.p.window, self.code
        step = w.dilation[0]
        block_loop = "for (int64_t block = 0; block < BLOCKS; block++)"
        row_loop = "for (int64_t r = row_first; r < row_last; r++)"
        outer_is_channels = p.point.channels is ChannelLoop.OUTER
        outer, inner = (block_loop, row_loop) if outer_is_channels else (row_loop, block_loop)
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"BATCH": p.batch})
            code.line("const int64_t rows = BATCH * OUT_HEIGHT;")
            code.line("const int64_t row_first = part * rows / parts, row_last = (part + 1) * rows / parts;")
            with code.block(outer), code.block(inner):
                if self.tail:
                    code.line("const int64_t channel = block * LANES;")
                else:
                    code.line("const int64_t wanted = block * LANES;")
                    code.line("const int64_t channel = wanted > CHANNELS - LANES ? CHANNELS - LANES : wanted;")
                code.line("const int64_t image = r / OUT_HEIGHT;")
                code.line(f"const int64_t top = (r % OUT_HEIGHT) * {w.stride[0]} - {w.pads[0]};")
                code.line(f"const int64_t h_first = top < 0 ? (-top + {step - 1}) / {step} : 0;")
                code.line(f"int64_t h_last = top < HEIGHT ? (HEIGHT - top + {step - 1}) / {step} : 0;")
                code.line("if (h_last > KERNEL_HEIGHT) h_last = KERNEL_HEIGHT;")
                code.line("const int64_t kernel_rows = h_last > h_first ? h_last - h_first : 0;")
                code.line(f"const int64_t x_row = image * HEIGHT + (kernel_rows ? top + h_first * {step} : 0);")
                code.line("const int64_t pixel = r * OUT_WIDTH;")
                moved = self.style.moved(row="pixel", column="channel", channel="channel", base=True)
                x = f"x + {p.x_offset} + x_row * X_ROW + channel"
                weights = f"weights + h_first * {w.kernel[1]} * CHANNELS + channel"
                code.line(f"row({x}, {weights}, y + {p.y_offset} + pixel * Y_STRIDE + channel{moved}, kernel_rows);")


def depthwise_rule(window: Window, channels: int, cpu: Cpu) -> DepthwisePoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    if lanes == 16 and (channels < 16 or (channels % 16 and channels < 48 and channels % 8 == 0)):
        lanes = 8
    if channels < lanes:
        lanes = 4
    most = 8 if cpu.vector_registers == 32 else 4
    line = window.out_width
    return DepthwisePoint(
        lanes=lanes,
        mr=ceil_div(line, ceil_div(line, most)),
        channels=ChannelLoop.OUTER,
        contraction=Contraction.FUSED,
    )


def depthwise_points(window: Window, channels: int, cpu: Cpu) -> tuple[DepthwisePoint, ...]:
    """The search space, the rule's point first."""
    first = depthwise_rule(window, channels, cpu)
    line = window.out_width
    points = [first]
    for contraction in Contraction:
        for loop in ChannelLoop:
            for most in (8, 6, 4, 12):
                mr = ceil_div(line, ceil_div(line, most))
                points.append(DepthwisePoint(lanes=first.lanes, mr=mr, channels=loop, contraction=contraction))
    return tuple(dict.fromkeys(points))
