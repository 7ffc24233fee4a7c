"""Calibration as data: what was timed on a machine, and the peaks that follow from it.

Imported by: isolation.calibration (which measures), certification.  Imports: canon, target.
"""

from __future__ import annotations

from dataclasses import dataclass

from tribunus.canon import Digest, Json, digest_of
from tribunus.targets.target import Peaks


@dataclass(frozen=True, slots=True)
class Samples:
    """One loop's samples.  work: operations or bytes of one sample.  times_ns: of each sample."""

    name: str
    work: int
    times_ns: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Work a second in the fastest sample: interference only ever makes one slower."""
        return self.work * 1e9 / max(1, min(self.times_ns))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Samples of a session.  reads: (bytes that the level holds, samples), smallest level first.

    launch: work is the number of empty calls in a sample.
    """

    fma: Samples
    dot: Samples
    reads: tuple[tuple[int, Samples], ...]
    launch: Samples

    @property
    def peaks(self) -> Peaks:
        """The roofline that the samples show.  A level is never faster than a smaller one."""
        bandwidth: list[tuple[int, float]] = []
        for size, samples in self.reads:
            rate = min(samples.rate, bandwidth[-1][1]) if bandwidth else samples.rate
            bandwidth.append((size, rate))
        launch_ns = round(min(self.launch.times_ns) / max(1, self.launch.work))
        return Peaks(self.fma.rate, self.dot.rate, tuple(bandwidth), launch_ns, self.digest)

    @property
    def digest(self) -> Digest:
        """Identity of the samples."""
        return digest_of(calibration_to_json(self))


def calibration_to_json(calibration: Calibration) -> Json:
    """Document form."""

    def document(samples: Samples) -> Json:
        return {"name": samples.name, "work": samples.work, "times_ns": list(samples.times_ns)}

    return {
        "fma": document(calibration.fma),
        "dot": document(calibration.dot),
        "reads": [[size, document(samples)] for size, samples in calibration.reads],
        "launch": document(calibration.launch),
    }
