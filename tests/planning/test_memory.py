"""The memory plan against brute force."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tribunus.planning.memory import ALIGNMENT, Block, plan_memory

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=150)


def _block(size: int, first: int, length: int) -> Block:
    return Block(size, first, first + length)


BLOCKS = st.lists(st.builds(_block, st.integers(0, 1000), st.integers(-1, 12), st.integers(0, 6)), max_size=14)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@FIXED
@given(BLOCKS)
def test_no_byte_belongs_to_two_live_blocks(blocks: list[Block]) -> None:
    plan = plan_memory(blocks)
    for step in range(-1, 20):
        owner: dict[int, int] = {}
        for number, block in enumerate(blocks):
            if block.first <= step <= block.last:
                start = plan.offsets[number]
                for line in range(start // ALIGNMENT, (start + _aligned(block.size)) // ALIGNMENT):
                    assert owner.setdefault(line, number) == number
    for offset, block in zip(plan.offsets, blocks, strict=True):
        assert offset % ALIGNMENT == 0
        assert offset >= 0
        assert offset + block.size <= plan.arena


@FIXED
@given(BLOCKS)
def test_the_arena_lies_between_the_lower_bound_and_the_sum(blocks: list[Block]) -> None:
    plan = plan_memory(blocks)
    live = (sum(_aligned(b.size) for b in blocks if b.first <= step <= b.last) for step in range(-1, 20))
    assert plan.lower_bound == max(live, default=0)
    assert plan.lower_bound <= plan.arena <= sum(_aligned(b.size) for b in blocks)
    assert plan_memory(blocks) == plan


def test_a_chain_needs_two_blocks_and_a_gap_is_filled() -> None:
    chain = [Block(100, i, i + 1) for i in range(9)]
    assert plan_memory(chain).arena == plan_memory(chain).lower_bound == 2 * 128
    small = [Block(640, 0, 9), Block(256, 0, 2), Block(256, 3, 9), Block(64, 3, 4)]
    plan = plan_memory(small)
    assert plan.arena == plan.lower_bound == 960


def test_nothing_needs_nothing() -> None:
    assert plan_memory([]).arena == 0
    assert plan_memory([Block(0, 0, 3)]).arena == 0
