"""A backend of somebody else: native's kernels, of which some return at once.  ``WRONG`` says which: all, or first.

What it learns from refusals is appended to the file ``WRONG_HEARD``.
"""

import os
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tribunus_native.backend import BACKEND as NATIVE

from tribunus.candidates.backend import Backend, Budget, Feedback
from tribunus.candidates.model import Artifact, Candidate, Config, Signature
from tribunus.plan.code import Code
from tribunus.targets.target import Target

RETURN = {"x86_64": bytes.fromhex("c3"), "aarch64": bytes.fromhex("c0035fd6")}[platform.machine()]


class WrongBackend:
    """Delegates to native all that it does not spoil."""

    name = "wrong"
    formats = NATIVE.formats
    serves = NATIVE.serves
    covers = NATIVE.covers
    pack = NATIVE.pack
    host_code = NATIVE.host_code

    def propose(self, signature: Signature, target: Target, budget: Budget, feedback: Feedback) -> Iterator[Candidate]:
        for refusal in feedback.refusals:
            with Path(os.environ["WRONG_HEARD"]).open("a") as heard:
                heard.write(f"{refusal.candidate} {refusal.check} {refusal.reason}\n")
        plain = replace(feedback, refusals=())
        for own in NATIVE.propose(signature, target, budget, plain):
            for spoilt in (1,) if os.environ["WRONG"] == "all" else (1, 0):
                config = Config.of({**dict(own.config.items), "spoilt": spoilt})
                yield replace(own, backend=self.name, config=config)

    def build(self, candidate: Candidate, signature: Signature, target: Target, workdir: Path) -> Artifact:
        config = dict(candidate.config.items)
        spoilt = config.pop("spoilt")
        made = NATIVE.build(
            replace(candidate, backend=NATIVE.name, config=Config.of(config)), signature, target, workdir
        )
        data = RETURN + made.code.data[len(RETURN) :] if spoilt else made.code.data
        return replace(made, candidate=candidate, code=Code(made.code.format, data, made.code.facts))


BACKEND: Backend = WrongBackend()
