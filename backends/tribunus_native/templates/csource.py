"""What every template shares: the text writer, sizes, buffer slots, the vector header, row tiling.

Imported by: the other templates, the backend.  Imports: nothing of the project.

A template is a pure function from one frozen dataclass to a KernelSource.  Sizes that are numbers become named
constants of the C text; symbolic sizes arrive as ``params[index]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, unique
from typing import TypeAlias

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Param:
    """A size known only at the call: ``params[index]`` of the kernel."""

    index: int


Size: TypeAlias = "int | Param"


@unique
class Role(Enum):
    """Order of the groups in ``buffers``; inside a group the order is that of KernelSource.buffers."""

    INPUT = "input"
    OUTPUT = "output"
    WEIGHT = "weight"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of ``buffers``.  name: what the template calls it.  c_type: the element type in the C text."""

    name: str
    role: Role
    c_type: str = "float"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch bytes of one call: ``parts * (fixed_bytes + sum(bytes_per * params[index]))``, 64-byte aligned."""

    fixed_bytes: int = 0
    per_param: tuple[tuple[int, int], ...] = ()  # (params index, bytes per unit)

    def bytes_for(self, params: tuple[int, ...], parts: int) -> int:
        return parts * (self.fixed_bytes + sum(each * params[index] for index, each in self.per_param))


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A template's answer: the C text and what the caller must pass, in the order of ``buffers``."""

    text: str
    buffers: tuple[Slot, ...]
    workspace: Workspace = Workspace()


class Code:
    """Indented C text, written top to bottom."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, *texts: str) -> None:
        for text in texts:
            self._lines.append("  " * self._depth + text if text else "")

    def text(self, block: str) -> None:
        """Ready-made lines, indented as they stand."""
        for each in block.strip("\n").split("\n"):
            self.line(each)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    def result(self) -> str:
        return "\n".join(self._lines) + "\n"


ENTRY = (
    '__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(\n'
    "    void *const *buffers, const int64_t *params, int64_t part, int64_t parts)"
)
UNROLL = "UNROLLED"  # written by vector_header: what precedes a loop over registers
ROLLED = "ROLLED"


def ceil_div(value: int, step: int) -> int:
    return -(-value // step)


def c_float(value: float) -> str:
    """A C literal that reads back as the float32 nearest to ``value``."""
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return "-__builtin_inff()" if value < 0 else "__builtin_inff()"
    text = f"{value:.9g}"
    if not any(mark in text for mark in ".e"):
        text += ".0"
    return text + "f"


def constant(code: Code, name: str, value: int, meaning: str = "") -> None:
    code.line(f"constexpr int64_t {name} = {value};" + (f"  // {meaning}" if meaning else ""))


def bind_sizes(code: Code, sizes: dict[str, Size]) -> None:
    """Inside the kernel: names for the symbolic sizes (numbers were written by ``constants``)."""
    for name, size in sizes.items():
        if isinstance(size, Param):
            code.line(f"const int64_t {name} = params[{size.index}];")


def constants(code: Code, sizes: dict[str, Size]) -> None:
    """At file scope: names for the sizes that are numbers."""
    for name, size in sizes.items():
        if isinstance(size, int):
            constant(code, name, size)


def bind_buffers(code: Code, buffers: tuple[Slot, ...]) -> None:
    for index, slot in enumerate(buffers):
        writable = slot.role in (Role.OUTPUT, Role.WORKSPACE)
        qualifier = "" if writable else "const "
        code.line(f"{qualifier}{slot.c_type} *const {slot.name} = buffers[{index}];  // {slot.role.value}")


def ordered(slots: list[Slot]) -> tuple[Slot, ...]:
    """Inputs, outputs, weights, workspace; the order inside each group is kept."""
    return tuple(slot for role in Role for slot in slots if slot.role is role)


def vector_header(code: Code, title: str, lanes: int, lines: tuple[str, ...] = ()) -> None:
    """Opening comment, vector types of ``lanes`` float32, loads and stores."""
    code.line(f"// {title}")
    for each in lines:
        code.line(f"// {each}")
    halves = []
    width = lanes
    expression = "x"
    while width > 2:
        width //= 2
        low = ", ".join(str(q) for q in range(width))
        high = ", ".join(str(q + width) for q in range(width))
        name = f"half{width}"
        halves.append(
            f"  const float __attribute__((ext_vector_type({width}))) {name} = "
            f"__builtin_shufflevector({expression}, {expression}, {low}) + "
            f"__builtin_shufflevector({expression}, {expression}, {high});"
        )
        expression = name
    code.line(
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#define INLINE static inline __attribute__((always_inline))",
        '#define UNROLLED _Pragma("clang loop unroll(full)")',
        '#define ROLLED _Pragma("clang loop unroll(disable)")',
        "",
        f"constexpr int64_t LANES = {lanes};",
        f"typedef float vec __attribute__((ext_vector_type({lanes})));",
        f"typedef float vec_memory __attribute__((ext_vector_type({lanes}), aligned(4)));",
        f"typedef int32_t ivec __attribute__((ext_vector_type({lanes})));",
        "",
        "INLINE vec load(const float *from) { return *(const vec_memory *)from; }",
        "INLINE void store(float *to, vec x) { *(vec_memory *)to = x; }",
        "INLINE vec splat(float x) { return (vec)(x); }",
        "// the first `count` lanes only (0 < count < LANES); other lanes read as `fill`",
        "INLINE vec load_part(const float *from, int64_t count, float fill) {",
        "  vec x = splat(fill);",
        f"  {UNROLL} for (int lane = 0; lane < LANES; lane++) if (lane < count) x[lane] = from[lane];",
        "  return x;",
        "}",
        "INLINE void store_part(float *to, vec x, int64_t count) {",
        f"  {UNROLL} for (int lane = 0; lane < LANES; lane++) if (lane < count) to[lane] = x[lane];",
        "}",
        "// lanes added by halving: the order of the sum depends on LANES only",
        "INLINE float sum_lanes(vec x) {",
        *halves,
        f"  return {expression}[0] + {expression}[1];",
        "}",
        "INLINE float max_lanes(vec x) {",
        "  float best = x[0];",
        f"  {UNROLL} for (int lane = 1; lane < LANES; lane++) best = best < x[lane] ? x[lane] : best;",
        "  return best;",
        "}",
        "",
    )


def even_tiles(count: int, most: int) -> tuple[tuple[int, int], ...]:
    """``count`` items in the fewest tiles of at most ``most``, sizes as even as possible: ((size, how many), ...)."""
    tiles = ceil_div(count, most)
    small, large_count = divmod(count, tiles)
    runs = [(small + 1, large_count), (small, tiles - large_count)]
    return tuple((size, many) for size, many in runs if many and size)


def panel_vectors(vectors: int, most: int) -> tuple[int, ...]:
    """Vectors per panel, as even as possible, wide panels first: 6 by 4 gives (3, 3), never (4, 2)."""
    return tuple(size for size, many in even_tiles(vectors, most) for _ in range(many))
