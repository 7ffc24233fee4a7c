"""The independent plan checker: valid plans pass, and each single fault is refused by its own error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.models import images, region, rows
from tribunus.canon import digest_bytes
from tribunus.errors import (
    AliasError,
    ArenaBoundsError,
    IntegrityError,
    KernelBoundsError,
    OrderError,
    OverlapError,
    PlanError,
    ReadBeforeWriteError,
    ReceiptExtraError,
    ReceiptFailError,
    ReceiptMissingError,
    TensorBoundsError,
    TribunusError,
    UnusedError,
)
from tribunus.image.admissions import CHECK_NAMES, AdmissionLine
from tribunus.image.plan_checker import check_admissions, check_plan
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Sym
from tribunus.plan.code import Slot, SlotKind, recipe_digest
from tribunus.plan.document import content_key_to_json
from tribunus.plan.plan import (
    KERNEL_ALIGN,
    TENSOR_ALIGN,
    Buffer,
    BufferRole,
    Launch,
    Plan,
    PlanKernel,
    PlanTensor,
    Profile,
)
from tribunus.planning.assemble import AssembledRegion

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=12)
IDENTITY = ("signature", "candidate", "code", "recipe")
Item = TypeVar("Item")
Mutation = Callable[[Plan, int], Plan | None]


@cache
def honest() -> AssembledRegion:
    """A region of two profiles with code for the host."""
    with TemporaryDirectory() as folder:
        return region([images(), rows()], Path(folder), host=True)


def check(plan: Plan, pack: bytes | None = None, shards: Sequence[int] | None = None) -> None:
    made = honest()
    sizes = [len(shard) for shard in made.shards] if shards is None else shards
    check_plan(plan, memoryview(made.kernels if pack is None else pack), sizes)


def changed(items: tuple[Item, ...], position: int, item: Item) -> tuple[Item, ...]:
    return (*items[:position], item, *items[position + 1 :])


def kernel(plan: Plan, pick: int, change: Callable[[PlanKernel], PlanKernel]) -> Plan:
    at = pick % len(plan.kernels)
    return replace(plan, kernels=changed(plan.kernels, at, change(plan.kernels[at])))


def tensor(plan: Plan, pick: int, change: Callable[[PlanTensor], PlanTensor]) -> Plan:
    at = pick % len(plan.tensors)
    return replace(plan, tensors=changed(plan.tensors, at, change(plan.tensors[at])))


def profile(plan: Plan, pick: int, change: Callable[[Profile], Profile | None]) -> Plan | None:
    at = pick % len(plan.profiles)
    made = change(plan.profiles[at])
    return None if made is None else replace(plan, profiles=changed(plan.profiles, at, made))


def launch(plan: Plan, pick: int, change: Callable[[Launch, int], Launch | None]) -> Plan | None:
    def inside(old: Profile) -> Profile | None:
        at = pick // 2 % len(old.launches)
        made = change(old.launches[at], at)
        return None if made is None else replace(old, launches=changed(old.launches, at, made))

    return profile(plan, pick, inside)


def buffer(plan: Plan, pick: int, change: Callable[[Buffer, Profile], Buffer | None]) -> Plan | None:
    def inside(old: Profile) -> Profile | None:
        at = pick // 2 % len(old.buffers)
        made = change(old.buffers[at], old)
        return None if made is None else replace(old, buffers=changed(old.buffers, at, made))

    return profile(plan, pick, inside)


def argument(plan: Plan, pick: int, kind: SlotKind, index: Callable[[Launch, Slot], int | None]) -> Plan | None:
    """One argument of this kind points elsewhere."""

    def inside(old: Launch, _: int) -> Launch | None:
        places = [i for i, slot in enumerate(old.args) if slot.kind is kind]
        if not places:
            return None
        at = places[pick // 7 % len(places)]
        made = index(old, old.args[at])
        return None if made is None else replace(old, args=changed(old.args, at, Slot(kind, made)))

    return launch(plan, pick, inside)


def _other_tensor(plan: Plan) -> Callable[[Launch, Slot], int | None]:
    def index(old: Launch, slot: Slot) -> int | None:
        mine = plan.tensors[slot.index]
        strangers = (i for i, t in enumerate(plan.tensors) if (t.kernel, t.operand) != (mine.kernel, mine.operand))
        return next(strangers, None)

    return index


def _first_reads_temp(old: Profile) -> Profile | None:
    first = old.launches[0]
    size = old.buffers[first.args[0].index].size
    temps = [
        i
        for i, b in enumerate(old.buffers)
        if b.role is BufferRole.TEMP and b.size >= size and Slot(SlotKind.BUFFER, i) not in first.args
    ]
    if not temps:
        return None
    args = changed(first.args, 0, Slot(SlotKind.BUFFER, temps[0]))
    return replace(old, launches=changed(old.launches, 0, replace(first, args=args)))


def _writes_input(old: Profile) -> Profile | None:
    source = old.inputs[0].buffer
    for at, entry in enumerate(old.launches):
        for place, slot in enumerate(entry.args):
            is_write = slot.kind is SlotKind.BUFFER and place > 0 and slot.index != source
            if is_write and old.buffers[slot.index].size <= old.buffers[source].size and place == _output_place(entry):
                args = changed(entry.args, place, Slot(SlotKind.BUFFER, source))
                return replace(old, launches=changed(old.launches, at, replace(entry, args=args)))
    return None


def _output_place(entry: Launch) -> int:
    return len(honest().plan.kernels[entry.kernel].recipe.inputs)


def _reads_what_it_writes(old: Profile) -> Profile | None:
    for at, entry in enumerate(old.launches):
        place = _output_place(entry)
        read, written = entry.args[0], entry.args[place]
        fits = old.buffers[read.index].size >= old.buffers[written.index].size
        if fits and old.buffers[read.index].role is BufferRole.TEMP:
            args = changed(entry.args, place, read)
            return replace(old, launches=changed(old.launches, at, replace(entry, args=args)))
    return None


def _overlapping(old: Profile) -> Profile:
    """What the first launch writes lies where it reads."""
    first = old.launches[0]
    read, written = first.args[0].index, first.args[_output_place(first)].index
    moved = replace(old.buffers[written], offset=old.buffers[read].offset)
    arena = max(old.arena, moved.offset + moved.size)
    return replace(old, buffers=changed(old.buffers, written, moved), arena=arena)


def _without_wait(old: Launch, _: int) -> Launch | None:
    return replace(old, wait=()) if old.wait else None


def _swapped(old: Profile) -> Profile:
    """The last two launches change places."""
    return replace(old, launches=(*old.launches[:-2], old.launches[-1], old.launches[-2]))


def _extra_kernel(plan: Plan) -> Plan:
    code = honest().kernels
    first = plan.kernels[0]
    copy = replace(first, id="stranger", offset=-(-len(code) // KERNEL_ALIGN) * KERNEL_ALIGN)
    return replace(plan, kernels=(*plan.kernels, copy))


def _view(change: Callable[[Buffer, Profile], Buffer]) -> Mutation:
    return lambda plan, pick: buffer(plan, pick, change)


def _output_of_nothing(old: Profile) -> Profile:
    """An output in a buffer that no launch writes."""
    port = old.outputs[0]
    size = old.buffers[port.buffer].size
    fresh = Buffer(-(-old.arena // TENSOR_ALIGN) * TENSOR_ALIGN, size, BufferRole.OUTPUT)
    outputs = (replace(port, buffer=len(old.buffers)), *old.outputs[1:])
    return replace(old, buffers=(*old.buffers, fresh), arena=fresh.offset + size, outputs=outputs)


MUTATIONS: dict[str, tuple[type[TribunusError], Mutation]] = {
    "kernel misaligned": (KernelBoundsError, lambda p, n: kernel(p, n, lambda k: replace(k, offset=k.offset + 1))),
    "kernel outside": (KernelBoundsError, lambda p, n: kernel(p, n, lambda k: replace(k, offset=1 << 30))),
    "kernel too long": (KernelBoundsError, lambda p, n: kernel(p, n, lambda k: replace(k, size=1 << 30))),
    "kernels overlap": (
        KernelBoundsError,
        lambda p, n: kernel(p, 1 + n % (len(p.kernels) - 1), lambda k: replace(k, offset=k.offset - KERNEL_ALIGN)),
    ),
    "kernel digest": (IntegrityError, lambda p, n: kernel(p, n, lambda k: replace(k, digest=digest_bytes(b"x")))),
    "tensor shard": (TensorBoundsError, lambda p, n: tensor(p, n, lambda t: replace(t, blob=9))),
    "tensor misaligned": (TensorBoundsError, lambda p, n: tensor(p, n, lambda t: replace(t, offset=t.offset + 4))),
    "tensor outside": (TensorBoundsError, lambda p, n: tensor(p, n, lambda t: replace(t, offset=1 << 30))),
    "tensor size": (TensorBoundsError, lambda p, n: tensor(p, n, lambda t: replace(t, size=t.size - 1))),
    "tensor kernel": (TensorBoundsError, lambda p, n: tensor(p, n, lambda t: replace(t, kernel=99))),
    "tensor operand": (TensorBoundsError, lambda p, n: tensor(p, n, lambda t: replace(t, operand=99))),
    "tensor unused": (UnusedError, lambda p, n: replace(p, tensors=(*p.tensors, p.tensors[n % len(p.tensors)]))),
    "profile named twice": (
        PlanError,
        lambda p, n: replace(p, profiles=(p.profiles[0], replace(p.profiles[1], name=p.profiles[0].name))),
    ),
    "profiles take the same": (
        PlanError,
        lambda p, n: replace(p, profiles=(*p.profiles, replace(p.profiles[n % 2], name="third"))),
    ),
    "launch of no kernel": (PlanError, lambda p, n: launch(p, n, lambda e, i: replace(e, kernel=99))),
    "launch waits for itself": (OrderError, lambda p, n: launch(p, n, lambda e, i: replace(e, wait=(i,)))),
    "launch waits for a later one": (OrderError, lambda p, n: launch(p, n, lambda e, i: replace(e, wait=(i + 1,)))),
    "launch does not wait": (OrderError, lambda p, n: launch(p, n, _without_wait)),
    "no parts": (PlanError, lambda p, n: launch(p, n, lambda e, i: replace(e, parts=0))),
    "too many parts": (PlanError, lambda p, n: launch(p, n, lambda e, i: replace(e, parts=2))),
    "an argument less": (PlanError, lambda p, n: launch(p, n, lambda e, i: replace(e, args=e.args[:-1]))),
    "an argument more": (PlanError, lambda p, n: launch(p, n, lambda e, i: replace(e, args=(*e.args, e.args[0])))),
    "a symbol more": (PlanError, lambda p, n: launch(p, n, lambda e, i: replace(e, bind=(*e.bind, 1)))),
    "a tensor for a buffer": (
        PlanError,
        lambda p, n: launch(p, n, lambda e, i: replace(e, args=(Slot(SlotKind.TENSOR, 0), *e.args[1:]))),
    ),
    "a buffer that is not there": (ArenaBoundsError, lambda p, n: argument(p, n, SlotKind.BUFFER, lambda e, s: 999)),
    "a tensor that is not there": (TensorBoundsError, lambda p, n: argument(p, n, SlotKind.TENSOR, lambda e, s: 999)),
    "a tensor of another": (TensorBoundsError, lambda p, n: argument(p, n, SlotKind.TENSOR, _other_tensor(p))),
    "buffer misaligned": (ArenaBoundsError, lambda p, n: buffer(p, n, lambda b, f: replace(b, offset=b.offset + 4))),
    "buffer outside": (ArenaBoundsError, lambda p, n: buffer(p, n, lambda b, f: replace(b, offset=f.arena))),
    "buffer too small": (ArenaBoundsError, lambda p, n: buffer(p, n, lambda b, f: replace(b, size=b.size - 4))),
    "arena too small": (ArenaBoundsError, lambda p, n: profile(p, n, lambda f: replace(f, arena=f.arena - 64))),
    "live buffers overlap": (OverlapError, lambda p, n: profile(p, n, _overlapping)),
    "read before written": (ReadBeforeWriteError, lambda p, n: profile(p, n, _first_reads_temp)),
    "input written": (AliasError, lambda p, n: profile(p, n, _writes_input)),
    "read and written": (AliasError, lambda p, n: profile(p, n, _reads_what_it_writes)),
    "order changed": (PlanError, lambda p, n: profile(p, n, _swapped)),
    "output of nothing": (ReadBeforeWriteError, lambda p, n: profile(p, n, _output_of_nothing)),
    "view of nothing": (AliasError, _view(lambda b, f: replace(b, view_of=999))),
    "view of itself": (AliasError, _view(lambda b, f: replace(b, view_of=f.buffers.index(b)))),
    "input in a temp": (
        PlanError,
        lambda p, n: profile(
            p, n, lambda f: replace(f, inputs=(replace(f.inputs[0], buffer=f.launches[0].args[1].index),))
        ),
    ),
    "port outside": (
        ArenaBoundsError,
        lambda p, n: profile(p, n, lambda f: replace(f, outputs=(replace(f.outputs[0], buffer=999),))),
    ),
    "port twice": (PlanError, lambda p, n: profile(p, n, lambda f: replace(f, outputs=(*f.outputs, f.outputs[0])))),
}


def test_an_honest_plan_passes() -> None:
    check(honest().plan)


def _ranged() -> tuple[int, Profile]:
    """The honest plan's profile with a symbol, and its position."""
    return next((at, p) for at, p in enumerate(honest().plan.profiles) if p.symbols)


def _divided(by: Dim) -> Plan:
    """The honest plan, the first output of a launch with a symbol divided by ``by``, an expression over ``d0``."""
    plan, (_, ranged) = honest().plan, _ranged()
    at = next(entry.kernel for entry in ranged.launches if plan.kernels[entry.kernel].symbols == ("d0",))
    recipe = plan.kernels[at].recipe
    output = recipe.outputs[0]
    shape = (dims.floordiv(output.type.shape[0], by), *output.type.shape[1:])
    outputs = (replace(output, type=replace(output.type, shape=shape)), *recipe.outputs[1:])
    return kernel(plan, at, lambda old: replace(old, recipe=replace(recipe, outputs=outputs)))


def test_bytes_behind_a_divisor_that_is_never_0_are_proved() -> None:
    check(_divided(dims.maximum(Sym("d0"), 1)))


def test_bytes_behind_a_divisor_that_may_be_0_are_refused_as_a_plan_that_cannot_be_proved() -> None:
    with pytest.raises(PlanError, match=r"launch \d+: the bytes of argument \d+ cannot be proved: .*divisor"):
        check(_divided(dims.sub(Sym("d0"), 2)))


def test_a_port_behind_a_divisor_that_may_be_0_is_refused_as_a_plan_that_cannot_be_proved() -> None:
    at, ranged = _ranged()
    port = ranged.inputs[0]
    unclear = dims.floordiv(7, dims.sub(Sym("s0"), 2))
    made = replace(ranged, inputs=(replace(port, type=replace(port.type, shape=(unclear, 12))),))
    with pytest.raises(PlanError, match="input 'x': that no divisor of"):
        check(replace(honest().plan, profiles=changed(honest().plan.profiles, at, made)))


@pytest.mark.parametrize("name", MUTATIONS)
def test_one_fault_is_refused_by_its_error(name: str) -> None:
    error, mutate = MUTATIONS[name]
    hits = 0

    @FIXED
    @given(st.integers(0, 400))
    def every(pick: int) -> None:
        nonlocal hits
        plan = mutate(honest().plan, pick)
        if plan is None:
            return
        assert plan != honest().plan
        hits += 1
        with pytest.raises(error):
            check(plan)

    every()
    assert hits, "the mutation never applied"


@FIXED
@given(st.data())
def test_any_flipped_byte_of_the_pack_is_noticed(data: st.DataObject) -> None:
    pack = bytearray(honest().kernels)
    pack[data.draw(st.integers(0, len(pack) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((IntegrityError, KernelBoundsError)):
        check(honest().plan, pack=bytes(pack))


def test_code_that_belongs_to_nothing_is_refused() -> None:
    with pytest.raises(KernelBoundsError):
        check(honest().plan, pack=honest().kernels + b"\x90")
    check(honest().plan, pack=honest().kernels + b"\0")


def test_kernels_and_shards_that_nothing_uses_are_refused() -> None:
    made = honest()
    plan = _extra_kernel(made.plan)
    stranger = plan.kernels[-1]
    code = made.kernels[made.plan.kernels[0].offset :][: stranger.size]
    pack = made.kernels + bytes(stranger.offset - len(made.kernels)) + code
    with pytest.raises(UnusedError):
        check(plan, pack=pack)
    with pytest.raises(UnusedError):
        check(made.plan, shards=[*(len(shard) for shard in made.shards), 64])


def test_views_lie_inside_buffers_that_are_no_views() -> None:
    plan = honest().plan
    old = plan.profiles[0]
    parent = old.buffers[0]
    inside = replace(parent, view_of=0, role=BufferRole.TEMP)
    count = len(old.buffers)
    for buffers, error in (
        ((inside,), None),
        ((replace(inside, offset=old.arena - 64, size=64),), AliasError),
        ((inside, replace(inside, view_of=count)), AliasError),
    ):
        made = replace(plan, profiles=(replace(old, buffers=(*old.buffers, *buffers)), plan.profiles[1]))
        if error is None:
            check(made)
        else:
            with pytest.raises(error):
                check(made)


# admissions ---------------------------------------------------------------------------------------------------------
def lines(plan: Plan) -> list[AdmissionLine]:
    """An admission of every kernel."""
    digest = digest_bytes(b"receipt")
    return [
        AdmissionLine(
            kernel=k.id,
            artifact=digest,
            key={
                **{name: str(value) for name, value in content_key_to_json(k.key).items()},
                "signature": k.signature,
                "candidate": k.candidate,
                "code": k.digest,
                "recipe": recipe_digest(k.recipe, k.symbols),
            },
            checks=dict.fromkeys(CHECK_NAMES, ("passed", digest)),
            error_share=0.5,
            time_ns=10,
            budget_ns=80,
            replay=digest,
            executor="device",
            machine=digest,
        )
        for k in plan.kernels
    ]


def test_six_passes_under_the_kernels_key_admit() -> None:
    check_admissions(honest().plan, lines(honest().plan))


@pytest.mark.parametrize("name", CHECK_NAMES)
@pytest.mark.parametrize("verdict", ["rejected", "crashed", "timed out", "mistrusted", ""])
def test_a_check_that_did_not_pass_is_refused(name: str, verdict: str) -> None:
    plan = honest().plan
    first, *rest = lines(plan)
    failed = replace(first, checks={**first.checks, name: (verdict, digest_bytes(b"receipt"))})
    with pytest.raises(ReceiptFailError, match=name):
        check_admissions(plan, [failed, *rest])
    missing = replace(first, checks={n: v for n, v in first.checks.items() if n != name})
    with pytest.raises(ReceiptMissingError):
        check_admissions(plan, [missing, *rest])


@pytest.mark.parametrize("name", [*content_key_to_json(honest().plan.kernels[0].key), *IDENTITY])
def test_an_admission_under_another_key_is_refused(name: str) -> None:
    plan = honest().plan
    first, *rest = lines(plan)
    for key in ({**first.key, name: "other"}, {n: v for n, v in first.key.items() if n != name}):
        with pytest.raises(ReceiptFailError, match=name):
            check_admissions(plan, [replace(first, key=key), *rest])


def test_missing_repeated_and_strange_admissions_are_refused() -> None:
    plan = honest().plan
    given_lines = lines(plan)
    with pytest.raises(ReceiptMissingError):
        check_admissions(plan, given_lines[1:])
    with pytest.raises(ReceiptExtraError):
        check_admissions(plan, [*given_lines, given_lines[0]])
    with pytest.raises(ReceiptExtraError):
        check_admissions(plan, [*given_lines, replace(given_lines[0], kernel="stranger")])


def test_kernels_are_admitted_for_the_plans_level() -> None:
    plan = replace(honest().plan, arch="x86-64-v4")
    with pytest.raises(ReceiptFailError, match="x86-64-v4"):
        check_admissions(plan, lines(plan))


def test_two_kernels_of_one_id_are_refused() -> None:
    plan = honest().plan
    twins = replace(plan, kernels=(plan.kernels[0], replace(plan.kernels[1], id=plan.kernels[0].id), *plan.kernels[2:]))
    with pytest.raises(PlanError, match="share an id"):
        check_admissions(twins, lines(twins)[:1])
