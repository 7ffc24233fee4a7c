"""Reports made up for the tests: small or large, in every state, with honest names or hostile ones.

Deterministic: the same arguments make the same report.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Sequence

from tribunus_reports.judge import outcome_of, state_of
from tribunus_reports.model import (
    DEVICE,
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
    Baseline,
    BaselineRow,
    BlockFacts,
    Buffer,
    BufferRole,
    Change,
    Check,
    DimFacts,
    Figure,
    ImageFacts,
    LaunchRow,
    LedgerFacts,
    Made,
    MemoryFacts,
    ModelFacts,
    Outcome,
    PhaseFacts,
    PlanFacts,
    PolicyFacts,
    Reason,
    RegionEvidence,
    RegionFacts,
    ReportState,
    SessionFacts,
    Signer,
    StateFacts,
    Verdict,
    WitnessVerdict,
    Worst,
)

HOSTILE = (
    'vision/patch_embed"><img src=x onerror=alert(1)>',
    "</script><script>document.title='pwned'</script>",
    "lm/layers.*/mlp/\u202egnp.exe\u202c",
    "__proto__",
    "constructor",
    "lm/" + "very_long_module_name_exported_by_a_tracer/" * 14 + "output_0",
    "a\u200bb\u0007 ${alert(1)} {{7*7}} {{ self }} `id` $(id) ; rm -rf ~",
    "]]></failure><failure> | pipe | **bold** [link](http://evil.example) <!-- x",
    "lone \ud800 surrogate, nul \x00, next line \x85, BOM \ufeff",
    "@everyone www.evil.example\n# heading\n- item\r\n| a | b |",
)
TARGET = "cpu-x86-64-v3"
OPS = (
    ("matmul", "196x384 . 384x1152", 200_000_000),
    ("conv", "3x224x224, k16 s16", 150_000_000),
    ("layernorm", "196x384", 900_000),
    ("softmax", "6x196x196", 2_300_000),
    ("matmul+gelu", "196x384 . 384x1536", 260_000_000),
    ("add", "196x384", 80_000),
)
REFUSALS = {
    Check.ORACLE: ("element beyond its budget", "Worst element is 14.2 times its error budget"),
    Check.SHAPE: ("out of bounds", "Reads 16 bytes past the end of input 1 at S = 65: guard page hit"),
    Check.LAYOUT: ("padding is read", "Poisoned padding columns 896 to 911 change 28 results"),
    Check.TIMING: ("above the time budget", "Warm p50 is 1.94 times the budget"),
    Check.REPLAY: ("bits differ", "Replay 7 of 16 differs in 3 elements under thread jitter"),
    Check.CACHE_KEY: ("features differ", "Key names avx512_fp16, which the target lacks"),
}


def hex_digest(*parts: object) -> str:
    return hashlib.sha256("\x00".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def quantiles(rng: random.Random, median: int) -> tuple[int, ...]:
    return tuple(sorted(int(median * (0.98 + 0.04 * at / 20 + rng.uniform(0, 0.004))) for at in range(21)))


def a_reason(check: Check, text: str | None = None) -> Reason:
    kind, sentence = REFUSALS[check]
    figures = (Figure(what="error / budget", seen="14.2", allowed="1"), Figure(what="elements", seen="3", allowed="0"))
    return Reason(kind=kind, text=text or sentence, figures=figures)


def a_receipt(
    signature: str,
    candidate: str,
    check: Check,
    *,
    verdict: Verdict = Verdict.PASSED,
    executor: str = DEVICE,
    reason: Reason | None = None,
    error: float = 0.3,
    at_ms: int = 0,
    cases: int = 14,
    seed: int = 7,
) -> ReceiptRow:
    numeric = check in (Check.ORACLE, Check.SHAPE, Check.LAYOUT)
    if verdict is not Verdict.PASSED and reason is None:
        reason = a_reason(check)
    worst = Worst(
        index=(12, 880),
        output=0,
        golden=1.25,
        got=1.25 + error * 1e-6,
        error_share=error,
        ulp=error * 8,
        budget_ulp=8.0,
    )
    return ReceiptRow(
        digest=hex_digest("receipt", signature, candidate, check),
        signature=signature,
        candidate=candidate,
        check=check,
        verdict=verdict,
        executor=executor,
        reason=reason,
        vector="rand@1" if numeric else "",
        seed=seed,
        cases=cases,
        cases_mistrusted=0,
        elements=25_088,
        worst=worst if numeric else None,
        at_ms=at_ms,
        took_ms=42,
    )


class _Session:
    """Grows the rows of one report."""

    def __init__(self, seed: int, hostile: bool) -> None:
        self.rng = random.Random(seed)
        self.hostile = hostile
        self.receipts: list[ReceiptRow] = []
        self.candidates: list[CandidateRow] = []
        self.signatures: list[SignatureRow] = []
        self.contests: list[ContestRow] = []

    def signature(self, at: int, tries: int, *, doomed: bool, staged: bool, target: str, phase: str) -> None:
        op, shape, flops = OPS[at % len(OPS)]
        digest = hex_digest("signature", at, target)
        name = f"{op.split('+')[0]}-{digest[:8]}"
        budget = max(4_000, flops // 60)
        rows = []
        for number in range(tries):
            sound = number == 0 and not doomed
            rows.append(self._candidate(name, number, budget, sound=sound, doomed=doomed, staged=staged))
        good = [row for row in rows if row.outcome in (Outcome.ADMITTED, Outcome.STAGED)]
        chosen = min(good, key=lambda row: row.p50_ns, default=None)
        if chosen is not None and len(good) > 1 and not staged:
            ranked = sorted(good, key=lambda row: row.p50_ns)
            entries = tuple(ContestEntry(candidate=row.id, p50_ns=row.p50_ns, p99_ns=row.warm_ns[20]) for row in ranked)
            digest_of_contest = hex_digest("contest", name)
            self.contests.append(
                ContestRow(
                    digest=digest_of_contest,
                    signature=name,
                    executor=DEVICE,
                    entries=entries,
                    winner=chosen.id,
                    aa_spread=0.004,
                    tied=1,
                )
            )
        hostile = HOSTILE[at % len(HOSTILE)]
        self.candidates += rows
        self.signatures.append(
            SignatureRow(
                id=name,
                digest=digest,
                name=hostile if self.hostile else f"encoder/blocks.*/{op}_{at}",
                op=op,
                shape=f"{shape} {hostile}" if self.hostile else shape,
                dtype="f32",
                policy="fp32",
                region=target,
                phase=phase,
                profile="",
                uses=12,
                used=True,
                flops=flops,
                bytes=flops // 8,
                budget_ns=budget,
                floor_ns=budget // 8,
                chosen=None if chosen is None else chosen.id,
                why="no admitted candidate" if chosen is None else "fastest of the admitted",
            )
        )

    def _candidate(
        self, signature: str, number: int, budget: int, *, sound: bool, doomed: bool, staged: bool
    ) -> CandidateRow:
        rng = self.rng
        backend = "onednn" if number % 4 == 3 else "native"
        name = f"{backend}-{hex_digest(signature, number)[:6]}"
        checks = list(Check)[:3] if staged else list(Check)
        fate: Check | None = None
        if not sound and (doomed or rng.random() < 0.45):
            fate = rng.choice([check for check in checks for _ in range(6 if check is Check.TIMING else 2)])
        verdict = Verdict.REJECTED
        if fate is not None and not doomed and rng.random() < 0.12:
            verdict = rng.choice([Verdict.CRASHED, Verdict.TIMED_OUT])
        error = round(rng.uniform(0.05, 0.7), 4)
        if fate is Check.ORACLE:
            error = round(10 ** rng.uniform(0.1, 3), 3)
        mine: list[ReceiptRow] = []
        for check in checks:
            last = check is fate
            reason = None
            if last:
                reason = a_reason(check, f"Refused at {HOSTILE[number % len(HOSTILE)]}" if self.hostile else None)
            receipt = a_receipt(
                signature,
                name,
                check,
                verdict=verdict if last else Verdict.PASSED,
                executor="msl-shim" if staged else DEVICE,
                reason=reason,
                error=error,
                at_ms=50 * (len(self.receipts) + len(mine)),
                seed=rng.getrandbits(48),
            )
            mine.append(receipt)
            if last:
                break
        self.receipts += mine
        timed = any(row.check is Check.TIMING for row in mine) and (verdict is Verdict.REJECTED or fate is None)
        median = int(budget * (1.94 if fate is Check.TIMING else rng.uniform(0.3, 0.95)))
        outcome, stopped_by = outcome_of(mine)
        return CandidateRow(
            signature=signature,
            id=name,
            backend=backend,
            config=f"tile {rng.choice([4, 6, 8])}x{rng.choice([16, 32])}, unroll {number % 4 + 1}",
            artifact=hex_digest("artifact", signature, number),
            reproducibility="R",
            round=1 + number // 6,
            code_bytes=rng.randint(600, 42_000),
            jit_at_open=False,
            outcome=outcome,
            stopped_by=stopped_by,
            note="",
            error_share=error,
            p50_ns=median if timed else 0,
            warm_ns=quantiles(rng, median) if timed else (),
            cold_ns=quantiles(rng, int(median * 1.3)) if timed else (),
        )


def a_plan(signatures: Sequence[SignatureRow], candidates: Sequence[CandidateRow], *, hostile: bool) -> PlanFacts:
    """Phases ``encode`` and ``head`` over the signatures, and memory if every one has a kernel."""
    rows = {(row.signature, row.id): row for row in candidates}
    phases, memory = [], []
    for name in dict.fromkeys(row.phase for row in signatures) or ("encode",):
        mine = [row for row in signatures if row.phase == name]
        target = mine[0].region if mine else TARGET
        launch = [
            LaunchRow(signature=row.id, reads=(at - 1, -1) if at and at % 3 == 0 else (at - 1,), note="")
            for at, row in enumerate(mine)
        ]
        times = [0 if row.chosen is None else 12 * rows[row.id, row.chosen].p50_ns for row in mine]
        whole = bool(times) and all(times)
        block = BlockFacts(name=HOSTILE[1] if hostile else "layers", repeat=12, rows=tuple(launch))
        phases.append(
            PhaseFacts(
                name=name,
                region=target,
                profile="",
                dims="S = 128",
                p50_ns=sum(times) if whole else 0,
                p99_ns=int(sum(times) * 1.03) if whole else 0,
                budget_ns=12 * sum(row.budget_ns for row in mine),
                blocks=(block,),
            )
        )
        if whole:
            size = 301_056
            buffers = [
                Buffer(
                    label=HOSTILE[at % len(HOSTILE)] if hostile else f"layers.{at}/{row.op}",
                    offset_bytes=size * (at % 3),
                    size_bytes=size,
                    first=at,
                    last=min(at + 1, len(mine) - 1),
                    role=BufferRole.WORKSPACE if at % 4 == 3 else BufferRole.VALUE,
                    signature=row.id if at else "",
                )
                for at, row in enumerate(mine)
            ]
            memory.append(
                MemoryFacts(
                    region=target,
                    phase=name,
                    profile="",
                    launches=len(mine),
                    arena_bytes=size * 3,
                    lower_bound_bytes=size * 2,
                    states=(StateFacts(name="KV pages", size_bytes=16_777_216),),
                    buffers=tuple(buffers),
                )
            )
    names = [phase.name for phase in phases]
    return PlanFacts(phases=tuple(phases), edges=tuple(itertools.pairwise(names)), memory=tuple(memory))


def a_report(
    kind: str = "admitted", *, signatures: int = 8, candidates: int = 9, hostile: bool = False, seed: int = 20261129
) -> Report:
    """A report of the ``kind`` admitted, rejected, staged (one region waits), all-staged or empty."""
    session = _Session(seed, hostile)
    tries = 0 if kind == "empty" else candidates
    regions = [RegionFacts(target=TARGET, staged=kind == "all-staged", note=f"{signatures} signatures")]
    for at in range(signatures):
        doomed = kind == "rejected" and at == 0
        phase = "encode" if at < max(1, signatures * 2 // 3) else "head"
        session.signature(at, tries, doomed=doomed, staged=kind == "all-staged", target=TARGET, phase=phase)
    plain = list(session.signatures)
    if kind == "staged":
        regions.append(RegionFacts(target="metal-apple9", staged=True, note="2 signatures, msl-shim"))
        for at in range(2):
            session.signature(at, tries, doomed=False, staged=True, target="metal-apple9", phase="decode")
    plan = a_plan(session.signatures, session.candidates, hostile=hostile)
    image_id = hex_digest("image", seed)
    programs: tuple[ProgramCheckRow, ...] = ()
    witnesses: tuple[WitnessRow, ...] = ()
    if kind in ("admitted", "staged"):
        programs = tuple(a_program_check(case) for case in (HOSTILE if hostile else ("case-0",)))
        answers = list(WitnessVerdict)
        witnesses = tuple(
            a_witness(row, answers[at % len(answers)], HOSTILE[at] if hostile else "logits")
            for at, row in enumerate(programs)
        )
    state = state_of(regions, session.signatures, session.candidates, programs)
    image = None
    if state in (ReportState.ADMITTED, ReportState.STAGED):
        image = ImageFacts(
            id=image_id,
            file="harbour-vl.cpu.tci",
            bytes=331_284_992,
            epoch=7,
            statement=hex_digest("statement"),
            regions=tuple(
                RegionEvidence(
                    target=region.target,
                    manifest=hex_digest("manifest", region.target),
                    admissions_root=hex_digest("admissions", region.target),
                    receipts_root=hex_digest("receipts", region.target),
                    receipts=6 * len(plain),
                    kernels=len(plain),
                )
                for region in regions
            ),
            signers=(a_signer("build-ci"),),
        )
    return Report(
        schema=SCHEMA,
        made=Made(at="2026-11-29T18:42:07Z", tool="tribunus 0.1.0"),
        name="harbour-vl",
        state=state,
        note="The session ended before a candidate was built: backend native found no compiler." if not tries else "",
        regions=tuple(regions),
        model=ModelFacts(
            file=HOSTILE[1] if hostile else "harbour-vl-0.4b.onnx",
            digest=hex_digest("model"),
            program=hex_digest("program"),
            producer=HOSTILE[2] if hostile else "pytorch 2.13.0, opset 23",
            parameters=402_180_864,
            dims=(DimFacts(name=HOSTILE[6] if hostile else "S", low=1, opt=128, high=1024),),
        ),
        session=SessionFacts(
            started="2026-11-29T16:31:50Z",
            seconds=7_817,
            effort="standard",
            seed=seed,
            suite=hex_digest("suite"),
            command="tribunus certify --model " + (HOSTILE[1] if hostile else "harbour-vl-0.4b.onnx") + " --target cpu",
            target_option="cpu",
            machine=(("host", "build-07"), ("cpu", "AMD EPYC 9554P, 8 of 64 cores"), ("kernel", "Linux 6.12.57")),
            toolchain=(("zig", "0.15.1"), ("numpy", "2.4.6")),
        ),
        policy=PolicyFacts(compute="fp32", budgets=hex_digest("budgets")),
        signatures=tuple(session.signatures),
        candidates=tuple(session.candidates),
        receipts=tuple(session.receipts),
        contests=tuple(session.contests),
        program_checks=programs,
        witnesses=witnesses,
        plan=plan,
        ledger=LedgerFacts(file="certify.ledger", root=hex_digest("ledger", seed), entries=len(session.receipts)),
        image=image,
        baseline=None,
    )


def a_program_check(case: str, *, verdict: Verdict = Verdict.PASSED) -> ProgramCheckRow:
    refused = Reason(kind="output differs", text="Output 0 is 3.4 times its budget", figures=())
    return ProgramCheckRow(
        digest=hex_digest("program check", case),
        region=TARGET,
        profile="",
        case=case,
        verdict=verdict,
        executor=DEVICE,
        reason=None if verdict is Verdict.PASSED else refused,
        bit_equal=True,
        error_share=0.41,
        elements=1000,
        steps=0,
        at_ms=900_000,
        took_ms=812,
    )


def a_witness(
    program: ProgramCheckRow, verdict: WitnessVerdict = WitnessVerdict.AGREES, output: str = "y"
) -> WitnessRow:
    """What another engine says beside ``program``; named like its output where that is a hostile name."""
    compared = verdict is not WitnessVerdict.NOT_COMPARED
    return WitnessRow(
        receipt=program.digest,
        region=program.region,
        profile=program.profile,
        case=program.case,
        witness=output if output in HOSTILE else "onnxruntime 1.23.2",
        verdict=verdict,
        reason="" if compared else f"witness of {output} has shape (2, 17), golden has (2, 16)",
        output=output if compared else "",
        distance={WitnessVerdict.AGREES: 0.41, WitnessVerdict.DISAGREES: 16.02}.get(verdict, 0.0),
        limit=16.0,
        compared=2 if compared else 0,
        outputs=3,
    )


def with_cases(report: Report) -> Report:
    """``report`` with three cases, whose witnesses agree, disagree and were not compared."""
    programs = tuple(a_program_check(f"case-{at}") for at in range(3))
    witnesses = tuple(a_witness(row, verdict) for row, verdict in zip(programs, WitnessVerdict, strict=True))
    return dataclasses.replace(report, program_checks=programs, witnesses=witnesses)


def a_signer(name: str, *, development: bool = False) -> Signer:
    return Signer(
        name=name,
        keyid=hex_digest("key", name),
        at="2026-11-29T18:42:07Z",
        role="builder",
        development=development,
        envelope=hex_digest("envelope", name),
    )


def with_candidate(report: Report, signature: str, candidate: str, change: CandidateRow) -> Report:
    """``report`` with one candidate's row replaced."""
    rows = tuple(change if (row.signature, row.id) == (signature, candidate) else row for row in report.candidates)
    return dataclasses.replace(report, candidates=rows)


def chosen_row(report: Report, at: int = 0) -> CandidateRow:
    """The kernel that serves signature number ``at``."""
    signature = report.signatures[at]
    return next(row for row in report.candidates if row.signature == signature.id and row.id == signature.chosen)


def _unchecked(row: CandidateRow, note: str) -> CandidateRow:
    return dataclasses.replace(
        row,
        outcome=Outcome.NOT_REACHED,
        stopped_by=None,
        artifact="" if note else row.artifact,
        note=note,
        p50_ns=0,
        warm_ns=(),
        cold_ns=(),
    )


def an_odd_report() -> Report:
    """A report in one phase with everything that is rare: nothing chosen for an unused signature, a failed build, a
    mistrusted candidate, an infinite error, no cold times, a baseline, a candidate that was never checked."""
    report = a_report(signatures=1, candidates=12)
    signature = report.signatures[0]
    lost = [row for row in report.candidates if row.outcome is Outcome.REJECTED and row.stopped_by is Check.ORACLE]
    lost += [row for row in report.candidates if row.outcome is Outcome.REJECTED and row not in lost]
    weak, unbuilt, unrun, *_ = lost
    changes = {
        weak.id: dataclasses.replace(weak, outcome=Outcome.MISTRUSTED, error_share=float("inf")),
        unbuilt.id: _unchecked(unbuilt, "the build failed: zig exited with 1"),
        unrun.id: _unchecked(unrun, ""),
        str(signature.chosen): dataclasses.replace(chosen_row(report), cold_ns=()),
    }
    receipts = []
    for receipt in report.receipts:
        if receipt.candidate in (unbuilt.id, unrun.id):
            continue
        if receipt.candidate == weak.id and receipt.reason is not None and receipt.worst is not None:
            worst = dataclasses.replace(
                receipt.worst, golden=float("nan"), got=float("-inf"), error_share=float("inf"), budget_ulp=0.0
            )
            receipt = dataclasses.replace(
                receipt, verdict=Verdict.MISTRUSTED, worst=worst, cases=1, cases_mistrusted=13
            )
        receipts.append(receipt)
    spare = dataclasses.replace(
        signature,
        id="matmul-00000000",
        digest=hex_digest("spare"),
        used=False,
        chosen=None,
        why="another cover is used",
        budget_ns=0,
        floor_ns=0,
    )
    row = BaselineRow(
        signature=signature.id,
        old="native-000000",
        new=str(signature.chosen),
        old_ns=900_000,
        new_ns=1_000_000,
        old_error=0.2,
        new_error=0.3,
    )
    return dataclasses.replace(
        report,
        signatures=(signature, spare),
        candidates=tuple(changes.get(row.id, row) for row in report.candidates),
        receipts=tuple(receipts),
        contests=(),
        baseline=Baseline(
            image="",
            at="2026-11-12T09:10:44Z",
            tool="tribunus 0.0.9",
            changed=(Change(what="zig", was="0.15.0", now="0.15.1"),),
            gone=("conv-77c0",),
            new=(),
            rows=(row,),
        ),
    )
