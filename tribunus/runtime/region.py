"""A verified region made ready: kernels loaded, weights mapped, the sequencer at hand.

Imported by: runtime.session.  Imports: image, plan, devices.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Final, TypeGuard

import numpy as np

from tribunus.canon import Digest, digest_bytes
from tribunus.devices.cpu import ExecutableBytes, Walker, cpu_features
from tribunus.devices.replayer import BoundCode, PlacedReplayer, Replayer
from tribunus.errors import FeatureError, IntegrityError, KernelBoundsError, PlanError
from tribunus.plan import launch_list
from tribunus.plan.code import Code, CodeFormat, Recipe
from tribunus.plan.plan import HostCode, Plan, PlanKernel
from tribunus.records import dataclass

SEQUENCER_RECIPE: Final = Recipe((), ())


@dataclass(frozen=True, slots=True)
class RegionBytes:
    """What the image holds of a region: verified, and kept alive as long as this object."""

    plan: Plan
    kernels: memoryview
    weights: tuple[memoryview, ...]


class LoadedRegion:
    """Kernels bound once for all sessions of an image.

    Code that may lie anywhere is mapped once, as one private copy of the pack that is executable and never writable
    again; what runs is what was hashed there.
    """

    def __init__(
        self,
        held: RegionBytes,
        find_replayer: Callable[[CodeFormat], Replayer],
        available: frozenset[str] | None = None,
    ) -> None:
        """available: processor features, where they are known already.  Raises FeatureError, PlanError, NoExecError."""
        missing = set(held.plan.features) - (cpu_features() if available is None else available)
        if missing:
            raise FeatureError(f"this processor or its operating system lacks {', '.join(sorted(missing))}")
        self.plan = held.plan
        self._held = held
        self._find = find_replayer
        self._replayers: dict[str, Replayer] = {}
        self._bound: dict[int, BoundCode] = {}
        self._proved: set[tuple[int, Digest]] = set()
        self._memory = _CodeMemory(held.kernels)
        weakref.finalize(self, self._memory.close).atexit = False
        self.weight_addresses = tuple(_address_of(view) for view in held.weights)
        self.new_sequencer()

    def kernel(self, index: int) -> BoundCode:
        """Kernel ``index`` of the plan, loaded on first use; keep it as long as its launches.

        Raises IntegrityError, DriverError, NoExecError.
        """
        if index in self._bound:
            return self._bound[index]
        entry = self.plan.kernels[index]
        replayer = self._replayer(entry.format)
        if _is_placed(replayer):
            # A new one for each session: it owns the tables of its launches, and they end with the session.
            return self._place(replayer, entry, entry.recipe)
        self._bound[index] = replayer.bind(self._code(entry), entry.recipe)
        return self._bound[index]

    def new_sequencer(self) -> BoundCode:
        """The sequencer, for one session to keep.  Raises PlanError, IntegrityError, DriverError, NoExecError."""
        for entry in self.plan.host:
            if entry.role == launch_list.ROLE:
                replayer = self._replayer(entry.format)
                if not _is_placed(replayer):
                    raise PlanError(f"the {entry.role} has the format {entry.format}, which cannot call code")
                return self._place(replayer, entry, SEQUENCER_RECIPE)
        raise PlanError(f"the plan has no {launch_list.ROLE}")

    def load_all(self) -> None:
        """Load every kernel now: after this, opening a session loads no code."""
        for index in range(len(self.plan.kernels)):
            self.kernel(index)

    def control_word(self) -> int:
        """The floating point control word of the calling thread."""
        return self._memory.control_word()

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
        for bound in self._bound.values():
            bound.close()
        self._bound.clear()
        self._proved.clear()
        self._memory.close()

    def _place(self, replayer: PlacedReplayer, entry: PlanKernel | HostCode, recipe: Recipe) -> BoundCode:
        if (entry.offset, entry.digest) not in self._proved:
            _check_code(self._memory.view, entry)
            self._proved.add((entry.offset, entry.digest))
        return replayer.bind_placed(self._memory.address + entry.offset, entry.size, entry.facts, recipe)

    def _code(self, entry: PlanKernel | HostCode) -> Code:
        _check_code(self._held.kernels, entry)
        data = bytes(self._held.kernels[entry.offset : entry.offset + entry.size])
        return Code(entry.format, data, entry.facts)

    def _replayer(self, format_: CodeFormat) -> Replayer:
        if format_ not in self._replayers:
            self._replayers[format_] = self._find(format_)
        return self._replayers[format_]


class _CodeMemory:
    """The pack as executable memory, mapped when it is first wanted."""

    def __init__(self, pack: memoryview) -> None:
        self._pack = pack
        self._mapped: ExecutableBytes | None = None
        self._walker: Walker | None = None

    @property
    def address(self) -> int:
        """Where the pack begins."""
        return self._map().address

    @property
    def view(self) -> memoryview:
        """The mapped bytes."""
        return self._map().view

    def control_word(self) -> int:
        """The floating point control word of the calling thread."""
        if self._walker is None:
            self._walker = Walker()
        return self._walker.control_word()

    def close(self) -> None:
        """Unmap."""
        if self._mapped is not None:
            self._mapped.close()

    def _map(self) -> ExecutableBytes:
        if self._mapped is None:
            self._mapped = ExecutableBytes(self._pack)
        return self._mapped


def _check_code(pack: memoryview, entry: PlanKernel | HostCode) -> None:
    if entry.offset + entry.size > len(pack):
        raise KernelBoundsError(f"code at {entry.offset} of {entry.size} bytes lies outside the pack")
    found = digest_bytes(pack[entry.offset : entry.offset + entry.size])
    if found != entry.digest:
        raise IntegrityError(f"code at {entry.offset} is {found[:12]}, the plan says {entry.digest[:12]}")


def _is_placed(replayer: object) -> TypeGuard[PlacedReplayer]:
    return callable(getattr(replayer, "bind_placed", None))


def _address_of(view: memoryview) -> int:
    if len(view) == 0:
        return 0
    return int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])


def sequencer_words(
    sequencer: BoundCode, lists: Sequence[int], counts: Sequence[int], sync: int, mode: int, parts: int
) -> tuple[tuple[int, int, int, int, int], ...]:
    """One call of the sequencer for each part: function, buffers, params, part, parts."""
    words = sequencer.launch([*lists, sync], [*counts, mode], parts)
    return tuple((w.function, w.a0, w.a1, w.a2, w.a3) for w in words)


CALL: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
