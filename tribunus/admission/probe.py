"""The probe: many candidates are timed briefly before any is checked; only the fastest are worth six checks.

Imported by: certification.  Effects only through the Executor; ``fastest`` is a function of recorded times.

By halves: all are timed in one interleaved run, the faster half again with twice the rounds, until few are left.  A
probe is no evidence: nothing is admitted or refused by it.  Who dies in it stays, because a check has to say why; who
is passed over comes back when all that stayed were refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tribunus.admission.context import Case
from tribunus.admission.suite import suite_identity
from tribunus.admission.timing_check import SAMPLE_NS, estimate_ns
from tribunus.candidates.model import Artifact
from tribunus.canon import Digest, Json, JsonObject, digest_of, int_of, list_of, object_of, parse_digest, row_of, str_of
from tribunus.isolation.executor import Executor, Fate, TimingProtocol

KEPT: Final = 4
"""Candidates of a demand that are certified, beside the fastest of each further backend."""
FIRST_ROUNDS: Final = 2
TOGETHER: Final = 16
"""Candidates that share a child: each holds buffers of its own."""
DEADLINE_NS: Final = 30_000_000_000


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """times: of every candidate in ns, 0 for one that died, by artifact.  kept: artifacts to certify, best first."""

    times: Mapping[Digest, int]
    kept: tuple[Digest, ...]

    def document(self) -> JsonObject:
        """The probe as canonical JSON."""
        times: list[Json] = [[artifact, time] for artifact, time in self.times.items()]
        return {"times": times, "kept": list(self.kept)}


def probe_from_json(value: Json) -> ProbeResult:
    """Inverse of ``ProbeResult.document``.  Raises SchemaError, DigestSyntaxError."""
    document = object_of(value, "probe", frozenset(("times", "kept")))
    rows = [row_of(row, "probe", "artifact", "time_ns") for row in list_of(document["times"], "probe")]
    times = {parse_digest(str_of(artifact, "probe")): int_of(ns, "probe") for artifact, ns in rows}
    return ProbeResult(times, tuple(parse_digest(str_of(a, "probe")) for a in list_of(document["kept"], "probe")))


def probe_key(artifacts: Sequence[Artifact], machine: Digest, jit: str) -> Digest:
    """What a probe depends on: who takes part, the machine, and the use of generated code."""
    return digest_of([suite_identity(), KEPT, machine, jit, *(artifact.digest for artifact in artifacts)])


def hold_probe(artifacts: Sequence[Artifact], case: Case, executor: Executor, *, jit_is_free: bool) -> ProbeResult:
    """Time ``artifacts``, the faster half again and again, until KEPT are left."""
    times: dict[Digest, int] = {}
    left, rounds = list(artifacts), FIRST_ROUNDS
    while True:
        protocol = TimingProtocol(rounds, SAMPLE_NS, False, DEADLINE_NS)
        for start in range(0, len(left), TOGETHER):
            part = left[start : start + TOGETHER]
            samples = executor.time(part, case.dims, [case.inputs] * len(part), protocol)
            for artifact, sample in zip(part, samples, strict=True):
                times[artifact.digest] = int(estimate_ns(sample)) if sample.fate is Fate.RETURNED else 0
        goal = max(KEPT, -(-len(left) // 2))
        fewer = fastest(left, times, goal, jit_is_free=jit_is_free)
        if goal == KEPT or len(fewer) == len(left):
            return ProbeResult(times, tuple(artifact.digest for artifact in fewer))
        left, rounds = fewer, 2 * rounds


def fastest(
    artifacts: Sequence[Artifact], times: Mapping[Digest, int], count: int, *, jit_is_free: bool
) -> list[Artifact]:
    """The ``count`` fastest, and the fastest of each backend that is not among them; the fastest first.

    Kernels whose code is generated when an image is opened can win only where nothing else is admitted, unless they are
    free: of a backend that has nothing else, the fastest stays.
    """
    ordered = sorted(artifacts, key=lambda artifact: (times[artifact.digest], artifact.digest))
    frozen = [a for a in ordered if jit_is_free or not a.recipe.jit_at_open]
    kept = (frozen or ordered)[:count]
    present = {artifact.candidate.backend for artifact in kept}
    for artifact in ordered:
        if artifact.candidate.backend not in present or times[artifact.digest] == 0:
            present.add(artifact.candidate.backend)
            kept = kept if artifact in kept else [*kept, artifact]
    return kept
