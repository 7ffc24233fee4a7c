"""JUnit XML for CI dashboards.

Imported by: command.  Imports: model, projection's words.

One test suite a region.  A signature is a test case that fails if no kernel serves it; a candidate is one that passes,
or is *skipped* with the reason why it was refused: a refused candidate is news, not a failed test.  A candidate that
could not be judged, by our fault, is an *error*.  XML 1.0 forbids most control characters even when escaped, so they
are shown by number.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence

from tribunus_reports.display import visible
from tribunus_reports.judge import receipts_by_candidate, without_kernel
from tribunus_reports.model import CandidateRow, ReceiptRow, Report
from tribunus_reports.model_parts import Outcome, RegionFacts, Verdict

_Receipts = Mapping[tuple[str, str], Sequence[ReceiptRow]]


def junit_xml(report: Report) -> bytes:
    """The report as JUnit XML in UTF-8."""
    root = ET.Element("testsuites", name=f"tribunus certify {report.name}")
    receipts = receipts_by_candidate(report.receipts)
    suites = [_suite(report, region, receipts) for region in report.regions]
    root.extend(suites)
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.attrib[key]) for suite in suites)))
    ET.indent(root, " ")
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _suite(report: Report, region: RegionFacts, receipts: _Receipts) -> ET.Element:
    suite = ET.Element("testsuite", name=region.target, timestamp=visible(report.session.started.removesuffix("Z"), 40))
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("state", report.state.value),
        ("image", "" if report.image is None else f"sha256:{report.image.id}"),
        ("model", report.model.file),
        ("ledger", f"sha256:{report.ledger.root}"),
    ):
        ET.SubElement(properties, "property", name=name, value=visible(value, 200))
    lacking = {row.id for row in without_kernel(region, report.signatures, report.candidates)}
    mine = {row.id: row for row in report.signatures if row.region == region.target}
    for signature in mine.values():
        case = ET.SubElement(suite, "testcase", classname=signature.id, name="has an admitted kernel", time="0")
        if signature.id in lacking:
            message = f"{signature.why}: {signature.op} {signature.shape}, {signature.name}"
            ET.SubElement(case, "failure", type="no kernel", message=visible(message, 400))
        elif not signature.used:
            ET.SubElement(case, "skipped", message="an alternative that the cover does not use")
    for row in report.candidates:
        if row.signature in mine:
            _candidate(suite, row, receipts.get((row.signature, row.id), ()))
    for program in report.program_checks:
        if program.region == region.target:
            name = f"program {program.profile}/{program.case}"
            seconds = f"{program.took_ms / 1000:.3f}"
            case = ET.SubElement(suite, "testcase", classname="program", name=visible(name, 200), time=seconds)
            if program.reason is not None:
                tag = "error" if program.verdict is Verdict.MISTRUSTED else "failure"
                ET.SubElement(case, tag, type=program.verdict.value, message=visible(program.reason.text, 400))
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.attrib['time']) for case in cases):.3f}")
    return suite


def _candidate(suite: ET.Element, row: CandidateRow, receipts: Sequence[ReceiptRow]) -> None:
    seconds = sum(receipt.took_ms for receipt in receipts) / 1000
    case = ET.SubElement(suite, "testcase", classname=row.signature, name=row.id, time=f"{seconds:.3f}")
    properties = ET.SubElement(case, "properties")
    ET.SubElement(properties, "property", name="outcome", value=row.outcome.value)
    if row.outcome is Outcome.ADMITTED:
        return
    stopped = receipts[-1].reason if receipts and receipts[-1].reason is not None else None
    by = (
        f" by {row.stopped_by}"
        if row.outcome is Outcome.REJECTED
        else f" in {row.stopped_by}"
        if row.stopped_by
        else ""
    )
    why = stopped.text if stopped is not None else row.note or "its remaining checks did not run here"
    tag = "error" if row.outcome is Outcome.MISTRUSTED else "skipped"
    element = ET.SubElement(case, tag, message=visible(f"{row.outcome}{by}: {why}", 400))
    if tag == "error":
        element.set("type", row.outcome.value)
    if stopped is not None and stopped.figures:
        element.text = "\n".join(
            f"{visible(figure.what)}: {visible(figure.seen)}, allowed {visible(figure.allowed)}"
            for figure in stopped.figures
        )
