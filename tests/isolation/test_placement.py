"""Poison: what an element must not equal twice."""

from __future__ import annotations

import numpy as np
import pytest

from tribunus.isolation.executor import Poison
from tribunus.isolation.placement import pattern
from tribunus.isolation.worker import SECOND_POISON


@pytest.mark.parametrize("first", Poison)
def test_no_byte_can_equal_a_poison_and_the_one_that_confirms_it(first: Poison) -> None:
    """An output byte would else look unwritten under both by chance, in one of 65,536 elements."""
    size = 1 << 16
    assert np.all(pattern(first, size) != pattern(SECOND_POISON[first], size))


def test_random_poison_is_the_same_in_every_process_and_not_even() -> None:
    found = pattern(Poison.RANDOM, 1 << 12)
    assert np.array_equal(found, pattern(Poison.RANDOM, 1 << 12))
    assert np.unique(found).size == 255
