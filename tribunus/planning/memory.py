"""The memory plan: offsets in one arena from lifetimes.

Imported by: planning.assemble.  Imports: nothing of ours.  Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that is needed from step ``first`` to step ``last``, both included."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """offsets: of each block, in bytes.  arena: bytes in all.  lower_bound: largest sum of blocks live at one step."""

    offsets: tuple[int, ...]
    arena: int
    lower_bound: int


def plan_memory(blocks: Sequence[Block]) -> MemoryPlan:
    """Best fit by size: the largest blocks choose first, each the tightest gap among blocks that live with it.

    Two orders are tried (by size, and by size times lifetime) and the smaller arena is taken.  Deterministic.
    """
    sizes = [_aligned(block.size) for block in blocks]
    orders = (
        sorted(range(len(blocks)), key=lambda i: (-sizes[i], blocks[i].first, i)),
        sorted(range(len(blocks)), key=lambda i: (-sizes[i] * (blocks[i].last - blocks[i].first + 1), i)),
    )
    plans = [_place(blocks, sizes, order) for order in orders]
    offsets, arena = min(plans, key=lambda plan: plan[1])
    return MemoryPlan(offsets, arena, _lower_bound(blocks, sizes))


def _place(blocks: Sequence[Block], sizes: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], int]:
    offsets = [0] * len(blocks)
    placed: list[int] = []
    arena = 0
    for index in order:
        block = blocks[index]
        rivals: list[tuple[int, int]] = []
        for other in placed:
            if blocks[other].first <= block.last and block.first <= blocks[other].last and sizes[other]:
                bisect.insort(rivals, (offsets[other], offsets[other] + sizes[other]))
        best: tuple[int, int] | None = None
        cursor = 0
        for start, end in rivals:
            if start - cursor >= sizes[index] and (best is None or start - cursor < best[0]):
                best = start - cursor, cursor
            cursor = max(cursor, end)
        offsets[index] = cursor if best is None else best[1]
        arena = max(arena, offsets[index] + sizes[index])
        placed.append(index)
    return tuple(offsets), arena


def _lower_bound(blocks: Sequence[Block], sizes: Sequence[int]) -> int:
    change: dict[int, int] = {}
    for block, size in zip(blocks, sizes, strict=True):
        change[block.first] = change.get(block.first, 0) + size
        change[block.last + 1] = change.get(block.last + 1, 0) - size
    live = bound = 0
    for step in sorted(change):
        live += change[step]
        bound = max(bound, live)
    return bound


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
