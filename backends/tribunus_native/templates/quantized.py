"""Integer products and convolutions: 8-bit x, 8-bit weights, exact int32 sums, then int32, requantised or float out.

Imported by: the backend.  Imports: conv (window), csource, epilogue, integer_dot, panels, vecmath.

sum_k (x[k] - x_zero) * (w[k] - w_zero) is exact in every mode, so all points give the same bits.
QUADS needs w_zero = 0 after the shift of u8 weights.
The int32 start holds what zero points and the shift of signed x add (see pack_quantized); a real bias is the shift.
A convolution first gathers the taps of one output row into scratch, padding as x_zero, so that padding is exact too.
Zero points are data: layers that differ in them alone share one kernel, which reads them once.
Buffers: x; y; weights, start, scale (not for INT32), shift (FLOAT32, and BYTES with a bias), zeros (x_zero and y_zero,
where padding or requantisation reads them); gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tribunus.errors import InternalError
from tribunus_native.templates.conv import Window
from tribunus_native.templates.csource import (
    ENTRY,
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
    ordered,
    vector_header,
)
from tribunus_native.templates.epilogue import Activate, Epilogue, Scalar, epilogue_functions, epilogue_lines
from tribunus_native.templates.integer_dot import (
    Byte,
    Dot,
    QuantizedPoint,
    Result,
    tile_heights,
    write_byte_store,
    write_dot,
    write_requantisation,
    write_tile,
)
from tribunus_native.templates.panels import Panels, kind_name
from tribunus_native.templates.vecmath import vecmath

I32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8] | npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedParams:
    """rows x k times k x n.  window: of a convolution (x is an image then, k = kh*kw*cin, rows = batch images).

    x_offset, y_offset: whether x and y have zero points other than 0.  y_offset, y_byte, biased: of Result.BYTES;
    biased: there is a shift.  epilogue: of Result.FLOAT32, steps without memory only.
    """

    rows: Size
    n: int
    k: int
    x_byte: Byte
    x_offset: bool
    result: Result
    point: QuantizedPoint
    avx512: bool
    window: Window | None = None
    y_offset: bool = False
    y_byte: Byte = Byte.U8
    biased: bool = False
    epilogue: Epilogue = ()

    @property
    def panels(self) -> Panels:
        return Panels(self.n, self.point.lanes, self.point.nv)

    @property
    def shifts(self) -> bool:
        """Whether a shift is added to the scaled sum."""
        return self.result is Result.FLOAT32 or (self.result is Result.BYTES and self.biased)

    @property
    def reads_zeros(self) -> bool:
        """Whether the kernel reads zero points beside those in the start."""
        return self.pads_with_zero or self.requantizes_around_zero

    @property
    def pads_with_zero(self) -> bool:
        """Whether absent taps have a zero point other than 0."""
        return self.x_offset and self.window is not None and any(self.window.pads)

    @property
    def requantizes_around_zero(self) -> bool:
        """Whether results have a zero point other than 0."""
        return self.y_offset and self.result is Result.BYTES

    @property
    def depth(self) -> int:
        """k rounded up to whole dot products; the rest of w is zero."""
        return self.point.dot.depth(self.k)

    @property
    def x_shift(self) -> int:
        """What the kernel adds to x: QUADS read it as unsigned."""
        return 128 if self.point.dot is Dot.QUADS and self.x_byte is Byte.S8 else 0


@dataclass(frozen=True, slots=True)
class PackedQuantized:
    """Weights as the kernel reads them (int8 for QUADS, else int16) and the int32 start of every sum."""

    weights: npt.NDArray[np.int8] | npt.NDArray[np.int16]
    start: I32


def pack_quantized(w: Bytes, w_zero: int, x_zero: int, bias: I32 | None, params: QuantizedParams) -> PackedQuantized:
    """W[K, N] with one zero point to [panel][k/dot][width][dot], and ``bias - x_zero * colsum`` per column."""
    dot = params.point.dot
    centred = np.zeros((params.depth, params.n), dtype=np.int64)
    centred[: params.k] = w.astype(np.int64) - w_zero
    if dot is Dot.QUADS and (centred.min() < -128 or centred.max() > 127):
        raise InternalError("weights minus their zero point do not fit 8 bits: this candidate needs Dot.PAIRS")
    start = -(x_zero + params.x_shift) * centred.sum(axis=0)
    if bias is not None:
        start = start + bias
    panels = params.panels
    kind = np.int8 if dot is Dot.QUADS else np.int16
    full = np.zeros((params.depth, panels.padded), dtype=kind)
    full[:, : params.n] = centred.astype(kind)
    parts = []
    first = 0
    for size in panels.vectors:
        width = size * panels.lanes
        block = full[:, first : first + width].reshape(-1, dot.value, width)
        parts.append(block.transpose(0, 2, 1).ravel())
        first += width
    padded = np.zeros(panels.padded, dtype=np.int64)
    padded[: params.n] = start
    wrapped = ((padded + 2**31) % 2**32 - 2**31).astype(np.int32)
    return PackedQuantized(weights=np.concatenate(parts), start=wrapped)


def quantized(params: QuantizedParams) -> KernelSource:
    """The C text of one integer product or convolution."""
    return _Quantized(params).source()


class _Quantized:
    def __init__(self, params: QuantizedParams) -> None:
        self.p = params
        self.code = Code()
        self.panels = params.panels
        self.dot = params.point.dot
        self.element = self.dot.x_type
        self.shift = f" + {params.x_shift}" if params.x_shift else ""
        self.y_type = {Result.INT32: "int32_t", Result.BYTES: params.y_byte.value, Result.FLOAT32: "float"}[
            params.result
        ]
        of_columns = {"scale": params.result is not Result.INT32, "shift": params.shifts}
        self.of_columns = [name for name, used in of_columns.items() if used]
        slots = [
            Slot("x", Role.INPUT, params.x_byte.value),
            Slot("y", Role.OUTPUT, self.y_type),
            Slot("weights", Role.WEIGHT, self.dot.w_type),
            Slot("start", Role.WEIGHT, "int32_t"),
            *(Slot(name, Role.WEIGHT) for name in self.of_columns),
        ]
        if params.reads_zeros:
            slots.append(Slot("zeros", Role.WEIGHT, "int32_t"))
        slots.append(Slot("gathered", Role.WORKSPACE, self.element))
        self.buffers = ordered(slots)
        w = params.window
        self.line = w.out_width if w is not None else params.point.mr  # rows gathered at a time
        self.gathered_bytes = ceil_div(self.line * params.depth * self.dot.element_bytes, 64) * 64
        self.heights = tile_heights(min(params.point.mr, self.line))

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        what = "product" if p.window is None else f"convolution {p.window}"
        vector_header(code, f"8-bit {what}, n {p.n}, k {p.k}, {p.result.value} out", p.point.lanes)
        vecmath(code, epilogue_functions(p.epilogue), p.point.lanes, avx512=p.avx512)
        write_dot(code, self.dot, p.point.lanes)
        constants(code, {"ROWS": p.rows})
        constant(code, "N", p.n)
        constant(code, "K", p.k)
        constant(code, "DEPTH", p.depth, "K in whole dot products")
        constant(code, "LINE", self.line, "rows gathered at a time")
        self.panels.write_constants(code)
        code.line("")
        for vectors, tail in self.panels.kinds:
            for rows in self.heights:
                self.tile(rows, vectors, tail)
            self.walk(vectors, tail)
        self.gather()
        self.kernel()
        return KernelSource(code.result(), self.buffers, Workspace(self.gathered_bytes))

    def tile(self, rows: int, vectors: int, tail: int) -> None:
        head = f"static inline void {kind_name(f'tile_{rows}', vectors, tail)}({self.signature()})"
        start, step = "*(const ivec_memory *)(start + j * LANES)", self.dot.value
        panel_step = str(vectors * self.p.point.lanes * step)
        with write_tile(self.code, head, rows, vectors, start=start, step=str(step), panel_step=panel_step):
            self.store(vectors, tail)

    def store(self, vectors: int, tail: int) -> None:
        p, code = self.p, self.code
        place = "y + i * N + j * LANES"
        count = f"(j == {vectors - 1} ? {tail} : LANES)" if tail else "LANES"
        lanes = f"{UNROLL} for (int lane = 0; lane < LANES; lane++) if (lane < {count}) ({place})[lane] = "
        if p.result is Result.INT32:
            code.line("const ivec z = acc[i][j];")
        elif p.result is Result.FLOAT32:
            code.line("vec z = __builtin_convertvector(acc[i][j], vec);")
            code.line("z = z * load(scale + j * LANES) + load(shift + j * LANES);")
            code.line(*epilogue_lines(p.epilogue, p.n, "i", "j * LANES", 0))
        else:
            shift = " + load(shift + j * LANES)" if p.shifts else ""
            scaled = f"__builtin_convertvector(acc[i][j], vec) * load(scale + j * LANES){shift}"
            write_requantisation(code, scaled, p.y_byte, around_zero=p.requantizes_around_zero)
        if not tail and p.result is not Result.BYTES:
            pointer = "ivec_memory" if p.result is Result.INT32 else "vec_memory"
            code.line(f"*({pointer} *)({place}) = z;")
        elif not tail:
            write_byte_store(code, place, p.y_byte, p.point.lanes)
        else:
            code.line(f"{lanes}({self.y_type})z[lane];")

    def signature(self) -> str:
        extra = "".join(f", const float *restrict {name}" for name in self.of_columns)
        extra += ", int32_t y_zero" if self.p.requantizes_around_zero else ""
        return (
            f"const {self.element} *restrict x, const {self.dot.w_type} *restrict w, const int32_t *restrict start, "
            f"{self.y_type} *restrict y{extra}"
        )

    def arguments(self, column: str) -> str:
        """What ``signature`` names behind y.  column: what is added to what each column has."""
        extra = "".join(f", {name}{column}" for name in self.of_columns)
        return f"{extra}, y_zero" if self.p.requantizes_around_zero else extra

    def walk(self, vectors: int, tail: int) -> None:
        code = self.code
        with code.block(f"static void {kind_name('panel', vectors, tail)}({self.signature()}, int64_t rows)"):
            code.line("int64_t i = 0;")
            for rows in self.heights:
                name = kind_name(f"tile_{rows}", vectors, tail)
                head = f"for (; i + {rows} <= rows; i += {rows})"
                code.line(f"{head} {name}(x + i * DEPTH, w, start, y + i * N{self.arguments('')});")
        code.line("")

    def gather(self) -> None:
        """x rows (or the taps of output pixels) as ``element``, DEPTH apart; QUADS shifts signed x by 128."""
        p, code = self.p, self.code
        value = f"({self.element})({{}}{self.shift})"
        w = p.window
        if w is None:
            with (
                code.block(f"static void gather(const {p.x_byte.value} *x, {self.element} *restrict to, int64_t rows)"),
                code.block("for (int64_t i = 0; i < rows; i++)"),
            ):
                code.line(f"for (int64_t k = 0; k < K; k++) to[i * DEPTH + k] = {value.format('x[i * K + k]')};")
                code.line("for (int64_t k = K; k < DEPTH; k++) to[i * DEPTH + k] = 0;")
            code.line("")
            return
        cin = p.k // (w.kernel[0] * w.kernel[1])
        zero = "absent" if p.pads_with_zero else value.format("0")
        absent = f", {self.element} absent" if p.pads_with_zero else ""
        head = f"static void gather(const {p.x_byte.value} *image, {self.element} *restrict to, int64_t top{absent})"
        with code.block(head), code.block("for (int64_t i = 0; i < LINE; i++)"):
            code.line(f"{self.element} *out = to + i * DEPTH;")
            with (
                code.block(f"for (int64_t h = 0; h < {w.kernel[0]}; h++)"),
                code.block(f"for (int64_t c = 0; c < {w.kernel[1]}; c++, out += {cin})"),
            ):
                code.line(f"const int64_t row = top + h * {w.dilation[0]};")
                code.line(f"const int64_t column = i * {w.stride[1]} - {w.pads[1]} + c * {w.dilation[1]};")
                code.line(f"const int inside = row >= 0 && row < {w.height} && column >= 0 && column < {w.width};")
                with code.block("if (inside)"):
                    code.line(f"const {p.x_byte.value} *from = image + (row * {w.width} + column) * {cin};")
                    code.line(f"for (int64_t k = 0; k < {cin}; k++) out[k] = {value.format('from[k]')};")
                with code.block("else"):
                    code.line(f"for (int64_t k = 0; k < {cin}; k++) out[k] = {zero};")
            code.line("for (int64_t k = K; k < DEPTH; k++) to[i * DEPTH + k] = 0;")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        w = p.window
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"ROWS": p.rows})
            code.line(f"{self.element} *const own = gathered + part * {self.gathered_bytes // self.dot.element_bytes};")
            if p.pads_with_zero:
                code.line(f"const {self.element} absent = ({self.element})(zeros[0]{self.shift});")
            if p.requantizes_around_zero:
                code.line("const int32_t y_zero = zeros[1];")
            if w is None:
                code.line("const int64_t lines = (ROWS + LINE - 1) / LINE;")
            else:
                code.line(f"const int64_t lines = ROWS * {w.out_height};")
            with code.block("for (int64_t l = part * lines / parts; l < (part + 1) * lines / parts; l++)"):
                if w is None:
                    code.line("const int64_t rows = ROWS - l * LINE < LINE ? ROWS - l * LINE : LINE;")
                    code.line("gather(x + l * LINE * K, own, rows);")
                else:
                    cin = p.k // (w.kernel[0] * w.kernel[1])
                    code.line("const int64_t rows = LINE;")
                    image = f"x + l / {w.out_height} * {w.height * w.width * cin}"
                    absent = ", absent" if p.pads_with_zero else ""
                    code.line(f"gather({image}, own, l % {w.out_height} * {w.stride[0]} - {w.pads[0]}{absent});")
                with code.block("for (int64_t panel = 0; panel < PANELS; panel++)"):
                    code.line("const int64_t column = first_column(panel);")
                    arguments = "own, weights + column * DEPTH, start + column, y + l * LINE * N + column"
                    arguments += f"{self.arguments(' + column')}, rows"
                    self.panels.write_dispatch(code, "panel", arguments)


def takes_epilogue(epilogue: Epilogue) -> bool:
    """Whether these steps can follow an integer product: those that read no memory."""
    return all(isinstance(step, Activate | Scalar) for step in epilogue)
