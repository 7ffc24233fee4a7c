"""The whole pipeline, from a model to winners ready for a plan.  Read this page first.

Imported by: certify (the pytest plug-in), cli, tests.  Knows no pytest.

    prepare   model -> PhaseIR -> passes -> groups -> cover -> layouts -> candidates -> artifacts
    check     one check of one candidate -> a receipt, appended to the ledger
    contest   admitted candidates of a demand, ranked in one interleaved run
    finish    winners -> plan -> program check -> signed image
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tribunus.admission.captured import CapturedCase, capture_operands, try_bindings
from tribunus.admission.cases import CaseBook, generate_inputs
from tribunus.admission.contest import ContestResult, Entry, Place, contest_from_json, contest_key, hold_contest
from tribunus.admission.context import Adversary, CheckContext
from tribunus.admission.key import Machine, content_key, full_key
from tribunus.admission.policy import AdmissionPolicy
from tribunus.admission.probe import KEPT, hold_probe, probe_from_json, probe_key
from tribunus.admission.receipt import CHECKS, SUITE, Check, Receipt, Verdict
from tribunus.admission.series import FUNCTIONS, OutcomeKind, outcome_of
from tribunus.admission.shelf import Keeper
from tribunus.admission.timing_check import IMPOSSIBLE, tail_ratio
from tribunus.candidates.backend import Backend, Budget, Refusal
from tribunus.candidates.model import Artifact, Candidate, Signature
from tribunus.candidates.registry import Registry, installed_backends
from tribunus.candidates.search import CoveredUse, choose_cover, proposals
from tribunus.canon import Digest, Json, JsonObject, digest_bytes, digest_of
from tribunus.certification.building import BuildPool, Order
from tribunus.certification.peaks import PeakMeter
from tribunus.errors import DimError, InputError, InternalError, TribunusError
from tribunus.frontend.bindings import DimBindings
from tribunus.frontend.model import ImportedModel, import_model
from tribunus.isolation.executor import Executor
from tribunus.ledger.artifacts import ArtifactStore
from tribunus.ledger.documents import DocumentStore
from tribunus.ledger.evidence import find_evidence
from tribunus.ledger.store import Ledger
from tribunus.numerics.policy import ComputePolicy
from tribunus.passes.partition import partition
from tribunus.passes.pipeline import run_passes
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array, Program
from tribunus.plan.code import Code
from tribunus.planning.assemble import ProfileDraft, Winner
from tribunus.planning.layout_plan import LayoutProblem, plan_layouts
from tribunus.planning.schedule import Demand
from tribunus.planning.states import StatePair, keep_states, with_states
from tribunus.targets.target import Target

FLOOR_RETRIES = 3
"""How often peaks are measured again before a kernel is refused for being impossibly fast."""
CAPTURED_DIMS = 2
"""Cases of a profile, of different dims, whose intermediates are captured: the first of each."""
ROUNDS = 3
"""Rounds of candidates that a session has at most."""
REFUSED = frozenset((OutcomeKind.REJECTED, OutcomeKind.CRASHED, OutcomeKind.TIMED_OUT))
DemandKey: TypeAlias = tuple[Digest, tuple[Layout, ...]]


class JitUse(StrEnum):
    """Use of kernels that generate code when an image is opened."""

    NEEDED = "needed"  # chosen only where nothing else was admitted
    NEVER = "never"
    FREE = "free"  # ranked like any other


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be certified, decided before anything runs.

    choices: digests of the only candidates to certify, None: those that backends propose.
    """

    model: Path
    external_data: bool
    profiles: tuple[DimBindings, ...]
    target: Target
    compute: ComputePolicy
    effort: Budget
    policy: AdmissionPolicy
    jobs: int
    jit: JitUse
    states: tuple[StatePair, ...]
    choices: frozenset[Digest] | None


@dataclass(frozen=True, slots=True)
class Bench:
    """What the session works with: backends, executor, evidence, machine, clock.

    meter: the machine's peaks; None where nothing is timed.
    """

    registry: Registry
    executor: Executor
    ledger: Ledger
    artifacts: ArtifactStore
    documents: DocumentStore
    goldens: Keeper
    meter: PeakMeter | None
    cache_bytes: int
    machine: Machine
    machine_digest: Digest
    versions: tuple[tuple[str, str], ...]
    tools: tuple[tuple[str, str], ...]
    toolchain: Digest
    audit: Callable[[Artifact], tuple[str, ...]]
    used_features: Callable[[Artifact], frozenset[str]]
    clock_ns: Callable[[], int]
    say: Callable[[str], None]
    adversary: Adversary | None = None

    def close(self) -> None:
        """End the executor's children and release the ledger."""
        try:
            self.executor.close()
        finally:
            self.ledger.close()


@dataclass(slots=True)
class Item:
    """A candidate on its way through the checks.

    key: the cache key as recorded when the artifact was built.  note: why it has no artifact, empty otherwise.
    passed_over: why it is not checked though it was built, empty otherwise.  probe_ns: its time in the probe.
    """

    demand: Demand
    backend: Backend
    candidate: Candidate
    round: int
    artifact: Artifact | None = None
    key: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    passed_over: str = ""
    probe_ns: int = 0
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def outcome(self) -> OutcomeKind:
        """What became of it so far."""
        return OutcomeKind.REJECTED if self.note else outcome_of(self.receipts)[0]

    @property
    def error_share(self) -> float:
        """The largest error that any check saw, in units of its budget."""
        return max((receipt.worst_share for receipt in self.receipts), default=0.0)

    @property
    def tail(self) -> float:
        """99th percentile over median of its calls one by one; 1 where they were too few."""
        timing = next((receipt.timing for receipt in self.receipts if receipt.timing is not None), None)
        return 1.0 if timing is None else tail_ratio(timing.cpu_ns, timing.cpu_lost)


@dataclass(frozen=True, slots=True)
class Draft:
    """One profile on its way to a plan.  source: the program as imported, before any pass."""

    name: str
    source: Program
    program: Program
    uses: tuple[CoveredUse, ...]
    profile: ProfileDraft


class Certification:
    """One certification: owns the model, the proposals, the goldens and the verdicts; the one writer of the ledger."""

    def __init__(self, request: Request, bench: Bench, captured: Sequence[CapturedCase]) -> None:
        self.request = request
        self.bench = bench
        self.captured = tuple(captured)
        self.imported: ImportedModel = import_model(
            request.model, request.profiles, external_data=request.external_data
        )
        self.constants = self.imported.constants
        self.programs = tuple(run_passes(program, self.constants) for program in self.imported.programs)
        for program in self.programs:
            require_elements(program)
        self.items: list[Item] = []
        self.drafts: tuple[Draft, ...] = ()
        self.demands: tuple[Demand, ...] = ()
        self.contests: dict[Demand, ContestResult] = {}
        self.reused = 0
        self.differing: dict[str, tuple[str, str]] = {}
        self._refused: frozenset[str] = frozenset()
        self._by_demand: dict[DemandKey, list[Item]] = {}
        self._pool = BuildPool(request.target, bench.artifacts, bench.toolchain, request.jobs, bench.say)
        self._cases: tuple[Digest, CaseBook] | None = None
        self._operands: dict[Digest, list[dict[int, Array]]] = {}
        self._demanded: dict[Digest, Digest] = {}
        self._probed: set[tuple[DemandKey, int]] = set()
        self._require_fitting()
        self._plan()

    def close(self) -> None:
        """Remove what builds left behind.  The bench is its owner's to close."""
        self._pool.close()

    def _require_fitting(self) -> None:
        """Every captured case lies within the dims of some profile.  Raises InputError."""
        for case in self.captured:
            if all(try_bindings(program, case) is None for program in self.programs):
                shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in case.inputs.items())
                raise InputError(
                    f"case {case.name!r} does not fit {' or '.join(map(str, self.request.profiles))}: {shapes}",
                    remedy="widen --dim, or take the case out of --inputs",
                )

    def _plan(self) -> None:
        """Cover, layouts and demands of every profile, for what was not refused so far."""
        request, bench = self.request, self.bench
        drafts: list[Draft] = []
        for position, program in enumerate(self.programs):
            cut = partition(program, 0, self.constants)
            uses = choose_cover(
                program, cut, bench.registry, request.target, request.compute, self.constants, self._refused
            )
            problem = LayoutProblem(
                program,
                program.only_phase,
                [c.use for c in uses],
                [c.signature for c in uses],
                cut.aliases,
                {c.signature.digest: c.choices for c in uses},
            )
            program = with_states(program, request.states)
            schedule = plan_layouts(problem, request.compute, self.constants)
            schedule = keep_states(schedule, program, request.compute, self.constants)
            name = str(request.profiles[position])
            points = tuple(tuple(p[s.name] for s in program.symbols) for p in representatives(program))
            drafts.append(
                Draft(
                    name,
                    self.imported.programs[position],
                    program,
                    tuple(uses),
                    ProfileDraft(name, program, schedule, points),
                )
            )
        self.drafts = tuple(drafts)
        self.demands = tuple({_key(d): d for draft in drafts for d in draft.profile.schedule.demands()}.values())

    def propose(self) -> list[Item]:
        """Candidates for every demand; where no backend has one, another cover is tried."""
        fresh = [item for demand in self.demands for item in self._proposed(demand)]
        self._add(fresh)
        if any(not self.items_of(demand) for demand in self.demands):
            fresh += self.next_round()
        return fresh

    def build(self, items: Sequence[Item]) -> None:
        """Artifacts of those of ``items`` that have neither one nor a note."""
        lacking = [item for item in items if item.artifact is None and not item.note]
        if not lacking:
            return
        made = self._pool.build([Order(i.backend, i.candidate, i.demand.signature) for i in lacking])
        for item, artifact in zip(lacking, made, strict=True):
            if isinstance(artifact, str):
                item.note = artifact
            elif self.request.jit is JitUse.NEVER and artifact.recipe.jit_at_open:
                item.note = "it generates code when opened, which --jit-at-open never rules out"
            else:
                item.artifact = artifact
                item.key = full_key(artifact, self.request.target, self.bench.machine)

    def items_of(self, demand: Demand) -> Sequence[Item]:
        """Every candidate of a demand that was proposed so far."""
        return self._by_demand.get(_key(demand), ())

    def probe(self, item: Item) -> None:
        """Before the first check of a demand: pass over those candidates that a short timing shows to be slow.

        Only what was built takes part: who selects a single candidate gets it checked.
        """
        place = _key(item.demand), item.round
        if place in self._probed:
            return
        self._probed.add(place)
        taking = [i for i in self.items_of(item.demand) if i.round == item.round and i.artifact is not None]
        artifacts = [i.artifact for i in taking if i.artifact is not None]
        if len(taking) <= KEPT or any(i.receipts for i in taking):
            return
        bench, jit = self.bench, self.request.jit
        key = probe_key(artifacts, bench.machine_digest, jit.value)
        result = bench.documents.get("probe", key, probe_from_json)
        if result is None:
            case = self._case_book(item.demand.signature).timing_case()
            result = hold_probe(artifacts, case, bench.executor, jit_is_free=jit is JitUse.FREE)
            bench.documents.put("probe", key, result.document())
        best = min((result.times[digest] for digest in result.kept), default=0)
        for other, artifact in zip(taking, artifacts, strict=True):
            other.probe_ns = result.times[artifact.digest]
            if artifact.digest not in result.kept:
                ratio = other.probe_ns / max(1, best)
                other.passed_over = f"passed over: {ratio:.2f} times the fastest in a short timing of all candidates"

    def check(self, item: Item, check: Check) -> Receipt:
        """One check of one candidate: reused from the ledger where every key field is equal, else made and appended.

        The cache-key check itself is never reused: it is what decides.
        """
        self.build([item])
        artifact = item.artifact
        if artifact is None:
            raise InternalError(f"{item.candidate.name} was never built: {item.note}")
        key = {**item.key, "demands": self._demands_of(artifact.signature)}
        if check is not Check.CACHE_KEY:
            earlier = find_evidence(self.bench.ledger, item.candidate.digest, check, key, self.bench.machine_digest)
            self.differing.update({name: (then, now) for name, then, now in earlier.differing})
            if earlier.receipt is not None:
                self.reused += 1
                item.receipts.append(earlier.receipt)
                return earlier.receipt
        self.bench.executor.renew()
        receipt = FUNCTIONS[check](artifact, self.bench.executor, self._context(item, artifact, check))
        for _ in range(FLOOR_RETRIES):
            # An impossible time is as often a peak that was measured in a busy moment.
            kind = "" if receipt.reason is None else receipt.reason.kind
            if kind != IMPOSSIBLE or self.bench.meter is None or not self.bench.meter.again():
                break
            receipt = FUNCTIONS[check](artifact, self.bench.executor, self._context(item, artifact, check))
        self.bench.ledger.append(receipt, key)
        item.receipts.append(receipt)
        return receipt

    def run_series(self, item: Item) -> Iterator[Receipt]:
        """All six checks in order, ending at the first that does not pass."""
        for check in CHECKS:
            receipt = self.check(item, check)
            yield receipt
            if receipt.verdict is not Verdict.PASSED:
                return

    def admitted(self, demand: Demand) -> list[Item]:
        """Admitted candidates of a demand."""
        return [item for item in self.items_of(demand) if item.outcome is OutcomeKind.ADMITTED]

    def refused(self) -> tuple[Demand, ...]:
        """Demands of which every candidate was judged and refused, or that have none; no matter who was passed over."""
        return tuple(
            d for d in self.demands if all(i.outcome in REFUSED for i in self.items_of(d) if not i.passed_over)
        )

    def next_round(self) -> list[Item]:
        """Items of a further round, for demands of which every candidate was refused.

        First come those that were passed over.  Then backends that know the refusals are asked for other candidates;
        where none has any, another cover is tried.  Empty when no demand is refused, when nothing is left to try, or
        after ROUNDS rounds.
        """
        refused = self.refused()
        if waiting := [item for demand in refused for item in self._waiting(demand)]:
            for item in waiting:
                item.passed_over = ""
            return waiting
        if not refused or max((item.round for item in self.items), default=0) >= ROUNDS:
            return []
        further = {_key(demand): self._proposed(demand) for demand in refused}
        hopeless = {d.signature.digest for d in refused if not further[_key(d)]} - self._refused
        if hopeless:
            self._refused |= hopeless
            try:
                self._plan()
            except TribunusError as error:
                self.bench.say(f"no other cover: {error.detail.splitlines()[0]}")
        fresh: list[Item] = []
        for demand in self.demands:
            if _key(demand) in further:
                fresh += further[_key(demand)]
            elif not self.items_of(demand):
                fresh += self._proposed(demand)
        self._add(fresh)
        return fresh

    def _waiting(self, demand: Demand) -> list[Item]:
        """The fastest of those that were passed over."""
        return sorted((i for i in self.items_of(demand) if i.passed_over), key=lambda i: i.probe_ns)[:KEPT]

    def _proposed(self, demand: Demand) -> list[Item]:
        """Candidates of a demand that were not tried yet, by backends that know what was refused and why."""
        number = 1 + max((item.round for item in self.items), default=0)
        refusals = tuple(_refusal(item) for item in self.items_of(demand))
        request = self.request
        found = proposals(
            demand.signature, demand.layouts, self.bench.registry, request.target, request.effort, refusals
        )
        return [
            Item(demand, backend, candidate, number)
            for backend, candidate in found
            if request.choices is None or candidate.digest in request.choices
        ]

    def _add(self, fresh: Sequence[Item]) -> None:
        self.items.extend(fresh)
        for item in fresh:
            self._by_demand.setdefault(_key(item.demand), []).append(item)

    def unserved(self) -> tuple[Demand, ...]:
        """Demands without an admitted candidate."""
        return tuple(demand for demand in self.demands if not self.admitted(demand))

    def contest(self, demand: Demand) -> ContestResult:
        """Rank the admitted candidates of a demand in one interleaved run; held once."""
        if demand not in self.contests:
            admitted = self.admitted(demand)
            self.contests[demand] = self._contest(admitted) if len(admitted) != 1 else self._walkover(admitted[0])
        return self.contests[demand]

    def _contest(self, admitted: Sequence[Item]) -> ContestResult:
        """A contest among the same artifacts on the same machine is not held again."""
        bench = self.bench
        entries = [Entry(i.candidate, i.artifact, i.error_share, i.tail) for i in admitted if i.artifact is not None]
        key = contest_key(entries, bench.machine_digest, self.request.jit.value)
        known = bench.documents.get("contest", key, contest_from_json)
        if known is not None:
            return known
        case = self._case_book(admitted[0].demand.signature).timing_case()
        free = self.request.jit is JitUse.FREE
        result = hold_contest(entries, case, bench.executor, cold=self._is_cold(), jit_is_free=free)
        bench.documents.put("contest", key, result.document())
        return result

    def _walkover(self, item: Item) -> ContestResult:
        """The only participant wins; its times are those of its timing receipt."""
        timing = next(receipt.timing for receipt in item.receipts if receipt.check is Check.TIMING)
        if timing is None:
            raise InternalError(f"{item.candidate.name} was admitted without times")
        typical = int(statistics.median(timing.cold_ns if self._is_cold() and timing.cold_ns else timing.warm_ns))
        place = Place(item.candidate.digest, typical, int(typical * item.tail), item.error_share)
        kind = self.bench.executor.kind
        return ContestResult(item.demand.signature.digest, kind, (place,), item.candidate.digest, 0.0, 1)

    def winners(self) -> dict[Demand, Winner]:
        """The winner of every demand.  Every demand must be served."""
        found: dict[Demand, Winner] = {}
        for demand in self.demands:
            result = self.contest(demand)
            item = next(i for i in self.admitted(demand) if i.candidate.digest == result.winner)
            if item.artifact is not None:
                key = content_key(item.candidate, demand.signature, self.request.target)
                found[demand] = Winner(item.artifact, item.backend, key)
        return found

    def generated_case(self, draft: Draft) -> CapturedCase:
        """A case for a profile that nobody captured one for: the program's own vector at the expected dims."""
        program = draft.program
        inputs = generate_inputs(program, program.scope.optimum())
        named = {program.values[value].label: array for value, array in inputs.items()}
        return CapturedCase(f"generated {draft.name}", named, None)

    def policy_document(self) -> JsonObject:
        """Everything that was demanded, for the signed statement."""
        policy = self.request.policy
        return {
            "compute": self.request.compute.value,
            "effort": self.request.effort.effort.value,
            "limit": self.request.effort.limit,
            "probe": KEPT,
            "suite": SUITE,
            "slack": str(policy.slack),
            "minimum_cases": policy.minimum_cases,
            "replays": [[axis.value, count] for axis, count in policy.replays],
        }

    def _is_cold(self) -> bool:
        """Whether weights come from memory: all of them together exceed the last-level cache."""
        return sum(array.nbytes for array in self.constants.view().values()) > self.bench.cache_bytes

    def host_code(self, role: str) -> Code:
        """Code that serves a plan, by one of the session's backends, else by any that is installed."""
        return self._pool.host_code(role, [*self.bench.registry, *installed_backends()])

    def _case_book(self, signature: Signature) -> CaseBook:
        """Cases of a signature; only the last one is kept, because candidates come grouped by signature."""
        if self._cases is None or self._cases[0] != signature.digest:
            if not self._operands:
                self._operands = self._capture()
            operands = self._operands.get(signature.digest, ())
            self._cases = signature.digest, CaseBook(signature, operands, self.bench.goldens)
        return self._cases[1]

    def _demands_of(self, signature: Signature) -> Digest:
        """What evidence depends on beside the artifact and the machine: the policy and the captured operands."""
        if signature.digest not in self._demanded:
            captured: list[Json] = [
                [[value, digest_bytes(np.ascontiguousarray(array).tobytes())] for value, array in sorted(case.items())]
                for case in self._operands.get(signature.digest, ())
            ]
            drawn = self.bench.adversary is not None
            self._demanded[signature.digest] = digest_of([self.policy_document(), captured, drawn])
        return self._demanded[signature.digest]

    def _capture(self) -> dict[Digest, list[dict[int, Array]]]:
        found: dict[Digest, list[dict[int, Array]]] = {}
        for draft in self.drafts:
            uses = [(c.use, c.signature.digest) for c in draft.uses]
            chosen: dict[tuple[tuple[str, int], ...], tuple[CapturedCase, dict[str, int]]] = {}
            for case in self.captured:
                fitting = try_bindings(draft.program, case)
                if fitting is not None:
                    chosen.setdefault(tuple(sorted(fitting.items())), (case, fitting))
            for case, bindings in list(chosen.values())[:CAPTURED_DIMS]:
                for digest, operands in capture_operands(draft.program, self.constants, case, bindings, uses).items():
                    found.setdefault(digest, []).extend(operands)
        return found

    def _context(self, item: Item, artifact: Artifact, check: Check) -> CheckContext:
        bench, request = self.bench, self.request
        return CheckContext(
            signature=item.demand.signature,
            target=request.target,
            policy=request.policy,
            cases=self._case_book(item.demand.signature),
            layouts=item.demand.layouts,
            peaks=bench.meter.best if bench.meter is not None and check is Check.TIMING else None,
            key_of=lambda a: full_key(a, request.target, bench.machine),
            expected_key=item.key,
            audit=bench.audit,
            used_features=bench.used_features,
            machine=bench.machine_digest,
            versions=bench.versions,
            clock_ns=bench.clock_ns,
            adversary=bench.adversary,
        )


def require_elements(program: Program) -> None:
    """Nothing that a kernel gives could be wrong where a result has no element.  Raises DimError naming the first."""
    for op in (op for phase in program.phases for op in phase.ops):
        for result in op.outputs:
            type_ = program.type_of(result)
            if type_.elements == 0:
                raise DimError(
                    f"{program.values[result].label} has the shape {list(type_.shape)}: it has no element, and "
                    f"{op.kind}, which computes it, cannot be checked",
                    remedy="certify with dims at which every value has elements, or cut that part off the model",
                )


def representatives(program: Program) -> list[Mapping[str, int]]:
    """Dims at which a program is certified: all at the expected, the smallest and the largest values."""
    scope = program.scope
    points = [scope.optimum(), {s.name: s.lo for s in program.symbols}, scope.upper()]
    return [dict(p) for p in dict.fromkeys(tuple(point.items()) for point in points)]


def toolchain_digest(registry: Registry, versions: Sequence[tuple[str, str]]) -> Digest:
    """Identity of what builds artifacts: names of backends and versions of tools."""
    return digest_of([list(registry.backends), [[name, version] for name, version in versions]])


def _key(demand: Demand) -> DemandKey:
    """What identifies a demand, cheap to hash."""
    return demand.signature.digest, demand.layouts


def _refusal(item: Item) -> Refusal:
    """What a backend may learn from a candidate that was tried."""
    last = item.receipts[-1] if item.receipts else None
    if last is None or last.reason is None:
        return Refusal(item.candidate.digest, "build" if item.note else "", item.note, ())
    figures = tuple((f.what, f.seen, f.allowed) for f in last.reason.figures)
    return Refusal(item.candidate.digest, last.check.value, last.reason.kind, figures)
