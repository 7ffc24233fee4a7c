"""What happens to an accumulator before it is stored: an ordered tuple of steps, the same for every template.

Imported by: the other templates, the backend.  Imports: csource, vecmath.

The bias is no step: it is the start value of the sum.  A step that reads memory adds one or two buffers, in step order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TypeAlias

from tribunus_native.templates.csource import Role, Slot, c_float
from tribunus_native.templates.vecmath import Fn


@dataclass(frozen=True, slots=True)
class ScaleShift:
    """``acc * scale[channel] + shift[channel]`` (batch norm); two weight vectors padded like the bias."""


@unique
class Combine(Enum):
    """How a second value joins; the value is a C expression in ``z`` (the accumulator) and ``t``."""

    ADD = "z + t"
    MULTIPLY = "z * t"
    SUBTRACT = "z - t"
    SUBTRACT_FROM = "t - z"
    DIVIDE = "z / t"
    DIVIDE_INTO = "t / z"
    MINIMUM = "vec_minimum(z, t)"
    MAXIMUM = "vec_maximum(z, t)"
    POWER = "vec_pow(z, t)"
    POWER_OF = "vec_pow(t, z)"


@dataclass(frozen=True, slots=True)
class WithTensor:
    """``acc`` combined with an input tensor of the output's logical shape.

    stride: floats between its rows (pixels); 0: as the output's channel count.  offset: floats before its first row.
    """

    combine: Combine
    stride: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """``acc`` combined with one number, rounded to float32."""

    combine: Combine
    value: float


@unique
class Activation(Enum):
    RELU = "vec_relu"
    LEAKY_RELU = "vec_leaky_relu"  # (slope,)
    CLIP = "vec_clip"  # (low, high)
    HARD_SWISH = "vec_hard_swish"
    HARD_SIGMOID = "vec_hard_sigmoid"  # (slope, offset)
    SILU = Fn.SILU.value
    SIGMOID = Fn.SIGMOID.value
    TANH = Fn.TANH.value
    GELU = Fn.GELU.value
    GELU_TANH = Fn.GELU_TANH.value
    SOFTPLUS = Fn.SOFTPLUS.value
    MISH = Fn.MISH.value
    ELU = "vec_elu"  # (alpha,)
    EXP = Fn.EXP.value
    LOG = Fn.LOG.value
    ERF = Fn.ERF.value
    SIN = Fn.SIN.value
    COS = Fn.COS.value
    SQRT = Fn.SQRT.value
    ABS = Fn.ABS.value
    NEGATE = "vec_negate"
    RECIPROCAL = Fn.RECIPROCAL.value
    FLOOR = "vec_floor"
    CEIL = "vec_ceil"
    ROUND = "vec_round"
    SIGN = "vec_sign"


@dataclass(frozen=True, slots=True)
class Activate:
    """Apply a function; ``constants`` as the comment beside each Activation says."""

    activation: Activation
    constants: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Inline:
    """C statements on ``vec z``: any function of one value.  functions: names for ``vecmath``."""

    lines: tuple[str, ...]
    functions: frozenset[str]

    def __str__(self) -> str:
        return " ".join(self.lines)


Step: TypeAlias = "ScaleShift | WithTensor | Scalar | Activate | Inline"
Epilogue: TypeAlias = tuple[Step, ...]


def epilogue_functions(steps: Epilogue) -> frozenset[str]:
    """Names for ``vecmath``."""
    names = {step.activation.value for step in steps if isinstance(step, Activate)}
    names.update(name for step in steps if isinstance(step, Inline) for name in step.functions)
    for step in steps:
        if isinstance(step, WithTensor | Scalar):
            if step.combine in (Combine.POWER, Combine.POWER_OF):
                names.add(Fn.POW.value)
            elif step.combine in (Combine.MINIMUM, Combine.MAXIMUM):
                names.add("vec_minimum")
    return frozenset(names)


def epilogue_slots(steps: Epilogue) -> list[Slot]:
    slots: list[Slot] = []
    for index, step in enumerate(steps):
        if isinstance(step, WithTensor):
            slots.append(Slot(f"tensor{index}", Role.INPUT))
        elif isinstance(step, ScaleShift):
            slots.append(Slot(f"scale{index}", Role.WEIGHT))
            slots.append(Slot(f"shift{index}", Role.WEIGHT))
    return slots


def tensor_stride(step: WithTensor, channels: int) -> int:
    return step.stride or channels


def epilogue_arguments(steps: Epilogue) -> list[tuple[str, str]]:
    """(name, kind) of the pointers a tile takes: kind "tensor" moves with rows and columns, "channel" with columns."""
    found: list[tuple[str, str]] = []
    for index, step in enumerate(steps):
        if isinstance(step, WithTensor):
            found.append((f"tensor{index}", "tensor"))
        elif isinstance(step, ScaleShift):
            found += [(f"scale{index}", "channel"), (f"shift{index}", "channel")]
    return found


def epilogue_lines(steps: Epilogue, channels: int, row: str, column: str, tail: int | str) -> list[str]:
    """C statements that turn ``vec z`` into what is stored.

    row: C expression of the row inside the tile.  column: of the first channel inside the tile.  tail: lanes that
    exist in this vector, a number or a C expression, 0 for all of them (a tensor is never read past its row).
    """
    lines: list[str] = []
    for index, step in enumerate(steps):
        if isinstance(step, ScaleShift):
            lines.append(f"z = z * load(scale{index} + {column}) + load(shift{index} + {column});")
        elif isinstance(step, WithTensor):
            place = f"tensor{index} + ({row}) * {tensor_stride(step, channels)} + {column}"
            value = f"load_part({place}, {tail}, 0.0f)" if tail else f"load({place})"
            lines.append(f"{{ const vec t = {value}; z = {step.combine.value}; }}")
        elif isinstance(step, Inline):
            lines += ["{", *(f"  {line}" for line in step.lines), "}"]
        elif isinstance(step, Scalar):
            lines.append(f"{{ const vec t = splat({c_float(step.value)}); z = {step.combine.value}; }}")
        else:
            arguments = ", ".join(["z", *(c_float(value) for value in step.constants)])
            lines.append(f"z = {step.activation.value}({arguments});")
    return lines
