"""This report against an earlier one: what became slower, and what changed around it.

Imported by: command, certification's plug-in.  Imports: model.
"""

from __future__ import annotations

from tribunus_reports.model import CandidateRow, Report
from tribunus_reports.model_parts import Baseline, BaselineRow, Change


def compare(old: Report, new: Report) -> Baseline:
    """Rows for every signature, by digest, for which both reports chose and timed a kernel."""
    then = {row.digest: row for row in old.signatures if row.used}
    now = {row.digest: row for row in new.signatures if row.used}
    old_kernels, new_kernels = _kernels(old), _kernels(new)
    rows = []
    for digest, signature in now.items():
        before, after = old_kernels.get(digest), new_kernels.get(digest)
        if before is not None and after is not None:
            rows.append(
                BaselineRow(
                    signature=signature.id,
                    old=before.id,
                    new=after.id,
                    old_ns=before.p50_ns,
                    new_ns=after.p50_ns,
                    old_error=before.error_share,
                    new_error=after.error_share,
                )
            )
    return Baseline(
        image="" if old.image is None else old.image.id,
        at=old.made.at,
        tool=old.made.tool,
        changed=_changes(old, new),
        gone=tuple(row.id for digest, row in then.items() if digest not in now),
        new=tuple(row.id for digest, row in now.items() if digest not in then),
        rows=tuple(rows),
    )


def _kernels(report: Report) -> dict[str, CandidateRow]:
    """The timed kernel of each used signature, by the signature's digest."""
    rows = {(row.signature, row.id): row for row in report.candidates if row.p50_ns}
    pairs = ((row.digest, rows.get((row.id, row.chosen or ""))) for row in report.signatures if row.used)
    return {digest: row for digest, row in pairs if row is not None}


def _changes(old: Report, new: Report) -> tuple[Change, ...]:
    was = {**dict(old.session.machine), **dict(old.session.toolchain), "model": old.model.digest[:16]}
    now = {**dict(new.session.machine), **dict(new.session.toolchain), "model": new.model.digest[:16]}
    keys = [*was, *(key for key in now if key not in was)]
    return tuple(
        Change(what=key, was=was.get(key, "none"), now=now.get(key, "none"))
        for key in keys
        if was.get(key) != now.get(key)
    )
