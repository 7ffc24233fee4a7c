"""Named packings: weight bytes that are more than a permutation of one tensor.

Imported by: backend, the families.  Imports: the templates' pack functions.

A channel vector (bias, scale, shift) is computed in float64, rounded once, and padded as its template reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tribunus.errors import InternalError
from tribunus.phaseir.program import Array
from tribunus.plan.code import PackedWeight, Packing
from tribunus_native.match.epilogues import Vector
from tribunus_native.templates.csource import ceil_div
from tribunus_native.templates.panels import Panels

Options = Mapping[str, int | str]
F32 = npt.NDArray[np.float32]


def channel_vector(kind: str, eps: float, arrays: Sequence[Array], count: int) -> F32:
    """``count`` values of a Vector.  Arrays: of its sources."""
    flat = [np.asarray(a, dtype=np.float64).reshape(-1) for a in arrays]
    if kind == "ones":
        found = np.ones(count)
    elif kind == "zeros":
        found = np.zeros(count)
    elif kind == "plain":
        found = np.broadcast_to(flat[0], (count,))
    elif kind == "negated":
        found = np.broadcast_to(-flat[0], (count,))
    elif kind in ("norm_scale", "norm_shift"):
        scale, bias, mean, variance = flat
        factor = scale / np.sqrt(variance + eps)
        found = factor if kind == "norm_scale" else bias - mean * factor
    else:
        raise InternalError(f"no channel vector is called {kind!r}")
    return np.asarray(found, dtype=np.float32)


def integer_option(options: Options, name: str) -> int:
    """An integer entry of a packing's config.  Raises InternalError."""
    value = options[name]
    if not isinstance(value, int):
        raise InternalError(f"packing option {name} is {value!r}, an integer was expected")
    return value


def _eps(options: Options) -> float:
    return float(np.array([integer_option(options, "eps")], dtype=np.uint32).view(np.float32)[0])


def pack_vector(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``vector``: padded to a multiple of lanes in each group; ``repeat``: so often in a row."""
    count, groups, lanes = (integer_option(options, k) for k in ("count", "groups", "lanes"))
    values = channel_vector(str(options["kind"]), _eps(options), arrays, count)
    values = np.tile(values, integer_option(options, "repeat"))
    each = values.size // groups
    padded = ceil_div(each, lanes) * lanes
    full = np.zeros((groups, padded), dtype=np.float32)
    full[:, :each] = values.reshape(groups, each)
    return full


def vector_weight(vector: Vector, count: int, lanes: int, groups: int = 1, repeat: int = 1) -> PackedWeight:
    """A channel vector as a weight operand."""
    eps = int(np.array([vector.eps], dtype=np.float32).view(np.uint32)[0])
    options: dict[str, int | str] = {
        "count": count,
        "eps": eps,
        "groups": groups,
        "kind": vector.kind,
        "lanes": lanes,
        "repeat": repeat,
    }
    padded = ceil_div(count * repeat // groups, lanes) * lanes
    return PackedWeight(vector.sources, Packing("vector", tuple(sorted(options.items()))), groups * padded * 4)


def pack_panels(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``panels``: weights of a product or a convolution."""
    panels = Panels(
        integer_option(options, "columns"), integer_option(options, "lanes"), integer_option(options, "most")
    )
    groups, weights = integer_option(options, "groups"), np.asarray(arrays[0], dtype=np.float32)
    if options["form"] == "matrix":
        return panels.pack(np.ascontiguousarray(weights))
    # OI + spatial, I per group, to [group][panel][spatial][I][width]
    parts: list[F32] = []
    for block in np.split(weights, groups):
        order = (*range(2, block.ndim), 1, 0)
        parts.append(panels.pack(np.ascontiguousarray(block.transpose(order)).reshape(-1, block.shape[0])))
    return np.concatenate(parts)


def panels_weight(source: int, panels: Panels, depth: int, groups: int, form: str) -> PackedWeight:
    """Panels as a weight operand.  form: ``matrix`` ([K, N]) or ``conv`` (OI + spatial)."""
    options: dict[str, int | str] = {
        "columns": panels.columns, "form": form, "groups": groups, "lanes": panels.lanes, "most": panels.most,
    }  # fmt: skip
    nbytes = groups * panels.padded * depth * 4
    return PackedWeight((source,), Packing("panels", tuple(sorted(options.items()))), nbytes)
