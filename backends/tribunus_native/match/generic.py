"""The generic family: any group, by loops.

Imported by: table.  Imports: loops.lower.
"""

from __future__ import annotations

from collections.abc import Iterator

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.numerics.policy import ComputePolicy
from tribunus.targets.target import Target
from tribunus_native.loops.expression import TRANSCENDENTAL
from tribunus_native.loops.lower import REDUCTIONS, LoopPoint, lower, unsupported
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import permutes_only, proposed
from tribunus_native.toolchain import Contraction, Cpu

POLICIES = frozenset((ComputePolicy.FP32, ComputePolicy.FP32_STRICT, ComputePolicy.FP32_WINOGRAD))


class Loops:
    """Kernels from loop nests; slow for products and convolutions, at memory speed for most else."""

    @property
    def name(self) -> str:
        return "loops"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return unsupported(signature)

    def points(self, signature: Signature, cpu: Cpu) -> Iterator[dict[str, ConfigValue]]:
        """The search space, the rule's point first."""
        heavy = any(op.kind in TRANSCENDENTAL for op in signature.phase.ops)
        native = cpu.native_lanes
        choices = [(native, 1 if heavy else 4), (native, 2), (native, 4 if heavy else 1)]
        if native > 4:
            choices += [(native // 2, 2), (native // 2, 4)]
        strict = signature.policy is ComputePolicy.FP32_STRICT
        contractions = (Contraction.SEPARATE,) if strict else (Contraction.FUSED, Contraction.SEPARATE)
        for contraction in contractions:
            for wide in self._sums(signature):
                for lanes, unroll in choices:
                    yield {"lanes": lanes, "unroll": unroll, "contraction": contraction.value, "wide_sums": wide}

    def _sums(self, signature: Signature) -> tuple[int, ...]:
        """Whether sums are accumulated in float64, the better choice first.

        A variance as the difference of two moments multiplies their errors: there the sums must be nearly exact.
        """
        if not any(op.kind in REDUCTIONS for op in signature.phase.ops):
            return (0,)
        return (1, 0) if signature.label.endswith("_moments") else (0, 1)

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        if layouts is not None and not permutes_only(layouts):
            return
        tuples = list(proposed(signature)) if layouts is None else [layouts]
        for point in self.points(signature, cpu):
            for border in tuples:
                yield Proposal({"template": self.name, **point}, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        point = LoopPoint(
            lanes=config.integer("lanes"),
            unroll=config.integer("unroll"),
            contraction=Contraction(config.text("contraction")),
            parts=target.threads,
            avx512=cpu.has_avx512,
            wide_sums=bool(config.integer("wide_sums")),
        )
        return lower(signature, layouts, point)
