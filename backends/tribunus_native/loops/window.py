"""Windows over any number of spatial axes, of any size: conv, conv_integer, conv_transpose, max_pool, average_pool.

Imported by: stages.  Imports: frame, search (element access).

Vectors lie along output channels (pooling: channels).  Sum order: taps upward, input channels within a tap; what
lies outside of the image is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import INTEGER_RANGE
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.ctypes import STORAGE, compute_dtype, literal, splat, vector
from tribunus_native.loops.frame import Frame, Tensor, plus, times
from tribunus_native.loops.movement import copy
from tribunus_native.loops.search import value_at

Emitter = Callable[[Group, Op], None]
VECTORS = 4


@contextmanager
def _taps(
    frame: Frame, op: Op, out_at: list[str], kernel: tuple[Dim, ...], extents: tuple[Dim, ...], *, transposed: bool
) -> Iterator[tuple[list[str], list[str]]]:
    """Loops over the taps that lie inside; yields tap indices and input positions, one an axis."""
    code = frame.code
    strides, pads, dilations = (op.attributes.integers(k) for k in ("strides", "pads", "dilations"))
    with ExitStack() as stack:
        taps: list[str] = []
        places: list[str] = []
        for axis, count in enumerate(kernel):
            k, p = f"k{axis}", f"p{axis}"
            stack.enter_context(code.block(f"for (int64_t {k} = 0; {k} < {frame.c(count)}; {k}++)"))
            position = out_at[axis]
            if transposed:
                code.line(f"const int64_t s{axis} = {position} + {pads[axis]} - {k} * {dilations[axis]};")
                code.line(f"if (s{axis} < 0 || s{axis} % {strides[axis]} != 0) continue;")
                code.line(f"const int64_t {p} = s{axis} / {strides[axis]};")
                code.line(f"if ({p} >= {frame.c(extents[axis])}) continue;")
            else:
                start = plus(times(position, str(strides[axis])), f"{k} * {dilations[axis]}")
                code.line(f"const int64_t {p} = {start} - {pads[axis]};")
                code.line(f"if ({p} < 0 || {p} >= {frame.c(extents[axis])}) continue;")
            taps.append(k)
            places.append(p)
        yield taps, places


def _weights(group: Group, op: Op, order: tuple[int, ...]) -> Tensor:
    """The kernel with ``order`` from slowest to fastest."""
    value = op.inputs[1]
    if group.is_weight(value):
        return group.weight(value, Layout(order))
    source = group.tensor(value)
    target = group.frame.temp(source.dtype, source.shape, Layout(order))
    copy(group.frame, source, target)
    return target


def _conv(group: Group, op: Op) -> None:
    frame, code = group.frame, group.frame.code
    transposed, integer = op.kind == "conv_transpose", op.kind == "conv_integer"
    x, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    spatial = tuple(range(2, x.rank))
    w = _weights(group, op, (*spatial, 0, 1) if transposed else (*spatial, 1, 0))
    groups = op.attributes.integer("group")
    accumulator = DType.I32 if integer else compute_dtype(x.dtype)
    channels_in = dims.floordiv(x.shape[1], groups)
    channels_out = dims.floordiv(out.shape[1], groups)
    own = vector(accumulator)
    for tensor in (x, w, out):
        frame.dtypes.add(tensor.dtype)
    frame.dtypes.add(accumulator)
    bias = None if integer or len(op.inputs) < 3 or op.inputs[2] < 0 else group.tensor(op.inputs[2])
    x_zero = _scalar_zero(group, op, 2) if integer else ""
    w_zero = group.tensor(op.inputs[3]) if integer and len(op.inputs) > 3 and op.inputs[3] >= 0 else None
    out_axes = [(0, out.shape[0]), *((a, out.shape[a]) for a in spatial)]
    with frame.loops(out_axes, "o", out.rank) as at, frame.loop("g", groups) as g:
        in_base, out_base = times(g, frame.c(channels_in)), times(g, frame.c(channels_out))
        code.line("int64_t c = 0;")
        known = channels_out if isinstance(channels_out, int) else None

        def block(vectors: int, count: str) -> None:
            lanes_at = [f"c + {v} * LANES" if v else "c" for v in range(vectors)]
            for v, place in enumerate(lanes_at):
                start = splat(literal(0, accumulator), accumulator)
                if bias is not None:
                    start = _load(frame, bias, plus(out_base, place), "1", count)
                code.line(f"{own} acc{v} = {start};")
                if w_zero is not None and w_zero.rank == 1 and w_zero.shape[0] != 1:
                    zero = _load(frame, w_zero, plus(out_base, place), "1", count)
                    code.line(f"const {own} zero{v} = __builtin_convertvector({zero}, {own});")
                elif w_zero is not None:
                    code.line(f"const {own} zero{v} = ({own})(int32_t)(*{w_zero.pointer});")
            with _taps(frame, op, at[2:], w.shape[2:], x.shape[2:], transposed=transposed) as (taps, places):
                x_at = plus(x.pointer, frame.offset(x.strides, [at[0], in_base, *places]))
                code.line(f"const {STORAGE[x.dtype]} *const from = {x_at};")
                if transposed:
                    w_at = frame.offset(w.strides, [in_base, "c", *taps])
                    w_step = frame.c(w.strides[0])
                else:
                    w_at = frame.offset(w.strides, [f"({plus(out_base, 'c')})", "0", *taps])
                    w_step = frame.c(w.strides[1])
                code.line(f"const {STORAGE[w.dtype]} *row = {plus(w.pointer, w_at)};")
                with code.block(f"for (int64_t i = 0; i < {frame.c(channels_in)}; i++, row += {w_step})"):
                    element = value_at(frame, x, f"from[{times('i', frame.c(x.strides[1]))}]")
                    value = f"({STORAGE[accumulator]})({element}){x_zero}"
                    code.line(f"const {own} a = {splat(value, accumulator)};")
                    for v in range(vectors):
                        place = f"row + {v} * LANES" if v else "row"
                        weight = _load_at(frame, w.dtype, place, "1", count)
                        if integer:
                            weight = f"__builtin_convertvector({weight}, {own})"
                        if w_zero is not None:
                            weight = f"({weight} - zero{v})"
                        code.line(f"acc{v} += a * {weight};")
            for v, place in enumerate(lanes_at):
                target = plus(out.pointer, frame.offset(out.strides, [at[0], f"({plus(out_base, place)})", *at[2:]]))
                step = frame.c(out.strides[1])
                kind = out.dtype.value
                if count or step != "1":
                    code.line(f"store_part_{kind}({target}, {step}, {count or 'LANES'}, acc{v});")
                else:
                    code.line(f"store_{kind}({target}, acc{v});")

        limit = frame.c(channels_out)
        lanes = frame.lanes
        if known is None or known >= VECTORS * lanes:
            with code.block(f"for (; c + {VECTORS} * LANES <= {limit}; c += {VECTORS} * LANES)"):
                block(VECTORS, "")
        if known is None or known >= lanes:
            with code.block(f"for (; c + LANES <= {limit}; c += LANES)"):
                block(1, "")
        if known is None or known % lanes:
            with code.block(f"if (c < {limit})"):
                block(1, f"{limit} - c")


def _scalar_zero(group: Group, op: Op, position: int) -> str:
    if len(op.inputs) <= position or op.inputs[position] < 0:
        return ""
    return f" - *{group.tensor(op.inputs[position]).pointer}"


def _load_at(frame: Frame, dtype: DType, place: str, step: str, count: str) -> str:
    frame.dtypes.add(dtype)
    if count or step != "1":
        return f"load_part_{dtype.value}({place}, {step}, {count or 'LANES'})"
    return f"load_{dtype.value}({place})"


def _load(frame: Frame, tensor: Tensor, index: str, step: str, count: str) -> str:
    return _load_at(frame, tensor.dtype, plus(tensor.pointer, index), step, count)


def _pool(group: Group, op: Op) -> None:
    frame, code = group.frame, group.frame.code
    x, out = group.tensor(op.inputs[0]), group.result(op.outputs[0])
    kernel = op.attributes.integers("kernel")
    maximum = op.kind == "max_pool"
    dtype = compute_dtype(x.dtype)
    own, kind = vector(dtype), out.dtype.value
    frame.dtypes.update((x.dtype, out.dtype))
    if maximum:
        lowest = float("-inf") if dtype.is_float else INTEGER_RANGE[dtype][0]
        start = splat(literal(lowest, dtype), dtype)
    else:
        start = splat(literal(0, dtype), dtype)
    spatial = tuple(range(2, x.rank))
    with frame.loops([(0, out.shape[0]), *((a, out.shape[a]) for a in spatial)], "o", out.rank) as at:
        if not maximum:
            _count(frame, op, at[2:], x.shape[2:])
        channels = frame.c(x.shape[1])
        known = x.shape[1] if isinstance(x.shape[1], int) else None

        def block(count: str) -> None:
            code.line(f"{own} acc = {start};")
            with _taps(frame, op, at[2:], kernel, x.shape[2:], transposed=False) as (_, places):
                place = plus(x.pointer, frame.offset(x.strides, [at[0], "c", *places]))
                code.line(f"const {own} t = {_load_at(frame, x.dtype, place, frame.c(x.strides[1]), count)};")
                if maximum:
                    better = "acc > t ? acc : t"
                    code.line(f"acc = acc != acc ? acc : ({better});" if dtype.is_float else f"acc = {better};")
                else:
                    code.line("acc += t;")
            target = plus(out.pointer, frame.offset(out.strides, [at[0], "c", *at[2:]]))
            step = frame.c(out.strides[1])
            value = "acc" if maximum else f"acc / ({STORAGE[dtype]})taps"
            if count or step != "1":
                code.line(f"store_part_{kind}({target}, {step}, {count or 'LANES'}, {value});")
            else:
                code.line(f"store_{kind}({target}, {value});")

        code.line("int64_t c = 0;")
        if known is None or known >= frame.lanes:
            with code.block(f"for (; c + LANES <= {channels}; c += LANES)"):
                block("")
        if known is None or known % frame.lanes:
            with code.block(f"if (c < {channels})"):
                block(f"{channels} - c")


def _count(frame: Frame, op: Op, at: list[str], extents: tuple[Dim, ...]) -> None:
    """``taps``: what an average divides by."""
    strides, pads, dilations = (op.attributes.integers(k) for k in ("strides", "pads", "dilations"))
    kernel, padded = op.attributes.integers("kernel"), op.attributes.flag("count_include_pad")
    frame.helper("taps_inside", _TAPS)
    n = len(kernel)
    frame.code.line("int64_t taps = 1;")
    for axis in range(n):
        start = f"{times(at[axis], str(strides[axis]))} - {pads[axis]}"
        low = -pads[axis] if padded else 0
        high = plus(frame.c(extents[axis]), str(pads[n + axis])) if padded else frame.c(extents[axis])
        frame.code.line(f"taps *= taps_inside({start}, {kernel[axis]}, {dilations[axis]}, {low}, {high});")


_TAPS = """
INLINE int64_t taps_inside(int64_t start, int64_t kernel, int64_t dilation, int64_t low, int64_t high) {
  int64_t count = 0;
  for (int64_t k = 0; k < kernel; k++) count += start + k * dilation >= low && start + k * dilation < high;
  return count;
}
"""

EMITTERS: Mapping[str, Emitter] = {
    "conv": _conv,
    "conv_integer": _conv,
    "conv_transpose": _conv,
    "max_pool": _pool,
    "average_pool": _pool,
}
