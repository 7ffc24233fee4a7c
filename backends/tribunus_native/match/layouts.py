"""Border layouts worth proposing for a signature that any permutation serves.

Imported by: the families.  Imports: phaseir.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tribunus.candidates.model import Signature
from tribunus.phaseir.layouts import Layout, channels_last, row_major
from tribunus_native.match.kernel import Layouts

_FREE = frozenset(("transpose", "copy"))
_PLAIN = frozenset(("matmul", "matmul_integer", "lstm", "gru", "reshape", "gather_nd", "scatter_nd", "top_k"))
_IMAGES = frozenset(
    ("conv", "conv_transpose", "conv_integer", "max_pool", "average_pool", "resize", "batch_norm", "group_norm")
)


def border_ranks(signature: Signature) -> tuple[int, ...]:
    """Rank of each input, then of each output."""
    return tuple(signature.type_of(v).rank for v in (*signature.inputs, *signature.outputs))


def permutes_only(layouts: Sequence[Layout]) -> bool:
    """Whether every layout is dense and unblocked."""
    return all(not layout.blocks and layout.pitch is None for layout in layouts)


def all_row_major(signature: Signature) -> Layouts:
    return tuple(row_major(rank) for rank in border_ranks(signature))


def all_channels_last(signature: Signature) -> Layouts | None:
    """Channels last for every operand that has the rank of the largest; lower ranks as they align with it."""
    ranks = border_ranks(signature)
    top = max(ranks, default=0)
    if top < 3:
        return None
    order = channels_last(top).order
    found: list[Layout] = []
    for rank in ranks:
        shift = top - rank
        found.append(Layout(tuple(axis - shift for axis in order if axis >= shift)))
    return tuple(found)


def proposed(signature: Signature) -> Iterator[Layouts]:
    """Layout tuples in the order of preference, none twice."""
    kinds = [op.kind for op in signature.phase.ops]
    plain, last = all_row_major(signature), all_channels_last(signature)
    seen: list[Layouts] = []
    if len(kinds) == 1 and kinds[0] in _FREE and signature.inputs:
        rank = border_ranks(signature)[0]
        options = list(dict.fromkeys((row_major(rank), channels_last(rank))))
        seen = [(a, b) for a in options for b in options]
        seen.sort(key=lambda pair: sum(not layout.is_row_major for layout in pair))
    elif last is None or any(kind in _PLAIN for kind in kinds):
        seen = [plain]
    elif any(kind in _IMAGES for kind in kinds):
        seen = [last, plain]
    else:
        seen = [plain, last]
    yield from dict.fromkeys(seen)
