"""The oracle's verdict: a candidate's outputs against goldens with budgets, element by element.

Imported by: gates, admission, certification.  Imports: numerics, running.

Accept iff every element has golden's class and ``|c - y| <= k ulp(y) + A``; one element over rejects.  Systematic
faults that hide inside any band are met by three statistics over outputs of at least 1024 elements: a mean signed error
above 0.1 ulp where storing dominates, the root mean square of error/budget, and the share of elements above half of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.numerics.dtypes import FLOAT_FORMATS, DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.numerics.rounding import decode
from tribunus.numerics.ulp import F64, ulp, ulp_distance
from tribunus.oracle.ops.call import Array
from tribunus.oracle.running import OutputGolden
from tribunus.oracle.value import Exactness

SAMPLE: Final = 4096
"""Elements that a quick refusal looks at, twice."""
MANY: Final = 1024
"""Elements from which statistics judge."""
BIAS_LIMIT: Final = 0.1
"""Mean signed error in ulp that rounding to nearest never reaches."""
LINEAR_RMS: Final = 0.12
LINEAR_SHARE: Final = 1e-3
SUM_DOMINATES: Final = 8.0
"""Budget in ulp from which an element says something about the sum rather than about the store."""
RMS_LIMIT: Final = 0.35
STORED_RMS_LIMIT: Final = 0.7
TILES: Final = (16, 32, 64, 128)


class Failure(StrEnum):
    """Why an output is refused."""

    MISSING = "missing"  # no such output, or another dtype or shape
    CLASS = "class"  # NaN, infinity or finiteness differ
    BITS = "bits"  # moved data is not the same bytes
    UNEQUAL = "unequal"  # an exact element differs
    BUDGET = "budget"  # an element is beyond its budget
    CHOICE = "choice"  # an index that nothing justifies
    BIAS = "bias"  # errors have a sign
    RMS = "rms"  # too many large errors for honest rounding
    SHARE = "share"  # too many elements above half of their budget


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """One output.  ratio: largest error / budget (infinite where there is none to give).  worst: its index.

    err_ulp, budget_ulp: at the worst element, real-valued, against the unrounded golden.  max_ulp: largest integer
    distance to the presented golden (for integers, difference).  p99, rms, share: of error/budget: 99th percentile,
    root mean square, share above 0.5.  bias, bias_z: mean signed error in ulp where storing dominates, and its z.
    positions: largest ratio of the rms of one residue class modulo a tile to the rest; above 4 hints at a tail fault.
    """

    id: int
    failure: Failure | None
    ratio: float
    worst: tuple[int, ...]
    candidate_value: float
    golden_value: float
    err_ulp: float
    budget_ulp: float
    max_ulp: int
    p99: float
    rms: float
    share: float
    bias: float
    bias_z: float
    positions: float
    elements: int

    @property
    def accepted(self) -> bool:
        """Whether nothing speaks against the output."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class OracleVerdict:
    """All outputs of one candidate on one vector."""

    outputs: tuple[OutputVerdict, ...]

    @property
    def accepted(self) -> bool:
        """Whether every output is accepted."""
        return all(output.accepted for output in self.outputs)

    @property
    def worst(self) -> OutputVerdict:
        """The refused output with the largest ratio, else the accepted one with it."""
        return max(self.outputs, key=lambda o: (not o.accepted, o.ratio))

    @property
    def ratio(self) -> float:
        """Largest error / budget over all outputs."""
        return max((o.ratio for o in self.outputs), default=0.0)


def judge(candidate: Mapping[int, Array], goldens: Sequence[OutputGolden]) -> OracleVerdict:
    """Judge outputs, stored as NumPy holds their dtypes, by value id."""
    return OracleVerdict(tuple(judge_output(candidate.get(g.id), g) for g in goldens))


def judge_output(stored: Array | None, golden: OutputGolden) -> OutputVerdict:
    """Judge one output."""
    with np.errstate(all="ignore"):
        return _judge_output(stored, golden)


def is_refused(stored: Array, golden: OutputGolden) -> bool:
    """Whether ``judge_output`` refuses; looks at a few elements first, which is enough for most wrong answers."""
    if golden.dtype.is_float and stored.size > 2 * SAMPLE and stored.shape == golden.presented.shape:
        middle = stored.size // 2 - SAMPLE // 2
        for start in (middle, 0):
            part = slice(start, start + SAMPLE)
            sample = replace(
                golden,
                value=golden.value.reshape(-1)[part],
                presented=golden.presented.reshape(-1)[part],
                budget=golden.budget.reshape(-1)[part],
                exact=golden.exact.reshape(-1)[part],
            )
            # Statistics judge the whole output only; here one element over its budget decides.
            if judge_output(stored.reshape(-1)[part], sample).ratio > 1.0:
                return True
    return not judge_output(stored, golden).accepted


def _judge_output(stored: Array | None, golden: OutputGolden) -> OutputVerdict:
    if stored is None or stored.dtype != golden.presented.dtype or stored.shape != golden.presented.shape:
        return _plain(golden, Failure.MISSING, float("inf"), ())
    if stored.size == 0:
        return _plain(golden, None, 0.0, ())
    if not golden.dtype.is_float:
        return _judge_integers(stored, golden)
    return _judge_floats(stored, golden)


def _plain(golden: OutputGolden, failure: Failure | None, ratio: float, worst: tuple[int, ...]) -> OutputVerdict:
    nothing = float("nan") if failure else 0.0
    size = golden.value.size
    return OutputVerdict(
        golden.id, failure, ratio, worst, nothing, nothing, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, size
    )


def _judge_integers(stored: Array, golden: OutputGolden) -> OutputVerdict:
    if golden.choice is not None:
        good = _justified(stored, golden)
    else:
        low = golden.presented if golden.low is None else golden.low
        high = golden.presented if golden.high is None else golden.high
        if golden.low is None and golden.exactness is Exactness.DISCRETE:
            good = np.abs(stored.astype(np.float64) - golden.presented.astype(np.float64)) <= golden.budget
        else:
            good = np.asarray((stored >= low) & (stored <= high))  # type: ignore[operator]  # stubs lack generic
    bad = np.argwhere(~np.atleast_1d(good))
    distance = _integer_distance(np.atleast_1d(stored), np.atleast_1d(golden.presented))
    largest = int(np.max(distance))
    index = tuple(int(i) for i in bad[0]) if len(bad) else np.unravel_index(int(np.argmax(distance)), distance.shape)
    position = tuple(int(i) for i in index)
    failure = None
    if len(bad):
        failure = Failure.CHOICE if golden.choice is not None else Failure.UNEQUAL
    return OutputVerdict(
        id=golden.id,
        failure=failure,
        ratio=float("inf") if failure else 0.0,
        worst=position[: stored.ndim],
        candidate_value=float(np.atleast_1d(stored)[position]),
        golden_value=float(np.atleast_1d(golden.presented)[position]),
        err_ulp=float(np.max(distance)),
        budget_ulp=float(np.atleast_1d(golden.budget)[position]),
        max_ulp=largest,
        p99=0.0,
        rms=0.0,
        share=0.0,
        bias=0.0,
        bias_z=0.0,
        positions=0.0,
        elements=stored.size,
    )


def _integer_distance(left: Array, right: Array) -> npt.NDArray[np.uint64]:
    """Differences without overflow: subtraction that wraps in 64 unsigned bits is exact for any two integers."""
    kind = np.uint64 if left.dtype == np.uint64 else np.int64
    a, b = left.astype(kind), right.astype(kind)
    return np.asarray(np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64), dtype=np.uint64)


def _justified(stored: Array, golden: OutputGolden) -> npt.NDArray[np.bool_]:
    """Whether each chosen index names a number within twice the error of what belongs there; none twice."""
    choice = golden.choice
    if choice is None:
        return np.asarray(stored == golden.presented)
    index = stored.astype(np.int64) if choice.keepdims else np.expand_dims(stored.astype(np.int64), choice.axis)
    wanted = golden.presented.astype(np.int64)
    wanted = wanted if choice.keepdims else np.expand_dims(wanted, choice.axis)
    inside = (index >= 0) & (index < choice.values.shape[choice.axis])
    safe = np.where(inside, index, 0)
    got = np.take_along_axis(choice.values, safe, choice.axis)
    right = np.take_along_axis(choice.values, wanted, choice.axis)
    room = 2.0 * choice.errors.max(axis=choice.axis, keepdims=True)
    good = inside & (np.abs(got - right) <= room)
    ordered = np.sort(index, axis=choice.axis)
    repeated = (np.diff(ordered, axis=choice.axis) == 0).any(axis=choice.axis, keepdims=True)
    return np.asarray(good & ~repeated).reshape(stored.shape)


def _near_max(golden: OutputGolden, y: F64, allowed: F64) -> npt.NDArray[np.bool_]:
    threshold = FLOAT_FORMATS[golden.dtype].overflow_at
    return np.asarray(np.isfinite(y) & (np.abs(np.abs(y) - threshold) <= allowed), dtype=np.bool_)


def _judge_floats(stored: Array, golden: OutputGolden) -> OutputVerdict:
    dtype = golden.dtype
    c = np.atleast_1d(decode(stored, dtype)).astype(np.float64)
    y = np.atleast_1d(golden.value).astype(np.float64)
    want = np.atleast_1d(decode(golden.presented, dtype)).astype(np.float64)
    allowed = np.atleast_1d(golden.allowed)
    near = _near_max(golden, y, allowed)
    differs = (np.isnan(c) != np.isnan(want)) | (np.isinf(want) & ~near & (c != want))
    differs |= np.isfinite(want) & ~np.isfinite(c) & ~(near & np.isinf(c))
    failure, ratio = _errors(stored, golden, c, y, want, near, allowed)
    ratio = np.where(differs, np.inf, ratio)
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    worst = float(ratio[position])
    if differs.any():
        failure = Failure.CLASS
    elif failure is None and worst > 1.0:
        failure = Failure.BUDGET
    spacing = ulp(y, dtype)
    measured = ratio[np.isfinite(ratio)]
    rms = float(np.sqrt(np.mean(measured**2))) if measured.size else 0.0
    share = float(np.mean(measured > 0.5)) if measured.size else 0.0
    bias, z, counted = _bias(c, y, spacing, golden)
    if failure is None:
        failure = _statistics(golden, ratio, rms, bias, counted, np.atleast_1d(golden.budget) / spacing)
    finite = np.isfinite(c) & np.isfinite(want)
    distance = ulp_distance(np.atleast_1d(stored), np.atleast_1d(golden.presented), dtype)
    error = np.abs(c - y) / spacing
    return OutputVerdict(
        id=golden.id,
        failure=failure,
        ratio=worst,
        worst=position[: stored.ndim],
        candidate_value=float(c[position]),
        golden_value=float(y[position]),
        err_ulp=float(error[position]),
        budget_ulp=float(allowed[position] / spacing[position]),
        max_ulp=int(distance[finite].max()) if finite.any() else 0,
        p99=float(np.quantile(measured, 0.99)) if measured.size else 0.0,
        rms=rms,
        share=share,
        bias=bias,
        bias_z=z,
        positions=_positions(measured.size == ratio.size, ratio),
        elements=stored.size,
    )


def _errors(
    stored: Array, golden: OutputGolden, c: F64, y: F64, want: F64, near: npt.NDArray[np.bool_], allowed: F64
) -> tuple[Failure | None, F64]:
    """error/budget of each element: for exact elements 0 where equal and infinite elsewhere."""
    exact = np.atleast_1d(golden.exact)
    equal = (c == want) | (np.isnan(c) & np.isnan(want))
    failure: Failure | None = None
    if golden.exactness is Exactness.BIT:
        width = stored.dtype.itemsize
        left = np.ascontiguousarray(np.atleast_1d(stored)).view(np.uint8).reshape(-1, width)
        right = np.ascontiguousarray(np.atleast_1d(golden.presented)).view(np.uint8).reshape(-1, width)
        equal = np.all(left == right, axis=1).reshape(c.shape)
    if bool((exact & ~equal).any()):
        failure = Failure.BITS if golden.exactness is Exactness.BIT else Failure.UNEQUAL
    # Near the largest number an infinity is measured as the number that would come next.
    beyond = np.copysign(2.0 * 2.0 ** np.floor(np.log2(FLOAT_FORMATS[golden.dtype].max_finite)), c)
    seen = np.where(near & np.isinf(c), beyond, c)
    measured = np.abs(seen - y) / allowed
    both = np.isfinite(seen) & np.isfinite(y)
    ratio = np.where(both, measured, np.where(equal | near, 0.0, np.inf))
    ratio = np.where(np.isfinite(seen) & ~np.isfinite(y) & near, 0.0, ratio)
    return failure, np.asarray(np.where(exact, np.where(equal, 0.0, np.inf), ratio), dtype=np.float64)


def _bias(c: F64, y: F64, spacing: F64, golden: OutputGolden) -> tuple[float, float, int]:
    dominated = np.isfinite(c) & np.isfinite(y) & (y != 0) & (np.atleast_1d(golden.budget) / spacing < 0.25)
    dominated &= ~np.atleast_1d(golden.exact) & (np.abs(y) >= 2.0 ** FLOAT_FORMATS[golden.dtype].emin)
    count = int(np.count_nonzero(dominated))
    if count == 0:
        return 0.0, 0.0, 0
    mean = float(np.mean((np.sign(y) * (c - y) / spacing)[dominated]))
    return mean, mean * float(np.sqrt(count)) / 0.289, count


def _statistics(
    golden: OutputGolden, ratio: F64, rms: float, bias: float, counted: int, budget_ulp: F64
) -> Failure | None:
    if golden.exactness is not Exactness.ULP or golden.value.size < MANY or not golden.family.is_random:
        return None
    if counted >= MANY and abs(bias) > BIAS_LIMIT:
        return Failure.BIAS
    fp32 = golden.policy in (ComputePolicy.FP32, ComputePolicy.FP32_STRICT) and golden.dtype is DType.F32
    # Where the final store dominates, its rounding alone has an rms of 0.29 ulp; sums are judged where they dominate.
    summed = ratio[np.isfinite(ratio) & (budget_ulp >= SUM_DOMINATES)]
    if golden.is_linear and fp32 and summed.size >= MANY:
        if float(np.sqrt(np.mean(summed**2))) > LINEAR_RMS:
            return Failure.RMS
        if float(np.mean(summed > 0.5)) > LINEAR_SHARE:
            return Failure.SHARE
    return Failure.RMS if rms > (STORED_RMS_LIMIT if golden.k < 1.0 else RMS_LIMIT) else None


def _positions(whole: bool, ratio: F64) -> float:
    """Largest rms of one residue class over the rms of the others, over all axes and tiles; 0 where too small."""
    if not whole:
        return 0.0
    largest = 0.0
    squares = ratio * ratio
    for axis, extent in enumerate(ratio.shape):
        if extent < 2 * min(TILES):
            continue
        line = np.mean(squares, axis=tuple(a for a in range(ratio.ndim) if a != axis))
        for tile in TILES:
            if extent < 2 * tile:
                continue
            residues = np.arange(extent) % tile
            classes = np.bincount(residues, weights=line) / np.bincount(residues)
            top = int(np.argmax(classes))
            rest = float(np.delete(classes, top).mean())
            if rest > 0:
                largest = max(largest, float(np.sqrt(classes[top] / rest)))
    return largest


def growth(small: float, large: float, factor: float) -> float:
    """Log-log slope of an rms error between a size and ``factor`` times it; above 0.8 in fp32 hints at truncation."""
    if small <= 0.0 or large <= 0.0:
        return 0.0
    return float(np.log(large / small) / np.log(factor))
