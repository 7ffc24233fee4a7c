"""Small kernels in C, honest and not, as artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tribunus_native.flat import build_flat
from tribunus_native.toolchain import Contraction, Cpu, Toolchain

from tribunus.candidates.backend import AVAILABLE, Availability, Budget, Feedback
from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility, Signature
from tribunus.canon import digest_bytes
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.dims import Dim, Symbol
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array, Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Code, CodeFormat, Operand, PackedWeight, Packing, Recipe, WorkSplit
from tribunus.targets.target import Target

HEAD = """
#include <stddef.h>
#include <stdint.h>
__attribute__((visibility("default")))
void kernel(void *const *buffers, const int64_t *params, int64_t part, int64_t parts) {
  const float *a = buffers[0], *b = buffers[1]; float *out = buffers[2]; const int64_t n = params[0];
  (void)a, (void)b, (void)out, (void)n, (void)part, (void)parts;
"""
HONEST = "for (int64_t i = n * part / parts; i < n * (part + 1) / parts; i++) out[i] = a[i] + b[i];"


HONEST_WEIGHT = "out = buffers[1]; b = buffers[2];" + HONEST
ROWS_OF_EIGHT = "for (int64_t r = 0; r < 5; r++) for (int64_t c = 0; c < 7; c++) out[8*r+c] = a[8*r+c] + b[8*r+c];"
"""Honest on five rows of seven that stand eight apart."""


class FlatBackend:
    """A backend that only packs by layouts."""

    name = "toy"
    formats: Sequence[CodeFormat] = (CodeFormat("flat"),)

    def serves(self, target: Target) -> Availability:
        return AVAILABLE

    def covers(self, signature: Signature, target: Target) -> Availability:
        return AVAILABLE

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        return iter(())

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        raise AssertionError("the tests build their own artifacts")

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        raise AssertionError(packing.name)

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        return None


def host_cpu() -> Cpu:
    return Cpu.AARCH64 if os.uname().machine == "aarch64" else Cpu.X86_64_V3


@dataclass
class Workshop:
    """Builds flat code, each source once."""

    toolchain: Toolchain
    scratch: Path
    built: dict[str, Code]

    def code(self, body: str) -> Code:
        """Code of a kernel with this body."""
        if body not in self.built:
            flat = build_flat(HEAD + body + "\n}\n", host_cpu(), Contraction.SEPARATE, self.toolchain, self.scratch)
            self.built[body] = Code(CodeFormat("flat"), flat.code, (("text_size", flat.text_size),))
        return self.built[body]


def add_artifact(
    code: Code,
    shape: tuple[Dim, ...] = (5, 7),
    layout: Layout | None = None,
    out_layout: Layout | None = None,
    align: int = 4,
    parts: int = 1,
    workspace: Dim = 0,
    in_place: bool = False,
    weight: bool = False,
    dtype: DType = DType.F32,
) -> Artifact:
    """``a + b``: both inputs, or b a weight.  params[0] is the number of elements in memory."""
    symbols = (Symbol("d0", "rows", 1, 4, 4096, 1),) if any(not isinstance(d, int) for d in shape) else ()
    builder = ProgramBuilder(Constants(), symbols)
    type_ = TensorType(dtype, shape)
    a = builder.input(type_, "")
    b = builder.weight(type_) if weight else builder.input(type_, "")
    (result,) = builder.op("add", (a, b))
    program = builder.finish("add", (a,) if weight else (a, b), (result,))
    signature = Signature(program, ComputePolicy.FP32, builder.constants)
    inner = layout or Layout(tuple(range(len(shape))))
    outer = out_layout or inner
    operand, output = Operand(type_, inner, align), Operand(type_, outer, align)
    elements = inner.elements(shape)
    weights: tuple[PackedWeight, ...] = ()
    inputs: tuple[Operand, ...] = (operand, operand)
    if weight:
        assert isinstance(elements, int)
        weights = (PackedWeight((b,), Packing("layout", (), inner), elements * dtype.itemsize, align),)
        inputs = (operand,)
    candidate = Candidate("toy", signature.digest, Config(), (*(o.layout for o in inputs), outer), Reproducibility.R)
    recipe = Recipe(
        inputs,
        (output,),
        weights,
        workspace,
        (elements,),
        WorkSplit("elements" if parts > 1 else "none", parts),
        ((0, 0),) if in_place else (),
    )
    return Artifact(candidate, signature, code, recipe, BuildRecord((), (), digest_bytes(b"")))


def operands(artifact: Artifact, dims: Mapping[str, int] | None = None, seed: int = 1) -> dict[int, Array]:
    """Normal values for every input and weight."""
    rng = np.random.default_rng(seed)
    found: dict[int, Array] = {}
    for value in (*artifact.signature.inputs, *artifact.signature.weights):
        shape = artifact.signature.type_of(value).at(dims or {}).numbers()
        found[value] = rng.standard_normal(shape).astype(np.float32)
    return found


def total(inputs: Mapping[int, Array]) -> npt.NDArray[np.float32]:
    """What an honest kernel answers."""
    return np.asarray(inputs[0], np.float32) + np.asarray(inputs[1], np.float32)
