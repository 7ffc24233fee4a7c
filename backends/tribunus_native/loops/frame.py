"""The frame of a generic kernel: buffers, sizes, workspace, vector types; stages write their text into it.

Imported by: the stages beside it, match.  Imports: phaseir, plan, templates.csource.

Extents and strides are dims: numbers are written into the text, everything else becomes a parameter of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, DimScope, Shape
from tribunus.phaseir.layouts import Layout, row_major
from tribunus.plan.code import PackedWeight, Packing
from tribunus_native.loops.ctypes import STORAGE, vector_types
from tribunus_native.templates.csource import ENTRY, Code, vector_header
from tribunus_native.templates.vecmath import vecmath

WORKSPACE_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Tensor:
    """Elements in memory.  pointer: C expression.  strides: elements from index to index of each logical axis."""

    pointer: str
    dtype: DType
    shape: Shape
    strides: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def permuted(self, perm: Sequence[int]) -> Tensor:
        """Axis i of the result is axis perm[i]."""
        return replace(self, shape=tuple(self.shape[p] for p in perm), strides=tuple(self.strides[p] for p in perm))

    def inserted(self, axis: int, extent: Dim = 1, stride: Dim = 0) -> Tensor:
        """One more axis."""
        return replace(
            self,
            shape=(*self.shape[:axis], extent, *self.shape[axis:]),
            strides=(*self.strides[:axis], stride, *self.strides[axis:]),
        )

    def split(self, axis: int, outer: Dim, inner: Dim) -> Tensor:
        """One axis seen as two."""
        stride = self.strides[axis]
        return replace(
            self,
            shape=(*self.shape[:axis], outer, inner, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], dims.mul(stride, inner), stride, *self.strides[axis + 1 :]),
        )

    def expanded(self, shape: Shape) -> Tensor:
        """Broadcast to ``shape``: new axes in front, stride 0 where an extent of 1 is repeated."""
        missing = len(shape) - self.rank
        strides: list[Dim] = [0] * missing
        for own, stride, extent in zip(self.shape, self.strides, shape[missing:], strict=True):
            strides.append(0 if own == 1 and extent != 1 else stride)
        return replace(self, shape=shape, strides=tuple(strides))

    def raw(self) -> Tensor:
        """The same bytes as unsigned integers: what copies move, so that no bit changes."""
        kinds = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}
        dtype = kinds[self.dtype.itemsize]
        if dtype is self.dtype:
            return self
        return replace(self, dtype=dtype, pointer=f"(({STORAGE[dtype]} *){self.pointer})")


def strides_of(shape: Shape, order: Sequence[int]) -> Shape:
    """Dense strides of axes ordered from slowest to fastest."""
    found: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        found[axis] = step
        step = dims.mul(step, shape[axis])
    return tuple(found)


def dense(pointer: str, dtype: DType, shape: Shape, layout: Layout) -> Tensor:
    """A tensor in a layout that only permutes."""
    if layout.blocks or layout.pitch is not None:
        raise InternalError(f"generic kernels take dense layouts, not {layout}")
    return Tensor(pointer, dtype, shape, strides_of(shape, layout.order))


def times(index: str, factor: str) -> str:
    """``index * factor`` without what needs no writing."""
    if index == "0" or factor == "0":
        return "0"
    if factor == "1":
        return index
    if index == "1":
        return factor
    safe = index if index.isalnum() or index.replace("_", "").isalnum() else f"({index})"
    return f"{safe} * {factor}"


def plus(*terms: str) -> str:
    """Sum without zeros."""
    return " + ".join(t for t in terms if t != "0") or "0"


class Frame:
    """Collects one kernel.  lanes: of the vector types.  parallel: whether stages may split their outermost loop.

    wide_sums: float32 sums are accumulated in float64.
    """

    def __init__(
        self, title: str, scope: DimScope, lanes: int, *, avx512: bool, parallel: bool, wide_sums: bool = False
    ) -> None:
        self.title = title
        self.scope = scope
        self.lanes = lanes
        self.avx512 = avx512
        self.parallel = parallel
        self.wide_sums = wide_sums
        self.code = Code()
        self.functions: set[str] = set()
        self.dtypes: set[DType] = set()
        self.helpers: dict[str, str] = {}
        self.weights: list[PackedWeight] = []
        self.workspace: Dim = 0
        self._params: dict[Dim, str] = {}
        self._inputs: list[tuple[str, DType]] = []
        self._outputs: list[tuple[str, DType]] = []
        self._weight_types: list[str] = []
        self._packed: dict[tuple[tuple[int, ...], Packing], str] = {}
        self._spaces: list[tuple[str, str, str]] = []
        self._names = 0

    def c(self, dim: Dim) -> str:
        """A dim as C text: a number, or the name of a parameter."""
        if isinstance(dim, int):
            return str(dim)
        return self._params.setdefault(dim, f"n{len(self._params)}")

    @property
    def params(self) -> tuple[Dim, ...]:
        return tuple(self._params)

    def name(self, stem: str) -> str:
        """A C name that nothing else has."""
        self._names += 1
        return f"{stem}{self._names}"

    def input(self, dtype: DType) -> str:
        self._inputs.append((f"in{len(self._inputs)}", dtype))
        return self._inputs[-1][0]

    def output(self, dtype: DType) -> str:
        self._outputs.append((f"out{len(self._outputs)}", dtype))
        return self._outputs[-1][0]

    def weight(self, sources: tuple[int, ...], packing: Packing, nbytes: int, c_type: str) -> str:
        """Pointer to a packed weight; equal ones are shared."""
        key = (sources, packing)
        if key not in self._packed:
            self._packed[key] = f"w{len(self.weights)}"
            self.weights.append(PackedWeight(sources, packing, nbytes))
            self._weight_types.append(c_type)
        return self._packed[key]

    def space(self, c_type: str, itemsize: int, elements: Dim, stem: str = "t") -> str:
        """Pointer to fresh workspace."""
        name = self.name(stem)
        offset = self.workspace
        units = dims.ceildiv(dims.mul(elements, itemsize), WORKSPACE_ALIGN)
        self.workspace = dims.add(offset, dims.mul(units, WORKSPACE_ALIGN))
        self._spaces.append((name, c_type, self.c(offset)))
        return name

    def temp(self, dtype: DType, shape: Shape, layout: Layout | None = None) -> Tensor:
        """A tensor in fresh workspace."""
        name = self.space(STORAGE[dtype], dtype.itemsize, dims.product(shape))
        return dense(name, dtype, shape, layout or row_major(len(shape)))

    def helper(self, name: str, text: str) -> str:
        """A static function of the file, written once."""
        self.helpers.setdefault(name, text)
        return name

    def offset(self, strides: Sequence[Dim], indices: Sequence[str]) -> str:
        """Element offset of C index expressions."""
        return plus(*(times(i, self.c(s)) for i, s in zip(indices, strides, strict=True)))

    def at(self, tensor: Tensor, indices: Sequence[str]) -> str:
        """C lvalue of an element."""
        return f"{tensor.pointer}[{self.offset(tensor.strides, indices)}]"

    @contextmanager
    def stage(self, comment: str) -> Iterator[None]:
        """A block of its own with a comment."""
        self.code.line(f"// {comment}")
        with self.code.block(""):
            yield

    @contextmanager
    def loop(self, index: str, extent: Dim, *, split: bool = False) -> Iterator[str]:
        """``for index in 0 .. extent``; split: this part's share only.  Yields the index."""
        share = split and self.parallel
        if extent == 1 and not share:
            yield "0"
            return
        n = self.c(extent)
        first, last = (f"part * {n} / parts", f"(part + 1) * {n} / parts") if share else ("0", n)
        with self.code.block(f"for (int64_t {index} = {first}; {index} < {last}; {index}++)"):
            yield index

    @contextmanager
    def loops(
        self, axes: Sequence[tuple[int, Dim]], stem: str, rank: int, *, split: bool = True
    ) -> Iterator[list[str]]:
        """Nested loops over (axis, extent) pairs, slowest first; yields an index for every axis of ``rank``."""
        indices = ["0"] * rank
        heads: list[str] = []
        first = split and self.parallel
        for axis, extent in axes:
            if extent == 1 and not first:
                continue
            indices[axis] = f"{stem}{axis}"
            n = self.c(extent)
            low, high = (f"part * {n} / parts", f"(part + 1) * {n} / parts") if first else ("0", n)
            heads.append(f"for (int64_t {stem}{axis} = {low}; {stem}{axis} < {high}; {stem}{axis}++)")
            first = False
        if first:
            heads.append("if (part == 0)")
        with _blocks(self.code, heads):
            yield indices

    def result(self) -> str:
        """The whole text."""
        whole = Code()
        vector_header(whole, self.title, self.lanes)
        vecmath(whole, frozenset(self.functions), self.lanes, avx512=self.avx512)
        whole.text(vector_types(self.dtypes, self.lanes))
        whole.line("")
        for text in self.helpers.values():
            whole.text(text)
            whole.line("")
        with whole.block(ENTRY):
            position = 0
            for name, dtype in self._inputs:
                whole.line(f"[[maybe_unused]] const {STORAGE[dtype]} *const {name} = buffers[{position}];")
                position += 1
            for name, dtype in self._outputs:
                whole.line(f"{STORAGE[dtype]} *const {name} = buffers[{position}];")
                position += 1
            for index, c_type in enumerate(self._weight_types):
                whole.line(f"const {c_type} *const w{index} = buffers[{position}];")
                position += 1
            for dim, name in self._params.items():
                whole.line(f"[[maybe_unused]] const int64_t {name} = params[{int(name[1:])}];  // {dim}")
            for name, c_type, offset in self._spaces:
                whole.line(
                    f"[[maybe_unused]] {c_type} *const {name} = (void *)((char *)buffers[{position}] + {offset});"
                )
            whole.text(self.code.result())
        return whole.result()


@contextmanager
def _blocks(code: Code, heads: Sequence[str]) -> Iterator[None]:
    if not heads:
        yield
        return
    with code.block(heads[0]), _blocks(code, heads[1:]):
        yield
