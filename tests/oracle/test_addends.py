"""A kernel may start a sum with its bias: honest in any order, and no cover for a wrong one."""

from __future__ import annotations

import numpy as np
import pytest

from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.vectors import materialise, vector_set
from tribunus.oracle.verdict import judge
from tribunus.phaseir.attributes import Attributes
from tribunus.phaseir.program import Array, Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

BIAS = np.array([0.1, -3.7, 0.012345, 8.25], np.float32)
WINDOW = Attributes.of({"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1})
TRANSPOSED = Attributes.of({**dict(WINDOW), "output_padding": (0, 0)})
KINDS = ("matmul", "conv", "conv with bias", "conv_transpose")


def a_program(kind: str) -> tuple[Program, Constants]:
    """A dot over 48 terms and four inline biases; 1x1 windows, so that all kinds are the same product."""
    constants = Constants()
    b = ProgramBuilder(constants)
    if kind == "matmul":
        x, w = b.input(TensorType(DType.F32, (24, 48)), "x"), b.weight(TensorType(DType.F32, (48, 4)))
        bias = b.constant(BIAS, DType.F32)
        (dot,) = b.op("matmul", (x, w))
        return b.finish("matmul+bias", (x,), b.op("add", (dot, bias))), constants
    x = b.input(TensorType(DType.F32, (1, 48, 4, 6)), "x")
    shape = (48, 4, 1, 1) if kind == "conv_transpose" else (4, 48, 1, 1)
    w = b.weight(TensorType(DType.F32, shape))
    if kind == "conv with bias":
        bias = b.constant(BIAS, DType.F32)
        return b.finish("conv+bias", (x,), b.op("conv", (x, w, bias), WINDOW)), constants
    bias = b.constant(BIAS.reshape(1, 4, 1, 1), DType.F32)
    attributes = TRANSPOSED if kind == "conv_transpose" else WINDOW
    (dot,) = b.op(kind.split()[0], (x, w), attributes)
    return b.finish(f"{kind}+bias", (x,), b.op("add", (dot, bias))), constants


def bias_first(kind: str, x: Array, w: Array) -> Array:
    """Sequential binary32 sums that begin with the bias."""
    if kind == "matmul":
        rows, columns = x.astype(np.float32), w.astype(np.float32)
    else:
        rows = np.moveaxis(x[0].astype(np.float32), 0, -1).reshape(-1, 48)
        columns = w[:, :, 0, 0].astype(np.float32)
        columns = columns if kind == "conv_transpose" else np.ascontiguousarray(columns.T)
    total = np.broadcast_to(BIAS, (rows.shape[0], 4)).astype(np.float32)
    for k in range(48):
        total = (total + rows[:, k : k + 1] * columns[k]).astype(np.float32)
    return total if kind == "matmul" else np.ascontiguousarray(total.T).reshape(1, 4, 4, 6)


def shortened(array: Array) -> Array:
    """Significands of eleven bits, as tf32 has them."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_that_starts_with_its_bias_is_accepted_and_one_of_short_inputs_refused(kind: str) -> None:
    program, constants = a_program(kind)
    refused = 0
    for descriptor in vector_set(program, ComputePolicy.FP32, program.only_phase.name, {}):
        inputs = materialise(descriptor, program)
        goldens = golden_with_budget(
            program, inputs, constants, ComputePolicy.FP32, program.only_phase.name, descriptor.family
        )
        x, w = (
            inputs[program.only_phase.inputs[0]],
            next(a for i, a in inputs.items() if i not in program.only_phase.inputs),
        )
        (out,) = program.only_phase.outputs
        with np.errstate(all="ignore"):
            honest = judge({out: bias_first(kind, x, w)}, goldens)
            wrong = judge({out: bias_first(kind, shortened(x), shortened(w))}, goldens)
        assert honest.accepted, f"{descriptor}: {honest.worst}"
        refused += not wrong.accepted
    assert refused >= 4
