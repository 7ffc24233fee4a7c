"""Peaks follow from the fastest samples, and no level is faster than a smaller one."""

from __future__ import annotations

from tribunus.targets.calibrate import Calibration, Samples, calibration_to_json


def calibration(**reads: int) -> Calibration:
    return Calibration(
        fma=Samples("fma", 1000, (20, 10, 30)),
        dot=Samples("dot", 4000, (10,)),
        reads=tuple((int(size[1:]), Samples(size, 640, (time, 2 * time))) for size, time in reads.items()),
        launch=Samples("launch", 100, (450, 270)),
    )


def test_the_fastest_sample_is_the_peak() -> None:
    peaks = calibration(b32=10, b1000=20).peaks
    assert (peaks.flops, peaks.int8_ops, peaks.launch_ns) == (1e11, 4e11, 3)
    assert peaks.bandwidth == ((32, 64e9), (1000, 32e9))
    assert peaks.bytes_per_second(33) == 32e9
    assert peaks.fastest == 64e9


def test_a_larger_level_is_never_faster() -> None:
    assert calibration(b32=20, b1000=10).peaks.bandwidth == ((32, 32e9), (1000, 32e9))


def test_the_evidence_is_the_digest_of_every_sample() -> None:
    first, same, other = calibration(b32=20), calibration(b32=20), calibration(b32=21)
    assert first.peaks.evidence == same.digest != other.digest
    assert calibration_to_json(first) == calibration_to_json(same)
