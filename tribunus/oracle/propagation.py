"""Whole programs: how far honest arithmetic may carry the outputs from golden, by stochastic propagation.

Imported by: certification.  Imports: golden, draws, running, verdict.

First order, the error of a program is a sum over ops of sensitivity times that op's error; worst cases multiplied
through ten layers judge nothing.  So the float64 program is run N times with noise of the size of honest rounding at
every op's result:
    sums and dots : u sqrt(n (y**2/3 + M2**2/6) + M2**2) times a number of mean 0 and variance 1
    other rounding ops : relative 4u, uniform
    16-bit results : the store's rounding itself
    moves, selections : nothing
The sizes come from the unperturbed run, so a run costs one forward.  N is 64, and 16 from 2**31 flops a forward on.

Accept iff ``|c - gold| <= ulp + 15 max(sigma, median(sigma)/4)`` for each element, and ``max |c - gold| <= 16 T``,
T the median over runs of the largest deviation, at least 4 ulp of the output's rms.

Outputs behind a quantizer or another jump that reads rounded numbers can land anywhere within its step: they are
reported only, and each use of a signature is judged on golden's own intermediates instead (``judge_use``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import POLICIES, ComputePolicy, PolicyFacts
from tribunus.numerics.rounding import decode, round_value
from tribunus.numerics.ulp import F64, ulp
from tribunus.oracle.draws import Draws
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.golden import NO_BINDINGS, evaluate
from tribunus.oracle.ops import golden_of
from tribunus.oracle.ops.call import Array, Call
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.verdict import OracleVerdict, judge
from tribunus.phaseir.dims import Bindings
from tribunus.phaseir.ops import Contract, spec_of
from tribunus.phaseir.program import Constants, Op, Program

SIGMAS: Final = 15.0
MAXIMA: Final = 16.0
RUNS: Final = 64
FEW_RUNS: Final = 16
LARGE_FLOPS: Final = 1 << 31

_UNIT: Final = 1.7320508075688772
"""sqrt(3): gives a uniform number in (-1, 1) variance 1."""
_STEPS: Final = ("quantize_linear", "dynamic_quantize_linear", "round", "floor", "ceil", "sign")
_CHOICES: Final = ("arg_max", "arg_min", "top_k", "equal", "less", "less_equal", "greater", "greater_equal")
_JUMPS: Final = frozenset((*_STEPS, *_CHOICES))


@dataclass(frozen=True, slots=True)
class OutputBudget:
    """One output.  gold: float64 or native.  sigma: per element.  largest: T.  is_reported_only: behind a jump."""

    id: int
    dtype: DType
    gold: Array
    sigma: F64
    largest: float
    is_reported_only: bool


@dataclass(frozen=True, slots=True)
class ProgramBudget:
    """Outputs in the phase's order, and how many runs stand behind them."""

    outputs: tuple[OutputBudget, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class ProgramOutputVerdict:
    """One output: largest error over the element's own allowance, and over that of the tensor."""

    id: int
    element_ratio: float
    tensor_ratio: float
    worst: tuple[int, ...]
    is_reported_only: bool

    @property
    def accepted(self) -> bool:
        """Within both allowances, or only reported."""
        return self.is_reported_only or (self.element_ratio <= 1.0 and self.tensor_ratio <= 1.0)


@dataclass(frozen=True, slots=True)
class ProgramVerdict:
    """All outputs of one run of a whole program."""

    outputs: tuple[ProgramOutputVerdict, ...]

    @property
    def accepted(self) -> bool:
        """Whether every output is accepted."""
        return all(o.accepted for o in self.outputs)


def runs_for(program: Program, bindings: Bindings) -> int:
    """N by the program's work, not by a clock: the same on every host."""
    types = tuple(v.type.at(bindings) for v in program.values)
    total = 0
    for op in program.only_phase.ops:
        operands = tuple(None if i < 0 else types[i] for i in op.inputs)
        flops = spec_of(op.kind).flops(operands, op.attributes, tuple(types[i] for i in op.outputs))
        total += flops if isinstance(flops, int) else 0
    return FEW_RUNS if total >= LARGE_FLOPS else RUNS


def program_budget(
    program: Program,
    constants: Constants,
    inputs: Mapping[int, Array],
    policy: ComputePolicy,
    *,
    bindings: Bindings = NO_BINDINGS,
    runs: int | None = None,
) -> ProgramBudget:
    """Golden of a one-phase program on ``inputs`` and the spread that honest arithmetic gives it.

    runs: None for ``runs_for``.  Cost: one forward with squares, then ``runs`` forwards.
    """
    outputs = program.only_phase.outputs
    noise = _Noise(program, POLICIES[policy])
    gold = evaluate(program, inputs, constants, bindings=bindings, keep=outputs, hook=noise.learn)
    known = dict(bindings) | noise.bindings
    count = runs_for(program, known) if runs is None else runs
    square = {i: np.zeros(gold[i].shape) for i in outputs}
    largest: dict[int, list[float]] = {i: [] for i in outputs}
    for run in range(count):
        noise.start(run)
        found = evaluate(program, inputs, constants, bindings=bindings, keep=outputs, hook=noise.disturb)
        for i in outputs:
            gap = _gap(found[i], gold[i])
            square[i] += gap * gap
            largest[i].append(float(gap.max(initial=0.0)))
    jumps = behind_jumps(program)
    return ProgramBudget(
        tuple(
            _output_budget(program, i, gold[i], np.sqrt(square[i] / max(1, count)), largest[i], i in jumps)
            for i in outputs
        ),
        count,
    )


def _output_budget(
    program: Program, value: int, gold: Array, sigma: F64, largest: list[float], is_reported_only: bool
) -> OutputBudget:
    dtype = program.values[value].type.dtype
    typical = float(np.median(largest)) if largest else 0.0
    if dtype.is_float:
        finite = gold[np.isfinite(gold.astype(np.float64))].astype(np.float64)
        rms = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        typical = max(typical, 4.0 * float(ulp(rms, dtype)))
    return OutputBudget(value, dtype, gold, sigma, typical, is_reported_only)


def _gap(found: Array, gold: Array) -> F64:
    with np.errstate(all="ignore"):
        gap = np.abs(found.astype(np.float64) - gold.astype(np.float64))
    return np.where(np.isfinite(gap), gap, 0.0)


class _Noise:
    """Sizes of the noise at each op, learnt once, and one run's numbers after another."""

    def __init__(self, program: Program, facts: PolicyFacts) -> None:
        self._facts = facts
        self._scale: dict[int, Array] = {}
        self._program = program
        self._draws = Draws(b"propagation")
        self.bindings: dict[str, int] = {}

    def start(self, run: int) -> None:
        """Begin the numbers of another run."""
        self._draws = Draws(f"propagation/{run}".encode())

    def learn(self, op: Op, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        """Record how large the noise of an op is; the results stay."""
        self.bindings.update(call.bindings)
        if spec_of(op.kind).contract is Contract.SUM and call.result_dtype().is_float:
            # Half the memory; noise needs no more than its leading digits.
            self._scale[op.outputs[0]] = _sum_scale(call, results[0], self._facts).astype(np.float32)
        return results

    def disturb(self, op: Op, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        """Results with this run's noise."""
        contract = spec_of(op.kind).contract
        return tuple(
            self._disturbed(value, result, call.result_dtype(i), contract)
            for i, (value, result) in enumerate(zip(op.outputs, results, strict=True))
        )

    def _disturbed(self, value: int, result: Array, dtype: DType, contract: Contract) -> Array:
        if not dtype.is_float or contract is Contract.EXACT or result.size == 0:
            return result
        u = 2.0**-53 if dtype is DType.F64 else self._facts.accumulator_roundoff
        wide = result.astype(np.float64)
        noise = self._uniform(wide.shape)
        scale = self._scale.get(value)
        wide = wide * (1.0 + 4.0 * u * noise) if scale is None else wide + _UNIT * scale.astype(np.float64) * noise
        return round_value(wide, dtype) if dtype.bits < 32 else wide

    def _uniform(self, shape: tuple[int, ...]) -> F64:
        count = math.prod(shape)
        words = self._draws.words(-(-count // 2)).view(np.int32)[:count]
        return words.reshape(shape).astype(np.float64) * 2.0**-31


def _sum_scale(call: Call, result: Array, facts: PolicyFacts) -> F64:
    """Standard deviation of the rounding error of sums: of dots with their products, of plain sums without."""
    u = 2.0**-53 if call.result_dtype() is DType.F64 else facts.accumulator_roundoff
    y = result.astype(np.float64)
    squares = [None if a is None else np.square(a.astype(np.float64)) for a in call.operands]
    if call.kind in ("conv", "conv_transpose"):
        squares = squares[:2]
    n = _terms(call)
    divisor = n if call.kind in ("reduce_mean", "average_pool") else 1.0
    golden = golden_of(_SQUARED.get(call.kind, call.kind))
    m2 = np.abs(np.asarray(golden(call.with_operands(*squares))[0], dtype=np.float64))
    if call.kind == "reduce_prod":
        return np.asarray(u * np.abs(y) * math.sqrt(n), dtype=np.float64)
    m2 = m2 * divisor
    total = y * divisor
    products = call.kind in ("matmul", "conv", "conv_transpose", "reduce_l2", "reduce_sum_square")
    variance = n * (total**2 / 3.0 + m2 / 6.0) + (m2 if products else 0.0)
    scale = u * np.sqrt(variance) / divisor
    if products and facts.input_roundoff:
        scale = np.sqrt(scale**2 + (facts.input_roundoff**2) * m2)
    return np.asarray(scale * math.sqrt(facts.winograd_factor), dtype=np.float64)


_SQUARED: Final = {"reduce_l1": "reduce_sum", "reduce_l2": "reduce_sum_square"}


def _terms(call: Call) -> float:
    """Terms of each sum."""
    shape = call.operand(0).shape
    if call.kind == "matmul":
        return float(shape[-1])
    if call.kind in ("conv", "conv_transpose"):
        w = call.operand(1).shape
        return float(math.prod(w[1:]) if call.kind == "conv" else w[0] * math.prod(w[2:]))
    if call.kind == "average_pool":
        return float(math.prod(call.attributes.integers("kernel")))
    if call.kind == "cumsum":
        return float(shape[call.attributes.integer("axis")])
    return float(max(1, math.prod(shape[a] for a in call.axes())))


def behind_jumps(program: Program) -> frozenset[int]:
    """Values that depend on a discontinuous op which reads rounded numbers."""
    rounded: set[int] = set()
    jumped: set[int] = set()
    for op in program.only_phase.ops:
        operands = [i for i in op.inputs if i >= 0]
        is_jump = op.kind in _JUMPS or (op.kind == "cast" and not op.attributes.dtype("to").is_float)
        reads_float = any(i in rounded and program.values[i].type.dtype.is_float for i in operands)
        if any(i in jumped for i in operands) or (is_jump and reads_float):
            jumped.update(op.outputs)
        if any(i in rounded for i in operands) or spec_of(op.kind).contract is not Contract.EXACT:
            rounded.update(op.outputs)
    return frozenset(jumped)


def judge_program(outputs: Mapping[int, Array], budget: ProgramBudget) -> ProgramVerdict:
    """Judge stored outputs of a whole program by value id."""
    with np.errstate(all="ignore"):
        return ProgramVerdict(tuple(_judge(outputs.get(b.id), b) for b in budget.outputs))


def _judge(stored: Array | None, budget: OutputBudget) -> ProgramOutputVerdict:
    if stored is None or stored.shape != budget.gold.shape or stored.dtype != budget.dtype.numpy:
        return ProgramOutputVerdict(budget.id, math.inf, math.inf, (), False)
    if stored.size == 0:
        return ProgramOutputVerdict(budget.id, 0.0, 0.0, (), budget.is_reported_only)
    if not budget.dtype.is_float:
        wrong = stored != budget.gold
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        ratio = math.inf if bool(np.any(wrong)) else 0.0
        return ProgramOutputVerdict(budget.id, ratio, ratio, _place(place), budget.is_reported_only)
    c, gold = decode(stored, budget.dtype).astype(np.float64), budget.gold.astype(np.float64)
    spread = np.maximum(budget.sigma, 0.25 * float(np.median(budget.sigma)))
    allowed = ulp(gold, budget.dtype) + SIGMAS * spread
    same = (c == gold) | (np.isnan(c) & np.isnan(gold))
    distance = np.abs(c - gold)
    gap = np.asarray(np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance)), dtype=np.float64)
    shares = gap / allowed
    at = np.unravel_index(int(np.argmax(shares)), shares.shape)
    tensor = float(gap.max()) / (MAXIMA * budget.largest)
    return ProgramOutputVerdict(budget.id, float(shares.max()), tensor, _place(at), budget.is_reported_only)


def _place(index: tuple[np.intp, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in index)


def judge_use(
    signature: Program,
    inputs: Mapping[int, Array],
    constants: Constants,
    policy: ComputePolicy,
    label: str,
    outputs: Mapping[int, Array],
    *,
    bindings: Bindings = NO_BINDINGS,
) -> OracleVerdict:
    """One use of a signature on golden's intermediates with the model's own weights: its outputs by value id."""
    goldens = golden_with_budget(signature, inputs, constants, policy, label, VectorFamily.CAPTURED, bindings=bindings)
    return judge(outputs, goldens)
