"""What the corpus computes: small signatures, where their operands lie, and the C declarations of both.

Imported by: the corpus, the workshop, tests of admission.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tribunus.candidates.model import Signature
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.attributes import F32, Attributes
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.layouts import Layout, row_major
from tribunus.phaseir.program import Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import PackedWeight, Packing


@dataclass(frozen=True)
class Subject:
    """A signature with a recipe's worth of facts.

    layouts: inputs then outputs.  aligns: likewise, 0 for the element size.  weight_layouts: of each weight.
    declarations: C that names the operands, at the top of every kernel body.
    """

    signature: Signature
    layouts: tuple[Layout, ...]
    declarations: str
    aligns: tuple[int, ...] = ()
    weight_layouts: tuple[Layout, ...] = ()
    workspace: int = 0
    params: tuple[Dim, ...] = ()

    def weights(self) -> tuple[PackedWeight, ...]:
        """Weight operands in the recipe's form."""
        found = []
        for value, layout in zip(self.signature.weights, self.weight_layouts, strict=True):
            type_ = self.signature.type_of(value)
            elements = layout.elements(type_.shape)
            assert isinstance(elements, int)
            found.append(PackedWeight((value,), Packing("layout", layout=layout), elements * type_.dtype.itemsize))
        return tuple(found)

    def with_workspace(self, nbytes: int) -> Subject:
        """The same with a workspace, which C knows as ``ws``."""
        border = len(self.layouts) + len(self.weight_layouts)
        text = f"int32_t *ws = buffers[{border}]; (void)ws;\n"
        return replace(self, workspace=nbytes, declarations=self.declarations + text)


def _symbols(*dims: Dim | Symbol) -> tuple[tuple[Symbol, ...], tuple[Dim, ...]]:
    found = tuple(d for d in dims if isinstance(d, Symbol))
    return found, tuple(Sym(d.name) if isinstance(d, Symbol) else d for d in dims)


def _extent(name: str, dim: Dim, symbols: tuple[Symbol, ...]) -> str:
    """``const int64_t M = 13;``, or the parameter where the dim is a symbol."""
    if isinstance(dim, Sym):
        return f"const int64_t {name} = params[{[s.name for s in symbols].index(dim.name)}];\n"
    return f"const int64_t {name} = {dim};\n"


def _used(*names: str) -> str:
    return "".join(f"(void){name};" for name in names) + "\n"


def gemm(
    m: int | Symbol,
    k: int | Symbol,
    n: int | Symbol,
    *,
    x_pitch: int | None = None,
    y_pitch: int | None = None,
    w_block: int = 1,
    align: int = 0,
    as_input: bool = False,
) -> Subject:
    """``x @ w + bias``; rows of x and y may stand apart; w padded along K to a multiple of ``w_block``.

    as_input: w and bias are inputs, not weights (weights cannot have symbolic dims).
    """
    symbols, (m_, k_, n_) = _symbols(m, k, n)
    builder = ProgramBuilder(Constants(), symbols)
    x = builder.input(TensorType(DType.F32, (m_, k_)), "")
    types = TensorType(DType.F32, (k_, n_)), TensorType(DType.F32, (n_,))
    if as_input:
        w, bias = (builder.input(t, "") for t in types)
    else:
        w, bias = (builder.weight(t) for t in types)
    (product,) = builder.op("matmul", (x, w))
    (y,) = builder.op("add", (product, bias))
    inputs = (x, w, bias) if as_input else (x,)
    signature = Signature(builder.finish("matmul+bias", inputs, (y,)), ComputePolicy.FP32, builder.constants)
    plain = row_major(2)
    x_layout = plain if x_pitch is None else Layout((0, 1), pitch=x_pitch)
    y_layout = plain if y_pitch is None else Layout((0, 1), pitch=y_pitch)
    w_layout = plain if w_block == 1 else Layout((0, 1), ((0, w_block),)) if w_block else plain
    order = (0, 3, 1, 2) if as_input else (0, 1, 2, 3)  # positions of x, y, w, bias in ``buffers``
    text = _extent("M", m_, symbols) + _extent("K", k_, symbols) + _extent("N", n_, symbols)
    text += f"const int64_t LDX = {x_pitch or 'K'}, LDY = {y_pitch or 'N'};\n"
    text += f"const float *x = buffers[{order[0]}], *w = buffers[{order[2]}], *bias = buffers[{order[3]}];\n"
    text += f"float *y = buffers[{order[1]}];\n" + _used("M", "K", "N", "LDX", "LDY", "x", "w", "bias", "y")
    layouts = (x_layout, plain, row_major(1), y_layout) if as_input else (x_layout, y_layout)
    return Subject(
        signature,
        layouts,
        text,
        (align,) * len(layouts),
        () if as_input else (w_layout, row_major(1)),
        params=tuple(Sym(s.name) for s in symbols),
    )


def scaled_gemm(m: int, k: int, n: int, alpha: float, beta: float) -> Subject:
    """``alpha * (x @ w) + beta * c``."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (m, k)), "")
    c = builder.input(TensorType(DType.F32, (m, n)), "")
    w = builder.weight(TensorType(DType.F32, (k, n)))
    a, b = (builder.constant(np.array(v, np.float32), DType.F32) for v in (alpha, beta))
    (product,) = builder.op("matmul", (x, w))
    (left,) = builder.op("mul", (product, a))
    (right,) = builder.op("mul", (c, b))
    (y,) = builder.op("add", (left, right))
    signature = Signature(builder.finish("gemm", (x, c), (y,)), ComputePolicy.FP32, builder.constants)
    text = f"const int64_t M = {m}, K = {k}, N = {n}; const float alpha = {alpha!r}f, beta = {beta!r}f;\n"
    text += "const float *x = buffers[0], *c = buffers[1], *w = buffers[3]; float *y = buffers[2];\n"
    text += _used("M", "K", "N", "alpha", "beta", "x", "c", "w", "y")
    return Subject(signature, (row_major(2),) * 3, text, weight_layouts=(row_major(2),))


def softmax(rows: int, columns: int) -> Subject:
    """Softmax over the last axis."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (rows, columns)), "")
    (y,) = builder.op("softmax", (x,), Attributes.of({"axis": 1}))
    signature = Signature(builder.finish("softmax", (x,), (y,)), ComputePolicy.FP32, builder.constants)
    text = f"const int64_t M = {rows}, N = {columns}; const float *x = buffers[0]; float *y = buffers[1];\n"
    return Subject(signature, (row_major(2),) * 2, text + _used("M", "N", "x", "y"))


def layer_norm(rows: int, columns: int, eps: float) -> Subject:
    """Layer normalization over the last axis with scale and bias."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (rows, columns)), "")
    scale, bias = (builder.weight(TensorType(DType.F32, (columns,))) for _ in range(2))
    (y,) = builder.op("layer_norm", (x, scale, bias), Attributes.of({"axis": 1, "eps": F32(eps)}))
    signature = Signature(builder.finish("layer_norm", (x,), (y,)), ComputePolicy.FP32, builder.constants)
    text = f"const int64_t M = {rows}, N = {columns}; const float eps = {eps!r}f;\n"
    text += "const float *x = buffers[0], *scale = buffers[2], *bias = buffers[3]; float *y = buffers[1];\n"
    text += _used("M", "N", "eps", "x", "scale", "bias", "y")
    return Subject(signature, (row_major(2),) * 2, text, weight_layouts=(row_major(1),) * 2)


def relu(rows: int | Symbol, columns: int, *, align: int = 0) -> Subject:
    """``max(x, 0)`` that keeps NaN and negative zero."""
    symbols, (m_, n_) = _symbols(rows, columns)
    builder = ProgramBuilder(Constants(), symbols)
    x = builder.input(TensorType(DType.F32, (m_, n_)), "")
    (y,) = builder.op("relu", (x,))
    signature = Signature(builder.finish("relu", (x,), (y,)), ComputePolicy.FP32, builder.constants)
    text = _extent("M", m_, symbols) + _extent("N", n_, symbols)
    text += "const float *x = buffers[0]; float *y = buffers[1];\n" + _used("M", "N", "x", "y")
    params = tuple(Sym(s.name) for s in symbols)
    return Subject(signature, (row_major(2),) * 2, text, (align, align), params=params)


def clip(rows: int, columns: int, limit: float) -> Subject:
    """``min(x, limit)``: the limit belongs to the signature by value."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (rows, columns)), "")
    bound = builder.constant(np.array(limit, np.float32), DType.F32)
    (y,) = builder.op("minimum", (x, bound))
    signature = Signature(builder.finish("clip", (x,), (y,)), ComputePolicy.FP32, builder.constants)
    text = f"const int64_t M = {rows}, N = {columns}; const float limit = {limit!r}f;\n"
    text += "const float *x = buffers[0]; float *y = buffers[1];\n" + _used("M", "N", "limit", "x", "y")
    return Subject(signature, (row_major(2),) * 2, text)


def quantize(count: int) -> Subject:
    """Float to int8 by one scale and zero point."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.F32, (count,)), "")
    scale, zero = builder.weight(TensorType(DType.F32, ())), builder.weight(TensorType(DType.I8, ()))
    attributes = Attributes.of({"axis": -1, "to": "i8"})
    (y,) = builder.op("quantize_linear", (x, scale, zero), attributes)
    signature = Signature(builder.finish("quantize", (x,), (y,)), ComputePolicy.FP32, builder.constants)
    text = f"const int64_t N = {count}; const float *x = buffers[0]; int8_t *y = buffers[1];\n"
    text += "const float scale = *(const float *)buffers[2]; const int zero = *(const int8_t *)buffers[3];\n"
    text += _used("N", "x", "y", "scale", "zero")
    return Subject(signature, (row_major(1),) * 2, text, weight_layouts=(row_major(0),) * 2)


def int8_product(m: int, k: int, n: int) -> Subject:
    """u8 times s8, exact in int32."""
    builder = ProgramBuilder(Constants())
    x = builder.input(TensorType(DType.U8, (m, k)), "")
    w = builder.weight(TensorType(DType.I8, (k, n)))
    (y,) = builder.op("matmul_integer", (x, w))
    signature = Signature(builder.finish("matmul_integer", (x,), (y,)), ComputePolicy.FP32, builder.constants)
    text = f"const int64_t M = {m}, K = {k}, N = {n};\n"
    text += "const uint8_t *x = buffers[0]; const int8_t *w = buffers[2]; int32_t *y = buffers[1];\n"
    return Subject(signature, (row_major(2),) * 2, text + _used("M", "K", "N", "x", "w", "y"), (), (row_major(2),))
