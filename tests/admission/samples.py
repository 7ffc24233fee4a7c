"""Recorded values for judgements: timing samples, replays, receipts, artifacts without code.

Imported by: the tests of admission, ledger and planning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.faults.subjects import Subject, relu
from tribunus.admission.receipt import CaseRecord, Check, Figure, Reason, Receipt, Timing, Verdict
from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility
from tribunus.canon import Digest, digest_bytes
from tribunus.isolation.executor import Axis, ExecutorKind, Fate, ReplayRun, ReplayRuns, TimingSamples
from tribunus.plan.code import Code, CodeFormat, Operand, Recipe

ROUNDS = 12


def samples(
    ns: int = 10_000,
    *,
    cpu: int | None = None,
    process: int | None = None,
    parent: float = 1.0,
    preempted: Sequence[bool] = (False,) * ROUNDS,
    first: int = 50_000,
    fresh: bool = True,
    singles: Sequence[int] = (10_000,) * 400,
    calls: int = 200,
) -> TimingSamples:
    """Samples of a kernel that takes ``ns`` a call; ``parent`` times that by the parent's clock."""
    busy = ns if cpu is None else cpu
    return TimingSamples(
        artifact=digest_bytes(b"artifact"),
        wall=(ns,) * ROUNDS,
        cpu=(busy,) * ROUNDS,
        process_cpu=(busy if process is None else process,) * ROUNDS,
        parent_wall=(int(ns * parent),) * ROUNDS,
        preempted=tuple(preempted),
        calls=calls,
        first_wall_ns=first,
        first_cpu_ns=first,
        outputs_fresh=fresh,
        single_call_cpu=tuple(singles),
        fate=Fate.RETURNED,
        death=None,
    )


def replays(counts: Sequence[tuple[Axis, int]], *, differing: int = -1, control: int = 0x1F80) -> ReplayRuns:
    """Replays that agree, but for the one at ``differing``."""
    good, bad = digest_bytes(b"good"), digest_bytes(b"bad")
    axes = [(axis, i) for axis, count in counts for i in range(count)]
    runs = tuple(
        ReplayRun(axis, i, bad if n == differing else good, control, Fate.RETURNED, None)
        for n, (axis, i) in enumerate(axes)
    )
    array = np.zeros(4, np.float32)
    other = array.copy()
    other[2] = 1.0
    return ReplayRuns(good, runs, {3: array}, None if differing < 0 else {3: other})


def artifact(subject: Subject | None = None, name: str = "a", *, jit_at_open: bool = False) -> Artifact:
    """An artifact of bytes that are no code."""
    subject = subject or relu(4, 8)
    signature = subject.signature
    border = (*signature.inputs, *signature.outputs)
    operands = [
        Operand(signature.type_of(v), layout, align or signature.type_of(v).dtype.itemsize)
        for v, layout, align in zip(border, subject.layouts, subject.aligns or (0,) * len(border), strict=True)
    ]
    count = len(signature.inputs)
    recipe = Recipe(
        tuple(operands[:count]),
        tuple(operands[count:]),
        subject.weights(),
        subject.workspace,
        subject.params,
        jit_at_open=jit_at_open,
    )
    candidate = Candidate("toy", signature.digest, Config.of({"name": name}), subject.layouts, Reproducibility.R)
    code = Code(CodeFormat("flat"), f"code of {name}".encode(), (("text_size", 4),))
    build = BuildRecord((("zig", "0.15"),), ("zig", "cc"), digest_bytes(name.encode()))
    return Artifact(candidate, signature, code, recipe, build)


def case_record(*, counted: bool = True, share: float = 0.25) -> CaseRecord:
    return CaseRecord(
        vector="rand^-3:name",
        seed=7,
        dims=(("d0", 5),),
        terms="dense",
        elements=32,
        counted=counted,
        trust="" if counted else "would accept: zeros",
        share=share,
        error_ulp=0.5,
        budget_ulp=2.0,
        index=(1, 3),
        got="1.5",
        golden="1.25",
        inputs=digest_bytes(b"inputs"),
        expected=digest_bytes(b"expected"),
    )


def receipt(
    check: Check = Check.ORACLE,
    verdict: Verdict = Verdict.PASSED,
    *,
    candidate: Digest | None = None,
    machine: Digest | None = None,
    executor: ExecutorKind = ExecutorKind.DEVICE,
    started_us: int = 1,
) -> Receipt:
    """A receipt of ``check``; refused ones have a reason with a figure."""
    figures = (Figure("error", "3 ulp", "2 ulp"),)
    return Receipt(
        check=check,
        signature=digest_bytes(b"signature"),
        candidate=candidate or digest_bytes(b"candidate"),
        artifact=digest_bytes(b"artifact"),
        executor=executor,
        verdict=verdict,
        reason=None if verdict is Verdict.PASSED else Reason("element beyond its budget", "too far", figures),
        cases=(case_record(),),
        timing=Timing((10, 11), (20,), (9, 9, 9), 80, 2, 50, (1,)) if check is Check.TIMING else None,
        key=digest_bytes(b"key"),
        machine=machine or digest_bytes(b"machine"),
        versions=(("numpy", "2"),),
        details=(("replays", "30"),),
        started_us=started_us,
        took_ns=5,
    )
