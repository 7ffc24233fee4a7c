"""Code formats that need NumPy, files and threads: their children are not sealed, and are watched the more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.isolation.toys import FlatBackend, add_artifact, operands, total
from tribunus.candidates.model import Artifact
from tribunus.errors import InternalError, NoExecError
from tribunus.isolation.executor import Axis, Fate, RunTerms, TimingProtocol
from tribunus.isolation.worker import CpuExecutor
from tribunus.plan.code import Code, CodeFormat


@pytest.fixture(scope="module")
def toy_executor() -> Iterator[CpuExecutor]:
    made = CpuExecutor({"toy": FlatBackend()}, {"toy-python": "tests.isolation.toy_replayer:REPLAYER"})
    yield made
    made.close()


def python(name: str) -> Artifact:
    return add_artifact(Code(CodeFormat("toy-python"), name.encode()))


def test_a_python_kernel_runs(toy_executor: CpuExecutor) -> None:
    artifact = python("add")
    inputs = operands(artifact)
    outcome = toy_executor.run(artifact, {}, inputs, RunTerms(calls=3, snapshots=(1, 3)))
    assert outcome.fate is Fate.RETURNED
    assert all(np.array_equal(o[2], total(inputs)) for o in outcome.outputs)
    assert outcome.unwritten == () and outcome.damage == () and outcome.late_writes == 0


def test_work_left_to_a_thread_is_seen(toy_executor: CpuExecutor) -> None:
    artifact = python("add_later")
    outcome = toy_executor.run(artifact, {}, operands(artifact), RunTerms())
    assert outcome.threads_after > outcome.threads_before
    assert 100 < outcome.late_writes <= 35 * 4  # a byte of a sum may equal the poison


def test_a_kernel_that_reads_the_environment_differs_between_processes(toy_executor: CpuExecutor) -> None:
    artifact = python("add_by_environment")
    runs = toy_executor.replay(artifact, {}, operands(artifact), [], {Axis.REPEAT: 1, Axis.PROCESS: 2})
    assert any(run.outputs != runs.reference for run in runs.runs)


def test_a_kernel_that_ends_the_process_is_a_crash(toy_executor: CpuExecutor) -> None:
    artifact = python("leave")
    outcome = toy_executor.run(artifact, {}, operands(artifact), RunTerms())
    assert outcome.fate is Fate.CRASHED
    assert outcome.death is not None and outcome.death.cause == "the process ended itself with status 3"


def test_code_that_cannot_be_loaded_is_a_crash_with_the_reason(toy_executor: CpuExecutor) -> None:
    artifact = python("no such function")
    outcome = toy_executor.run(artifact, {}, operands(artifact), RunTerms())
    assert outcome.fate is Fate.CRASHED
    assert outcome.death is not None and "could not be loaded: KeyError" in outcome.death.cause
    protocol = TimingProtocol(1, 1000, False, 10**9)
    samples = toy_executor.time([artifact, python("add")], {}, [operands(artifact)] * 2, protocol)
    assert [s.fate for s in samples] == [Fate.CRASHED, Fate.RETURNED]


def test_a_machine_that_forbids_code_is_no_fault_of_the_candidate(toy_executor: CpuExecutor) -> None:
    artifact = python("forbidden")
    with pytest.raises(NoExecError, match="no child can load code here"):
        toy_executor.run(artifact, {}, operands(artifact), RunTerms())


def test_an_unknown_format_or_backend_is_our_own_fault(toy_executor: CpuExecutor) -> None:
    unknown = add_artifact(Code(CodeFormat("cubin"), b"x"))
    with pytest.raises(InternalError, match="no replayer"):
        toy_executor.run(unknown, {}, operands(unknown), RunTerms())
    stranger = CpuExecutor({})
    with pytest.raises(InternalError, match="does not know the backend"):
        stranger.run(python("add"), {}, operands(unknown), RunTerms())
    stranger.close()
