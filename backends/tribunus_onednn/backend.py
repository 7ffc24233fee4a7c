"""The oneDNN backend: every implementation that the library has for a problem is a candidate.

Imported by: the registry, through the entry point ``onednn``.  Imports: anchors, match, listing, recipe, candidates.

The library generates code in pages that stay writable, so this process never loads it: children list, describe and
pack.  An artifact is a recipe by which the replayer creates the primitive when an image is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tribunus import canon
from tribunus.candidates.backend import AVAILABLE, Availability, Budget, Effort, Feedback
from tribunus.candidates.model import (
    Artifact,
    BuildRecord,
    Candidate,
    Config,
    ConfigValue,
    Reproducibility,
    Signature,
)
from tribunus.canon import f32_to_text, text_to_float
from tribunus.errors import InternalError, ToolError
from tribunus.phaseir.layouts import Layout, row_major
from tribunus.phaseir.program import Array
from tribunus.plan.code import Code, CodeFormat, Operand, PackedWeight, Packing, Recipe
from tribunus.targets.target import Target
from tribunus_onednn.anchors import arrangements, match_copy, match_signature
from tribunus_onednn.deviations import deviation_of
from tribunus_onednn.epilogue import Unmatched
from tribunus_onednn.library import ISA_OF_LEVEL, Missing, Place, file_digest, find_library
from tribunus_onednn.listing import Prober
from tribunus_onednn.match import Making, Matched, Weight, dense_strides
from tribunus_onednn.primitives import Implementation
from tribunus_onednn.problem import Memory, memory_from_json, memory_to_json
from tribunus_onednn.recipe import FORMAT_NAME, PrimitiveRecipe, encode_recipe

NAME: Final = "onednn"
FORMAT: Final = CodeFormat(FORMAT_NAME)
ALIGN: Final = 64
REORDER, SCALE, SHIFT = "onednn-reorder", "onednn-batch-norm-scale", "onednn-batch-norm-shift"
REFERENCE_PREFIX: Final = "ref"
"""Implementations that compute element by element; hundreds of times slower, last resort."""
HEAVY: Final = frozenset(("matmul", "convolution", "deconvolution"))
"""Primitives whose reference implementations take seconds: left out unless everything is wanted."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """One way: the problem with its layouts, an implementation, and where it stands in the library's list."""

    matched: Matched
    listed: Implementation
    rank: int


class OneDnnBackend:
    """Backend over the pinned oneDNN library; keeps one listing child an instruction set, and its answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probers: dict[int, Prober] = {}
        self._place: Place | Missing | None = None
        self._digest = ""

    @property
    def name(self) -> str:
        """``onednn``."""
        return NAME

    @property
    def formats(self) -> Sequence[CodeFormat]:
        """Recipes."""
        return (FORMAT,)

    def serves(self, target: Target) -> Availability:
        """Whether the library is here and can generate code for ``target`` on this machine."""
        if target.family != "cpu" or target.arch not in ISA_OF_LEVEL:
            return Availability(False, f"oneDNN serves x86-64 processors, not {target.name}", "use another backend")
        place = self._found()
        if isinstance(place, Missing):
            return Availability(False, place.reason, place.remedy)
        try:
            self._prober(place, target).check()
        except ToolError as failure:
            return Availability(False, failure.detail, failure.remedy)
        return AVAILABLE

    def covers(self, signature: Signature, target: Target) -> Availability:
        """Whether a primitive computes ``signature``; the library is asked once and its answer kept."""
        place = self._found()
        if isinstance(place, Missing):
            return Availability(False, place.reason, place.remedy)
        reasons: list[str] = []
        for matched in self._matched(signature, None):
            if isinstance(matched, Unmatched):
                reasons.append(matched.reason)
            elif self._listed(matched, target):
                return AVAILABLE
            else:
                reasons.append("oneDNN has no implementation with these shapes and post-ops")
        return Availability(False, "; ".join(dict.fromkeys(reasons)), "use another backend")

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        """The library's implementations, its own choice first, reference ones last; little where faults are known."""
        refused = {refusal.candidate for refusal in feedback.refusals}
        exhaustive = budget.effort is Effort.EXHAUSTIVE
        count = 0
        for offer in self._offers(signature, target, feedback.layouts, exhaustive):
            candidate = _candidate(signature, offer)
            if candidate.digest in refused:
                continue
            if count >= budget.limit:
                return
            count += 1
            yield candidate

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        """Create the primitive in two fresh children and describe it.  Raises ToolError."""
        place = self._required()
        prober = self._prober(place, target)
        matched = self._chosen(candidate, signature)
        problem = matched.problem
        config = candidate.config
        if any(w.making is Making.CHOSEN for w in matched.weights):
            stored = problem.memory("weights")
            problem = problem.with_memories({"weights": _memory_of(config.text("weights"), stored.dims)})
        implementation = config.text("implementation")
        described = prober.describe(problem, implementation)
        isa = ISA_OF_LEVEL[target.arch]
        recipe = PrimitiveRecipe(
            problem=problem,
            implementation=implementation,
            version=described.version,
            commit=described.commit,
            library=self._library_digest(place),
            isa=isa,
            threads=1,
            scratchpad=described.scratchpad,
            code=described.code,
            stable=described.stable,
            late=described.late,
        )
        facts = (("implementation", implementation), ("isa", isa), ("library", recipe.library))
        code = Code(FORMAT, encode_recipe(recipe), facts)
        border = tuple(
            Operand(signature.type_of(value), layout, ALIGN)
            for value, layout in zip((*signature.inputs, *signature.outputs), candidate.layouts, strict=True)
        )
        split = len(signature.inputs)
        weights = tuple(_packed(signature, w, problem.memory(w.memory), config, isa) for w in matched.weights)
        launch = Recipe(border[:split], border[split:], weights, described.scratchpad, jit_at_open=True)
        version = f"{described.version} {described.commit[:12]}"
        record = BuildRecord((("onednn", version), ("library", recipe.library)), (), code.digest, f"onednn {version}")
        return Artifact(candidate, signature, code, launch, record)

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        """Bytes of a weight.  Raises ToolError."""
        config = dict(packing.config)
        if packing.name in (SCALE, SHIFT):
            return _batch_norm(packing.name, text_to_float(str(config["eps"])), arrays)
        if packing.name != REORDER:
            raise InternalError(f"unknown packing {packing.name}")
        place = self._required()
        plain, packed = (_memory_from_text(str(config[key])) for key in ("from", "to"))
        data = np.ascontiguousarray(arrays[0]).tobytes()
        return self._prober_of(place, int(config["isa"])).pack(plain, packed, data)

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        """None: the library serves no plan."""
        return None

    def close(self) -> None:
        """End the listing children."""
        with self._lock:
            probers, self._probers = tuple(self._probers.values()), {}
        for prober in probers:
            prober.close()

    def _found(self) -> Place | Missing:
        with self._lock:
            if self._place is None:
                self._place = find_library()
            return self._place

    def _required(self) -> Place:
        place = self._found()
        if isinstance(place, Missing):
            raise ToolError(place.reason, remedy=place.remedy)
        return place

    def _prober(self, place: Place, target: Target) -> Prober:
        return self._prober_of(place, ISA_OF_LEVEL[target.arch])

    def _prober_of(self, place: Place, isa: int) -> Prober:
        with self._lock:
            if isa not in self._probers:
                self._probers[isa] = Prober(place, isa)
            return self._probers[isa]

    def _library_digest(self, place: Place) -> str:
        with self._lock:
            if not self._digest:
                self._digest = file_digest(place)
            return self._digest

    def _matched(self, signature: Signature, layouts: tuple[Layout, ...] | None) -> Iterator[Matched | Unmatched]:
        """Problems of the signature, one a border layout, the better first."""
        kinds = {op.kind for op in signature.phase.ops}
        if len(signature.phase.ops) == 1 and kinds <= {"copy", "reshape"} and layouts is not None and len(layouts) == 2:
            yield match_copy(signature, *layouts)
            return
        for arrangement in arrangements(signature):
            found = match_signature(signature, arrangement)
            if layouts is None or isinstance(found, Unmatched) or found.layouts == layouts:
                yield found

    def _listed(self, matched: Matched, target: Target) -> tuple[Implementation, ...]:
        return self._prober(self._required(), target).implementations(matched.problem)

    def _offers(
        self, signature: Signature, target: Target, layouts: tuple[Layout, ...] | None, exhaustive: bool
    ) -> list[_Offer]:
        found: list[_Offer] = []
        for matched in self._matched(signature, layouts):
            if isinstance(matched, Unmatched):
                continue
            listed = list(self._listed(matched, target))
            if exhaustive:
                listed += self._unpacked(matched, target, listed)
            found += [_Offer(matched, entry, rank) for rank, entry in enumerate(listed)]
        # Stable: of equal rank, the better border layout first.
        found.sort(key=lambda offer: (_is_reference(offer), offer.rank))
        if exhaustive or all(_is_reference(offer) for offer in found):
            return found
        usual = [offer for offer in found if not _is_reference(offer)]
        deviation = deviation_of(usual[0].matched.problem)
        heavy = any(offer.matched.problem.op in HEAVY for offer in found)
        last = [] if heavy else [offer for offer in found if _is_reference(offer)]
        if deviation is None:
            return usual + last
        return usual[:1] if deviation.everywhere else usual[:1] + last

    def _unpacked(self, matched: Matched, target: Target, known: Sequence[Implementation]) -> list[Implementation]:
        """What more there is if the weights stay as they are stored."""
        chosen = [w for w in matched.weights if w.making is Making.CHOSEN]
        more: list[Implementation] = []
        for weight in chosen:
            plain = Matched(matched.problem.with_memories({weight.memory: weight.stored}), matched.weights, ())
            size = 4 * int(np.prod(weight.stored.dims))
            for entry in self._listed(plain, target):
                offer = Implementation(entry.name, weight.stored, size, entry.scratchpad)
                if all((offer.name, offer.weights) != (k.name, k.weights) for k in known):
                    more.append(offer)
        return more

    def _chosen(self, candidate: Candidate, signature: Signature) -> Matched:
        for found in self._matched(signature, candidate.layouts):
            if isinstance(found, Matched) and found.layouts == candidate.layouts:
                return found
        raise InternalError(f"{candidate} is no candidate of {signature.name}")


def _is_reference(offer: _Offer) -> bool:
    return offer.listed.name.startswith(REFERENCE_PREFIX)


def _candidate(signature: Signature, offer: _Offer) -> Candidate:
    values: dict[str, ConfigValue] = {"op": offer.matched.problem.op, "implementation": offer.listed.name}
    if offer.listed.weights is not None:
        values["weights"] = _memory_text(offer.listed.weights)
        values["weights_bytes"] = offer.listed.weights_bytes
    return Candidate(NAME, signature.digest, Config.of(values), offer.matched.layouts, Reproducibility.D)


def _memory_text(memory: Memory) -> str:
    """A tag, or ``strides:1536,1``."""
    return memory.tag if memory.strides is None else "strides:" + ",".join(map(str, memory.strides))


def _memory_of(text: str, dims: tuple[int, ...]) -> Memory:
    if text.startswith("strides:"):
        return Memory(dims, tuple(int(s) for s in text.removeprefix("strides:").split(",")))
    return Memory(dims, None, text)


def _packed(signature: Signature, weight: Weight, memory: Memory, config: Config, isa: int) -> PackedWeight:
    """How the bytes of a weight operand are made."""
    plain_bytes = 4 * int(np.prod(weight.stored.dims))
    if weight.making in (Making.SCALE, Making.SHIFT):
        name = SCALE if weight.making is Making.SCALE else SHIFT
        return PackedWeight(weight.sources, Packing(name, (("eps", f32_to_text(weight.eps)),)), plain_bytes, ALIGN)
    shape = signature.type_of(weight.sources[0]).numbers()
    if weight.making is Making.PLAIN:
        return PackedWeight(weight.sources, Packing("layout", layout=row_major(len(shape))), plain_bytes, ALIGN)
    nbytes = config.integer("weights_bytes")
    layout = core_layout(memory, weight.stored, shape, nbytes)
    if layout is not None:
        return PackedWeight(weight.sources, Packing("layout", layout=layout), nbytes, ALIGN)
    settings = (("from", _memory_to_text(weight.stored)), ("isa", isa), ("to", _memory_to_text(memory)))
    return PackedWeight(weight.sources, Packing(REORDER, settings), nbytes, ALIGN)


def core_layout(memory: Memory, stored: Memory, shape: tuple[int, ...], nbytes: int) -> Layout | None:
    """``memory`` as a Layout of the weight's own axes (``shape``), None where a Layout cannot say it.

    stored: the plain row-major bytes seen in oneDNN's axes, which may be others than those of ``shape``.
    """
    own = _own_axes(stored, shape)
    if own is None:
        return None
    order: tuple[int, ...]
    blocks: list[tuple[int, int]] = []
    if memory.strides is not None:
        strides = memory.strides
        order = tuple(sorted(range(len(strides)), key=lambda axis: (-strides[axis], stored.dims[axis] == 1, axis)))
        dense = dense_strides(stored.dims, order)
        if any(d > 1 and a != b for d, a, b in zip(stored.dims, dense, strides, strict=True)):
            return None
    else:
        order, blocks = _blocked_order(memory.tag, len(stored.dims))
    named = [own[axis] for axis in order if axis in own]
    missing = [axis for axis in range(len(shape)) if axis not in named]
    if len({axis for axis, _ in blocks}) != len(blocks) or any(axis not in own for axis, _ in blocks):
        return None
    found = Layout((*named, *missing), tuple((own[axis], size) for axis, size in blocks))
    return found if found.elements(shape) == nbytes // 4 else None


def _own_axes(stored: Memory, shape: tuple[int, ...]) -> dict[int, int] | None:
    """oneDNN's axes that are axes of the weight itself; the others have one element.  None where an axis was split."""
    strides = dense_strides(shape, range(len(shape)))
    places = {(d, s): axis for axis, (d, s) in enumerate(zip(shape, strides, strict=True)) if d > 1}
    seen = {i: (d, s) for i, (d, s) in enumerate(zip(stored.dims, stored.strides or (), strict=False)) if d > 1}
    if set(seen.values()) != set(places) or len(seen) != len(places):
        return None
    own = {axis: places[place] for axis, place in seen.items()}
    if len(stored.dims) == len(shape):
        # Axes of one element may be blocked too: they keep their order.
        rest = [axis for axis in range(len(shape)) if axis not in own.values()]
        own |= dict(zip((axis for axis in range(len(shape)) if axis not in own), rest, strict=True))
    return own


def _blocked_order(tag: str, rank: int) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """``BA16a64b`` as order (1, 0) and blocks (0, 16), (1, 64)."""
    order = tuple(ord(letter.lower()) - ord("a") for letter in tag[:rank])
    blocks: list[tuple[int, int]] = []
    size = ""
    for letter in tag[rank:]:
        if letter.isdigit():
            size += letter
        else:
            blocks.append((ord(letter) - ord("a"), int(size)))
            size = ""
    return order, blocks


def _memory_to_text(memory: Memory) -> str:
    return canon.encode(memory_to_json(memory)).decode("ascii")


def _memory_from_text(text: str) -> Memory:
    return memory_from_json(canon.decode(text.encode("ascii"), limit=1 << 16), "packing")


def _batch_norm(name: str, eps: float, arrays: Sequence[Array]) -> bytes:
    """The factor or the term of a batch normalization by constants, computed in float64 and rounded once."""
    scale, shift, mean, variance = (np.asarray(a).astype(np.float64) for a in arrays)
    factor = scale / np.sqrt(variance + eps)
    made = factor if name == SCALE else shift - mean * factor
    return made.astype(np.float32).tobytes()


BACKEND: Final = OneDnnBackend()
