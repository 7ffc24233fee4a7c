"""The contest: admitted candidates of one demand, ranked in one interleaved run.

Imported by: certification.  Effects only through the Executor; ``rank`` is a function of recorded samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tribunus.admission.context import Case
from tribunus.admission.suite import suite_identity
from tribunus.admission.timing_check import RESOLUTION_NS, SAMPLE_NS, estimate_ns, rest_ns
from tribunus.candidates.model import Artifact, Candidate
from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    digest_of,
    f64_to_text,
    int_of,
    list_of,
    member_of,
    object_of,
    parse_digest,
    row_of,
    str_of,
    text_to_float,
)
from tribunus.errors import InternalError, TimingUntrusted
from tribunus.isolation.executor import Executor, ExecutorKind, Fate, TimingProtocol, TimingSamples

ROUNDS: Final = 30
TIE: Final = 0.02
STEADY: Final = 0.01
USELESS: Final = 0.10
USELESS_NS: Final = 1_000
"""A pair that differs by less only widens the ties, whatever its share: a call of a few hundred nanoseconds waits for
memory a few times, and where its operands lie there decides how long."""
REPEATS: Final = 3
PATIENCE: Final = 8
DEADLINE_NS: Final = 120_000_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A participant: its candidate, its artifact, its largest error in units of its budget.

    tail: 99th percentile over median of its calls one by one.
    """

    candidate: Candidate
    artifact: Artifact
    error_share: float
    tail: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a candidate ended: typical time, 99th percentile, error."""

    candidate: Digest
    time_ns: int
    p99_ns: int
    error_share: float


@dataclass(frozen=True, slots=True)
class ContestResult:
    """The ranking.  spread: relative difference of a candidate timed against itself.  tied: places that the ranking
    cannot tell from the fastest."""

    signature: Digest
    executor: ExecutorKind
    places: tuple[Place, ...]
    winner: Digest
    spread: float
    tied: int
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of(self.document()))

    def document(self) -> JsonObject:
        """Document form."""
        places: Json = [[p.candidate, p.time_ns, p.p99_ns, f64_to_text(p.error_share)] for p in self.places]
        return {
            "schema": "tribunus.contest/1",
            "contest": self.signature,
            "executor": self.executor.value,
            "places": places,
            "winner": self.winner,
            "spread": f64_to_text(self.spread),
            "tied": self.tied,
        }


def contest_from_json(value: Json) -> ContestResult:
    """Inverse of ``ContestResult.document`` (``tied`` included).  Raises SchemaError."""
    where = "contest"
    names = ("schema", "contest", "executor", "places", "winner", "spread", "tied")
    document = object_of(value, where, frozenset(names))
    places: list[Place] = []
    for item in list_of(document["places"], where):
        candidate, time_ns, p99_ns, share = row_of(item, where, "candidate", "time_ns", "p99_ns", "error_share")
        places.append(
            Place(
                parse_digest(str_of(candidate, where)),
                int_of(time_ns, where),
                int_of(p99_ns, where),
                text_to_float(str_of(share, where)),
            )
        )
    return ContestResult(
        parse_digest(str_of(document["contest"], where)),
        member_of(ExecutorKind, document["executor"], where),
        tuple(places),
        parse_digest(str_of(document["winner"], where)),
        text_to_float(str_of(document["spread"], where)),
        int_of(document["tied"], where),
    )


def contest_key(entries: Sequence[Entry], machine: Digest, jit: str) -> Digest:
    """What a contest depends on: who takes part, the machine, and the use of generated code."""
    return digest_of([suite_identity(), machine, jit, *(entry.artifact.digest for entry in entries)])


def hold_contest(
    entries: Sequence[Entry], case: Case, executor: Executor, *, cold: bool, jit_is_free: bool = False
) -> ContestResult:
    """Time all entries interleaved, the first of them twice, and rank them.

    cold: weights come from memory rather than from a cache, as in a model whose weights exceed the last-level cache.

    jit_is_free: kernels that generate code when opened rank like any other.

    Repeated up to three times while the pair differs by over 1 %; while by over 10 % and a microsecond, up to eight
    times with growing rests between, eight seconds together.  Raises TimingUntrusted if it still does and there is
    something to rank.  Of each participant the fastest run counts: where its buffers lie in physical memory decides
    which of them meet in the caches, and each run gives the buffers out from another one on.
    """
    if not entries:
        raise InternalError("a contest without participants")
    artifacts = [entries[0].artifact, *(entry.artifact for entry in entries)]
    best: list[TimingSamples] = []
    spread, useless = 0.0, False
    for attempt in range(PATIENCE):
        protocol = TimingProtocol(ROUNDS, SAMPLE_NS, cold, DEADLINE_NS, rest_ns=rest_ns(attempt + 1 - REPEATS))
        first = attempt % len(artifacts)
        rotated = executor.time(
            [*artifacts[first:], *artifacts[:first]], case.dims, [case.inputs] * len(artifacts), protocol
        )
        samples = [*rotated[len(rotated) - first :], *rotated[: len(rotated) - first]]
        if any(sample.fate is not Fate.RETURNED for sample in samples):
            raise TimingUntrusted("an admitted candidate died in the contest")
        best = [min(pair, key=estimate_ns) for pair in zip(best, samples, strict=True)] if best else samples
        spread = pair_spread(best[0], best[1])
        useless = spread > USELESS and pair_gap_ns(best[0], best[1]) > USELESS_NS
        if spread <= STEADY or (attempt + 1 >= REPEATS and not useless) or len(entries) == 1:
            break
    if useless and len(entries) > 1:
        raise TimingUntrusted(f"a kernel timed against itself differed by {spread:.0%}")
    return rank(entries, best[1:], spread, executor.kind, jit_is_free=jit_is_free)


def pair_spread(left: TimingSamples, right: TimingSamples) -> float:
    """Relative difference of one kernel timed twice in the same run, beyond what samples resolve."""
    least = min(estimate_ns(left), estimate_ns(right))
    return pair_gap_ns(left, right) / least if least > 0 else 0.0


def pair_gap_ns(left: TimingSamples, right: TimingSamples) -> float:
    """Difference of one kernel timed twice in the same run, beyond what samples resolve."""
    return max(0.0, abs(estimate_ns(left) - estimate_ns(right)) - RESOLUTION_NS)


def rank(
    entries: Sequence[Entry],
    samples: Sequence[TimingSamples],
    spread: float,
    executor: ExecutorKind,
    *,
    jit_is_free: bool = False,
) -> ContestResult:
    """Order by time; ties within 2 % or three times the spread, and what samples resolve, go to the smaller error,
    then to the smaller digest.

    A kernel whose code is generated when the image is opened wins only if nothing else takes part, unless it is free.
    """
    frozen = [i for i, entry in enumerate(entries) if jit_is_free or not entry.artifact.recipe.jit_at_open]
    eligible = frozen or list(range(len(entries)))
    times = [estimate_ns(sample) for sample in samples]
    fastest = min(times[i] for i in eligible)
    margin = 1.0 + max(TIE, 3.0 * spread)
    tied = [i for i in eligible if times[i] <= fastest * margin + RESOLUTION_NS]
    winner = min(tied, key=lambda i: (entries[i].error_share, entries[i].candidate.digest))
    order = sorted(range(len(entries)), key=lambda i: (i != winner, i not in eligible, times[i]))
    places = tuple(
        Place(
            entries[i].candidate.digest,
            int(times[i]),
            int(times[i] * entries[i].tail),
            entries[i].error_share,
        )
        for i in order
    )
    return ContestResult(
        entries[0].artifact.signature.digest, executor, places, entries[winner].candidate.digest, spread, len(tied)
    )
