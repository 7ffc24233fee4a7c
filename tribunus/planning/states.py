"""States: an input that keeps what an output gave it, from one replay to the next.

Imported by: certification.  Imports: candidates, planning, phaseir.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tribunus.candidates.model import Signature
from tribunus.errors import InputError, UsageError
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.program import Constants, Program, State
from tribunus.planning.layout_plan import copy_signature
from tribunus.planning.schedule import Demand, Schedule, ScheduledValue, Step


@dataclass(frozen=True, slots=True)
class StatePair:
    """Labels of the input that reads a state and of the output that replaces it."""

    read: str
    write: str


def parse_state_options(options: Sequence[str]) -> tuple[StatePair, ...]:
    """Pairs from ``INPUT=OUTPUT``.  Raises UsageError for another form or a repeated name."""
    pairs: list[StatePair] = []
    for option in options:
        read, equals, write = option.rpartition("=")
        if not equals or not read or not write:
            raise UsageError(f"--state {option[:60]!r} is no INPUT=OUTPUT", remedy="name one input and one output")
        pairs.append(StatePair(read, write))
    for names in ([p.read for p in pairs], [p.write for p in pairs]):
        if len(set(names)) != len(names):
            raise UsageError("--state names an input or an output twice", remedy="give each pair once")
    return tuple(pairs)


def with_states(program: Program, pairs: Sequence[StatePair]) -> Program:
    """``program`` with these states.  Raises InputError for an unknown label or a pair of different types."""
    phase = program.only_phase
    inputs = {program.values[v].label: v for v in phase.inputs}
    outputs = {program.values[v].label: v for v in phase.outputs}
    states: list[State] = []
    for pair in pairs:
        for label, known, kind in ((pair.read, inputs, "input"), (pair.write, outputs, "output")):
            if label not in known:
                raise InputError(f"--state: there is no {kind} {label[:60]!r}", remedy=f"known: {', '.join(known)}")
        read, write = inputs[pair.read], outputs[pair.write]
        if program.type_of(read) != program.type_of(write):
            raise InputError(
                f"--state {pair.read}={pair.write}: {program.type_of(read)} and {program.type_of(write)} differ",
                remedy="a state is replaced by a value of its own type",
            )
        states.append(State(read, write, pair.read))
    return replace(program, states=tuple(states))


def keep_states(schedule: Schedule, program: Program, policy: ComputePolicy, constants: Constants) -> Schedule:
    """``schedule`` that ends by copying each written state to where the next replay reads it."""
    phase = program.only_phase
    values, steps = list(schedule.values), list(schedule.steps)
    for state in program.states:
        read = schedule.inputs[phase.inputs.index(state.read)]
        write = schedule.outputs[phase.outputs.index(state.write)]
        held = values[read]
        values.append(ScheduledValue(held.type, held.layout, held.origin, alias_of=read))
        copy, bind = copy_signature(held.type, program.symbols)
        demand = Demand(Signature(copy, policy, constants), (values[write].layout, held.layout))
        steps.append(Step(demand, (write,), (len(values) - 1,), (), bind, ()))
    return Schedule(tuple(values), tuple(steps), schedule.inputs, schedule.outputs)
