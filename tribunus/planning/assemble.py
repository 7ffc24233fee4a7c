"""From schedules and winners to one region: plan, kernel pack, weight shards.

Imported by: certification.  Imports: candidates, planning, plan, phaseir.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.candidates.backend import Backend, packed_weights
from tribunus.candidates.model import Artifact
from tribunus.canon import Digest, digest_bytes
from tribunus.errors import InternalError
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, DimScope
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array, Constants, Program
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Code, Slot, SlotKind
from tribunus.plan.plan import (
    KERNEL_ALIGN,
    TENSOR_ALIGN,
    Buffer,
    BufferRole,
    ContentKey,
    HostCode,
    Launch,
    Plan,
    PlanKernel,
    PlanTensor,
    Port,
    Profile,
    StateBinding,
)
from tribunus.planning.memory import Block, MemoryPlan, plan_memory
from tribunus.planning.schedule import Demand, Schedule, Step
from tribunus.targets.target import Target

SHARD_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Winner:
    """The artifact that computes a demand, whose backend packs its weights, and the content part of its key."""

    artifact: Artifact
    backend: Backend
    key: ContentKey


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    """One profile to assemble.  representatives: dims at which it was certified, in symbol order."""

    name: str
    program: Program
    schedule: Schedule
    representatives: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AssembledRegion:
    """Everything of a region but its goldens and its evidence.

    memory: the memory plan of each profile.  launch_demands: demand of each launch of each profile.
    """

    plan: Plan
    kernels: bytes
    shards: tuple[bytes, ...]
    memory: tuple[MemoryPlan, ...]
    launch_demands: tuple[tuple[Demand, ...], ...]


def assemble(
    profiles: Sequence[ProfileDraft],
    winners: Mapping[Demand, Winner],
    target: Target,
    constants: Constants,
    host: Sequence[tuple[str, Code]],
) -> AssembledRegion:
    """The region that replays ``profiles`` with ``winners``.  Raises InternalError if a demand has no winner."""
    pack = _Pack()
    used = dict.fromkeys(demand for draft in profiles for demand in draft.schedule.demands())
    indices: dict[Demand, int] = {}
    kernels: list[PlanKernel] = []
    for demand in used:
        if demand not in winners:
            raise InternalError(f"{demand.signature.name} has no winner")
        winner = winners[demand]
        indices[demand] = len(kernels)
        kernels.append(_kernel(winner, pack))
    served = tuple(
        HostCode(role, code.format, pack.add(code.data), len(code.data), code.digest, code.facts) for role, code in host
    )
    shards = _Shards()
    assembled = [_profile(draft, winners, indices, constants, shards) for draft in profiles]
    plan = Plan(
        target=target.name,
        arch=target.arch,
        features=tuple(sorted(target.features)),
        threads=target.threads,
        kernels=tuple(kernels),
        host=served,
        tensors=tuple(shards.tensors),
        profiles=tuple(profile for profile, _ in assembled),
    )
    return AssembledRegion(
        plan,
        bytes(pack.data),
        tuple(bytes(shard) for shard in shards.data),
        tuple(memory for _, memory in assembled),
        tuple(tuple(step.demand for step in draft.schedule.steps) for draft in profiles),
    )


class _Pack:
    """The kernel pack: code objects at multiples of KERNEL_ALIGN, gaps zero."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, code: bytes) -> int:
        self.data.extend(bytes(-len(self.data) % KERNEL_ALIGN))
        offset = len(self.data)
        self.data.extend(code)
        return offset


class _Shards:
    """Weight bytes in launch order, split at tensor borders; equal bytes lie there once.

    Kernels for other dims mostly want the very bytes that another has already, and whoever opens the image hashes all.
    """

    def __init__(self) -> None:
        self.data: list[bytearray] = []
        self.tensors: list[PlanTensor] = []
        self._known: dict[tuple[int, int, tuple[Digest, ...]], int] = {}
        self._places: dict[Digest, tuple[int, int]] = {}

    def find(self, key: tuple[int, int, tuple[Digest, ...]]) -> int | None:
        return self._known.get(key)

    def add(self, key: tuple[int, int, tuple[Digest, ...]], packed: bytes) -> int:
        digest = digest_bytes(packed)
        if digest not in self._places:
            self._places[digest] = self._append(packed)
        (blob, offset), (kernel, operand, sources) = self._places[digest], key
        self.tensors.append(PlanTensor(blob, offset, len(packed), kernel, operand, sources))
        self._known[key] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def _append(self, packed: bytes) -> tuple[int, int]:
        """Shard and offset of these bytes, put behind all others."""
        if not self.data or len(self.data[-1]) + len(packed) + TENSOR_ALIGN > SHARD_BYTES:
            self.data.append(bytearray())
        shard = self.data[-1]
        shard.extend(bytes(-len(shard) % TENSOR_ALIGN))
        offset = len(shard)
        shard.extend(packed)
        return len(self.data) - 1, offset


def _kernel(winner: Winner, pack: _Pack) -> PlanKernel:
    artifact = winner.artifact
    return PlanKernel(
        id=f"{artifact.signature.name}/{artifact.candidate.name}",
        signature=artifact.signature.digest,
        candidate=artifact.candidate.digest,
        format=artifact.code.format,
        offset=pack.add(artifact.code.data),
        size=len(artifact.code.data),
        digest=artifact.code.digest,
        facts=artifact.code.facts,
        symbols=artifact.signature.symbols,
        recipe=artifact.recipe,
        key=winner.key,
    )


def _profile(
    draft: ProfileDraft,
    winners: Mapping[Demand, Winner],
    indices: Mapping[Demand, int],
    constants: Constants,
    shards: _Shards,
) -> tuple[Profile, MemoryPlan]:
    schedule, scope = draft.schedule, draft.program.scope
    end = len(schedule.steps)
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for value in schedule.inputs:
        first[schedule.root(value)], last[schedule.root(value)] = -1, end
    for position, step in enumerate(schedule.steps):
        for value in step.outputs:
            first.setdefault(schedule.root(value), position)
            last.setdefault(schedule.root(value), position)
        for value in step.inputs:
            last[schedule.root(value)] = max(last.get(schedule.root(value), position), position)
    output_roots = {schedule.root(value) for value in schedule.outputs}
    for root in output_roots:
        last[root] = end
    roots = sorted(first, key=lambda root: (first[root], root))
    position_of = {root: i for i, root in enumerate(roots)}
    blocks = [
        Block(_upper_bytes(scope, schedule.values[r].type, schedule.values[r].layout), first[r], last[r]) for r in roots
    ]
    workspaces = {
        position: winners[step.demand].artifact.recipe.workspace
        for position, step in enumerate(schedule.steps)
        if winners[step.demand].artifact.recipe.has_workspace
    }
    workspace_slot: dict[int, int] = {}
    for position, size in workspaces.items():
        step = schedule.steps[position]
        workspace_slot[position] = len(blocks)
        blocks.append(Block(scope.bounds(_bound(size, step))[1], position, position))
    memory = plan_memory(blocks)
    input_roots = {schedule.root(value) for value in schedule.inputs}
    kept = {schedule.inputs[draft.program.only_phase.inputs.index(s.read)]: s.label for s in draft.program.states}
    state_roots = {schedule.root(value) for value in kept}
    buffers = [
        Buffer(memory.offsets[i], blocks[i].size, _role(root, input_roots, output_roots, state_roots))
        for root, i in position_of.items()
    ]
    buffers += [Buffer(memory.offsets[i], blocks[i].size, BufferRole.TEMP) for i in workspace_slot.values()]
    launches: list[Launch] = []
    writer: dict[int, int] = {}
    for position, step in enumerate(schedule.steps):
        artifact = winners[step.demand].artifact
        args = [Slot(SlotKind.BUFFER, position_of[schedule.root(v)]) for v in (*step.inputs, *step.outputs)]
        args += [
            Slot(SlotKind.TENSOR, t)
            for t in _tensors(step, winners[step.demand], indices[step.demand], draft.program, constants, shards)
        ]
        if position in workspace_slot:
            args.append(Slot(SlotKind.BUFFER, workspace_slot[position]))
        waits = sorted({writer[schedule.root(v)] for v in step.inputs if schedule.root(v) in writer})
        launches.append(Launch(indices[step.demand], step.bind, tuple(args), artifact.recipe.split.parts, tuple(waits)))
        writer.update((schedule.root(v), position) for v in step.outputs)
    profile = Profile(
        name=draft.name,
        symbols=draft.program.symbols,
        arena=memory.arena,
        buffers=tuple(buffers),
        inputs=tuple(_port(draft.program, schedule, v, position_of) for v in schedule.inputs if v not in kept),
        outputs=tuple(_port(draft.program, schedule, v, position_of) for v in schedule.outputs),
        states=tuple(
            StateBinding(label, position_of[schedule.root(v)], schedule.values[v].type, None)
            for v, label in kept.items()
        ),
        launches=tuple(launches),
        representatives=draft.representatives,
        goldens=(),
    )
    return profile, memory


def _tensors(
    step: Step, winner: Winner, kernel: int, program: Program, constants: Constants, shards: _Shards
) -> list[int]:
    """Tensor indices of a step's weight operands; packed on first sight."""
    signature = winner.artifact.signature
    program_value = dict(zip(signature.weights, step.weights, strict=True))
    keys: list[tuple[int, int, tuple[Digest, ...]]] = []
    for operand, weight in enumerate(winner.artifact.recipe.weights):
        sources: list[Digest] = []
        for value in weight.sources:
            digest = (
                program.values[program_value[value]].constant
                if value in program_value
                else signature.program.values[value].constant
            )
            if digest is None:
                raise InternalError(f"weight {value} of {signature.name} is no constant of the program")
            sources.append(digest)
        keys.append((kernel, operand, tuple(sources)))
    found = [shards.find(key) for key in keys]
    if any(index is None for index in found):
        arrays: dict[int, Array] = {s: constants.of(program, p) for s, p in program_value.items()}
        packed = packed_weights(winner.backend, winner.artifact, arrays)
        for position, (key, data) in enumerate(zip(keys, packed, strict=True)):
            expected = winner.artifact.recipe.weights[position].nbytes
            if len(data) != expected:
                raise InternalError(f"{signature.name}: weight {position} packs to {len(data)} bytes, not {expected}")
            if found[position] is None:
                found[position] = shards.add(key, data)
    return [index for index in found if index is not None]


def _bound(dim: Dim, step: Step) -> Dim:
    """A dim over the signature's symbols as one over the program's."""
    return dims.substitute(dim, dict(zip(step.demand.signature.symbols, step.bind, strict=True)))


def _upper_bytes(scope: DimScope, type_: TensorType, layout: Layout) -> int:
    return scope.bounds(layout.elements(type_.shape))[1] * type_.dtype.itemsize


def _role(root: int, inputs: set[int], outputs: set[int], states: set[int]) -> BufferRole:
    if root in states:
        return BufferRole.STATE
    if root in inputs:
        return BufferRole.INPUT
    return BufferRole.OUTPUT if root in outputs else BufferRole.TEMP


def _port(program: Program, schedule: Schedule, value: int, position_of: Mapping[int, int]) -> Port:
    held = schedule.values[value]
    return Port(program.values[held.origin].label, position_of[schedule.root(value)], held.type, held.layout)
