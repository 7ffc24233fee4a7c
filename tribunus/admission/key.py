"""The cache key: every field that decides whether evidence about an artifact holds here.

Imported by: certification, tests.  Imports: candidates, targets, plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tribunus.admission.suite import suite_identity
from tribunus.candidates.model import Artifact, Candidate, Signature
from tribunus.canon import digest_of
from tribunus.phaseir.program import Role
from tribunus.plan.code import recipe_digest
from tribunus.plan.plan import ContentKey
from tribunus.targets.target import Target

FIT_FIELDS: Final = frozenset(("arch", "features", "library", "driver"))
"""Fields that bind the runtime: where they differ, the kernel must not run."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Fields of a key that the machine decides, read on it.

    driver: of the device; ``none`` for a CPU.  processor: model name, which binds timing evidence alone.
    features: what the machine has of the target's features.
    """

    driver: str
    processor: str
    features: frozenset[str]


def content_key(candidate: Candidate, signature: Signature, target: Target) -> ContentKey:
    """The part of a key that content alone decides."""
    program = signature.program
    border = [v for v in program.values if v.role in (Role.INPUT, Role.WEIGHT)]
    results = [signature.type_of(v) for v in signature.outputs]
    types = [v.type for v in border] + results
    shapes = [f"[{', '.join(map(str, t.shape))}]" for t in types]
    bounds = [f"{s.name}={s.lo}:{s.opt}:{s.hi}:{s.step}" for s in program.symbols]
    quantized = [str(t) for t in types if t.quantization is not None]
    first = next((v.type for v in border if v.role is Role.INPUT and v.type.rank), results[0])
    return ContentKey(
        backend=candidate.backend,
        op=signature.label,
        dtype=" ".join(t.dtype.value for t in types),
        shape=" ".join(shapes + bounds),
        batch=str(first.shape[0]) if first.rank else "1",
        quantization=" ".join(quantized) or "none",
        policy=signature.policy.value,
        layouts="; ".join(map(str, candidate.layouts)),
        arch=target.arch,
        threads=target.threads,
    )


def full_key(artifact: Artifact, target: Target, machine: Machine) -> Mapping[str, str]:
    """Every field as text, recomputed from the artifact itself and from this machine."""
    signature, candidate = artifact.signature, artifact.candidate
    content = content_key(candidate, signature, target)
    build = artifact.build
    missing = target.features - machine.features
    return {
        "backend": content.backend,
        "op": content.op,
        "dtype": content.dtype,
        "shape": content.shape,
        "batch": content.batch,
        "quantization": content.quantization,
        "policy": content.policy,
        "layouts": content.layouts,
        "arch": content.arch,
        "threads": str(content.threads),
        "signature": signature.digest,
        "candidate": candidate.digest,
        "artifact": artifact.digest,
        "code": artifact.code.digest,
        "recipe": recipe_digest(artifact.recipe, signature.symbols),
        "toolchain": digest_of([[name, version] for name, version in build.toolchain]),
        "library": build.library or "none",
        "driver": machine.driver,
        "features": "complete" if not missing else "missing " + " ".join(sorted(missing)),
        "suite": suite_identity(),
    }
