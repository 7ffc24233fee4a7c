"""Large budgets are computed piece by piece: the pieces must not show."""

from __future__ import annotations

import numpy as np
import pytest

from tribunus.numerics.policy import POLICIES, ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.rules.sums import PIECE, Terms, budget_of, matmul_terms
from tribunus.oracle.value import Setting

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("family", [VectorFamily.RAND, VectorFamily.CANCEL])
@pytest.mark.parametrize("products", [True, False])
def test_a_budget_in_pieces_is_the_budget_of_each_sum(family: VectorFamily, *, products: bool) -> None:
    size = 2 * PIECE + 17
    magnitude, square, partial = RANDOM.random((3, size))
    terms = Terms(RANDOM.standard_normal(size), magnitude, square, np.floor(RANDOM.random(size) * 40), partial)
    setting = Setting(ComputePolicy.TF32, POLICIES[ComputePolicy.TF32], family)
    whole = budget_of(terms.on((1, size)), setting, 2.0**-24, products=products)
    assert whole.shape == (1, size)
    for start in range(0, size, PIECE // 2):
        part = slice(start, start + PIECE // 2)
        assert np.array_equal(whole[0, part], budget_of(terms.part(part), setting, 2.0**-24, products=products))


@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 20, PIECE + 9), (300, 7, 200)])
def test_partial_sums_are_measured_forward_and_backward(shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    a, b = RANDOM.standard_normal((rows, depth)), RANDOM.standard_normal((depth, columns))
    found = matmul_terms(a, b, (rows, columns))
    place = (rows - 1, columns - 1)
    sums = np.cumsum(a[place[0]] * b[:, place[1]])
    expected = max(np.mean(sums**2), np.mean((sums[-1] - sums) ** 2))
    assert found.partial[place] == pytest.approx(expected, rel=1e-12)
    assert found.total[place] == pytest.approx(sums[-1], rel=1e-12, abs=1e-12)
    assert found.magnitude[place] == pytest.approx(np.abs(a[place[0]] * b[:, place[1]]).sum(), rel=1e-12)
