"""Depthwise convolution, channels last: every channel with its own kernel.

Imported by: the backend.  Imports: conv (window), csource, epilogue, rows, vecmath.

Vectors lie along channels, a tile is MR neighbouring output pixels; each input vector is loaded once per kernel row and
used by every tap that needs it.  The last channel block starts at C - LANES and computes a few channels twice, which
needs outputs that are no inputs.  Sum order: kernel row, kernel column, upward from the bias.
Buffers: x, tensors; y; weights [kh][kw][C], bias, vectors (none padded).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

import numpy as np

from tribunus_native.templates.conv import Extents, Window, each_row, image_sizes
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
from tribunus_native.templates.rows import Tile
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
    extents: Extents | None = None


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
        self.rows = params.window.rows(params.point.mr)
        self.names = {kind: f"tile_{index}" for index, kind in enumerate(self.rows.kinds())}
        self.sizes: dict[str, Size] = {"BATCH": params.batch, **image_sizes(params.window, params.extents)}
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
        constants(code, self.sizes)
        constant(code, "CHANNELS", p.channels)
        constant(code, "KERNEL_HEIGHT", w.kernel[0])
        constant(code, "X_STRIDE", p.x_stride or p.channels, "floats from pixel to pixel")
        self.rows.write_type(code)
        if self.rows.is_fixed:
            constant(code, "X_ROW", (p.x_stride or p.channels) * w.width)
        constant(code, "Y_STRIDE", p.y_stride or p.channels)
        constant(code, "BLOCKS", ceil_div(p.channels, p.point.lanes), "of LANES channels")
        code.line("")
        for kind, name in self.names.items():
            self.tile(name, kind)
        self.row()
        self.kernel()
        return KernelSource(code.result(), self.buffers)

    def signature(self) -> str:
        return (
            f"const float *restrict x, const float *restrict w, float *restrict y{self.style.parameters()}, "
            f"int64_t kernel_rows{self.rows.parameter}"
        )

    def tile(self, name: str, kind: Tile) -> None:
        p, w, code, pixels = self.p, self.p.window, self.code, kind.pixels
        columns, step = w.kernel[1], w.dilation[1]
        spans = [kind.pixels_of(self.rows.line, k * step) for k in range(columns)]
        used = [k for k, (low, high) in enumerate(spans) if low < high]
        # which taps read which input column, so that each input vector is loaded once
        readers: dict[int, list[tuple[int, int]]] = {}
        for k in used:
            for i in range(*spans[k]):
                readers.setdefault(i * w.stride[1] + k * step - w.pads[1], []).append((i, k))
        with code.block(f"static inline void {name}({self.signature()})"):
            start = self.read("bias") if p.bias else "splat(0.0f)"
            code.line(f"vec {', '.join(f'acc{i} = {start}' for i in range(pixels))};")
            head = f"for (int64_t h = 0; h < kernel_rows; h++, x += {w.dilation[0]} * {self.rows.x_row}, "
            head += f"w += {columns} * CHANNELS)"
            with code.block(f"{ROLLED} {head}"):
                if used:
                    reads = ", ".join(f"w{k} = {self.read(f'w + {k} * CHANNELS')}" for k in used)
                    code.line(f"const vec {reads};")
                for column in sorted(readers):
                    adds = " ".join(f"acc{i} += a * w{k};" for i, k in sorted(readers[column]))
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
        code, stride = self.code, self.p.window.stride[1]

        def call(kind: Tile, column: str) -> str:
            moved = self.style.moved(row=column, column="", channel="", base=False)
            x = f"x + {column} * {stride} * X_STRIDE"
            return f"{self.names[kind]}({x}, w, y + {column} * Y_STRIDE{moved}, kernel_rows{self.rows.argument});"

        with code.block(f"static inline void row({self.signature()})"):
            self.rows.walk(code, call)
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        block_loop = "for (int64_t block = 0; block < BLOCKS; block++)"
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, self.sizes)
            self.rows.write_plan(code, "X_STRIDE * WIDTH", "WIDTH", "OUT_WIDTH")
            code.line("const int64_t rows = BATCH * OUT_HEIGHT;")
            code.line("const int64_t row_first = part * rows / parts, row_last = (part + 1) * rows / parts;")
            if p.point.channels is ChannelLoop.OUTER:
                with code.block(block_loop), each_row(code):
                    self.body()
            else:
                with each_row(code), code.block(block_loop):
                    self.body()

    def body(self) -> None:
        p, w, code = self.p, self.p.window, self.code
        step = w.dilation[0]
        if self.tail:
            code.line("const int64_t channel = block * LANES;")
        else:
            code.line("const int64_t wanted = block * LANES;")
            code.line("const int64_t channel = wanted > CHANNELS - LANES ? CHANNELS - LANES : wanted;")
        code.line(f"const int64_t top = out_row * {w.stride[0]} - {w.pads[0]};")
        code.line(f"const int64_t h_first = top < 0 ? (-top + {step - 1}) / {step} : 0;")
        code.line(f"int64_t h_last = top < HEIGHT ? (HEIGHT - top + {step - 1}) / {step} : 0;")
        code.line("if (h_last > KERNEL_HEIGHT) h_last = KERNEL_HEIGHT;")
        code.line("const int64_t kernel_rows = h_last > h_first ? h_last - h_first : 0;")
        code.line(f"const int64_t x_row = image * HEIGHT + (kernel_rows ? top + h_first * {step} : 0);")
        code.line("const int64_t pixel = r * OUT_WIDTH;")
        moved = self.style.moved(row="pixel", column="channel", channel="channel", base=True)
        x = f"x + {p.x_offset} + x_row * {self.rows.x_row} + channel"
        weights = f"weights + h_first * {w.kernel[1]} * CHANNELS + channel"
        y = f"y + {p.y_offset} + pixel * Y_STRIDE + channel"
        code.line(f"row({x}, {weights}, {y}{moved}, kernel_rows{self.rows.argument});")


def depthwise_rule(window: Window, channels: int, cpu: Cpu) -> DepthwisePoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    if lanes == 16 and (channels < 16 or (channels % 16 and channels < 48 and channels % 8 == 0)):
        lanes = 8
    if channels < lanes:
        lanes = 4
    most = 8 if cpu.vector_registers == 32 else 4
    return DepthwisePoint(
        lanes=lanes,
        mr=window.row_tile(most),
        channels=ChannelLoop.OUTER,
        contraction=Contraction.FUSED,
    )


def depthwise_points(window: Window, channels: int, cpu: Cpu) -> tuple[DepthwisePoint, ...]:
    """The search space, the rule's point first."""
    first = depthwise_rule(window, channels, cpu)
    points = [first]
    for contraction in Contraction:
        for loop in ChannelLoop:
            for most in (8, 6, 4, 12):
                mr = window.row_tile(most)
                points.append(DepthwisePoint(lanes=first.lanes, mr=mr, channels=loop, contraction=contraction))
    return tuple(dict.fromkeys(points))
