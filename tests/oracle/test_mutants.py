"""Honest kernels are admitted with room to spare, wrong ones are refused, on the vectors that certification uses."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pytest

from tests.oracle.given import Given
from tests.oracle.mutants.catalogue import SUITES
from tests.oracle.mutants.suite import Array, Kernel, Suite
from tribunus.numerics.policy import POLICIES
from tribunus.oracle.gates import trust_suite
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.vectors import materialise, vector_set
from tribunus.oracle.verdict import OracleVerdict, judge

BY_NAME = {suite.name: suite for suite in SUITES}
NAMES = tuple(BY_NAME)


@functools.cache
def cases_of(name: str) -> tuple[Given, ...]:
    suite = BY_NAME[name]
    label = suite.program.only_phase.name
    found = []
    for descriptor in vector_set(suite.program, suite.policy, label, {}):
        inputs = materialise(descriptor, suite.program)
        goldens = golden_with_budget(suite.program, inputs, suite.constants, suite.policy, label, descriptor.family)
        found.append(Given(descriptor, inputs, goldens))
    return tuple(found)


def outputs_of(suite: Suite, kernel: Kernel, inputs: Mapping[int, Array]) -> dict[int, Array]:
    with np.errstate(all="ignore"):
        made = kernel(*(inputs[i] for i in suite.program.only_phase.inputs))
    arrays = [made] if isinstance(made, np.ndarray) else list(made)
    return dict(zip(suite.program.only_phase.outputs, arrays, strict=True))


def verdicts(suite: Suite, kernel: Kernel) -> list[tuple[Given, OracleVerdict]]:
    return [(case, judge(outputs_of(suite, kernel, case.inputs), case.goldens)) for case in cases_of(suite.name)]


HONEST = [(name, kernel) for name in NAMES for kernel in BY_NAME[name].honest]
WRONG = [(name, kernel) for name in NAMES for kernel in BY_NAME[name].mutants]


@pytest.mark.parametrize(("name", "kernel"), HONEST)
def test_an_honest_kernel_is_accepted_on_every_vector(name: str, kernel: str) -> None:
    suite = BY_NAME[name]
    for case, verdict in verdicts(suite, suite.honest[kernel]):
        worst = verdict.worst
        assert verdict.accepted, f"{case.descriptor}: {worst}"
        if not case.descriptor.family.is_adversarial:
            # A one-hot row shows the conversion of the inputs alone: to nearest, it fills its bound by construction.
            converts = case.descriptor.family.is_probe and POLICIES[suite.policy].input_roundoff > 0
            assert verdict.ratio <= (1.0 if converts else suite.limit), f"{case.descriptor}: {worst}"


@pytest.mark.parametrize(("name", "kernel"), WRONG)
def test_a_wrong_kernel_is_refused_without_adversarial_vectors(name: str, kernel: str) -> None:
    suite = BY_NAME[name]
    trusts = trust_of(name)
    refusing = [
        str(case.descriptor)
        for (case, verdict), trust in zip(verdicts(suite, suite.mutants[kernel]), trusts, strict=True)
        if not verdict.accepted and not case.descriptor.family.is_adversarial and trust
    ]
    assert refusing


@functools.cache
def trust_of(name: str) -> tuple[bool, ...]:
    suite = BY_NAME[name]
    return tuple(t.counted for t in trust_suite(suite.program, suite.constants, cases_of(name)).cases)


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_vectors_refuse_every_answer_that_computes_nothing(name: str) -> None:
    suite = BY_NAME[name]
    cases = cases_of(name)
    trust = trust_suite(suite.program, suite.constants, cases)
    assert not trust.dropped
    assert not trust.insensitive
    weak = [
        (str(case.descriptor), found.why)
        for case, found in zip(cases, trust.cases, strict=True)
        if not found.counted and case.descriptor.family in ("rand", "exact", "heavy", "trend", "identity")
    ]
    # A normalization or softmax of tiny or huge numbers may be constant; the minimum set must be there nevertheless.
    assert trust.counted >= min(4, len(cases)), weak


@pytest.mark.parametrize("name", NAMES)
def test_six_wrong_kernels_at_least_and_two_honest_ones_stand_behind_a_budget(name: str) -> None:
    assert len(BY_NAME[name].mutants) >= 6
    assert len(BY_NAME[name].honest) >= 2
