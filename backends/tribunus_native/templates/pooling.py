"""Max and average pooling, channels last; global pooling is a window as large as the image.

Imported by: the backend.  Imports: conv (window), csource, epilogue, vecmath.

Max: NaN wins over every number.  Average: sum over the window rows and columns upward, divided by the count; the count
includes padding only if asked.  Buffers: x, tensors; y; vectors of ScaleShift (padded to a multiple of lanes).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

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
    constant,
    constants,
    ordered,
    vector_header,
)
from tribunus_native.templates.epilogue import Epilogue, epilogue_functions, epilogue_lines, epilogue_slots
from tribunus_native.templates.tiles import TileStyle
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@unique
class Pool(Enum):
    MAX = "max"
    AVERAGE = "average"  # padding not counted
    AVERAGE_PADDED = "average, padding counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPoint:
    """One point of the search space; neither number changes a bit of the result."""

    lanes: int
    vectors: int  # channel vectors held in registers
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolParams:
    """One pooling; strides are floats from pixel to pixel.  out: rows and columns, None for the window's own count.

    With ceil mode the caller gives ``out`` or ``extents``; windows are then clipped at the padded edge for the padded
    count too.
    """

    batch: Size
    window: Window
    channels: int
    pool: Pool
    point: PoolPoint
    avx512: bool
    out: tuple[int, int] | None = None
    epilogue: Epilogue = ()
    x_stride: int = 0
    x_offset: int = 0
    y_stride: int = 0
    y_offset: int = 0
    extents: Extents | None = None


def pooling(params: PoolParams) -> KernelSource:
    """The C text of one pooling."""
    p, w, code = params, params.window, Code()
    out_height, out_width = p.out or (w.out_height, w.out_width)
    x_stride, y_stride = p.x_stride or p.channels, p.y_stride or p.channels
    buffers = ordered([Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), *epilogue_slots(p.epilogue)])
    size = "x".join(map(str, w.kernel))
    title = f"{p.pool.value} pool {size}, {w.height}x{w.width}x{p.channels} -> {out_height}x{out_width}"
    detail = f"stride {w.stride}, pads {w.pads}, dilation {w.dilation}"
    vector_header(code, title, p.point.lanes, (detail, *(f"then {step}" for step in p.epilogue)))
    vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
    sizes: dict[str, Size] = {"BATCH": p.batch, **image_sizes(w, p.extents)}
    if p.extents is None:
        sizes |= {"OUT_HEIGHT": out_height, "OUT_WIDTH": out_width}
    constants(code, sizes)
    constant(code, "CHANNELS", p.channels)
    constant(code, "X_STRIDE", x_stride, "floats from pixel to pixel")
    code.line("")
    style = TileStyle(lanes=p.point.lanes, channels=p.channels, bias=False, epilogue=p.epilogue, y_stride="")
    moves = p.extents is not None and not isinstance(p.extents.width, int)
    width = ", WIDTH" if moves else ""
    tail = p.channels % p.point.lanes
    group = p.point.vectors * p.point.lanes
    blocks = [p.point.vectors] if p.channels >= group else []
    if 1 not in blocks and p.channels % group >= p.point.lanes:
        blocks.append(1)
    kinds = [(count, 0) for count in blocks] + ([(1, tail)] if tail else [])
    for count, part in kinds:
        _window(code, p, style, count, part, moves)
    with code.block(ENTRY):
        bind_buffers(code, buffers)
        bind_sizes(code, sizes)
        code.line("const int64_t rows = BATCH * OUT_HEIGHT;")
        code.line("const int64_t row_first = part * rows / parts, row_last = (part + 1) * rows / parts;")
        with each_row(code):
            _span(code, "h", f"out_row * {w.stride[0]} - {w.pads[0]}", w.dilation[0], w.kernel[0], "HEIGHT")
            code.line(f"const float *from = x + {p.x_offset} + image * HEIGHT * WIDTH * X_STRIDE;")
            with code.block("for (int64_t o = 0; o < OUT_WIDTH; o++)"):
                _span(code, "w", f"o * {w.stride[1]} - {w.pads[1]}", w.dilation[1], w.kernel[1], "WIDTH")
                code.line("const int64_t pixel = r * OUT_WIDTH + o;")
                if p.pool is Pool.AVERAGE_PADDED:
                    _counted(code, "h", w.dilation[0], w.kernel[0], f"HEIGHT + {w.pads[2]}")
                    _counted(code, "w", w.dilation[1], w.kernel[1], f"WIDTH + {w.pads[3]}")
                    code.line("const float count = (float)(h_counted * w_counted);")
                elif p.pool is Pool.AVERAGE:
                    code.line("const float count = (float)((h_last - h_first) * (w_last - w_first));")
                else:
                    code.line("const float count = 0.0f;  // not used by a maximum")
                code.line("int64_t c = 0;")
                for vectors, part in kinds:
                    moved = style.moved(row="pixel", column="c", channel="c", base=True)
                    name = f"window_{vectors}{'_tail' if part else ''}"
                    arguments = (
                        "from + (h_start * WIDTH + w_start) * X_STRIDE + c, h_first, h_last, w_first, w_last, count, "
                        f"y + {p.y_offset} + pixel * {y_stride} + c{moved}{width}"
                    )
                    if part:
                        code.line(f"{name}({arguments});")
                    else:
                        step = vectors * p.point.lanes
                        code.line(f"for (; c + {step} <= CHANNELS; c += {step}) {name}({arguments});")
    return KernelSource(code.result(), buffers)


def _span(code: Code, axis: str, start: str, step: int, kernel: int, limit: str) -> None:
    """``axis_first..axis_last``: window positions inside the image."""
    code.line(f"const int64_t {axis}_start = {start};")
    code.line(f"const int64_t {axis}_first = {axis}_start < 0 ? (-{axis}_start + {step - 1}) / {step} : 0;")
    code.line(f"int64_t {axis}_last = {axis}_start < {limit} ? ({limit} - {axis}_start + {step - 1}) / {step} : 0;")
    code.line(f"if ({axis}_last > {kernel}) {axis}_last = {kernel};")


def _counted(code: Code, axis: str, step: int, kernel: int, limit: str) -> None:
    """Window positions inside the padded image."""
    code.line(f"int64_t {axis}_counted = ({limit} - {axis}_start + {step - 1}) / {step};")
    code.line(f"if ({axis}_counted > {kernel}) {axis}_counted = {kernel};")


def _window(code: Code, p: PoolParams, style: TileStyle, vectors: int, tail: int, moves: bool) -> None:
    """One output pixel, ``vectors`` channel vectors."""
    maximum = p.pool is Pool.MAX
    signature = (
        "const float *x, int64_t h_first, int64_t h_last, int64_t w_first, int64_t w_last, float count, "
        f"float *restrict y{style.parameters()}{', int64_t WIDTH' if moves else ''}"
    )
    each = f"{UNROLL} for (int j = 0; j < {vectors}; j++)"
    start = "splat(-__builtin_inff())" if maximum else "splat(0.0f)"
    step_h, step_w = p.window.dilation
    with code.block(f"static inline void window_{vectors}{'_tail' if tail else ''}({signature})"):
        code.line(f"vec acc[{vectors}];", f"{each} acc[j] = {start};")
        with (
            code.block("for (int64_t h = h_first; h < h_last; h++)"),
            code.block("for (int64_t w = w_first; w < w_last; w++)"),
        ):
            code.line(f"const float *from = x + (h * {step_h} * WIDTH + w * {step_w}) * X_STRIDE;")
            with code.block(each):
                code.line(f"const vec t = {f'load_part(from, {tail}, 0.0f)' if tail else 'load(from + j * LANES)'};")
                if maximum:
                    # keeps acc only where it is NaN or not below t; a NaN in t fails the comparison and is taken
                    code.line("acc[j] = ((acc[j] >= t) | (acc[j] != acc[j])) ? acc[j] : t;")
                else:
                    code.line("acc[j] += t;")
        with code.block(each):
            code.line("vec z = acc[j];" if maximum else "vec z = acc[j] / count;")
            code.line(*epilogue_lines(p.epilogue, p.channels, "0", "j * LANES", tail))
            code.line(f"store_part(y, z, {tail});" if tail else "store(y + j * LANES, z);")
    code.line("")


def pool_rule(channels: int, cpu: Cpu) -> PoolPoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    while lanes > 4 and channels < lanes:
        lanes //= 2
    return PoolPoint(lanes=lanes, vectors=4 if channels >= 4 * lanes else 1, contraction=Contraction.FUSED)


def pool_points(channels: int, cpu: Cpu) -> tuple[PoolPoint, ...]:
    """The search space, the rule's point first."""
    first = pool_rule(channels, cpu)
    others = [PoolPoint(lanes=first.lanes, vectors=v, contraction=Contraction.FUSED) for v in (4, 2, 1)]
    return tuple(dict.fromkeys((first, *(q for q in others if channels >= q.vectors * q.lanes))))
