"""Partition: cover a phase with regions, each with alternative ways to cut it into groups.

Imported by: planning, certification.  Imports: phaseir, groups, patterns.  Pure.

Every group has one exit, the only op whose results others read.  Groups with one exit can be contracted in any
choice of alternatives without a cycle among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tribunus.errors import InternalError
from tribunus.passes.groups import Alias, Partition, Region
from tribunus.passes.patterns.attention import match_attention
from tribunus.passes.patterns.chains import find_chains
from tribunus.passes.patterns.draft import Alternatives, Draft, distinct, finest, single
from tribunus.passes.patterns.epilogue import ANCHORS, Epilogue, grow
from tribunus.passes.patterns.normalization import Norm, find_norms
from tribunus.passes.signatures import make_use
from tribunus.passes.view import PhaseView
from tribunus.phaseir.program import Constants, Program


def partition(program: Program, phase_index: int, constants: Constants) -> Partition:
    """Regions and aliases of one phase; every op is in exactly one of them."""
    view = PhaseView(program, program.phases[phase_index], constants)
    aliases = _aliases(view)
    cut = _Cut(view, frozenset(alias.op for alias in aliases))
    norms = find_norms(view, cut.is_free)
    for norm in norms:
        if norm.label == "softmax":
            cut.take(match_attention(view, norm, cut.is_free))
    pending = [norm for norm in norms if all(cut.is_free(op) for op in norm.ops)]
    reserved = frozenset(op for norm in pending for op in norm.ops)
    epilogues: dict[int, Epilogue] = {}
    for op in reversed(range(len(view.ops))):
        if view.kind(op) in ANCHORS and cut.is_free(op):
            epilogue = grow(view, op, lambda i: cut.is_free(i) and i not in reserved)
            epilogues.update(dict.fromkeys(epilogue.ops, epilogue))
            cut.take(epilogue.alternatives())
    for norm in pending:
        _take_norm(view, cut, norm, epilogues)
    for alternatives in find_chains(view, cut.is_free):
        cut.take(alternatives)
    for op in range(len(view.ops)):
        if cut.is_free(op):
            cut.take(((_lone(view, op),),))
    return Partition(phase_index, cut.regions(), aliases)


class _Cut:
    """The regions found so far, by the ops they hold."""

    def __init__(self, view: PhaseView, aliases: frozenset[int]) -> None:
        self._view = view
        self._aliases = aliases
        self._owner: dict[int, int] = {}
        self._found: dict[int, Alternatives] = {}

    def is_free(self, op: int) -> bool:
        """Whether an op is in no region yet and is no alias."""
        return op not in self._owner and op not in self._aliases

    def take(self, alternatives: Alternatives | None) -> None:
        """Make a region."""
        if alternatives is None:
            return
        ops = _ops(alternatives[0])
        for draft in (draft for drafts in alternatives for draft in drafts):
            if not self._view.has_one_exit(draft.ops):
                raise InternalError(f"{draft.label} over ops {draft.ops} has several exits")
        self._owner.update(dict.fromkeys(ops, ops[0]))
        self._found[ops[0]] = alternatives

    def release(self, op: int) -> Alternatives:
        """Undo the region that holds an op."""
        alternatives = self._found.pop(self._owner[op])
        for member in _ops(alternatives[0]):
            del self._owner[member]
        return alternatives

    def regions(self) -> tuple[Region, ...]:
        """All regions in the order of their first ops."""
        return tuple(self._region(self._found[key]) for key in sorted(self._found))

    def _region(self, alternatives: Alternatives) -> Region:
        uses = {
            draft: make_use(self._view, draft.label, draft.ops)
            for draft in dict.fromkeys(draft for drafts in alternatives for draft in drafts)
        }
        return Region(_ops(alternatives[0]), tuple(tuple(uses[draft] for draft in drafts) for drafts in alternatives))


def _take_norm(view: PhaseView, cut: _Cut, norm: Norm, epilogues: dict[int, Epilogue]) -> None:
    """A normalization with the residual sum before it, or with quantization around it."""
    alone = Draft(norm.label, norm.ops)
    plain = distinct(((alone,), finest(view, norm.ops)))
    add = _residual(view, norm)
    if add is None:
        cut.take(_quantized(view, cut, norm) or plain)
        return
    fused = Draft.of(f"residual+{norm.label}", (add, *norm.ops))
    if cut.is_free(add):
        cut.take(distinct(((fused,), (single(view, add), alone), (single(view, add), *finest(view, norm.ops)))))
        return
    epilogue = epilogues.get(add)
    if epilogue is None or epilogue.last is None or epilogue.last.ops != (add,):
        cut.take(plain)
        return
    before = cut.release(add)
    shorter = epilogue.draft(len(epilogue.steps) - 1)
    cut.take(
        distinct(
            (
                (*before[0], alone),
                (shorter, fused),
                *((*drafts, alone) for drafts in before[1:]),
                finest(view, (*epilogue.ops, *norm.ops)),
            )
        )
    )


def _quantized(view: PhaseView, cut: _Cut, norm: Norm) -> Alternatives | None:
    """A normalization with the dequantization before it and the quantization after it."""
    before, after = view.producer(norm.source), view.only_user(norm.value)
    around: list[int] = []
    exclusive = norm.source not in view.kept and all(user in norm.ops for user in view.users(norm.source))
    label = norm.label
    if before is not None and view.kind(before) == "dequantize_linear" and exclusive and cut.is_free(before):
        around.append(before)
        label = f"qdq_{label}"
    ends = after is not None and view.kind(after) == "quantize_linear" and view.ops[after].inputs[0] == norm.value
    if after is not None and ends and cut.is_free(after):
        around.append(after)
        label = f"{label}+quantize"
    if not around:
        return None
    whole = Draft.of(label, (*norm.ops, *around))
    alone = Draft(norm.label, norm.ops)
    return distinct(((whole,), (alone, *finest(view, around)), finest(view, whole.ops)))


def _residual(view: PhaseView, norm: Norm) -> int | None:
    """The sum of two tensors of one shape that only the normalization reads."""
    op = view.producer(norm.source)
    if op is None or view.kind(op) != "add" or norm.source in view.kept:
        return None
    if not all(user in norm.ops for user in view.users(norm.source)):
        return None
    left, right = view.ops[op].inputs
    if any(view.is_constant(v) for v in (left, right)) or not view.same_shape(left, right):
        return None
    return op


def _aliases(view: PhaseView) -> tuple[Alias, ...]:
    """Reshapes that need no kernel.

    A result that is read outside has memory of its own: only one kept value may stand for a computed one, and none
    for an input or a constant.
    """
    found: list[Alias] = []
    root: dict[int, int] = {}
    claimed = {v for v in view.kept if (p := view.producer(v)) is not None and view.kind(p) != "reshape"}
    for index, op in enumerate(view.ops):
        if op.kind != "reshape":
            continue
        source, value = op.inputs[0], op.outputs[0]
        origin = root.get(source, source)
        if value in view.kept:
            if view.producer(origin) is None or origin in claimed:
                continue
            claimed.add(origin)
        root[value] = origin
        found.append(Alias(index, source, value))
    return tuple(found)


def _lone(view: PhaseView, op: int) -> Draft:
    """A group of one op; a reshape that is no alias is a copy."""
    return Draft("copy", (op,)) if view.kind(op) == "reshape" else single(view, op)


def _ops(drafts: Sequence[Draft]) -> tuple[int, ...]:
    return tuple(sorted(_members(drafts)))


def _members(drafts: Iterable[Draft]) -> Iterable[int]:
    return (op for draft in drafts for op in draft.ops)
