"""Rules: Resize and Upsample, with both sizes and scales made explicit.

Imported by: the rule table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Final

import numpy as np

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site, f32, f32s
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import AttributeValue
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.ops import TypeRuleError

_COORDINATES: Final = frozenset(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
_MODES: Final = MappingProxyType({"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"})


def _upsample(to: Lowering, site: Site) -> Outputs:
    """Upsample 7 and 9, Resize 10: asymmetric coordinates."""
    x = site.x()
    given = site.numbers("scales")
    scales = _scales_of(to, site.x(1)) if given is None else given
    nearest = "floor"
    if any(s < 1 for s in scales):
        if any(s > 1 for s in scales):
            raise LoweringError("scaling up one axis and down another is not defined before opset 11")
        nearest = "ceil"
    sizes = [_scaled(to, extent, scale) for extent, scale in zip(x.shape, scales, strict=True)]
    return (_emit(to, site, sizes, scales, ("asymmetric", nearest)),)


def _resize(to: Lowering, site: Site) -> Outputs:
    if site.version < 11:
        return _upsample(to, site)
    x = site.x()
    if site.integer("antialias", 0):
        raise LoweringError("antialias is not supported")
    if site.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise LoweringError("keep_aspect_ratio_policy other than stretch is not supported")
    axes = to.axes(site.integers("axes") or tuple(range(x.rank)), x.rank)
    scales_at, sizes_at = site.optional(2), site.optional(3)
    sizes = list(x.shape)
    scales = [1.0] * x.rank
    if sizes_at is not None and sizes_at.shape != (0,):
        wanted = to.dims_of(sizes_at, "sizes")
        _require_count(wanted, axes)
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = size
            scales[axis] = _quotient(to, size, x.shape[axis])
    elif scales_at is not None and scales_at.shape != (0,):
        given = _scales_of(to, scales_at)
        _require_count(given, axes)
        for axis, scale in zip(axes, given, strict=True):
            scales[axis] = scale
            sizes[axis] = _scaled(to, x.shape[axis], scale)
    else:
        raise LoweringError("neither scales nor sizes are given")
    coordinate = site.text("coordinate_transformation_mode", "half_pixel")
    return (_emit(to, site, sizes, scales, (coordinate, site.text("nearest_mode", "round_prefer_floor"))),)


def _require_count(found: Sequence[object], axes: Sequence[int]) -> None:
    if len(found) != len(axes):
        raise LoweringError(f"{len(found)} scales or sizes do not fit {len(axes)} axes")


def _emit(to: Lowering, site: Site, sizes: Sequence[Dim], scales: Sequence[float], how: tuple[str, str]) -> Operand:
    x, (coordinate, nearest) = site.x(), how
    mode = _MODES.get(site.text("mode", "nearest"))
    if coordinate not in _COORDINATES or mode is None:
        raise LoweringError(f"mode {site.text('mode', 'nearest')} with {coordinate} coordinates is not supported")
    attributes: dict[str, AttributeValue] = {
        "mode": mode,
        "coordinate": coordinate,
        "nearest": nearest,
        "sizes": tuple(sizes),
        "scales": f32s(scales),
        "cubic_a": f32(site.number("cubic_coeff_a", -0.75)),
        "exclude_outside": site.integer("exclude_outside", 0),
    }
    return x if all(s == 1.0 for s in scales) else to.emit("resize", [x], attributes)[0]


def _scales_of(to: Lowering, operand: Operand) -> tuple[float, ...]:
    found = tuple(float(v) for v in to.array_of(operand, "scales").astype(np.float64).reshape(-1))
    if not all(math.isfinite(s) and s > 0 for s in found):
        raise LoweringError("scales must be positive and finite")
    return found


def _scaled(to: Lowering, extent: Dim, scale: float) -> Dim:
    """``floor(extent * scale)`` with the product rounded to binary32, as every runtime computes it."""
    if isinstance(extent, int):
        return int(np.floor(np.float32(extent) * np.float32(scale)))
    factor = Fraction(scale)
    product = dims.mul(extent, factor.numerator)
    if to.scope.bounds(product)[1] >= 2**24 or factor.denominator >= 2**24:
        raise TypeRuleError(f"the size {extent} x {scale} is not exact in binary32 over the whole range")
    return dims.floordiv(product, factor.denominator)


def _quotient(to: Lowering, size: Dim, extent: Dim) -> float:
    """``size / extent`` as binary32.  Raises TypeRuleError if it changes with the dims."""
    at = to.scope.optimum()
    top, bottom = dims.evaluate(size, at), dims.evaluate(extent, at)
    if bottom < 1:
        raise LoweringError("an empty operand cannot be resized")
    if not to.scope.equal(dims.mul(size, bottom), dims.mul(extent, top)):
        raise TypeRuleError(f"resize: the scale from {extent} to {size} changes with the dims")
    return float(np.float32(top) / np.float32(bottom))


RULES: Final[Mapping[str, Rule]] = MappingProxyType({"Resize": _resize, "Upsample": _upsample})
