"""Where oneDNN 3.2 is known to compute something else than its definition, so that little is spent on proving it again.

Imported by: backend.  Imports: problem.

All of it was found by the oracle.  Such problems are still proposed, because a verdict is the oracle's to give, but
with the library's own choice alone, not with every implementation that has the same fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tribunus_onednn.problem import Problem


@dataclass(frozen=True, slots=True)
class Deviation:
    """What is wrong, in words, and whether the reference implementation has the same fault."""

    reason: str
    everywhere: bool


_NAN: Final = "a NaN becomes a number"
RELU: Final = Deviation("a NaN becomes 0, and in reference code minus infinity becomes NaN", True)
DEVIATIONS: Final = MappingProxyType(
    {
        "eltwise_clip": Deviation(_NAN, True),
        "binary_max": Deviation(_NAN, True),
        "binary_min": Deviation(_NAN, True),
        "pooling_max": Deviation(_NAN, True),
        "reduction_max": Deviation(_NAN, True),
        "reduction_min": Deviation(_NAN, True),
        "eltwise_hardsigmoid": Deviation(_NAN, False),
        "eltwise_exp": Deviation(_NAN, False),
        "eltwise_gelu_erf": Deviation("infinity becomes NaN", False),
        "eltwise_swish": Deviation("small results of large negative numbers become 0", False),
        "eltwise_log": Deviation("relative errors of many units in the last place near 1", False),
        "softmax_accurate": Deviation("a NaN becomes 0, and subnormal results become 0", False),
        "softmax_log": Deviation("errors beyond those of fp32 arithmetic, and a NaN becomes infinity", False),
    }
)


def deviation_of(problem: Problem) -> Deviation | None:
    """The worst known deviation of a problem, None where there is none."""
    algorithms = [(problem.alg, dict(problem.numbers).get("alpha", 0.0))]
    algorithms += [(step.alg, step.alpha) for step in problem.post_ops]
    found: Deviation | None = None
    for alg, alpha in algorithms:
        # With a slope for negative numbers, relu multiplies and so keeps a NaN.
        deviation = RELU if alg == "eltwise_relu" and alpha == 0.0 else DEVIATIONS.get(alg)
        if deviation is not None and (found is None or deviation.everywhere):
            found = deviation
    return found
