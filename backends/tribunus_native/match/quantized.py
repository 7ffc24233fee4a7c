"""Products and convolutions of quantized operands by the ``quantized`` template: 8-bit in, 8-bit or float out.

Imported by: table, packers.  Imports: integer_dot, templates.quantized.

The group dequantizes x and constant weights, multiplies, adds a constant bias, and quantizes the result.  Scales and
zero points are the model's numbers too: they are packed beside the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from tribunus.candidates.model import Config, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Array, Op, Role
from tribunus.plan.code import PackedWeight, Packing
from tribunus.targets.target import Target
from tribunus_native.loops import stages
from tribunus_native.match.conv import image_of, window_of
from tribunus_native.match.integer_dot import BYTES, quantized_config, quantized_point
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_channels_last, all_row_major
from tribunus_native.match.operands import is_constant, rebind
from tribunus_native.match.packing import Options, integer_option
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.conv import Window
from tribunus_native.templates.integer_dot import MOST_DEPTH, Byte, Dot, QuantizedPoint, Result, quantized_points
from tribunus_native.templates.quantized import Bytes, QuantizedParams, pack_quantized, quantized
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True)
class Quantized:
    """rows x k times k x n.  x_zero, weight_zero, y_zero, scales, bias: value ids; -1 where there is none, or 0.

    scales: of x, of the weights, of the result (absent for float results).  bias: float numbers, or integers with
    their scale and zero point; empty for none.
    """

    x: int
    weight: int
    weight_zero: int
    scales: tuple[int, ...]
    rows: Dim
    k: int
    n: int
    x_byte: Byte
    x_zero: int
    y_byte: Byte | None
    y_zero: int
    window: Window | None
    narrow_weights: bool
    bias: tuple[int, ...]


def _zero_point(signature: Signature, op: Op | None) -> int:
    """The zero point of a quantization or dequantization; -1 where there is none, or it is known to be 0."""
    value = -1 if op is None or len(op.inputs) < 3 else op.inputs[2]
    array = None if value < 0 else signature.constant(value)
    return -1 if array is not None and not np.any(array) else value


def match_quantized(signature: Signature) -> Quantized | None:
    """dequantize x and constant weights, matmul or conv, add a constant bias, quantize; None for anything else."""
    ops = list(signature.phase.ops)
    main = [op for op in ops if op.kind in ("matmul", "conv")]
    if len(main) != 1 or len(signature.outputs) != 1:
        return None
    product = main[0]
    producer = {op.outputs[0]: op for op in ops}
    x_op, w_op = (producer.get(v) for v in product.inputs[:2])
    last = ops[-1] if ops[-1].kind == "quantize_linear" else None
    if x_op is None or w_op is None or any(op.kind != "dequantize_linear" for op in (x_op, w_op)):
        return None
    used = [x_op, w_op, product]
    result, biases = product.outputs[0], [v for v in product.inputs[2:] if v >= 0]
    adds = [op for op in ops if op.kind == "add"]
    if adds:
        # A product has its bias as an addition behind it.
        if len(adds) > 1 or biases or result not in adds[0].inputs:
            return None
        used.append(adds[0])
        biases, result = [v for v in adds[0].inputs if v != result], adds[0].outputs[0]
    bias: tuple[int, ...] = ()
    if biases:
        bias_op = producer.get(biases[0])
        bias = (biases[0],) if bias_op is None else tuple(v for v in bias_op.inputs if v >= 0)
        used += [] if bias_op is None else [bias_op]
        if len(biases) != 1 or (bias_op is not None and bias_op.kind != "dequantize_linear"):
            return None
    if last is not None:
        used.append(last)
        if last.inputs[0] != result:
            return None
    if len(used) != len(ops) or any(op not in used for op in ops):
        return None
    found = _operands(signature, product, x_op, w_op, last)
    if found is None or found.k > MOST_DEPTH or not _is_bias(signature, bias, found.n):
        return None
    return replace(found, bias=bias)


def _is_bias(signature: Signature, bias: tuple[int, ...], n: int) -> bool:
    """Whether these constants are one number a column."""
    for position, value in enumerate(bias):
        elements = signature.type_of(value).elements
        if not is_constant(signature, value) or (elements != n if position == 0 else elements not in (1, n)):
            return False
    return not bias or signature.type_of(bias[0]).shape[-1] == n


def _operands(signature: Signature, product: Op, x_op: Op, w_op: Op, last: Op | None) -> Quantized | None:
    x, weight = x_op.inputs[0], w_op.inputs[0]
    if signature.program.values[x].role is not Role.INPUT or not is_constant(signature, weight):
        return None
    x_type, w_type, y_type = (signature.type_of(v) for v in (x, weight, signature.outputs[0]))
    if x_type.dtype not in BYTES or w_type.dtype not in BYTES or not w_type.is_static:
        return None
    if y_type.dtype not in (*BYTES, DType.F32):
        return None
    zeros = [_zero_point(signature, op) for op in (x_op, w_op, last)]
    scales = (x_op.inputs[1], w_op.inputs[1], *(() if last is None else (last.inputs[1],)))
    if not all(is_constant(signature, v) for v in (*scales, *zeros) if v >= 0):
        return None
    if not all(signature.type_of(v).elements == 1 for v in (scales[0], *scales[2:], zeros[0], zeros[2]) if v >= 0):
        return None
    many = signature.type_of(scales[1]).elements != 1
    axis = w_op.attributes.integer("axis")
    window = None
    if product.kind == "matmul":
        if w_type.rank != 2 or x_type.rank < 2 or (many and axis != 1):
            return None
        (k, n), rows = w_type.numbers(), dims.product(x_type.shape[:-1])
    else:
        image, channels = image_of(signature, x), x_type.shape[1]
        out = image_of(signature, product.outputs[0])
        if image is None or out is None or product.attributes.integer("group") != 1 or (many and axis != 0):
            return None
        n, *kernel = w_type.numbers()
        if not isinstance(channels, int):
            return None
        window = window_of(product, image, tuple(kernel[1:]))
        k, rows = channels * window.kernel[0] * window.kernel[1], x_type.shape[0]
    if k < 1 or n < 1 or rows == 0:
        return None
    y_byte = BYTES.get(y_type.dtype)
    if (last is None) != (y_byte is None):
        return None
    narrow = w_type.dtype is DType.I8 and zeros[1] < 0
    return Quantized(
        x, weight, zeros[1], scales, rows, k, n, BYTES[x_type.dtype], zeros[0], y_byte, zeros[2], window, narrow, ()
    )


def _params(found: Quantized, point: QuantizedPoint, sizes: Sizes, avx512: bool) -> QuantizedParams:
    return QuantizedParams(
        rows=sizes.size(found.rows),
        n=found.n,
        k=found.k,
        x_byte=found.x_byte,
        x_offset=found.x_zero >= 0,
        result=Result.FLOAT32 if found.y_byte is None else Result.BYTES,
        point=point,
        avx512=avx512,
        window=found.window,
        y_offset=found.y_zero >= 0,
        y_byte=found.y_byte or Byte.U8,
        biased=bool(found.bias),
    )


def pack(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``quantized``: weights, start, scale, shift or zeros.

    weights, start: arrays are the weights, then zero points, of what ``zeros`` names: w, x or both.  scale: scales of
    x, of the weights, of the result if it is quantized.  shift: the bias, its scale and zero point where it has them,
    and, with ``over``, the scale of the result; none for zeros.  zeros: zero points, of what ``zeros`` names: x, y.
    """
    part, n = str(options["part"]), integer_option(options, "n")
    point = QuantizedPoint(
        dot=Dot(integer_option(options, "dot")), lanes=integer_option(options, "lanes"), mr=1,
        nv=integer_option(options, "nv"), contraction=Contraction.FUSED,
    )  # fmt: skip
    params = QuantizedParams(
        rows=1, n=n, k=integer_option(options, "k"), x_byte=Byte(str(options["byte"])),
        x_offset="x" in str(options["zeros"]), result=Result.INT32, point=point, avx512=False,
    )  # fmt: skip
    if part == "zeros":
        known = {name: int(np.reshape(a, -1)[0]) for name, a in zip(str(options["zeros"]), arrays, strict=True)}
        return np.array([known.get("x", 0), known.get("y", 0)], dtype=np.int32)
    if part in ("scale", "shift"):
        full = np.zeros(params.panels.padded, dtype=np.float32)
        if part == "scale":
            factors = [np.asarray(a, dtype=np.float64).reshape(-1) for a in arrays]
            total = factors[0] * factors[1]
            full[:n] = total if len(factors) < 3 else total / factors[2]
        elif arrays and "over" in options:
            full[:n] = _shift(arrays, over=bool(integer_option(options, "over")))
        return full
    w = np.asarray(arrays[0]).astype(np.int64)
    channels_first = options["form"] == "conv"
    named = zip(str(options["zeros"]), arrays[1:], strict=True)
    zeros = {name: np.asarray(a).astype(np.int64).reshape(-1) for name, a in named}
    if "w" in zeros:
        zero = zeros["w"]
        w = w - (zero.reshape(-1, *([1] * (w.ndim - 1))) if channels_first else zero)
    if channels_first:
        w = w.transpose(*range(2, w.ndim), 1, 0).reshape(-1, n)
    matrix = w.astype(np.int8) if point.dot is Dot.QUADS else w
    x_zero = int(zeros["x"][0]) if "x" in zeros else 0
    packed = pack_quantized(cast("Bytes", matrix), 0, x_zero, None, params)  # centred values may need 9 bits
    return packed.weights if part == "weights" else packed.start


def _shift(arrays: Sequence[Array], *, over: bool) -> Array:
    """A real bias in units of the result."""
    numbers = [np.asarray(a, dtype=np.float64).reshape(-1) for a in arrays]
    scale = numbers.pop() if over else np.ones(1)
    value = numbers[0]
    if len(numbers) > 1:
        value = (value - (numbers[2] if len(numbers) > 2 else 0.0)) * numbers[1]
    return np.asarray(value / scale)


class QuantizedProduct:
    """Integer products with requantization."""

    @property
    def name(self) -> str:
        return "quantized"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_quantized(signature) is not None else "no product of quantized operands"

    def _border(self, signature: Signature, found: Quantized) -> Layouts | None:
        return all_row_major(signature) if found.window is None else all_channels_last(signature)

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found = match_quantized(signature)
        border = None if found is None else self._border(signature, found)
        if found is None or border is None or layouts not in (None, border):
            return
        rows = found.rows if found.window is None else found.window.out_width  # what one gathered line holds
        for point in quantized_points(Sizes().size(rows), found.n, cpu):
            if point.dot is Dot.QUADS and not found.narrow_weights:
                continue
            yield Proposal({"template": self.name, **quantized_config(point)}, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_quantized(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no quantized product")
        sizes, point = Sizes(), quantized_point(config)
        params = _params(found, point, sizes, cpu.has_avx512)
        source = quantized(params)
        split = stages.split_of(target.threads)
        return Kernel(
            text=rebind(source, signature, (found.x,), signature.outputs),
            contraction=point.contraction,
            weights=tuple(self._weights(found, params)),
            workspace=sizes.workspace(source.workspace, split.parts),
            params=sizes.params,
            split=split,
        )

    def _weights(self, found: Quantized, params: QuantizedParams) -> Iterator[PackedWeight]:
        point, padded = params.point, params.panels.padded
        shared: dict[str, int | str] = {
            "byte": found.x_byte.value, "dot": point.dot.value, "form": "matrix" if found.window is None else "conv",
            "k": found.k, "lanes": point.lanes, "n": found.n, "nv": point.nv,
        }  # fmt: skip
        parts: list[tuple[str, tuple[int, ...], str, int]] = [
            ("weights", (found.weight,), "w", params.depth * padded * point.dot.element_bytes),
            ("start", (found.weight,), "wx", padded * 4),
            ("scale", found.scales, "", padded * 4),
        ]
        if params.shifts:
            over = found.scales[2:] if found.bias else ()
            parts.append(("shift", (*(found.bias or found.scales[:1]), *over), "", padded * 4))
        if params.reads_zeros:
            parts.append(("zeros", (), "xy", 8))
        zeros = {"w": found.weight_zero, "x": found.x_zero, "y": found.y_zero}
        for part, sources, names, nbytes in parts:
            centred = "".join(name for name in names if zeros[name] >= 0)
            own: dict[str, int | str] = {"part": part, "zeros": centred}
            if part == "shift" and found.bias:
                own["over"] = len(found.scales) - 2
            options = tuple(sorted({**shared, **own}.items()))
            yield PackedWeight((*sources, *(zeros[z] for z in centred)), Packing("quantized", options), nbytes)
