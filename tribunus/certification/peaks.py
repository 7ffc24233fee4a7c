"""The machine's peaks as far as they were ever seen: what a physical floor must not exceed.

Imported by: certification.  Imports: isolation.calibration, targets, ledger.documents.

A processor that is shared shows its peak only in quiet moments.  A peak measured too low makes honest kernels
impossible, so the best of all measurements on this machine counts, and a kernel that beats the floor causes another
measurement before it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tribunus.canon import (
    Digest,
    Json,
    digest_of,
    f64_to_text,
    int_of,
    list_of,
    object_of,
    row_of,
    str_of,
    text_to_float,
)
from tribunus.ledger.documents import DocumentStore
from tribunus.targets.target import Peaks

BETTER: Final = 1.01
"""A measurement counts as better from this factor on."""


class PeakMeter:
    """Holds the best peaks; measures when they are first asked for, and when told to do so ``again``."""

    def __init__(self, measure: Callable[[], Peaks], documents: DocumentStore, machine: Digest) -> None:
        self._measure = measure
        self._documents = documents
        self._machine = machine
        self._measured: Peaks | None = None
        self._stored = documents.get("peaks", machine, peaks_from_json)

    @property
    def seen(self) -> Peaks | None:
        """The best peaks so far, of this session or of earlier ones; nothing is measured."""
        return self._stored if self._measured is None else self._measured

    @property
    def best(self) -> Peaks:
        """The best peaks, measured in this session too."""
        if self._measured is None:
            found = self._measure()
            self._measured = self._keep(found if self._stored is None else merge(found, self._stored))
        return self._measured

    def again(self) -> bool:
        """Measure once more; whether any rate is better than before."""
        before = self.best
        now = self._measured = self._keep(merge(before, self._measure()))
        pairs = [(before.flops, now.flops), (before.int8_ops, now.int8_ops)]
        pairs += [(b, n) for (_, b), (_, n) in zip(before.bandwidth, now.bandwidth, strict=True)]
        return any(new > old * BETTER for old, new in pairs)

    def _keep(self, peaks: Peaks) -> Peaks:
        self._documents.put("peaks", self._machine, peaks_to_json(peaks))
        return peaks


def merge(left: Peaks, right: Peaks) -> Peaks:
    """The better of both, rate by rate."""
    if [size for size, _ in left.bandwidth] != [size for size, _ in right.bandwidth]:
        return left
    bandwidth = tuple((size, max(a, b)) for (size, a), (_, b) in zip(left.bandwidth, right.bandwidth, strict=True))
    evidence = digest_of(dict.fromkeys((left.evidence, right.evidence), True))
    return Peaks(
        max(left.flops, right.flops),
        max(left.int8_ops, right.int8_ops),
        bandwidth,
        min(left.launch_ns, right.launch_ns),
        evidence,
    )


def peaks_to_json(peaks: Peaks) -> dict[str, Json]:
    """Document form."""
    return {
        "flops": f64_to_text(peaks.flops),
        "int8_ops": f64_to_text(peaks.int8_ops),
        "bandwidth": [[size, f64_to_text(rate)] for size, rate in peaks.bandwidth],
        "launch_ns": peaks.launch_ns,
        "evidence": peaks.evidence,
    }


def peaks_from_json(value: Json) -> Peaks:
    """Inverse of ``peaks_to_json``.  Raises SchemaError."""
    where = "peaks"
    document = object_of(value, where, frozenset(("flops", "int8_ops", "bandwidth", "launch_ns", "evidence")))
    levels: list[tuple[int, float]] = []
    for item in list_of(document["bandwidth"], where):
        size, rate = row_of(item, where, "bytes", "rate")
        levels.append((int_of(size, where), text_to_float(str_of(rate, where))))
    return Peaks(
        text_to_float(str_of(document["flops"], where)),
        text_to_float(str_of(document["int8_ops"], where)),
        tuple(levels),
        int_of(document["launch_ns"], where),
        str_of(document["evidence"], where),
    )
