"""LSTM and GRU, step by step, all directions, with sequence lengths: what the template does not take.

Imported by: stages.  Imports: frame.

Weights lie [direction][input][gate rows], so that vectors run along gate rows.  Sum order of a gate: both biases, input
terms upward, recurrent terms upward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tribunus.phaseir import dims
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Op
from tribunus_native.loops.context import Group
from tribunus_native.loops.frame import Frame, Tensor, plus

Emitter = Callable[[Group, Op], None]
_FUNCTIONS = ("vec_sigmoid", "vec_tanh")


def _columns(group: Group, value: int) -> Tensor:
    """[direction, rows, inputs] with rows fastest."""
    return group.weight(value, Layout((0, 2, 1))) if group.is_weight(value) else group.tensor(value)


def _recurrent(group: Group, op: Op) -> None:
    frame, code, lstm = group.frame, group.frame.code, op.kind == "lstm"
    gates, hidden = (4 if lstm else 3), op.attributes.integer("hidden")
    given = [*op.inputs, *([-1] * 7)]
    x, w, r = group.tensor(given[0]), _columns(group, given[1]), _columns(group, given[2])
    bias, lengths, h0 = (None if v < 0 else group.tensor(v) for v in given[3:6])
    c0 = group.tensor(given[6]) if lstm and given[6] >= 0 else None
    results = [group.result(v) for v in op.outputs]
    y, last_h = results[0], results[1]
    last_c = results[2] if lstm else None
    frame.functions.update(_FUNCTIONS)
    direction = op.attributes.text("direction")
    count = 2 if direction == "bidirectional" else 1
    width = gates * hidden
    padded = -(-width // 16) * 16 + 64
    gate = frame.space("float", 4, padded, "gate")
    extra = frame.space("float", 4, padded, "extra")
    state = frame.space("float", 4, padded, "h")
    reset = frame.space("float", 4, padded, "reset")
    cell = frame.space("float", 4, padded, "c")
    steps, batch, inputs = x.shape
    frame.helper("accumulate", _ACCUMULATE)
    frame.helper("each_gate", _EACH)
    with code.block(f"for (int64_t d = 0; d < {count}; d++)"):
        backward = {"forward": "0", "reverse": "1", "bidirectional": "d"}[direction]
        with code.block(f"for (int64_t b = 0; b < {frame.c(batch)}; b++)"):
            length = frame.c(steps) if lengths is None else frame.at(lengths, ["b"])
            code.line(f"const int64_t length = {length};")
            with code.block(f"for (int64_t k = 0; k < {hidden}; k++)"):
                code.line(f"{state}[k] = {'0.0f' if h0 is None else frame.at(h0, ['d', 'b', 'k'])};")
                if lstm:
                    code.line(f"{cell}[k] = {'0.0f' if c0 is None else frame.at(c0, ['d', 'b', 'k'])};")
            with code.block(f"for (int64_t step = 0; step < {frame.c(steps)}; step++)"):
                with code.block("if (step >= length)"):
                    place = frame.at(y, ["step", "d", "b", "k"])
                    code.line(f"for (int64_t k = 0; k < {hidden}; k++) {place} = 0.0f;", "continue;")
                code.line(f"const int64_t t = {backward} ? length - 1 - step : step;")
                recurrent = "" if bias is None else f" + {frame.at(bias, ['d', f'{width} + k'])}"
                start = "0.0f" if bias is None else frame.at(bias, ["d", "k"])
                split = not lstm
                code.line(f"for (int64_t k = 0; k < {width}; k++) {gate}[k] = {start}{'' if split else recurrent};")
                if split:
                    second = "0.0f" if bias is None else frame.at(bias, ["d", f"{width} + k"])
                    code.line(f"for (int64_t k = 0; k < {width}; k++) {extra}[k] = {second};")
                _product(frame, gate, width, x, ["t", "b"], w, inputs, 0)
                if lstm:
                    _vector(frame, gate, state, r, hidden, 0, width)
                    code.line(f"lstm_step({gate}, {state}, {cell}, {hidden});")
                else:
                    first = 2 * hidden
                    after = op.attributes.flag("linear_before_reset")
                    _vector(frame, extra, state, r, hidden, 0, width if after else first)
                    code.line(f"for (int64_t k = 0; k < {first}; k++) {gate}[k] += {extra}[k];")
                    code.line(f"sigmoid_all({gate}, {first});")
                    if after:
                        value = f"{gate}[{hidden} + k] * {extra}[{first} + k]"
                        code.line(f"for (int64_t k = 0; k < {hidden}; k++) {gate}[{first} + k] += {value};")
                    else:
                        code.line(
                            f"for (int64_t k = 0; k < {hidden}; k++) {reset}[k] = {gate}[{hidden} + k] * {state}[k];"
                        )
                        _vector(frame, extra, reset, r, hidden, first, hidden)
                        code.line(
                            f"for (int64_t k = 0; k < {hidden}; k++) {gate}[{first} + k] += {extra}[{first} + k];"
                        )
                    code.line(f"tanh_all({gate} + {first}, {hidden});")
                    mixed = f"(1.0f - {gate}[k]) * {gate}[{first} + k] + {gate}[k] * {state}[k]"
                    code.line(f"for (int64_t k = 0; k < {hidden}; k++) {state}[k] = {mixed};")
                code.line(f"for (int64_t k = 0; k < {hidden}; k++) {frame.at(y, ['t', 'd', 'b', 'k'])} = {state}[k];")
            code.line(f"for (int64_t k = 0; k < {hidden}; k++) {frame.at(last_h, ['d', 'b', 'k'])} = {state}[k];")
            if last_c is not None:
                code.line(f"for (int64_t k = 0; k < {hidden}; k++) {frame.at(last_c, ['d', 'b', 'k'])} = {cell}[k];")


def _product(
    frame: Frame, target: str, width: int, x: Tensor, at: list[str], w: Tensor, inputs: dims.Dim, first: int
) -> None:
    """target[rows] += sum over inputs of w[d, rows, input] * x[t, b, input]."""
    with frame.code.block(f"for (int64_t i = 0; i < {frame.c(inputs)}; i++)"):
        row = plus(w.pointer, frame.offset(w.strides, ["d", str(first), "i"]))
        step = frame.c(w.strides[1])
        frame.code.line(f"accumulate({target}, {row}, {step}, {frame.at(x, [*at, 'i'])}, {width});")


def _vector(frame: Frame, target: str, vector: str, r: Tensor, hidden: int, first: int, width: int) -> None:
    """target[first .. first + width] += r[d, rows, k] * vector[k]."""
    with frame.code.block(f"for (int64_t i = 0; i < {hidden}; i++)"):
        row = plus(r.pointer, frame.offset(r.strides, ["d", str(first), "i"]))
        frame.code.line(f"accumulate({target} + {first}, {row}, {frame.c(r.strides[1])}, {vector}[i], {width});")


_ACCUMULATE = """
INLINE void accumulate(float *restrict to, const float *restrict row, int64_t step, float x, int64_t count) {
  if (step == 1) for (int64_t k = 0; k < count; k++) to[k] += row[k] * x;
  else for (int64_t k = 0; k < count; k++) to[k] += row[k * step] * x;
}
"""
_EACH = """
// buffers are longer than their last vector, so that whole vectors are computed
static void sigmoid_all(float *x, int64_t count) {
  for (int64_t k = 0; k < count; k += LANES) {
    const vec value = vec_sigmoid(load(x + k));
    if (k + LANES <= count) store(x + k, value); else store_part(x + k, value, count - k);
  }
}
static void tanh_all(float *x, int64_t count) {
  for (int64_t k = 0; k < count; k += LANES) {
    const vec value = vec_tanh(load(x + k));
    if (k + LANES <= count) store(x + k, value); else store_part(x + k, value, count - k);
  }
}
// gates i, o, f, c
static void lstm_step(float *gate, float *h, float *c, int64_t hidden) {
  sigmoid_all(gate, 3 * hidden);
  tanh_all(gate + 3 * hidden, hidden);
  for (int64_t k = 0; k < hidden; k++) c[k] = gate[2 * hidden + k] * c[k] + gate[k] * gate[3 * hidden + k];
  for (int64_t k = 0; k < hidden; k++) h[k] = c[k];
  tanh_all(h, hidden);
  for (int64_t k = 0; k < hidden; k++) h[k] *= gate[hidden + k];
}
"""

EMITTERS: Mapping[str, Emitter] = {"lstm": _recurrent, "gru": _recurrent}
