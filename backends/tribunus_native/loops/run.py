"""Contiguous runs of elements of a length that only the call knows, or shorter than a vector.

Imported by: nest.  Imports: frame.

What is left behind the last whole vector is moved by one that ends where the run ends, or by two halves, quarters, ...
of a vector that meet or overlap where the run is shorter: no lane is tested.
"""

from __future__ import annotations

from tribunus.numerics.dtypes import DType
from tribunus_native.loops.ctypes import STORAGE
from tribunus_native.loops.frame import Frame


def copy_run(frame: Frame, dtype: DType, unroll: int) -> str:
    """Name of ``void f(const T *from, T *to, int64_t count)``.  unroll: vectors a turn."""
    widest = max(2, frame.lanes * 4 // dtype.itemsize)
    name = f"copy_run_{dtype.value}"
    return frame.helper(name, "\n".join((*_chunks(dtype, widest), *_run(name, dtype, widest, unroll))))


def _chunks(dtype: DType, widest: int) -> list[str]:
    """One function for each width of a vector, down to two elements."""
    storage, lines, width = STORAGE[dtype], list[str](), widest
    while width >= 2:
        memory = f"chunk_{dtype.value}_{width}"
        lines += [
            f"typedef {storage} {memory} __attribute__((ext_vector_type({width}), aligned({dtype.itemsize})));",
            f"INLINE void copy_{memory}(const {storage} *from, {storage} *to) {{",
            f"  *({memory} *)to = *(const {memory} *)from;",
            "}",
        ]
        width //= 2
    return lines


def _run(name: str, dtype: DType, widest: int, unroll: int) -> list[str]:
    storage, chunk = STORAGE[dtype], f"copy_chunk_{dtype.value}"
    whole = f"{chunk}_{widest}"
    lines = [
        f"INLINE void {name}(const {storage} *from, {storage} *to, int64_t count) {{",
        f"  if (count >= {widest}) {{",
        "    int64_t j = 0;",
    ]
    if unroll > 1:
        step = unroll * widest
        lines += [
            f"    for (; j + {step} <= count; j += {step})",
            f"      UNROLLED for (int64_t u = 0; u < {step}; u += {widest}) {whole}(from + j + u, to + j + u);",
        ]
    lines += [
        f"    for (; j + {widest} <= count; j += {widest}) {whole}(from + j, to + j);",
        f"    if (j < count) {whole}(from + count - {widest}, to + count - {widest});",
    ]
    width = widest // 2
    while width >= 2:
        lines += [
            f"  }} else if (count >= {width}) {{",
            f"    {chunk}_{width}(from, to);",
            f"    {chunk}_{width}(from + count - {width}, to + count - {width});",
        ]
        width //= 2
    return [*lines, "  } else if (count == 1) {", "    to[0] = from[0];", "  }", "}"]
