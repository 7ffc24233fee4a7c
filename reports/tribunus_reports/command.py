"""Commands ``tribunus report``, ``tribunus gate`` and ``tribunus approve``.

Imported by: cli, through the entry points ``tribunus.commands``.  Imports: every module of this package, on demand.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from tribunus.cli.command import Command
from tribunus.errors import ContentsDiffer, EnvironmentFault, GateShut, ToolError, UsageError
from tribunus_reports.baseline import compare
from tribunus_reports.gates import Gate, GateState, evaluate, is_open
from tribunus_reports.model import Report
from tribunus_reports.model_parts import Baseline
from tribunus_reports.policy import Policy, default_policy, load_policy
from tribunus_reports.projection import PageFacts
from tribunus_reports.read_first import read_first
from tribunus_reports.store import StoredReport, load_report, write_file, write_report

_MARKS = {GateState.PASS: "pass", GateState.WARN: "WARN", GateState.FAIL: "FAIL"}


def page_facts(stored: StoredReport, file: str, policy: Policy, baseline: Baseline | None, now: datetime) -> PageFacts:
    """What page and summary show beside the report: gates, and what to read first."""
    report = stored.report
    gates = evaluate(policy, report, now=now, image=None, baseline=baseline)
    return PageFacts(
        report_digest=stored.digest,
        report_file=file,
        policy=policy,
        gates=gates,
        read_first=read_first(report, gates, baseline),
        baseline=baseline,
    )


def write_outputs(
    stored: StoredReport,
    facts: PageFacts,
    *,
    html: Path | None,
    markdown: Path | None,
    junit: Path | None,
) -> None:
    """Write the projections that have a path, each whole or not at all.  Raises EnvironmentFault."""
    if html is not None:
        write_file(html, _html(stored.report, facts))
    if markdown is not None:
        from tribunus_reports import markdown as summary

        write_file(markdown, summary.markdown(stored.report, facts))
    if junit is not None:
        from tribunus_reports.junit import junit_xml

        write_file(junit, junit_xml(stored.report))


def write_all(report: Report, folder: Path, stem: str, policy: Policy, *, now: datetime) -> StoredReport:
    """What a certification leaves in ``folder``: ``STEM.report.json``, ``.html``, ``.md`` and ``STEM.junit.xml``."""
    path = folder / f"{stem}.report.json"
    stored = StoredReport(report=report, digest=write_report(report, path))
    facts = page_facts(stored, path.name, policy, report.baseline, now)
    write_outputs(
        stored,
        facts,
        html=folder / f"{stem}.report.html",
        markdown=folder / f"{stem}.report.md",
        junit=folder / f"{stem}.junit.xml",
    )
    return stored


def _html(report: Report, facts: PageFacts) -> bytes:
    try:
        from tribunus_reports.html import html_page
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        raise ToolError(
            "the HTML report needs jinja2", remedy="install it: pip install 'tribunus-compute[certify]'"
        ) from None
    return html_page(report, facts)


def _configure_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", type=Path, metavar="REPORT.json")
    parser.add_argument("--html", type=Path, metavar="OUT", help="the page; the default if no output is named")
    parser.add_argument("--md", type=Path, metavar="OUT", help="a summary in Markdown")
    parser.add_argument("--junit", type=Path, metavar="OUT", help="JUnit XML; refused candidates are skipped")
    parser.add_argument("--schema", type=Path, metavar="OUT", help="the JSON schema of REPORT.json")
    parser.add_argument("--policy", type=Path, metavar="POLICY.toml", help="gates that the outputs show")
    parser.add_argument("--baseline", type=Path, metavar="OLD.json", help="an earlier report to compare with")


def _report(arguments: argparse.Namespace) -> int:
    stored = load_report(arguments.report)
    policy = default_policy() if arguments.policy is None else load_policy(arguments.policy)
    baseline = _baseline(arguments.baseline, stored.report)
    facts = page_facts(stored, arguments.report.name, policy, baseline, datetime.now(UTC))
    html = arguments.html
    if not any((html, arguments.md, arguments.junit, arguments.schema)):
        html = arguments.report.with_suffix(".html")
    outputs = [path for path in (html, arguments.md, arguments.junit, arguments.schema) if path is not None]
    named = {path.resolve() for path in outputs}
    sources = (arguments.report, arguments.policy, arguments.baseline)
    if len(named) != len(outputs) or any(path is not None and path.resolve() in named for path in sources):
        raise UsageError("an output would overwrite another file of this command", remedy="give each a path of its own")
    write_outputs(stored, facts, html=html, markdown=arguments.md, junit=arguments.junit)
    if arguments.schema is not None:
        from tribunus_reports.schema import published

        write_file(arguments.schema, published().encode("utf-8"))
    for path in outputs:
        print(path)
    return 0


def _baseline(path: Path | None, report: Report) -> Baseline | None:
    return report.baseline if path is None else compare(load_report(path).report, report)


_POLICY_HELP = """a complete policy:

  schema = "tribunus.gate/1"
  [checks]
  required = ["oracle", "shape", "layout", "timing", "replay", "cache-key"]
  executors = ["device"]
  program_cases = 1
  allow_staged = false
  [minimum]                  # cases that count, for each launched kernel
  oracle = 12
  [evidence]
  max_age_days = 30
  threshold = 1
  keys = []                  # ids of keys; empty: any but development keys
  [error]                    # largest error of a chosen kernel / its budget
  warn = 0.8
  fail = 1.0
  [latency]                  # slower than the baseline; p99 of a phase
  warn = 0.05
  fail = 0.10
  baseline_required = true
  p99_ms = { main = 5.0 }
"""


def _configure_gate(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _POLICY_HELP
    parser.add_argument("report", type=Path, metavar="REPORT.json")
    parser.add_argument("--policy", type=Path, required=True, metavar="POLICY.toml")
    parser.add_argument("--image", type=Path, metavar="IMAGE.tci", help="compare with this file and its signatures")
    parser.add_argument("--trust", type=Path, metavar="TRUST.json", help="public keys; default as for tribunus.open")
    parser.add_argument("--baseline", type=Path, metavar="OLD.json", help="an earlier report to compare with")
    parser.add_argument("--json", action="store_true", help="print the gates as JSON")


def _gate(arguments: argparse.Namespace) -> int:
    from tribunus_reports.judge import recompute

    stored = load_report(arguments.report)
    policy = load_policy(arguments.policy)
    recompute(stored.report)
    image = None
    if arguments.image is not None:
        from tribunus.image.policy import find_policy
        from tribunus_reports.review import see_image

        trust = find_policy(arguments.trust, os.environ)
        image = see_image(arguments.image, stored.report, trust, os.environ)
    baseline = _baseline(arguments.baseline, stored.report)
    gates = evaluate(policy, stored.report, now=datetime.now(UTC), image=image, baseline=baseline)
    _print_gates(gates, stored, policy, as_json=arguments.json)
    if not is_open(gates):
        shut = [gate.rule for gate in gates if gate.state is GateState.FAIL]
        raise GateShut(f"{len(shut)} of {len(gates)} rules of {policy.name} failed: {'; '.join(shut)}")
    return 0


def _print_gates(gates: tuple[Gate, ...], stored: StoredReport, policy: Policy, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"rule": gate.rule, "state": gate.state.value, "seen": gate.seen, "bound": gate.bound} for gate in gates
        ]
        document = {
            "schema": "tribunus.gate-result/1",
            "open": is_open(gates),
            "report": stored.digest,
            "policy": policy.digest,
            "gates": rows,
        }
        print(json.dumps(document, indent=1))
        return
    width = max(len(gate.rule) for gate in gates)
    for gate in gates:
        print(f"{_MARKS[gate.state]}  {gate.rule:<{width}}  {gate.seen}  (allowed: {gate.bound})")


def _configure_approve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--report", type=Path, required=True, metavar="REPORT.json")
    parser.add_argument("--key", type=Path, required=True, metavar="KEY", help="your private Ed25519 key")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="first line opens an encrypted key")
    parser.add_argument("--image-id", metavar="sha256:DIGEST", help="refuse any other image")
    parser.add_argument("--report-digest", metavar="sha256:DIGEST", help="refuse any other report")
    parser.add_argument("--decline", action="store_true", help="sign that it must not be used")
    parser.add_argument("--reason", default="", metavar="TEXT", help="stays in the evidence; needed to decline")


def _approve(arguments: argparse.Namespace) -> int:
    from tribunus.image.keys import load_private_key
    from tribunus_reports.review import Decision, review

    stored = load_report(arguments.report)
    _same("report", arguments.report_digest, stored.digest)
    _same("image id", arguments.image_id, "" if stored.report.image is None else stored.report.image.id)
    signer = load_private_key(arguments.key, _passphrase(arguments.passphrase_file))
    decision = Decision.DECLINED if arguments.decline else Decision.APPROVED
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    review(arguments.image, stored, signer, decision, reason=arguments.reason, at=at)
    print(f"{decision}: {arguments.image}, report sha256:{stored.digest}, key {signer.keyid}", file=sys.stdout)
    return 0


def _same(what: str, told: str | None, found: str) -> None:
    if told is not None and told.removeprefix("sha256:") != found:
        raise ContentsDiffer(f"{what} is sha256:{found or 'none'}, not {told[:80]}")


def _passphrase(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes().split(b"\n", 1)[0]
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error


REPORT = Command("report", "write a certification report as HTML, Markdown or JUnit", _configure_report, _report)
GATE = Command("gate", "hold a report, and its image, against a policy", _configure_gate, _gate)
APPROVE = Command("approve", "review an image: sign it, or decline it with a reason", _configure_approve, _approve)
