"""Work of a signature: useful operations and bytes, the base of time budgets and physical floors.

Imported by: backends' cost models, planning, admission.  Imports: candidates.model, phaseir.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tribunus.candidates.model import Signature
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir import dims
from tribunus.phaseir.ops import spec_of
from tribunus.phaseir.program import Op, Role
from tribunus.phaseir.types import TensorType
from tribunus.targets.target import Peaks

_PARTIAL_READERS: Final = frozenset(("gather", "gather_elements", "gather_nd", "slice"))
"""Ops that need only the elements of their first operand that they put out."""
_WINDOWS: Final = frozenset(("conv", "conv_integer", "max_pool", "average_pool"))
"""Ops that slide a window: of image and kernel they need what meets."""
_INTEGER_PRODUCTS: Final = frozenset(("matmul_integer", "conv_integer"))
_PRODUCTS: Final = frozenset(("matmul", "conv"))

WINOGRAD_SAVING: Final = 2.25
"""F(2x2, 3x3) does 16 multiplications where the direct form does 36."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a call must do at given dims.

    useful: operations that no honest kernel can avoid (multiply-adds count 2, taps on padding and transcendentals'
    inner steps do not count).  weighted: operations with transcendentals weighed, for budgets.  nbytes: bytes of the
    operands that must be touched.  integer: whether products are of 8-bit numbers.  products: those of ``weighted``
    that are then done at the rate of 8-bit numbers; what is around them is not.
    """

    useful: float
    weighted: float
    nbytes: int
    integer: bool
    products: float = 0.0

    def budget_ns(self, peaks: Peaks, slack: float) -> int:
        """``slack`` times the roofline time, plus the cost of a call; never below two microseconds."""
        computing = (self.weighted - self.products) / peaks.flops + self.products / peaks.int8_ops
        seconds = max(computing, self.nbytes / peaks.bytes_per_second(self.nbytes))
        return max(2000, int(slack * seconds * 1e9)) + peaks.launch_ns

    def floor_ns(self, peaks: Peaks) -> int:
        """No kernel can be faster: useful operations at peak, bytes at the fastest cache.

        Peaks are of reading; a core reads and writes in the same cycles, so a byte of both directions costs half.
        """
        rate = peaks.int8_ops if self.integer else peaks.flops
        return int(max(self.useful / rate, self.nbytes / (2.0 * peaks.fastest)) * 1e9)


def work_of(signature: Signature, bindings: Mapping[str, int]) -> Work:
    """Work of one call of ``signature`` with its symbols at ``bindings``."""
    useful = weighted = products = 0.0
    kinds = frozenset(op.kind for op in signature.phase.ops)
    # A product of dequantized operands may be computed on the integers themselves.
    integer = bool(kinds & _INTEGER_PRODUCTS) or ("dequantize_linear" in kinds and bool(kinds & _PRODUCTS))
    partial: dict[int, int] = {}
    whole: set[int] = set()
    program = signature.program
    for op in signature.phase.ops:
        operands = [None if v < 0 else program.type_of(v) for v in op.inputs]
        results = [program.type_of(v) for v in op.outputs]
        flops = float(dims.evaluate(spec_of(op.kind).flops(operands, op.attributes, results), bindings))
        weighted += flops
        useful += _useful(op, flops, operands, results, bindings, signature.policy)
        products += flops if integer and op.kind in (_PRODUCTS | _INTEGER_PRODUCTS) else 0.0
        needed = _needed(op, operands, results, bindings)
        for position, value in enumerate(op.inputs):
            if position in needed:
                partial[value] = partial.get(value, 0) + needed[position]
            else:
                whole.add(value)
    touched = 0
    for value, info in enumerate(program.values):
        if info.role in (Role.INPUT, Role.WEIGHT):
            size = _bytes(info.type, bindings)
            touched += size if value in whole else min(size, partial.get(value, size))
    touched += sum(_bytes(program.type_of(v), bindings) for v in signature.outputs)
    return Work(useful, weighted, touched, integer, products)


def _bytes(type_: TensorType, bindings: Mapping[str, int]) -> int:
    return dims.evaluate(type_.nbytes, bindings)


def _needed(
    op: Op, operands: list[TensorType | None], results: list[TensorType], bindings: Mapping[str, int]
) -> dict[int, int]:
    """Bytes that an op needs of the operands, by position, that it does not read whole."""
    x = operands[0] if operands else None
    if x is None:
        return {}
    if op.kind in _PARTIAL_READERS:
        return {0: sum(_bytes(t, bindings) for t in results)}
    if op.kind in _WINDOWS:
        image = dims.evaluate_shape(x.shape, bindings)
        met = _meetings(op, operands, results, bindings)
        seen = math.prod(image[:2]) * math.prod(len(set().union(*axis)) for axis in met)
        needed = {0: _bytes(x, bindings) * seen // max(1, math.prod(image))}
        w = operands[1] if op.kind in ("conv", "conv_integer") else None
        if w is not None:
            kernel = dims.evaluate_shape(w.shape, bindings)
            used = math.prod(kernel[:2]) * math.prod(sum(len(places) > 0 for places in axis) for axis in met)
            needed[1] = _bytes(w, bindings) * used // max(1, math.prod(kernel))
        return needed
    return {}


def _useful(
    op: Op,
    flops: float,
    operands: list[TensorType | None],
    results: list[TensorType],
    bindings: Mapping[str, int],
    policy: ComputePolicy,
) -> float:
    if op.kind in ("lstm", "gru") and len(operands) > 4 and operands[4] is not None and operands[0] is not None:
        # Sequences may be as short as one step.
        return flops / max(1, dims.evaluate(operands[0].shape[0], bindings))
    if op.kind in ("matmul", "matmul_integer", "lstm", "gru", "conv_transpose"):
        # Boundaries of a transposed convolution may crop taps; half of them is a safe lower estimate.
        return flops / 2 if op.kind == "conv_transpose" else flops
    if op.kind in ("conv", "conv_integer"):
        inside = _taps_inside(op, operands, results, bindings)
        saving = WINOGRAD_SAVING if policy is ComputePolicy.FP32_WINOGRAD else 1.0
        return inside / saving
    return 0.0


def _taps_inside(
    op: Op, operands: list[TensorType | None], results: list[TensorType], bindings: Mapping[str, int]
) -> float:
    """Operations of a convolution whose tap lies inside the image."""
    w = operands[1]
    if w is None:
        return 0.0
    kernel = dims.evaluate_shape(w.shape, bindings)
    out = dims.evaluate_shape(results[0].shape, bindings)
    total = 2.0 * out[0] * out[1] * kernel[1]
    for axis in _meetings(op, operands, results, bindings):
        total *= sum(len(places) for places in axis)
    return total


def _meetings(
    op: Op, operands: list[TensorType | None], results: list[TensorType], bindings: Mapping[str, int]
) -> list[list[range]]:
    """Per spatial axis and tap of a window: the positions of the image that the tap meets, none on padding."""
    x = operands[0]
    if x is None:
        return []
    image = dims.evaluate_shape(x.shape, bindings)
    out = dims.evaluate_shape(results[0].shape, bindings)
    w = operands[1] if op.kind in ("conv", "conv_integer") else None
    kernel = op.attributes.integers("kernel") if w is None else dims.evaluate_shape(w.shape, bindings)[2:]
    strides, pads = op.attributes.integers("strides"), op.attributes.integers("pads")
    dilations = op.attributes.integers("dilations")
    found: list[list[range]] = []
    for axis, stride in enumerate(strides):
        taps: list[range] = []
        for tap in range(kernel[axis]):
            first = tap * dilations[axis] - pads[axis]
            # positions p of the result with 0 <= p * stride + first < extent
            low = -(first // stride) if first < 0 else 0
            high = min(out[2 + axis] - 1, (image[2 + axis] - 1 - first) // stride)
            taps.append(range(low * stride + first, high * stride + first + 1, stride))
        found.append(taps)
    return found
