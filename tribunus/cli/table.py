"""Which commands there are: names, groups and summaries, so that help and dispatch import no command.

Imported by: cli.tool, tests.  Imports: the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Group(StrEnum):
    """Headings of ``tribunus --help``, in its order."""

    FIRST = "First use"
    IMAGES = "Images"
    TRUST = "Trust"
    EVIDENCE = "Evidence"
    MODELS = "Models"
    OTHER = "From other packages"


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of the core.  module: below ``tribunus.cli``; its ``COMMAND`` is the command."""

    name: str
    module: str
    group: Group
    summary: str


ENTRIES: Final = (
    Entry("doctor", "doctor", Group.FIRST, "what can be built and run here, and what is missing"),
    Entry("run", "run", Group.FIRST, "compute outputs from inputs with an image"),
    Entry("verify", "verify", Group.IMAGES, "check everything: form, signatures, digests, plan, evidence"),
    Entry("inspect", "inspect", Group.IMAGES, "show what an image holds: kernels, profiles, memory, signers"),
    Entry("fits", "fits", Group.IMAGES, "say whether an image can run on this machine, and why not"),
    Entry("selftest", "selftest", Group.IMAGES, "replay the recorded cases and compare every bit"),
    Entry("bench", "bench", Group.IMAGES, "time an image's replay, alone or against other engines"),
    Entry("diff", "diff", Group.IMAGES, "compare the contents of two images"),
    Entry("normalize", "normalize", Group.IMAGES, "bring a copy from a registry back into the canonical file"),
    Entry("keys", "keys", Group.TRUST, "list, make, show and trust signing keys"),
    Entry("recertify", "recertify", Group.EVIDENCE, "repeat an image's six checks here and compare verdicts"),
    Entry("phaseir", "phaseir", Group.MODELS, "print a model in PhaseIR, as lowered or as optimised"),
    Entry("export", "export", Group.MODELS, "write a model back as ONNX, from its PhaseIR"),
)

PLUGIN_GROUPS: Final[dict[str, Group]] = {
    "certify": Group.FIRST,
    "approve": Group.TRUST,
    "report": Group.EVIDENCE,
    "gate": Group.EVIDENCE,
}
"""Where commands of our own other packages stand in the help; those of strangers come last."""
