"""The memory of one run: filling it with inputs and poison, and reading from it what the candidate did.

Imported by: worker, replaying.  Imports: placement, candidates, devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tribunus.candidates.backend import Backend, packed_weights
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import DimValues, Guard, Inputs, Poison, RunTerms
from tribunus.isolation.placement import (
    WORKSPACE_ALIGN,
    BufferMap,
    Bytes,
    SharedMemory,
    Span,
    evaluate_params,
    guarded_mapping,
    in_place_sources,
    lay_out,
    pattern,
    shaped_inputs,
    shaped_outputs,
    weight_requests,
    workspace_bytes,
)
from tribunus.phaseir.program import Array

_KEPT_POISONS: Final = 2

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What decides where buffers lie: equal geometries share memory."""

    artifact: str
    dims: tuple[tuple[str, int], ...]
    guard: Guard
    shift: int
    in_place: bool


def geometry_of(artifact: Artifact, dims: DimValues, terms: RunTerms) -> Geometry:
    """The geometry of a run."""
    return Geometry(artifact.digest, tuple(sorted(dims.items())), terms.guard, terms.shift, terms.in_place)


class PackedWeights:
    """Packed weights in shared memory; read-only for the child."""

    def __init__(self, artifact: Artifact, backend: Backend, inputs: Inputs, guard: Guard) -> None:
        self._sources = tuple(
            inputs.get(v) for w in artifact.recipe.weights for v in w.sources
        )  # keeps their ids taken
        spans, size = lay_out(weight_requests(artifact), guard, 0)
        self.spans = spans
        self.memory = SharedMemory(size)
        self.memory.bytes[:] = 0xA5
        self._packed = [np.frombuffer(data, np.uint8) for data in packed_weights(backend, artifact, inputs)]
        for span, data in zip(spans, self._packed, strict=True):
            self.memory.bytes[span.offset : span.offset + span.nbytes] = data

    def changed(self) -> tuple[int, ...]:
        """Positions of weights whose bytes are no longer those that were packed."""
        pairs = zip(self.spans, self._packed, strict=True)
        return tuple(
            i
            for i, (span, data) in enumerate(pairs)
            if not np.array_equal(self.memory.bytes[span.offset : span.offset + span.nbytes], data)
        )


def weights_identity(artifact: Artifact, inputs: Inputs) -> tuple[tuple[object, ...], ...]:
    """Equal for equal weights: the object where it cannot be written to, else a digest of its bytes."""
    found: list[tuple[object, ...]] = []
    for weight in artifact.recipe.weights:
        for value in weight.sources:
            array = inputs.get(value)
            if array is None:
                found.append((value,))
            elif array.flags.writeable:
                found.append(
                    (
                        value,
                        array.shape,
                        hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data).digest(),
                    )
                )
            else:
                found.append((value, id(array)))
    return tuple(found)


class RunBuffers:
    """Inputs, outputs and workspace of one geometry."""

    def __init__(self, artifact: Artifact, dims: DimValues, terms: RunTerms) -> None:
        self.inputs = shaped_inputs(artifact, dims)
        self.outputs = shaped_outputs(artifact, dims)
        shared = in_place_sources(artifact, terms.in_place)
        requests: list[tuple[str, int, int, bool]] = []
        for i, item in enumerate(self.inputs):
            users = [o for o, source in shared.items() if source == i]
            size = max([item.nbytes, *(self.outputs[o].nbytes for o in users)])
            align = max([item.align, *(self.outputs[o].align for o in users)])
            requests.append((f"input {i}", size, align, bool(users)))
        separate = [o for o in range(len(self.outputs)) if o not in shared]
        requests += [(f"output {o}", self.outputs[o].nbytes, self.outputs[o].align, True) for o in separate]
        if artifact.recipe.has_workspace:
            requests.append(("workspace", workspace_bytes(artifact, dims), WORKSPACE_ALIGN, True))
        self.spans, size = lay_out(requests, terms.guard, terms.shift)
        self.memory = SharedMemory(size)
        count = len(self.inputs)
        self._output_span = {o: count + i for i, o in enumerate(separate)} | dict(shared)
        self._overwritten = frozenset(shared.values())
        self._own = frozenset(separate)
        self._weights = len(artifact.recipe.weights)
        self._workspace = artifact.recipe.has_workspace
        self._params = evaluate_params(artifact, dims)
        self._parts = artifact.recipe.split.parts
        self._paddings = [item.padding() for item in self.inputs]
        self._gaps = [item.gaps() for item in self.outputs]
        self._patterns: dict[Poison, Bytes] = {}
        self._sent: list[Array] = []

    @property
    def nbytes(self) -> int:
        """Bytes that keeping these buffers costs at most: their own, the poisons, and what was sent."""
        return (2 + _KEPT_POISONS) * self.memory.size

    def mapping(self, weights: PackedWeights) -> BufferMap:
        """What the child maps: these buffers and the weights, in the recipe's order."""
        order = [(0, i) for i in range(len(self.inputs))]
        order += [(0, self._output_span[o]) for o in range(len(self.outputs))]
        order += [(1, i) for i in range(self._weights)]
        order += [(0, len(self.spans) - 1)] if self._workspace else []
        groups = [(self.memory, self.spans), (weights.memory, weights.spans)]
        return guarded_mapping(groups, order, self._params, self._parts)

    def fill(self, inputs: Inputs, poison: Poison) -> None:
        """Poison everything, then write the inputs; their padding keeps the poison."""
        self.memory.bytes[:] = self._pattern(poison)
        self._sent = []
        for item, span, padding in zip(self.inputs, self.spans, self._paddings, strict=False):
            flat = item.flat(inputs[item.value])
            if padding is not None:
                flat = flat.copy()
                flat[padding] = self._region(self._pattern(poison), span, item.nbytes).view(item.dtype)[padding]
            self._region(self.memory.bytes, span, item.nbytes)[:] = flat.view(np.uint8)
            self._sent.append(flat)

    def poison(self, poison: Poison) -> None:
        """Poison outputs and workspace again; restore inputs that outputs were written over."""
        source = self._pattern(poison)
        for number, span in enumerate(self.spans):
            if number in self._overwritten:
                flat = self._sent[number].view(np.uint8)
                self._region(self.memory.bytes, span, flat.size)[:] = flat
            elif span.writable:
                self._region(self.memory.bytes, span, span.nbytes)[:] = self._region(source, span, span.nbytes)

    def write_outputs(self, data: Sequence[Bytes]) -> None:
        """Set every output that has memory of its own to these bytes."""
        for o in self._own:
            self._output(o)[:] = data[o]

    def raw_outputs(self) -> tuple[Bytes, ...]:
        """Copies of the outputs' bytes."""
        return tuple(self._output(o).copy() for o in range(len(self.outputs)))

    def read(self, raw: Sequence[Bytes]) -> Mapping[int, Array]:
        """Logical arrays, by value id, of such bytes."""
        return {item.value: item.logical(data) for item, data in zip(self.outputs, raw, strict=True)}

    def untouched(self, raw: Sequence[Bytes], poison: Poison) -> dict[int, Mask]:
        """Output position -> which logical elements still hold the poison; only outputs that have such elements."""
        found: dict[int, Mask] = {}
        source = self._pattern(poison)
        for o in self._own:
            item = self.outputs[o]
            span = self.spans[self._output_span[o]]
            word = np.dtype(f"u{item.dtype.itemsize}")
            whole = raw[o].view(word) == self._region(source, span, item.nbytes).view(word)
            if whole.any():
                logical = item.layout.unpack(whole, item.shape)
                if logical.any():
                    found[o] = np.ascontiguousarray(logical)
        return found

    def changed_inputs(self) -> tuple[int, ...]:
        """Value ids of inputs whose bytes are no longer what was sent, those excepted that outputs share."""
        return tuple(
            item.value
            for i, (item, span) in enumerate(zip(self.inputs, self.spans, strict=False))
            if i not in self._overwritten
            and not np.array_equal(self._region(self.memory.bytes, span, item.nbytes), self._sent[i].view(np.uint8))
        )

    def damage(self, poison: Poison) -> tuple[str, ...]:
        """What changed around the buffers, and between the rows of outputs that are part of something larger."""
        found: list[str] = []
        source = self._pattern(poison)
        for span in self.spans:
            before = self.memory.bytes[span.page : span.offset] != source[span.page : span.offset]
            end = span.offset + span.nbytes
            after = self.memory.bytes[end : span.page + span.length] != source[end : span.page + span.length]
            if before.any():
                nearest = before.size - int(np.flatnonzero(before)[-1])
                found.append(f"{int(before.sum())} bytes before {span.name} changed, the nearest {nearest} before it")
            if after.any():
                nearest = int(np.flatnonzero(after)[0])
                found.append(f"{int(after.sum())} bytes behind {span.name} changed, the nearest {nearest} past its end")
        for o in self._own:
            gaps = self._gaps[o]
            if gaps is None:
                continue
            item = self.outputs[o]
            span = self.spans[self._output_span[o]]
            word = np.dtype(f"u{item.dtype.itemsize}")
            hit = (self._output(o).view(word) != self._region(source, span, item.nbytes).view(word)) & gaps
            if hit.any():
                found.append(
                    f"{int(hit.sum())} elements between the rows of output {o} changed, "
                    f"the first at element {int(np.flatnonzero(hit)[0])}"
                )
        return tuple(found)

    def late_writes(self, raw: Sequence[Bytes]) -> int:
        """Bytes of the outputs that differ from ``raw`` now."""
        return sum(int(np.count_nonzero(self._output(o) != raw[o])) for o in range(len(self.outputs)))

    def _output(self, position: int) -> Bytes:
        span = self.spans[self._output_span[position]]
        return self._region(self.memory.bytes, span, self.outputs[position].nbytes)

    def _pattern(self, poison: Poison) -> Bytes:
        if poison not in self._patterns:
            if len(self._patterns) >= _KEPT_POISONS:
                self._patterns.clear()
            self._patterns[poison] = pattern(poison, self.memory.size)
        return self._patterns[poison]

    @staticmethod
    def _region(data: Bytes, span: Span, size: int) -> Bytes:
        return data[span.offset : span.offset + size]
