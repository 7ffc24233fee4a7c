"""The layout plan: one layout for every value, conversions explicit, transposes free where layouts allow.

Imported by: certification.  Imports: candidates, passes.groups, phaseir, planning.schedule.

Every signature chooses one of the border layouts that backends proposed for it.  The cost of a choice is the bytes that
conversions move plus a small preference for earlier proposals; coordinate descent from two starts finds a plan, and
the cheaper of the two is taken.  All uses of a signature choose alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.candidates.model import Signature
from tribunus.candidates.work import work_of
from tribunus.canon import Digest
from tribunus.errors import InternalError
from tribunus.numerics.policy import ComputePolicy
from tribunus.passes.groups import Alias, Use
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.layouts import Layout, row_major
from tribunus.phaseir.ops import Family, spec_of
from tribunus.phaseir.program import Constants, Phase, Program, ProgramBuilder, Role
from tribunus.phaseir.types import TensorType
from tribunus.planning.schedule import Demand, Schedule, ScheduledValue, Step

Choice = tuple[Layout, ...]
_RANK_WEIGHT: Final = 256
"""Bytes that one place further down in a backend's proposals counts where any layout is about as good."""
_BYTES_A_FLOP: Final = 0.2
"""Bytes that a cache delivers in the time of one operation at peak."""
_PARTICULAR: Final = frozenset((Family.MATMUL, Family.CONV, Family.POOL, Family.RESIZE))
"""Families whose templates are fast in the layout they prefer only."""
_PASSES: Final = 4


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """What the plan is made for.

    uses: groups that cover the phase.  signatures: one for each use.  choices: border layouts a signature may have,
    best first, by digest.
    """

    program: Program
    phase: Phase
    uses: Sequence[Use]
    signatures: Sequence[Signature]
    aliases: Sequence[Alias]
    choices: Mapping[Digest, Sequence[Choice]]


def plan_layouts(problem: LayoutProblem, policy: ComputePolicy, constants: Constants) -> Schedule:
    """The schedule of ``problem`` with the cheapest layouts found.  Deterministic."""
    order = _execution_order(problem)
    best: tuple[int, dict[Digest, int]] | None = None
    for start in (_plain_start, _preferred_start):
        chosen = {s.digest: start(problem, s) for s in problem.signatures}
        cost = _descend(problem, order, chosen)
        if best is None or cost < best[0]:
            best = cost, chosen
    if best is None:
        raise InternalError("no layout plan was tried")
    return _Emitter(problem, policy, constants).emit(order, best[1])


def same_memory(left: Layout, right: Layout, shape: Sequence[Dim]) -> bool:
    """Whether two layouts put every element of a tensor of ``shape`` at the same place."""
    if left == right:
        return True
    if left.blocks or right.blocks or left.pitch is not None or right.pitch is not None:
        return False
    return [a for a in left.order if shape[a] != 1] == [a for a in right.order if shape[a] != 1]


def transposed(layout: Layout, perm: Sequence[int]) -> Layout | None:
    """Layout of ``transpose(x, perm)`` that is the same memory as ``x`` in ``layout``; None where blocked."""
    if layout.blocks or layout.pitch is not None:
        return None
    position = {source: axis for axis, source in enumerate(perm)}
    return Layout(tuple(position[axis] for axis in layout.order))


def _plain_start(problem: LayoutProblem, signature: Signature) -> int:
    choices = problem.choices[signature.digest]
    plain = [i for i, choice in enumerate(choices) if all(layout.is_row_major for layout in choice)]
    return plain[0] if plain else 0


def _preferred_start(problem: LayoutProblem, signature: Signature) -> int:
    """The first choice that is not row-major anywhere a backend prefers another layout."""
    choices = problem.choices[signature.digest]
    other = [i for i, choice in enumerate(choices) if not all(layout.is_row_major for layout in choice)]
    return other[0] if other else 0


def _descend(problem: LayoutProblem, order: Sequence[int], chosen: dict[Digest, int]) -> int:
    at = problem.program.scope.optimum()
    nbytes = [dims.evaluate(value.type.nbytes, at) for value in problem.program.values]
    ranks = {s.digest: _rank_weight(s) for s in problem.signatures}
    cost = _cost(problem, order, chosen, nbytes, ranks)
    signatures = list(dict.fromkeys(s.digest for s in problem.signatures))
    for _ in range(_PASSES):
        before = cost
        for digest in signatures:
            for option in range(len(problem.choices[digest])):
                if option == chosen[digest]:
                    continue
                trial = chosen | {digest: option}
                found = _cost(problem, order, trial, nbytes, ranks)
                if found < cost:
                    cost, chosen[digest] = found, option
        if cost == before:
            break
    return cost


def _rank_weight(signature: Signature) -> int:
    """Bytes that one place further down costs: the work of the call where only one layout has a fast template."""
    if not any(spec_of(op.kind).family in _PARTICULAR for op in signature.phase.ops):
        return _RANK_WEIGHT
    work = work_of(signature, signature.program.scope.optimum())
    return max(_RANK_WEIGHT, work.nbytes, int(work.weighted * _BYTES_A_FLOP))


def _cost(
    problem: LayoutProblem,
    order: Sequence[int],
    chosen: Mapping[Digest, int],
    nbytes: Sequence[int],
    ranks: Mapping[Digest, int],
) -> int:
    """Bytes moved by conversions, plus the rank of each choice."""
    total = 0
    held: dict[int, set[Layout]] = {}
    first: dict[int, Layout] = {}

    def define(value: int, layout: Layout) -> None:
        held[value], first[value] = {layout}, layout

    def want(value: int, layout: Layout) -> None:
        nonlocal total
        type_ = problem.program.type_of(value)
        if any(same_memory(layout, other, type_.shape) for other in held[value]):
            return
        held[value].add(layout)
        total += 2 * nbytes[value]

    for value in problem.phase.inputs:
        define(value, row_major(problem.program.type_of(value).rank))
    for item in order:
        if item < 0:
            alias = problem.aliases[-1 - item]
            layout = _alias_layout(problem, alias, first[alias.source])
            if layout is None:
                want(alias.source, row_major(problem.program.type_of(alias.source).rank))
                layout = row_major(problem.program.type_of(alias.value).rank)
            define(alias.value, layout)
            continue
        use, digest = problem.uses[item], problem.signatures[item].digest
        free = _free_transpose(problem, use, first)
        if free is not None:
            define(use.outputs[0], free)
            continue
        choice = problem.choices[digest][chosen[digest]]
        total += chosen[digest] * ranks[digest]
        for value, layout in zip(use.inputs, choice, strict=False):
            want(value, layout)
        for value, layout in zip(use.outputs, choice[len(use.inputs) :], strict=True):
            define(value, layout)
    for value in problem.phase.outputs:
        if value in held:
            want(value, row_major(problem.program.type_of(value).rank))
    return total


def _alias_layout(problem: LayoutProblem, alias: Alias, source: Layout) -> Layout | None:
    """Layout of a reshape's result over its source's memory, None if the source must be row-major first."""
    type_, result = problem.program.type_of(alias.source), problem.program.type_of(alias.value)
    if same_memory(source, row_major(type_.rank), type_.shape):
        return row_major(result.rank)
    return None


def _free_transpose(problem: LayoutProblem, use: Use, first: Mapping[int, Layout]) -> Layout | None:
    """Layout of the result if the use is a transpose that can be a view of its operand; None for any other use."""
    ops = use.signature.only_phase.ops
    if len(ops) != 1 or ops[0].kind != "transpose" or len(use.inputs) != 1 or use.outputs[0] in problem.phase.outputs:
        return None
    if use.inputs[0] in problem.phase.outputs:
        return None
    return transposed(first[use.inputs[0]], ops[0].attributes.integers("perm"))


def _execution_order(problem: LayoutProblem) -> list[int]:
    """Uses (index) and aliases (-1 - index) so that every value is defined before it is read; stable."""
    ready = set(problem.phase.inputs)
    ready |= {v for v, info in enumerate(problem.program.values) if info.role is Role.CONSTANT}
    pending: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = [
        (max(use.ops), i, use.inputs, use.outputs) for i, use in enumerate(problem.uses)
    ]
    pending += [(alias.op, -1 - i, (alias.source,), (alias.value,)) for i, alias in enumerate(problem.aliases)]
    pending.sort()
    order: list[int] = []
    while pending:
        for position, (_, item, needs, gives) in enumerate(pending):
            if all(value in ready for value in needs):
                order.append(item)
                ready.update(gives)
                del pending[position]
                break
        else:
            raise InternalError("the groups of the cover depend on each other in a circle")
    return order


class _Emitter:
    """Writes the schedule for chosen layouts."""

    def __init__(self, problem: LayoutProblem, policy: ComputePolicy, constants: Constants) -> None:
        self._problem = problem
        self._policy = policy
        self._constants = constants
        self._values: list[ScheduledValue] = []
        self._steps: list[Step] = []
        self._held: dict[int, list[int]] = {}

    def emit(self, order: Sequence[int], chosen: Mapping[Digest, int]) -> Schedule:
        problem = self._problem
        for value in problem.phase.inputs:
            self._define(value, row_major(problem.program.type_of(value).rank))
        inputs = tuple(range(len(self._values)))
        for item in order:
            if item < 0:
                self._alias(problem.aliases[-1 - item])
            else:
                self._use(problem.uses[item], problem.signatures[item], chosen)
        outputs = tuple(self._output(value) for value in problem.phase.outputs)
        return Schedule(tuple(self._values), tuple(self._steps), inputs, outputs)

    def _use(self, use: Use, signature: Signature, chosen: Mapping[Digest, int]) -> None:
        first = {v: self._values[ids[0]].layout for v, ids in self._held.items()}
        free = _free_transpose(self._problem, use, first)
        if free is not None:
            self._define(use.outputs[0], free, alias_of=self._held[use.inputs[0]][0])
            return
        choice = self._problem.choices[signature.digest][chosen[signature.digest]]
        inputs = tuple(self._in_layout(v, layout) for v, layout in zip(use.inputs, choice, strict=False))
        outputs = tuple(
            self._define(v, layout) for v, layout in zip(use.outputs, choice[len(use.inputs) :], strict=True)
        )
        self._steps.append(Step(Demand(signature, choice), inputs, outputs, use.weights, use.bind, use.ops))

    def _alias(self, alias: Alias) -> None:
        source = self._held[alias.source][0]
        layout = _alias_layout(self._problem, alias, self._values[source].layout)
        result = row_major(self._problem.program.type_of(alias.value).rank)
        if layout is None:
            source = self._in_layout(alias.source, row_major(self._problem.program.type_of(alias.source).rank))
        self._define(alias.value, result, alias_of=source)

    def _output(self, value: int) -> int:
        """An output lies row-major in memory of its own: never an alias of an input or of another output."""
        rank = self._problem.program.type_of(value).rank
        if self._problem.program.values[value].role is Role.CONSTANT:
            raise InternalError("a constant output has no step that writes it")
        found = self._in_layout(value, row_major(rank))
        return found

    def _in_layout(self, value: int, layout: Layout) -> int:
        """A schedule value that holds ``value`` in ``layout``; converted here if there is none."""
        type_ = self._problem.program.type_of(value)
        for held in self._held[value]:
            known = self._values[held]
            if known.layout == layout:
                return held
            if same_memory(known.layout, layout, type_.shape):
                return self._define(value, layout, alias_of=held)
        source = self._held[value][0]
        target = self._define(value, layout)
        self._steps.append(self._conversion(type_, source, target))
        return target

    def _conversion(self, type_: TensorType, source: int, target: int) -> Step:
        program, bind = copy_signature(type_, self._problem.program.symbols)
        signature = Signature(program, self._policy, self._constants)
        layouts = (self._values[source].layout, self._values[target].layout)
        return Step(Demand(signature, layouts), (source,), (target,), (), bind, ())

    def _define(self, value: int, layout: Layout, alias_of: int | None = None) -> int:
        type_ = self._problem.program.type_of(value)
        self._values.append(ScheduledValue(type_, layout, value, alias_of))
        self._held.setdefault(value, []).append(len(self._values) - 1)
        return len(self._values) - 1


def copy_signature(type_: TensorType, symbols: Sequence[Symbol]) -> tuple[Program, tuple[Dim, ...]]:
    """A program that copies a tensor of this type, and what its symbols are in the caller's program."""
    known = {s.name: s for s in symbols}
    bind: list[Dim] = []
    own: list[Symbol] = []
    shape: list[Dim] = []
    at_lo = {name: s.lo for name, s in known.items()}
    at_opt = {name: s.opt for name, s in known.items()}
    at_hi = {name: s.hi for name, s in known.items()}
    for dim in type_.shape:
        if isinstance(dim, int):
            shape.append(dim)
        elif dim in bind:
            shape.append(Sym(f"d{bind.index(dim)}"))
        else:
            values = [dims.evaluate(dim, at) for at in (at_lo, at_opt, at_hi)]
            lo, opt, hi = min(values), values[1], max(values)
            shape.append(Sym(f"d{len(bind)}"))
            own.append(Symbol(f"d{len(bind)}", "", lo, min(max(opt, lo), hi), hi))
            bind.append(dim)
    builder = ProgramBuilder(Constants(), tuple(own))
    source = builder.input(TensorType(type_.dtype, tuple(shape), type_.quantization), "")
    (result,) = builder.op("copy", (source,), Attributes())
    return builder.finish("copy", (source,), (result,)), tuple(bind)
