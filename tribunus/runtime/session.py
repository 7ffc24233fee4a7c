"""Open an image, bind it to dims, replay it.

Imported by: users (as ``tribunus.open``), cli, isolation (the program check).  Imports: image, plan, devices.  No
compiler, no onnx, no pytest.

    image = tribunus.open("model.cpu.tci")
    outputs = image.run({"x": array})                    # binds by shapes, keeps the session

    session = image.bind({"sequence": 57})               # zero copy
    session.inputs["x"][...] = array
    session.replay()
    session.outputs["y"]
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import weakref
from _thread import allocate_lock  # threading costs more to import than a small image to open
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tribunus.devices.cpu import is_ieee
from tribunus.devices.replayer import BoundCode
from tribunus.errors import DeviceError, InputError, PlanError, ProfileError, UsageError
from tribunus.image.plan_checker import check_region
from tribunus.image.policy import find_policy
from tribunus.image.read import ImageFile, open_image
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Symbol
from tribunus.phaseir.layouts import row_major
from tribunus.plan.code import SlotKind
from tribunus.plan.plan import Plan, Port, Profile, StateBinding
from tribunus.runtime.fitness import choose_region
from tribunus.runtime.region import LoadedRegion, RegionBytes
from tribunus.runtime.replayers import find_replayer
from tribunus.runtime.sequence import BARRIER, BoundSequence, Record, address_of, zeroed

if TYPE_CHECKING:
    import numpy.typing as npt

SESSIONS_KEPT: Final = 8
Array: TypeAlias = "npt.NDArray[np.generic]"


def open(path: str | Path, trust: str | Path | None = None) -> Image:
    """Open a compute image: verify signature, trust, digests and plan, and check that it fits this machine.

    trust: a policy file; None: ``TRIBUNUS_TRUST``, else the user's own.  The cyclic garbage collector rests meanwhile.
    Raises leaves of the error families 10 to 32, and EnvironmentFault.
    """
    # What opening makes stays: to search it for garbage while it grows costs a twentieth of the time, and finds none.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _open(path, trust)
    finally:
        if collecting:
            gc.enable()


def _open(path: str | Path, trust: str | Path | None) -> Image:
    source = open_image(path)
    try:
        policy = find_policy(None if trust is None else Path(trust), os.environ)
        if len(source.targets) == 1:
            source.start(source.targets[0])  # what runs here, if anything does: hashed while its plan is read
        chosen = choose_region(source)
        standing = source.verify_trust(policy, targets=[chosen.target])
        source.start(chosen.target)
        region = source.region(chosen.target)
        check_region(chosen.plan, region)
        weights = tuple(region.weights(i) for i in range(region.weights_count))
        loaded = LoadedRegion(RegionBytes(chosen.plan, region.kernels(), weights), find_replayer, chosen.available)
        loaded.load_all()
        source.check_unchanged()
        standing.record()
    except BaseException:
        source.close()
        raise
    return Image(loaded, source)


class Image:
    """An opened image.  ``close`` (or a ``with`` block) ends its sessions and unloads it."""

    def __init__(self, region: LoadedRegion, source: ImageFile | None = None) -> None:
        self._region = region
        self._source = source
        self._sessions: OrderedDict[tuple[str, tuple[int, ...]], Session] = OrderedDict()
        self._bound: weakref.WeakSet[Session] = weakref.WeakSet()
        self._running = allocate_lock()
        self._closed = False

    def __enter__(self) -> Image:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def plan(self) -> Plan:
        """The plan of the region that runs here."""
        return self._region.plan

    @property
    def image_id(self) -> str:
        """SHA-256 of image.json; empty for a region that was opened without a file."""
        return "" if self._source is None else self._source.image_id

    def bind(self, dims: Mapping[str, int] | None = None) -> Session:
        """A session for these dims, by the labels of the model's symbols.

        Dims that a profile has as numbers may be given too: they choose among profiles.  Without dims: the first
        profile, at its expected dims.  One thread at a time may use a session; sessions do not
        disturb each other.  Raises ProfileError, UsageError after ``close``.
        """
        profile, values = _select(self._region.plan, dims or {})
        return self._session(profile, values)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs for ``inputs``, copied.  The profile and its dims follow from the shapes; eight sessions are kept.

        May be called by several threads; they take turns.  Raises InputError naming the input and what was expected,
        ProfileError if no profile has these dims, UsageError after ``close``.
        """
        profile, values = match_inputs(self._region.plan, inputs)
        key = (profile.name, tuple(values[s.name] for s in profile.symbols))
        with self._running:
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = self._session(profile, values)
                if len(self._sessions) > SESSIONS_KEPT:
                    self._sessions.popitem(last=False)[1].close()
            self._sessions.move_to_end(key)
            for label, view in session.inputs.items():
                np.copyto(view, inputs[label])
            session.replay()
            return {label: view.copy() for label, view in session.outputs.items()}

    def close(self) -> None:
        """End the sessions and unload the kernels; no replay may be running."""
        if self._closed:
            return
        self._closed = True
        for session in list(self._bound):
            session.close()
        self._sessions.clear()
        self._region.close()
        if self._source is not None:
            self._source.close()

    def _session(self, profile: Profile, values: Mapping[str, int]) -> Session:
        if self._closed:
            raise UsageError("the image is closed", remedy="open it again")
        session = Session(self._region, profile, values)
        self._bound.add(session)
        return session


class Session:
    """A profile bound to dims: memory allocated, pointers written, nothing left to decide.

    inputs, outputs: views of the session's memory by label; write the former, ``replay``, read the latter.
    states: views of what is kept from one replay to the next; ``reset`` restores them.
    """

    def __init__(self, region: LoadedRegion, profile: Profile, values: Mapping[str, int]) -> None:
        if not is_ieee(region.control_word()):
            raise DeviceError(
                "this thread's floating point control word flushes subnormals or rounds differently",
                remedy="do not load libraries built with -ffast-math into this process",
            )
        self.profile = profile
        self.dims: Mapping[str, int] = MappingProxyType({s.label: values[s.name] for s in profile.symbols})
        self._memory = zeroed(profile.arena, _likely_used(profile, values))
        self._address = address_of(self._memory)
        self._region = region
        self.inputs = MappingProxyType({p.label: self._view(p, values) for p in profile.inputs})
        self.outputs = MappingProxyType({p.label: self._view(p, values) for p in profile.outputs})
        self.states = MappingProxyType({s.label: self._state_view(s, values) for s in profile.states})
        self._initial = self._restore_points()
        self.reset()
        parts = max((launch.parts for launch in profile.launches), default=1)
        self._kernels: list[BoundCode] = []
        self._sequence = BoundSequence(region, self._records(values, parts), parts)
        self._function, self._arguments = self._sequence.function, self._sequence.arguments

    @property
    def phases(self) -> Mapping[str, Session]:
        """Sessions by phase name; a program of one phase is its own."""
        return MappingProxyType({self.profile.name: self})

    def replay(self) -> None:
        """Compute the outputs from the inputs: one call, no allocation, no decision.  Raises UsageError once closed."""
        self._function(*self._arguments)

    def reset(self) -> None:
        """Restore every state to what it was when the session began."""
        for offset, initial in self._initial:
            ctypes.memmove(self._address + offset, initial, len(initial))

    def close(self) -> None:
        """Stop helper threads.  The memory lives as long as views of it do."""
        self._function = _refuse_replay
        self._sequence.close()

    def _view(self, port: Port, values: Mapping[str, int]) -> Array:
        if not port.layout.is_row_major:
            raise PlanError(f"port {port.label[:60]!r} is not row-major")
        shape = dims.evaluate_shape(port.type.shape, values)
        buffer = self.profile.buffers[port.buffer]
        dtype = port.type.dtype.numpy
        if math.prod(shape) * dtype.itemsize > buffer.size:
            raise PlanError(f"port {port.label[:60]!r} is larger than its buffer")
        return np.ndarray(shape, dtype, self._memory, buffer.offset)

    def _state_view(self, state: StateBinding, values: Mapping[str, int]) -> Array:
        port = Port(state.label, state.buffer, state.type, row_major(state.type.rank))
        return self._view(port, values)

    def _restore_points(self) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for state in self.profile.states:
            buffer = self.profile.buffers[state.buffer]
            data = bytes(buffer.size) if state.initial is None else bytes(self._region.tensor_bytes(state.initial))
            found.append((buffer.offset, data))
        return found

    def _records(self, values: Mapping[str, int], parts: int) -> list[list[Record]]:
        """The launch list of each part."""
        lists: list[list[Record]] = [[] for _ in range(parts)]
        kernels: dict[int, BoundCode] = {}
        shared = False  # whether anything since the last barrier ran on another part than the first
        for launch in self.profile.launches:
            kernel = self._region.plan.kernels[launch.kernel]
            own = dict(zip(kernel.symbols, (dims.evaluate(d, values) for d in launch.bind), strict=True))
            params = [dims.evaluate(p, own) for p in kernel.recipe.params]
            addresses = [
                self._region.tensor_address(slot.index)
                if slot.kind is SlotKind.TENSOR
                else self._address + self.profile.buffers[slot.index].offset
                for slot in launch.args
            ]
            if launch.kernel not in kernels:
                kernels[launch.kernel] = self._region.kernel(launch.kernel)
            words = kernels[launch.kernel].launch(addresses, params, launch.parts)
            if lists[0] and (shared or launch.parts > 1):
                for entries in lists:
                    entries.append(BARRIER)
                shared = False
            shared = shared or launch.parts > 1
            for part, word in enumerate(words):
                lists[part].append((word.function, word.a0, word.a1, word.a2, word.a3))
        self._kernels.extend(kernels.values())
        return lists


def _likely_used(profile: Profile, values: Mapping[str, int]) -> list[tuple[int, int]]:
    """About the bytes of the arena that these dims touch: each buffer has room for the largest dims."""
    share = math.prod(values[symbol.name] / symbol.hi for symbol in profile.symbols if symbol.hi)
    return [(b.offset, b.offset + math.ceil(b.size * share)) for b in profile.buffers]


def _refuse_replay(*_arguments: object) -> None:
    raise UsageError("the session is closed", remedy="bind a new one")


def match_inputs(plan: Plan, inputs: Mapping[str, Array]) -> tuple[Profile, dict[str, int]]:
    """The profile, and the values of its symbols, that fit the shapes of ``inputs``.

    Raises InputError, or ProfileError naming the dims that no profile has.
    """
    if not plan.profiles:
        raise PlanError("the plan has no profile")
    _check_names(plan.profiles[0], inputs)
    reasons: list[str] = []
    for profile in plan.profiles:
        values: dict[str, int] = {}
        reason = _match_profile(profile, inputs, values)
        if reason is None:
            return profile, values
        reasons.append(f"{profile.name or 'profile'}: {reason}")
    raise ProfileError("; ".join(reasons[:4]))


def _check_names(profile: Profile, inputs: Mapping[str, Array]) -> None:
    expected = {p.label: p for p in profile.inputs}
    if missing := sorted(expected.keys() - inputs.keys()):
        raise InputError(f"input {missing[0]!r} is missing", remedy=f"the image takes {', '.join(map(repr, expected))}")
    if unknown := sorted(inputs.keys() - expected.keys()):
        raise InputError(f"unknown input {unknown[0]!r}", remedy=f"the image takes {', '.join(map(repr, expected))}")
    for label, port in expected.items():
        found = inputs[label]
        if not isinstance(found, np.ndarray):
            raise InputError(f"input {label!r} is a {type(found).__name__}, an array was expected")
        if found.dtype != port.type.dtype.numpy:
            raise InputError(f"input {label!r} is {found.dtype}, {port.type.dtype.numpy} was expected")
        if found.ndim != port.type.rank:
            raise InputError(f"input {label!r} has rank {found.ndim}, {port.type.rank} was expected")


def _match_profile(profile: Profile, inputs: Mapping[str, Array], values: dict[str, int]) -> str | None:
    """Fill ``values``; a sentence where the shapes do not fit."""
    pending: list[tuple[str, int, Dim, int]] = []
    for port in profile.inputs:
        for axis, (dim, extent) in enumerate(zip(port.type.shape, inputs[port.label].shape, strict=True)):
            if isinstance(dim, dims.Sym) and dim.name not in values:
                values[dim.name] = extent
            pending.append((port.label, axis, dim, extent))
    for symbol in profile.symbols:
        if symbol.name not in values:
            values[symbol.name] = symbol.opt
        if (reason := _outside(symbol, values[symbol.name])) is not None:
            return reason
    for label, axis, dim, extent in pending:
        if (wanted := dims.evaluate(dim, values)) != extent:
            return f"input {label!r} axis {axis} is {extent}, {wanted} was expected"
    return None


def _outside(symbol: Symbol, value: int) -> str | None:
    if not symbol.lo <= value <= symbol.hi or (value - symbol.lo) % symbol.step:
        step = f" in steps of {symbol.step}" if symbol.step > 1 else ""
        return f"{symbol.label} is {value}, certified are {symbol.lo} to {symbol.hi}{step}"
    return None


def _fixed(profile: Profile) -> dict[str, int]:
    """Dims that a profile has as numbers, by label: its name lists them."""
    pairs = (part.rpartition("=") for part in profile.name.split(" "))
    return {label: int(text) for label, _, text in pairs if label and text.isascii() and text.isdigit()}


def _select(plan: Plan, wanted: Mapping[str, int]) -> tuple[Profile, dict[str, int]]:
    reasons: list[str] = []
    for profile in plan.profiles:
        labels = {s.label: s for s in profile.symbols}
        fixed = _fixed(profile)
        if unknown := sorted(wanted.keys() - labels.keys() - fixed.keys()):
            reasons.append(f"{profile.name or 'profile'} has no dim {unknown[0]!r}")
            continue
        if other := next((label for label in sorted(wanted.keys() & fixed) if wanted[label] != fixed[label]), None):
            reasons.append(f"{other} is {fixed[other]} in {profile.name}, not {wanted[other]}")
            continue
        values = {s.name: wanted.get(s.label, s.opt) for s in profile.symbols}
        outside = [r for s in profile.symbols if (r := _outside(s, values[s.name])) is not None]
        if not outside:
            return profile, values
        reasons.append(outside[0])
    raise ProfileError("; ".join(reasons[:4]) or "the plan has no profile")
