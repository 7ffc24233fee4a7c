"""Which candidates are certified: proposals of all backends, bounded by effort, best first.

Imported by: certification.  Imports: candidates, passes.groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.candidates.backend import Backend, Budget, Effort, Feedback, Refusal
from tribunus.candidates.model import Candidate, Signature
from tribunus.candidates.registry import Registry
from tribunus.errors import UncoveredError, UsageError
from tribunus.numerics.policy import ComputePolicy
from tribunus.passes.groups import Partition, Use
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Constants, Program
from tribunus.targets.target import Target

HEAVY: Final = frozenset(("matmul", "conv", "matmul_integer", "conv_integer"))
_LIMITS: Final = {Effort.QUICK: (2, 1), Effort.STANDARD: (12, 3), Effort.EXHAUSTIVE: (512, 64)}
"""Candidates a signature gets: with a matrix product or convolution inside, and without."""
LAYOUT_PROBES: Final = 64


def parse_effort(text: str) -> Budget:
    """``quick``, ``standard``, ``exhaustive`` or a number of candidates.  Raises UsageError."""
    if text.isdigit() and int(text) > 0:
        return Budget(Effort.STANDARD, int(text))
    try:
        return Budget(Effort(text), 0)
    except ValueError:
        raise UsageError(
            f"effort {text[:40]!r}", remedy="quick, standard, exhaustive, or a number of candidates"
        ) from None


def limit_for(signature: Signature, effort: Budget) -> Budget:
    """The budget for one signature: a plain number as it is, else by effort and kind of work."""
    if effort.limit:
        return effort
    heavy, light = _LIMITS[effort.effort]
    is_heavy = any(op.kind in HEAVY for op in signature.phase.ops)
    return Budget(effort.effort, heavy if is_heavy else light)


@dataclass(frozen=True, slots=True)
class CoveredUse:
    """A use whose signature some backend covers, with the border layouts that were proposed for it."""

    use: Use
    signature: Signature
    choices: tuple[tuple[Layout, ...], ...]


def choose_cover(
    program: Program,
    partition: Partition,
    registry: Registry,
    target: Target,
    policy: ComputePolicy,
    constants: Constants,
    refused: frozenset[str],
) -> list[CoveredUse]:
    """For every region the first alternative of which each use is covered and none is in ``refused`` (digests).

    Raises UncoveredError listing every op that no backend covers, with each backend's reason.
    """
    found: list[CoveredUse] = []
    missing: list[str] = []
    phase = program.phases[partition.phase]
    known: dict[str, CoveredUse | str] = {}
    for region in partition.regions:
        reasons: list[str] = []
        for alternative in region.alternatives:
            answers = [_covered(use, registry, target, policy, constants, refused, known) for use in alternative]
            covered = [answer for answer in answers if isinstance(answer, CoveredUse)]
            if len(covered) == len(alternative):
                found.extend(covered)
                break
            reasons = [answer for answer in answers if isinstance(answer, str)]
        else:
            names = ", ".join(dict.fromkeys(phase.ops[op].kind for op in region.ops))
            labels = [program.values[v].label for op in region.ops for v in phase.ops[op].outputs]
            missing.append(f"{names} (computes {labels[-1][:60]!r}): {'; '.join(dict.fromkeys(reasons))}")
    if missing:
        listed = "\n  ".join(missing)
        raise UncoveredError(f"{len(missing)} groups of ops have no backend:\n  {listed}")
    return found


def proposals(
    signature: Signature,
    layouts: tuple[Layout, ...],
    registry: Registry,
    target: Target,
    effort: Budget,
    refusals: tuple[Refusal, ...] = (),
) -> list[tuple[Backend, Candidate]]:
    """Candidates at the planned layouts: each backend's, interleaved best first, up to the limit.

    refusals: what was tried before; it is not proposed again, whether or not a backend heeds them.
    """
    budget = limit_for(signature, effort)
    tried = {refusal.candidate for refusal in refusals}
    wanted = Budget(budget.effort, budget.limit + len(tried))
    feedback = Feedback(layouts=layouts, refusals=refusals)
    per_backend = [
        list(
            itertools.islice(
                (
                    (backend, candidate)
                    for candidate in itertools.islice(
                        backend.propose(signature, target, wanted, feedback), wanted.limit
                    )
                    if candidate.layouts == layouts and candidate.digest not in tried
                ),
                budget.limit,
            )
        )
        for backend in registry.covering(signature, target)[0]
    ]
    merged = [item for row in itertools.zip_longest(*per_backend) for item in row if item is not None]
    unique = {candidate.digest: (backend, candidate) for backend, candidate in reversed(merged)}
    return list(reversed(unique.values()))[: max(budget.limit, len(per_backend))]


def _covered(
    use: Use,
    registry: Registry,
    target: Target,
    policy: ComputePolicy,
    constants: Constants,
    refused: frozenset[str],
    known: dict[str, CoveredUse | str],
) -> CoveredUse | str:
    signature = Signature(use.signature, policy, constants)
    if signature.digest in refused:
        return f"every candidate of {signature.name} was refused"
    answer = known.get(signature.digest)
    if answer is None:
        answer = known[signature.digest] = _probe(use, signature, registry, target)
    return answer if isinstance(answer, str) else CoveredUse(use, signature, answer.choices)


def _probe(use: Use, signature: Signature, registry: Registry, target: Target) -> CoveredUse | str:
    backends, refusals = registry.covering(signature, target)
    choices: dict[tuple[Layout, ...], None] = {}
    budget = Budget(Effort.QUICK, LAYOUT_PROBES)
    for backend in backends:
        for candidate in itertools.islice(backend.propose(signature, target, budget, Feedback()), LAYOUT_PROBES):
            choices.setdefault(candidate.layouts)
    if choices:
        return CoveredUse(use, signature, tuple(choices))
    return "; ".join(answer.reason for answer in refusals) or f"{signature.name} got no proposal"


def backend_names(items: Sequence[tuple[Backend, Candidate]]) -> tuple[str, ...]:
    """Names of the backends behind ``items``, each once."""
    return tuple(dict.fromkeys(backend.name for backend, _ in items))
