"""Vectors: descriptors, and the arrays that they stand for.

Imported by: gates, certification, tests.  Imports: phaseir, demands, draws, families.

A vector is never stored: its descriptor (family, dims, seed, exponent) names a Philox stream for each given value, and
receipts keep the descriptor.  Arrays of a real run are vectors too; their descriptor names them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tribunus.canon import Json, encode
from tribunus.errors import InputError
from tribunus.numerics.dtypes import FLOAT_FORMATS, DType
from tribunus.numerics.policy import POLICIES, ComputePolicy
from tribunus.numerics.rounding import INTEGER_RANGE, round_value
from tribunus.numerics.rounding import encode as store
from tribunus.numerics.ulp import F64, ulp
from tribunus.oracle.demands import Demand, Wanted, wanted
from tribunus.oracle.draws import Draws
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.ops.call import Array
from tribunus.phaseir.attributes import F32
from tribunus.phaseir.dims import Bindings
from tribunus.phaseir.ops import Contract, Family, spec_of
from tribunus.phaseir.program import Program, Role
from tribunus.phaseir.types import TensorType

HEAVY_WORK: Final = 1 << 31
"""Flops of one evaluation from which a signature gets the smallest set of vectors."""

NARROWING_TIE: Final = 0.5
"""Step of a quantization on vectors of ties; numbers are multiples of its half."""

_CURVED: Final = frozenset(
    ("exp", "log", "pow", "tanh", "sigmoid", "erf", "sin", "cos", "softmax", "log_softmax", "lstm", "gru")
)
_NORMS: Final = frozenset(("layer_norm", "rms_norm", "group_norm", "batch_norm"))
_ROUNDS: Final = frozenset(
    ("round", "floor", "ceil", "cast", "quantize_linear", "arg_max", "arg_min", "top_k", "equal", "less", "less_equal")
)
_PADS: Final = frozenset(("relu", "maximum", "max_pool", "reduce_max", "softmax", "log_softmax"))
_CHOOSES: Final = ("arg_max", "arg_min", "top_k", "scatter_elements", "scatter_nd")
_NO_NAN: Final = frozenset((*_CHOOSES, "quantize_linear", "dynamic_quantize_linear", "resize", "cast"))
"""Ops without a defined answer for NaN or infinity (a weight of 0 times infinity, the order of NaN)."""
_SUMS: Final = frozenset(("matmul", "conv", "conv_transpose", "reduce_sum", "reduce_mean", "cumsum", "average_pool"))
_INDEXED: Final = frozenset(("gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "one_hot"))


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Names one vector.  exponent: power of two that scales a family, or which variant of it.  name: of the captured
    arrays, empty for generated ones."""

    family: VectorFamily
    seed: int
    bindings: tuple[tuple[str, int], ...]
    exponent: int = 0
    name: str = ""

    def to_json(self) -> Json:
        """Document form."""
        return {
            "bindings": dict(self.bindings),
            "exponent": self.exponent,
            "family": self.family.value,
            "name": self.name,
            "seed": self.seed,
        }

    def __str__(self) -> str:
        dims = ",".join(f"{name}={value}" for name, value in self.bindings)
        scale = f"^{self.exponent}" if self.exponent else ""
        return f"{self.family}{scale}/{self.name or self.seed}" + (f"[{dims}]" if dims else "")


def captured(name: str, bindings: Bindings) -> Descriptor:
    """Descriptor of arrays that the caller holds."""
    return Descriptor(VectorFamily.CAPTURED, 0, tuple(sorted(bindings.items())), 0, name)


def vector_set(program: Program, policy: ComputePolicy, label: str, bindings: Bindings) -> tuple[Descriptor, ...]:
    """Vectors of a signature at given dims, the same for every candidate; captured ones come on top.

    label: kept for symmetry with the golden; the choice depends on the ops alone.
    """
    chosen = _families(program, policy, bindings)
    at = tuple(sorted(bindings.items()))
    return tuple(Descriptor(family, seed, at, exponent) for family, seed, exponent in chosen)


def _families(program: Program, policy: ComputePolicy, bindings: Bindings) -> tuple[tuple[VectorFamily, int, int], ...]:
    ops = program.only_phase.ops
    kinds = frozenset(op.kind for op in ops)
    given = given_types(program, bindings)
    types = tuple(v.type.at(bindings) for v in program.values)
    # Scales are not data: what tells families of numbers apart would not reach the integers beside them.
    scales = frozenset(v for v in given if wanted(program, types, v).demand is Demand.STEP)
    floats = any(t.dtype.is_float for v, t in given.items() if v not in scales)
    small = any(t.dtype in (DType.I8, DType.U8) for t in given.values())
    linear = any(spec_of(k).family in (Family.MATMUL, Family.CONV) for k in kinds)
    heavy = is_heavy(program, bindings)
    found: list[tuple[VectorFamily, int, int]] = []
    if not given:
        return ((VectorFamily.RAND, 0, 0),)
    if linear or kinds & _SUMS:
        if POLICIES[policy].exact_probes:
            found += [(VectorFamily.EXACT, 0, 0)]
            variants = (0, 1) if linear else (0,)
            # Behind a normalization one nonzero term leaves equal numbers, whose rounding errors correlate.
            lone = floats and (linear or len(ops) == 1)
            found += [(VectorFamily.IDENTITY, 0, variant) for variant in variants] if lone else []
        elif floats:
            found += [(VectorFamily.TREND, 1, 0)]
    found += [(VectorFamily.RAND, 0, 0)]
    if floats:
        low, high = (-3, 2) if kinds & (_CURVED | _NO_NAN | _ROUNDS) else (-10, 10)
        found += [(VectorFamily.RAND, 1, low), (VectorFamily.RAND, 2, high), (VectorFamily.POS, 0, 0)]
        found += [] if heavy else [(VectorFamily.HEAVY, 0, 0)]
    else:
        # Three of small integers: what large ones overflow in counts for nothing.
        found += [(VectorFamily.RAND, 1, 0), (VectorFamily.RAND, 3, 0), (VectorFamily.RAND, 2, 10)]
    if floats and kinds & (_NORMS | {"reduce_mean"}):
        found += [(VectorFamily.OFFSET, 0, 5), (VectorFamily.OFFSET, 1, 9), (VectorFamily.SMALLVAR, 0, -7)]
    if floats and kinds & _SUMS:
        found += [(VectorFamily.TREND, 0, 0)]
        found += [] if heavy else [(VectorFamily.CANCEL, 0, 0), (VectorFamily.CONST, 0, 0)]
    if kinds & {"softmax", "log_softmax"}:
        # Large scores overflow an exponential that is not shifted by the maximum.
        found += [(VectorFamily.MASK, 0, 0), (VectorFamily.RAND, 3, 3 if linear else 7)]
    found += [(VectorFamily.NEGATIVE, 0, 0)] if floats and kinds & _PADS else []
    # Integers of the whole range have dot products beyond any range: those meet ties on the exact vector.
    found += [(VectorFamily.TIES, 0, 0)] if kinds & _ROUNDS and (floats or (scales and not linear)) else []
    found += [(VectorFamily.INDEX, 0, 0)] if kinds & _INDEXED else []
    found += [(VectorFamily.SAT, 0, 0)] if small else []
    if floats and not heavy and not linear:
        found += [(VectorFamily.THRESHOLD, 0, 0)]
    # Transforms of inputs turn an infinity into NaN for its whole tile.
    if floats and not (kinds & {"lstm", "gru"}) and POLICIES[policy].winograd_factor == 1.0:
        found += [(VectorFamily.SPECIAL, 0, 0)]
    return tuple(found)


def is_heavy(program: Program, bindings: Bindings) -> bool:
    """Whether a golden costs so much that there are as few as can be: products or convolutions of billions of flops."""
    linear = any(spec_of(op.kind).family in (Family.MATMUL, Family.CONV) for op in program.only_phase.ops)
    return linear and _work(program, bindings) >= HEAVY_WORK


def _work(program: Program, bindings: Bindings) -> int:
    from_types = tuple(v.type.at(bindings) for v in program.values)
    total = 0
    for op in program.only_phase.ops:
        spec = spec_of(op.kind)
        operands = tuple(None if i < 0 else from_types[i] for i in op.inputs)
        flops = spec.flops(operands, op.attributes, tuple(from_types[i] for i in op.outputs))
        total += flops if isinstance(flops, int) else 0
    return total


def given_types(program: Program, bindings: Bindings) -> dict[int, TensorType]:
    """Values that a vector gives: inputs, states and weights that something reads, at these dims."""
    read = {i for op in program.only_phase.ops for i in op.inputs if i >= 0} | set(program.only_phase.outputs)
    return {
        i: v.type.at(bindings)
        for i, v in enumerate(program.values)
        if v.role in (Role.INPUT, Role.WEIGHT, Role.STATE) and (i in read or i in program.only_phase.inputs)
    }


def materialise(descriptor: Descriptor, program: Program) -> dict[int, Array]:
    """The arrays of a generated vector by value id, stored as NumPy holds their dtypes.

    Raises InputError for captured vectors, whose arrays only their owner has.
    """
    if descriptor.family is VectorFamily.CAPTURED:
        raise InputError(f"vector {descriptor} was captured: its arrays come from the run that captured it")
    bindings = dict(descriptor.bindings)
    given = given_types(program, bindings)
    types = tuple(v.type.at(bindings) for v in program.values)
    anchors = _anchors(program)
    kinds = frozenset(op.kind for op in program.only_phase.ops)
    found: dict[int, Array] = {}
    for order, (value, type_) in enumerate(given.items()):
        demand = wanted(program, types, value)
        draws = Draws(encode({"descriptor": descriptor.to_json(), "value": order}))
        spot = _Spot(descriptor.family, descriptor.exponent, draws, type_, demand, kinds, anchors)
        found[value] = store(_draw(spot), type_.dtype)
    return found


@dataclass(frozen=True, slots=True)
class _Spot:
    """Everything that one array is drawn from."""

    family: VectorFamily
    exponent: int
    draws: Draws
    type: TensorType
    wanted: Wanted
    kinds: frozenset[str]
    anchors: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.numbers()


def _draw(spot: _Spot) -> Array:
    if spot.wanted.demand is Demand.BOOL:
        return _bools(spot)
    if spot.type.dtype.is_integer:
        return _integers(spot)
    return _shaped(spot, _floats(spot))


def _bools(spot: _Spot) -> Array:
    drawn = spot.draws.integers(0, 1, spot.shape)
    if spot.wanted.masks and drawn.ndim and drawn.shape[-1] > 1:
        # Both answers in every line: neither reading of the mask hides a whole line.
        drawn[..., 0], drawn[..., -1] = 1, 0
    return np.asarray(drawn == 1)


def _integers(spot: _Spot) -> Array:
    w, shape, draws = spot.wanted, spot.shape, spot.draws
    if w.demand is Demand.UNIQUE_INDEX:
        return _unique(spot)
    if w.demand is Demand.LENGTH:
        drawn = draws.integers(w.low, max(w.low, w.high), shape)
        drawn.reshape(-1)[:1] = w.high
        return drawn
    if w.demand is Demand.INDEX and spot.family is VectorFamily.INDEX:
        edges = np.array([w.high, w.low, max(w.low, -1), max(w.low, 0), w.high], dtype=np.int64)
        count = math.prod(shape)
        return np.resize(edges, count).reshape(shape) if count else np.zeros(shape, np.int64)
    low, high = w.low, w.high
    if w.demand is Demand.INTEGER and spot.type.dtype.bits <= 8:
        if spot.family is VectorFamily.SAT:
            return np.where(draws.integers(0, 3, shape) > 0, high, low)
        if spot.family is VectorFamily.EXACT:
            low, high = max(low, w.middle - 7), min(high, w.middle + 7)
        if spot.family is VectorFamily.POS:
            low = max(low, w.middle)
    extreme = spot.family is VectorFamily.SAT and spot.type.dtype in (DType.U8, DType.I8) and not w.narrows
    if w.demand is Demand.ZERO_POINT and extreme:
        least, most = INTEGER_RANGE[spot.type.dtype]
        return np.where(draws.integers(0, 1, shape) > 0, most, least)
    if w.demand is Demand.ZERO_POINT and spot.family is VectorFamily.EXACT:
        low, high = w.middle - 2, w.middle + 2
    if w.demand is Demand.FLAG and spot.exponent > 0:
        low, high = -1000, 1000
    drawn = draws.integers(low, high, shape)
    if w.demand is Demand.INTEGER and spot.type.dtype.bits > 8:
        # Zeros and repetitions often enough for comparisons and casts to bool.
        return np.where(draws.integers(0, 3, shape) == 0, 0, drawn)
    return drawn


def _unique(spot: _Spot) -> Array:
    w, shape = spot.wanted, spot.shape
    if w.axis >= 0:
        extent, taken = w.extents[0], shape[w.axis]
        if taken > extent:
            raise InputError(f"{taken} different indices do not fit an axis of {extent}")
        lines = math.prod(shape) // max(1, taken)
        rows = [spot.draws.permutation(extent)[:taken] for _ in range(lines)]
        flat = np.array(rows, dtype=np.int64).reshape(*(e for a, e in enumerate(shape) if a != w.axis), taken)
        return np.moveaxis(flat, -1, w.axis)
    count, total = math.prod(shape[:-1]), math.prod(w.extents)
    if count > total:
        raise InputError(f"{count} different indices do not fit {w.extents}")
    picked = spot.draws.permutation(total)[:count]
    return np.stack(np.unravel_index(picked, w.extents), axis=-1).reshape(shape).astype(np.int64)


def _floats(spot: _Spot) -> F64:
    """Numbers of the family, before the demands of the ops are met."""
    family, shape, draws = spot.family, spot.shape, spot.draws
    if family is VectorFamily.EXACT:
        return _exact(spot)
    if family is VectorFamily.IDENTITY:
        return _identity(spot)
    normal = draws.normal(shape) * _scale(spot)
    if "equal" in spot.kinds and family is not VectorFamily.SPECIAL:
        normal = np.rint(normal * 2.0) * 0.5
    if "is_nan" in spot.kinds:
        normal = np.where(draws.integers(0, 2, shape) == 0, np.nan, normal)
    if family is VectorFamily.POS:
        return np.abs(normal)
    if family is VectorFamily.NEGATIVE:
        return -np.abs(normal) - 2.0**-8 if not _is_weight(spot) else normal
    if _is_weight(spot) and family not in (VectorFamily.CANCEL, VectorFamily.CONST, VectorFamily.POS):
        return normal
    return _structured(spot, normal)


def _structured(spot: _Spot, normal: F64) -> F64:
    family, shape, draws = spot.family, spot.shape, spot.draws
    axis = spot.wanted.contraction if spot.wanted.contraction >= 0 else len(shape) - 1
    if family is VectorFamily.HEAVY:
        # Bounded by 512: what is heavier would leave the declared domain of softmax and exp.
        return np.clip(draws.heavy(shape), -512.0, 512.0)
    if family is VectorFamily.OFFSET:
        return normal + 2.0**spot.exponent if not (spot.wanted.addend or spot.wanted.multiplier) else normal
    if family is VectorFamily.CONST:
        return np.full(shape, float(np.float32(0.1)) * _scale(spot))
    if not shape or math.prod(shape) == 0:
        return normal
    if family is VectorFamily.TREND:
        extent = shape[axis]
        slope = (np.arange(extent) * 6.0 / max(1, extent - 1) - 3.0) * _scale(spot)
        return normal + slope.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    if family is VectorFamily.SORTED:
        return np.sort(normal, axis=axis)
    if family is VectorFamily.CANCEL:
        return _cancelling(normal, axis, spot.wanted.is_left)
    if family is VectorFamily.MASK and spot.wanted.masks:
        return _masked(spot, normal)
    if family is VectorFamily.TIES:
        return _ties(spot)
    if family is VectorFamily.SPECIAL and spot.wanted.demand is Demand.VARIANCE:
        return normal
    if family is VectorFamily.SPECIAL and not (spot.wanted.addend or spot.wanted.multiplier):
        return _special(spot, normal)
    if family is VectorFamily.THRESHOLD:
        return _around_anchors(spot, normal)
    return normal


def _is_weight(spot: _Spot) -> bool:
    return spot.wanted.fan_in > 2 and not spot.wanted.is_left


def _scale(spot: _Spot) -> float:
    """2**exponent for data; weights are scaled so that dot products keep the size of their data."""
    if _is_weight(spot):
        return 2.0 ** -round(math.log2(spot.wanted.fan_in) / 2)
    if spot.wanted.multiplier:
        return 1.0
    scaled = (VectorFamily.RAND, VectorFamily.POS, VectorFamily.SMALLVAR)
    return 2.0**spot.exponent if spot.family in scaled else 1.0


def _exact(spot: _Spot) -> F64:
    """Small integers whose products add up below 2**23 in magnitude; multipliers are powers of two."""
    w, shape = spot.wanted, spot.shape
    if w.multiplier and w.fan_in == 1:
        return 2.0 ** spot.draws.integers(-1, 1, shape).astype(np.float64)
    if w.demand is Demand.DENOMINATOR:
        return 2.0 ** spot.draws.integers(-2, 2, shape).astype(np.float64)
    narrow = spot.type.dtype in FLOAT_FORMATS and spot.type.dtype.bits < 32
    limit = 3 if narrow else 31
    while limit > 1 and limit * limit * w.fan_in >= 2**23:
        limit //= 2
    return spot.draws.integers(-limit, limit, shape).astype(np.float64)


def _identity(spot: _Spot) -> F64:
    """One operand of each dot product has one nonzero number a sum, the other full significands.

    exponent 0: the first operand is the sparse one; 1: the second.  Biases are 0 and scales 1: both are exact.
    """
    w, shape = spot.wanted, spot.shape
    if w.fan_in > 1 and (w.is_left == (spot.exponent == 0)) and shape:
        sparse = _one_hot(shape, w.contraction if w.contraction >= 0 else len(shape) - 1)
        alone = not spot.kinds & {"matmul", "conv", "conv_transpose"}
        return sparse * spot.draws.normal(shape) if alone else sparse
    if w.addend:
        return np.zeros(shape)
    if w.multiplier or w.demand is Demand.DENOMINATOR:
        return np.ones(shape)
    return spot.draws.normal(shape)


def _one_hot(shape: tuple[int, ...], axis: int) -> F64:
    """Ones such that no line along ``axis`` and no neighbourhood across the later axes holds two.

    Rank 2 and matmul stacks: one a line.  Windows: one channel an image, at every eighth position of each spatial axis
    (kernels wider than that see more than one and fall back to their budget).
    """
    result = np.zeros(shape)
    spatial = len(shape) - 2 if axis == 1 and len(shape) > 2 else 0
    if spatial:
        for outer in range(shape[0]):
            channel = (outer * 5 + 1) % shape[1]
            starts = tuple(slice((outer + a) % min(8, e), None, 8) for a, e in enumerate(shape[2:]))
            result[outer, channel][starts] = 1.0
        return result
    moved = np.moveaxis(result, axis, -1)
    lines = math.prod(moved.shape[:-1])
    place = (np.arange(lines) * 7 + 3) % max(1, shape[axis])
    index = np.unravel_index(np.arange(lines), moved.shape[:-1]) if moved.ndim > 1 else ()
    if moved.ndim > 1:
        moved[(*index, place)] = 1.0
    elif moved.size:
        moved[place[:1]] = 1.0
    return result


def _cancelling(normal: F64, axis: int, is_left: bool) -> F64:
    """The second half of ``axis`` repeats the first, negated and off by 2**-12 in the first operand of a product."""
    result = np.moveaxis(np.array(normal), axis, 0)
    half = result.shape[0] // 2
    result[half : 2 * half] = result[:half] * (-(1.0 + 2.0**-12) if is_left else 1.0)
    return np.moveaxis(result, 0, axis)


def _masked(spot: _Spot, normal: F64) -> F64:
    """Minus infinity from some position on; the first entry of a line stays."""
    if spot.shape[-1] < 2:
        return normal
    extent = spot.shape[-1]
    limit = spot.draws.integers(1, extent, spot.shape[:-1])
    masked = np.arange(extent) >= limit[..., None]
    return np.where(masked, -np.inf, 0.0 if spot.wanted.addend else normal)


def _ties(spot: _Spot) -> F64:
    """Halves of odd and even integers, and repeated integers; for a narrower format, halves of its spacing."""
    shape = spot.shape
    if "cast" in spot.kinds and not spot.kinds & {"round", "quantize_linear"}:
        grid = spot.draws.integers(1, 1 << 12, shape).astype(np.float64)
        return (grid + 0.5) * 2.0 ** spot.draws.integers(-12, 0, shape).astype(np.float64)
    halves = spot.draws.integers(-24, 24, shape).astype(np.float64) * 0.5
    return halves * NARROWING_TIE if "quantize_linear" in spot.kinds else halves


def _special(spot: _Spot, normal: F64) -> F64:
    """Few special numbers at scattered places, so that sums keep finite lines."""
    dtype, size = spot.type.dtype, math.prod(spot.shape)
    smallest = FLOAT_FORMATS[dtype].smallest_subnormal
    plain = [0.0, -0.0, 3 * smallest, -smallest]
    wild = [] if spot.kinds & _NO_NAN else [np.inf, -np.inf, np.nan]
    # Behind arithmetic the largest numbers would overflow between ops, where no answer is defined.
    moves_only = all(spec_of(kind).contract is Contract.EXACT for kind in spot.kinds)
    large = [FLOAT_FORMATS[dtype].max_finite, -FLOAT_FORMATS[dtype].max_finite] if moves_only and wild else []
    chosen = np.array(plain + wild + large)
    flat = np.array(normal).reshape(-1)
    count = min(size, max(len(chosen), size // 64) if moves_only else len(chosen))
    places = spot.draws.permutation(size)[:count]
    flat[places] = np.resize(chosen, count)
    return flat.reshape(spot.shape)


def _around_anchors(spot: _Spot, normal: F64) -> F64:
    """Both neighbours of every constant that the program compares, clips or branches at."""
    dtype = spot.type.dtype
    anchors = np.array(spot.anchors)
    step = ulp(anchors, dtype)
    places = np.concatenate((anchors, anchors + step, anchors - step))
    size = math.prod(spot.shape)
    drawn = places[spot.draws.integers(0, len(places) - 1, (size,))].reshape(spot.shape)
    keep = spot.draws.integers(0, 3, spot.shape) == 0
    return np.where(keep, normal, drawn)


def _anchors(program: Program) -> tuple[float, ...]:
    found = {0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5}
    for op in program.only_phase.ops:
        for _, value in op.attributes:
            if isinstance(value, F32) and math.isfinite(value.value):
                found.add(value.value)
                if value.value:
                    found.add(1.0 / value.value)
    return tuple(sorted(found))


def _shaped(spot: _Spot, drawn: F64) -> F64:
    """``drawn`` moved into the domain that the op which reads it declares."""
    demand, family = spot.wanted.demand, spot.family
    finite = np.isfinite(drawn)
    if demand is Demand.POSITIVE:
        return np.where(finite, np.abs(drawn) + 2.0**-20, np.where(np.isnan(drawn), drawn, np.inf))
    if demand is Demand.DENOMINATOR and family is not VectorFamily.SPECIAL:
        return np.where(np.abs(drawn) < 2.0**-6, 1.0, drawn)
    if demand is Demand.EXPONENT:
        return np.where(finite, np.clip(drawn, -80.0, 80.0), drawn)
    if demand is Demand.FACTOR:
        return np.where(finite, 0.5 + 1.5 / (1.0 + np.abs(drawn)), 1.0)
    if demand is Demand.VARIANCE:
        base = np.where(finite, np.abs(drawn), 1.0)
        return base * 2.0**-10 + 2.0**-20 if family is VectorFamily.SMALLVAR else base + 2.0**-4
    if demand is Demand.STEP:
        return _steps(spot, np.where(finite, drawn, 1.0))
    if spot.kinds & {"sin", "cos"}:
        drawn = np.where(finite, np.clip(drawn, -(2.0**15), 2.0**15), drawn)
    largest = FLOAT_FORMATS[spot.type.dtype].max_finite
    return round_value(np.where(finite, np.clip(drawn, -largest, largest), drawn), spot.type.dtype)


def _steps(spot: _Spot, drawn: F64) -> F64:
    """Scales: powers of two where ties and exact sums need them, else between one and two of them."""
    w, family = spot.wanted, spot.family
    if family is VectorFamily.TIES:
        # Twice as wide behind as before: every odd number of steps before is a tie behind.
        return np.full(drawn.shape, NARROWING_TIE if w.narrows else NARROWING_TIE / 2.0)
    step = w.step
    if family is VectorFamily.EXACT:
        return np.full(drawn.shape, 2.0**w.exact_step)
    if family is VectorFamily.SAT and w.narrows:
        # Sums of extremes have a mean: without room for it every result would saturate and show nothing.
        step += 2 + round(math.log2(w.fan_in) / 2)
    return (1.0 + 1.0 / (1.0 + np.abs(drawn))) * 2.0**step
