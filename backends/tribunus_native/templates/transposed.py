"""Transposed convolution, channels last: one ordinary convolution per output phase, no scatter.

Imported by: the backend.  Imports: conv (extents), csource, epilogue, gemm (rules), panels, rows,
tiles, vecmath.

Output pixel oh takes kernel row kh only where (oh + top - kh*dilation) is a multiple of the stride: all pixels of one
phase (oh mod stride, ow mod stride) share the same taps: a small convolution of stride 1.  With kernel = stride, no
padding and dense output, the phases of one kernel row are neighbours in memory and become one product with kw*Co
columns.  Sum order: kernel row, kernel column, input channel, upward from the bias.
Buffers: x, tensors; y; weights, bias, vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tribunus_native.templates.conv import Extents, even_tile
from tribunus_native.templates.csource import (
    ENTRY,
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
from tribunus_native.templates.epilogue import Epilogue, WithTensor, epilogue_functions, epilogue_slots
from tribunus_native.templates.gemm import choose_lanes, choose_vectors, most_rows
from tribunus_native.templates.panels import F32, Panels, kind_name
from tribunus_native.templates.rows import Line, Rows, Tile
from tribunus_native.templates.tiles import TileStyle, multiply, start_tile, store_tile
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposedPoint:
    """One point of the search space."""

    lanes: int
    mr: int  # output pixels of a tile
    nv: int
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposedParams:
    """One transposed convolution of one group.  pads: top, left, bottom, right, taken off the full output.

    height, width: of the image, those expected where ``extents`` are given; widths: all that may come then.
    """

    batch: Size
    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    point: TransposedPoint
    avx512: bool
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    output_padding: tuple[int, int] = (0, 0)
    bias: bool = True
    epilogue: Epilogue = ()
    y_stride: int = 0
    y_offset: int = 0
    widths: range | None = None
    extents: Extents | None = None

    @property
    def out_height(self) -> int:
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        return self.stride[0] * (self.height - 1) + self.output_padding[0] + reach - self.pads[0] - self.pads[2]

    @property
    def out_width(self) -> int:
        return self.columns(self.width)

    def columns(self, width: int) -> int:
        """Output columns of an image of this width."""
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return self.stride[1] * (width - 1) + self.output_padding[1] + reach - self.pads[1] - self.pads[3]

    @property
    def merged(self) -> bool:
        """Whether the columns of a kernel row form one product."""
        dense = not self.y_stride and not any(isinstance(s, WithTensor) and s.stride for s in self.epilogue)
        plain = self.pads == (0, 0, 0, 0) and self.dilation == (1, 1) and self.output_padding == (0, 0)
        return dense and plain and self.kernel == self.stride

    @property
    def panels(self) -> Panels:
        columns = self.channels_out * (self.kernel[1] if self.merged else 1)
        return Panels(columns, self.point.lanes, self.point.nv)


@dataclass(frozen=True, slots=True)
class _Phase:
    """Output rows ``row + s*i`` and columns ``column + s*j``.  Taps are (kernel index, input index minus i or j)."""

    row: int
    column: int
    row_taps: tuple[tuple[int, int], ...]
    column_taps: tuple[tuple[int, int], ...]


def _axis_taps(phase: int, pad: int, kernel: int, stride: int, dilation: int) -> tuple[tuple[int, int], ...]:
    found = []
    for k in range(kernel):
        shifted = phase + pad - k * dilation
        if shifted % stride == 0:
            found.append((k, shifted // stride))
    return tuple(found)


def _phases(p: TransposedParams) -> tuple[_Phase, ...]:
    if p.merged:
        return tuple(_Phase(row, 0, ((row, 0),), ((0, 0),)) for row in range(p.stride[0]))
    return tuple(
        _Phase(
            row,
            column,
            _axis_taps(row, p.pads[0], p.kernel[0], p.stride[0], p.dilation[0]),
            _axis_taps(column, p.pads[1], p.kernel[1], p.stride[1], p.dilation[1]),
        )
        for row in range(min(p.stride[0], p.out_height))
        for column in range(min(p.stride[1], p.out_width))
    )


def _phase_rows(p: TransposedParams, index: int, phase: _Phase) -> Rows:
    """The pixels of a phase in one of its rows."""

    def pixels(width: int) -> int:
        return width if p.merged else ceil_div(p.columns(width) - phase.column, p.stride[1])

    shifts = [shift for _, shift in phase.column_taps] or [0]
    line = Line(1, min(shifts), max(shifts) - min(shifts) + 1)
    widths = range(p.width, p.width + 1) if p.widths is None else p.widths
    return Rows(line, p.point.mr, widths, pixels, f"plan_{index}")


def pack_transposed(w: F32, params: TransposedParams) -> F32:
    """[Ci, Co, kh, kw] to [phase][panel][taps][ci][width], flat."""
    channels, out = w.shape[:2]
    parts: list[F32] = []
    for phase in _phases(params):
        if params.merged:
            kh = phase.row_taps[0][0]
            matrix = w[:, :, kh, :].transpose(0, 2, 1).reshape(channels, -1)
        else:
            rows = [w[:, :, kh, kw] for kh, _ in phase.row_taps for kw, _ in phase.column_taps]
            matrix = np.concatenate(rows) if rows else np.zeros((0, out), dtype=np.float32)
        parts.append(params.panels.pack(np.ascontiguousarray(matrix)))
    return np.concatenate(parts)


def pack_transposed_vector(vector: F32, params: TransposedParams) -> F32:
    """Bias, scale or shift as the kernel reads it."""
    return params.panels.pack_vector(np.tile(vector, params.kernel[1]) if params.merged else vector)


def transposed(params: TransposedParams) -> KernelSource:
    """The C text of one transposed convolution."""
    return _Transposed(params).source()


class _Transposed:
    def __init__(self, params: TransposedParams) -> None:
        self.p = params
        self.code = Code()
        self.panels = params.panels
        self.phases = _phases(params)
        self.rows = [_phase_rows(params, index, phase) for index, phase in enumerate(self.phases)]
        sizes: dict[str, Size] = {
            "HEIGHT": params.height, "WIDTH": params.width,
            "OUT_HEIGHT": params.out_height, "OUT_WIDTH": params.out_width,
        }  # fmt: skip
        moving = params.extents
        if moving is not None:
            sizes = {
                "HEIGHT": moving.height, "WIDTH": moving.width,
                "OUT_HEIGHT": moving.out_height, "OUT_WIDTH": moving.out_width,
            }  # fmt: skip
        if params.merged:
            del sizes["OUT_WIDTH"]
        self.sizes: dict[str, Size] = {"BATCH": params.batch, **sizes}
        # HEIGHT as an argument of tiles, where it is no constant
        self.taller = "" if isinstance(sizes["HEIGHT"], int) else ", HEIGHT"
        self.column_step = 1 if params.merged else params.stride[1]
        slots = [Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), Slot("weights", Role.WEIGHT)]
        if params.bias:
            slots.append(Slot("bias", Role.WEIGHT))
        self.buffers = ordered(slots + epilogue_slots(params.epilogue))
        self.style = TileStyle(
            lanes=params.point.lanes,
            channels=self.panels.columns,
            bias=params.bias,
            epilogue=params.epilogue,
            y_stride="Y_STRIDE",
        )

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        size = "x".join(map(str, p.kernel))
        title = f"transposed conv {size}, {p.height}x{p.width}x{p.channels_in} -> "
        title += f"{p.out_height}x{p.out_width}x{p.channels_out}"
        detail = f"stride {p.stride}, pads {p.pads}, dilation {p.dilation}"
        if p.merged:
            detail += "; the columns of a kernel row are one product, a row of y is one pixel per x pixel"
        vector_header(code, title, p.point.lanes, (detail, *(f"then {step}" for step in p.epilogue)))
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        constants(code, self.sizes)
        constant(code, "CIN", p.channels_in)
        self.rows[0].write_type(code)
        if self.rows[0].is_fixed:
            constant(code, "X_ROW", p.width * p.channels_in)
        constant(code, "Y_STRIDE", self.panels.columns if p.merged else p.y_stride or p.channels_out)
        self.panels.write_constants(code)
        code.line("")
        for index, phase in enumerate(self.phases):
            for vectors, tail in self.panels.kinds:
                self.phase_row(index, phase, vectors, tail)
        self.kernel()
        return KernelSource(code.result(), self.buffers)

    def signature(self, rows: Rows) -> str:
        return (
            "const float *restrict x, const float *restrict w_all, "
            f"float *restrict y{self.style.parameters()}, int64_t i_row"
            f"{self.taller.replace(', ', ', int64_t ')}{rows.parameter}"
        )

    def phase_row(self, index: int, phase: _Phase, vectors: int, tail: int) -> None:
        """Tiles of this phase for one panel, and the function that walks one row of them."""
        rows = self.rows[index]
        names = {
            kind: kind_name(f"phase_{index}_tile_{order}", vectors, tail) for order, kind in enumerate(rows.kinds())
        }
        for kind, name in names.items():
            self.tile(name, phase, rows, kind, vectors, tail)

        def call(kind: Tile, column: str) -> str:
            place = column if self.column_step == 1 else f"{column} * {self.column_step}"
            moved = self.style.moved(row=place, column="", channel="", base=False)
            counts = f"i_row{self.taller}{rows.argument}"
            return f"{names[kind]}(x + {column} * CIN, w_all, y + {place} * Y_STRIDE{moved}, {counts});"

        name = kind_name(f"phase_{index}_row", vectors, tail)
        with self.code.block(f"static void {name}({self.signature(rows)})"):
            rows.walk(self.code, call)
        self.code.line("")

    def tile(self, name: str, phase: _Phase, rows: Rows, kind: Tile, vectors: int, tail: int) -> None:
        p, code, size = self.p, self.code, kind.pixels
        width = vectors * p.point.lanes
        with code.block(f"static inline void {name}({self.signature(rows)})"):
            code.line(f"vec acc[{size}][{vectors}];")
            start_tile(code, size, vectors, "load(bias + j * LANES)" if p.bias else "splat(0.0f)")
            for row_index, (kh, row_shift) in enumerate(phase.row_taps):
                with code.block(f"if (i_row + {row_shift} >= 0 && i_row + {row_shift} < HEIGHT)"):
                    for column_index, (kw, shift) in enumerate(phase.column_taps):
                        low, high = kind.pixels_of(rows.line, shift - rows.line.first)
                        if low == high:
                            continue
                        position = (row_index * len(phase.column_taps) + column_index) * p.channels_in * width
                        code.line(f"// kernel ({kh}, {kw})")
                        code.line(f"const float *w_{kw} = w_all + {position};")
                        with code.block(f"for (int64_t k = 0; k < CIN; k++, w_{kw} += {width})"):
                            value = f"x[{row_shift} * {rows.x_row} + (i + {shift}) * CIN + k]"
                            multiply(code, low, high, vectors, f"w_{kw}", value)
            store_tile(code, self.style, size, vectors, tail, p.epilogue, f"i * {self.column_step}")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, self.sizes)
            for phase, rows in zip(self.phases, self.rows, strict=True):
                step = p.stride[1]
                pixels = "WIDTH" if p.merged else f"((OUT_WIDTH - {phase.column} + {step - 1}) / {step})"
                rows.write_plan(code, "CIN * WIDTH", "WIDTH", pixels)
            step = p.stride[0]
            code.line(
                f"const int64_t groups = (OUT_HEIGHT + {step - 1}) / {step};  // output rows per phase, rounded up"
            )
            code.line("const int64_t rows = BATCH * groups;")
            with code.block("for (int64_t r = part * rows / parts; r < (part + 1) * rows / parts; r++)"):
                code.line("const int64_t image = r / groups, i_row = r % groups;")
                code.line(f"const float *x_row = x + (image * HEIGHT + i_row) * {self.rows[0].x_row};")
                offset, columns = 0, "WIDTH" if p.merged else "OUT_WIDTH"
                for index, phase in enumerate(self.phases):
                    depth = len(phase.row_taps) * len(phase.column_taps) * p.channels_in
                    with code.block(f"if (i_row * {p.stride[0]} + {phase.row} < OUT_HEIGHT)"):
                        out_row = f"image * OUT_HEIGHT + i_row * {p.stride[0]} + {phase.row}"
                        code.line(f"const int64_t pixel = ({out_row}) * {columns} + {phase.column};")
                        with code.block("for (int64_t panel = 0; panel < PANELS; panel++)"):
                            code.line("const int64_t column = first_column(panel);")
                            moved = self.style.moved(row="pixel", column="column", channel="column", base=True)
                            weights = f"weights + {offset} + column * {depth}"
                            y = f"y + {p.y_offset} + pixel * Y_STRIDE + column"
                            self.panels.write_dispatch(
                                code,
                                f"phase_{index}_row",
                                f"x_row, {weights}, {y}{moved}, i_row{self.taller}{self.rows[index].argument}",
                            )
                    offset += depth * self.panels.padded


def _tile_pixels(width: int | None, most: int) -> int:
    return most if width is None else even_tile(width, most)


def transposed_rule(
    width: int | None, channels_out: int, kernel: tuple[int, int], merged: bool, cpu: Cpu
) -> TransposedPoint:
    """The point chosen without measuring.

    width: of the input row, about the pixels of a phase row; None where widths vary.
    """
    columns = channels_out * (kernel[1] if merged else 1)
    lanes = choose_lanes(columns, cpu)
    nv = choose_vectors(columns, lanes, cpu)
    most = most_rows(nv, cpu)
    return TransposedPoint(lanes=lanes, mr=_tile_pixels(width, most), nv=nv, contraction=Contraction.FUSED)


def transposed_points(
    width: int | None, channels_out: int, kernel: tuple[int, int], merged: bool, cpu: Cpu
) -> tuple[TransposedPoint, ...]:
    """The search space, the rule's point first."""
    first = transposed_rule(width, channels_out, kernel, merged, cpu)
    columns = channels_out * (kernel[1] if merged else 1)
    points = [first]
    for lanes in (16, 8) if cpu.has_avx512 else (cpu.native_lanes,):
        for nv in (3, 4, 2, 1):
            if nv <= ceil_div(columns, lanes):
                most = most_rows(nv, cpu)
                mr = _tile_pixels(width, most)
                points.append(TransposedPoint(lanes=lanes, mr=mr, nv=nv, contraction=Contraction.FUSED))
    return tuple(dict.fromkeys(points))
