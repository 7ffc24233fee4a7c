"""The program check: the assembled image, replayed on every case, against the float64 program.

Imported by: certification.sealing.  Imports: oracle, admission.  The judgement is pure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tribunus.admission.captured import CapturedCase, program_inputs
from tribunus.admission.receipt import Figure, Reason, Verdict, reason_from_json
from tribunus.admission.suite import suite_identity
from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    bool_of,
    digest_bytes,
    digest_of,
    f64_to_text,
    int_of,
    member_of,
    object_of,
    str_of,
    text_to_float,
)
from tribunus.certification.stepwise import Stepwise
from tribunus.certification.witness_record import WitnessRecord, judge_witness, not_compared, record_from_json
from tribunus.isolation.program_run import ProgramRun
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.propagation import ProgramVerdict, judge_program, program_budget
from tribunus.phaseir.program import Array, Constants, Program, program_digest

_SCHEMA: Final = "tribunus.program-receipt/3"


@dataclass(frozen=True, slots=True)
class ProgramReceipt:
    """What the program check saw on one case.

    bit_equal: whether two replays in different processes agreed in every bit.  error_share: largest error in units of
    its budget over all outputs that are compared, and over all steps.  steps: kernel calls that were judged one by one,
    because a jump lies before some output; 0 where none does.  witness: how an independent engine compares; None where
    the case has none.
    cpu_ns, wall_ns: median of a replay.  wall_p99_ns: 99th percentile, the largest of up to a hundred.
    """

    profile: str
    case: str
    verdict: Verdict
    reason: Reason | None
    bit_equal: bool
    error_share: float
    elements: int
    steps: int
    witness: WitnessRecord | None
    cpu_ns: int
    wall_ns: int
    wall_p99_ns: int
    started_us: int
    took_ns: int
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of(self.document()))

    def document(self) -> JsonObject:
        """Document form."""
        reason: JsonObject | None = None
        if self.reason is not None:
            reason = {
                "kind": self.reason.kind,
                "text": self.reason.text,
                "figures": [[f.what, f.seen, f.allowed] for f in self.reason.figures],
            }
        return {
            "schema": _SCHEMA,
            "profile": self.profile,
            "case": self.case,
            "verdict": self.verdict.value,
            "reason": reason,
            "bit_equal": self.bit_equal,
            "error_share": f64_to_text(self.error_share),
            "elements": self.elements,
            "steps": self.steps,
            "witness": None if self.witness is None else self.witness.document(),
            "cpu_ns": self.cpu_ns,
            "wall_ns": self.wall_ns,
            "wall_p99_ns": self.wall_p99_ns,
            "started_us": self.started_us,
            "took_ns": self.took_ns,
        }


_COUNTS: Final = ("elements", "steps", "cpu_ns", "wall_ns", "wall_p99_ns", "took_ns")


def program_key(
    program: Program,
    case: CapturedCase,
    run: ProgramRun,
    profile: str,
    policy: ComputePolicy,
    kernels: Sequence[Digest],
) -> Digest:
    """What the receipt of a case depends on: its form and names, the program, the inputs, the replayed bytes, the
    witness, the rules, and the artifacts in their order."""
    arrays: list[Json] = []
    for group in (case.inputs, run.first, run.second, case.witness or {}):
        arrays.append([_array_key(name, array) for name, array in sorted(group.items())])
    names: list[Json] = [_SCHEMA, profile, case.name, case.witness is not None]
    return digest_of([names, suite_identity(), program_digest(program), policy.value, run.died, arrays, list(kernels)])


def _array_key(name: str, array: Array) -> list[Json]:
    form = f"{array.dtype.str} {'x'.join(map(str, array.shape))}"
    return [name, form, digest_bytes(np.ascontiguousarray(array).tobytes())]


def receipt_from_json(value: Json) -> ProgramReceipt:
    """Inverse of ``ProgramReceipt.document``.  Raises SchemaError."""
    where = "program receipt"
    names = (
        "schema profile case verdict reason bit_equal error_share elements steps witness cpu_ns wall_ns wall_p99_ns "
        "started_us took_ns"
    )
    document = object_of(value, where, frozenset(names.split()))
    numbers = {name: int_of(document[name], where) for name in _COUNTS}
    return ProgramReceipt(
        profile=str_of(document["profile"], where),
        case=str_of(document["case"], where),
        verdict=member_of(Verdict, document["verdict"], where),
        reason=reason_from_json(document["reason"], where),
        bit_equal=bool_of(document["bit_equal"], where),
        error_share=text_to_float(str_of(document["error_share"], where)),
        elements=numbers["elements"],
        steps=numbers["steps"],
        witness=None if document["witness"] is None else record_from_json(document["witness"]),
        cpu_ns=numbers["cpu_ns"],
        wall_ns=numbers["wall_ns"],
        wall_p99_ns=numbers["wall_p99_ns"],
        started_us=int_of(document["started_us"], where),
        took_ns=numbers["took_ns"],
    )


def judge_case(
    program: Program,
    constants: Constants,
    case: CapturedCase,
    bindings: Mapping[str, int],
    run: ProgramRun,
    profile: str,
    policy: ComputePolicy,
    stepwise: Callable[[], Stepwise] | None = None,
) -> ProgramReceipt:
    """Judge the replay of one case: two runs bit-equal, then per element and per tensor against the budget.

    stepwise: runs and judges the kernels one by one, called where a jump lies before some output; None where only the
    image is at hand: then such outputs are reported and not judged.
    """
    started, begin = time.time_ns() // 1000, time.perf_counter_ns()
    labels = {program.values[v].label: v for v in program.only_phase.outputs}
    verdict, share = Verdict.PASSED, 0.0
    witness: WitnessRecord | None = None
    reason: Reason | None = None
    steps: Stepwise | None = None
    bit_equal = not run.died and all(run.first[label].tobytes() == run.second[label].tobytes() for label in run.first)
    if run.died:
        verdict, reason = Verdict.CRASHED, Reason("crash", f"replaying case {case.name!r} died: {run.died}")
    elif not bit_equal:
        verdict, reason = Verdict.REJECTED, Reason("replays differ", "two replays of the image differ in some bit")
    else:
        outputs: dict[int, Array] = {labels[label]: array for label, array in run.first.items()}
        budget = program_budget(program, constants, program_inputs(program, case), policy, bindings=bindings)
        judged = judge_program(outputs, budget)
        counted = [o for o in judged.outputs if not o.is_reported_only]
        share = max((max(o.element_ratio, o.tensor_ratio) for o in counted), default=0.0)
        reason = None if judged.accepted else _reason(program, judged)
        if reason is None and stepwise is not None and len(counted) < len(judged.outputs):
            steps = stepwise()
            share, reason = max(share, steps.share), _unlike(steps, run)
        verdict = Verdict.PASSED if reason is None else Verdict.REJECTED
        if case.witness is not None:
            witness = judge_witness(program, case.witness, budget)
    if case.witness is not None and witness is None:
        why = "replaying the case died" if run.died else "two replays of the image differ"
        witness = not_compared(program, case.witness, why)
    return ProgramReceipt(
        profile=profile,
        case=case.name,
        verdict=verdict,
        reason=reason,
        bit_equal=bit_equal,
        error_share=share,
        elements=sum(array.size for array in run.first.values()),
        steps=0 if steps is None else steps.steps,
        witness=witness,
        cpu_ns=_median(run.cpu_ns),
        wall_ns=_median(run.wall_ns),
        wall_p99_ns=_p99(run.wall_ns),
        started_us=started,
        took_ns=time.perf_counter_ns() - begin,
    )


def _unlike(steps: Stepwise, run: ProgramRun) -> Reason | None:
    """Why the kernels one by one speak against the image."""
    if steps.reason is not None:
        return steps.reason
    for label, array in steps.outputs.items():
        if array.tobytes() != run.first[label].tobytes():
            text = f"output {label!r} of the image is not what its kernels give one by one"
            return Reason("image wired differently", text)
    return None


def _reason(program: Program, judged: ProgramVerdict) -> Reason:
    refused = [o for o in judged.outputs if not o.accepted]
    worst = max(refused, key=lambda o: max(o.element_ratio, o.tensor_ratio))
    label = program.values[worst.id].label
    return Reason(
        "beyond the program's budget",
        f"output {label!r} is further from the float64 program than honest arithmetic goes, at {list(worst.worst)}",
        (
            Figure("element error / its allowance", f"{worst.element_ratio:.3g}", "1"),
            Figure("tensor error / its allowance", f"{worst.tensor_ratio:.3g}", "1"),
        ),
    )


def _median(values: tuple[int, ...]) -> int:
    return sorted(values)[len(values) // 2] if values else 0


def _p99(values: tuple[int, ...]) -> int:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else 0
