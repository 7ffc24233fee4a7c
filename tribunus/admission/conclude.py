"""From what a check found to its receipt; the part that all six share.

Imported by: the checks.  Imports: admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tribunus.admission.context import Case, CheckContext
from tribunus.admission.receipt import CaseRecord, Check, Figure, Reason, Receipt, Timing, Verdict
from tribunus.candidates.model import Artifact
from tribunus.canon import Digest, Json, digest_bytes, digest_of
from tribunus.isolation.executor import Executor, Fate, Outcome
from tribunus.phaseir.program import Array


@dataclass(slots=True)
class Findings:
    """What one check collects on its way: cases, and the first thing that refuses the candidate."""

    cases: list[CaseRecord] = field(default_factory=list)
    details: list[tuple[str, str]] = field(default_factory=list)
    timing: Timing | None = None
    verdict: Verdict = Verdict.PASSED
    reason: Reason | None = None
    _accepted: dict[tuple[str, Digest], CaseRecord] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether something already spoke against the candidate."""
        return self.reason is not None

    def refuse(self, reason: Reason | None, verdict: Verdict = Verdict.REJECTED) -> bool:
        """Keep the first reason; returns whether there is one now."""
        if reason is not None and self.reason is None:
            self.reason, self.verdict = reason, verdict
        return self.refused

    def judge(self, case: Case, outputs: Mapping[int, Array], terms: str) -> bool:
        """Judge outputs and record the case; returns whether the candidate is refused now.

        Bytes that were accepted for a case are accepted again without a second look.
        """
        same = (case.name, _bytes_of(outputs))
        known = self._accepted.get(same)
        if known is not None:
            self.cases.append(replace(known, terms=terms))
            return self.refused
        judgement = case.judge(outputs, terms)
        self.cases.append(judgement.record)
        if judgement.reason is None:
            self._accepted[same] = judgement.record
        return self.refuse(judgement.reason)


def _bytes_of(outputs: Mapping[int, Array]) -> Digest:
    """Identity of outputs: value ids, dtypes, shapes and bytes."""
    rows: list[Json] = [
        [value, str(array.dtype), list(array.shape), digest_bytes(array.tobytes())]
        for value, array in sorted(outputs.items())
    ]
    return digest_of(rows)


def ended_badly(outcome: Outcome, what: str) -> tuple[Reason, Verdict] | None:
    """Reason and verdict if the child did not return."""
    if outcome.fate is Fate.RETURNED:
        return None
    death = outcome.death
    cause = "unknown cause" if death is None else f"{death.cause}; {death.where}" if death.where else death.cause
    if outcome.fate is Fate.TIMED_OUT:
        return Reason("no answer in time", f"the kernel did not return on {what}: {cause}"), Verdict.TIMED_OUT
    return Reason("crash", f"the kernel died on {what}: {cause}"), Verdict.CRASHED


def misbehaved(outcome: Outcome, what: str, parts: Sequence[str]) -> Reason | None:
    """What a run did beside computing: ``parts`` names which kinds are looked at.

    unwritten, inputs, damage, control, threads, late.
    """
    if "unwritten" in parts and outcome.unwritten:
        value, count = outcome.unwritten[0]
        return Reason(
            "output not written",
            f"{count} elements of output {value} still held the poison after the call on {what}",
            (Figure("unwritten elements", str(count), "0"),),
        )
    if "inputs" in parts and outcome.changed_inputs:
        names = ", ".join(f"weight {-1 - v}" if v < 0 else f"input {v}" for v in outcome.changed_inputs)
        return Reason("input changed", f"{names} changed during the call on {what}")
    if "damage" in parts and outcome.damage:
        return Reason("write outside the output", f"on {what}: {outcome.damage[0]}")
    if "late" in parts and outcome.late_writes:
        return Reason(
            "output written late",
            f"{outcome.late_writes} bytes of the output changed after the call on {what} had returned",
            (Figure("late bytes", str(outcome.late_writes), "0"),),
        )
    if "threads" in parts and outcome.threads_after > outcome.threads_before:
        return Reason(
            "thread started",
            f"the kernel left {outcome.threads_after - outcome.threads_before} threads behind on {what}",
            (Figure("threads", str(outcome.threads_after), str(outcome.threads_before)),),
        )
    if "control" in parts and outcome.control_after != outcome.control_before:
        return Reason(
            "floating point control changed",
            f"the control word changed from {outcome.control_before:#x} to {outcome.control_after:#x} on {what}",
            (Figure("control word", f"{outcome.control_after:#x}", f"{outcome.control_before:#x}"),),
        )
    return None


def conclude(
    check: Check, artifact: Artifact, executor: Executor, context: CheckContext, findings: Findings, started_ns: int
) -> Receipt:
    """The receipt of ``findings``."""
    return Receipt(
        check=check,
        signature=context.signature.digest,
        candidate=artifact.candidate.digest,
        artifact=artifact.digest,
        executor=executor.kind,
        verdict=findings.verdict,
        reason=findings.reason,
        cases=tuple(findings.cases),
        timing=findings.timing,
        key=key_digest(context.expected_key),
        machine=context.machine,
        versions=context.versions,
        details=tuple(findings.details),
        started_us=started_ns // 1000,
        took_ns=context.clock_ns() - started_ns,
    )


def key_digest(key: Mapping[str, str]) -> Digest:
    """Digest of a key document."""
    return digest_of(dict(key))
