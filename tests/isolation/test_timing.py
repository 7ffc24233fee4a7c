"""Samples of timed artifacts: shape, order of magnitude of work, freshness, deaths.  No time is bounded from above."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.isolation.toys import HONEST, HONEST_WEIGHT, Workshop, add_artifact, operands
from tribunus.isolation.children import timing_cpus
from tribunus.isolation.executor import Fate, TimingProtocol, TimingSamples
from tribunus.isolation.worker import CpuExecutor

QUICK = TimingProtocol(rounds=4, sample_ns=20_000, cold=False, deadline_ns=2 * 10**9)
COLD = TimingProtocol(rounds=2, sample_ns=20_000, cold=True, deadline_ns=2 * 10**9)
IMPATIENT = TimingProtocol(rounds=2, sample_ns=20_000, cold=False, deadline_ns=150_000_000)


def is_complete(samples: TimingSamples, rounds: int) -> bool:
    series = (samples.wall, samples.cpu, samples.process_cpu, samples.parent_wall, samples.preempted)
    return (
        samples.fate is Fate.RETURNED
        and all(len(one) == rounds for one in series)
        and min(samples.wall) > 0
        and samples.calls > 0
        and samples.first_wall_ns > 0
        and samples.first_cpu_ns > 0
        and samples.outputs_fresh
    )


def test_every_artifact_has_a_sample_a_round(workshop: Workshop, executor: CpuExecutor) -> None:
    small, large = add_artifact(workshop.code(HONEST)), add_artifact(workshop.code(HONEST), shape=(200, 500))
    inputs = [operands(small), operands(large), operands(small)]
    samples = executor.time([small, large, small], {}, inputs, replace(QUICK, singles=2))
    assert [s.artifact for s in samples] == [small.digest, large.digest, small.digest]
    assert all(is_complete(s, 4) for s in samples)
    assert [len(s.single_call_cpu) for s in samples] == [400, 400, 0]
    assert [len(s.single_call_preempted) for s in samples] == [400, 400, 0]
    assert min(samples[1].single_call_cpu) > 0
    assert samples[0].calls > 10 * samples[1].calls  # 35 elements against 100 000: calls are repeated to fill a sample


def test_the_machine_rests_before_the_first_sample(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST))
    before = time.monotonic_ns()
    (samples,) = executor.time([artifact], {}, [operands(artifact)], replace(QUICK, rest_ns=300_000_000))
    assert is_complete(samples, 4)
    assert time.monotonic_ns() - before >= 300_000_000


def test_calls_that_lose_the_processor_say_so(workshop: Workshop, executor: CpuExecutor) -> None:
    """Another process on the child's processor takes it away at times, not in every call of a fraction of its turn."""
    artifact = add_artifact(workshop.code(HONEST), shape=(1000, 1000))
    spin = f"import os\nos.sched_setaffinity(0, {timing_cpus(1)})\nprint(flush=True)\nwhile True: pass"
    rival = subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE)
    try:
        assert rival.stdout is not None and rival.stdout.readline()
        (samples,) = executor.time([artifact], {}, [operands(artifact)], replace(QUICK, singles=1))
    finally:
        rival.kill()
        rival.communicate()
    assert len(samples.single_call_cpu) > 100
    assert 0 < sum(samples.single_call_preempted) < len(samples.single_call_cpu)


def test_calls_of_a_long_kernel_are_its_samples(workshop: Workshop, executor: CpuExecutor) -> None:
    long = add_artifact(workshop.code(HONEST), shape=(4096, 4096))
    (samples,) = executor.time([long], {}, [operands(long)], replace(QUICK, singles=1))
    assert samples.calls == 1
    assert samples.single_call_cpu == samples.cpu


@pytest.mark.parametrize("weight", [True, False])
def test_cold_samples_rotate_over_copies(workshop: Workshop, executor: CpuExecutor, weight: bool) -> None:
    body = HONEST_WEIGHT if weight else HONEST
    artifact = add_artifact(workshop.code(body), shape=(200, 500), weight=weight)
    (samples,) = executor.time([artifact], {}, [operands(artifact)], COLD)
    assert is_complete(samples, 2)


def test_two_parts_run_on_two_threads(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST), shape=(100, 100), parts=2)
    (samples,) = executor.time([artifact], {}, [operands(artifact)], QUICK)
    assert is_complete(samples, 4)


def test_what_only_the_first_call_writes_is_not_fresh(workshop: Workshop, executor: CpuExecutor) -> None:
    lazy = "float *done = buffers[3]; if (done[0] != 1.0f) " + HONEST + " done[0] = 1.0f;"
    artifact = add_artifact(workshop.code(lazy), workspace=64)
    (samples,) = executor.time([artifact], {}, [operands(artifact)], QUICK)
    assert samples.fate is Fate.RETURNED
    assert not samples.outputs_fresh


def test_a_death_is_that_artifact_s_and_the_others_are_timed(workshop: Workshop, executor: CpuExecutor) -> None:
    honest = add_artifact(workshop.code(HONEST))
    trap, endless = (add_artifact(workshop.code(b)) for b in ("__builtin_trap();", 'for (;;) __asm__ volatile("");'))
    late = add_artifact(
        workshop.code("float *t = buffers[3]; if (++t[0] > 50) __builtin_trap();" + HONEST), workspace=4
    )
    artifacts = [trap, honest, endless, late]
    samples = executor.time(artifacts, {}, [operands(a) for a in artifacts], IMPATIENT)
    assert [s.fate for s in samples] == [Fate.CRASHED, Fate.RETURNED, Fate.TIMED_OUT, Fate.CRASHED]
    assert is_complete(samples[1], 2)
    assert all(s.death is not None and not s.outputs_fresh for s in (samples[0], samples[2], samples[3]))


def test_inputs_are_each_artifact_s_own(workshop: Workshop, executor: CpuExecutor) -> None:
    body = "if (a[0] != 7.0f) __builtin_trap();" + HONEST
    artifact = add_artifact(workshop.code(body))
    seven = {**operands(artifact), 0: np.full((5, 7), 7, np.float32)}
    samples = executor.time([artifact, artifact], {}, [seven, operands(artifact)], IMPATIENT)
    assert [s.fate for s in samples] == [Fate.RETURNED, Fate.CRASHED]
