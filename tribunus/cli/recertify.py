"""``tribunus recertify``: the six checks again, from the image alone, on this machine; how do the verdicts differ?

Imported by: cli.tool.  Imports: admission, isolation, candidates, image, cli.

Inputs come from seeds, goldens from the programs in the image.  Nothing is built: kernels are the image's own bytes.
Their toolchain cannot be seen in them, so those two fields of the cache key are taken as recorded.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tribunus
from tribunus.admission.captured import CapturedCase, capture_operands, try_bindings
from tribunus.admission.cases import CaseBook
from tribunus.admission.context import CheckContext
from tribunus.admission.flat_audit import audit_artifact, features_used
from tribunus.admission.key import Machine, full_key
from tribunus.admission.policy import STANDARD
from tribunus.admission.receipt import CHECKS, Check, Receipt, Verdict
from tribunus.admission.series import FUNCTIONS
from tribunus.candidates.model import Artifact, Signature
from tribunus.candidates.registry import installed_backends
from tribunus.canon import Digest, digest_of
from tribunus.certification.program_check import ProgramReceipt, judge_case
from tribunus.certification.scratch import Scratch
from tribunus.cli.command import Command
from tribunus.cli.image_programs import ImagePrograms, programs_of, with_model
from tribunus.cli.opening import Opened, opened_image
from tribunus.cli.output import Document, clip, count_text, field, print_json, table, time_text
from tribunus.cli.recertify_kernels import Recorded, recorded_kernels
from tribunus.cli.verify import verify_region
from tribunus.errors import ContentsDiffer, Mistrusted, TribunusError, UsageError
from tribunus.image.admissions import decode_lines
from tribunus.image.policy import find_policy
from tribunus.isolation.calibration import calibrate
from tribunus.isolation.executor import Executor
from tribunus.isolation.program_run import run_program
from tribunus.isolation.worker import CpuExecutor
from tribunus.ledger.goldens import GoldenStore
from tribunus.numerics.policy import ComputePolicy
from tribunus.passes.partition import partition
from tribunus.phaseir.program import INLINE_ELEMENTS, Array
from tribunus.targets.detect import facts_to_json, machine_facts
from tribunus.targets.target import Peaks, Target

TAKEN_AS_RECORDED: Final = ("toolchain", "library")


@dataclass(frozen=True, slots=True)
class Recheck:
    """One kernel checked again.  receipts: in the order of the checks, ending at the first that did not pass."""

    recorded: Recorded
    receipts: tuple[Receipt, ...]
    wanted: tuple[Check, ...]

    @property
    def agrees(self) -> bool:
        """Whether every verdict asked for is what was recorded: passed."""
        passed = [r.check for r in self.receipts if r.verdict is Verdict.PASSED]
        return tuple(passed) == self.wanted

    @property
    def said(self) -> str:
        """In one or two words."""
        last = self.receipts[-1]
        return "passed" if self.agrees else f"{last.verdict.value}: {last.check.value}"


@dataclass(frozen=True, slots=True)
class Auditor:
    """What the checks are given here."""

    executor: Executor
    goldens: GoldenStore
    peaks: Peaks | None
    machine: Machine
    machine_digest: Digest
    versions: tuple[tuple[str, str], ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--model", type=Path, metavar="M.onnx", help="also check the whole program on recorded cases")
    parser.add_argument("--external-data", action="store_true", help="allow external data in the model's own folder")
    parser.add_argument("--receipt", metavar="DIGEST", help="repeat only the check of this receipt (first digits do)")
    parser.add_argument("--kernel", metavar="ID", help="only this kernel; the beginning of its id does")
    parser.add_argument("--trust", type=Path, metavar="POLICY.json", help="trust policy; TRIBUNUS_TRUST or the user's")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = (
        "Exit code 0: every verdict is the recorded one.  1: some differ.\n"
        "Times differ between machines; the timing check judges against this machine's\n"
        "own peaks, measured first.  Inputs captured at certification are not in the\n"
        "image; vectors made from seeds are the same everywhere."
    )


def _run(arguments: argparse.Namespace) -> int:
    with opened_image(arguments.image, arguments.trust) as image:
        plan = image.region.plan
        region = image.source.region(plan.target)
        verify_region(image.source, plan.target, image.source.verify_trust(find_policy(arguments.trust, os.environ)))
        programs = _programs(image, arguments)
        lines = {line.kernel: line for line in decode_lines(region.admissions())}
        kernels = recorded_kernels(plan, region.kernels(), lines, programs)
        chosen = _chosen(kernels, arguments.kernel, arguments.receipt)
        # An auditor works out every golden anew; the folder is for what memory is too small for.
        with _Executing(kernels) as executor, Scratch("goldens") as folder:
            is_timed = any(Check.TIMING in wanted for _, wanted in chosen)
            auditor = _auditor(executor, GoldenStore(folder.path), is_timed=is_timed)
            captured = _captured(image, programs) if arguments.model is not None else {}
            target = Target("cpu", plan.arch, plan.threads)
            done = [_recheck(recorded, wanted, auditor, target, captured) for recorded, wanted in chosen]
        program = _check_program(image, programs) if arguments.model is not None else ()
    return _conclude(done, program, as_json=arguments.json)


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _programs(image: Opened, arguments: argparse.Namespace) -> ImagePrograms:
    found = programs_of(image.source.region(image.region.plan.target).phaseir())
    if arguments.model is not None:
        made_from = image.source.document.model.get("digest")
        found = with_model(found, arguments.model, made_from, external_data=arguments.external_data)
    if missing := found.missing(INLINE_ELEMENTS):
        raise UsageError(
            f"the image lacks the values of {count_text(missing, 'small constant')}, which belong to signatures",
            remedy="name the model that it was made from: --model M.onnx",
        )
    return found


def _chosen(
    kernels: Sequence[Recorded], kernel: str | None, receipt: str | None
) -> list[tuple[Recorded, tuple[Check, ...]]]:
    chosen = [(recorded, CHECKS) for recorded in kernels if recorded.kernel.id.startswith(kernel or "")]
    if receipt is not None:
        prefix = receipt.removeprefix("sha256:")
        found: list[tuple[Recorded, tuple[Check, ...]]] = [
            (recorded, (Check(check),))
            for recorded, _ in chosen
            for check, (_, digest) in recorded.line.checks.items()
            if digest.startswith(prefix)
        ]
        if len(found) != 1:
            raise UsageError(
                f"{count_text(len(found), 'receipt')} of the image's kernels begin with {prefix[:64]!r}",
                remedy="tribunus inspect --json names receipts; give more digits",
            )
        return found
    if not chosen:
        raise UsageError(f"no kernel's id begins with {str(kernel)[:60]!r}", remedy="tribunus inspect --all lists them")
    return chosen


class _Executing:
    """A CpuExecutor with the backends that pack the kernels' weights; ended with the block."""

    def __init__(self, kernels: Sequence[Recorded]) -> None:
        names = sorted({recorded.kernel.key.backend for recorded in kernels if _needs_backend(recorded.artifact)})
        self._executor = CpuExecutor(installed_backends(names).backends if names else {})

    def __enter__(self) -> CpuExecutor:
        return self._executor

    def __exit__(self, *_: object) -> None:
        self._executor.close()


def _needs_backend(artifact: Artifact) -> bool:
    return bool(artifact.recipe.weights)


def _auditor(executor: Executor, goldens: GoldenStore, *, is_timed: bool) -> Auditor:
    if is_timed:
        _say("measuring this machine's peaks")
    facts = machine_facts()
    return Auditor(
        executor=executor,
        goldens=goldens,
        peaks=calibrate().peaks if is_timed else None,
        machine=Machine("none", facts.model, frozenset(facts.features)),
        machine_digest=digest_of(facts_to_json(facts)),
        versions=(("tribunus", tribunus.__version__), ("python", platform.python_version())),
    )


def _captured(image: Opened, programs: ImagePrograms) -> Mapping[Digest, list[Mapping[int, Array]]]:
    """Operands of every signature on the recorded cases: what flows inside the program on real inputs."""
    found: dict[Digest, list[Mapping[int, Array]]] = {}
    for case in _cases(image):
        for program in programs.programs:
            bindings = try_bindings(program, case)
            if bindings is None:
                continue
            cut = partition(program, 0, programs.constants)
            policy = ComputePolicy(image.region.plan.kernels[0].key.policy)
            uses = [
                (use, Signature(use.signature, policy, programs.constants).digest)
                for region in cut.regions
                for alternative in region.alternatives
                for use in alternative
            ]
            for digest, operands in capture_operands(program, programs.constants, case, bindings, uses).items():
                found.setdefault(digest, []).extend(operands)
            break
    return found


def _recheck(
    recorded: Recorded,
    wanted: tuple[Check, ...],
    auditor: Auditor,
    target: Target,
    captured: Mapping[Digest, list[Mapping[int, Array]]],
) -> Recheck:
    artifact, line = recorded.artifact, recorded.line
    kept = {name: line.key[name] for name in TAKEN_AS_RECORDED if name in line.key}
    layouts = tuple(operand.layout for operand in (*artifact.recipe.inputs, *artifact.recipe.outputs))
    context = CheckContext(
        signature=artifact.signature,
        target=target,
        policy=STANDARD,
        cases=CaseBook(artifact.signature, captured.get(artifact.signature.digest, ()), auditor.goldens),
        layouts=layouts,
        peaks=auditor.peaks,
        key_of=lambda a: {**full_key(a, target, auditor.machine), **kept},
        expected_key=line.key,
        audit=audit_artifact,
        used_features=features_used,
        machine=auditor.machine_digest,
        versions=auditor.versions,
        clock_ns=time.time_ns,
    )
    receipts: list[Receipt] = []
    for check in wanted:
        receipts.append(FUNCTIONS[check](artifact, auditor.executor, context))
        if receipts[-1].verdict is not Verdict.PASSED:
            break
    done = Recheck(recorded, tuple(receipts), wanted)
    _say(f"{recorded.kernel.id}: {done.said}")
    return done


def _cases(image: Opened) -> list[CapturedCase]:
    return [CapturedCase(case.name, dict(case.inputs), None) for case in image.recorded()]


def _check_program(image: Opened, programs: ImagePrograms) -> tuple[ProgramReceipt, ...]:
    """Replay every recorded case in fresh processes and hold it against the float64 program."""
    plan = image.region.plan
    region = image.source.region(plan.target)
    cases = {case.name: case for case in _cases(image)}
    shards = [bytes(region.weights(number)) for number in range(region.weights_count)]
    with Scratch("program") as folder:
        inputs = {name: dict(case.inputs) for name, case in cases.items()}
        runs = run_program(plan, bytes(region.kernels()), shards, inputs, folder.path)
    policy = ComputePolicy(plan.kernels[0].key.policy)
    receipts: list[ProgramReceipt] = []
    for run in runs:
        case = cases[run.case]
        for program, profile in zip(programs.programs, plan.profiles, strict=True):
            bindings = try_bindings(program, case)
            if bindings is not None:
                receipts.append(judge_case(program, programs.constants, case, bindings, run, profile.name, policy))
                _say(f"program, case {run.case}: {receipts[-1].verdict.value}")
                break
    return tuple(receipts)


def _conclude(done: Sequence[Recheck], program: Sequence[ProgramReceipt], *, as_json: bool) -> int:
    differing = [item for item in done if not item.agrees]
    refused = [receipt for receipt in program if receipt.verdict is not Verdict.PASSED]
    mistrusted = [item for item in differing if item.receipts[-1].verdict is Verdict.MISTRUSTED]
    answer: TribunusError | None = None
    if len(mistrusted) < len(differing) or refused:
        count = len(differing) - len(mistrusted)
        answer = ContentsDiffer(
            f"{count_text(count, 'kernel')} of {len(done)} and {count_text(len(refused), 'program case')} "
            "get another verdict here",
            remedy="read the reasons above; do not use the image here before they are understood",
        )
    elif mistrusted:
        answer = Mistrusted(f"{count_text(len(mistrusted), 'kernel')} could not be judged")
    if as_json:
        print_json(_document(done, program, answer))
        return 0 if answer is None else answer.exit_code
    _print(done, program)
    if answer is not None:
        raise answer
    return 0


def _print(done: Sequence[Recheck], program: Sequence[ProgramReceipt]) -> None:
    rows = [
        (
            item.recorded.kernel.id,
            item.said,
            f"{item.recorded.line.error_share:.3f}",
            _share_text(item),
            time_text(item.recorded.line.time_ns),
            _time_text(item),
        )
        for item in done
    ]
    for text in table(("kernel", "here", "error then", "now", "time then", "now"), rows):
        print(text)
    for item in done:
        last = item.receipts[-1]
        if not item.agrees and last.reason is not None:
            print(field("", f"{clip(item.recorded.kernel.id, 60)}, {last.check.value}: {last.reason.text}"))
            for figure in last.reason.figures:
                print(field("", f"  {figure.what}: {figure.seen}, allowed {figure.allowed}"))
    for receipt in program:
        reason = "" if receipt.reason is None else f": {receipt.reason.text}"
        print(field("program", f"case {clip(receipt.case, 40)}: {receipt.verdict.value}{reason}"))


def _share_text(item: Recheck) -> str:
    judged = [receipt for receipt in item.receipts if receipt.cases]
    return f"{max(receipt.worst_share for receipt in judged):.3f}" if judged else "-"


def _time_ns(item: Recheck) -> int | None:
    times = next((receipt.timing.warm_ns for receipt in item.receipts if receipt.timing is not None), ())
    return sorted(times)[len(times) // 2] if times else None


def _time_text(item: Recheck) -> str:
    found = _time_ns(item)
    return "-" if found is None else time_text(found)


def _document(done: Sequence[Recheck], program: Sequence[ProgramReceipt], answer: TribunusError | None) -> Document:
    return {
        "schema": "tribunus.recertify/1",
        "agrees": answer is None,
        "refused": None if answer is None else answer.name,
        "taken_as_recorded": list(TAKEN_AS_RECORDED),
        "kernels": [
            {
                "kernel": item.recorded.kernel.id,
                "agrees": item.agrees,
                "recorded": {check: verdict for check, (verdict, _) in item.recorded.line.checks.items()},
                "here": {receipt.check.value: receipt.verdict.value for receipt in item.receipts},
                "reason": None if (reason := item.receipts[-1].reason) is None else reason.text,
                "recorded_error_share": item.recorded.line.error_share,
                "recorded_time_ns": item.recorded.line.time_ns,
                "time_ns": _time_ns(item),
            }
            for item in done
        ],
        "program": [
            {
                "case": receipt.case,
                "verdict": receipt.verdict.value,
                "error_share": receipt.error_share,
                "bit_equal": receipt.bit_equal,
            }
            for receipt in program
        ],
    }


COMMAND = Command("recertify", "repeat an image's six checks here and compare verdicts", _configure, _run)
