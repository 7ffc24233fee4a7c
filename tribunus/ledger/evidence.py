"""When earlier evidence still holds.

Imported by: certification, cli.  Imports: ledger.store, admission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tribunus.admission.receipt import Check, Receipt, Verdict
from tribunus.canon import Digest
from tribunus.ledger.store import Ledger

FAR_BEYOND: Final = 1.5
"""A kernel whose fastest call took so many times its budget of CPU time is slow on a quiet machine too."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What the ledger says about one check on one candidate.

    receipt: evidence that holds, None if there is none.  differing: key fields that differ from the newest receipt,
    (name, then, now), where no receipt has them all equal.
    """

    receipt: Receipt | None
    differing: tuple[tuple[str, str, str], ...]


def find_evidence(ledger: Ledger, candidate: Digest, check: Check, key: Mapping[str, str], machine: Digest) -> Reuse:
    """Evidence is reused only where every key field is equal; timing also needs the same machine.

    Of several with an equal key the newest decides.  A receipt that is ``mistrusted``, or that ended in a crash or a
    time-out, is made again; so is a rejection by time that a busy machine may have caused.
    """
    first: tuple[tuple[str, str, str], ...] = ()
    for entry in ledger.newest(candidate, check):
        differing = tuple(
            (name, entry.key.get(name, "absent"), key.get(name, "absent"))
            for name in sorted(entry.key.keys() | key.keys())
            if entry.key.get(name) != key.get(name)
        )
        if check is Check.TIMING and entry.receipt.machine != machine:
            differing += (("machine", entry.receipt.machine[:12], machine[:12]),)
        if not differing:
            return Reuse(entry.receipt if _lasts(entry.receipt) else None, ())
        first = first or differing
    return Reuse(None, first)


def _lasts(receipt: Receipt) -> bool:
    """Whether the verdict would be the same today."""
    if receipt.check is Check.TIMING and receipt.verdict is Verdict.REJECTED:
        return _was_slow_throughout(receipt)
    return receipt.verdict in (Verdict.PASSED, Verdict.REJECTED)


def _was_slow_throughout(receipt: Receipt) -> bool:
    """Whether no call came near the budget: others may take the processor, and slow some calls down, but not all."""
    timing = receipt.timing
    return timing is not None and min(timing.cpu_ns, default=0) > FAR_BEYOND * timing.budget_ns
