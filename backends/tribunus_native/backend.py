"""The native backend: C from templates and loop nests, compiled to flat code.

Imported by: the entry point ``tribunus.backends``, tests.  Imports: candidates, plan, match, flat, toolchain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tribunus.candidates.backend import AVAILABLE, Availability, Budget, Feedback
from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility, Signature
from tribunus.canon import Digest
from tribunus.errors import InternalError
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.program import Array
from tribunus.plan.code import Code, CodeFormat, Operand, Packing, Recipe
from tribunus.targets.target import Target
from tribunus_native.flat import FlatCode, build_flat
from tribunus_native.match.kernel import Family, Kernel, Proposal
from tribunus_native.match.packers import pack_named
from tribunus_native.match.table import FAMILIES
from tribunus_native.sequencer import SEQUENCER_ROLE, sequencer_code
from tribunus_native.toolchain import Contraction, Cpu, Toolchain, Unavailable, find_toolchain, require_toolchain

FORMAT = CodeFormat("flat")
_POLICIES = (ComputePolicy.FP32, ComputePolicy.FP32_STRICT, ComputePolicy.FP32_WINOGRAD)


def cpu_of(target: Target) -> Cpu | None:
    """The instruction set of a target, None if the compiler has no settings for it."""
    return next((cpu for cpu in Cpu if cpu.value == target.arch), None)


class NativeBackend:
    """Proposes template points and loop nests, and builds them."""

    def __init__(self) -> None:
        self._found: Toolchain | None = None

    @property
    def name(self) -> str:
        """``native``."""
        return "native"

    @property
    def formats(self) -> Sequence[CodeFormat]:
        """Flat code only."""
        return (FORMAT,)

    def serves(self, target: Target) -> Availability:
        """CPU targets, where the compiler is installed."""
        if target.family != "cpu":
            return Availability(False, f"makes code for cpu targets, not {target.family}")
        if cpu_of(target) is None:
            names = ", ".join(cpu.value for cpu in Cpu)
            return Availability(False, f"has no compiler settings for {target.arch}", f"use one of {names}")
        found = self._found or find_toolchain()
        if isinstance(found, Unavailable):
            return Availability(False, found.reason, "pip install 'tribunus-compute[native]'")
        self._found = found
        return AVAILABLE

    def covers(self, signature: Signature, target: Target) -> Availability:
        """Whether some family computes it."""
        cpu = cpu_of(target)
        if target.family != "cpu" or cpu is None:
            return Availability(False, f"makes no code for {target.name}")
        if signature.policy not in _POLICIES:
            return Availability(False, f"does not compute in the policy {signature.policy.value}")
        reasons = [family.why_not(signature, cpu) for family in FAMILIES]
        if "" in reasons:
            return AVAILABLE
        return Availability(False, reasons[-1])

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        """Templates before loops; with a layout plan only its layouts, without one the best of each layout first."""
        cpu = cpu_of(target)
        if cpu is None or not self.covers(signature, target).available:
            return
        refused = {refusal.candidate for refusal in feedback.refusals}
        families = [family for family in FAMILIES if not family.why_not(signature, cpu)]
        if feedback.layouts is not None:
            pool: Iterator[tuple[Family, Proposal]] = (
                (family, proposal)
                for family in families
                for proposal in family.propose(signature, cpu, feedback.layouts)
            )
        else:
            pool = _best_of_each_layout(families, signature, cpu)
        count = 0
        for _, proposal in pool:
            if count >= budget.limit:
                return
            candidate = Candidate(
                self.name, signature.digest, Config.of(proposal.config), proposal.layouts, Reproducibility.R
            )
            if candidate.digest not in refused:
                count += 1
                yield candidate

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        """C text, flat code, recipe.  Raises BuildFailed, ToolError."""
        cpu = cpu_of(target)
        if cpu is None:
            raise InternalError(f"{target.name} has no compiler settings")
        kernel = self.kernel(candidate, signature, target)
        flat = build_flat(kernel.text, cpu, kernel.contraction, self._toolchain(), workdir)
        return Artifact(
            candidate, signature, _code(flat), _recipe(candidate, signature, kernel), _record(flat, workdir)
        )

    def kernel(self, candidate: Candidate, signature: Signature, target: Target) -> Kernel:
        """The C text of a candidate and how it is called."""
        cpu = cpu_of(target)
        name = candidate.config.text("template")
        for family in FAMILIES:
            if family.name == name and cpu is not None:
                return family.build(signature, candidate.config, candidate.layouts, target, cpu)
        raise InternalError(f"no family is called {name!r}")

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        """Bytes of a named packing."""
        return pack_named(packing, arrays)

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        """The sequencer that walks launch lists."""
        cpu = cpu_of(target)
        if role != SEQUENCER_ROLE or cpu is None:
            return None
        return _code(build_flat(sequencer_code(), cpu, Contraction.SEPARATE, self._toolchain(), workdir))

    def _toolchain(self) -> Toolchain:
        if self._found is None:
            self._found = require_toolchain()
        return self._found


def _best_of_each_layout(
    families: Sequence[Family], signature: Signature, cpu: Cpu
) -> Iterator[tuple[Family, Proposal]]:
    """The best of every layout tuple, then the second best of each, and so on, families in order."""
    lines: dict[tuple[object, ...], list[tuple[Family, Proposal]]] = {}
    for family in families:
        for proposal in family.propose(signature, cpu, None):
            lines.setdefault(proposal.layouts, []).append((family, proposal))
    depth = max((len(line) for line in lines.values()), default=0)
    for rank in range(depth):
        for line in lines.values():
            if rank < len(line):
                yield line[rank]


def _code(flat: FlatCode) -> Code:
    machine: tuple[tuple[str, int | str], ...] = () if flat.cpu.is_x86 else (("machine", "aarch64"),)
    return Code(FORMAT, flat.code, (*machine, ("text_size", flat.text_size)))


def _recipe(candidate: Candidate, signature: Signature, kernel: Kernel) -> Recipe:
    border = [
        Operand(signature.type_of(value), layout, signature.type_of(value).dtype.itemsize)
        for value, layout in zip((*signature.inputs, *signature.outputs), candidate.layouts, strict=True)
    ]
    count = len(signature.inputs)
    return Recipe(
        tuple(border[:count]),
        tuple(border[count:]),
        kernel.weights,
        kernel.workspace,
        kernel.params,
        kernel.split,
        kernel.in_place,
    )


def _record(flat: FlatCode, workdir: Path) -> BuildRecord:
    folder = str(workdir)
    argv = tuple(word.replace(folder, ".") for word in ("zig", *flat.compile_argv, "&&", "zig", *flat.link_argv))
    name, _, rest = flat.compiler.partition(" ")
    version, _, digest = rest.partition(" ")
    toolchain = ((name, version), (f"{name}-binary", digest))
    return BuildRecord(toolchain, argv, Digest(flat.source_digest))


BACKEND = NativeBackend()
