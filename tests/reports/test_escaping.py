"""A report full of hostile names, through every writer."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shlex
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from html.parser import HTMLParser
from types import ModuleType

import pytest
from tribunus_reports import chain
from tribunus_reports.command import page_facts
from tribunus_reports.display import visible
from tribunus_reports.html import html_page, script_safe
from tribunus_reports.junit import junit_xml
from tribunus_reports.markdown import code, markdown, text
from tribunus_reports.model import Report
from tribunus_reports.policy import default_policy
from tribunus_reports.projection import PageFacts, page_data
from tribunus_reports.store import StoredReport, report_bytes, report_digest

NOW = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
MISLEADING = re.compile("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def facts_of(report: Report) -> PageFacts:
    stored = StoredReport(report=report, digest=report_digest(report_bytes(report)))
    return page_facts(stored, "it's {candidate}.json", default_policy(), None, NOW)


@pytest.fixture(scope="module")
def hostile(builders: ModuleType) -> Report:
    report: Report = builders.a_report("staged", signatures=10, candidates=10, hostile=True)
    return report


@pytest.fixture(scope="module")
def hostile_rejected(builders: ModuleType) -> Report:
    report: Report = builders.a_report("rejected", signatures=10, candidates=10, hostile=True)
    return report


class Tags(HTMLParser):
    """Counts elements and notes attributes that could run code."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.risky: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.risky += [name for name, _ in attrs if name.startswith("on") or name == "style"]


def test_the_page_holds_one_script_and_no_element_of_a_model(hostile: Report) -> None:
    page = html_page(hostile, facts_of(hostile)).decode("utf-8")
    tags = Tags()
    tags.feed(page)
    assert tags.seen["script"] == 2 and page.count("</script") == 2 and "<!--" not in page
    assert "img" not in tags.seen and "iframe" not in tags.seen and tags.risky == []
    assert re.findall("<title>(.*?)</title>", page) == ["Admitted: harbour-vl for cpu-x86-64-v3"]


def test_the_policy_allows_exactly_this_script_and_style(hostile: Report) -> None:
    page = html_page(hostile, facts_of(hostile)).decode("utf-8")
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "unsafe" not in policy[1] and policy[1].startswith("default-src 'none'")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        found = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(found) == 1 and "\r" not in found[0]
        digest = base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]


def test_the_data_block_says_the_names_and_nothing_else(hostile: Report, builders: ModuleType) -> None:
    page = html_page(hostile, facts_of(hostile)).decode("utf-8")
    block = re.search('<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert block is not None and not re.search("[<>&\u2028\u2029]", block[1])
    assert set(json.loads(block[1])["signatures"]["name"]) == set(builders.HOSTILE)
    for name in builders.HOSTILE:
        assert json.loads(script_safe({"x": name})) == {"x": name}


def test_text_that_the_page_does_not_isolate_is_visible_already(hostile: Report) -> None:
    page = page_data(hostile, facts_of(hostile))
    shown = {key: value for key, value in page.items() if key not in ("signatures", "model", "memory")}
    assert not MISLEADING.search(json.dumps(shown, ensure_ascii=False).replace("\\n", ""))
    model, signatures = page["model"], page["signatures"]
    assert isinstance(model, dict) and isinstance(signatures, dict)
    for table, own in ((model, {"file"}), (signatures, {"name"})):
        rest = {key: value for key, value in table.items() if key not in own}
        assert not MISLEADING.search(json.dumps(rest, ensure_ascii=False))


def test_lines_to_paste_stay_one_word_an_argument(hostile: Report, builders: ModuleType) -> None:
    page = page_data(hostile, facts_of(hostile))
    repro, approve = page["repro"], page["approve"]
    assert isinstance(repro, dict) and isinstance(approve, dict)
    words = shlex.split(str(repro["pytest"]))
    assert words[words.index("--model") + 1] == hostile.model.file
    assert set(re.findall(r"\{(\w+)\}", str(repro["pytest"]))) == {"signature", "candidate"}
    assert "--report REPORT.json" in str(approve["approve"])


def test_junit_is_xml_and_counts_are_right(hostile_rejected: Report) -> None:
    data = junit_xml(hostile_rejected)
    assert not MISLEADING.search(data.decode("utf-8"))
    root = ET.fromstring(data)
    cases = root.findall(".//testcase")
    refused = [case for case in cases if case.find("skipped") is not None]
    assert int(root.attrib["tests"]) == len(cases)
    assert len(cases) == len(hostile_rejected.signatures) + len(hostile_rejected.candidates)
    assert (
        int(root.attrib["skipped"])
        == len(refused)
        == sum(r.stopped_by is not None for r in hostile_rejected.candidates)
    )
    assert int(root.attrib["failures"]) == 1 and int(root.attrib["errors"]) == 0
    failure = root.find(".//failure")
    assert failure is not None and "no admitted candidate" in failure.attrib["message"]
    assert all(element.attrib["message"] for element in root.iter("skipped"))


def test_junit_shows_a_mistrusted_candidate_as_an_error_and_a_program_as_a_failure(builders: ModuleType) -> None:
    from tribunus_reports.judge import state_of
    from tribunus_reports.model_parts import Check, Outcome, Verdict

    report = builders.a_report("rejected", signatures=2, candidates=3)
    last = next(row for row in report.receipts if row.verdict is Verdict.REJECTED)
    reason = builders.a_reason(Check.ORACLE, "only 1 of 14 cases could have said no")
    weak = dataclasses.replace(last, verdict=Verdict.MISTRUSTED, reason=reason)
    rows = tuple(
        dataclasses.replace(row, outcome=Outcome.MISTRUSTED) if row.id == last.candidate else row
        for row in report.candidates
    )
    programs = (builders.a_program_check("case-0", verdict=Verdict.REJECTED),)
    changed = dataclasses.replace(
        report,
        candidates=rows,
        receipts=tuple(weak if row is last else row for row in report.receipts),
        program_checks=programs,
        state=state_of(report.regions, report.signatures, rows, programs),
    )
    root = ET.fromstring(junit_xml(changed))
    assert root.attrib["errors"] == "1"
    error = root.find(".//error")
    assert error is not None and "could have said no" in error.attrib["message"]
    program = root.find(".//testcase[@classname='program']/failure")
    assert program is not None and "3.4 times" in program.attrib["message"]


def test_markdown_keeps_its_tables_and_shows_no_markup(hostile: Report, hostile_rejected: Report) -> None:
    for report in (hostile, hostile_rejected):
        page = markdown(report, facts_of(report)).decode("utf-8")
        assert not MISLEADING.search(page)
        columns = 0
        for line in page.splitlines():
            if line.startswith("|"):
                columns = columns or line.count("|")
                assert line.count("|") == columns, line
            else:
                columns = 0
                assert not line.startswith(("#  ", "<", "- item", "    ")), line
        assert re.findall(r"<(?!/?code>)", page) == []
        assert "`" not in page and "](" not in page and "http://" not in page and "@every" not in page
        assert not re.search(r"www\.", page)


def test_markdown_names_the_witnesses_that_do_not_agree_first(builders: ModuleType) -> None:
    report = builders.with_cases(builders.a_report(signatures=1, candidates=1))
    page = markdown(report, facts_of(report)).decode("utf-8").replace("\u00a0", " ")
    section = page.split("## Witnesses\n")[1].split("\n## ")[0]
    assert "1 of 3 agree with the float64 program; a witness never decides." in section
    rows = [line for line in section.splitlines() if line.startswith("| <code>")]
    assert [re.findall(r"case-\d", row)[0] for row in rows] == ["case-1", "case-2", "case-0"]
    assert rows[0].endswith("| disagrees | <code>y</code> | 16.02 T | 16 T |")
    assert "not compared: witness of y has shape" in rows[1]
    assert "<code>onnxruntime 1.23.2</code> | agrees | <code>y</code> | 0.41 T | 16 T |" in rows[2]
    silent = dataclasses.replace(report, witnesses=())
    assert "Witness" not in markdown(silent, facts_of(silent)).decode("utf-8")


def test_a_distance_is_never_rounded_across_its_limit(builders: ModuleType) -> None:
    row = builders.a_witness(builders.a_program_check("case-0"))
    near = {0.41: "0.41", 15.9: "15.90", 15.999: "15.999", 16.0: "16", 16.004: "16.004", 2000.0: "2,000"}
    assert {value: chain.tensors(dataclasses.replace(row, distance=value)) for value in near} == {
        value: f"{text}\u00a0T" for value, text in near.items()
    }


@pytest.mark.parametrize(
    "bad", ["`a`", "a|b", "<b>", "*x*", "_x_", "[a](b)", "# h", "- i", "1. i", "a\nb", "&lt;", "~x~"]
)
def test_markdown_text_has_no_structure_left(bad: str) -> None:
    for shown in (text(bad), code(bad)):
        bare = shown.removeprefix("<code>").removesuffix("</code>")
        assert not re.search(r"[`|<>*_\[\]~\n]", bare)
        assert not re.search(r"^(#|-|\d+\. )", bare)
        assert not re.search(r"&(?!#\d+;)", bare)


@pytest.mark.parametrize("name", ["plain/name.0", "größe", "模型", "a b"])
def test_honest_names_stay_as_they_are(name: str) -> None:
    assert visible(name) == name


def test_misleading_characters_become_visible() -> None:
    assert visible("a\u202eb") == "a<U+202E>b"
    assert visible("\ud800\x00\n") == "<U+D800><U+0000><U+000A>"
    assert visible("x" * 500, 100) == "x" * 50 + "…" + "x" * 50


@pytest.mark.parametrize("kind", ["admitted", "rejected"])
def test_lines_that_repeat_a_receipt_use_options_that_exist(builders: ModuleType, kind: str) -> None:
    from tribunus_certify.options import OPTIONS

    known = {option.name for option in OPTIONS} | {"-k", "--receipt"}
    for line in chain.repro(builders.a_report(kind)).values():
        words = shlex.split(str(line))
        assert {word for word in words if word.startswith("-")} <= known
        if "recertify" not in words:
            assert words[words.index("--dim") + 1] == "S=1:128:1024"
