"""The register tile that gemm, conv, winograd and transposed share: start, multiply, store, and its pointers.

Imported by: those templates.  Imports: csource, epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus_native.templates.csource import UNROLL, Code
from tribunus_native.templates.epilogue import (
    Epilogue,
    WithTensor,
    epilogue_arguments,
    epilogue_lines,
    tensor_stride,
)


@dataclass(frozen=True, slots=True)
class TileStyle:
    """What all tiles of one kernel agree on.  channels: of the output tensor, the default stride of tensors."""

    lanes: int
    channels: int
    bias: bool
    epilogue: Epilogue
    y_stride: str  # C expression, floats from row to row of y

    @property
    def extra(self) -> list[tuple[str, str]]:
        """(name, kind) of the pointers that a tile takes beside x, w, y."""
        return ([("bias", "channel")] if self.bias else []) + epilogue_arguments(self.epilogue)

    def parameters(self) -> str:
        return "".join(f", const float *restrict {name}" for name, _ in self.extra)

    def moved(self, *, row: str, column: str, channel: str, base: bool) -> str:
        """The extra pointers as arguments, moved by C expressions ("" for no move).

        row: rows, of tensors.  column: channels, of tensors.  channel: padded channels, of bias, scale and shift.
        base: add each tensor's own offset, done once, where the pointers come from ``buffers``.
        """
        steps = {f"tensor{i}": step for i, step in enumerate(self.epilogue) if isinstance(step, WithTensor)}
        out = ""
        for name, kind in self.extra:
            moves = [name]
            if kind == "tensor":
                step = steps[name]
                if row:
                    moves.append(f"({row}) * {tensor_stride(step, self.channels)}")
                if column:
                    moves.append(column)
                if base and step.offset:
                    moves.append(str(step.offset))
            elif channel:
                moves.append(channel)
            out += ", " + " + ".join(moves)
        return out


def start_tile(code: Code, rows: int, vectors: int, start: str) -> None:
    """acc[i][j] = start, an expression in i and j."""
    code.line(f"{UNROLL} for (int i = 0; i < {rows}; i++)")
    code.line(f"  {UNROLL} for (int j = 0; j < {vectors}; j++) acc[i][j] = {start};")


def multiply(code: Code, first: int, last: int, vectors: int, weights: str, value: str) -> None:
    """One k: acc[i][j] += value(i) * weights[j] for rows first..last-1."""
    each_vector = f"{UNROLL} for (int j = 0; j < {vectors}; j++)"
    code.line(f"vec b[{vectors}];", f"{each_vector} b[j] = load({weights} + j * LANES);")
    with code.block(f"{UNROLL} for (int i = {first}; i < {last}; i++)"):
        code.line(f"const vec a = splat({value});", f"{each_vector} acc[i][j] += a * b[j];")


def store_tile(
    code: Code, style: TileStyle, rows: int, vectors: int, tail: int, epilogue: Epilogue, row: str = "i"
) -> None:
    """Epilogue and store of every row; the last vector of a tail panel by lanes that exist.

    row: C expression in i, the row of y and of the tensors where tile row i goes.
    """
    full = vectors - 1 if tail else vectors
    with code.block(f"{UNROLL} for (int i = 0; i < {rows}; i++)"):
        if full:
            with code.block(f"{UNROLL} for (int j = 0; j < {full}; j++)"):
                code.line("vec z = acc[i][j];")
                code.line(*epilogue_lines(epilogue, style.channels, row, "j * LANES", 0))
                code.line(f"store(y + ({row}) * {style.y_stride} + j * LANES, z);")
        if tail:
            code.line(f"vec z = acc[i][{full}];")
            code.line(*epilogue_lines(epilogue, style.channels, row, str(full * style.lanes), tail))
            code.line(f"store_part(y + ({row}) * {style.y_stride} + {full * style.lanes}, z, {tail});")


def write_transpose(code: Code, lanes: int) -> None:
    """Function transpose(from, stride, to, to_stride): LANES x LANES, in registers.

    Each round interleaves the first half of the rows with the second.
    """
    low = ", ".join(f"{i}, {i + lanes}" for i in range(lanes // 2))
    high = ", ".join(f"{i + lanes // 2}, {i + lanes // 2 + lanes}" for i in range(lanes // 2))
    with code.block("static inline void transpose(const float *from, int64_t stride, float *to, int64_t to_stride)"):
        code.line("vec a[LANES], b[LANES];")
        code.line(f"{UNROLL} for (int i = 0; i < LANES; i++) a[i] = load(from + i * stride);")
        rounds = lanes.bit_length() - 1
        for index in range(rounds):
            old, new = ("a", "b") if index % 2 == 0 else ("b", "a")
            with code.block(f"{UNROLL} for (int i = 0; i < LANES / 2; i++)"):
                half = f"{old}[i + LANES / 2]"
                code.line(f"{new}[2 * i] = __builtin_shufflevector({old}[i], {half}, {low});")
                code.line(f"{new}[2 * i + 1] = __builtin_shufflevector({old}[i], {half}, {high});")
        last = "b" if rounds % 2 else "a"
        code.line(f"{UNROLL} for (int i = 0; i < LANES; i++) store(to + i * to_stride, {last}[i]);")
    code.line("")
