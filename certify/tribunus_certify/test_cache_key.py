"""The cache-key check, one test a candidate."""

from __future__ import annotations

import pytest

from tribunus.admission.receipt import Check
from tribunus.certification.pipeline import Item
from tribunus_certify.walking import walk


def test_cache_key(item: Item, request: pytest.FixtureRequest) -> None:
    """Run the check; a refusal is recorded, not raised."""
    walk(item, Check.CACHE_KEY, request)
