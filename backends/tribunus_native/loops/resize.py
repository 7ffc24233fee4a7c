"""Resize: nearest, linear and cubic along any axes, in every coordinate mode.

Imported by: stages.  Imports: frame, nest.

Positions and weights of an axis are tables, computed in double at the start of the call.  A row of the innermost axis
that does not change is blended as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE, compute_dtype, literal
from tribunus_native.loops.frame import Frame, Tensor, plus, times
from tribunus_native.loops.search import value_at

Emitter = Callable[[Group, Op], None]
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def _table(frame: Frame, op: Op, axis: int, source: Tensor, out: Tensor) -> tuple[str, str]:
    """Workspace with the input index and the weight of every tap of every output position."""
    code, mode = frame.code, op.attributes.text("mode")
    taps = _TAPS[mode]
    extent, size = frame.c(source.shape[axis]), frame.c(out.shape[axis])
    entries = dims.mul(out.shape[axis], taps)
    index = frame.space("int64_t", 8, entries, "index")
    weight = frame.space("float", 4, entries, "weight") if taps > 1 else ""
    scale = literal(op.attributes.f32s("scales")[axis], DType.F64)
    coordinate = {
        "asymmetric": f"(double)o / {scale}",
        "align_corners": f"{size} > 1 ? (double)o * ({extent} - 1) / ({size} - 1) : 0.0",
        "pytorch_half_pixel": f"{size} == 1 ? 0.0 : ((double)o + 0.5) / {scale} - 0.5",
        "half_pixel": f"((double)o + 0.5) / {scale} - 0.5",
    }[op.attributes.text("coordinate")]
    with code.block(f"for (int64_t o = 0; o < {size}; o++)"):
        code.line(f"const double at = {coordinate};")
        if mode == "nearest":
            picked = {
                "floor": "__builtin_floor(at)",
                "round_prefer_ceil": "__builtin_floor(at + 0.5)",
                "ceil": "__builtin_ceil(at)",
                "round_prefer_floor": "__builtin_ceil(at - 0.5)",
            }[op.attributes.text("nearest")]
            code.line(f"const int64_t i = (int64_t){picked};")
            code.line(f"{index}[o] = i < 0 ? 0 : i >= {extent} ? {extent} - 1 : i;")
            return index, weight
        first = 0 if mode == "linear" else -1
        code.line("const double base = __builtin_floor(at), t = at - base, s = 1.0 - t;")
        if mode == "linear":
            code.line("double w[2] = {s, t};")
        else:
            a = literal(op.attributes.f32("cubic_a"), DType.F64)
            code.line(f"const double a = {a};")
            code.line("double w[4];")
            code.line("w[0] = ((a * (1 + t) - 5 * a) * (1 + t) + 8 * a) * (1 + t) - 4 * a;")
            code.line("w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;")
            code.line("w[2] = ((a + 2) * s - (a + 3)) * s * s + 1;")
            code.line("w[3] = ((a * (1 + s) - 5 * a) * (1 + s) + 8 * a) * (1 + s) - 4 * a;")
        if op.attributes.flag("exclude_outside"):
            code.line("double total = 0.0;")
            with code.block(f"for (int k = 0; k < {taps}; k++)"):
                code.line(f"const int64_t i = (int64_t)base + k + {first};")
                code.line(f"if (i < 0 || i >= {extent}) w[k] = 0.0;", "total += w[k];")
            code.line(f"for (int k = 0; k < {taps}; k++) w[k] /= total;")
        with code.block(f"for (int k = 0; k < {taps}; k++)"):
            code.line(f"const int64_t i = (int64_t)base + k + {first};")
            code.line(f"{index}[o * {taps} + k] = i < 0 ? 0 : i >= {extent} ? {extent} - 1 : i;")
            code.line(f"{weight}[o * {taps} + k] = (float)w[k];")
    return index, weight


def _resize(group: Group, op: Op) -> None:
    frame, code = group.frame, group.frame.code
    mode = op.attributes.text("mode")
    taps = _TAPS[mode]
    source, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    scales = op.attributes.f32s("scales")
    changed = [a for a in range(out.rank) if source.shape[a] != out.shape[a] or scales[a] != 1.0]
    tables = {axis: _table(frame, op, axis, source, out) for axis in changed}
    top = frame.scope.optimum()
    order = sorted(range(out.rank), key=lambda a: -dims.evaluate(out.strides[a], top))
    moved = mode == "nearest"
    if moved:
        source, out = source.raw(), out.raw()
    dtype = compute_dtype(source.dtype)
    wide = "double" if dtype is DType.F64 or (dtype.itemsize > 2 and not dtype.is_float) else "float"
    frame.dtypes.add(out.dtype)
    at = [f"o{a}" for a in range(out.rank)]
    with ExitStack() as stack:
        # taps of an axis are read once for each of its positions, outside of the loops further in
        for axis in order:
            stack.enter_context(
                code.block(f"for (int64_t o{axis} = 0; o{axis} < {frame.c(out.shape[axis])}; o{axis}++)")
            )
            if axis in tables:
                index, weight = tables[axis]
                for k in range(taps):
                    step = times(f"{index}[o{axis} * {taps} + {k}]", frame.c(source.strides[axis]))
                    code.line(f"const int64_t i{axis}_{k} = {step};")
                    if not moved:
                        code.line(f"const {wide} w{axis}_{k} = {weight}[o{axis} * {taps} + {k}];")
        terms: list[str] = []
        for choice in itertools.product(range(taps), repeat=len(changed)):
            fixed = [times(at[a], frame.c(source.strides[a])) for a in range(out.rank) if a not in tables]
            place = plus(*fixed, *(f"i{a}_{k}" for a, k in zip(changed, choice, strict=True)))
            value = value_at(frame, source, f"{source.pointer}[{place}]")
            factors = "" if moved else "".join(f"w{a}_{k} * " for a, k in zip(changed, choice, strict=True))
            terms.append(f"{factors}{value if moved else f'({wide}){value}'}")
        if moved:
            code.line(f"{frame.at(out, at)} = {terms[0]};")
            return
        code.line(f"{wide} total = {terms[0]};", *(f"total += {term};" for term in terms[1:]))
        text = "total"
        if not out.dtype.is_float:
            text = "__builtin_roundeven(total)" if wide == "double" else "__builtin_roundevenf(total)"
        stored = "to_bf16(splat(total))[0]" if out.dtype is DType.BF16 else f"({STORAGE[out.dtype]}){text}"
        code.line(f"{frame.at(out, at)} = {stored};")


EMITTERS: Mapping[str, Emitter] = {"resize": _resize}
