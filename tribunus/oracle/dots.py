"""Products with a contraction, cut into blocks of matrix products: matmul, convolution and its transpose.

Imported by: oracle.ops, running, propagation.  Imports: numpy.

One generator serves the plain value (one float64 BLAS call a block), the condition sums of the budget and their
self-check, so that all see the same terms in the same natural order: input channel, then taps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tribunus.numerics.ulp import F64

BLOCK_ELEMENTS: Final = 1 << 21
"""Elements of an unfolded operand that are held at once: 16 MiB of float64."""


@dataclass(frozen=True, slots=True)
class Block:
    """``left @ right`` is the part ``where`` of the result, seen with the block's own shape.

    left: (..., rows, K).  right: (..., K, columns).  where: index into the result; shape: of the result there.
    """

    left: F64
    right: F64
    where: tuple[slice | int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Geometry of a convolution."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int


def accumulate(
    blocks: Iterator[Block], shape: tuple[int, ...], function: Callable[[F64, F64], tuple[F64, ...]]
) -> tuple[F64, ...]:
    """Apply ``function(left, right)`` to every block and put its results together, each of ``shape``."""
    found: list[F64] = []
    for block in blocks:
        parts = function(block.left, block.right)
        if not found:
            found = [np.zeros(shape) for _ in parts]
        for target, part in zip(found, parts, strict=True):
            target[block.where] = part.reshape(block.shape)
    return tuple(found)


def plain(left: F64, right: F64) -> tuple[F64, ...]:
    """The product, terms in natural order."""
    return (np.asarray(left @ right, dtype=np.float64),)


def reversed_terms(left: F64, right: F64) -> tuple[F64, ...]:
    """The product, terms in reversed order: two halves, last one first."""
    flipped_left, flipped_right = left[..., ::-1], right[..., ::-1, :]
    half = left.shape[-1] // 2
    if half == 0:
        return (np.asarray(flipped_left @ flipped_right, dtype=np.float64),)
    first = np.ascontiguousarray(flipped_left[..., :half]) @ np.ascontiguousarray(flipped_right[..., :half, :])
    second = np.ascontiguousarray(flipped_left[..., half:]) @ np.ascontiguousarray(flipped_right[..., half:, :])
    return (np.asarray(first + second, dtype=np.float64),)


def matmul_blocks(a: F64, b: F64, shape: tuple[int, ...]) -> tuple[Iterator[Block], tuple[int, ...]]:
    """Blocks of NumPy's matmul, and the shape they fill; the caller reshapes it to ``shape``.

    Leading axes of ``b`` that are all 1 or absent are folded into rows, so that batches of rows become one product.
    """
    left = a[np.newaxis, :] if a.ndim == 1 else a
    right = b[:, np.newaxis] if b.ndim == 1 else b
    rows, inner = left.shape[-2], left.shape[-1]
    columns = right.shape[-1]
    if math.prod(right.shape[:-2]) == 1 and math.prod(shape) == math.prod(left.shape[:-1]) * columns:
        flat = left.reshape(math.prod(left.shape[:-1]), inner)  # no -1: inner may be 0
        return _row_blocks(flat, right.reshape(inner, columns)), (flat.shape[0], columns)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    count = math.prod(batch)
    lefts = np.broadcast_to(left, (*batch, rows, inner)).reshape(count, rows, inner)
    rights = np.broadcast_to(right, (*batch, inner, columns)).reshape(count, inner, columns)
    return _batch_blocks(lefts, rights), (lefts.shape[0], rows, columns)


def _row_blocks(left: F64, right: F64) -> Iterator[Block]:
    step = max(1, BLOCK_ELEMENTS // max(1, left.shape[1], right.shape[1]))
    for start in range(0, left.shape[0], step):
        part = left[start : start + step]
        yield Block(part, right, (slice(start, start + step),), (part.shape[0], right.shape[1]))


def _batch_blocks(lefts: F64, rights: F64) -> Iterator[Block]:
    per = lefts.shape[1] * max(lefts.shape[2], rights.shape[2]) + rights.shape[1] * rights.shape[2]
    step = max(1, BLOCK_ELEMENTS // max(1, per))
    for start in range(0, lefts.shape[0], step):
        left, right = lefts[start : start + step], rights[start : start + step]
        yield Block(left, right, (slice(start, start + step),), (left.shape[0], left.shape[1], right.shape[2]))


def conv_blocks(x: F64, w: F64, window: Window, shape: tuple[int, ...]) -> Iterator[Block]:
    """Blocks of a convolution with padding of zeros: unfolded windows times flattened weights.

    x: (batch, channels, spatial ...).  w: (out, channels / group, taps ...).  shape: of the result.
    """
    n = x.ndim - 2
    taps, spatial = w.shape[2:], shape[2:]
    if math.prod(shape) == 0:
        return
    padded = np.pad(x, ((0, 0), (0, 0), *zip(window.pads[:n], window.pads[n:], strict=True))) if any(window.pads) else x
    inner = w.shape[1] * math.prod(taps)
    left = w.reshape(window.group, w.shape[0] // window.group, inner)
    rest = math.prod(spatial[1:])
    step = max(1, BLOCK_ELEMENTS // max(1, window.group * inner * rest))
    for image in range(x.shape[0]):
        for start in range(0, spatial[0], step):
            rows = min(step, spatial[0] - start)
            view = _windows(padded[image], taps, window, (rows, *spatial[1:]), start * window.strides[0])
            right = view.reshape(window.group, inner, rows * rest)
            yield Block(left, right, (image, slice(None), slice(start, start + rows)), (shape[1], rows, *spatial[1:]))


def _windows(image: F64, taps: tuple[int, ...], window: Window, spatial: tuple[int, ...], first: int) -> F64:
    """(channels, taps ..., spatial ...) view of a padded image; the first spatial position reads row ``first``."""
    steps = image.strides[1:]
    return np.lib.stride_tricks.as_strided(
        image[:, first:],
        (image.shape[0], *taps, *spatial),
        (
            image.strides[0],
            *(s * d for s, d in zip(steps, window.dilations, strict=True)),
            *(s * t for s, t in zip(steps, window.strides, strict=True)),
        ),
        writeable=False,
    )


def transposed_operands(x: F64, w: F64, window: Window, output_padding: tuple[int, ...]) -> tuple[F64, F64, Window]:
    """A transposed convolution as a plain one: zeros between the inputs, taps flipped, channels of a group swapped.

    w: (in, out / group, taps ...).  Returns operands and geometry for ``conv_blocks``.
    """
    n = x.ndim - 2
    spread = np.zeros((*x.shape[:2], *((e - 1) * s + 1 for e, s in zip(x.shape[2:], window.strides, strict=True))))
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in window.strides))] = x
    taps = w.shape[2:]
    grouped = w.reshape(window.group, w.shape[0] // window.group, *w.shape[1:])
    swapped = np.swapaxes(grouped, 1, 2).reshape(window.group * w.shape[1], w.shape[0] // window.group, *taps)
    flipped = np.flip(swapped, tuple(range(2, 2 + n)))
    reach = tuple(d * (t - 1) for d, t in zip(window.dilations, taps, strict=True))
    before = tuple(r - p for r, p in zip(reach, window.pads[:n], strict=True))
    after = tuple(r - p + o for r, p, o in zip(reach, window.pads[n:], output_padding, strict=True))
    # A negative pad crops: the input cannot reach those outputs.
    crop = tuple(slice(max(0, -b), e - max(0, -a)) for b, a, e in zip(before, after, spread.shape[2:], strict=True))
    pads = (*(max(0, b) for b in before), *(max(0, a) for a in after))
    cropped = spread[(slice(None), slice(None), *crop)]
    return cropped, np.ascontiguousarray(flipped), Window((1,) * n, pads, window.dilations, window.group)
