"""Signatures built op by op, candidates built and called in this process, results judged by the oracle.

Imported by: the tests of loops and backend.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tribunus_native.backend import NativeBackend

from tribunus.candidates.backend import Budget, Effort, Feedback, packed_weights
from tribunus.candidates.model import Artifact, Candidate, Signature
from tribunus.devices.cpu import ExecutableBytes
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.running import golden_with_budget
from tribunus.oracle.verdict import judge
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import Attributes, AttributeValue
from tribunus.phaseir.dims import Dim, Symbol
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array, Constants, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.targets.target import Target

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PAD = 192


class GroupBuilder:
    """A group of ops with arrays for its inputs and weights."""

    def __init__(self, *symbols: Symbol, policy: ComputePolicy = ComputePolicy.FP32, seed: int = 0) -> None:
        self.constants = Constants()
        self.builder = ProgramBuilder(self.constants, symbols)
        self.bindings = {s.name: s.opt for s in symbols}
        self.policy = policy
        self.inputs: list[int] = []
        self.arrays: dict[int, Array] = {}
        self._random = np.random.default_rng(seed)

    def numbers(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Arbitrary elements."""
        if dtype.is_float:
            values = self._random.standard_normal(shape)
            if dtype is DType.BF16:
                return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            return values.astype(dtype.numpy)
        if dtype is DType.BOOL:
            return self._random.integers(0, 2, shape).astype(np.bool_)
        low = -100 if dtype.value.startswith("i") else 0
        return self._random.integers(low, 100, shape).astype(dtype.numpy)

    def x(self, *shape: Dim, dtype: DType = DType.F32, array: npt.ArrayLike | None = None) -> int:
        """An input."""
        value = self.builder.input(TensorType(dtype, shape), "")
        self.inputs.append(value)
        self._hold(value, dtype, shape, array)
        return value

    def w(self, *shape: int, dtype: DType = DType.F32, array: npt.ArrayLike | None = None) -> int:
        """A weight."""
        value = self.builder.weight(TensorType(dtype, shape))
        self._hold(value, dtype, shape, array)
        return value

    def k(self, array: npt.ArrayLike, dtype: DType = DType.F32) -> int:
        """An inline constant."""
        return self.builder.constant(np.asarray(array, dtype=dtype.numpy), dtype)

    def op(self, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """The first result of an op."""
        return self.results(kind, *inputs, **attributes)[0]

    def results(self, kind: str, *inputs: int, **attributes: AttributeValue) -> tuple[int, ...]:
        """All results of an op."""
        return self.builder.op(kind, inputs, Attributes.of(attributes))

    def group(self, label: str, *outputs: int) -> Group:
        """The signature of everything built so far."""
        program = self.builder.finish(label, tuple(self.inputs), outputs)
        return Group(Signature(program, self.policy, self.constants), self.arrays, self.bindings)

    def _hold(self, value: int, dtype: DType, shape: tuple[Dim, ...], array: npt.ArrayLike | None) -> None:
        extents = dims.evaluate_shape(shape, self.bindings)
        self.arrays[value] = self.numbers(dtype, extents) if array is None else np.asarray(array, dtype.numpy)


@dataclass(frozen=True, slots=True)
class Group:
    """A signature, its arrays, and values of its symbols."""

    signature: Signature
    arrays: Mapping[int, Array]
    bindings: Mapping[str, int]


class Memory:
    """Buffers at 64-byte aligned addresses, with room behind each that must not change."""

    def __init__(self) -> None:
        self._kept: list[tuple[npt.NDArray[np.uint8], int, int]] = []

    def buffer(self, data: bytes) -> npt.NDArray[np.uint8]:
        """A copy of ``data`` in memory."""
        raw = np.full(len(data) + PAD + 64, 0x5A, dtype=np.uint8)
        start = -raw.ctypes.data % 64
        view = raw[start : start + len(data)]
        view[:] = np.frombuffer(data, dtype=np.uint8)
        self._kept.append((raw, start, len(data)))
        return view

    def is_intact(self) -> bool:
        """Whether nothing was written outside of the buffers."""
        return all(
            bool((raw[:start] == 0x5A).all() and (raw[start + size :] == 0x5A).all()) for raw, start, size in self._kept
        )


@dataclass(slots=True)
class Workshop:
    """Builds candidates and calls them."""

    backend: NativeBackend
    target: Target
    scratch: Path
    built: int = field(default=0)

    def candidates(self, group: Group, limit: int, layouts: tuple[Layout, ...] | None = None) -> list[Candidate]:
        """What the backend proposes."""
        budget = Budget(Effort.STANDARD, limit)
        return list(self.backend.propose(group.signature, self.target, budget, Feedback(layouts)))

    def build(self, group: Group, candidate: Candidate) -> Artifact:
        """The artifact of a candidate."""
        self.built += 1
        return self.backend.build(candidate, group.signature, self.target, self.scratch)

    def call(self, group: Group, artifact: Artifact) -> dict[int, Array]:
        """Outputs as stored, by value id."""
        recipe, signature, memory = artifact.recipe, group.signature, Memory()
        buffers = [
            memory.buffer(operand.layout.pack(group.arrays[value]).tobytes())
            for operand, value in zip(recipe.inputs, signature.inputs, strict=True)
        ]
        outputs: list[npt.NDArray[np.uint8]] = []
        for operand in recipe.outputs:
            elements = dims.evaluate(operand.layout.elements(operand.type.shape), group.bindings)
            outputs.append(memory.buffer(b"\xa5" * (elements * operand.type.dtype.itemsize)))
        buffers += outputs
        for weight, data in zip(recipe.weights, packed_weights(self.backend, artifact, group.arrays), strict=True):
            assert len(data) == weight.nbytes, weight.packing
            buffers.append(memory.buffer(data))
        if recipe.has_workspace:
            buffers.append(memory.buffer(b"\xff" * dims.evaluate(recipe.workspace, group.bindings)))
        values = [dims.evaluate(param, group.bindings) for param in recipe.params]
        addresses = (ctypes.c_void_p * max(1, len(buffers)))(*[b.ctypes.data for b in buffers])
        params = (ctypes.c_int64 * max(1, len(values)))(*values)
        code = ExecutableBytes(artifact.code.data)
        function = ENTRY(code.address)
        for part in range(recipe.split.parts):
            function(ctypes.addressof(addresses), ctypes.addressof(params), part, recipe.split.parts)
        code.close()
        assert memory.is_intact(), f"{artifact.candidate} wrote outside of its buffers"
        return {
            value: operand.layout.unpack(
                output.view(operand.type.dtype.numpy), dims.evaluate_shape(operand.type.shape, group.bindings)
            )
            for value, operand, output in zip(signature.outputs, recipe.outputs, outputs, strict=True)
        }

    def refused(self, group: Group, candidates: Sequence[Candidate]) -> list[str]:
        """Candidates whose results the oracle refuses, with the reason; empty means that all are right."""
        signature = group.signature
        goldens = golden_with_budget(
            signature.program, group.arrays, signature.constants, signature.policy, signature.label,
            VectorFamily.RAND, bindings=group.bindings,
        )  # fmt: skip
        found: list[str] = []
        for candidate in candidates:
            verdict = judge(self.call(group, self.build(group, candidate)), goldens)
            if not verdict.accepted:
                worst = verdict.worst
                found.append(f"{candidate} {candidate.layouts}: {worst.failure} at {worst.worst}, ratio {worst.ratio}")
        return found
