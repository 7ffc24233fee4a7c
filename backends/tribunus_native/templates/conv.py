"""Convolution, channels last: y[N, OH, OW, Co] = epilogue(bias + x (*) w), groups, strides, dilation, any padding.

Imported by: transposed, the backend.  Imports: csource, epilogue, gemm, panels, tiles, vecmath.

A tile is MR neighbouring output pixels by NV channel vectors.  The taps of a kernel row are one contiguous run of
kw*cin inputs (dilation 1, one group, dense pixels); x is read in place.  Padding costs nothing: the output row is
walked when the text is written, and each tile gets straight code for exactly the taps that lie inside the image.
Sum order: kernel row, kernel column, input channel, upward from the bias, whatever the point.
1-D convolution: height 1.  Buffers: x, tensors; y; weights, bias, vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    even_tiles,
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
from tribunus_native.templates.tiles import TileStyle, multiply, start_tile, store_tile
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a kernel slides over an image of fixed height and width."""

    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)

    @property
    def out_height(self) -> int:
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        return (self.height + self.pads[0] + self.pads[2] - reach) // self.stride[0] + 1

    @property
    def out_width(self) -> int:
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.width + self.pads[1] + self.pads[3] - reach) // self.stride[1] + 1

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.pads == (0, 0, 0, 0)

    def taps(self, column: int) -> tuple[int, int]:
        """Kernel columns [first, last) of output column ``column`` that lie inside the image."""
        start = self.pads[1] - column * self.stride[1]
        step = self.dilation[1]
        first = max(0, ceil_div(start, step))
        last = min(self.kernel[1], ceil_div(self.width + start, step))
        return min(first, max(last, 0)), max(last, 0)


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

    @property
    def panels(self) -> Panels:
        """Of one group."""
        return Panels(self.channels_out // self.groups, self.point.lanes, self.point.nv)


@dataclass(frozen=True, slots=True)
class RowTile:
    """Tiles of equal code: ``many`` of them from output column ``first`` on."""

    first: int
    pixels: int
    taps: tuple[tuple[int, int], ...]  # per pixel
    many: int


def row_tiles(window: Window, most: int) -> tuple[RowTile, ...]:
    """One output row as runs of tiles; tiles of a run have the same valid taps."""
    found: list[RowTile] = []
    column = 0
    for pixels, many in even_tiles(window.out_width, most):
        for _ in range(many):
            taps = tuple(window.taps(column + i) for i in range(pixels))
            last = found[-1] if found else None
            if last is not None and last.pixels == pixels and last.taps == taps:
                found[-1] = RowTile(last.first, pixels, taps, last.many + 1)
            else:
                found.append(RowTile(column, pixels, taps, 1))
            column += pixels
    return tuple(found)


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
    if isinstance(params.batch, Param):
        return None  # the pixel count would be a product with a symbol; the general text does the same work
    point = params.point
    rows = params.batch * params.window.height * params.window.width
    return GemmParams(
        rows=rows,
        n=params.channels_out,
        k=params.channels_in,
        point=GemmPoint(
            lanes=point.lanes,
            mr=min(rows, point.mr),
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
        self.tiles = row_tiles(params.window, params.point.mr)
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
        distinct = dict.fromkeys((tile.pixels, tile.taps) for tile in self.tiles)
        self.names = {key: f"tile_{index}" for index, key in enumerate(distinct)}

    def source(self) -> KernelSource:
        p, w, code = self.p, self.p.window, self.code
        size = "x".join(map(str, w.kernel))
        title = f"conv {size}, {w.height}x{w.width}x{p.channels_in} -> {w.out_height}x{w.out_width}x{p.channels_out}"
        detail = f"groups {p.groups}, stride {w.stride}, pads {w.pads}, dilation {w.dilation}"
        vector_header(code, title, p.point.lanes, (detail, *(f"then {step}" for step in p.epilogue)))
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        constants(code, {"BATCH": p.batch})
        constant(code, "HEIGHT", w.height)
        constant(code, "OUT_HEIGHT", w.out_height)
        constant(code, "OUT_WIDTH", w.out_width)
        constant(code, "KERNEL_HEIGHT", w.kernel[0])
        constant(code, "CIN", self.cin, "of a group")
        constant(code, "COUT", self.cout, "of a group")
        constant(code, "X_STRIDE", self.x_stride, "floats from pixel to pixel")
        constant(code, "X_ROW", self.x_stride * w.width)
        constant(code, "X_OFFSET", p.x_offset)
        constant(code, "Y_STRIDE", p.y_stride or p.channels_out)
        constant(code, "Y_OFFSET", p.y_offset)
        constant(code, "GROUPS", p.groups)
        constant(code, "K", w.kernel[0] * w.kernel[1] * self.cin, "terms of one output")
        self.panels.write_constants(code)
        for vectors, tail in self.panels.kinds:
            for (pixels, taps), name in self.names.items():
                self.tile(name, pixels, taps, vectors, tail)
            self.row(vectors, tail)
        self.kernel()
        return KernelSource(code.result(), self.buffers)

    def signature(self) -> str:
        return (
            f"const float *restrict x, const float *restrict w, float *restrict y{self.style.parameters()}, "
            "int64_t kernel_rows"
        )

    def runs(self, pixels: int, taps: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int, int, int]]:
        """(first tap, last tap, first pixel, last pixel): runs of taps and the pixels that have them."""
        columns = self.p.window.kernel[1]
        dense = self.p.window.dilation[1] == 1 and self.x_stride == self.cin
        if dense and all(tap == (0, columns) for tap in taps):
            yield 0, columns, 0, pixels
            return
        for tap in range(columns):
            inside = [i for i in range(pixels) if taps[i][0] <= tap < taps[i][1]]
            first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
            yield tap, tap + 1, first, last

    def tile(self, name: str, pixels: int, taps: tuple[tuple[int, int], ...], vectors: int, tail: int) -> None:
        p, w, code = self.p, self.p.window, self.code
        width = vectors * p.point.lanes
        step = w.dilation[0]
        outside = "" if all(tap == (0, w.kernel[1]) for tap in taps) else ", taps outside the image left out"
        code.line(f"// {pixels} pixels{outside}")
        with code.block(f"static inline void {kind_name(name, vectors, tail)}({self.signature()})"):
            code.line(f"vec acc[{pixels}][{vectors}];")
            start_tile(code, pixels, vectors, "load(bias + j * LANES)" if p.bias else "splat(0.0f)")
            head = f"for (int64_t h = 0; h < kernel_rows; h++, x += {step} * X_ROW)"
            with code.block(f"{ROLLED} {head}"):
                for first, last, low, high in self.runs(pixels, taps):
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
        with code.block(f"static void {kind_name('row', vectors, tail)}({self.signature()})"):
            for tile in self.tiles:
                name = kind_name(self.names[(tile.pixels, tile.taps)], vectors, tail)
                if tile.many == 1:
                    column, pad = str(tile.first), ""
                else:
                    last = tile.first + tile.many * tile.pixels
                    code.line(f"for (int64_t c = {tile.first}; c < {last}; c += {tile.pixels})")
                    column, pad = "c", "  "
                moved = self.style.moved(row=column, column="", channel="", base=False)
                x = f"x + {column} * {stride} * X_STRIDE"
                code.line(f"{pad}{name}({x}, w, y + {column} * Y_STRIDE{moved}, kernel_rows);")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"BATCH": p.batch})
            code.line("const int64_t rows = BATCH * OUT_HEIGHT, units = GROUPS * PANELS;")
            if p.split is Split.ROWS:
                code.line("const int64_t row_first = part * rows / parts, row_last = (part + 1) * rows / parts;")
                code.line("const int64_t unit_first = 0, unit_last = units;")
            else:
                code.line("const int64_t row_first = 0, row_last = rows;")
                code.line("const int64_t unit_first = part * units / parts, unit_last = (part + 1) * units / parts;")
            unit_loop = "for (int64_t unit = unit_first; unit < unit_last; unit++)"
            row_loop = "for (int64_t r = row_first; r < row_last; r++)"
            outer, inner = (row_loop, unit_loop) if p.point.order is Order.ROWS else (unit_loop, row_loop)
            with code.block(outer), code.block(inner):
                self.body()

    def body(self) -> None:
        w, code = self.p.window, self.code
        code.line("const int64_t group = unit / PANELS, panel = unit % PANELS, column = first_column(panel);")
        code.line("const int64_t image = r / OUT_HEIGHT;")
        code.line(f"const int64_t top = (r % OUT_HEIGHT) * {w.stride[0]} - {w.pads[0]};")
        step = w.dilation[0]
        code.line("// kernel rows [h_first, h_last) lie inside the image")
        code.line(f"const int64_t h_first = top < 0 ? (-top + {step - 1}) / {step} : 0;")
        code.line(f"int64_t h_last = top < HEIGHT ? (HEIGHT - top + {step - 1}) / {step} : 0;")
        code.line("if (h_last > KERNEL_HEIGHT) h_last = KERNEL_HEIGHT;")
        code.line("const int64_t kernel_rows = h_last > h_first ? h_last - h_first : 0;")
        code.line("const int64_t pixel = r * OUT_WIDTH, channel = group * COUT + column;")
        code.line(f"const int64_t x_row = image * HEIGHT + (kernel_rows ? top + h_first * {step} : 0);")
        x = "x + X_OFFSET + x_row * X_ROW + group * CIN"
        widths = "(panel < WIDE_PANELS ? WIDE_COLUMNS : NARROW_COLUMNS)"
        code.line(f"const int64_t skipped = h_first * {w.kernel[1] * self.cin} * {widths};  // of rows above the image")
        weights = "weights + group * K * PADDED_COLUMNS + column * K + skipped"
        moved = self.style.moved(row="pixel", column="channel", channel="group * PADDED_COLUMNS + column", base=True)
        y = "y + Y_OFFSET + pixel * Y_STRIDE + channel"
        self.panels.write_dispatch(code, "row", f"{x}, {weights}, {y}{moved}, kernel_rows")


def conv_rule(window: Window, channels_out: int, groups: int, cpu: Cpu) -> ConvPoint:
    """The point chosen without measuring."""
    columns = channels_out // groups
    lanes = choose_lanes(columns, cpu)
    nv = choose_vectors(columns, lanes, cpu)
    most = most_rows(nv, cpu)
    line = window.out_width if not window.is_pointwise or groups > 1 else window.out_height * window.out_width
    mr = ceil_div(line, ceil_div(line, most))
    return ConvPoint(lanes=lanes, mr=mr, nv=nv, order=Order.PANELS, contraction=Contraction.FUSED)


def conv_points(window: Window, channels_out: int, groups: int, cpu: Cpu) -> tuple[ConvPoint, ...]:
    """The search space in ranked order, the rule's point first."""
    first = conv_rule(window, channels_out, groups, cpu)
    columns = channels_out // groups
    pointwise = window.is_pointwise and groups == 1
    line = window.out_height * window.out_width if pointwise else window.out_width
    ranked: list[tuple[int, ConvPoint]] = []
    for lanes in (16, 8) if cpu.has_avx512 else (cpu.native_lanes,):
        for nv in (3, 4, 2, 1):
            if nv > ceil_div(columns, lanes):
                continue
            most = most_rows(nv, cpu)
            for height in sorted({most, max(1, most - 2), max(1, most // 2)}, reverse=True):
                mr = ceil_div(line, ceil_div(line, height))
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
