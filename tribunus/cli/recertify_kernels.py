"""From a region's bytes back to what was certified: signatures out of its programs, artifacts out of its plan.

Imported by: recertify.  Imports: candidates, passes, planning, plan, phaseir.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility, Signature
from tribunus.canon import Digest
from tribunus.cli.image_programs import ImagePrograms
from tribunus.errors import ReceiptFailError, StructureError
from tribunus.image.admissions import AdmissionLine
from tribunus.numerics.policy import ComputePolicy
from tribunus.passes.partition import partition
from tribunus.phaseir.program import Program
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Code
from tribunus.plan.plan import Plan, PlanKernel
from tribunus.planning.layout_plan import copy_signature


@dataclass(frozen=True, slots=True)
class Recorded:
    """One kernel of a plan with its admission, as an artifact that can be checked again."""

    kernel: PlanKernel
    line: AdmissionLine
    artifact: Artifact


def recorded_kernels(
    plan: Plan, pack: memoryview, lines: Mapping[str, AdmissionLine], programs: ImagePrograms
) -> tuple[Recorded, ...]:
    """Every kernel of the plan.

    Raises StructureError for a kernel whose signature is no part of the image's programs, and ReceiptFailError for one
    whose admission is about another artifact.
    """
    policies = {ComputePolicy(kernel.key.policy) for kernel in plan.kernels}
    known = {s.digest: s for policy in policies for s in signatures_of(programs, policy)}
    found: list[Recorded] = []
    for kernel in plan.kernels:
        signature = known.get(kernel.signature)
        if signature is None:
            raise StructureError(
                f"kernel {kernel.id} computes signature {kernel.signature[:12]}, which the programs do not contain",
                remedy="use the release of tribunus that made the image (tribunus inspect names it)",
            )
        artifact = artifact_of(kernel, signature, pack)
        line = lines[kernel.id]
        if artifact.digest != line.artifact:
            raise ReceiptFailError(f"kernel {kernel.id}: its admission is about another artifact")
        found.append(Recorded(kernel, line, artifact))
    return tuple(found)


def signatures_of(programs: ImagePrograms, policy: ComputePolicy) -> Iterator[Signature]:
    """Every signature that kernels of these programs may have: all groups, and copies of every type."""
    for program in programs.programs:
        for index in range(len(program.phases)):
            for region in partition(program, index, programs.constants).regions:
                for uses in region.alternatives:
                    for use in uses:
                        yield Signature(use.signature, policy, programs.constants)
        for type_ in _types(program):
            yield Signature(copy_signature(type_, program.symbols)[0], policy, programs.constants)


def _types(program: Program) -> tuple[TensorType, ...]:
    return tuple(dict.fromkeys(value.type for value in program.values))


def artifact_of(kernel: PlanKernel, signature: Signature, pack: memoryview) -> Artifact:
    """The artifact of a plan's kernel.  How it was built is not in the image and stays empty."""
    recipe = kernel.recipe
    layouts = tuple(operand.layout for operand in (*recipe.inputs, *recipe.outputs))
    candidate = Candidate(kernel.key.backend, kernel.signature, Config(), layouts, Reproducibility.R)
    # The image holds the identity of the choice, not its configuration, which no check reads; that the identity is
    # right is proved by the artifact's digest, which covers it.
    object.__setattr__(candidate, "digest", kernel.candidate)
    code = Code(kernel.format, bytes(pack[kernel.offset : kernel.offset + kernel.size]), kernel.facts)
    return Artifact(candidate, signature, code, recipe, BuildRecord((), (), Digest("")))
