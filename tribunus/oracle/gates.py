"""Gates: whether a case could have said no, before its yes may count.

Imported by: certification, admission.  Imports: golden, running, verdict, vectors.

Two gates.  Answers that need no computation (zeros, a constant, a copy of an input, the previous output, shifted,
reversed, negated, transposed, one element off) must be refused; and every live input must move the golden beyond the
budget in some case that counts.  A case that fails the first is mistrusted: it may refuse, it never counts as a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from tribunus.errors import InputError
from tribunus.numerics.dtypes import DType
from tribunus.numerics.rounding import INTEGER_RANGE, decode, encode
from tribunus.numerics.ulp import ulp
from tribunus.oracle.golden import evaluate, gather_operands
from tribunus.oracle.ops.call import Array
from tribunus.oracle.running import OutputGolden
from tribunus.oracle.value import Exactness
from tribunus.oracle.vectors import Descriptor
from tribunus.oracle.verdict import is_refused
from tribunus.phaseir.program import Constants, Op, Program

_SHIFT_FREE: Final = frozenset(("softmax", "layer_norm", "group_norm"))
_LEVELS: Final = frozenset(("reduce_mean", "reduce_max", "reduce_min"))

FEW: Final = 16
"""Elements up to which one case alone can hardly refuse every null answer."""


class Case(Protocol):
    """One vector with its goldens, which may have to be fetched each time they are asked for."""

    @property
    def descriptor(self) -> Descriptor:
        """What names the vector."""
        ...

    @property
    def inputs(self) -> Mapping[int, Array]:
        """Arrays by value id, as stored."""
        ...

    @property
    def goldens(self) -> tuple[OutputGolden, ...]:
        """Of every output."""
        ...


@dataclass(frozen=True, slots=True)
class CaseTrust:
    """Whether a case counts; ``why`` names the null answers that it would accept (with few elements, that it alone
    would)."""

    counted: bool
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuiteTrust:
    """All cases of a signature.  dropped: null answers that are the golden of every case.  insensitive: value ids of
    inputs that moved the golden beyond the budget in no counted case."""

    cases: tuple[CaseTrust, ...]
    dropped: tuple[str, ...]
    insensitive: tuple[int, ...]

    @property
    def counted(self) -> int:
        """Cases that count."""
        return sum(case.counted for case in self.cases)


def trust_alone(case: Case) -> CaseTrust:
    """What a case beside those of the suite would accept; whether inputs move it is the suite's question."""
    with np.errstate(all="ignore"):
        return _trust({name: no for name, _, no in _null_answers(case.inputs, case.goldens, ())}, ())


def trust_suite(program: Program, constants: Constants, cases: Sequence[Case]) -> SuiteTrust:
    """Judge the cases of one signature before any candidate is."""
    with np.errstate(all="ignore"):
        return _trust_suite(program, constants, cases)


def _trust_suite(program: Program, constants: Constants, cases: Sequence[Case]) -> SuiteTrust:
    answers: list[dict[str, bool]] = []
    same: dict[str, bool] = {}
    previous: Sequence[OutputGolden] = ()
    few = True
    for case in cases:
        goldens = case.goldens
        refused: dict[str, bool] = {}
        for name, equal, no in _null_answers(case.inputs, goldens, previous):
            refused[name] = no
            same[name] = same.get(name, True) and equal
        answers.append(refused)
        previous = goldens
        few = few and sum(golden.presented.size for golden in goldens) <= FEW
    dropped = tuple(sorted(name for name, always in same.items() if always))
    trusts = tuple(_trust(refused, dropped) for refused in answers)
    if few:
        trusts = _jointly(answers, trusts)
    return SuiteTrust(trusts, dropped, _insensitive(program, constants, cases, trusts))


def _trust(refused: Mapping[str, bool], dropped: tuple[str, ...]) -> CaseTrust:
    accepted = tuple(sorted(name for name, no in refused.items() if not no and name not in dropped))
    return CaseTrust(not accepted and bool(refused), accepted)


def _jointly(answers: Sequence[Mapping[str, bool]], trusts: Sequence[CaseTrust]) -> tuple[CaseTrust, ...]:
    """Cases of few elements count together: each null answer that one accepts must be refused by another.

    ``max(x, 0)`` of one number is a copy or zero in every case; no candidate can be both.
    """
    refused = {name for answer in answers for name, no in answer.items() if no}
    return tuple(
        CaseTrust(trust.counted or (bool(answer) and refused.issuperset(trust.why)), trust.why)
        for answer, trust in zip(answers, trusts, strict=True)
    )


def _null_answers(
    inputs: Mapping[int, Array], goldens: Sequence[OutputGolden], previous: Sequence[OutputGolden]
) -> list[tuple[str, bool, bool]]:
    """(name, equals golden, refused) of each null answer of each output."""
    found: list[tuple[str, bool, bool]] = []
    for position, golden in enumerate(goldens):
        if golden.presented.size == 0:
            continue
        before = previous[position] if position < len(previous) else None
        for name, answer in null_candidates(golden, inputs, before).items():
            label = name if len(goldens) == 1 else f"{name} of output {position}"
            no = is_refused(answer, golden)
            # The golden itself is never refused, so what is refused is not equal, but for signs of zero in moved data.
            equal = (not no or golden.exactness is Exactness.BIT) and _same_values(answer, golden)
            found.append((label, equal, no))
    return found


def _same_values(answer: Array, golden: OutputGolden) -> bool:
    left, right = decode(answer, golden.dtype), decode(golden.presented, golden.dtype)
    return bool(np.array_equal(left, right, equal_nan=golden.dtype.is_float))


def null_candidates(
    golden: OutputGolden, inputs: Mapping[int, Array], previous: OutputGolden | None
) -> dict[str, Array]:
    """Answers that compute nothing, as stored elements of an output, by name."""
    y, dtype = golden.presented, golden.dtype
    flat = y.reshape(-1)
    found = {
        "zeros": np.zeros_like(y),
        "mean": _constant(y, dtype),
        "shift": np.roll(flat, 1).reshape(y.shape),
        "reversal": flat[::-1].reshape(y.shape),
        "negation": _negated(y, dtype),
        "one element off": _one_off(y, dtype),
    }
    if y.ndim >= 2 and y.shape[-1] > 1 and y.shape[-2] > 1:
        found["transpose"] = np.ascontiguousarray(np.swapaxes(y, -1, -2)).reshape(y.shape)
    for value, array in inputs.items():
        if array.shape == y.shape and array.dtype == y.dtype:
            found[f"copy of value {value}"] = array
    if previous is not None and previous.presented.shape == y.shape:
        found["previous output"] = previous.presented
    return found


def _constant(y: Array, dtype: DType) -> Array:
    values = decode(y, dtype).astype(np.float64)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.full_like(y, y.reshape(-1)[0])
    mean = float(finite.mean())
    if dtype is DType.BOOL:
        return np.full_like(y, mean >= 0.5)
    return encode(np.full(y.shape, mean if dtype.is_float else np.rint(mean)), dtype)


def _negated(y: Array, dtype: DType) -> Array:
    if dtype is DType.BOOL:
        return np.logical_not(y)
    if dtype.is_float:
        return encode(-decode(y, dtype).astype(np.float64), dtype)
    low, high = INTEGER_RANGE[dtype]
    wide = y.astype(object)
    flipped = low + high - wide if low == 0 else -wide
    return np.asarray(np.clip(flipped, low, high)).astype(y.dtype)


def _one_off(y: Array, dtype: DType) -> Array:
    """The golden with its middle element off by a thousandth of the mean magnitude, or by two units where that is more;
    the nearest finite element stands in for a middle one that is not finite.  Towards zero: away from the largest
    number lies infinity, which may stand for it."""
    result = np.array(y).reshape(-1)
    middle = result.size // 2
    if dtype is DType.BOOL:
        result[middle] = not result[middle]
    elif not dtype.is_float:
        low, _ = INTEGER_RANGE[dtype]
        result[middle] = result[middle] - 1 if int(result[middle]) > low else result[middle] + 1
    else:
        values = decode(result, dtype).astype(np.float64)
        places = np.flatnonzero(np.isfinite(values))
        if places.size == 0:
            return y
        place = int(places[np.argmin(np.abs(places - middle))])
        spacing = float(ulp(values[place], dtype))
        off = max(1e-3 * float(np.mean(np.abs(values[places]))), 2.0 * spacing)
        result[place] = encode(np.asarray([values[place] - np.copysign(off, values[place])]), dtype)[0]
    return result.reshape(y.shape)


def _insensitive(
    program: Program, constants: Constants, cases: Sequence[Case], trusts: Sequence[CaseTrust]
) -> tuple[int, ...]:
    left = set(_live(program))
    for case, trust in zip(cases, trusts, strict=True):
        if trust.counted and left:
            left -= sensitive_inputs(program, constants, case, left)
    return tuple(sorted(left))


def _live(program: Program) -> frozenset[int]:
    """Given values that some output depends on; not zero points that what reads them cancels."""
    needed = set(program.only_phase.outputs)
    for op in reversed(program.only_phase.ops):
        if needed & set(op.outputs):
            needed |= {i for i in op.inputs if i >= 0}
    needed -= _cancelled_zero_points(program)
    return frozenset(i for i in needed if program.values[i].role.value in ("input", "weight", "state"))


def _cancelled_zero_points(program: Program) -> frozenset[int]:
    """Zero points, one for a whole tensor, of numbers that are only compared with each other: a softmax, or a
    normalization that takes their mean away, is the same function whatever was added to all of them."""
    ops, consumers = program.only_phase.ops, program.consumers(program.only_phase)
    outputs = frozenset(program.only_phase.outputs)

    def readers(value: int) -> list[Op]:
        return [ops[i] for i in consumers.get(value, ())]

    def is_difference(op: Op, value: int) -> bool:
        return (
            op.kind == "sub"
            and op.inputs[0] == value
            and any(fold.kind in _LEVELS and fold.outputs[0] == op.inputs[1] for fold in readers(value))
        )

    def cancels(op: Op, value: int) -> bool:
        if op.kind in _LEVELS:
            return all(is_difference(reader, value) for reader in readers(op.outputs[0]))
        return op.kind in _SHIFT_FREE or is_difference(op, value)

    found: set[int] = set()
    others: set[int] = set()
    for op in ops:
        real = op.outputs[0]
        zero = op.inputs[2] if op.kind == "dequantize_linear" and len(op.inputs) > 2 else -1
        others.update(v for v in op.inputs if v != zero)
        if zero >= 0 and program.values[zero].type.elements == 1 and real not in outputs:
            (found if all(cancels(reader, real) for reader in readers(real)) else others).add(zero)
    return frozenset(found - others)


def sensitive_inputs(program: Program, constants: Constants, case: Case, candidates: set[int]) -> set[int]:
    """Which of ``candidates`` move the golden of a case beyond the budget when perturbed."""
    bindings, inputs, goldens = dict(case.descriptor.bindings), case.inputs, case.goldens
    types = gather_operands(program, inputs, constants, bindings).types
    found: set[int] = set()
    for value in sorted(candidates & set(inputs)):
        for other in (perturbed, opposed):
            changed = dict(inputs)
            changed[value] = other(inputs[value], types[value].dtype)
            try:
                moved = evaluate(program, changed, constants, bindings=bindings, keep=program.only_phase.outputs)
            except InputError:
                # An index left its range: this perturbation says nothing about the input.
                continue
            if any(_beyond(moved[g.id], g) for g in goldens):
                found.add(value)
                break
    return found


def perturbed(stored: Array, dtype: DType) -> Array:
    """Another array of the same domain: shifted by one along its first axis that is longer than 1; floats 1/32 larger
    (zeros become 1/32), the first integer one nearer to zero, bools inverted."""
    if dtype is DType.BOOL:
        return np.logical_not(stored)
    longer = [axis for axis, extent in enumerate(stored.shape) if extent > 1]
    rolled = np.roll(stored, 1, axis=longer[0]) if longer else stored
    if not dtype.is_float:
        changed = np.array(rolled).reshape(-1)
        first = changed[:1].astype(np.int64)
        changed[:1] = first - np.sign(first) if stored.ndim or first.any() else first + 1
        return changed.reshape(stored.shape)
    values = decode(rolled, dtype).astype(np.float64)
    return encode(np.where(values == 0.0, 2.0**-5, values * (1.0 + 2.0**-5)), dtype)


def opposed(stored: Array, dtype: DType) -> Array:
    """An array far from ``stored``, for comparisons that a small change does not turn: floats doubled and negated."""
    if not dtype.is_float:
        return perturbed(stored, dtype)
    values = decode(stored, dtype).astype(np.float64)
    return encode(np.where(values == 0.0, 1.0, -2.0 * values), dtype)


def _beyond(moved: Array, golden: OutputGolden) -> bool:
    with np.errstate(all="ignore"):
        if golden.low is not None and golden.high is not None:
            wide = moved.astype(np.float64)
            return bool(np.any((wide < golden.low.astype(np.float64)) | (wide > golden.high.astype(np.float64))))
        if not golden.dtype.is_float:
            return bool(np.any(moved != golden.value))
        first, second = golden.value.astype(np.float64), moved.astype(np.float64)
        return bool(np.any(np.abs(first - second) > golden.allowed))
