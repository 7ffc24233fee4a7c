"""Rules: reshapes, transposes, slices, padding, joining, repetition.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Shape

_LONG: Final = 2**31 - 1
"""Starts and ends at least this large mean "to the end" in every exporter."""


def _reshape(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    wanted = to.dims_of(site.x(1), "the target shape")
    keep_zero = bool(site.integer("allowzero", 0))
    shape: list[Dim] = []
    for i, dim in enumerate(wanted):
        if dim == 0 and not keep_zero:
            if i >= x.rank:
                raise LoweringError(f"target axis {i} copies an axis that the operand lacks")
            dim = x.shape[i]
        shape.append(dim)
    open_axes = [i for i, dim in enumerate(shape) if dim == -1]
    if len(open_axes) > 1:
        raise LoweringError("the target shape has more than one -1")
    if open_axes:
        rest = [d for i, d in enumerate(shape) if i != open_axes[0]]
        shape[open_axes[0]] = _missing(x.shape, rest)
    return (to.reshape(x, tuple(shape)),)


def _missing(have: Shape, rest: Sequence[Dim]) -> Dim:
    """The extent that makes the element counts equal; equal extents cancel before anything is multiplied."""
    left, right = list(have), []
    for dim in rest:
        if dim in left:
            left.remove(dim)
        else:
            right.append(dim)
    divisor = dims.product(right)
    if divisor == 0:
        raise LoweringError("the target shape has a 0 beside a -1")
    return dims.floordiv(dims.product(left), divisor)


def _given_axes(to: Lowering, site: Site, since: int) -> tuple[int, ...] | None:
    operand = site.optional(1)
    if site.version >= since:
        return None if operand is None else to.ints_of(operand, "axes")
    return site.integers("axes")


def _squeeze(to: Lowering, site: Site) -> Outputs:
    x, given = site.x(), _given_axes(to, site, 13)
    axes = tuple(i for i, d in enumerate(x.shape) if d == 1) if given is None else to.axes(given, x.rank)
    for axis in axes:
        to.settled(x.shape[axis], f"the squeezed axis {axis}")
        if not to.scope.equal(x.shape[axis], 1):
            raise LoweringError(f"the squeezed axis {axis} is {x.shape[axis]}")
    return (to.reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in axes)),)


def _unsqueeze(to: Lowering, site: Site) -> Outputs:
    x, given = site.x(), _given_axes(to, site, 13)
    if given is None:
        raise LoweringError("axes are missing")
    axes = to.axes(given, x.rank + len(given))
    left = iter(x.shape)
    return (to.reshape(x, tuple(1 if i in axes else next(left) for i in range(x.rank + len(axes)))),)


def _flatten(to: Lowering, site: Site) -> Outputs:
    x, axis = site.x(), site.integer("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise LoweringError(f"axis {axis} of rank {x.rank}")
    axis += x.rank if axis < 0 else 0
    return (to.reshape(x, (dims.product(x.shape[:axis]), dims.product(x.shape[axis:]))),)


def _transpose(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    perm = site.integers("perm")
    return (to.transpose(x, tuple(reversed(range(x.rank))) if perm is None else perm),)


def _slice(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    given_axes: tuple[int, ...] | None
    if site.version < 10:
        starts: tuple[Dim, ...] = site.integers("starts") or ()
        ends: tuple[Dim, ...] = site.integers("ends") or ()
        given_axes, given_steps = site.integers("axes"), None
    else:
        starts, ends = to.dims_of(site.x(1), "starts"), to.dims_of(site.x(2), "ends")
        axes_at, steps_at = site.optional(3), site.optional(4)
        given_axes = None if axes_at is None else to.ints_of(axes_at, "axes")
        given_steps = None if steps_at is None else to.ints_of(steps_at, "steps")
    axes = to.axes(range(len(starts)) if given_axes is None else given_axes, x.rank)
    steps = (1,) * len(starts) if given_steps is None else given_steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise LoweringError("starts, ends, axes and steps differ in length")
    all_starts: list[Dim] = [0] * x.rank
    all_sizes, all_steps = list(x.shape), [1] * x.rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        all_starts[axis], all_sizes[axis] = _range(to, x.shape[axis], start, end, step)
        all_steps[axis] = step
    return (to.slice(x, all_starts, all_sizes, all_steps),)


def _range(to: Lowering, extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Clamped start and number of entries of one axis."""
    if step == 0:
        raise LoweringError("a step is 0")
    low, high = (0, extent) if step > 0 else (-1, dims.sub(extent, 1))
    first = _clamped(to, start, extent, 0, high)
    last = _clamped(to, end, extent, low, high)
    span = dims.sub(last, first) if step > 0 else dims.sub(first, last)
    size = dims.ceildiv(to.larger(span, 0), abs(step))
    return (0 if size == 0 else first), size


def _clamped(to: Lowering, position: Dim, extent: Dim, low: int, high: Dim) -> Dim:
    if isinstance(position, int):
        if position >= _LONG:
            return high
        if position <= -_LONG:
            return low
    if to.scope.bounds(position)[1] < 0:
        position = dims.add(position, extent)
    elif not to.scope.at_least(position, 0):
        raise LoweringError(f"position {position} may be negative or not, depending on the dims")
    return to.smaller(to.larger(position, low), high)


def _concat(to: Lowering, site: Site) -> Outputs:
    operands = site.all()
    axis = to.axis(site.integer("axis", 1), operands[0].rank)
    kept = [o for o in operands if o.shape[axis] != 0] or [operands[0]]
    return (to.concat(kept, axis),)


def _split(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    axis = to.axis(site.integer("axis", 0), x.rank)
    count = len(site.node.outputs)
    if site.integer("num_outputs", count) != count:
        raise LoweringError("num_outputs does not fit the outputs")
    given: tuple[Dim, ...] | None = site.integers("split")
    operand = site.optional(1)
    if site.version >= 13:
        given = None if operand is None else to.dims_of(operand, "split")
    if given is None:
        chunk = dims.ceildiv(x.shape[axis], count)
        given = (*(chunk,) * (count - 1), dims.sub(x.shape[axis], dims.mul(chunk, count - 1)))
    start: Dim = 0
    parts: list[Operand] = []
    for size in given:
        parts.append(to.part(x, axis, start, size))
        start = dims.add(start, size)
    if len(parts) != count or not to.scope.equal(start, x.shape[axis]):
        raise LoweringError(f"split sizes {', '.join(map(str, given))} do not fit {count} parts of {x.shape[axis]}")
    return tuple(parts)


def _expand(to: Lowering, site: Site) -> Outputs:
    x = site.x()
    wanted = to.dims_of(site.x(1), "the target shape")
    rank = max(x.rank, len(wanted))
    have = (1,) * (rank - x.rank) + x.shape
    want = (1,) * (rank - len(wanted)) + wanted
    return (to.expand(x, tuple(h if w == 1 else w if h == 1 else h for h, w in zip(have, want, strict=True))),)


def _tile(to: Lowering, site: Site) -> Outputs:
    x, repeats = site.x(), to.dims_of(site.x(1), "repeats")
    return (x,) if all(r == 1 for r in repeats) else to.emit("tile", [x], {"repeats": repeats})


def _pad(to: Lowering, site: Site) -> Outputs:
    x, mode = site.x(), site.text("mode", "constant")
    value: Operand | None = None
    axes: Sequence[int] = range(x.rank)
    if site.version < 11:
        pads: tuple[Dim, ...] = site.integers("pads") or ()
        if site.number("value", 0.0) != 0.0:
            value = to.scalar(site.number("value", 0.0), x.dtype)
    else:
        pads = to.dims_of(site.x(1), "pads")
        value = site.optional(2)
        axes_at = site.optional(3)
        if axes_at is not None:
            axes = to.axes(to.ints_of(axes_at, "axes"), x.rank)
    n = len(axes)
    if len(pads) != 2 * n:
        raise LoweringError(f"{len(pads)} pads do not fit {n} axes")
    before: list[Dim] = [0] * x.rank
    after: list[Dim] = [0] * x.rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[n + i]
    if all(p == 0 for p in pads):
        return (x,)
    if mode != "constant" or _is_zero(value):
        value = None
    elif value is not None and value.rank:
        value = to.reshape(value, ())
    return to.emit(
        "pad", [x] if value is None else [x, value], {"mode": mode, "before": tuple(before), "after": tuple(after)}
    )


def _is_zero(value: Operand | None) -> bool:
    """Whether padding is with plus zero, the default."""
    if value is None or value.numbers is None:
        return False
    return not bool(np.any(np.frombuffer(value.numbers.tobytes(), np.uint8)))


def _depth_to_space(to: Lowering, site: Site) -> Outputs:
    x, b = site.x(), site.integer("blocksize", 1)
    n, c, h, w = x.shape
    depth = dims.floordiv(c, b * b)
    if site.text("mode", "DCR") == "DCR":
        split = to.transpose(to.reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        split = to.transpose(to.reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return (to.reshape(split, (n, depth, dims.mul(h, b), dims.mul(w, b))),)


def _space_to_depth(to: Lowering, site: Site) -> Outputs:
    x, b = site.x(), site.integer("blocksize", 1)
    n, c, h, w = x.shape
    rows, columns = dims.floordiv(h, b), dims.floordiv(w, b)
    perm = (0, 3, 5, 1, 2, 4) if site.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    split = to.transpose(to.reshape(x, (n, c, rows, b, columns, b)), perm)
    return (to.reshape(split, (n, dims.mul(c, b * b), rows, columns)),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Reshape": _reshape,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Flatten": _flatten,
        "Transpose": _transpose,
        "Slice": _slice,
        "Concat": _concat,
        "Split": _split,
        "Expand": _expand,
        "Tile": _tile,
        "Pad": _pad,
        "DepthToSpace": _depth_to_space,
        "SpaceToDepth": _space_to_depth,
    }
)
