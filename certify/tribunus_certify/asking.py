"""What is asked for: the options' values, and the request that follows from them, or why it cannot be done.

Imported by: session, runner.  Imports: certification, frontend.  Knows no pytest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.admission.captured import CapturedCase
from tribunus.admission.policy import STANDARD
from tribunus.candidates.search import parse_effort
from tribunus.canon import MAX_INTEGER
from tribunus.certification.captured_files import load_captured
from tribunus.certification.choices import load_choices
from tribunus.certification.pipeline import JitUse, Request
from tribunus.errors import DimError, EnvironmentFault, UsageError
from tribunus.frontend.bindings import DimBindings, bindings_from_inputs, parse_dim_options
from tribunus.frontend.facts import ModelFacts
from tribunus.frontend.model import inspect_model
from tribunus.image.keys import Signer, load_private_key
from tribunus.image.policy import ensure_development_key
from tribunus.numerics.policy import ComputePolicy
from tribunus.planning.states import parse_state_options
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target, parse_target

LONGEST_NAME: Final = 120
"""Of an image: file names that begin with it are allowed everywhere."""
MOST_JOBS: Final = 1024
MOST_THREADS: Final = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """The options' values."""

    model: Path
    target: str
    dims: tuple[str, ...]
    states: tuple[str, ...]
    inputs: Path | None
    name: str
    output: Path
    compute: str
    effort: str
    backends: tuple[str, ...]
    threads: int
    jobs: int
    jit_at_open: str
    key: Path | None
    choices: Path | None
    ledger: Path | None
    epoch: int
    external_data: bool
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with the captured cases.  mismatch: how a case differs from what the model declares, in words."""

    request: Request
    captured: tuple[CapturedCase, ...]
    mismatch: str


def asked(settings: Settings) -> Asked:
    """What the settings ask for.  What is cheap to refuse is refused before the model is read."""
    target = _target(settings)
    compute = _compute(settings.compute)
    jit = _jit(settings.jit_at_open)
    effort = parse_effort(settings.effort)
    choices = None if settings.choices is None else load_choices(settings.choices)
    if not 1 <= settings.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {settings.jobs}", remedy=f"1 to {MOST_JOBS}")
    if not 0 <= settings.epoch <= MAX_INTEGER:
        raise UsageError(f"--epoch {settings.epoch}", remedy=f"0 to {MAX_INTEGER}")
    if len(settings.name) > LONGEST_NAME:
        raise UsageError(f"--name has {len(settings.name)} characters", remedy=f"at most {LONGEST_NAME}")
    facts = inspect_model(settings.model, external_data=settings.external_data)
    captured = () if settings.inputs is None else load_captured(settings.inputs, facts)
    request = Request(
        model=settings.model,
        external_data=settings.external_data,
        profiles=_profiles(settings.dims, facts, captured),
        target=target,
        compute=compute,
        effort=effort,
        policy=STANDARD,
        jobs=settings.jobs,
        jit=jit,
        states=parse_state_options(settings.states),
        choices=choices,
    )
    return Asked(request, captured, "" if settings.dims else _other_shape(captured, facts))


def signer_of(settings: Settings) -> Signer:
    """The key that will sign the image, made if it is to be the user's development key."""
    if settings.key is not None:
        return load_private_key(settings.key)
    return ensure_development_key(settings.environ)


def require_output(folder: Path) -> None:
    """Whether ``folder`` is one to write in, or can be made; nothing stays.  Raises EnvironmentFault.

    It is tried, because permissions say nothing to root, nor about a file system that takes no files.
    """
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise EnvironmentFault(f"cannot write to {folder}: {nearest} is no folder", remedy="name another --output")
    try:
        with tempfile.TemporaryDirectory(dir=nearest, prefix=".tribunus-"):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvironmentFault(f"cannot write to {folder}: {reason}", remedy="name another --output") from None


def _other_shape(captured: Sequence[CapturedCase], facts: ModelFacts) -> str:
    """The first captured input that has another extent than the model declares, in words; empty if none has."""
    for case in captured:
        for fact in facts.inputs:
            shape = case.inputs[fact.label].shape
            if any(isinstance(d, int) and d != n for d, n in zip(fact.dims, shape, strict=True)):
                return f"case {case.name!r}: input {fact.label!r} is {list(shape)}, {fact} was declared"
    return ""


def _profiles(options: Sequence[str], facts: ModelFacts, captured: Sequence[CapturedCase]) -> tuple[DimBindings, ...]:
    if options:
        return (_not_empty(parse_dim_options(options, facts), facts),)
    found = [bindings_from_inputs(facts, {k: v.shape for k, v in c.inputs.items()}) for c in captured]
    return tuple(dict.fromkeys(_not_empty(bindings, facts) for bindings in found)) or (DimBindings(),)


def _not_empty(bindings: DimBindings, facts: ModelFacts) -> DimBindings:
    """Where no input has an element, no kernel can be checked: nothing that it gives could be wrong."""
    empty = {name for name, bound in bindings.named if bound.lo == 0}
    axes = {label for label, _, bound in bindings.axes if bound.lo == 0}
    if (empty or axes) and all(fact.label in axes or empty.intersection(fact.dims) for fact in facts.inputs):
        names = ", ".join(sorted(empty | axes))
        raise DimError(f"{names}: with an extent of 0 no input has an element, and nothing can be checked")
    return bindings


def _target(settings: Settings) -> Target:
    if not 1 <= settings.threads <= MOST_THREADS:
        raise UsageError(f"--threads {settings.threads}", remedy=f"1 to {MOST_THREADS}")
    return parse_target(settings.target, host_arch=host_arch(), threads=settings.threads)


def _compute(text: str) -> ComputePolicy:
    try:
        return ComputePolicy(text)
    except ValueError:
        raise UsageError(f"compute policy {text[:40]!r}", remedy=", ".join(ComputePolicy)) from None


def _jit(text: str) -> JitUse:
    try:
        return JitUse(text)
    except ValueError:
        raise UsageError(f"--jit-at-open {text[:20]!r}", remedy=" or ".join(JitUse)) from None
