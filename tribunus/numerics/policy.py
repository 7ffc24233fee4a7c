"""Compute policies: which formats a signature may be computed in.  Fixed before any candidate exists.

Imported by: oracle, candidates, plan documents.  Imports: nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ComputePolicy(StrEnum):
    """Name of a policy as on the command line (``--compute``); part of every signature and cache key."""

    FP32 = "fp32"
    FP32_STRICT = "fp32-strict"
    FP32_WINOGRAD = "fp32-winograd"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """Numbers of a policy.

    accumulator_roundoff: u of the accumulator.  input_roundoff: factor of the input conversion term, 0 if inputs are
    not converted.  truncation, k_step: b and s of the truncating-accumulator term ``b u ceil(n / s) R``.
    winograd_factor: multiplies the statistical term of convolutions.  exact_probes: whether the exact-integer and
    identity probes must hold bit for bit.
    """

    accumulator_roundoff: float
    input_roundoff: float
    truncation: int
    k_step: int
    winograd_factor: float
    exact_probes: bool


POLICIES: Final[dict[ComputePolicy, PolicyFacts]] = {
    ComputePolicy.FP32: PolicyFacts(2.0**-24, 0.0, 0, 1, 1.0, True),
    ComputePolicy.FP32_STRICT: PolicyFacts(2.0**-24, 0.0, 0, 1, 1.0, True),
    ComputePolicy.FP32_WINOGRAD: PolicyFacts(2.0**-24, 0.0, 0, 1, 24.0, False),
    ComputePolicy.TF32: PolicyFacts(2.0**-24, 2.0**-11, 2, 8, 1.0, True),
    ComputePolicy.BF16: PolicyFacts(2.0**-24, 0.0, 2, 16, 1.0, True),
    ComputePolicy.FP16: PolicyFacts(2.0**-24, 0.0, 2, 16, 1.0, True),
}
