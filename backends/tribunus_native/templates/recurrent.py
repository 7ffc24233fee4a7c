"""LSTM and GRU over a whole sequence, input products included.

Imported by: the backend.  Imports: csource, tiles, vecmath.

First the input part of all time steps as one product into scratch (rows = time x batch), gates interleaved by blocks of
LANES hidden units: [block][gate][LANES].  Then step by step: the gate vectors of a block accumulate R*h over k, and
sigmoid, tanh and the state update happen in those registers.  Hidden units past H are zero columns.
Sum order of a gate: bias, input terms upward, recurrent terms upward.  Gate order: LSTM i o f c, GRU z r h.
Buffers: x, h0, c0; y, h_last, c_last; w, r, bias, candidate_bias; scratch.  Parts split the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

import numpy as np

from tribunus_native.templates.csource import (
    ENTRY,
    FLOAT_BYTES,
    UNROLL,
    Code,
    KernelSource,
    Param,
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
from tribunus_native.templates.panels import F32
from tribunus_native.templates.tiles import multiply, start_tile
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@unique
class Cell(Enum):
    LSTM = "LSTM"
    GRU = "GRU, reset after the product"  # linear_before_reset = 1
    GRU_RESET_FIRST = "GRU, reset before the product"  # linear_before_reset = 0

    @property
    def gates(self) -> int:
        return 4 if self is Cell.LSTM else 3


@unique
class Direction(Enum):
    FORWARD = "forward"
    REVERSE = "reverse"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentPoint:
    """One point of the search space; neither number changes a bit of the result."""

    lanes: int
    mr: int  # rows of an input tile
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentParams:
    """One direction of a recurrent layer.  x: [time][batch][inputs].

    y: ``[time * batch rows][y_stride] + y_offset`` (0: dense hidden floats), so that two directions can share a tensor.
    initial: whether h0 (and c0 for LSTM) are given, else they are zero.
    """

    cell: Cell
    time: Size
    batch: Size
    inputs: int
    hidden: int
    direction: Direction
    initial: bool
    point: RecurrentPoint
    avx512: bool
    y_stride: int = 0
    y_offset: int = 0


@dataclass(frozen=True, slots=True)
class PackedCell:
    """Weights as the kernel reads them, each a flat float32 array."""

    w: F32
    r: F32
    bias: F32
    candidate_bias: F32  # GRU, reset after the product: recurrent bias of the candidate; else one vector of zeros


def pack_recurrent(w: F32, r: F32, bias: F32 | None, params: RecurrentParams) -> PackedCell:
    """ONNX tensors of one direction: w [gates*H, I], r [gates*H, H], bias [2*gates*H] (input part, recurrent part)."""
    gates, hidden, lanes = params.cell.gates, params.hidden, params.point.lanes
    blocks = ceil_div(hidden, lanes)
    both = np.zeros((2, gates, hidden), dtype=np.float32) if bias is None else bias.reshape(2, gates, hidden)

    def interleave(matrix: F32) -> F32:
        """[gates*H, K] to [block][k][gate][lane]."""
        depth = matrix.shape[1]
        full = np.zeros((gates, blocks * lanes, depth), dtype=np.float32)
        full[:, :hidden] = matrix.reshape(gates, hidden, depth)
        return full.reshape(gates, blocks, lanes, depth).transpose(1, 3, 0, 2).ravel()

    total = both[0].astype(np.float64) + both[1]
    candidate = np.zeros(blocks * lanes, dtype=np.float32)
    if params.cell is Cell.GRU:
        total[2] = both[0, 2]
        candidate[:hidden] = both[1, 2]
    return PackedCell(
        w=interleave(w),
        r=interleave(r),
        bias=interleave(total.astype(np.float32).reshape(gates * hidden, 1)),
        candidate_bias=candidate,
    )


def recurrent(params: RecurrentParams) -> KernelSource:
    """The C text of one direction of one recurrent layer."""
    return _Recurrent(params).source()


class _Recurrent:
    def __init__(self, params: RecurrentParams) -> None:
        self.p = params
        self.code = Code()
        self.blocks = ceil_div(params.hidden, params.point.lanes)
        self.padded = self.blocks * params.point.lanes
        lstm = params.cell is Cell.LSTM
        slots = [Slot("x", Role.INPUT)]
        if params.initial:
            slots += [Slot("h0", Role.INPUT)] + ([Slot("c0", Role.INPUT)] if lstm else [])
        slots += [Slot("y", Role.OUTPUT), Slot("h_last", Role.OUTPUT)]
        if lstm:
            slots.append(Slot("c_last", Role.OUTPUT))
        slots += [Slot("w", Role.WEIGHT), Slot("r", Role.WEIGHT), Slot("bias", Role.WEIGHT)]
        if params.cell is Cell.GRU:
            slots.append(Slot("candidate_bias", Role.WEIGHT))
        slots.append(Slot("scratch", Role.WORKSPACE))
        self.buffers = ordered(slots)

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        title = f"{p.cell.value}, {p.inputs} inputs, {p.hidden} hidden, {p.direction.value}"
        vector_header(code, title, p.point.lanes)
        vecmath(code, frozenset({"vec_sigmoid", "vec_tanh"}), p.point.lanes, avx512=p.avx512)
        constants(code, {"TIME": p.time, "BATCH": p.batch})
        constant(code, "INPUTS", p.inputs)
        constant(code, "HIDDEN", p.hidden)
        constant(code, "BLOCKS", self.blocks, "of LANES hidden units")
        constant(code, "PADDED", self.padded)
        constant(code, "GATES", p.cell.gates)
        constant(code, "BLOCK", p.cell.gates * p.point.lanes, "floats of one block at one k")
        constant(code, "Y_STRIDE", p.y_stride or p.hidden)
        code.line("")
        heights = [p.point.mr]
        while heights[-1] > 1:
            heights.append(heights[-1] // 2)
        for rows in heights:
            self.input_tile(rows)
        self.input_part(heights)
        self.step()
        self.kernel()
        return KernelSource(code.result(), self.buffers, self.workspace())

    def workspace(self) -> Workspace:
        """State (h twice, c, r*h) and the input part of all steps of one batch entry."""
        p = self.p
        state = 4 * self.padded * FLOAT_BYTES
        each = p.cell.gates * self.padded * FLOAT_BYTES
        if isinstance(p.time, Param):
            return Workspace(state, ((p.time.index, each),))
        return Workspace(state + each * p.time)

    def input_tile(self, rows: int) -> None:
        """gates[t][block] = bias + x[t] @ w for so many time steps of one batch entry."""
        code, gates = self.code, self.p.cell.gates
        signature = "const float *restrict x, int64_t x_row, const float *restrict w, const float *restrict b0"
        with code.block(f"static inline void input_{rows}({signature}, float *restrict to)"):
            code.line(f"vec acc[{rows}][{gates}];")
            start_tile(code, rows, gates, "load(b0 + j * LANES)")
            with code.block("for (int64_t k = 0; k < INPUTS; k++, w += BLOCK)"):
                multiply(code, 0, rows, gates, "w", "x[i * x_row + k]")
            code.line(f"{UNROLL} for (int i = 0; i < {rows}; i++)")
            code.line(
                f"  {UNROLL} for (int j = 0; j < {gates}; j++) store(to + i * GATES * PADDED + j * LANES, acc[i][j]);"
            )
        code.line("")

    def input_part(self, heights: list[int]) -> None:
        code = self.code
        signature = "const float *x, int64_t x_row, int64_t steps, const float *w, const float *bias, float *to"
        with (
            code.block(f"static void input_part({signature})"),
            code.block("for (int64_t q = 0; q < BLOCKS; q++)"),
        ):
            code.line("const float *wq = w + q * INPUTS * BLOCK, *bq = bias + q * BLOCK;", "int64_t t = 0;")
            for rows in heights:
                code.line(f"for (; t + {rows} <= steps; t += {rows})")
                code.line(f"  input_{rows}(x + t * x_row, x_row, wq, bq, to + t * GATES * PADDED + q * BLOCK);")
        code.line("")

    def step(self) -> None:
        """One time step of one batch entry: gates (in), h, c, next h."""
        code, cell = self.code, self.p.cell
        if cell is Cell.LSTM:
            code.text("""
static void step(const float *restrict gates, const float *restrict r, const float *restrict h, float *restrict c,
                 float *restrict next) {
  for (int64_t q = 0; q < BLOCKS; q++) {
    const float *in = gates + q * BLOCK;
    vec i = load(in), o = load(in + LANES), f = load(in + 2 * LANES), g = load(in + 3 * LANES);
    for (int64_t k = 0; k < HIDDEN; k++, r += BLOCK) {
      const vec a = splat(h[k]);
      i += a * load(r);
      o += a * load(r + LANES);
      f += a * load(r + 2 * LANES);
      g += a * load(r + 3 * LANES);
    }
    const vec keep = vec_sigmoid(f) * load(c + q * LANES);
    const vec cell = vec_sigmoid(i) * vec_tanh(g) + keep;
    store(c + q * LANES, cell);
    store(next + q * LANES, vec_sigmoid(o) * vec_tanh(cell));
  }
}
""")
        elif cell is Cell.GRU:
            code.text("""
static void step(const float *restrict gates, const float *restrict r, const float *restrict candidate_bias,
                 const float *restrict h, float *restrict next) {
  for (int64_t q = 0; q < BLOCKS; q++) {
    const float *in = gates + q * BLOCK;
    vec z = load(in), reset = load(in + LANES), n = load(candidate_bias + q * LANES);
    for (int64_t k = 0; k < HIDDEN; k++, r += BLOCK) {
      const vec a = splat(h[k]);
      z += a * load(r);
      reset += a * load(r + LANES);
      n += a * load(r + 2 * LANES);
    }
    const vec update = vec_sigmoid(z);
    const vec candidate = vec_tanh(load(in + 2 * LANES) + vec_sigmoid(reset) * n);
    store(next + q * LANES, (1.0f - update) * candidate + update * load(h + q * LANES));
  }
}
""")
        else:
            code.text("""
// two passes: z and r of all units first, because the candidate needs r*h of every unit; z waits in gates
static void step(float *restrict gates, const float *restrict r, const float *restrict h, float *restrict reset_h,
                 float *restrict next) {
  for (int64_t q = 0; q < BLOCKS; q++) {
    float *in = gates + q * BLOCK;
    const float *rq = r + q * HIDDEN * BLOCK;
    vec z = load(in), reset = load(in + LANES);
    for (int64_t k = 0; k < HIDDEN; k++, rq += BLOCK) {
      const vec a = splat(h[k]);
      z += a * load(rq);
      reset += a * load(rq + LANES);
    }
    store(in, vec_sigmoid(z));
    store(reset_h + q * LANES, vec_sigmoid(reset) * load(h + q * LANES));
  }
  for (int64_t q = 0; q < BLOCKS; q++) {
    const float *in = gates + q * BLOCK;
    const float *rq = r + q * HIDDEN * BLOCK + 2 * LANES;
    vec n = load(in + 2 * LANES);
    for (int64_t k = 0; k < HIDDEN; k++, rq += BLOCK) n += splat(reset_h[k]) * load(rq);
    const vec update = load(in);
    store(next + q * LANES, (1.0f - update) * vec_tanh(n) + update * load(h + q * LANES));
  }
}
""")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        lstm = p.cell is Cell.LSTM
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"TIME": p.time, "BATCH": p.batch})
            code.line("float *const own = scratch + part * (4 + GATES * TIME) * PADDED;")
            code.line("float *const c = own + 2 * PADDED, *const reset_h = own + 3 * PADDED;")
            code.line("float *const gates = own + 4 * PADDED;")
            unused = [] if lstm else ["c"]
            if p.cell is not Cell.GRU_RESET_FIRST:
                unused.append("reset_h")
            code.line(" ".join(f"(void){name};" for name in unused))
            with code.block("for (int64_t b = part * BATCH / parts; b < (part + 1) * BATCH / parts; b++)"):
                code.line("float *h = own, *next = own + PADDED;")
                h0 = "k < HIDDEN ? h0[b * HIDDEN + k] : 0.0f" if p.initial else "0.0f"
                c0 = "k < HIDDEN ? c0[b * HIDDEN + k] : 0.0f" if p.initial else "0.0f"
                code.line(f"for (int64_t k = 0; k < PADDED; k++) h[k] = {h0};")
                if lstm:
                    code.line(f"for (int64_t k = 0; k < PADDED; k++) c[k] = {c0};")
                code.line("input_part(x + b * INPUTS, BATCH * INPUTS, TIME, w, bias, gates);")
                with code.block("for (int64_t s = 0; s < TIME; s++)"):
                    reverse = p.direction is Direction.REVERSE
                    code.line(f"const int64_t t = {'TIME - 1 - s' if reverse else 's'};")
                    extra = {
                        Cell.LSTM: "r, h, c, next",
                        Cell.GRU: "r, candidate_bias, h, next",
                        Cell.GRU_RESET_FIRST: "r, h, reset_h, next",
                    }[p.cell]
                    code.line(f"step(gates + t * GATES * PADDED, {extra});")
                    code.line(f"float *out = y + (t * BATCH + b) * Y_STRIDE + {p.y_offset};")
                    code.line("for (int64_t k = 0; k < HIDDEN; k++) out[k] = next[k];")
                    code.line("float *const swap = h;", "h = next;", "next = swap;")
                code.line("for (int64_t k = 0; k < HIDDEN; k++) h_last[b * HIDDEN + k] = h[k];")
                if lstm:
                    code.line("for (int64_t k = 0; k < HIDDEN; k++) c_last[b * HIDDEN + k] = c[k];")


def recurrent_rule(cell: Cell, hidden: int, cpu: Cpu) -> RecurrentPoint:
    """The point chosen without measuring."""
    lanes = cpu.native_lanes
    while lanes > 4 and hidden < lanes:
        lanes //= 2
    return RecurrentPoint(lanes=lanes, mr=4 if cpu.vector_registers == 32 else 2, contraction=Contraction.FUSED)


def recurrent_points(cell: Cell, hidden: int, cpu: Cpu) -> tuple[RecurrentPoint, ...]:
    """The search space, the rule's point first."""
    first = recurrent_rule(cell, hidden, cpu)
    others = [
        RecurrentPoint(lanes=lanes, mr=first.mr, contraction=c)
        for c in Contraction
        for lanes in dict.fromkeys((first.lanes, max(4, first.lanes // 2)))
    ]
    return tuple(dict.fromkeys((first, *others)))
