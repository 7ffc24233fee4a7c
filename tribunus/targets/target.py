"""Targets: facts of the machine that an image will run on.

Imported by: candidates, planning, isolation, admission, certification, backends.  Imports: errors, canon.
"""

from __future__ import annotations

from typing import Final

from tribunus.errors import UsageError
from tribunus.records import dataclass

_V3: Final = frozenset(("avx", "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"))
_V4: Final = _V3 | frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
_ZNVER4: Final = _V4 | frozenset(
    ("avx512_vnni", "avx512_bf16", "avx512ifma", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq")
)

CPU_LEVELS: Final[dict[str, frozenset[str]]] = {
    "x86-64-v2": frozenset(("sse4_2", "ssse3", "popcnt", "cx16")),
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "znver4": _ZNVER4,
    "aarch64": frozenset(("asimd", "fp")),
}
"""Named levels of a CPU: the features (as the operating system names them) that code for the level may use."""


@dataclass(frozen=True, slots=True)
class Target:
    """What candidates are built for.

    family: ``cpu``, ``cuda``, ``rocm``, ...  arch: named level of the family.  threads: parts of the static partition.
    """

    family: str
    arch: str
    threads: int

    @property
    def name(self) -> str:
        """Name of the image's region: ``cpu-x86-64-v4``."""
        return f"{self.family}-{self.arch}"

    @property
    def features(self) -> frozenset[str]:
        """CPU features that code for this target may use; empty for other families."""
        return CPU_LEVELS.get(self.arch, frozenset())

    @property
    def vector_bytes(self) -> int:
        """Width of the widest vector registers the level has."""
        if self.arch in ("x86-64-v4", "znver4"):
            return 64
        return 32 if self.arch == "x86-64-v3" else 16


@dataclass(frozen=True, slots=True)
class Peaks:
    """Roofline of one thread, measured in this session.

    flops: fp32 operations a second.  int8_ops: 8-bit operations a second.  bandwidth: (bytes of working set, bytes a
    second) from the smallest cache to memory.  launch_ns: cost of an empty call.  evidence: digest of the samples.
    """

    flops: float
    int8_ops: float
    bandwidth: tuple[tuple[int, float], ...]
    launch_ns: int
    evidence: str

    def bytes_per_second(self, working_set: int) -> float:
        """Bandwidth of the fastest level that holds ``working_set`` bytes."""
        for size, rate in self.bandwidth:
            if working_set <= size:
                return rate
        return self.bandwidth[-1][1]

    @property
    def fastest(self) -> float:
        """Bandwidth of the fastest level."""
        return max(rate for _, rate in self.bandwidth)


def parse_target(text: str, *, host_arch: str, threads: int) -> Target:
    """``FAMILY[:ARCH]`` as a target; ``cpu`` alone means the host's level.  Raises UsageError."""
    family, _, arch = text.partition(":")
    if family != "cpu":
        raise UsageError(f"target family {family[:40]!r} has no backend here", remedy="use --target cpu[:ARCH]")
    arch = arch or host_arch
    if arch not in CPU_LEVELS:
        raise UsageError(f"unknown cpu level {arch[:40]!r}", remedy=f"one of {', '.join(CPU_LEVELS)}")
    return Target(family, arch, threads)
