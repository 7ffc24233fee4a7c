"""Products of two quantized operands that are both computed, by the ``quantized_batch`` template.

Imported by: table, packers.  Imports: integer_dot, templates.quantized_batch.

The group dequantizes two inputs, multiplies, and quantizes the result or leaves it real.  Scales and zero points are
the model's numbers: they are packed into one small operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tribunus.candidates.model import Config, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Shape
from tribunus.phaseir.layouts import Layout, row_major
from tribunus.phaseir.program import Array, Op, Role
from tribunus.plan.code import PackedWeight, Packing
from tribunus.targets.target import Target
from tribunus_native.loops import stages
from tribunus_native.match.integer_dot import BYTES, quantized_config, quantized_point
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_row_major
from tribunus_native.match.operands import is_constant, rebind
from tribunus_native.match.packing import Options
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.integer_dot import MOST_DEPTH, Byte, Dot, QuantizedPoint, quantized_points
from tribunus_native.templates.panels import Panels
from tribunus_native.templates.quantized_batch import BatchAxis, QuantizedBatchParams, quantized_batch
from tribunus_native.toolchain import Cpu

_NUMBERS_BYTES = 16


@dataclass(frozen=True, slots=True)
class Batch:
    """batch x rows x k times batch x k x n.  x, w, zeros, scales: value ids.

    axes: of the batch, with whether x and w have them.  zeros: of x, w, the result; -1 for none.  scales: of x, of w,
    of the result (absent for float results).
    """

    x: int
    w: int
    axes: tuple[tuple[Dim, bool, bool], ...]
    rows: Dim
    n: Dim
    k: Dim
    x_byte: Byte
    w_byte: Byte
    y_byte: Byte | None
    zeros: tuple[int, int, int]
    scales: tuple[int, ...]


def match_batch(signature: Signature) -> Batch | None:
    """dequantize two inputs, matmul, quantize or not; None for anything else."""
    ops = signature.phase.ops
    products = [op for op in ops if op.kind == "matmul"]
    if len(products) != 1 or len(signature.outputs) != 1:
        return None
    product, producer = products[0], {op.outputs[0]: op for op in ops}
    x_op, w_op = (producer.get(v) for v in product.inputs)
    last = ops[-1] if ops[-1].kind == "quantize_linear" else None
    if x_op is None or w_op is None or any(op.kind != "dequantize_linear" for op in (x_op, w_op)):
        return None
    used = [x_op, w_op, product, *([] if last is None else [last])]
    if any(op not in used for op in ops) or (last is not None and last.inputs[0] != product.outputs[0]):
        return None
    x, w = x_op.inputs[0], w_op.inputs[0]
    if any(signature.program.values[v].role is not Role.INPUT for v in (x, w)):
        return None
    x_type, w_type, y_type = (signature.type_of(v) for v in (x, w, signature.outputs[0]))
    if x_type.dtype not in BYTES or w_type.dtype not in BYTES or min(x_type.rank, w_type.rank) < 2:
        return None
    result = signature.type_of(product.outputs[0])
    if result.dtype is not DType.F32 or 0 in result.shape:
        return None
    y_byte = BYTES.get(y_type.dtype)
    if (last is None) != (y_byte is None):
        return None
    quantizers = [x_op, w_op, *([] if last is None else [last])]
    numbers = _numbers(signature, quantizers)
    k = x_type.shape[-1]
    if numbers is None or signature.program.scope.bounds(k)[1] > MOST_DEPTH:
        return None
    axes = _axes(signature, x_type.shape[:-2], w_type.shape[:-2], result.shape[:-2])
    if axes is None:
        return None
    rows = x_type.shape[-2]
    while axes and axes[-1][1:] == (True, False):  # rows of items that share one w
        rows = dims.mul(axes.pop()[0], rows)
    scales, zeros = numbers
    return Batch(
        x, w, tuple(axes), rows, w_type.shape[-1], k, BYTES[x_type.dtype], BYTES[w_type.dtype], y_byte, zeros, scales
    )


def _numbers(signature: Signature, quantizers: Sequence[Op]) -> tuple[tuple[int, ...], tuple[int, int, int]] | None:
    """Scales and zero points, if they are constants of one element each."""
    scales = tuple(op.inputs[1] for op in quantizers)
    zeros = [op.inputs[2] if len(op.inputs) > 2 else -1 for op in quantizers] + [-1] * (3 - len(quantizers))
    for value in (*scales, *zeros):
        if value >= 0 and not (is_constant(signature, value) and signature.type_of(value).elements == 1):
            return None
    return scales, (zeros[0], zeros[1], zeros[2])


def _axes(signature: Signature, x: Shape, w: Shape, out: Shape) -> list[tuple[Dim, bool, bool]] | None:
    """(extent, x has it, w has it) of the batch; neighbours alike are one axis; None for extents that may be 1."""
    equal = signature.program.scope.equal
    found: list[tuple[Dim, bool, bool]] = []
    full = [(1,) * (len(out) - len(shape)) + tuple(shape) for shape in (x, w)]
    for extent, own_x, own_w in zip(out, *full, strict=True):
        if extent == 1:
            continue
        if any(own != 1 and not equal(own, extent) for own in (own_x, own_w)):
            return None
        has = (own_x != 1, own_w != 1)
        if found and found[-1][1:] == has:
            found[-1] = (dims.mul(found[-1][0], extent), *has)
        else:
            found.append((extent, *has))
    return found


def scratch_bytes(n: Dim, k: Dim, point: QuantizedPoint) -> Dim:
    """What one part of the kernel needs: panels, starts of columns and rows, gathered rows."""
    width, each = point.nv * point.lanes, point.dot.element_bytes
    padded: Dim = dims.mul(dims.ceildiv(n, width), width)
    if isinstance(n, int):
        padded = Panels(n, point.lanes, point.nv).padded
    depth = dims.mul(dims.ceildiv(k, point.dot.value), point.dot.value)
    total = dims.mul(dims.mul(dims.add(padded, point.mr), depth), each)
    if point.dot is Dot.QUADS:
        total = dims.add(total, dims.mul(dims.add(padded, point.mr), 4))
    return dims.mul(dims.ceildiv(total, 64), 64)


def pack(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``quantized_batch``: x_zero, w_zero, y_zero, the bits of the scale.

    arrays: scales of x, of w, of the result if it is quantized; then zero points, of what ``zeros`` names: x, w, y.
    """
    names = str(options["zeros"])
    count = len(arrays) - len(names)
    scales = [np.asarray(a, dtype=np.float64).reshape(-1) for a in arrays[:count]]
    known = {name: int(np.reshape(a, -1)[0]) for name, a in zip(names, arrays[count:], strict=True)}
    total = scales[0] * scales[1]
    scale = (total / scales[2] if count > 2 else total).astype(np.float32)
    return np.array([*(known.get(name, 0) for name in "xwy"), scale.view(np.int32)[0]], dtype=np.int32)


class QuantizedBatch:
    """Integer products of two computed operands."""

    @property
    def name(self) -> str:
        return "quantized_batch"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_batch(signature) is not None else "no product of two quantized inputs"

    def _borders(self, signature: Signature, found: Batch) -> tuple[Layouts, ...]:
        """Row-major, and with w transposed in memory."""
        plain = all_row_major(signature)
        if found.x == found.w:
            return (plain,)
        swapped = list(plain)
        swapped[signature.inputs.index(found.w)] = _swapped(signature.type_of(found.w).rank)
        return (plain, tuple(swapped))

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found = match_batch(signature)
        if found is None:
            return
        sizes = Sizes()
        for border in self._borders(signature, found):
            if layouts not in (None, border):
                continue
            for point in quantized_points(sizes.size(found.rows), sizes.size(found.n), cpu):
                yield Proposal({"template": self.name, **quantized_config(point)}, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_batch(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no product of two quantized inputs")
        sizes, point = Sizes(), quantized_point(config)
        params = QuantizedBatchParams(
            batch=tuple(BatchAxis(extent=sizes.size(extent), x=x, w=w) for extent, x, w in found.axes),
            rows=sizes.size(found.rows),
            n=sizes.size(found.n),
            k=sizes.size(found.k),
            x_byte=found.x_byte,
            w_byte=found.w_byte,
            transposed=not layouts[signature.inputs.index(found.w)].is_row_major,
            y_byte=found.y_byte,
            scratch=sizes.size(scratch_bytes(found.n, found.k, point)),
            point=point,
            avx512=cpu.has_avx512,
        )
        source = quantized_batch(params)
        split = stages.split_of(target.threads)
        return Kernel(
            text=rebind(source, signature, (found.x, found.w), signature.outputs),
            contraction=point.contraction,
            weights=(_numbers_operand(found),),
            workspace=sizes.workspace(source.workspace, split.parts),
            params=sizes.params,
            split=split,
        )


def _swapped(rank: int) -> Layout:
    """The last two axes exchanged."""
    order = row_major(rank).order
    return Layout((*order[:-2], order[-1], order[-2]))


def _numbers_operand(found: Batch) -> PackedWeight:
    names = "".join(name for name, zero in zip("xwy", found.zeros, strict=True) if zero >= 0)
    sources = (*found.scales, *(zero for zero in found.zeros if zero >= 0))
    return PackedWeight(sources, Packing("quantized_batch", (("zeros", names),)), _NUMBERS_BYTES)
