"""Copies that exchange the fastest axis: square blocks in registers, of 8-byte elements in a small cache block.

Imported by: movement.  Imports: frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus.phaseir import dims
from tribunus_native.loops.ctypes import STORAGE
from tribunus_native.loops.frame import Frame, Tensor, plus, times

BLOCK = 16
_NARROW = (1, 2)
"""Bytes of elements of which a row of a block is narrower than the kernel's vectors."""


def _inner(tensor: Tensor) -> int | None:
    """The axis along which elements are neighbours."""
    return next((a for a in range(tensor.rank) if tensor.strides[a] == 1 and tensor.shape[a] != 1), None)


def transposes(source: Tensor, out: Tensor) -> bool:
    """Whether reading and writing run along different axes, both long enough to be cut into blocks."""
    a, b = _inner(source), _inner(out)
    if a is None or b is None or a == b or source.strides[b] == 0:
        return False
    return all(not isinstance(out.shape[x], int) or int(str(out.shape[x])) >= 4 for x in (a, b))


def emit_transpose(frame: Frame, source: Tensor, out: Tensor) -> None:
    """Copy ``source`` to ``out`` (same shape, different fastest axes)."""
    along, across = _inner(source), _inner(out)
    if along is None or across is None:
        return
    code = frame.code
    source, out = source.raw(), out.raw()
    c_type = STORAGE[out.dtype]
    size = BLOCK
    block = _Block("transpose_block", "float", "vec", BLOCK)
    registers = out.dtype.itemsize in _NARROW
    if registers:
        block = _Block(f"transpose_block_{out.dtype.value}", c_type, f"row_{out.dtype.value}", BLOCK)
        rows_of = f"typedef {c_type} {{}} __attribute__((ext_vector_type({BLOCK}){{}}));"
        types = (rows_of.format(block.vector, ""), rows_of.format(block.memory, f", aligned({out.dtype.itemsize})"))
        frame.helper(block.name, "\n".join((*types, _block_text(block))))
    elif out.dtype.itemsize == 4 and frame.lanes <= BLOCK:
        registers, size = True, frame.lanes
        block = _Block("transpose_block", "float", "vec", frame.lanes)
        frame.helper(block.name, _block_text(block))
    top = frame.scope.optimum()
    others = [x for x in range(out.rank) if x not in (along, across) and out.shape[x] != 1]
    others.sort(key=lambda x: -dims.evaluate(out.strides[x], top))
    rows, columns = frame.c(out.shape[along]), frame.c(out.shape[across])
    to_step, from_step = frame.c(out.strides[along]), frame.c(source.strides[across])
    r, c = frame.name("r"), frame.name("c")
    with code.block(""), frame.loops([(x, out.shape[x]) for x in others], "t", out.rank, split=False) as indices:
        place = plus(source.pointer, *(times(indices[x], frame.c(source.strides[x])) for x in others))
        code.line(f"const {c_type} *const from = {place};")
        place = plus(out.pointer, *(times(indices[x], frame.c(out.strides[x])) for x in others))
        code.line(f"{c_type} *const to = {place};")
        share = "0" if not frame.parallel else f"part * (({rows} + {size - 1}) / {size}) / parts * {size}"
        end = rows if not frame.parallel else f"(part + 1) * (({rows} + {size - 1}) / {size}) / parts * {size}"
        with code.block(f"for (int64_t {r} = {share}; {r} < {end} && {r} < {rows}; {r} += {size})"):
            code.line(f"const int64_t r_end = {r} + {size} < {rows} ? {r} + {size} : {rows};")
            with code.block(f"for (int64_t {c} = 0; {c} < {columns}; {c} += {size})"):
                code.line(f"const int64_t c_end = {c} + {size} < {columns} ? {c} + {size} : {columns};")
                if registers:
                    with code.block(f"if (r_end - {r} == {size} && c_end - {c} == {size})"):
                        head = f"(const {block.element} *)(from + {r} + {times(c, from_step)}), {from_step}"
                        tail = f"({block.element} *)(to + {times(r, to_step)} + {c}), {to_step}"
                        code.line(f"{block.name}({head}, {tail});", "continue;")
                code.line(f"for (int64_t i = {r}; i < r_end; i++)")
                element = f"to[{times('i', to_step)} + k] = from[i + {times('k', from_step)}]"
                code.line(f"  for (int64_t k = {c}; k < c_end; k++) {element};")


@dataclass(frozen=True, slots=True)
class _Block:
    """A square of elements in registers, one vector a row."""

    name: str
    element: str
    vector: str
    lanes: int

    @property
    def memory(self) -> str:
        """The vector type at any address of an element."""
        return f"{self.vector}_memory"


def _block_text(block: _Block) -> str:
    """Rounds of interleaving the first half of the rows with the second."""
    lanes, vector, element = block.lanes, block.vector, block.element
    low = ", ".join(f"{i}, {i + lanes}" for i in range(lanes // 2))
    high = ", ".join(f"{i + lanes // 2}, {i + lanes // 2 + lanes}" for i in range(lanes // 2))
    rounds = lanes.bit_length() - 1
    each = f"UNROLLED for (int i = 0; i < {lanes}; i++)"
    lines = [
        f"INLINE void {block.name}(const {element} *from, int64_t from_step, {element} *to, int64_t to_step) {{",
        f"  {vector} a[{lanes}], b[{lanes}];",
        f"  {each} a[i] = *(const {block.memory} *)(from + i * from_step);",
    ]
    for index in range(rounds):
        old, new = ("a", "b") if index % 2 == 0 else ("b", "a")
        half = f"{old}[i + {lanes // 2}]"
        lines += [
            f"  UNROLLED for (int i = 0; i < {lanes // 2}; i++) {{",
            f"    {new}[2 * i] = __builtin_shufflevector({old}[i], {half}, {low});",
            f"    {new}[2 * i + 1] = __builtin_shufflevector({old}[i], {half}, {high});",
            "  }",
        ]
    last = "b" if rounds % 2 else "a"
    lines += [f"  {each} *({block.memory} *)(to + i * to_step) = {last}[i];", "}"]
    return "\n".join(lines)
