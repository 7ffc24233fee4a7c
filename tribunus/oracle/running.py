"""Goldens with budgets: one pass in float64 that yields every output and the error an honest candidate may make.

Imported by: gates, certification, admission.  Imports: numerics, phaseir, golden, rules.

The budget depends on the op, the shape, the values of the inputs and the policy alone, and is the same for every
candidate: none can bring its own tolerance.  Rules that need more than one op (attention, a variance taken from
differences) recognise it by structure, so a group and its separate ops get the same budget; the label is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.canon import Digest, digest_bytes
from tribunus.errors import GoldenUnstable
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import POLICIES, ComputePolicy
from tribunus.numerics.rounding import is_representable
from tribunus.numerics.ulp import F64, ulp
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.golden import NO_BINDINGS, Operands, apply, evaluate, gather_operands, present
from tribunus.oracle.ops.call import Array, Order
from tribunus.oracle.rules import rule_of
from tribunus.oracle.value import Exactness, RuleCall, Setting, V, zero_error
from tribunus.phaseir.dims import Bindings
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Op, Program

LINEAR_TERMS: Final = 32
"""Terms from which the sharper statistics of linear ops hold; they were measured on sums of 17 and more."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What an index output chose from: ``kind`` along ``axis`` of ``values``, known to ``errors``."""

    kind: str
    values: F64
    errors: F64
    axis: int
    keepdims: bool


@dataclass(frozen=True, slots=True)
class OutputGolden:
    """One output of one vector: what is right, and how far from it is still right.

    id: value id in the program.  value: float64 unrounded, or native integers and bools.  presented: the same as stored
    elements.  budget: absolute error allowed beside ``k`` units in the last place, float64, >= 0, rounded up to 8
    significant bits so that it does not depend on the host's BLAS.  exact: elements that must equal ``presented``.
    low, high: for DISCRETE integers, the numbers allowed; None: ``presented`` only.  choice: for indices that were
    chosen among rounded numbers.  is_linear: matmul or convolution comes last, so the sharper rms bounds apply.
    """

    id: int
    dtype: DType
    value: Array
    presented: Array
    budget: F64
    k: float
    exactness: Exactness
    exact: npt.NDArray[np.bool_]
    low: Array | None
    high: Array | None
    choice: Choice | None
    is_linear: bool
    policy: ComputePolicy
    family: VectorFamily
    label: str

    @property
    def golden_digest(self) -> Digest:
        """Of the presented elements: evidence of this run."""
        return digest_bytes(np.ascontiguousarray(self.presented).tobytes())

    @property
    def budget_digest(self) -> Digest:
        """Of the budgets as binary32."""
        with np.errstate(over="ignore", under="ignore"):
            return digest_bytes(np.ascontiguousarray(self.budget).astype(np.float32).tobytes())

    @property
    def allowed(self) -> F64:
        """Absolute error allowed at each element: ``k ulp + budget``, 0 where the element is exact."""
        total = self.k * ulp(self.value, self.dtype) + self.budget if self.dtype.is_float else self.budget
        return np.asarray(np.where(self.exact, 0.0, total), dtype=np.float64)


class Trace:
    """Values with errors of every op of a program, in order."""

    def __init__(self, program: Program, operands: Operands, setting: Setting) -> None:
        self._program, self._operands, self._setting = program, operands, setting
        self._values: dict[int, Array] = dict(operands.exact)
        self._found: dict[int, V] = {i: V(a, zero_error(a), Exactness.BIT) for i, a in operands.exact.items()}
        self._calls: dict[int, RuleCall] = {}
        for op in program.only_phase.ops:
            self._step(op)

    def __getitem__(self, value: int) -> V:
        return self._found[value]

    def call_of(self, value: int) -> RuleCall | None:
        """The application that made ``value``, None where it was given."""
        return self._calls.get(value)

    def forget(self) -> None:
        """Let go of every value.  Calls find their producers through the trace: a circle that the collector frees
        late, and gigabytes with it."""
        self._calls.clear()
        self._found.clear()
        self._values.clear()

    def _step(self, op: Op) -> None:
        results = apply(self._program, self._operands, op, self._values)
        operands = tuple(None if i < 0 else self._found[i] for i in op.inputs)

        def producer(position: int) -> RuleCall | None:
            return self._calls.get(op.inputs[position])

        rule = RuleCall(self._operands.call(op, self._values), operands, results, self._setting, producer, op)
        for value, result, budgeted in zip(op.outputs, results, rule_of(op.kind)(rule), strict=True):
            self._values[value] = result
            self._found[value] = budgeted
            self._calls[value] = rule


def golden_with_budget(
    program: Program,
    inputs: Mapping[int, Array],
    constants: Constants,
    policy: ComputePolicy,
    label: str,
    family: VectorFamily,
    *,
    bindings: Bindings = NO_BINDINGS,
) -> tuple[OutputGolden, ...]:
    """Golden and budget of every output of a one-phase program, in the phase's order.

    Raises GoldenUnstable where a second evaluation, terms in another order, disagrees by more than 2**-10 of what
    candidates are allowed.
    """
    operands = gather_operands(program, inputs, constants, bindings)
    with np.errstate(all="ignore"):
        trace = Trace(program, operands, Setting(policy, POLICIES[policy], family))
        goldens = tuple(_output(trace, operands, value, policy, family, label) for value in program.only_phase.outputs)
        trace.forget()
        again = evaluate(
            program, inputs, constants, bindings=bindings, keep=program.only_phase.outputs, order=Order.REVERSED
        )
        for golden in goldens:
            _require_stable(golden, again[golden.id], label)
    return goldens


def coarse_up(budget: F64) -> F64:
    """``budget`` rounded up to 8 significant bits."""
    fraction, exponent = np.frexp(budget)
    return np.asarray(np.ldexp(np.ceil(fraction * 256.0), exponent - 8), dtype=np.float64)


def units_allowed(dtype: DType) -> float:
    """k: half a unit for formats that are stored from a wider interior, else one."""
    return 0.5 if dtype.is_float and dtype.bits < 32 else 1.0


def _output(
    trace: Trace, operands: Operands, value: int, policy: ComputePolicy, family: VectorFamily, label: str
) -> OutputGolden:
    found, type_ = trace[value], operands.types[value]
    budget = coarse_up(np.array(np.broadcast_to(found.err, found.value.shape)))
    if found.exactness.rank <= Exactness.ROUNDED.rank:
        exact = np.ones(found.value.shape, np.bool_)
    elif family.is_probe and POLICIES[policy].exact_probes and type_.dtype.is_float:
        interior = type_.dtype if type_.dtype.bits >= 32 else DType.F32
        exact = np.asarray((budget == 0.0) & is_representable(found.real, interior), dtype=np.bool_)
    else:
        exact = np.zeros(found.value.shape, np.bool_)
    made = trace.call_of(value)
    return OutputGolden(
        id=value,
        dtype=type_.dtype,
        value=found.value,
        presented=present(found.value, type_),
        budget=budget,
        k=units_allowed(type_.dtype),
        exactness=found.exactness,
        exact=exact,
        low=found.low,
        high=found.high,
        choice=_choice(made, value) if found.exactness is Exactness.DISCRETE else None,
        is_linear=made is not None and _terms_of(made) >= LINEAR_TERMS,
        policy=policy,
        family=family,
        label=label,
    )


def _terms_of(made: RuleCall) -> int:
    """Terms of each dot product where a matmul or convolution made a value, else 0."""
    family = spec_of(made.call.kind).family
    if family is Family.MATMUL:
        return int(made.operand(0).value.shape[-1])
    if family is Family.CONV:
        w, attributes = made.operand(1).value.shape, made.call.attributes
        if made.call.kind != "conv_transpose":
            return math.prod(w[1:])
        return int(w[0]) * math.prod(w[2:]) // (attributes.integer("group") * math.prod(attributes.integers("strides")))
    return 0


def _choice(made: RuleCall | None, value: int) -> Choice | None:
    if made is None or made.call.kind not in ("arg_max", "arg_min", "top_k"):
        return None
    x, attributes = made.operand(0), made.call.attributes
    errors = np.array(np.broadcast_to(x.err, x.value.shape))
    keepdims = made.call.kind == "top_k" or attributes.flag("keepdims")
    return Choice(made.call.kind, x.real, errors, attributes.integer("axis"), keepdims)


def _require_stable(golden: OutputGolden, again: Array, label: str) -> None:
    if golden.dtype.is_float:
        first, second = golden.value.astype(np.float64), again.astype(np.float64)
        share = 1.0 if golden.dtype is DType.F64 else 2.0**-10
        apart = np.abs(first - second)
        # A budget alone decides nearly every element; units in the last place are costly.
        left = ~((apart <= share * golden.budget) | (first == second))
        a, b = first[left], second[left]
        close = apart[left] <= share * (golden.budget[left] + ulp(a, golden.dtype))
        stable = bool(np.all(close | (np.isnan(a) & np.isnan(b))))
    elif golden.choice is not None:
        stable = True
    else:
        low = golden.value if golden.low is None else golden.low
        high = golden.value if golden.high is None else golden.high
        reach = golden.budget if golden.low is None else 0.0
        wide = again.astype(np.float64)
        inside = (wide >= low.astype(np.float64) - reach) & (wide <= high.astype(np.float64) + reach)
        stable = bool(np.all(inside))
    if not stable:
        raise GoldenUnstable(f"{label}: output {golden.id} on a vector of family {golden.family}")
