"""Convolution, channels last: y[N, OH, OW, Co] = epilogue(bias + x (*) w), groups, strides, dilation, any padding.

Imported by: depthwise, narrow, pooling, quantized, the backend.  Imports: csource, epilogue, gemm, panels, rows, tiles,
vecmath.

A tile is MR neighbouring output pixels by NV channel vectors.  The taps of a kernel row are one contiguous run of
kw*cin inputs (dilation 1, one group, dense pixels); x is read in place.  Padding costs nothing: each tile gets straight
code for exactly the taps that lie inside the image (see rows).  Images may be of a size known only at the call.
Sum order: kernel row, kernel column, input channel, upward from the bias, whatever the point.
1-D convolution: height 1.  Buffers: x, tensors; y; weights, bias, vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tribunus_native.templates.csource import (
    ENTRY,
    ROLLED,
    Code,
    KernelSource,
    Param,
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
from tribunus_native.templates.epilogue import Epilogue, epilogue_functions, epilogue_slots
from tribunus_native.templates.gemm import (
    GemmParams,
    GemmPoint,
    Order,
    Split,
    choose_lanes,
    choose_vectors,
    gemm,
    most_rows,
)
from tribunus_native.templates.panels import F32, Panels, kind_name
from tribunus_native.templates.rows import Line, Rows, Tile
from tribunus_native.templates.tiles import TileStyle, multiply, start_tile, store_tile
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a kernel slides over an image.

    height, width: of the image, those expected where they are known only at the call; heights, widths: all that may
    come then, None for no other than the one.
    """

    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)
    heights: range | None = None
    widths: range | None = None

    @property
    def out_height(self) -> int:
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        return (self.height + self.pads[0] + self.pads[2] - reach) // self.stride[0] + 1

    @property
    def out_width(self) -> int:
        return self.columns(self.width)

    def columns(self, width: int) -> int:
        """Output columns of an image of this width."""
        return (width + self.pads[1] + self.pads[3] - self.line.reach) // self.stride[1] + 1

    @property
    def line(self) -> Line:
        """How an output row reads an input row."""
        return Line(self.stride[1], -self.pads[1], (self.kernel[1] - 1) * self.dilation[1] + 1)

    def rows(self, most: int) -> Rows:
        """An output row in tiles of at most ``most`` pixels."""
        widths = range(self.width, self.width + 1) if self.widths is None else self.widths
        return Rows(self.line, most, widths, self.columns)

    def row_tile(self, most: int) -> int:
        """Pixels of a tile that suits the width; ``most`` where widths vary, tiles are made even at the call."""
        return even_tile(self.out_width, most) if self.widths is None else most

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.pads == (0, 0, 0, 0)

    @property
    def is_fixed(self) -> bool:
        return self.heights is None and self.widths is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extents:
    """Sizes of images as a kernel gets them.  pixels: of all images of the batch together, for products over
    pixels."""

    height: Size
    width: Size
    out_height: Size
    out_width: Size
    pixels: Size = 0


def even_tile(count: int, most: int) -> int:
    """The larger tile of ``count`` items in the fewest tiles of at most ``most``."""
    return ceil_div(count, ceil_div(count, most))


def image_sizes(window: Window, extents: Extents | None) -> dict[str, Size]:
    """Names of the sizes of images in the C text."""
    if extents is None:
        return {
            "HEIGHT": window.height, "WIDTH": window.width,
            "OUT_HEIGHT": window.out_height, "OUT_WIDTH": window.out_width,
        }  # fmt: skip
    return {
        "HEIGHT": extents.height, "WIDTH": extents.width,
        "OUT_HEIGHT": extents.out_height, "OUT_WIDTH": extents.out_width,
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvPoint:
    """One point of the search space."""

    lanes: int
    mr: int  # output pixels of a tile
    nv: int  # channel vectors of a tile
    order: Order
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvParams:
    """One convolution.  channels_in and channels_out count all groups.  Strides are floats from pixel to pixel."""

    batch: Size
    window: Window
    channels_in: int
    channels_out: int
    point: ConvPoint
    avx512: bool
    groups: int = 1
    bias: bool = True
    epilogue: Epilogue = ()
    x_stride: int = 0
    x_offset: int = 0
    y_stride: int = 0
    y_offset: int = 0
    split: Split = Split.ROWS
    extents: Extents | None = None

    @property
    def panels(self) -> Panels:
        """Of one group."""
        return Panels(self.channels_out // self.groups, self.point.lanes, self.point.nv)


def pack_conv(w: F32, params: ConvParams) -> F32:
    """OIHW weights (I per group) to [group][panel][kh][kw][cin][width], flat, zero padded columns."""
    out, each, rows, columns = w.shape
    per_group = out // params.groups
    parts = []
    for group in range(params.groups):
        block = w[group * per_group : (group + 1) * per_group]
        matrix = np.ascontiguousarray(block.transpose(2, 3, 1, 0)).reshape(rows * columns * each, per_group)
        parts.append(params.panels.pack(matrix))
    return np.concatenate(parts)


def pack_conv_vector(vector: F32, params: ConvParams) -> F32:
    """Bias, scale or shift, zero padded within each group."""
    return np.concatenate([params.panels.pack_vector(part) for part in np.split(vector, params.groups)])


def as_gemm(params: ConvParams) -> GemmParams | None:
    """A 1x1 convolution as a matrix product over all pixels (same packing), None if it is not one."""
    if not params.window.is_pointwise or params.groups != 1:
        return None
    point = params.point
    if params.extents is not None:
        rows = params.extents.pixels
    elif isinstance(params.batch, Param):
        return None  # the pixel count would be a product with a symbol; the general text does the same work
    else:
        rows = params.batch * params.window.height * params.window.width
    return GemmParams(
        rows=rows,
        n=params.channels_out,
        k=params.channels_in,
        point=GemmPoint(
            lanes=point.lanes,
            mr=min(rows, point.mr) if isinstance(rows, int) else point.mr,
            nv=point.nv,
            kc=0,
            order=point.order,
            pack_a=False,
            contraction=point.contraction,
        ),
        avx512=params.avx512,
        bias=params.bias,
        epilogue=params.epilogue,
        x_stride=params.x_stride,
        x_offset=params.x_offset,
        y_stride=params.y_stride,
        y_offset=params.y_offset,
        split=params.split,
    )


def conv(params: ConvParams) -> KernelSource:
    """The C text of one convolution."""
    product = as_gemm(params)
    return gemm(product) if product is not None else _Conv(params).source()


class _Conv:
    def __init__(self, params: ConvParams) -> None:
        self.p = params
        self.panels = params.panels
        self.code = Code()
        self.cin = params.channels_in // params.groups
        self.cout = params.channels_out // params.groups
        self.x_stride = params.x_stride or params.channels_in
        self.rows = params.window.rows(params.point.mr)
        slots = [Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), Slot("weights", Role.WEIGHT)]
        if params.bias:
            slots.append(Slot("bias", Role.WEIGHT))
        slots += epilogue_slots(params.epilogue)
        self.buffers = ordered(slots)
        self.style = TileStyle(
            lanes=params.point.lanes,
            channels=params.channels_out,
            bias=params.bias,
            epilogue=params.epilogue,
            y_stride="Y_STRIDE",
        )
        self.names = {kind: f"tile_{index}" for index, kind in enumerate(self.rows.kinds())}
        self.sizes: dict[str, Size] = {"BATCH": params.batch, **image_sizes(params.window, params.extents)}

    def source(self) -> KernelSource:
        p, w, code = self.p, self.p.window, self.code
        size = "x".join(map(str, w.kernel))
        title = f"conv {size}, {w.height}x{w.width}x{p.channels_in} -> {w.out_height}x{w.out_width}x{p.channels_out}"
        detail = f"groups {p.groups}, stride {w.stride}, pads {w.pads}, dilation {w.dilation}"
        vector_header(code, title, p.point.lanes, (detail, *(f"then {step}" for step in p.epilogue)))
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        constants(code, self.sizes)
        constant(code, "KERNEL_HEIGHT", w.kernel[0])
        constant(code, "CIN", self.cin, "of a group")
        constant(code, "COUT", self.cout, "of a group")
        constant(code, "X_STRIDE", self.x_stride, "floats from pixel to pixel")
        self.rows.write_type(code)
        if self.rows.is_fixed:
            constant(code, "X_ROW", self.x_stride * w.width)
        constant(code, "X_OFFSET", p.x_offset)
        constant(code, "Y_STRIDE", p.y_stride or p.channels_out)
        constant(code, "Y_OFFSET", p.y_offset)
        constant(code, "GROUPS", p.groups)
        constant(code, "K", w.kernel[0] * w.kernel[1] * self.cin, "terms of one output")
        self.panels.write_constants(code)
        for vectors, tail in self.panels.kinds:
            for kind, name in self.names.items():
                self.tile(name, kind, vectors, tail)
            self.row(vectors, tail)
        self.kernel()
        return KernelSource(code.result(), self.buffers)

    def signature(self) -> str:
        return (
            f"const float *restrict x, const float *restrict w, float *restrict y{self.style.parameters()}, "
            f"int64_t kernel_rows{self.rows.parameter}"
        )

    def runs(self, kind: Tile) -> Iterator[tuple[int, int, int, int]]:
        """(first tap, last tap, first pixel, last pixel): runs of taps and the pixels that have them."""
        columns, step = self.p.window.kernel[1], self.p.window.dilation[1]
        dense = step == 1 and self.x_stride == self.cin
        if dense and kind.is_inside:
            yield 0, columns, 0, kind.pixels
            return
        for tap in range(columns):
            yield tap, tap + 1, *kind.pixels_of(self.rows.line, tap * step)

    def tile(self, name: str, kind: Tile, vectors: int, tail: int) -> None:
        p, w, code, pixels = self.p, self.p.window, self.code, kind.pixels
        width = vectors * p.point.lanes
        step = w.dilation[0]
        outside = "" if kind.is_inside else ", taps outside the image left out"
        code.line(f"// {pixels} pixels{outside}")
        with code.block(f"static inline void {kind_name(name, vectors, tail)}({self.signature()})"):
            code.line(f"vec acc[{pixels}][{vectors}];")
            start_tile(code, pixels, vectors, "load(bias + j * LANES)" if p.bias else "splat(0.0f)")
            head = f"for (int64_t h = 0; h < kernel_rows; h++, x += {step} * {self.rows.x_row})"
            with code.block(f"{ROLLED} {head}"):
                for first, last, low, high in self.runs(kind):
                    count = (last - first) * self.cin
                    if low == high:
                        code.line(f"w += {count * width};  // tap {first} lies outside for every pixel")
                        continue
                    shift = first * w.dilation[1] - w.pads[1]
                    with code.block(f"for (int64_t k = 0; k < {count}; k++, w += {width})"):
                        value = f"x[(i * {w.stride[1]} + {shift}) * X_STRIDE + k]"
                        multiply(code, low, high, vectors, "w", value)
            store_tile(code, self.style, pixels, vectors, tail, p.epilogue)
        code.line("")

    def row(self, vectors: int, tail: int) -> None:
        """One output row of one panel: its tiles from left to right."""
        code, stride = self.code, self.p.window.stride[1]

        def call(kind: Tile, column: str) -> str:
            moved = self.style.moved(row=column, column="", channel="", base=False)
            x = f"x + {column} * {stride} * X_STRIDE"
            name = kind_name(self.names[kind], vectors, tail)
            return f"{name}({x}, w, y + {column} * Y_STRIDE{moved}, kernel_rows{self.rows.argument});"

        with code.block(f"static void {kind_name('row', vectors, tail)}({self.signature()})"):
            self.rows.walk(code, call)
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, self.sizes)
            self.rows.write_plan(code, "X_STRIDE * WIDTH", "WIDTH", "OUT_WIDTH")
            code.line("const int64_t rows = BATCH * OUT_HEIGHT, units = GROUPS * PANELS;")
            if p.split is Split.ROWS:
                code.line("const int64_t row_first = part * rows / parts, row_last = (part + 1) * rows / parts;")
                code.line("const int64_t unit_first = 0, unit_last = units;")
            else:
                code.line("const int64_t row_first = 0, row_last = rows;")
                code.line("const int64_t unit_first = part * units / parts, unit_last = (part + 1) * units / parts;")
            unit_loop = "for (int64_t unit = unit_first; unit < unit_last; unit++)"
            if p.point.order is Order.PANELS:
                with code.block(unit_loop), each_row(code):
                    self.body()
            else:
                with each_row(code), code.block(unit_loop):
                    self.body()

    def body(self) -> None:
        w, code = self.p.window, self.code
        code.line("const int64_t group = unit / PANELS, panel = unit % PANELS, column = first_column(panel);")
        code.line(f"const int64_t top = out_row * {w.stride[0]} - {w.pads[0]};")
        step = w.dilation[0]
        code.line("// kernel rows [h_first, h_last) lie inside the image")
        code.line(f"const int64_t h_first = top < 0 ? (-top + {step - 1}) / {step} : 0;")
        code.line(f"int64_t h_last = top < HEIGHT ? (HEIGHT - top + {step - 1}) / {step} : 0;")
        code.line("if (h_last > KERNEL_HEIGHT) h_last = KERNEL_HEIGHT;")
        code.line("const int64_t kernel_rows = h_last > h_first ? h_last - h_first : 0;")
        code.line("const int64_t pixel = r * OUT_WIDTH, channel = group * COUT + column;")
        code.line(f"const int64_t x_row = image * HEIGHT + (kernel_rows ? top + h_first * {step} : 0);")
        x = f"x + X_OFFSET + x_row * {self.rows.x_row} + group * CIN"
        widths = "(panel < WIDE_PANELS ? WIDE_COLUMNS : NARROW_COLUMNS)"
        code.line(f"const int64_t skipped = h_first * {w.kernel[1] * self.cin} * {widths};  // of rows above the image")
        weights = "weights + group * K * PADDED_COLUMNS + column * K + skipped"
        moved = self.style.moved(row="pixel", column="channel", channel="group * PADDED_COLUMNS + column", base=True)
        y = "y + Y_OFFSET + pixel * Y_STRIDE + channel"
        self.panels.write_dispatch(code, "row", f"{x}, {weights}, {y}{moved}, kernel_rows{self.rows.argument}")


@contextmanager
def each_row(code: Code) -> Iterator[None]:
    """Output rows [row_first, row_last) of all images: ``r``, its ``image`` and its ``out_row`` there."""
    code.line("int64_t image = row_first / OUT_HEIGHT, out_row = row_first % OUT_HEIGHT;")
    with code.block("for (int64_t r = row_first; r < row_last; r++)"):
        yield
        code.line("if (++out_row == OUT_HEIGHT) image++, out_row = 0;")


def _tile_rows(window: Window, groups: int, most: int) -> int:
    """Pixels of a tile of at most ``most``: a pointwise convolution is a product over all pixels."""
    if not window.is_pointwise or groups > 1:
        return window.row_tile(most)
    return even_tile(window.out_height * window.out_width, most) if window.is_fixed else most


def conv_rule(window: Window, channels_out: int, groups: int, cpu: Cpu) -> ConvPoint:
    """The point chosen without measuring."""
    columns = channels_out // groups
    lanes = choose_lanes(columns, cpu)
    nv = choose_vectors(columns, lanes, cpu)
    mr = _tile_rows(window, groups, most_rows(nv, cpu))
    return ConvPoint(lanes=lanes, mr=mr, nv=nv, order=Order.PANELS, contraction=Contraction.FUSED)


def conv_points(window: Window, channels_out: int, groups: int, cpu: Cpu) -> tuple[ConvPoint, ...]:
    """The search space in ranked order, the rule's point first."""
    first = conv_rule(window, channels_out, groups, cpu)
    columns = channels_out // groups
    ranked: list[tuple[int, ConvPoint]] = []
    for lanes in (16, 8) if cpu.has_avx512 else (cpu.native_lanes,):
        for nv in (3, 4, 2, 1):
            if nv > ceil_div(columns, lanes):
                continue
            most = most_rows(nv, cpu)
            for height in sorted({most, max(1, most - 2), max(1, most // 2)}, reverse=True):
                mr = _tile_rows(window, groups, height)
                for order in Order:
                    for contraction in Contraction:
                        point = ConvPoint(lanes=lanes, mr=mr, nv=nv, order=order, contraction=contraction)
                        cost = (
                            2 * (nv != first.nv)
                            + 2 * (mr != first.mr)
                            + 4 * (lanes != first.lanes)
                            + 3 * (order is not first.order)
                            + 6 * (contraction is not first.contraction)
                        )
                        ranked.append((cost, point))
    ranked.sort(key=lambda pair: pair[0])
    return tuple(dict.fromkeys((first, *(point for _, point in ranked))))
