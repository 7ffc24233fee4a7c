"""Work of a signature: what no honest kernel can avoid, and at what rate it is done."""

from __future__ import annotations

import numpy as np
import pytest

from tribunus.candidates.model import Signature
from tribunus.candidates.work import Work, work_of
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.attributes import Attributes, AttributeValue
from tribunus.phaseir.program import Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.targets.target import Peaks

PEAKS = Peaks(1e11, 1e12, ((1 << 20, 1e11),), 100, "0" * 64)


class Small:
    """A signature built op by op."""

    def __init__(self) -> None:
        self.constants = Constants()
        self.builder = ProgramBuilder(self.constants, ())
        self.inputs: list[int] = []

    def x(self, *shape: int, dtype: DType = DType.F32) -> int:
        self.inputs.append(self.builder.input(TensorType(dtype, shape), ""))
        return self.inputs[-1]

    def w(self, *shape: int, dtype: DType = DType.F32) -> int:
        return self.builder.weight(TensorType(dtype, shape))

    def k(self, number: float) -> int:
        return self.builder.constant(np.asarray(number, np.float32), DType.F32)

    def op(self, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        return self.builder.op(kind, inputs, Attributes.of(attributes))[0]

    def work(self, result: int) -> Work:
        program = self.builder.finish("group", tuple(self.inputs), (result,))
        return work_of(Signature(program, ComputePolicy.FP32, self.constants), {})


def _conv(length: int, taps: int, pads: tuple[int, int], stride: int = 1) -> Work:
    small = Small()
    x, w = small.x(1, 64, length), small.w(32, 64, taps)
    return small.work(small.op("conv", x, w, strides=(stride,), pads=pads, dilations=(1,), group=1))


def test_taps_that_only_meet_padding_need_no_weights() -> None:
    whole = 4 * (64 * 1 + 32 * 1)
    assert _conv(1, 3, (1, 1)).nbytes == whole + 4 * 32 * 64
    assert _conv(1, 3, (1, 1)).useful == 2 * 32 * 64
    assert _conv(8, 3, (1, 1)).nbytes == 4 * (64 * 8 + 32 * 8 + 32 * 64 * 3)


def test_a_stride_wider_than_the_window_skips_part_of_the_image() -> None:
    assert _conv(16, 1, (0, 0), stride=4).nbytes == 4 * (64 * 4 + 32 * 4 + 32 * 64)


@pytest.mark.parametrize("kernel", [1, 2])
def test_pooling_reads_what_its_windows_meet(kernel: int) -> None:
    small = Small()
    window: dict[str, AttributeValue] = {
        "kernel": (kernel,), "strides": (4,), "pads": (0, 0), "dilations": (1,), "ceil_mode": 0
    }  # fmt: skip
    assert small.work(small.op("max_pool", small.x(1, 8, 32), **window)).nbytes == 4 * 8 * (8 * kernel + 8)


def test_what_another_op_reads_whole_is_touched_whole() -> None:
    small = Small()
    x = small.x(1, 8, 32)
    part = small.op("slice", x, starts=(0, 0, 0), steps=(1, 1, 1), sizes=(1, 8, 16))
    longer = small.op("concat", x, part, axis=2)
    assert small.work(longer).nbytes == 4 * (8 * 32 + 8 * 48)


def test_sequences_with_lengths_may_be_one_step_long() -> None:
    def lstm(*, lengths: bool) -> float:
        small = Small()
        given = [small.x(10, 2, 8), small.w(1, 64, 8), small.w(1, 64, 16)]
        extra = (-1, small.x(2, dtype=DType.I32)) if lengths else ()
        return small.work(small.op("lstm", *given, *extra, direction="forward", hidden=16)).useful

    assert lstm(lengths=True) == lstm(lengths=False) / 10


def test_only_products_of_bytes_run_at_the_rate_of_bytes() -> None:
    def chain(*, product: bool) -> Work:
        small = Small()
        x = small.op("dequantize_linear", small.x(64, 64, dtype=DType.U8), small.k(0.1), axis=-1)
        if product:
            x = small.op(
                "matmul", x, small.op("dequantize_linear", small.w(64, 64, dtype=DType.I8), small.k(0.1), axis=-1)
            )
        return small.work(small.op("erf", x))

    plain, product = chain(product=False), chain(product=True)
    assert not plain.integer and product.integer
    assert product.products == 2 * 64**3
    assert plain.budget_ns(PEAKS, 8.0) == int(8.0 * plain.weighted / 1e11 * 1e9) + 100
    around = (product.weighted - product.products) / 1e11 + product.products / 1e12
    assert product.budget_ns(PEAKS, 8.0) == int(8.0 * around * 1e9) + 100
