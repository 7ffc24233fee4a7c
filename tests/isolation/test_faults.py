"""Kernels that do what they must not: each is seen, and named."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.isolation.toys import HONEST, HONEST_WEIGHT, FlatBackend, Workshop, add_artifact, operands, total
from tribunus.isolation.executor import Fate, Guard, Outcome, Poison, RunTerms
from tribunus.isolation.worker import CpuExecutor
from tribunus.phaseir.layouts import Layout

X86 = os.uname().machine == "x86_64"
SYSCALL = (
    '__asm__ volatile("syscall" :: "a"(NUMBER) : "rcx", "r11", "memory");'
    if X86
    else 'register long x8 __asm__("x8") = NUMBER; __asm__ volatile("svc 0" :: "r"(x8) : "x0", "memory");'
)


def outcome_of(workshop: Workshop, executor: CpuExecutor, body: str, terms: RunTerms | None = None) -> Outcome:
    artifact = add_artifact(workshop.code(body))
    return executor.run(artifact, {}, operands(artifact), terms or RunTerms())


def where(outcome: Outcome) -> str:
    assert outcome.fate is Fate.CRASHED
    assert outcome.death is not None
    assert outcome.outputs == ()
    return f"{outcome.death.cause}: {outcome.death.where}"


@pytest.mark.parametrize(
    ("body", "guard", "place"),
    [
        (HONEST + "out[n] = 0;", Guard.AFTER, "SIGSEGV: write 0 bytes past the end of output 0 (140 bytes)"),
        (HONEST + "out[n + 9] = 0;", Guard.AFTER, "SIGSEGV: write 36 bytes past the end of output 0 (140 bytes)"),
        (HONEST + "out[0] = a[n];", Guard.AFTER, "SIGSEGV: read 0 bytes past the end of input 0 (140 bytes)"),
        (HONEST + "out[0] = b[n + 1];", Guard.AFTER, "SIGSEGV: read 4 bytes past the end of input 1 (140 bytes)"),
        (HONEST + "out[-1] = 0;", Guard.BEFORE, "SIGSEGV: write 4 bytes before the start of output 0 (140 bytes)"),
        (HONEST + "out[0] = a[-2];", Guard.BEFORE, "SIGSEGV: read 8 bytes before the start of input 0 (140 bytes)"),
        ("((float *)a)[3] = 0;" + HONEST, Guard.AFTER, "write at byte 12 of input 0 (140 bytes), which is read-only"),
        ("((char *)b)[139] = 0;" + HONEST, Guard.BEFORE, "write at byte 139 of input 1 (140 bytes), which"),
        ("*(volatile int *)(n - 35) = 0;", Guard.AFTER, "SIGSEGV: write at a null pointer"),
        ("*(volatile char *)((char *)out - (1l << 40)) = 0;", Guard.AFTER, "SIGSEGV: write outside every buffer"),
        ("__builtin_trap();", Guard.AFTER, "SIGILL" if X86 else "SIGTRAP"),
        (SYSCALL.replace("NUMBER", "39" if X86 else "172"), Guard.AFTER, "SIGSYS: a system call"),
        # allowed to the child itself, not to foreign code
        (SYSCALL.replace("NUMBER", "24" if X86 else "124"), Guard.AFTER, "SIGSYS: a system call"),
    ],
)  # fmt: skip
def test_a_death_names_its_cause_and_place(
    workshop: Workshop, executor: CpuExecutor, body: str, guard: Guard, place: str
) -> None:
    outcome = outcome_of(workshop, executor, body, RunTerms(guard=guard))
    assert place in where(outcome)
    assert "at code offset" in where(outcome) or "system call" in where(outcome)


@pytest.mark.skipif(not X86, reason="aarch64 loads from any address")
def test_an_aligned_load_from_a_misaligned_buffer_is_a_death(workshop: Workshop, executor: CpuExecutor) -> None:
    body = "typedef float v8 __attribute__((vector_size(32))); *(volatile v8 *)out = *(const volatile v8 *)a;"
    outcome = outcome_of(workshop, executor, body, RunTerms(guard=Guard.BEFORE, shift=4))
    assert "misaligned or impossible address" in where(outcome)


def test_a_stack_that_overflows_is_a_death_too(workshop: Workshop, executor: CpuExecutor) -> None:
    body = (
        "volatile char big[4096 * 4096]; for (int i = 0; i < 4096 * 4096; i += 4096) big[i] = (char)n; out[0] = big[0];"
    )
    assert "SIGSEGV" in where(outcome_of(workshop, executor, body))


def test_a_weight_is_read_only(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST_WEIGHT + "((float *)b)[1] = 0;"), weight=True)
    outcome = executor.run(artifact, {}, operands(artifact), RunTerms())
    assert "write at byte 4 of weight 0 (140 bytes), which is read-only" in where(outcome)


def test_an_endless_kernel_is_ended(workshop: Workshop) -> None:
    impatient = CpuExecutor({"toy": FlatBackend()}, deadline_ns=100_000_000)
    try:
        outcome = outcome_of(workshop, impatient, 'for (;;) __asm__ volatile("");')
        assert outcome.fate is Fate.TIMED_OUT
        assert outcome.death is not None
        assert "deadline" in outcome.death.cause
        assert outcome_of(workshop, impatient, HONEST).fate is Fate.RETURNED
    finally:
        impatient.close()


def test_after_a_death_the_next_run_is_served_by_a_new_child(workshop: Workshop, executor: CpuExecutor) -> None:
    flaky = "float *count = buffers[2]; if (a[0] > 100) __builtin_trap(); (void)count; " + HONEST
    artifact = add_artifact(workshop.code(flaky))
    inputs = operands(artifact)
    bad = {**inputs, 0: np.full((5, 7), 1000, np.float32)}
    assert executor.run(artifact, {}, inputs, RunTerms()).fate is Fate.RETURNED
    assert executor.run(artifact, {}, bad, RunTerms()).fate is Fate.CRASHED
    again = executor.run(artifact, {}, inputs, RunTerms())
    assert np.array_equal(again.outputs[0][2], total(inputs))


@pytest.mark.parametrize("poison", list(Poison))
def test_an_unwritten_tail_is_counted_under_any_poison(
    workshop: Workshop, executor: CpuExecutor, poison: Poison
) -> None:
    body = "for (int64_t i = 0; i < n - 3; i++) out[i] = a[i] + b[i];"
    assert outcome_of(workshop, executor, body, RunTerms(poison=poison)).unwritten == ((2, 3),)


@pytest.mark.parametrize("value", ["0.0f", '-__builtin_nanf("0x3fffff")'])
def test_a_result_that_equals_the_poison_is_not_called_unwritten(
    workshop: Workshop, executor: CpuExecutor, value: str
) -> None:
    body = f"for (int64_t i = 0; i < n; i++) out[i] = {value};"
    for poison in Poison:
        assert outcome_of(workshop, executor, body, RunTerms(poison=poison)).unwritten == ()


@pytest.mark.parametrize(
    ("body", "guard", "shift", "damage"),
    [
        (HONEST + "out[n] = 0;", Guard.BEFORE, 0, "4 bytes behind output 0 changed, the nearest 0 past its end"),
        (HONEST + "out[-1] = 0;", Guard.AFTER, 0, "4 bytes before output 0 changed, the nearest 1 before it"),
        (HONEST + "out[n + 1] = 0;", Guard.AFTER, 60, "4 bytes behind output 0 changed, the nearest 4 past its end"),
    ],
)
def test_writes_into_the_surroundings_are_seen(
    workshop: Workshop, executor: CpuExecutor, body: str, guard: Guard, shift: int, damage: str
) -> None:
    outcome = outcome_of(workshop, executor, body, RunTerms(guard=guard, shift=shift))
    assert outcome.fate is Fate.RETURNED
    assert outcome.damage == (damage,)


def test_writes_between_rows_are_seen(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST), layout=Layout((0, 1), (), 8))  # treats the gaps as its own
    outcome = executor.run(artifact, {}, operands(artifact), RunTerms(poison=Poison.RANDOM))
    assert outcome.damage == ("4 elements between the rows of output 0 changed, the first at element 7",)


def test_padding_of_inputs_is_poison(workshop: Workshop, executor: CpuExecutor) -> None:
    sums_all = "float s = 0; for (int64_t i = 0; i < 40; i++) s += a[i]; for (int64_t i = 0; i < n; i++) out[i] = s;"
    artifact = add_artifact(workshop.code(sums_all), layout=Layout((0, 1), ((1, 4),)))
    outcome = executor.run(artifact, {}, operands(artifact), RunTerms(poison=Poison.NAN))
    assert np.isnan(np.asarray(outcome.outputs[0][2])).all()


@pytest.mark.skipif(not X86, reason="MXCSR is a register of x86-64")
def test_a_leaked_control_word_is_seen_and_does_not_outlive_the_call(workshop: Workshop, executor: CpuExecutor) -> None:
    leak = 'unsigned m = 0x9fc0; __asm__ volatile("ldmxcsr %0" :: "m"(m));' + HONEST
    artifact = add_artifact(workshop.code(leak))
    for _ in range(2):
        outcome = executor.run(artifact, {}, operands(artifact), RunTerms())
        assert (outcome.control_before, outcome.control_after) == (0x1F80, 0x9FC0)


def test_a_kernel_that_only_raises_exception_flags_leaks_nothing(workshop: Workshop, executor: CpuExecutor) -> None:
    body = "volatile float z = 0; for (int64_t i = 0; i < n; i++) out[i] = a[i] / z + b[i] / 3;"
    outcome = outcome_of(workshop, executor, body)
    assert outcome.control_before == outcome.control_after
