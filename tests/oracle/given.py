"""A vector with its goldens, held in memory.

Imported by: the tests beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tribunus.oracle.ops.call import Array
from tribunus.oracle.running import OutputGolden
from tribunus.oracle.vectors import Descriptor


@dataclass(frozen=True, slots=True)
class Given:
    """A case for the gates."""

    descriptor: Descriptor
    inputs: Mapping[int, Array]
    goldens: tuple[OutputGolden, ...]
