"""What an evaluation with budgets leaves behind."""

from __future__ import annotations

import gc

import numpy as np

from tests.oracle.nodes import one_op
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.value import RuleCall
from tribunus.phaseir.program import Constants


def test_a_golden_leaves_nothing_for_the_collector() -> None:
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    program, inputs = one_op("matmul", [x, x.T.copy()])
    gc.collect()
    gc.disable()
    try:
        goldens = golden_with_budget(program, inputs, Constants(), ComputePolicy.FP32, "matmul", VectorFamily.RAND)
        assert goldens[0].value.shape == (4, 4)
        assert not [found for found in gc.get_objects() if isinstance(found, RuleCall)]
    finally:
        gc.enable()
