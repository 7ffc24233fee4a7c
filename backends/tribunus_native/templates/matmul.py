"""Batched product of two activations: y[b] = steps(x[b] @ w[b]), every size possibly symbolic.

Imported by: the backend.  Imports: csource, epilogue, gemm (rules), tiles, vecmath.

The second operand is packed at run time, one panel of NV vectors at a time, into scratch; then all rows of x stream
past it.  Sum order: one chain over k upward from zero, whatever the point.  Parts divide batch entries times panels.
Buffers: x [batch][rows][k]; w [batch][k][n] or [batch][n][k]; y [batch][rows][n]; packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

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
    constants,
    even_tiles,
    vector_header,
)
from tribunus_native.templates.epilogue import (
    Activate,
    Epilogue,
    Scalar,
    epilogue_functions,
    epilogue_lines,
)
from tribunus_native.templates.gemm import choose_lanes, choose_vectors, most_rows
from tribunus_native.templates.tiles import multiply, start_tile, write_transpose
from tribunus_native.templates.vecmath import vecmath
from tribunus_native.toolchain import Contraction, Cpu


@unique
class Second(Enum):
    """How the second operand lies in memory."""

    ROWS_OF_N = "[k][n]"
    ROWS_OF_K = "[n][k]"  # x @ w^T


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulPoint:
    """One point of the search space; no number changes a bit of the result."""

    lanes: int
    mr: int
    nv: int
    contraction: Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulParams:
    """All operands dense.  shared: one w for all batch entries.  steps: those that read no memory."""

    batch: Size
    rows: Size
    n: Size
    k: Size
    second: Second
    shared: bool
    point: MatmulPoint
    avx512: bool
    steps: Epilogue = ()


def takes_steps(steps: Epilogue) -> bool:
    """Whether these steps can follow a product of activations."""
    return all(isinstance(step, Activate | Scalar) for step in steps)


def matmul(params: MatmulParams) -> KernelSource:
    """The C text of one batched product."""
    return _Matmul(params).source()


class _Matmul:
    def __init__(self, params: MatmulParams) -> None:
        self.p = params
        self.code = Code()
        self.width = params.point.nv * params.point.lanes
        if isinstance(params.rows, int):
            self.heights = [size for size, _ in even_tiles(params.rows, params.point.mr)]
        else:
            self.heights = [params.point.mr]
            while self.heights[-1] > 1:
                self.heights.append(self.heights[-1] // 2)
        self.buffers = (
            Slot("x", Role.INPUT),
            Slot("w", Role.INPUT),
            Slot("y", Role.OUTPUT),
            Slot("packed", Role.WORKSPACE),
        )

    def source(self) -> KernelSource:
        p, code = self.p, self.code
        title = f"batched product, second operand {p.second.value}{', shared' if p.shared else ''}"
        vector_header(code, title, p.point.lanes, tuple(f"then {step}" for step in p.steps))
        vecmath(code, epilogue_functions(p.steps), p.point.lanes, avx512=p.avx512)
        constants(code, {"BATCH": p.batch, "ROWS": p.rows, "N": p.n, "K": p.k})
        code.line(f"constexpr int64_t WIDTH = {self.width};  // columns of a panel", "")
        for rows in self.heights:
            self.tile(rows)
        self.pack()
        self.kernel()
        each = self.width * FLOAT_BYTES
        if isinstance(p.k, Param):
            return KernelSource(code.result(), self.buffers, Workspace(0, ((p.k.index, each),)))
        return KernelSource(code.result(), self.buffers, Workspace(each * p.k))

    def tile(self, rows: int) -> None:
        """acc[rows][nv] over all of k; ``columns`` of the panel exist."""
        p, code, vectors = self.p, self.code, self.p.point.nv
        signature = "const float *restrict x, const float *restrict w, float *restrict y, int64_t n, int64_t k_count"
        with code.block(f"static inline void tile_{rows}({signature}, int64_t columns)"):
            code.line(f"vec acc[{rows}][{vectors}];")
            start_tile(code, rows, vectors, "splat(0.0f)")
            with code.block("for (int64_t k = 0; k < k_count; k++, w += WIDTH)"):
                multiply(code, 0, rows, vectors, "w", "x[i * k_count + k]")
            with (
                code.block(f"{UNROLL} for (int i = 0; i < {rows}; i++)"),
                code.block(f"{UNROLL} for (int j = 0; j < {vectors}; j++)"),
            ):
                code.line("vec z = acc[i][j];")
                code.line(*epilogue_lines(p.steps, 0, "i", "j * LANES", 0))
                code.line("const int64_t left = columns - j * LANES;")
                code.line("if (left >= LANES) store(y + i * n + j * LANES, z);")
                code.line("else if (left > 0) store_part(y + i * n + j * LANES, z, left);")
        code.line("")

    def pack(self) -> None:
        """Columns of w as [k][WIDTH], absent columns as 0."""
        code = self.code
        by_k = self.p.second is Second.ROWS_OF_K
        if by_k:
            write_transpose(code, self.p.point.lanes)
        head = "static void pack(const float *w, int64_t n, int64_t k_count, int64_t columns, float *restrict to)"
        with code.block(head):
            if by_k:
                code.text("""
const int64_t k_blocks = k_count / LANES * LANES, blocks = columns / LANES * LANES;
for (int64_t j = 0; j < blocks; j += LANES)
  for (int64_t k = 0; k < k_blocks; k += LANES)
    transpose(w + j * k_count + k, k_count, to + k * WIDTH + j, WIDTH);
for (int64_t j = 0; j < columns; j++)
  for (int64_t k = j < blocks ? k_blocks : 0; k < k_count; k++) to[k * WIDTH + j] = w[j * k_count + k];
for (int64_t k = 0; k < k_count; k++)
  for (int64_t j = columns; j < WIDTH; j++) to[k * WIDTH + j] = 0.0f;
(void)n;
""")
            else:
                code.text("""
for (int64_t k = 0; k < k_count; k++) {
  int64_t j = 0;
  for (; j + LANES <= columns; j += LANES) store(to + k * WIDTH + j, load(w + k * n + j));
  for (; j < columns; j++) to[k * WIDTH + j] = w[k * n + j];
  for (; j < WIDTH; j++) to[k * WIDTH + j] = 0.0f;
}
""")
        code.line("")

    def kernel(self) -> None:
        p, code = self.p, self.code
        with code.block(ENTRY):
            bind_buffers(code, self.buffers)
            bind_sizes(code, {"BATCH": p.batch, "ROWS": p.rows, "N": p.n, "K": p.k})
            code.line("float *const own = packed + part * (K * WIDTH);")
            code.line("const int64_t panels = (N + WIDTH - 1) / WIDTH, all = BATCH * panels;")
            with code.block("for (int64_t u = part * all / parts; u < (part + 1) * all / parts; u++)"):
                code.line("const int64_t b = u / panels, column = u % panels * WIDTH;")
                code.line("const int64_t columns = N - column < WIDTH ? N - column : WIDTH;")
                entry = "w" if p.shared else "w + b * K * N"
                step = "column * K" if p.second is Second.ROWS_OF_K else "column"
                code.line(f"pack({entry} + {step}, N, K, columns, own);")
                code.line("const float *const rows = x + b * ROWS * K;")
                code.line("float *const out = y + b * ROWS * N + column;")
                code.line("int64_t i = 0;")
                if isinstance(p.rows, int):
                    end = 0
                    for size, many in even_tiles(p.rows, p.point.mr):
                        end += size * many
                        code.line(f"for (; i < {end}; i += {size}) {self.call(size)}")
                else:
                    for size in self.heights:
                        code.line(f"for (; i + {size} <= ROWS; i += {size}) {self.call(size)}")

    def call(self, size: int) -> str:
        return f"tile_{size}(rows + i * K, own, out + i * N, N, K, columns);"


def matmul_rule(rows: Size, n: Size, cpu: Cpu) -> MatmulPoint:
    """The point chosen without measuring."""
    lanes = choose_lanes(n, cpu) if isinstance(n, int) else cpu.native_lanes
    wide = 2 if cpu.vector_registers == 16 else 4
    nv = choose_vectors(n, lanes, cpu) if isinstance(n, int) else wide
    most = most_rows(nv, cpu)
    mr = ceil_div(rows, ceil_div(rows, most)) if isinstance(rows, int) else most
    return MatmulPoint(lanes=lanes, mr=mr, nv=nv, contraction=Contraction.FUSED)


def matmul_points(rows: Size, n: Size, cpu: Cpu) -> tuple[MatmulPoint, ...]:
    """The search space, the rule's point first."""
    first = matmul_rule(rows, n, cpu)
    points = [first]
    for contraction in Contraction:
        for lanes in (16, 8) if cpu.has_avx512 else (cpu.native_lanes,):
            for nv in (3, 4, 2, 1):
                most = most_rows(nv, cpu)
                for height in (most, max(1, most // 2)):
                    mr = ceil_div(rows, ceil_div(rows, height)) if isinstance(rows, int) else height
                    points.append(MatmulPoint(lanes=lanes, mr=mr, nv=nv, contraction=contraction))
    return tuple(dict.fromkeys(points))
