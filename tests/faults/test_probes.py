"""Each probe carries weight: without it, the check that holds it lets a fault of the corpus pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.faults.corpus import BY_ID
from tests.faults.test_corpus import built
from tests.faults.workshop import Workshop
from tribunus.admission.cases import CaseBook, VectorCase
from tribunus.admission.context import CheckContext
from tribunus.admission.policy import AdmissionPolicy
from tribunus.admission.receipt import Verdict
from tribunus.admission.series import FUNCTIONS
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import (
    Axis,
    DimValues,
    ExecutorKind,
    Inputs,
    Outcome,
    Poison,
    ReplayRuns,
    RunTerms,
    TimingProtocol,
    TimingSamples,
)
from tribunus.isolation.worker import CpuExecutor
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.vectors import Descriptor


class Blinded:
    """An executor with other terms, or that sees less."""

    def __init__(
        self,
        inner: CpuExecutor,
        terms: Callable[[RunTerms], RunTerms] = lambda terms: terms,
        seen: Callable[[Outcome], Outcome] = lambda outcome: outcome,
        timed: Callable[[TimingSamples], TimingSamples] = lambda samples: samples,
    ) -> None:
        self._inner, self._terms, self._seen, self._timed = inner, terms, seen, timed

    @property
    def kind(self) -> ExecutorKind:
        return self._inner.kind

    def run(self, artifact: Artifact, dims: DimValues, inputs: Inputs, terms: RunTerms) -> Outcome:
        return self._seen(self._inner.run(artifact, dims, inputs, self._terms(terms)))

    def time(
        self, artifacts: Sequence[Artifact], dims: DimValues, inputs: Sequence[Inputs], protocol: TimingProtocol
    ) -> tuple[TimingSamples, ...]:
        return tuple(self._timed(s) for s in self._inner.time(artifacts, dims, inputs, protocol))

    def replay(
        self, artifact: Artifact, dims: DimValues, inputs: Inputs, others: Sequence[Inputs], axes: Mapping[Axis, int]
    ) -> ReplayRuns:
        return self._inner.replay(artifact, dims, inputs, others, axes)

    def renew(self) -> None:
        self._inner.renew()

    def close(self) -> None:
        self._inner.close()


class Without(CaseBook):
    """Cases without some vectors, or at the expected dims alone."""

    def __init__(
        self, book: CaseBook, left_out: Callable[[Descriptor], bool] = lambda _: False, *, one_shape: bool = False
    ) -> None:
        self.__dict__.update(book.__dict__)
        self._left_out = left_out
        self._one_shape = one_shape

    def oracle_cases(self) -> Sequence[VectorCase]:
        return [c for c in super().oracle_cases() if not self._left_out(c.descriptor)]

    def shape_cases(self) -> Sequence[VectorCase]:
        return super().oracle_cases()[:2] if self._one_shape else super().shape_cases()


@dataclass(frozen=True)
class Setting:
    """What a check is given."""

    context: CheckContext
    executor: CpuExecutor | Blinded


Blind = Callable[[CheckContext, CpuExecutor], Setting]


def vectors(left_out: Callable[[Descriptor], bool]) -> Blind:
    def blind(context: CheckContext, executor: CpuExecutor) -> Setting:
        assert isinstance(context.cases, CaseBook)
        return Setting(replace(context, cases=Without(context.cases, left_out)), executor)

    return blind


def expected_dims_only(context: CheckContext, executor: CpuExecutor) -> Setting:
    assert isinstance(context.cases, CaseBook)
    return Setting(replace(context, cases=Without(context.cases, one_shape=True)), executor)


def demand(change: Callable[[AdmissionPolicy], AdmissionPolicy]) -> Blind:
    """Another policy."""
    return lambda context, executor: Setting(replace(context, policy=change(context.policy)), executor)


def axes(*removed: Axis) -> Blind:
    """The same number of replays, none along these axes."""

    def blind(context: CheckContext, executor: CpuExecutor) -> Setting:
        kept = {axis: count for axis, count in context.policy.replays if axis not in removed}
        kept[Axis.COLD] += sum(count for axis, count in context.policy.replays if axis in removed)
        return demand(lambda policy: replace(policy, replays=tuple(kept.items())))(context, executor)

    return blind


def one_poison(context: CheckContext, executor: CpuExecutor) -> Setting:
    return Setting(context, Blinded(executor, terms=lambda terms: replace(terms, poison=Poison.A5)))


def no_damage(context: CheckContext, executor: CpuExecutor) -> Setting:
    return Setting(context, Blinded(executor, seen=lambda outcome: replace(outcome, damage=())))


def always_poisoned(context: CheckContext, executor: CpuExecutor) -> Setting:
    return Setting(context, Blinded(executor, terms=lambda terms: replace(terms, repoison=True)))


def clean_outputs(context: CheckContext, executor: CpuExecutor) -> Setting:
    narrowed = axes(Axis.POISON, Axis.PREFILL)(context, executor).context
    return Setting(narrowed, always_poisoned(context, executor).executor)


def no_control(context: CheckContext, executor: CpuExecutor) -> Setting:
    return Setting(context, Blinded(executor, seen=lambda o: replace(o, control_after=o.control_before)))


def no_unwritten(context: CheckContext, executor: CpuExecutor) -> Setting:
    def fresh(samples: TimingSamples) -> TimingSamples:
        return replace(samples, outputs_fresh=True)

    # Left alone, the counter in the workspace is a multiple of eight at the third call.
    blinded = Blinded(executor, lambda t: replace(t, repoison=False), lambda o: replace(o, unwritten=()), fresh)
    return Setting(replace(context, policy=replace(context.policy, floor_share=0.0)), blinded)


def no_audit(context: CheckContext, executor: CpuExecutor) -> Setting:
    return Setting(replace(context, audit=lambda artifact: ()), executor)


def no_features(context: CheckContext, executor: CpuExecutor) -> Setting:
    return Setting(replace(context, used_features=lambda artifact: frozenset()), executor)


PROBES: tuple[tuple[str, str, Blind], ...] = (
    ("ties", "F07", vectors(lambda d: d.family is VectorFamily.TIES)),
    ("special numbers", "F06", vectors(lambda d: d.family is VectorFamily.SPECIAL)),
    ("small variances", "F05b", vectors(lambda d: d.exponent < 0)),
    ("other dims", "F10", expected_dims_only),
    ("other dims", "F11", expected_dims_only),
    ("other dims", "F12", expected_dims_only),
    ("other dims", "F13", expected_dims_only),
    ("NaN in the padding", "F15", one_poison),
    ("watched gaps", "F16", no_damage),
    ("floor", "F20", demand(lambda p: replace(p, floor_share=0.0))),
    ("zeros against ordinary data", "F21", demand(lambda p: replace(p, zero_ratio=0.0))),
    ("fresh outputs", "F22", no_unwritten),
    ("tail by CPU time", "F23", demand(lambda p: replace(p, tail_ratio=1e9))),
    ("first call", "F24", demand(lambda p: replace(p, first_call_ratio=1e9))),
    ("outputs after ten calls", "F25", demand(lambda p: replace(p, drift_calls=(1, 2)))),
    ("workspace left alone", "F25w", always_poisoned),
    ("other poisons", "F26", axes(Axis.POISON, Axis.PREFILL)),
    ("other environments", "F28", axes(Axis.PROCESS)),
    ("control word", "F29", no_control),
    ("other inputs in between", "F30", axes(Axis.INTERLEAVE)),
    ("old outputs", "F31", clean_outputs),
    ("static audit", "F38", no_audit),
    ("static audit", "F39", no_audit),
    ("instruction sets", "F35", no_features),
)


@pytest.mark.parametrize(("probe", "fault_id", "blind"), PROBES, ids=[f"{p[1]}-{p[0]}" for p in PROBES])
def test_without_the_probe_the_fault_passes(
    probe: str, fault_id: str, blind: Blind, workshop: Workshop, executor: CpuExecutor
) -> None:
    fault = BY_ID[fault_id]
    artifact = built(workshop, fault)
    setting = blind(workshop.context(artifact), executor)
    receipt = FUNCTIONS[fault.check](artifact, setting.executor, setting.context)
    assert receipt.verdict is Verdict.PASSED, (probe, receipt.reason)
