"""A program's kernels one by one, in the order of its schedule: the judgement that no jump can excuse.

Imported by: certification.sealing.  Imports: planning, oracle, isolation.

Behind a quantizer or a choice the end of a program says little: honest arithmetic may land on either side of a step.
So the kernels are run on a case one after the other, in children, each on what the ones before it gave.  Every result
is held against the golden of its own signature on just these operands, with the model's weights; and the outputs at the
end must be those of the assembled image bit for bit, which proves how the image wired them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tribunus.admission.captured import CapturedCase
from tribunus.admission.receipt import Figure, Reason
from tribunus.candidates.model import Signature
from tribunus.errors import InternalError
from tribunus.isolation.executor import Executor, Fate, RunTerms
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.propagation import judge_use
from tribunus.phaseir import dims
from tribunus.phaseir.program import Array, Constants, Role
from tribunus.planning.assemble import ProfileDraft, Winner
from tribunus.planning.schedule import Demand, Schedule, Step


@dataclass(frozen=True, slots=True)
class Stepwise:
    """steps: kernel calls that were accepted.  share: largest error in units of its budget.

    reason: of a refusal, which ends it.  outputs: of the program by label; empty after a refusal.
    """

    steps: int
    share: float
    reason: Reason | None
    outputs: Mapping[str, Array]


def run_stepwise(
    draft: ProfileDraft,
    winners: Mapping[Demand, Winner],
    constants: Constants,
    case: CapturedCase,
    bindings: Mapping[str, int],
    executor: Executor,
    policy: ComputePolicy,
) -> Stepwise:
    """Run and judge every step of a profile on one case; inputs that the case lacks are states and begin as zeros."""
    schedule, program = draft.schedule, draft.program
    held = _Values(schedule, bindings)
    for value, scheduled in zip(program.only_phase.inputs, schedule.inputs, strict=True):
        type_ = program.type_of(value).at(bindings)
        given = case.inputs.get(program.values[value].label)
        held.put(scheduled, np.zeros(type_.numbers(), type_.dtype.numpy) if given is None else given)
    share = 0.0
    for number, step in enumerate(schedule.steps):
        signature = step.demand.signature
        operands = _operands(step, held, constants, draft)
        bound = {f"d{i}": dims.evaluate(dim, bindings) for i, dim in enumerate(step.bind)}
        own = {name: bound[name] for name in signature.symbols} if signature.symbols else {}
        outcome = executor.run(winners[step.demand].artifact, own, operands, RunTerms())
        where = f"kernel call {number + 1} of {len(schedule.steps)}, {signature.name}"
        if outcome.fate is not Fate.RETURNED:
            cause = "unknown cause" if outcome.death is None else outcome.death.cause
            return Stepwise(number, share, Reason("crash", f"{where} died: {cause}"), {})
        outputs = outcome.outputs[0]
        verdict = judge_use(
            signature.program, operands, signature.constants, policy, signature.label, outputs, bindings=own
        )
        share = max(share, verdict.ratio)
        if not verdict.accepted:
            worst = verdict.worst
            figure = Figure("error", f"{worst.err_ulp:.4g} ulp", f"{worst.budget_ulp:.4g} ulp")
            text = f"{where}: an element is beyond its budget on the operands that it gets in the program"
            return Stepwise(number, share, Reason("element beyond its budget", text, (figure,)), {})
        for value, output in zip(step.outputs, signature.outputs, strict=True):
            held.put(value, outputs[output])
    labels = [program.values[v].label for v in program.only_phase.outputs]
    found = {label: held.get(v) for label, v in zip(labels, schedule.outputs, strict=True)}
    return Stepwise(len(schedule.steps), share, None, found)


def _operands(step: Step, held: _Values, constants: Constants, draft: ProfileDraft) -> dict[int, Array]:
    signature = step.demand.signature
    found = {own: held.get(value) for own, value in zip(signature.inputs, step.inputs, strict=True)}
    for own, value in zip(_weights(signature), step.weights, strict=True):
        found[own] = constants.of(draft.program, value)
    return found


def _weights(signature: Signature) -> list[int]:
    return [i for i, value in enumerate(signature.program.values) if value.role is Role.WEIGHT]


class _Values:
    """What flows through a schedule: logical arrays; an alias is its source's memory read in another layout."""

    def __init__(self, schedule: Schedule, bindings: Mapping[str, int]) -> None:
        self._schedule = schedule
        self._bindings = bindings
        self._arrays: dict[int, Array] = {}

    def put(self, value: int, array: Array) -> None:
        """What a step or the caller gave."""
        self._arrays[value] = array

    def get(self, value: int) -> Array:
        """The array of a value.  Raises InternalError where nothing gave it."""
        source = value
        while source not in self._arrays:
            before = self._schedule.values[source].alias_of
            if before is None:
                raise InternalError(f"the schedule reads value {value} before anything gave it")
            source = before
        if source == value:
            return self._arrays[value]
        as_read, as_written = self._schedule.values[value], self._schedule.values[source]
        shape = as_read.type.at(self._bindings).numbers()
        return as_read.layout.unpack(as_written.layout.pack(self._arrays[source]), shape)
