"""From a subject and a C body to an artifact, and to the context that a check wants.

Imported by: the tests beside it, tests of admission.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tribunus_native.flat import build_flat
from tribunus_native.toolchain import Contraction, Cpu, Toolchain, compiler_environment

from tests.faults.shared_object import FORMAT as SHARED_OBJECT
from tests.faults.subjects import Subject
from tribunus.admission.cases import CaseBook
from tribunus.admission.context import CheckContext
from tribunus.admission.flat_audit import audit_artifact, features_used
from tribunus.admission.key import Machine, full_key
from tribunus.admission.policy import STANDARD
from tribunus.candidates.backend import AVAILABLE, Availability, Budget, Feedback
from tribunus.candidates.model import Artifact, BuildRecord, Candidate, Config, Reproducibility, Signature
from tribunus.canon import Digest, digest_bytes
from tribunus.errors import TimingUntrusted
from tribunus.phaseir.program import Array
from tribunus.plan.code import Code, CodeFormat, Operand, Packing, Recipe
from tribunus.targets.target import Peaks, Target

T = TypeVar("T")
TARGET = Target("cpu", "x86-64-v3", 1)
POLICY = replace(STANDARD, slack=64.0)
"""Kernels here are plain loops: slow is no fault of theirs."""

HEAD = """#include <stddef.h>
#include <stdint.h>
"""
ENTRY = """
__attribute__((visibility("default")))
void kernel(void *const *buffers, const int64_t *params, int64_t part, int64_t parts) {
(void)params; (void)part; (void)parts;
"""
_SHARED_ARGV = (
    "cc", "-c", "-std=c23", "-O3", "-target", "x86_64-linux-gnu", "-mcpu=x86_64_v3", "-ffp-contract=off",
    "-fno-math-errno", "-ffreestanding", "-fPIC", "-fno-stack-protector", "-fno-sanitize=all", "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables", "-g0", "-Wall", "-Werror", "-Wno-unused-function",
)  # fmt: skip


class CorpusBackend:
    """Packs by layouts; its artifacts are built by the workshop."""

    name = "corpus"
    formats: Sequence[CodeFormat] = (CodeFormat("flat"), SHARED_OBJECT)

    def serves(self, target: Target) -> Availability:
        return AVAILABLE

    def covers(self, signature: Signature, target: Target) -> Availability:
        return AVAILABLE

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        return iter(())

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        raise AssertionError("the workshop builds these artifacts")

    def pack(self, packing: Packing, arrays: Sequence[Array]) -> bytes:
        raise AssertionError(packing.name)

    def host_code(self, role: str, target: Target, workdir: Path) -> Code | None:
        return None


@dataclass
class Workshop:
    """Builds kernels, each source once; makes contexts, the cases of each signature once."""

    toolchain: Toolchain
    scratch: Path
    peaks: Peaks
    machine: Machine
    _codes: dict[tuple[str, str], Code] = field(default_factory=dict)
    _books: dict[Digest, CaseBook] = field(default_factory=dict)

    def flat(self, source: str, cpu: Cpu = Cpu.X86_64_V3) -> Code:
        """Flat code of a whole C source."""
        key = (source, cpu.value)
        if key not in self._codes:
            made = build_flat(source, cpu, Contraction.SEPARATE, self.toolchain, self.scratch)
            self._codes[key] = Code(CodeFormat("flat"), made.code, (("text_size", made.text_size),))
        return self._codes[key]

    def shared_object(self, source: str) -> Code:
        """A shared object that finds the C library's functions in the process that loads it."""
        key = (source, "so")
        if key not in self._codes:
            place = self.scratch / f"so-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "kernel.c").write_text(source, encoding="utf-8")
            cache = self.scratch / "cache"
            cache.mkdir(exist_ok=True)
            for argv in (
                (*_SHARED_ARGV, "-o", "kernel.o", "kernel.c"),
                ("ld.lld", "-shared", "--build-id=none", "-o", "kernel.so", "kernel.o"),
            ):
                subprocess.run(
                    [str(self.toolchain.zig), *argv],
                    cwd=place,
                    env=compiler_environment(cache),
                    check=True,
                    timeout=120,
                )
            self._codes[key] = Code(SHARED_OBJECT, str(place / "kernel.so").encode())
        return self._codes[key]

    def artifact(self, subject: Subject, body: str, *, shared: bool = False, cpu: Cpu = Cpu.X86_64_V3) -> Artifact:
        """An artifact whose kernel is ``body``: what stands before the line ``BEGIN``, if it has one, goes outside."""
        outside, marker, inside = body.partition("BEGIN\n")
        source = (
            HEAD + (outside if marker else "") + ENTRY + subject.declarations + (inside if marker else body) + "}\n"
        )
        code = self.shared_object(source) if shared else self.flat(source, cpu)
        return self.assemble(subject, code, digest_bytes(source.encode()))

    def assemble(self, subject: Subject, code: Code, source: Digest) -> Artifact:
        """An artifact around ``code``."""
        signature = subject.signature
        border = (*signature.inputs, *signature.outputs)
        aligns = subject.aligns or (0,) * len(border)
        operands = [
            Operand(signature.type_of(v), layout, align or signature.type_of(v).dtype.itemsize)
            for v, layout, align in zip(border, subject.layouts, aligns, strict=True)
        ]
        count = len(signature.inputs)
        recipe = Recipe(
            tuple(operands[:count]), tuple(operands[count:]), subject.weights(), subject.workspace, subject.params
        )
        config = Config.of({"source": source[:16]})
        candidate = Candidate("corpus", signature.digest, config, subject.layouts, Reproducibility.R)
        return Artifact(candidate, signature, code, recipe, BuildRecord((("zig", "corpus"),), (), source))

    def book(self, signature: Signature) -> CaseBook:
        """The cases of a signature."""
        if signature.digest not in self._books:
            self._books[signature.digest] = CaseBook(signature)
        return self._books[signature.digest]

    def key_of(self, artifact: Artifact, target: Target = TARGET) -> Mapping[str, str]:
        """The full key."""
        return full_key(artifact, target, self.machine)

    def context(self, artifact: Artifact) -> CheckContext:
        """Everything that a check may know about an honest build of ``artifact``."""
        return CheckContext(
            signature=artifact.signature,
            target=TARGET,
            policy=POLICY,
            cases=self.book(artifact.signature),
            layouts=artifact.candidate.layouts,
            peaks=self.peaks,
            key_of=self.key_of,
            expected_key=self.key_of(artifact),
            audit=audit_artifact,
            used_features=features_used,
            machine=digest_bytes(b"machine"),
            versions=(),
            clock_ns=time.monotonic_ns,
        )


def calmly(judge: Callable[[], T]) -> T:
    """What ``judge`` says.  A machine too busy to judge is no verdict, so it is asked again, twice at most."""
    for _ in range(2):
        try:
            return judge()
        except TimingUntrusted:
            continue
    return judge()
