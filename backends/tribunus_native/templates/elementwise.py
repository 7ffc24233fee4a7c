"""Elementwise chains over rows of channels: y = steps(x), dense or strided.

Imported by: the backend.  Imports: csource, epilogue, vecmath.

The steps are those of every epilogue.  A chain that is dense and treats all channels alike is one run of
rows * channels elements (``is_flat``), so a plain map with a symbolic extent is that many rows of 1.
Buffers: x, tensors; y; vectors of ScaleShift (padded to a multiple of lanes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
from tribunus_native.templates.epilogue import (
    Combine,
    Epilogue,
    Scalar,
    ScaleShift,
    WithTensor,
    epilogue_functions,
    epilogue_lines,
    epilogue_slots,
)
from tribunus_native.templates.panels import F32
from tribunus_native.templates.tiles import TileStyle
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPoint:
    """One point of the search space; lanes does not change a bit of the result."""

    lanes: int
    unroll: int  # vectors per turn
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class MapParams:
    """A chain over ``rows`` rows of ``channels`` floats; strides are floats from row to row (0: dense)."""

    rows: Size
    channels: int
    steps: Epilogue
    point: MapPoint
    avx512: bool
    x_stride: int = 0
    x_offset: int = 0
    y_stride: int = 0
    y_offset: int = 0

    @property
    def is_flat(self) -> bool:
        """Whether rows do not matter: everything dense and nothing per channel."""
        strided = self.x_stride or self.x_offset or self.y_stride or self.y_offset
        tensors = any(isinstance(s, WithTensor) and (s.stride or s.offset) for s in self.steps)
        return not strided and not tensors and not any(isinstance(s, ScaleShift) for s in self.steps)


def pack_channels(vector: F32, point: MapPoint) -> F32:
    """Scale or shift, zero padded to a multiple of lanes."""
    full = np.zeros(ceil_div(vector.size, point.lanes) * point.lanes, dtype=np.float32)
    full[: vector.size] = vector
    return full


def elementwise(params: MapParams) -> KernelSource:
    """The C text of one chain."""
    p, code = params, Code()
    buffers = ordered([Slot("x", Role.INPUT), Slot("y", Role.OUTPUT), *epilogue_slots(p.steps)])
    vector_header(
        code, f"elementwise chain, rows of {p.channels}", p.point.lanes, tuple(f"then {step}" for step in p.steps)
    )
    vecmath(code, epilogue_functions(p.steps), p.point.lanes, avx512=p.avx512)
    constants(code, {"ROWS": p.rows})
    constant(code, "CHANNELS", p.channels)
    code.line("")
    style = TileStyle(lanes=p.point.lanes, channels=p.channels, bias=False, epilogue=p.steps, y_stride="")
    pointers = style.parameters().replace("restrict ", "")
    for name, count in (("vectors", p.point.unroll), ("vector", 1)):
        if name == "vector" or count > 1:
            with (
                code.block(f"INLINE void {name}(const float *x, float *y, int64_t c{pointers})"),
                code.block(f"{UNROLL} for (int u = 0; u < {count}; u++)"),
            ):
                code.line("vec z = load(x + c + u * LANES);")
                code.line(*epilogue_lines(p.steps, p.channels, "0", "c + u * LANES", 0))
                code.line("store(y + c + u * LANES, z);")
    with code.block(f"INLINE void rest(const float *x, float *y, int64_t c, int64_t count{pointers})"):
        code.line("vec z = load_part(x + c, count, 1.0f);")
        code.line(*epilogue_lines(p.steps, p.channels, "0", "c", "count"))
        code.line("store_part(y + c, z, count);")
    arguments = style.moved(row="", column="", channel="", base=False)
    with code.block(f"static void chain(const float *x, float *y, int64_t count{pointers})"):
        code.line("int64_t c = 0;")
        if p.point.unroll > 1:
            step = p.point.unroll * p.point.lanes
            code.line(f"for (; c + {step} <= count; c += {step}) vectors(x, y, c{arguments});")
        code.line(f"for (; c + LANES <= count; c += LANES) vector(x, y, c{arguments});")
        code.line(f"if (c < count) rest(x, y, c, count - c{arguments});")
    code.line("")
    with code.block(ENTRY):
        bind_buffers(code, buffers)
        bind_sizes(code, {"ROWS": p.rows})
        if p.is_flat:
            code.line("// dense and the same for every channel: one run, split at multiples of LANES")
            code.line("const int64_t total = ROWS * CHANNELS, blocks = (total + LANES - 1) / LANES;")
            code.line("const int64_t first = part * blocks / parts * LANES;")
            code.line("int64_t last = (part + 1) * blocks / parts * LANES;")
            code.line("if (last > total) last = total;")
            moved = style.moved(row="", column="first", channel="", base=False)
            code.line(f"if (first < last) chain(x + first, y + first, last - first{moved});")
        else:
            with code.block("for (int64_t r = part * ROWS / parts; r < (part + 1) * ROWS / parts; r++)"):
                moved = style.moved(row="r", column="0", channel="", base=True)
                x = f"x + {p.x_offset} + r * {p.x_stride or p.channels}"
                y = f"y + {p.y_offset} + r * {p.y_stride or p.channels}"
                code.line(f"chain({x}, {y}, CHANNELS{moved});")
    return KernelSource(code.result(), buffers)


def map_rule(channels: int, steps: Epilogue, cpu: Cpu) -> MapPoint:
    """The point chosen without measuring."""
    heavy = bool(epilogue_functions(steps)) or any(
        isinstance(s, WithTensor | Scalar) and s.combine is Combine.POWER for s in steps
    )
    return MapPoint(lanes=cpu.native_lanes, unroll=1 if heavy else 4, contraction=Contraction.FUSED)


def map_points(channels: int, steps: Epilogue, cpu: Cpu) -> tuple[MapPoint, ...]:
    """The search space, the rule's point first."""
    first = map_rule(channels, steps, cpu)
    others = [MapPoint(lanes=first.lanes, unroll=u, contraction=c) for c in Contraction for u in (1, 2, 4)]
    return tuple(dict.fromkeys((first, *others)))
