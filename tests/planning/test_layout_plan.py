"""The layout plan: transposes for nothing, conversions where they must be, cheaper than without a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.planning.models import Choice, Model, both_layouts, images, problem, rows, schedule
from tribunus.candidates.model import Signature
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir import dims
from tribunus.phaseir.layouts import Layout, channels_last, row_major
from tribunus.planning.layout_plan import copy_signature, plan_layouts, same_memory, transposed
from tribunus.planning.schedule import Schedule


def only_plain(signature: Signature) -> Sequence[Choice]:
    return both_layouts(signature)[:1]


def only_last(signature: Signature) -> Sequence[Choice]:
    """Channels last for convolutions and pooling, row-major for everything else."""
    return both_layouts(signature)[-1:]


def convolutions_last(signature: Signature) -> Sequence[Choice]:
    kinds = {op.kind for op in signature.phase.ops}
    return both_layouts(signature)[-1:] if kinds & {"conv"} else both_layouts(signature)[:1]


def conversions(made: Schedule) -> list[int]:
    """Bytes of each conversion."""
    found = []
    for step in made.steps:
        if not step.ops:
            size = dims.evaluate(step.demand.signature.type_of(step.demand.signature.inputs[0]).nbytes, {})
            found.append(size)
    return found


def sound(model: Model, made: Schedule) -> None:
    """Every step reads what was written, in the layouts that it demands; every op is computed once."""
    written = set(made.inputs)
    for step in made.steps:
        border = (*step.inputs, *step.outputs)
        assert tuple(made.values[v].layout for v in border) == step.demand.layouts
        assert {made.root(v) for v in step.inputs} <= written
        assert not {made.root(v) for v in step.outputs} & written
        written |= {made.root(v) for v in step.outputs}
    for value in (*made.inputs, *made.outputs):
        assert made.values[value].layout.is_row_major
    assert {made.root(v) for v in made.outputs} <= written
    ops = [op for step in made.steps for op in step.ops]
    assert len(ops) == len(set(ops))
    kinds = [op.kind for op in model.program.only_phase.ops]
    assert {kinds[i] for i in set(range(len(kinds))) - set(ops)} <= {"transpose", "reshape"}


CHOOSERS: dict[str, Callable[[Signature], Sequence[Choice]]] = {
    "both": both_layouts,
    "plain": only_plain,
    "last": only_last,
    "mixed": convolutions_last,
}


@pytest.mark.parametrize("name", CHOOSERS)
@pytest.mark.parametrize("make", [images, rows])
def test_schedules_are_sound_and_deterministic(make: Callable[[], Model], name: str) -> None:
    model = make()
    made = schedule(model, CHOOSERS[name])
    sound(model, made)
    again = schedule(make(), CHOOSERS[name])
    assert made == again


def test_a_transpose_of_a_channels_last_image_is_a_view() -> None:
    model = images()
    made = schedule(model, only_last)
    computed = [model.program.only_phase.ops[op].kind for step in made.steps for op in step.ops]
    assert "transpose" not in computed
    # The image comes row-major and is converted once; behind it everything is already in place.
    assert conversions(made) == [8 * 6 * 5 * 4]


def test_a_reshape_of_a_transposed_plain_image_needs_one_conversion() -> None:
    made = schedule(images(), only_plain)
    assert conversions(made) == [8 * 3 * 2 * 4]


def test_conversions_are_inserted_where_neighbours_disagree_and_made_once() -> None:
    made = schedule(images(), convolutions_last)
    assert len(conversions(made)) == 3
    targets = [(made.values[s.outputs[0]].origin, s.demand.layouts[1]) for s in made.steps if not s.ops]
    assert len(set(targets)) == len(targets)


def test_the_plan_is_no_worse_than_any_uniform_choice() -> None:
    best = sum(conversions(schedule(images(), both_layouts)))
    for name, chooser in CHOOSERS.items():
        assert best <= sum(conversions(schedule(images(), chooser))), name


def test_all_uses_of_a_signature_choose_alike() -> None:
    model = images()
    made = schedule(model)
    chosen: dict[str, set[Choice]] = {}
    for step in made.steps:
        if step.ops:
            chosen.setdefault(step.demand.signature.digest, set()).add(step.demand.layouts)
    assert all(len(layouts) == 1 for layouts in chosen.values())
    convolution = [s for s in problem(model).signatures if s.phase.ops[0].kind == "conv"]
    assert len(convolution) == 2
    assert convolution[0].digest == convolution[1].digest


def test_layouts_are_the_same_memory_up_to_axes_of_one() -> None:
    assert same_memory(row_major(4), channels_last(4), (3, 1, 5, 7))
    assert same_memory(row_major(4), channels_last(4), (3, 8, 1, 1))
    assert not same_memory(row_major(4), channels_last(4), (1, 8, 2, 2))
    assert not same_memory(row_major(2), Layout((0, 1), pitch=9), (1, 8))


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)])
def test_a_view_puts_every_element_where_it_was(perm: tuple[int, ...]) -> None:
    shape = (2, 3, 4, 5)
    for layout in (row_major(4), channels_last(4)):
        view = transposed(layout, perm)
        assert view is not None
        moved = tuple(shape[axis] for axis in perm)
        for index in ((0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 2, 3)):
            assert layout.offset(index, shape) == view.offset([index[axis] for axis in perm], moved)
    assert transposed(Layout((0, 1, 2, 3), ((1, 16),)), perm) is None


def test_copies_of_equal_types_are_one_signature() -> None:
    model = rows()
    type_ = model.program.type_of(model.program.only_phase.inputs[0])
    first, bind = copy_signature(type_, model.program.symbols)
    second, _ = copy_signature(type_, model.program.symbols)
    assert first == second
    assert (first.symbols[0].lo, first.symbols[0].opt, first.symbols[0].hi) == (1, 4, 9)
    assert bind == (type_.shape[0],)


def test_plans_depend_on_nothing_but_the_problem() -> None:
    model = images()
    given = problem(model)
    made = plan_layouts(given, ComputePolicy.FP32, model.constants)
    assert plan_layouts(given, ComputePolicy.FP32, model.constants) == made
