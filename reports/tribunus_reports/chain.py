"""The end of the page: who signed, the chain of evidence, and the lines that people paste into a shell.

Imported by: projection.  Imports: model, policy.  Pure.
"""

from __future__ import annotations

import shlex

from tribunus_reports.codec import Plain
from tribunus_reports.display import count, ratio, three_digits, visible
from tribunus_reports.model import ProgramCheckRow, Report, WitnessRow
from tribunus_reports.model_parts import ReportState, WitnessVerdict
from tribunus_reports.policy import Policy


def signers(report: Report) -> list[Plain]:
    """Who signed, for the facts at the top."""
    if report.image is None:
        return []
    return [
        {
            "name": visible(signer.name, 60),
            "keyid": signer.keyid,
            "at": signer.at,
            "role": visible(signer.role, 40) + (", development key" if signer.development else ""),
        }
        for signer in report.image.signers
    ]


def counted_keys(report: Report, policy: Policy) -> frozenset[str]:
    """Ids of the keys whose signature counts for the policy."""
    signers = () if report.image is None else report.image.signers
    allowed = policy.keys or frozenset(signer.keyid for signer in signers if not signer.development)
    return frozenset(signer.keyid for signer in signers) & allowed


def missing_signatures(report: Report, policy: Policy) -> list[Plain]:
    """Which signatures the policy still waits for, in words."""
    have = counted_keys(report, policy)
    lacking = policy.threshold - len(have)
    if lacking <= 0:
        return []
    rest = sorted(policy.keys - have)
    names = ", ".join(key[:12] for key in rest) if rest else "any key but development keys"
    return [f"{lacking} of {names}"]


def evidence(report: Report, policy: Policy) -> list[Plain]:
    """The chain from the ledger to the envelopes: each link with its digest and the command that checks it."""
    ledger, image = report.ledger, report.image
    chain: list[Plain] = [
        {
            "kind": "ledger",
            "title": "Ledger of this certification",
            "digest": ledger.root,
            "what": f"RFC 6962 root over {count(ledger.entries, 'entry', 'entries')}, refused candidates included",
            "check": "",
        }
    ]
    witnesses = {row.receipt: row for row in report.witnesses}
    chain += [_program(row, witnesses.get(row.digest)) for row in report.program_checks]
    if image is None:
        missing = {"kind": "missing", "title": "No image, no statement", "digest": ""}
        return [*chain, {**missing, "what": "nothing but the ledger was written", "check": ""}]
    verify = f"tribunus verify {_word(image.file, 'IMAGE.tci')}"
    for region in image.regions:
        what = f"{count(region.receipts, 'receipt')} of {count(region.kernels, 'kernel')}, carried in the image"
        title = f"Receipts of {region.target}"
        chain.append(
            {"kind": "receipts", "title": title, "digest": region.receipts_root, "what": what, "check": verify}
        )
    what = f"names {count(len(image.regions), 'region')} by digest; its SHA-256 is the image id"
    chain.append({"kind": "image", "title": "image.json", "digest": image.id, "what": what, "check": verify})
    what = "in-toto v1, admission/v1: binds image.json, the receipts and the ledger"
    chain.append(
        {"kind": "statement", "title": "Admission statement", "digest": image.statement, "what": what, "check": ""}
    )
    for signer in image.signers:
        title = f"DSSE envelope, {visible(signer.name, 60)}"
        what = f"Ed25519, key {signer.keyid[:16]}" + (", a development key" if signer.development else "")
        check = f"{verify} --trust trust.json"
        chain.append({"kind": "envelope", "title": title, "digest": signer.envelope, "what": what, "check": check})
    for missing_key in missing_signatures(report, policy):
        what = f"waits for {missing_key}"
        chain.append({"kind": "missing", "title": "DSSE envelope, reviewer", "digest": "", "what": what, "check": ""})
    return chain


def _program(row: ProgramCheckRow, witness: WitnessRow | None) -> dict[str, Plain]:
    agree = "two replays bit-equal" if row.bit_equal else "two replays differ"
    error = f"largest error {three_digits(row.error_share):g} of its budget"
    one_by_one = f", {count(row.steps, 'kernel call')} judged one by one" if row.steps else ""
    why = "" if row.reason is None else f": {visible(row.reason.text, 200)}"
    return {
        "kind": "program",
        "title": f"Program check, {visible(row.case, 60)}",
        "digest": row.digest,
        "what": f"{row.verdict.value} on {row.executor}, {agree}, {error}{one_by_one}{why}",
        "check": "",
        "witness": None if witness is None else [witness.verdict.value, *_said(witness)],
    }


def _said(row: WitnessRow) -> tuple[str, str]:
    """Who the witness is, and what it says besides its verdict."""
    return engine(row), f"{distance(row)}; it never decides"


def engine(row: WitnessRow) -> str:
    """Name and version of a witness, for people."""
    return visible(row.witness, 60) or "an engine that its file does not name"


def tensors(row: WitnessRow) -> str:
    """The distance in units of T; with more digits where rounding could move it across the limit."""
    near = abs(row.distance - row.limit) < 0.01
    return f"{row.distance:.12g}\u00a0T" if near else f"{ratio(row.distance)}\u00a0T"


def distance(row: WitnessRow) -> str:
    """How far a witness lies from the golden, or why nobody knows."""
    seen = f"output {visible(row.output, 60)} is {tensors(row)} from golden"
    if row.verdict is WitnessVerdict.NOT_COMPARED:
        return visible(row.reason, 200) + (f": {seen}" if row.output else "")
    return f"{seen}, allowed {row.limit:g}\u00a0T; {row.compared:,} of {count(row.outputs, 'output')} compared"


def approve(report: Report, report_digest: str, report_file: str) -> Plain:
    """The commands that approve and decline; None if there is nothing to approve."""
    if report.image is None or report.state is not ReportState.ADMITTED:
        return None
    both = f"--image-id sha256:{report.image.id} --report-digest sha256:{report_digest}"
    files = f"{_word(report.image.file, 'IMAGE.tci')} --report {_word(report_file, 'REPORT.json')}"
    start = f"tribunus approve {files} {both}"
    return {
        "approve": f"{start} --key KEY.pem",
        "decline": f"{start} --decline --reason 'TEXT' --key KEY.pem",
    }


def _word(text: str, instead: str) -> str:
    """``text`` as one word of a line that people paste into a shell; ``instead`` if it could mislead there."""
    return instead if visible(text, 400) != text or "{" in text or "}" in text else shlex.quote(text)


def repro(report: Report) -> dict[str, Plain]:
    """Templates of the lines that repeat a receipt; the page fills the braces."""
    model, target = _word(report.model.file, "MODEL.onnx"), _word(report.session.target_option, "TARGET")
    common = f"--model {model}{_shapes(report)} --target {target} --effort {_word(report.session.effort, 'EFFORT')}"
    short = f"tribunus certify {common} -k {{signature}}/{{candidate}}"
    if report.image is not None:
        short = f"tribunus recertify {_word(report.image.file, 'IMAGE.tci')} --receipt {{receipt}}"
    return {
        "short": short,
        "pytest": f"pytest certify/ {common} -k '{{signature}}/{{candidate}}'",
    }


def _shapes(report: Report) -> str:
    """Options that give a model's free dims their bounds; where inputs gave them, the reader has those."""
    if report.model.dims:
        bounds = (f"{dim.name}={dim.low}:{dim.opt}:{dim.high}" for dim in report.model.dims)
        return "".join(f" --dim {_word(text, 'NAME=MIN:OPT:MAX')}" for text in bounds)
    return " --inputs CASES/" if any("=" in phase.dims for phase in report.plan.phases) else ""
