"""Whether an image fits this machine, and which of its regions runs here.

Imported by: runtime.session, cli.  Imports: image, plan, devices.
"""

from __future__ import annotations

import os
from typing import Final

from tribunus.canon import decode
from tribunus.devices.cpu import cpu_features
from tribunus.errors import FeatureError, TargetError
from tribunus.image.read import ImageFile
from tribunus.plan.document import plan_from_json
from tribunus.plan.plan import Plan
from tribunus.records import dataclass

PLAN_LIMIT: Final = 64 << 20
_MACHINES: Final = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Fit:
    """How one region fits: what is missing, in words; empty if nothing is."""

    target: str
    plan: Plan
    missing: tuple[str, ...]
    available: frozenset[str] = frozenset()
    """Processor features found here."""


def fits(source: ImageFile) -> tuple[Fit, ...]:
    """Every region of the file against this machine, in the file's order."""
    available = cpu_features()
    return tuple(_fit(source, target, available) for target in source.targets)


def choose_region(source: ImageFile) -> Fit:
    """The region to run here: of those that fit, the one for the richest processor.

    Raises FeatureError if only features are missing, else TargetError.
    """
    found = fits(source)
    good = [fit for fit in found if not fit.missing]
    if good:
        return max(good, key=lambda fit: len(fit.plan.features))
    reasons = "; ".join(f"{fit.target}: {', '.join(fit.missing)}" for fit in found) or "it holds no region"
    if any(fit.target.startswith("cpu-") for fit in found):
        raise FeatureError(f"no region of the image fits this machine: {reasons}")
    raise TargetError(f"no region of the image fits this machine: {reasons}")


def _fit(source: ImageFile, target: str, available: frozenset[str]) -> Fit:
    plan = plan_from_json(decode(source.region(target).plan(), limit=PLAN_LIMIT))
    missing: list[str] = []
    if not target.startswith("cpu-"):
        missing.append(f"no device for {target} here")
    elif plan.target != target:
        missing.append(f"its plan is for {plan.target}")
    else:
        machine = _MACHINES.get(os.uname().machine, os.uname().machine)
        wanted = "aarch64" if plan.arch in ("aarch64", "neoverse-v1") else "x86-64"
        if machine != wanted:
            missing.append(f"code is for {wanted}, this is {machine}")
        else:
            missing.extend(f"cpu feature {name}" for name in plan.features if name not in available)
    return Fit(target, plan, tuple(missing), available)
