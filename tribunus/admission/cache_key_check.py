"""The cache-key check: is the key of this artifact, recomputed here, the one its evidence was made under?

Imported by: series.  Imports: admission.
"""

from __future__ import annotations

from collections.abc import Mapping

from tribunus.admission.conclude import Findings, conclude
from tribunus.admission.context import CheckContext
from tribunus.admission.receipt import Check, Figure, Reason, Receipt
from tribunus.candidates.model import Artifact
from tribunus.canon import Digest, digest_bytes
from tribunus.isolation.executor import Executor

REQUIRED = frozenset(
    (
        "backend",
        "op",
        "dtype",
        "shape",
        "batch",
        "quantization",
        "policy",
        "layouts",
        "arch",
        "threads",
        "signature",
        "candidate",
        "artifact",
        "code",
        "recipe",
        "toolchain",
        "library",
        "driver",
        "features",
        "suite",
    )
)
"""Fields without which two different kernels could share a key."""


def check_cache_key(artifact: Artifact, executor: Executor, context: CheckContext) -> Receipt:
    """Rejects a key that lacks a field, that differs from the recorded one, or that understates the code's needs."""
    started = context.clock_ns()
    findings = Findings()
    key = context.key_of(artifact)
    findings.refuse(judge_key(key, context.expected_key))
    findings.refuse(judge_identity(key, artifact, context.signature.digest))
    used, allowed = context.used_features(artifact), context.target.features
    findings.details.append(("instruction sets used", " ".join(sorted(used)) or "baseline"))
    if used - allowed:
        findings.refuse(
            Reason(
                "code needs more than the key says",
                f"the code uses {', '.join(sorted(used - allowed))}, which {context.target.arch} does not promise",
                (Figure("features", " ".join(sorted(used)), " ".join(sorted(allowed))),),
            )
        )
    findings.details.extend(sorted(key.items()))
    return conclude(Check.CACHE_KEY, artifact, executor, context, findings, started)


def judge_key(key: Mapping[str, str], expected: Mapping[str, str]) -> Reason | None:
    """The verdict on two keys, field by field: a function of its arguments."""
    if missing := REQUIRED - key.keys():
        return Reason("key lacks a field", f"the key has no {', '.join(sorted(missing))}")
    different = sorted(name for name in key.keys() | expected.keys() if key.get(name) != expected.get(name))
    if different:
        figures = tuple(
            Figure(name, key.get(name, "absent")[:120], expected.get(name, "absent")[:120]) for name in different
        )
        return Reason("key differs", f"recomputed here, the key differs in {', '.join(different)}", figures)
    return None


def judge_identity(key: Mapping[str, str], artifact: Artifact, signature: Digest) -> Reason | None:
    """Whether the key names this artifact by content, whoever computed it."""
    true = {
        "signature": signature,
        "candidate": artifact.candidate.digest,
        "artifact": artifact.digest,
        "code": digest_bytes(artifact.code.data),
    }
    figures = tuple(
        Figure(name, key.get(name, "absent")[:120], value) for name, value in true.items() if key.get(name) != value
    )
    if figures:
        names = ", ".join(figure.what for figure in figures)
        return Reason("key names another thing", f"the key's {names} are not those of what was checked", figures)
    return None
