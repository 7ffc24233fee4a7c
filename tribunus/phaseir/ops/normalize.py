"""Normalizations and softmax.

Imported by: the op table.  ``eps`` is the stored binary32 number.
"""

from __future__ import annotations

from typing import Final

from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.dims import DimScope
from tribunus.phaseir.ops.spec import (
    TRANSCENDENTAL_WEIGHT,
    Contract,
    Family,
    OpSpec,
    Types,
    broadcast,
    operand,
    optional,
    per_element,
    require,
    require_equal,
    require_float,
)
from tribunus.phaseir.types import TensorType


def _infer_batch(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "batch_norm")
    require_float("batch_norm", x)
    for i in range(1, 5):
        vector = operand(types, i, "batch_norm")
        require("batch_norm", vector.rank == 1, f"operand {i} must have rank 1")
        require_equal("batch_norm", f"length of operand {i}", scope, vector.shape[0], x.shape[1])
    return (TensorType(x.dtype, x.shape),)


def _infer_layer(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "layer_norm")
    require_float("layer_norm", x)
    axis = attributes.integer("axis")
    require("layer_norm", 0 <= axis < x.rank, f"axis {axis} of rank {x.rank}")
    for i in (1, 2):
        vector = optional(types, i)
        if vector is not None:
            require("layer_norm", broadcast("layer_norm", scope, x.shape, vector.shape) == x.shape, "scale too large")
    return (TensorType(x.dtype, x.shape),)


def _infer_rms(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "rms_norm")
    require_float("rms_norm", x)
    return (TensorType(x.dtype, x.shape),)


def _infer_instance(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "group_norm")
    require_float("group_norm", x)
    return (TensorType(x.dtype, x.shape),)


def _infer_softmax(types: Types, attributes: Attributes, scope: DimScope) -> tuple[TensorType, ...]:
    x = operand(types, 0, "softmax")
    require_float("softmax", x)
    require("softmax", 0 <= attributes.integer("axis") < x.rank, "axis out of range")
    return (TensorType(x.dtype, x.shape),)


SPECS: Final[tuple[OpSpec, ...]] = (
    # operands: x, scale, bias, mean, variance; (x - mean) / sqrt(variance + eps) * scale + bias
    OpSpec(
        "batch_norm",
        Family.NORMALIZE,
        (5, 5),
        ("eps",),
        Contract.RUNNING,
        _infer_batch,
        per_element(2),
        "ONNX BatchNormalization, inference",
    ),
    # operands: x, scale?, bias?; statistics over axis .. last
    OpSpec(
        "layer_norm",
        Family.NORMALIZE,
        (1, 3),
        ("axis", "eps"),
        Contract.RUNNING,
        _infer_layer,
        per_element(8),
        "ONNX LayerNormalization",
    ),
    OpSpec(
        "rms_norm",
        Family.NORMALIZE,
        (1, 2),
        ("axis", "eps"),
        Contract.RUNNING,
        _infer_rms,
        per_element(5),
        "ONNX RMSNormalization",
    ),
    # operands: x, scale, bias (one entry a channel); statistics over a group of channels and all spatial axes
    OpSpec(
        "group_norm",
        Family.NORMALIZE,
        (3, 3),
        ("groups", "eps"),
        Contract.RUNNING,
        _infer_instance,
        per_element(8),
        "ONNX GroupNormalization, InstanceNormalization",
    ),
    *(
        OpSpec(
            k,
            Family.NORMALIZE,
            (1, 1),
            ("axis",),
            Contract.RUNNING,
            _infer_softmax,
            per_element(TRANSCENDENTAL_WEIGHT + 4),
            "ONNX Softmax, LogSoftmax from opset 13",
        )
        for k in ("softmax", "log_softmax")
    ),
)
