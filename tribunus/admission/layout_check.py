"""The layout check: declared layouts and alignments against the plan, and against what the kernel does.

Imported by: series.  Effects only through the Executor.
"""

from __future__ import annotations

from collections.abc import Mapping

from tribunus.admission.conclude import Findings, conclude, ended_badly, misbehaved
from tribunus.admission.context import CheckContext
from tribunus.admission.receipt import Check, Figure, Reason, Receipt
from tribunus.candidates.model import Artifact
from tribunus.isolation.executor import Executor, Guard, Poison, RunTerms
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.program import Array

_WATCHED = ("unwritten", "inputs", "damage")


def check_layout(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects layouts that differ from the plan, reads of padding that change a result, writes outside the outputs.

    Buffers lie at exactly the declared alignment and no better; padding and surroundings hold different poisons; pairs
    that may share memory do so.
    """
    started = context.clock_ns()
    findings = Findings()
    findings.refuse(judge_declaration(artifact, context.layouts))
    aligns = [o.align for o in (*artifact.recipe.inputs, *artifact.recipe.outputs)]
    step = min(aligns, default=64)
    settings = [
        ("aligned exactly", RunTerms(poison=Poison.NAN, guard=Guard.AFTER, shift=0)),
        ("shifted by one alignment", RunTerms(poison=Poison.A5, guard=Guard.BEFORE, shift=step)),
        ("random surroundings", RunTerms(poison=Poison.RANDOM, guard=Guard.AFTER, shift=3 * step)),
    ]
    if artifact.recipe.in_place:
        settings.append(("in place", RunTerms(poison=Poison.NAN, in_place=True)))
    for case in () if findings.refused else context.cases.layout_cases():
        first: Mapping[int, Array] | None = None
        for name, terms in settings:
            what = f"{case.name}, {name}"
            outcome = executor.run(artifact, case.dims, case.inputs, terms)
            if (bad := ended_badly(outcome, what)) is not None:
                findings.refuse(*bad)
                break
            watched = tuple(w for w in _WATCHED if not (terms.in_place and w == "inputs"))
            if findings.refuse(misbehaved(outcome, what, watched)):
                break
            if findings.judge(case, outcome.outputs[0], name):
                break
            if first is not None and findings.refuse(judge_same(first, outcome.outputs[0], what)):
                break
            first = outcome.outputs[0]
        if findings.refused:
            break
    return conclude(Check.LAYOUT, artifact, executor, context, findings, started)


def judge_declaration(artifact: Artifact, planned: tuple[Layout, ...]) -> Reason | None:
    """Whether the recipe's layouts are the candidate's, and those the plan's; alignments are powers of two."""
    operands = (*artifact.recipe.inputs, *artifact.recipe.outputs)
    declared = tuple(operand.layout for operand in operands)
    for position, (layout, promised) in enumerate(zip(declared, artifact.candidate.layouts, strict=False)):
        if layout != promised:
            return Reason("layout differs", f"operand {position}: the recipe says {layout}, the candidate {promised}")
    if not len(declared) == len(artifact.candidate.layouts) == len(planned):
        return Reason("layout differs", "the recipe, the candidate and the plan differ in the number of operands")
    border = (*artifact.signature.inputs, *artifact.signature.outputs)
    types = tuple(artifact.signature.type_of(value) for value in border)
    if tuple(operand.type for operand in operands) != types:
        return Reason("operand types differ", "the recipe's operands have other types than the signature's")
    for position, (layout, wanted) in enumerate(zip(declared, planned, strict=False)):
        if layout != wanted:
            return Reason(
                "layout differs from the plan",
                f"operand {position}: the plan wants {wanted}, the kernel has {layout}",
                (Figure(f"operand {position}", str(layout), str(wanted)),),
            )
    for position, operand in enumerate(operands):
        if operand.align < operand.type.dtype.itemsize or operand.align & (operand.align - 1):
            return Reason("alignment", f"operand {position} declares an alignment of {operand.align} bytes")
    return None


def judge_same(first: Mapping[int, Array], second: Mapping[int, Array], what: str) -> Reason | None:
    """Whether two runs of one case gave the same bytes."""
    for value, array in first.items():
        if array.tobytes() != second[value].tobytes():
            return Reason("depends on surroundings", f"output {value} has other bits on {what}")
    return None
