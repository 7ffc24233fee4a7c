"""Budgets of sums and dot products in any order, and of everything that is mostly a sum.

Imported by: the rule table, norms, recurrent.

For n nonzero terms t with y = sum t, M1 = sum |t|, M2 = sqrt(sum t**2) and unit roundoff u of the accumulator:
    provable, every order:       A_det  = n u M1
    honest rounding, mean zero:  A_stat = 6 u (sqrt(n) R + M2)
    R**2 = max(y**2/3 + M2**2/6, mean square partial sum forward, and backward)
The budget is their minimum; on adversarial vectors, where rounding errors correlate, A_det.  M2 covers the roundings
of products and is dropped for plain sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.numerics.exact_sums import granularity
from tribunus.numerics.rounding import is_representable
from tribunus.numerics.ulp import F64
from tribunus.oracle.dots import Block, accumulate, matmul_blocks, plain
from tribunus.oracle.ops.call import Call
from tribunus.oracle.ops.conv import blocks_of, operands_of, pool_counts, pool_windows, with_bias
from tribunus.oracle.ops.matmul import centred
from tribunus.oracle.value import Exactness, Rule, RuleCall, Setting, V, finite, zero_error

LAMBDA: Final = 6.0
"""Factor of the statistical bound; 2.74 was the most that 200,000 honest sums needed."""
BOUNDARIES: Final = 64
"""Partial sums at which R is measured, at most."""
LARGE: Final = 1 << 22
"""Multiply-adds from which R is measured at an eighth of the boundaries: each costs a pass over the result."""

PIECE: Final = 1 << 15
"""Elements that are computed with at a time: what lies between then stays in the cache."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Condition sums of many sums at once; all arrays have the shape of the result."""

    total: F64
    magnitude: F64  # M1
    square: F64  # sum t**2
    count: F64  # nonzero terms
    partial: F64  # measured mean square partial sum

    def on(self, shape: tuple[int, ...]) -> Terms:
        """The same with another shape."""
        return Terms(*(a.reshape(shape) for a in (self.total, self.magnitude, self.square, self.count, self.partial)))

    def part(self, where: slice) -> Terms:
        """Some of them, of one axis."""
        return Terms(*(a[where] for a in (self.total, self.magnitude, self.square, self.count, self.partial)))


def budget_of(terms: Terms, setting: Setting, u: float, *, products: bool, winograd: bool = False) -> F64:
    """Error that summing ``terms`` may make."""
    size = terms.total.size
    if size <= PIECE:
        return _budget_of(terms, setting, u, products=products, winograd=winograd)
    flat, error = terms.on((size,)), np.empty(size)
    for start in range(0, size, PIECE):
        piece = flat.part(slice(start, start + PIECE))
        error[start : start + PIECE] = _budget_of(piece, setting, u, products=products, winograd=winograd)
    return error.reshape(terms.total.shape)


def _budget_of(terms: Terms, setting: Setting, u: float, *, products: bool, winograd: bool) -> F64:
    facts, n = setting.facts, terms.count
    additions = n if products else np.maximum(n - 1.0, 0.0)
    provable = additions * u * terms.magnitude * (1.0 + (facts.truncation if products else 0))
    model = terms.total**2 / 3.0 + terms.square / 6.0
    spread = np.sqrt(np.maximum(model, terms.partial))
    statistical = LAMBDA * u * (np.sqrt(n) * spread + (np.sqrt(terms.square) if products else 0.0))
    factor = facts.winograd_factor if winograd else 1.0
    statistical = statistical * factor
    if products and facts.truncation:
        statistical = statistical + facts.truncation * u * np.ceil(n / facts.k_step) * spread
    if setting.family.is_adversarial:
        error = provable * factor
    elif factor != 1.0:
        error = statistical
    else:
        error = np.minimum(provable, statistical)
    if products and facts.input_roundoff and u > 2.0**-30:
        adversarial = 2.0 * facts.input_roundoff * terms.magnitude
        typical = 4.0 * facts.input_roundoff * np.sqrt(terms.square)
        converted = adversarial if setting.family.is_adversarial else np.minimum(adversarial, typical)
        error = np.where(n == 1.0, 1.01 * facts.input_roundoff * terms.magnitude, error + converted)
    if products and u > 0.0:
        # Each product may lose half the smallest subnormal.
        error = error + n * (2.0**-1075 if u < 2.0**-30 else 2.0**-150)
    return finite(np.asarray(np.where(n == 0.0, 0.0, error), dtype=np.float64))


def reduce_terms(x: F64, axes: tuple[int, ...]) -> Terms:
    """Condition sums of plain sums over ``axes``, extents kept as 1."""
    moved = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
    lead = moved.shape[: x.ndim - len(axes)]
    flat = moved.reshape(*lead, math.prod(moved.shape[x.ndim - len(axes) :]))
    n = flat.shape[-1]
    total = flat.sum(-1)
    step = max(1, -(-n // BOUNDARIES))
    starts = np.arange(0, n, step)
    forward = np.cumsum(np.add.reduceat(flat, starts, axis=-1), axis=-1) if n else np.zeros((*lead, 1))
    ahead = np.mean(forward**2, axis=-1)
    behind = np.mean((total[..., None] - forward) ** 2, axis=-1)
    kept = tuple(1 if a in axes else e for a, e in enumerate(x.shape))
    return Terms(
        total,
        np.abs(flat).sum(-1),
        (flat**2).sum(-1),
        np.count_nonzero(flat, axis=-1).astype(np.float64),
        np.maximum(ahead, behind),
    ).on(kept)


def sum_is_exact(terms: Terms, grain: float, precision: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where every partial sum in every order is a number of ``precision`` bits: all lie on a grid of ``grain``."""
    if grain == 0.0 or not math.isfinite(grain):
        return np.asarray(terms.count == 0.0, dtype=np.bool_)
    return np.asarray(terms.magnitude <= 2.0**precision * grain, dtype=np.bool_)


def _mean_square_partial_sums(left: F64, right: F64, total: F64, step: int) -> F64:
    """The larger of the mean squares of partial sums after every ``step`` terms, forward and backward."""
    ahead, behind, sofar = np.zeros(total.shape), np.zeros(total.shape), np.zeros(total.shape)
    held = np.empty(total.shape)
    starts = range(0, left.shape[-1], step)
    for start in starts:
        np.matmul(left[..., start : start + step], right[..., start : start + step, :], out=held)
        sofar += held
        ahead += np.multiply(sofar, sofar, out=held)
        np.subtract(total, sofar, out=held)
        behind += np.multiply(held, held, out=held)
    return np.asarray(np.maximum(ahead, behind) / max(1, len(starts)), dtype=np.float64)


def block_terms(blocks: Iterator[Block], shape: tuple[int, ...], inner: int, outputs: int) -> Terms:
    """Condition sums of dot products given in blocks."""
    boundaries = BOUNDARIES if inner * outputs < LARGE else BOUNDARIES // 8
    step = max(1, -(-inner // boundaries))

    def measure(left: F64, right: F64) -> tuple[F64, ...]:
        total = left @ right
        if np.all(left) and np.all(right):
            count = np.full(total.shape, float(left.shape[-1]))
        else:
            count = (left != 0).astype(np.float64) @ (right != 0).astype(np.float64)
        partial = np.empty(total.shape)
        columns = max(1, PIECE // max(1, math.prod(total.shape[:-1])))
        for first in range(0, total.shape[-1], columns):
            part = (..., slice(first, first + columns))
            partial[part] = _mean_square_partial_sums(left, np.ascontiguousarray(right[part]), total[part], step)
        return total, np.abs(left) @ np.abs(right), (left * left) @ (right * right), count, partial

    return Terms(*accumulate(blocks, shape, measure)) if outputs else Terms(*(np.zeros(shape) for _ in range(5)))


def dot_error(
    terms: Terms, a: F64, b: F64, setting: Setting, u: float, interior: DType, *, winograd: bool = False
) -> F64:
    """Error of the dots themselves, operands exact: nothing where a probe is provably exact."""
    error = budget_of(terms, setting, u, products=True, winograd=winograd)
    if not setting.is_probe or interior is DType.F64:
        return error
    if setting.facts.input_roundoff and not _survives_conversion(a, b, setting):
        return error
    exact = sum_is_exact(terms, granularity(a) * granularity(b), 24)
    single = (terms.count <= 1.0) & is_representable(terms.total, DType.F32)
    return np.asarray(np.where(exact | single, 0.0, error), dtype=np.float64)


def addend_error(terms: Terms | None, grain: float, fan_in: int, addend: F64, setting: Setting, u: float) -> F64:
    """What adding a number (a bias, a residual) before, between or after the terms of a dot may cost beyond both.

    A kernel may start its accumulator with it, and then every partial sum carries it: up to ``n u |b|``, or
    ``lambda sqrt(n) u |b|`` where roundings are independent.  On probes (terms given) nothing where the addend lies on
    the grid of the products (grain), or where there is at most one term; else the dot is no longer exact.
    """
    n = float(fan_in)
    factor = n if setting.family.is_adversarial else min(n, LAMBDA * math.sqrt(n))
    carried_along = factor * u * np.abs(np.where(np.isfinite(addend), addend, 0.0))
    if terms is None:
        return np.asarray(carried_along, dtype=np.float64)
    together = min(grain, granularity(addend))
    reach = terms.magnitude + np.abs(addend)
    exact = np.asarray(reach <= 2.0**24 * together) if 0.0 < together < math.inf else terms.count == 0.0
    ordinary = budget_of(terms, setting, u, products=True) + carried_along
    return np.asarray(np.where(exact | (terms.count <= 1.0), 0.0, ordinary), dtype=np.float64)


def sum_with_dot(rule: RuleCall) -> F64:
    """``addend_error`` of a sum in which one operand is a dot, or a dot to which something was added; else 0."""
    error = np.zeros(rule.results[0].shape)
    if rule.interior is DType.F64 or not rule.call.result_dtype().is_float:
        return error
    for position in (0, 1):
        dot = _dot_behind(rule.producer(position), 2)
        if dot is None:
            continue
        addend = np.broadcast_to(rule.operand(1 - position).real, error.shape)
        terms, grain = None, 0.0
        conv_like = dot.call.kind != "matmul"
        left, right, _ = operands_of(dot.call) if conv_like else (*_factors(dot), None)
        fan_in = math.prod(right.shape[1:]) if conv_like else left.shape[-1]
        if rule.setting.is_probe:
            shape = dot.results[0].shape
            found = (
                block_terms(blocks_of(dot.call), shape, fan_in, math.prod(shape))
                if conv_like
                else matmul_terms(left, right, shape)
            )
            terms, grain = found, granularity(left) * granularity(right)
        error = error + addend_error(terms, grain, fan_in, addend, rule.setting, rule.u)
    return error


def _factors(dot: RuleCall) -> tuple[F64, F64]:
    return dot.operand(0).real, dot.operand(1).real


def _dot_behind(call: RuleCall | None, depth: int) -> RuleCall | None:
    """The product that ``call`` is, or that ``call`` adds something to."""
    if call is None or call.call.kind in ("matmul", "conv", "conv_transpose"):
        return call
    if call.call.kind != "add" or depth == 0:
        return None
    return _dot_behind(call.producer(0), depth - 1) or _dot_behind(call.producer(1), depth - 1)


def _survives_conversion(a: F64, b: F64, setting: Setting) -> bool:
    bits = round(-math.log2(setting.facts.input_roundoff))
    for operand in (a, b):
        fraction, _ = np.frexp(np.where(np.isfinite(operand), operand, 0.0))
        scaled = np.ldexp(fraction, bits)
        if np.any(scaled != np.rint(scaled)):
            return False
    return True


def matmul_terms(a: F64, b: F64, shape: tuple[int, ...]) -> Terms:
    """Condition sums of ``a @ b``."""
    blocks, filled = matmul_blocks(a, b, shape)
    return block_terms(blocks, filled, a.shape[-1], math.prod(shape)).on(shape)


def matmul_product(a: F64, b: F64, shape: tuple[int, ...]) -> F64:
    """``a @ b``, without conditions."""
    if math.prod(shape) == 0 or a.shape[-1] == 0:
        return np.zeros(shape)
    blocks, filled = matmul_blocks(a, b, shape)
    return accumulate(blocks, filled, plain)[0].reshape(shape)


def carried(a: V, b: V, shape: tuple[int, ...]) -> F64:
    """Error of ``a @ b`` that the operands bring: ``|a| e_b + e_a |b|``."""
    error = np.zeros(shape)
    if not a.is_exact:
        error = error + matmul_product(np.asarray(a.err), np.abs(b.real), shape)
    if not b.is_exact:
        error = error + matmul_product(np.abs(a.real), np.asarray(b.err), shape)
    return error


def _from_softmax(rule: RuleCall) -> RuleCall | None:
    before = rule.producer(0)
    if before is None or before.call.kind != "softmax":
        return None
    last = before.call.attributes.integer("axis") == before.results[0].ndim - 1
    return before if last else None


def _attention(rule: RuleCall, softmax: RuleCall, own: F64) -> F64:
    """``sum_j p_j |v_j - o| (e_j + u (3 |s_j - m| + 9)) + 2 A_dot + 9 u |o|``.

    Errors of the weights cancel where all values are alike (they add up to 0), hence ``|v_j - o|``.  A subnormal weight
    has no relative accuracy: it may lose half the smallest number as an exponential and once more as a share.
    """
    scores, weights, values = softmax.operand(0), rule.operand(0), rule.operand(1)
    u, out = rule.u, np.asarray(rule.results[0], dtype=np.float64)
    shifted = np.abs(scores.real - scores.real.max(-1, keepdims=True))
    share = finite(weights.real * (scores.err + u * (3.0 * np.where(np.isfinite(shifted), shifted, 0.0) + 9.0)))
    share = share + rule.lost(weights.real, 2)
    batch = out.shape[:-2]
    v = np.broadcast_to(values.real, (*batch, *values.real.shape[-2:]))
    share = np.broadcast_to(share, (*batch, *share.shape[-2:]))
    error = np.empty(out.shape)
    for column in range(out.shape[-1]):
        apart = np.abs(v[..., column][..., None, :] - out[..., column][..., :, None])
        error[..., column] = np.einsum("...ij,...ij->...i", share, finite(apart))
    carry = matmul_product(np.abs(weights.real), np.asarray(values.err), out.shape) if not values.is_exact else 0.0
    return np.asarray(error + 2.0 * own + 9.0 * u * np.abs(out) + carry, dtype=np.float64)


def matmul(rule: RuleCall) -> tuple[V, ...]:
    """Dot products of the operands' rows and columns; weights from a softmax have a sharper rule."""
    a, b = rule.operand(0), rule.operand(1)
    shape = rule.results[0].shape
    terms = matmul_terms(a.real, b.real, shape)
    own = dot_error(terms, a.real, b.real, rule.setting, rule.u, rule.interior)
    softmax = _from_softmax(rule)
    error = _attention(rule, softmax, own) if softmax is not None else own + carried(a, b, shape)
    return (V(rule.results[0], finite(error), Exactness.ULP),)


def matmul_integer(rule: RuleCall) -> tuple[V, ...]:
    """Exact; operands that were quantized from rounded numbers bring their doubt."""
    a, b, call = rule.operand(0), rule.operand(1), rule.call
    if a.is_exact and b.is_exact:
        return (V(rule.results[0], zero_error(rule.results[0]), Exactness.VALUE),)
    left = V(centred(a.value, call.optional(2), a.value.ndim - 2), a.err, a.exactness)
    right = V(centred(b.value, call.optional(3), b.value.ndim - 1), b.err, b.exactness)
    error = carried(left, right, rule.results[0].shape)
    return (V(rule.results[0], error, Exactness.DISCRETE),)


def conv_product(call: Call, x: F64, w: F64) -> F64:
    """The convolution of a call applied to other operands, without bias."""
    shape = call.result_shape()
    return accumulate(blocks_of(call.with_operands(x, w)), shape, plain)[0] if math.prod(shape) else np.zeros(shape)


def conv(rule: RuleCall) -> tuple[V, ...]:
    """Any convolution: dots over channels and taps, then the bias."""
    call, shape = rule.call, rule.results[0].shape
    x, w, bias = rule.operand(0), rule.operand(1), rule.optional(2)
    plain_x, plain_w, _ = operands_of(call)
    inner = plain_w.shape[1] * math.prod(plain_w.shape[2:])
    terms = block_terms(blocks_of(call), shape, inner, math.prod(shape))
    error = dot_error(terms, plain_x, plain_w, rule.setting, rule.u, rule.interior, winograd=True)
    if not x.is_exact:
        error = error + conv_product(call, np.asarray(x.err), np.abs(w.real))
    if not w.is_exact:
        error = error + conv_product(call, np.abs(x.real), np.asarray(w.err))
    if bias is not None:
        total = np.asarray(rule.results[0], dtype=np.float64)
        error = with_bias(error, np.asarray(bias.err)) + rule.rounding(total)
        if rule.interior is not DType.F64:
            grain = granularity(plain_x) * granularity(plain_w)
            addend = with_bias(np.zeros(shape), bias.real)
            probed = terms if rule.setting.is_probe else None
            error = error + addend_error(probed, grain, inner, addend, rule.setting, rule.u)
    return (V(rule.results[0], finite(error), Exactness.ULP),)


def conv_integer(rule: RuleCall) -> tuple[V, ...]:
    """Exact, as ``matmul_integer``."""
    x, w, call = rule.operand(0), rule.operand(1), rule.call
    if x.is_exact and w.is_exact:
        return (V(rule.results[0], zero_error(rule.results[0]), Exactness.VALUE),)
    centred_x, centred_w, _ = operands_of(call)
    error = conv_product(call, np.asarray(x.err), np.abs(centred_w))
    error = error + conv_product(call, np.abs(centred_x), np.asarray(w.err))
    return (V(rule.results[0], error, Exactness.DISCRETE),)


def summed(rule: RuleCall, terms_in: F64, carried_in: F64, axes: tuple[int, ...], *, products: bool) -> F64:
    """Error of a sum over ``axes`` with extents kept: its own and what the terms bring."""
    terms = reduce_terms(terms_in, axes)
    error = budget_of(terms, rule.setting, rule.u, products=products)
    if rule.setting.is_probe and rule.interior is not DType.F64:
        error = np.where(sum_is_exact(terms, granularity(terms_in), 24), 0.0, error)
    return np.asarray(error + carried_in.sum(axis=axes, keepdims=True), dtype=np.float64)


def average_pool(rule: RuleCall) -> tuple[V, ...]:
    """Sums over windows, divided by their counts."""
    x, call = rule.operand(0), rule.call
    shape = rule.results[0].shape
    total, magnitude, square, count = (np.zeros(shape) for _ in range(4))
    prefixes: list[F64] = []
    for part in pool_windows(x.real, call, 0.0):
        t = part.astype(np.float64)
        total, magnitude, square = total + t, magnitude + np.abs(t), square + t * t
        count = count + (t != 0)
        prefixes.append(total)
    ahead = np.mean([p * p for p in prefixes], axis=0)
    behind = np.mean([(total - p) ** 2 for p in prefixes], axis=0)
    terms = Terms(total, magnitude, square, count, np.maximum(ahead, behind))
    error = budget_of(terms, rule.setting, rule.u, products=False)
    if rule.setting.is_probe:
        error = np.where(sum_is_exact(terms, granularity(x.real), 24), 0.0, error)
    if not x.is_exact:
        for part in pool_windows(np.asarray(x.err), call, 0.0):
            error = error + part.astype(np.float64)
    result = np.asarray(rule.results[0], dtype=np.float64)
    return (V(rule.results[0], finite(error / pool_counts(call)) + rule.rounding(result, 5.0), Exactness.ULP),)


RULES: Final[Mapping[str, Rule]] = {
    "matmul": matmul,
    "matmul_integer": matmul_integer,
    "conv": conv,
    "conv_transpose": conv,
    "conv_integer": conv_integer,
    "average_pool": average_pool,
}
