"""From a finished session to its report: the report model filled from items, receipts, plan and image.

Imported by: finishing.  Imports: runner, reports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tribunus_reports import judge
from tribunus_reports.command import write_all
from tribunus_reports.model import (
    QUANTILES,
    SCHEMA,
    CandidateRow,
    ContestEntry,
    ContestRow,
    ProgramCheckRow,
    ReceiptRow,
    Report,
    SignatureRow,
    WitnessRow,
)
from tribunus_reports.model_parts import (
    BlockFacts,
    Buffer,
    BufferRole,
    Check,
    DimFacts,
    Figure,
    ImageFacts,
    LaunchRow,
    LedgerFacts,
    Made,
    MemoryFacts,
    ModelFacts,
    PhaseFacts,
    PlanFacts,
    PolicyFacts,
    Reason,
    RegionEvidence,
    RegionFacts,
    SessionFacts,
    Signer,
    Verdict,
    WitnessVerdict,
    Worst,
)
from tribunus_reports.policy import default_policy

from tribunus.admission.receipt import CaseRecord, Receipt
from tribunus.admission.receipt import Check as CoreCheck
from tribunus.admission.receipt import Reason as CoreReason
from tribunus.admission.suite import suite_identity
from tribunus.admission.timing_check import SAMPLE_NS
from tribunus.candidates.work import work_of
from tribunus.canon import digest_of
from tribunus.certification.pipeline import Draft, Item
from tribunus.certification.program_check import ProgramReceipt
from tribunus.image.read import open_image
from tribunus.phaseir.program import program_digest
from tribunus.plan.plan import BufferRole as PlanRole
from tribunus.planning.schedule import Demand
from tribunus.version import VERSION
from tribunus_certify.runner import Runner

PERCENTILES = (1, *range(5, 100, 5), 99)


def write_reports(runner: Runner) -> list[str]:
    """Write JSON, HTML, Markdown and JUnit beside the image; returns lines for the terminal."""
    now = datetime.now(UTC)
    report = build_report(runner, now)
    runner.settings.output.mkdir(parents=True, exist_ok=True)
    write_all(report, runner.settings.output, runner.stem, default_policy(), now=now)
    counts: dict[str, int] = {}
    for row in report.candidates:
        counts[row.outcome.value] = counts.get(row.outcome.value, 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    lines = [f"candidates: {told}", f"report: {runner.settings.output / runner.stem}.report.html"]
    if runner.certification.reused:
        lines.append(f"receipts reused from the ledger: {runner.certification.reused}")
    for name, (then, now_) in sorted(runner.certification.differing.items()):
        lines.append(f"evidence made again, key differs in {name}: {then[:40]} -> {now_[:40]}")
    return lines


def build_report(runner: Runner, now: datetime) -> Report:
    """The report of a session, complete or not."""
    certification = runner.certification
    target = certification.request.target
    signatures = [_signature(runner, demand) for demand in _all_demands(runner)]
    receipts = _receipts(runner)
    by_candidate = judge.receipts_by_candidate(receipts)
    candidates = [_candidate(runner, item, by_candidate.get(_key(runner, item), ())) for item in runner.items]
    program = [_program(receipt, target.name, runner) for receipt in _program_receipts(runner)]
    regions = (RegionFacts(target=target.name, staged=False, note=f"{len(signatures)} signatures, device"),)
    facts = certification.imported.facts
    first = certification.drafts[0].program
    return Report(
        schema=SCHEMA,
        made=Made(at=_time(now), tool=f"tribunus {VERSION}"),
        name=runner.name,
        state=judge.state_of(regions, signatures, candidates, program),
        note="" if runner.problem is None else runner.problem.detail.splitlines()[0],
        regions=regions,
        model=ModelFacts(
            file=runner.settings.model.name,
            digest=facts.digest,
            program=program_digest(first),
            producer=f"{facts.producer}, opset {facts.opset}",
            parameters=facts.parameters,
            dims=tuple(
                DimFacts(name=s.label, low=s.lo, opt=s.opt, high=s.hi)
                for draft in certification.drafts
                for s in draft.program.symbols
            ),
        ),
        session=_session(runner),
        policy=PolicyFacts(
            compute=certification.request.compute.value, budgets=digest_of(certification.policy_document())
        ),
        signatures=tuple(signatures),
        candidates=tuple(candidates),
        receipts=tuple(receipts),
        contests=_contests(runner),
        program_checks=tuple(program),
        witnesses=_witnesses(runner, program),
        plan=_plan(runner),
        ledger=LedgerFacts(
            file=certification.bench.ledger.path.name,
            root=certification.bench.ledger.root,
            entries=certification.bench.ledger.entries,
        ),
        image=_image(runner, now),
        baseline=None,
    )


def _all_demands(runner: Runner) -> list[Demand]:
    """Demands of the cover, then those that earlier rounds gave up."""
    return list(dict.fromkeys([*runner.certification.demands, *(item.demand for item in runner.items)]))


def _key(runner: Runner, item: Item) -> tuple[str, str]:
    return runner.demand_id(item.demand), runner.candidate_id(item)


def _signature(runner: Runner, demand: Demand) -> SignatureRow:
    certification = runner.certification
    signature = demand.signature
    draft, uses = _place(certification.drafts, demand)
    work = work_of(signature, signature.program.scope.optimum())
    timed = any(r.timing is not None for i in certification.items_of(demand) for r in i.receipts)
    meter = certification.bench.meter if timed else None
    peaks = None if meter is None else meter.seen or meter.best  # of reused receipts nothing may have been measured
    contest = certification.contests.get(demand)
    chosen = None
    if contest is not None:
        winner = next(i for i in certification.admitted(demand) if i.candidate.digest == contest.winner)
        chosen = runner.candidate_id(winner)
    border = [signature.type_of(v) for v in (*signature.inputs, *signature.weights)]
    return SignatureRow(
        id=runner.demand_id(demand),
        digest=signature.digest if _alone(runner, demand) else digest_of([signature.digest, runner.demand_id(demand)]),
        name=_origin(draft, demand),
        op=signature.label,
        shape=" . ".join("x".join(map(str, t.shape)) or "scalar" for t in border)[:200],
        dtype=" ".join(dict.fromkeys(t.dtype.value for t in border)) or "f32",
        policy=signature.policy.value,
        region=certification.request.target.name,
        phase=draft.program.only_phase.name,
        profile=draft.name if len(certification.drafts) > 1 else "",
        uses=uses,
        used=demand in certification.demands,
        flops=int(work.weighted),
        bytes=work.nbytes,
        budget_ns=work.budget_ns(peaks, certification.request.policy.slack) if peaks is not None else 0,
        floor_ns=work.floor_ns(peaks) if peaks is not None else 0,
        chosen=chosen,
        why="fastest of the admitted" if chosen is not None else "no admitted candidate",
    )


def _alone(runner: Runner, demand: Demand) -> bool:
    return runner.demand_id(demand) == demand.signature.name


def _place(drafts: Sequence[Draft], demand: Demand) -> tuple[Draft, int]:
    """The first profile that launches a demand, and how often; the first profile where none does."""
    for draft in drafts:
        count = sum(1 for step in draft.profile.schedule.steps if step.demand == demand)
        if count:
            return draft, count
    return drafts[0], 0


def _origin(draft: Draft, demand: Demand) -> str:
    """Label of the first value that the signature computes in the model."""
    for step in draft.profile.schedule.steps:
        if step.demand == demand:
            return draft.program.values[draft.profile.schedule.values[step.outputs[0]].origin].label[:200]
    return ""


def _receipts(runner: Runner) -> list[ReceiptRow]:
    began_us = runner.begin_ns // 1000
    rows = [
        _receipt(receipt, _key(runner, item), began_us) for item in runner.items for receipt in _ordered(item.receipts)
    ]
    return list({row.digest: row for row in rows}.values())


def _ordered(receipts: Sequence[Receipt]) -> list[Receipt]:
    order = list(CoreCheck)
    return sorted(receipts, key=lambda r: order.index(r.check))


def _receipt(receipt: Receipt, key: tuple[str, str], began_us: int) -> ReceiptRow:
    worst = max(receipt.cases, key=lambda case: case.share, default=None)
    return ReceiptRow(
        digest=receipt.digest,
        signature=key[0],
        candidate=key[1],
        check=Check(receipt.check.value),
        verdict=Verdict(receipt.verdict.value),
        executor=receipt.executor.value,
        reason=_reason(receipt.reason),
        vector="" if worst is None else worst.vector,
        seed=0 if worst is None else worst.seed,
        cases=sum(1 for case in receipt.cases if case.counted),
        cases_mistrusted=sum(1 for case in receipt.cases if not case.counted),
        elements=sum(case.elements for case in receipt.cases if case.counted),
        worst=None if worst is None else _worst(worst),
        at_ms=max(0, (receipt.started_us - began_us) // 1000),
        took_ms=receipt.took_ns // 1_000_000,
    )


def _reason(reason: CoreReason | None) -> Reason | None:
    if reason is None:
        return None
    figures = tuple(Figure(what=f.what, seen=f.seen, allowed=f.allowed) for f in reason.figures)
    return Reason(kind=reason.kind, text=reason.text, figures=figures)


def _worst(case: CaseRecord) -> Worst:
    return Worst(
        index=case.index,
        output=0,
        golden=float(case.golden),
        got=float(case.got),
        error_share=case.share if not math.isnan(case.share) else math.inf,
        ulp=case.error_ulp,
        budget_ulp=case.budget_ulp,
    )


def _candidate(runner: Runner, item: Item, receipts: Sequence[ReceiptRow]) -> CandidateRow:
    outcome, stopped_by = judge.outcome_of(receipts)
    timing = next((r.timing for r in item.receipts if r.timing is not None), None)
    warm = quantiles(timing.warm_ns) if timing is not None and timing.warm_ns else ()
    shares = [receipt.worst_share for receipt in item.receipts if receipt.cases]
    return CandidateRow(
        signature=runner.demand_id(item.demand),
        id=runner.candidate_id(item),
        backend=item.backend.name,
        config=str(item.candidate.config),
        artifact="" if item.artifact is None else item.artifact.digest,
        reproducibility=item.candidate.reproducibility.value,
        round=item.round,
        code_bytes=0 if item.artifact is None else len(item.artifact.code.data),
        jit_at_open=item.artifact is not None and item.artifact.recipe.jit_at_open,
        outcome=outcome,
        stopped_by=stopped_by,
        note=item.note or item.passed_over,
        error_share=max((s if not math.isnan(s) else math.inf for s in shares), default=0.0),
        p50_ns=warm[QUANTILES // 2] if warm else 0,
        warm_ns=warm,
        cold_ns=quantiles(timing.cold_ns) if timing is not None and timing.cold_ns else (),
    )


def quantiles(samples: Sequence[int]) -> tuple[int, ...]:
    """p1, p5, p10 ... p95, p99 of samples, by nearest rank; at least 1 ns."""
    ordered = sorted(samples)
    return tuple(max(1, ordered[min(len(ordered) - 1, len(ordered) * p // 100)]) for p in PERCENTILES)


def _contests(runner: Runner) -> tuple[ContestRow, ...]:
    rows: list[ContestRow] = []
    for demand, result in runner.certification.contests.items():
        names = {i.candidate.digest: runner.candidate_id(i) for i in runner.certification.items_of(demand)}
        rows.append(
            ContestRow(
                digest=result.digest,
                signature=runner.demand_id(demand),
                executor=result.executor.value,
                entries=tuple(
                    ContestEntry(candidate=names[p.candidate], p50_ns=p.time_ns, p99_ns=p.p99_ns) for p in result.places
                ),
                winner=names[result.winner],
                aa_spread=result.spread,
                tied=result.tied,
            )
        )
    return tuple(rows)


def _program_receipts(runner: Runner) -> Sequence[ProgramReceipt]:
    return runner.program_so_far


def _program(receipt: ProgramReceipt, region: str, runner: Runner) -> ProgramCheckRow:
    return ProgramCheckRow(
        digest=receipt.digest,
        region=region,
        profile=receipt.profile if len(runner.certification.drafts) > 1 else "",
        case=receipt.case,
        verdict=Verdict(receipt.verdict.value),
        executor="device",
        reason=_reason(receipt.reason),
        bit_equal=receipt.bit_equal,
        error_share=receipt.error_share,
        elements=receipt.elements,
        steps=receipt.steps,
        at_ms=max(0, receipt.started_us // 1000 - runner.begin_ns // 1_000_000),
        took_ms=receipt.took_ns // 1_000_000,
    )


def _witnesses(runner: Runner, program: Sequence[ProgramCheckRow]) -> tuple[WitnessRow, ...]:
    rows: list[WitnessRow] = []
    for receipt, row in zip(_program_receipts(runner), program, strict=True):
        witness = receipt.witness
        if witness is not None:
            rows.append(
                WitnessRow(
                    receipt=row.digest,
                    region=row.region,
                    profile=row.profile,
                    case=row.case,
                    witness=witness.engine,
                    verdict=WitnessVerdict(witness.answer.value),
                    reason=witness.reason,
                    output=witness.output,
                    distance=witness.distance,
                    limit=witness.limit,
                    compared=witness.compared,
                    outputs=witness.outputs,
                )
            )
    return tuple(rows)


def _plan(runner: Runner) -> PlanFacts:
    certification = runner.certification
    several = len(certification.drafts) > 1
    region = runner.region_so_far
    phases: list[PhaseFacts] = []
    memory: list[MemoryFacts] = []
    timed = {c.case: c for c in runner.program_so_far}
    for position, draft in enumerate(certification.drafts):
        schedule = draft.profile.schedule
        writer: dict[int, int] = {}
        rows: list[LaunchRow] = []
        for step in schedule.steps:
            reads = tuple(dict.fromkeys(writer.get(schedule.root(v), -1) for v in step.inputs))
            rows.append(LaunchRow(signature=runner.demand_id(step.demand), reads=reads, note=""))
            writer.update((schedule.root(v), len(rows) - 1) for v in step.outputs)
        mine = [c for c in timed.values() if c.profile == draft.name]
        typical = sorted(mine, key=lambda c: c.wall_ns)[len(mine) // 2] if mine else None
        name = draft.program.only_phase.name
        profile = draft.name if several else ""
        phases.append(
            PhaseFacts(
                name=name,
                region=certification.request.target.name,
                profile=profile,
                dims=draft.name,
                p50_ns=0 if typical is None else typical.wall_ns,
                p99_ns=0 if typical is None else typical.wall_p99_ns,
                budget_ns=0,
                blocks=(BlockFacts(name="program", repeat=1, rows=tuple(rows)),),
            )
        )
        if region is not None:
            memory.append(_memory(runner, position, name, profile))
    return PlanFacts(phases=tuple(phases), edges=(), memory=tuple(memory))


def _memory(runner: Runner, position: int, phase: str, profile: str) -> MemoryFacts:
    region = runner.region()
    plan_profile = region.plan.profiles[position]
    draft = runner.certification.drafts[position]
    launches = len(plan_profile.launches)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    writer: dict[int, str] = {}
    for number, launch in enumerate(plan_profile.launches):
        for slot in launch.args:
            if slot.kind.value == "buffer":
                first.setdefault(slot.index, number)
                last[slot.index] = number
        outputs = len(region.plan.kernels[launch.kernel].recipe.inputs)
        count = len(region.plan.kernels[launch.kernel].recipe.outputs)
        for slot in launch.args[outputs : outputs + count]:
            step = draft.profile.schedule.steps[number]
            writer.setdefault(slot.index, runner.demand_id(step.demand))
    labels: Mapping[int, str] = {p.buffer: p.label for p in (*plan_profile.inputs, *plan_profile.outputs)}
    buffers: list[Buffer] = []
    for number, buffer in enumerate(plan_profile.buffers):
        begin, end = first.get(number, 0), last.get(number, 0)
        if buffer.role is PlanRole.INPUT:
            begin, end = 0, launches - 1
        elif buffer.role is PlanRole.OUTPUT:
            end = launches - 1
        buffers.append(
            Buffer(
                label=labels.get(number, f"value {number}"),
                offset_bytes=buffer.offset,
                size_bytes=buffer.size,
                first=begin,
                last=max(begin, end),
                role=BufferRole.VALUE,
                signature=writer.get(number, ""),
            )
        )
    return MemoryFacts(
        region=region.plan.target,
        phase=phase,
        profile=profile,
        launches=launches,
        arena_bytes=plan_profile.arena,
        lower_bound_bytes=min(region.memory[position].lower_bound, plan_profile.arena),
        states=(),
        buffers=tuple(buffers),
    )


def _session(runner: Runner) -> SessionFacts:
    bench = runner.certification.bench
    peaks = None if bench.meter is None else bench.meter.seen
    machine = [("cpu", bench.machine.processor), ("facts", bench.machine_digest[:12])]
    if peaks is not None:
        machine.append(("peak", f"{peaks.flops / 1e9:.1f} GFLOP/s fp32, one thread"))
        machine.append(("fastest read", f"{peaks.fastest / 1e9:.1f} GB/s"))
        machine.append(("timing sample", f"at least {SAMPLE_NS // 1000} us"))
    return SessionFacts(
        started=_time(runner.started),
        seconds=int((datetime.now(UTC) - runner.started).total_seconds()),
        effort=runner.settings.effort,
        seed=0,
        suite=digest_of(suite_identity()),
        command=runner.command(),
        target_option=runner.settings.target,
        machine=tuple(machine),
        toolchain=tuple(v for v in bench.versions if v[0] != "tribunus"),
    )


def _image(runner: Runner, now: datetime) -> ImageFacts | None:
    sealed, signer = runner.sealed, runner.signer
    if sealed is None or sealed.path is None or signer is None:
        return None
    with open_image(sealed.path) as image:
        admission = image.admission(0)
        envelope = image.contents.evidence[0].envelope
        statement = digest_of([image.envelope(0).payload.decode("utf-8")])
        regions = tuple(
            RegionEvidence(
                target=r.target,
                manifest=r.manifest,
                admissions_root=r.admissions.root,
                receipts_root=r.receipts.root,
                receipts=len(image.region(r.target).receipts().splitlines()),
                kernels=r.kernels,
            )
            for r in admission.regions
        )
        return ImageFacts(
            id=image.image_id,
            file=sealed.path.name,
            bytes=image.size,
            epoch=runner.settings.epoch,
            statement=statement,
            regions=regions,
            signers=(
                Signer(
                    name="builder",
                    keyid=signer.keyid,
                    at=_time(now),
                    role="builder",
                    development=runner.settings.key is None,
                    envelope=envelope.digest,
                ),
            ),
        )


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
