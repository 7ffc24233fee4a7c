"""The independent plan checker: proves from an image alone that replaying its plan is sound.

Imported by: runtime, certification, cli (verify).  Imports: errors, plan, phaseir.dims.  Shares no code with the
planners.

Proved: every kernel and tensor lies in its blob, is used, and has its digest; every launch fits its kernel's recipe;
every buffer lies in the arena and is large enough for the whole range of the dims; nothing is read before it was
written; buffers that are live together do not overlap; every kernel has exactly one admission with six passes, and its
key is the kernel's.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Protocol

from tribunus.errors import (
    AliasError,
    ArenaBoundsError,
    DimError,
    IntegrityError,
    KernelBoundsError,
    OrderError,
    OverlapError,
    PlanError,
    ReadBeforeWriteError,
    ReceiptExtraError,
    ReceiptFailError,
    ReceiptMissingError,
    TensorBoundsError,
    UnusedError,
)
from tribunus.image.admissions import CHECK_NAMES, AdmissionLine, decode_lines
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, DimScope, Symbol
from tribunus.plan.code import Operand, SlotKind, recipe_digest
from tribunus.plan.document import content_key_to_json
from tribunus.plan.plan import (
    KERNEL_ALIGN,
    TENSOR_ALIGN,
    Buffer,
    BufferRole,
    Launch,
    Plan,
    PlanKernel,
    Profile,
)
from tribunus.records import dataclass
from tribunus.sha256 import sha256


class CheckedRegion(Protocol):
    """What the checker needs of an opened region."""

    def kernels(self) -> memoryview:
        """The kernel pack."""
        ...

    def weights(self, shard: int) -> memoryview:
        """A weight shard."""
        ...

    def admissions(self) -> bytes:
        """Admission lines."""
        ...

    @property
    def weights_count(self) -> int:
        """Number of shards."""
        ...


def check_region(plan: Plan, region: CheckedRegion) -> None:
    """Prove the plan of an opened region.  Raises leaves of PlanError and ReceiptError, IntegrityError."""
    sizes = [len(region.weights(i)) for i in range(region.weights_count)]
    check_plan(plan, region.kernels(), sizes)
    check_admissions(plan, decode_lines(region.admissions()))


def check_plan(plan: Plan, pack: memoryview, shard_sizes: Sequence[int]) -> None:
    """Prove the plan against its blobs.  Raises leaves of PlanError, IntegrityError."""
    _check_pack(plan, pack)
    _check_tensors(plan, shard_sizes)
    used_kernels: set[int] = set()
    used_tensors: set[int] = set()
    names: set[str] = set()
    for profile in plan.profiles:
        if profile.name in names:
            raise PlanError(f"two profiles are named {profile.name[:60]!r}")
        names.add(profile.name)
        _check_profile(plan, profile, used_kernels, used_tensors)
    _check_disjoint(plan.profiles)
    if unused := set(range(len(plan.kernels))) - used_kernels:
        raise UnusedError(f"kernel {plan.kernels[min(unused)].id} is launched by nothing")
    if unused := set(range(len(plan.tensors))) - used_tensors:
        raise UnusedError(f"tensor {min(unused)} is read by nothing")


def check_admissions(plan: Plan, lines: Sequence[AdmissionLine]) -> None:
    """One admission a kernel, six passes each, keys equal.  Raises leaves of ReceiptError."""
    by_kernel = {line.kernel: line for line in lines}
    known = {kernel.id for kernel in plan.kernels}
    if len(known) != len(plan.kernels):
        raise PlanError("two kernels share an id")
    if extra := sorted(by_kernel.keys() - known) or (["one"] if len(by_kernel) != len(lines) else []):
        raise ReceiptExtraError(f"an admission for {extra[0]}, which the plan does not have, or has admitted already")
    for kernel in plan.kernels:
        line = by_kernel.get(kernel.id)
        if line is None:
            raise ReceiptMissingError(f"kernel {kernel.id} has no admission")
        if set(line.checks) != set(CHECK_NAMES):
            raise ReceiptMissingError(f"kernel {kernel.id} was not through all six checks")
        for name, (verdict, _) in line.checks.items():
            if verdict != "passed":
                raise ReceiptFailError(f"kernel {kernel.id}: the {name} check says {verdict}")
        _check_key(plan, kernel, line)


def _check_key(plan: Plan, kernel: PlanKernel, line: AdmissionLine) -> None:
    expected = {name: str(value) for name, value in content_key_to_json(kernel.key).items()}
    expected |= {
        "signature": kernel.signature,
        "candidate": kernel.candidate,
        "code": kernel.digest,
        "recipe": recipe_digest(kernel.recipe, kernel.symbols),
    }
    if not expected.items() <= line.key.items():
        name = next(name for name, value in expected.items() if line.key.get(name) != value)
        raise ReceiptFailError(f"kernel {kernel.id}: its admission was made for another {name}")
    if kernel.key.arch != plan.arch:
        raise ReceiptFailError(f"kernel {kernel.id} was admitted for {kernel.key.arch}, the plan is for {plan.arch}")


def _check_pack(plan: Plan, pack: memoryview) -> None:
    spans: list[tuple[int, int, str, str]] = []
    for kernel in plan.kernels:
        spans.append((kernel.offset, kernel.size, kernel.digest, kernel.id))
    for entry in plan.host:
        spans.append((entry.offset, entry.size, entry.digest, entry.role))
    covered = 0
    for offset, size, digest, name in sorted(spans):
        if offset % KERNEL_ALIGN or offset + size > len(pack):
            raise KernelBoundsError(f"{name} at {offset} of {size} bytes is misaligned or outside the pack")
        if offset < covered:
            raise KernelBoundsError(f"{name} overlaps the code before it")
        if bytes(pack[covered:offset]) != bytes(offset - covered):
            raise KernelBoundsError(f"bytes before {name} belong to nothing and are not zero")
        if sha256(pack[offset : offset + size]).hex() != digest:
            raise IntegrityError(f"{name}: its bytes in the pack have another digest than the plan says")
        covered = offset + size
    if bytes(pack[covered:]) != bytes(len(pack) - covered):
        raise KernelBoundsError("bytes behind the last kernel belong to nothing and are not zero")


def _check_tensors(plan: Plan, shard_sizes: Sequence[int]) -> None:
    for number, tensor in enumerate(plan.tensors):
        if tensor.blob >= len(shard_sizes):
            raise TensorBoundsError(f"tensor {number} lies in shard {tensor.blob}, there are {len(shard_sizes)}")
        if tensor.offset % TENSOR_ALIGN or tensor.offset + tensor.size > shard_sizes[tensor.blob]:
            raise TensorBoundsError(f"tensor {number} is misaligned or outside its shard")
        if tensor.kernel >= len(plan.kernels):
            raise TensorBoundsError(f"tensor {number} is packed for kernel {tensor.kernel}, which does not exist")
        weights = plan.kernels[tensor.kernel].recipe.weights
        if tensor.operand >= len(weights) or weights[tensor.operand].nbytes != tensor.size:
            raise TensorBoundsError(f"tensor {number} has not the size that its kernel's recipe states")
    if set(range(len(shard_sizes))) - {tensor.blob for tensor in plan.tensors}:
        raise UnusedError("a weight shard holds no tensor")


@dataclass(frozen=True, slots=True)
class _Access:
    """What a launch does to buffers: positions in ``profile.buffers``."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scratch: tuple[int, ...]
    in_place: frozenset[tuple[int, int]]


def _check_profile(plan: Plan, profile: Profile, kernels: set[int], tensors: set[int]) -> None:
    scope = DimScope(profile.symbols)
    where = f"profile {profile.name[:40]!r}"
    for number, buffer in enumerate(profile.buffers):
        if buffer.offset % TENSOR_ALIGN or buffer.offset + buffer.size > profile.arena:
            raise ArenaBoundsError(f"{where}: buffer {number} is misaligned or outside the arena")
        if buffer.view_of is not None:
            _check_view(profile.buffers, number, where)
    accesses: list[_Access] = []
    needs = _Needs(scope)
    for number, launch in enumerate(profile.launches):
        at = f"{where}, launch {number}"
        if launch.kernel >= len(plan.kernels):
            raise PlanError(f"{at} names kernel {launch.kernel}, which does not exist")
        if any(not 0 <= earlier < number for earlier in launch.wait):
            raise OrderError(f"{at} waits for a launch that is not before it")
        if not 1 <= launch.parts <= plan.threads:
            raise PlanError(f"{at} is cut into {launch.parts} parts for {plan.threads} threads")
        kernels.add(launch.kernel)
        accesses.append(_check_launch(plan, profile, launch, at, tensors, needs))
    _check_ports(profile, scope, where)
    _check_flow(profile, accesses, where)
    if (need := _waits_missing(profile, accesses)) is not None:
        raise OrderError(f"{where}, launch {need[0]} reads what launch {need[1]} writes and does not wait for it")


def _check_view(buffers: Sequence[Buffer], number: int, where: str) -> None:
    view = buffers[number]
    if view.view_of is None or view.view_of >= len(buffers) or view.view_of == number:
        raise AliasError(f"{where}: buffer {number} is a view of nothing")
    parent = buffers[view.view_of]
    if parent.view_of is not None:
        raise AliasError(f"{where}: buffer {number} is a view of a view")
    if view.offset < parent.offset or view.offset + view.size > parent.offset + parent.size:
        raise AliasError(f"{where}: buffer {number} is not inside the buffer it is a view of")


class _Needs:
    """Bytes that launches of one profile may touch, for any value of its symbols.

    First by intervals, operand by operand, which is cheap and never too small; where that exceeds a buffer, or where a
    divisor might be 0 for all that intervals say, by the expressions themselves, in which what depends on one symbol
    may cancel.  Remembered by the identity of operands and bindings, which the plan keeps alive: reading a plan gives
    equal ones as one object.  Raises DimError where neither proves that a divisor is positive.
    """

    __slots__ = ("_boxes", "_bytes", "_scope")

    def __init__(self, scope: DimScope) -> None:
        self._scope = scope
        self._boxes: dict[tuple[int, tuple[str, ...]], DimScope | None] = {}
        self._bytes: dict[tuple[int, int], int] = {}

    def box(self, kernel: PlanKernel, launch: Launch) -> DimScope | None:
        """Intervals of the kernel's symbols, by what they are bound to; None if one has none, or may be negative."""
        key = id(launch.bind), kernel.symbols
        if key not in self._boxes:
            spans = [_interval(self._scope, d) for d in launch.bind]
            symbols = [Symbol(n, n, s[0], *s) for n, s in zip(kernel.symbols, spans, strict=True) if s and s[0] >= 0]
            self._boxes[key] = DimScope(tuple(symbols)) if len(symbols) == len(spans) else None
        return self._boxes[key]

    def operand(self, operand: Operand, box: DimScope | None, kernel: PlanKernel, launch: Launch, size: int) -> int:
        """Bytes of an operand; the least that can be proved, if they are more than ``size``."""
        if box is None:
            return self._exact(operand, kernel, launch)
        key = id(operand), id(box)
        need = self._bytes.get(key)
        if need is None:
            need = self._bytes[key] = self._by_interval(operand, box, kernel, launch)
        return need if need <= size else self._exact(operand, kernel, launch)

    def workspace(self, kernel: PlanKernel, box: DimScope | None, launch: Launch, size: int) -> int:
        """Bytes of the workspace; the least that can be proved, if they are more than ``size``."""
        need = kernel.recipe.workspace
        if isinstance(need, int):
            return need
        span = None if box is None else _interval(box, need)
        if span is not None and span[1] <= size:
            return span[1]
        return self._scope.bounds(dims.substitute(need, dict(zip(kernel.symbols, launch.bind, strict=True))))[1]

    def _by_interval(self, operand: Operand, box: DimScope, kernel: PlanKernel, launch: Launch) -> int:
        largest = [s[1] for d in operand.type.shape if (s := _interval(box, d)) and s[0] >= 0]
        if len(largest) < operand.type.rank:
            return self._exact(operand, kernel, launch)
        # More elements along an axis never make a layout smaller.
        elements = operand.layout.elements(largest)
        return self._scope.bounds(elements)[1] * operand.type.dtype.itemsize

    def _exact(self, operand: Operand, kernel: PlanKernel, launch: Launch) -> int:
        own = dict(zip(kernel.symbols, launch.bind, strict=True))
        shape = [dims.substitute(d, own) for d in operand.type.shape]
        return self._scope.bounds(operand.layout.elements(shape))[1] * operand.type.dtype.itemsize


def _interval(scope: DimScope, dim: Dim) -> tuple[int, int] | None:
    """An interval that contains every value of ``dim``; None where a divisor might be 0 for all that intervals say."""
    try:
        return scope.bounds(dim)
    except DimError:
        return None


def _proved(scope: DimScope, dim: Dim, at: str) -> tuple[int, int]:
    """An interval that contains every value of ``dim``.  Raises PlanError."""
    span = _interval(scope, dim)
    if span is None:
        raise PlanError(f"{at}: that no divisor of {str(dim)[:200]} is 0 cannot be proved")
    return span


def _check_launch(plan: Plan, profile: Profile, launch: Launch, at: str, tensors: set[int], needs: _Needs) -> _Access:
    kernel = plan.kernels[launch.kernel]
    recipe = kernel.recipe
    if len(launch.bind) != len(kernel.symbols) or len(launch.args) != recipe.buffer_count:
        raise PlanError(f"{at}: arguments do not fit the recipe of {kernel.id}")
    box = needs.box(kernel, launch)
    buffers: list[int] = []
    operands = (*recipe.inputs, *recipe.outputs)
    first_weight = len(operands)
    behind_weights = first_weight + len(recipe.weights)
    tensor_kind = SlotKind.TENSOR
    for position, slot in enumerate(launch.args):
        is_weight = first_weight <= position < behind_weights
        if is_weight != (slot.kind is tensor_kind):
            raise PlanError(f"{at}: argument {position} is a {slot.kind.value}")
        if is_weight:
            if slot.index >= len(plan.tensors):
                raise TensorBoundsError(f"{at}: tensor {slot.index} does not exist")
            tensor = plan.tensors[slot.index]
            if tensor.kernel != launch.kernel or tensor.operand != position - first_weight:
                raise TensorBoundsError(f"{at}: tensor {slot.index} was packed for another operand")
            tensors.add(slot.index)
            continue
        if slot.index >= len(profile.buffers):
            raise ArenaBoundsError(f"{at}: buffer {slot.index} does not exist")
        buffer = profile.buffers[slot.index]
        try:
            if position < first_weight:
                need = needs.operand(operands[position], box, kernel, launch, buffer.size)
            else:
                need = needs.workspace(kernel, box, launch, buffer.size)
        except DimError as error:
            raise PlanError(f"{at}: the bytes of argument {position} cannot be proved: {error.detail}") from None
        if need > buffer.size:
            raise ArenaBoundsError(f"{at}: argument {position} needs {need} bytes, its buffer has {buffer.size}")
        align = operands[position].align if position < first_weight else TENSOR_ALIGN
        if buffer.offset % align:
            raise ArenaBoundsError(f"{at}: argument {position} must lie at a multiple of {align}")
        buffers.append(slot.index)
    inputs, outputs = len(recipe.inputs), len(recipe.outputs)
    pairs = frozenset((buffers[inputs + o], buffers[i]) for o, i in recipe.in_place)
    return _Access(
        tuple(buffers[:inputs]),
        tuple(buffers[inputs : inputs + outputs]),
        tuple(buffers[inputs + outputs :]),
        pairs,
    )


def _check_ports(profile: Profile, scope: DimScope, where: str) -> None:
    labels: set[str] = set()
    for role, ports in ((BufferRole.INPUT, profile.inputs), (BufferRole.OUTPUT, profile.outputs)):
        for port in ports:
            at = f"{where}: {role.value} {port.label[:40]!r}"
            if (role.value + port.label) in labels:
                raise PlanError(f"{at} is given twice")
            labels.add(role.value + port.label)
            if port.buffer >= len(profile.buffers):
                raise ArenaBoundsError(f"{at} lies in a buffer that does not exist")
            if port.layout.rank != port.type.rank:
                raise PlanError(f"{at} has rank {port.type.rank} and a layout of rank {port.layout.rank}")
            buffer = profile.buffers[port.buffer]
            if role is BufferRole.INPUT and buffer.role is not BufferRole.INPUT:
                raise PlanError(f"{at} lies in a buffer of role {buffer.role.value}")
            if role is BufferRole.OUTPUT and buffer.role not in (BufferRole.OUTPUT, BufferRole.INPUT):
                raise PlanError(f"{at} lies in a buffer of role {buffer.role.value}")
            elements = port.layout.elements(port.type.shape)
            if _proved(scope, elements, at)[1] * port.type.dtype.itemsize > buffer.size:
                raise ArenaBoundsError(f"{at} is larger than its buffer")
    for state in profile.states:
        at = f"{where}: state {state.label[:40]!r}"
        if state.buffer >= len(profile.buffers) or profile.buffers[state.buffer].role is not BufferRole.STATE:
            raise PlanError(f"{at} does not lie in a buffer of role state")
        if _proved(scope, state.type.nbytes, at)[1] > profile.buffers[state.buffer].size:
            raise ArenaBoundsError(f"{at} is larger than its buffer")
        if state.initial is not None:
            raise PlanError(f"{at} names an initial tensor, which this version does not know")


def _check_flow(profile: Profile, accesses: Sequence[_Access], where: str) -> None:
    """Reads after writes, inputs never written, and no two live buffers in the same bytes."""
    end = len(accesses)
    parent = [n if b.view_of is None else b.view_of for n, b in enumerate(profile.buffers)]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    input_role, state_role = BufferRole.INPUT, BufferRole.STATE
    for number, buffer in enumerate(profile.buffers):
        if buffer.role is input_role or buffer.role is state_role:
            first[parent[number]], last[parent[number]] = -1, end
    for position, access in enumerate(accesses):
        for number in access.reads:
            if parent[number] not in first:
                raise ReadBeforeWriteError(
                    f"{where}, launch {position} reads buffer {number}, which nothing has written"
                )
            last[parent[number]] = max(last[parent[number]], position)
        for number in (*access.writes, *access.scratch):
            if profile.buffers[number].role is input_role:
                raise AliasError(f"{where}, launch {position} writes an input")
            first.setdefault(parent[number], position)
            last[parent[number]] = max(last.get(parent[number], position), position)
        shared = {parent[n] for n in access.reads} & {parent[n] for n in access.writes}
        allowed = {parent[o] for o, i in access.in_place if parent[o] == parent[i]}
        if shared - allowed:
            raise AliasError(f"{where}, launch {position} writes a buffer that it reads")
    for port in profile.outputs:
        if parent[port.buffer] not in first:
            raise ReadBeforeWriteError(f"{where}: output {port.label[:40]!r} is written by nothing")
        last[parent[port.buffer]] = end
    _check_overlap(profile, first, last, where)


def _check_overlap(profile: Profile, first: Mapping[int, int], last: Mapping[int, int], where: str) -> None:
    """Sweep over time with the live intervals in order; only neighbours can overlap a new one."""
    events = sorted(
        [(first[n], 1, n) for n in first if profile.buffers[n].size]
        + [(last[n] + 1, 0, n) for n in first if profile.buffers[n].size]
    )
    live: list[tuple[int, int, int]] = []
    for _, begins, number in events:
        buffer = profile.buffers[number]
        entry = (buffer.offset, buffer.offset + buffer.size, number)
        position = bisect.bisect_left(live, entry)
        if not begins:
            del live[position]
            continue
        if position < len(live) and live[position][0] < entry[1]:
            raise OverlapError(f"{where}: buffers {number} and {live[position][2]} are live in the same bytes")
        if position and live[position - 1][1] > entry[0]:
            raise OverlapError(f"{where}: buffers {number} and {live[position - 1][2]} are live in the same bytes")
        live.insert(position, entry)


def _waits_missing(profile: Profile, accesses: Sequence[_Access]) -> tuple[int, int] | None:
    """A launch and the writer of a buffer it reads, if it does not wait for it."""
    parent = [n if b.view_of is None else b.view_of for n, b in enumerate(profile.buffers)]
    writer: dict[int, int] = {}
    for position, access in enumerate(accesses):
        for number in access.reads:
            source = writer.get(parent[number])
            if source is not None and source not in profile.launches[position].wait:
                return position, source
        for number in access.writes:
            writer[parent[number]] = position
    return None


def _check_disjoint(profiles: Sequence[Profile]) -> None:
    """No request may fit two profiles: the input shapes of any two exclude each other."""
    for position, left in enumerate(profiles):
        for right in profiles[position + 1 :]:
            if _may_meet(left, right):
                raise PlanError(f"profiles {left.name[:40]!r} and {right.name[:40]!r} take the same inputs")


def _may_meet(left: Profile, right: Profile) -> bool:
    by_label = {port.label: port for port in right.inputs}
    for port in left.inputs:
        other = by_label.get(port.label)
        if other is None or port.type.rank != other.type.rank:
            return False
        for a, b in zip(port.type.shape, other.type.shape, strict=True):
            mine, others = _interval(DimScope(left.symbols), a), _interval(DimScope(right.symbols), b)
            if mine and others and (mine[1] < others[0] or others[1] < mine[0]):
                return False
    return True


__all__ = ["CheckedRegion", "check_admissions", "check_plan", "check_region"]
