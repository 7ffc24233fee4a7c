"""A verified region made ready: kernels loaded, weights mapped, the sequencer at hand.

Imported by: runtime.session.  Imports: image, plan, devices.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tribunus.devices.cpu import require_features
from tribunus.devices.replayer import BoundCode, Replayer
from tribunus.errors import IntegrityError, KernelBoundsError, PlanError
from tribunus.plan import launch_list
from tribunus.plan.code import Code, CodeFormat, Recipe
from tribunus.plan.plan import Plan
from tribunus.records import dataclass

SEQUENCER_RECIPE: Final = Recipe((), ())


@dataclass(frozen=True, slots=True)
class RegionBytes:
    """What the image holds of a region: verified, and kept alive as long as this object."""

    plan: Plan
    kernels: memoryview
    weights: tuple[memoryview, ...]


class LoadedRegion:
    """Kernels bound once for all sessions of an image."""

    def __init__(self, held: RegionBytes, find_replayer: Callable[[CodeFormat], Replayer]) -> None:
        require_features(held.plan.features)
        self.plan = held.plan
        self._held = held
        self._find = find_replayer
        self._replayers: dict[str, Replayer] = {}
        self._bound: dict[int, BoundCode] = {}
        self.weight_addresses = tuple(_address_of(view) for view in held.weights)
        self.sequencer = self._host(launch_list.ROLE)

    def kernel(self, index: int) -> BoundCode:
        """Kernel ``index`` of the plan, loaded on first use.  Raises IntegrityError, DriverError, NoExecError."""
        if index not in self._bound:
            entry = self.plan.kernels[index]
            code = self._code(entry.format, entry.offset, entry.size, entry.facts, entry.digest)
            self._bound[index] = self._replayer(entry.format).bind(code, entry.recipe)
        return self._bound[index]

    def load_all(self) -> None:
        """Load every kernel now: after this, opening a session loads no code."""
        for index in range(len(self.plan.kernels)):
            self.kernel(index)

    def tensor_address(self, index: int) -> int:
        """Address of a weight tensor."""
        tensor = self.plan.tensors[index]
        return self.weight_addresses[tensor.blob] + tensor.offset

    def tensor_bytes(self, index: int) -> memoryview:
        """Bytes of a weight tensor."""
        tensor = self.plan.tensors[index]
        return self._held.weights[tensor.blob][tensor.offset : tensor.offset + tensor.size]

    def close(self) -> None:
        """Unload the kernels; no session may be used afterwards."""
        for bound in (*self._bound.values(), self.sequencer):
            bound.close()
        self._bound.clear()

    def _host(self, role: str) -> BoundCode:
        for entry in self.plan.host:
            if entry.role == role:
                code = self._code(entry.format, entry.offset, entry.size, entry.facts, entry.digest)
                return self._replayer(entry.format).bind(code, SEQUENCER_RECIPE)
        raise PlanError(f"the plan has no {role}")

    def _code(
        self, format_: CodeFormat, offset: int, size: int, facts: tuple[tuple[str, int | str], ...], digest: str
    ) -> Code:
        if offset + size > len(self._held.kernels):
            raise KernelBoundsError(f"code at {offset} of {size} bytes lies outside the pack")
        code = Code(format_, bytes(self._held.kernels[offset : offset + size]), facts)
        if code.digest != digest:
            raise IntegrityError(f"code at {offset} is {code.digest[:12]}, the plan says {digest[:12]}")
        return code

    def _replayer(self, format_: CodeFormat) -> Replayer:
        if format_ not in self._replayers:
            self._replayers[format_] = self._find(format_)
        return self._replayers[format_]


def _address_of(view: memoryview) -> int:
    if len(view) == 0:
        return 0
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


def sequencer_words(
    sequencer: BoundCode, lists: Sequence[int], counts: Sequence[int], sync: int, mode: int, parts: int
) -> tuple[tuple[int, int, int, int, int], ...]:
    """One call of the sequencer for each part: function, buffers, params, part, parts."""
    words = sequencer.launch([*lists, sync], [*counts, mode], parts)
    return tuple((w.function, w.a0, w.a1, w.a2, w.a3) for w in words)


CALL: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
