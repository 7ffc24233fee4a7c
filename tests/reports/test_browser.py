"""The page in a real browser: what people do with it, and what a hostile model cannot do to it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tribunus_reports.command import page_facts
from tribunus_reports.html import html_page
from tribunus_reports.model import Report
from tribunus_reports.model_parts import Outcome, Verdict
from tribunus_reports.policy import default_policy
from tribunus_reports.store import StoredReport, report_bytes, report_digest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",  # scrolling that takes time moves things from under a click
)
pytestmark = pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="chromium and chromedriver are not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless browser for the module, with its own fresh profile."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    with tempfile.TemporaryDirectory(prefix="tribunus-browser-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture(scope="module")
def show(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Opens the page of a report and waits until everything on it is drawn."""
    folder: Path = tmp_path_factory.mktemp("pages")

    def open_page(report: Report, address: str = "", *, width: int = 1280) -> Any:
        stored = StoredReport(report=report, digest=report_digest(report_bytes(report)))
        now = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
        facts = page_facts(stored, "x.report.json", default_policy(), report.baseline, now)
        path = folder / f"{stored.digest[:12]}.html"
        path.write_bytes(html_page(report, facts))
        browser.get("about:blank")
        browser.get_log("browser"), browser.get_log("performance")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri() + address)
        wait(browser, "return document.documentElement.dataset.ready === '1'")
        return browser

    return open_page


def wait(driver: Any, condition: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 10, poll_frequency=0.02).until(lambda d: d.execute_script(condition))


def run(driver: Any, code: str, *arguments: object) -> Any:
    return driver.execute_script(code, *arguments)


def go(driver: Any, address: str) -> None:
    """Follow an address, and return when the page has done so."""
    code = """
      const [address, done] = arguments;
      if (location.hash === address) { done(); return; }
      addEventListener('hashchange', () => setTimeout(done), { once: true });
      location.hash = address;
    """
    driver.execute_async_script(code, address)


def open_all(driver: Any, where: str) -> None:
    """Open what is folded below ``where``, and return when it is drawn, which happens after the click."""
    for details in driver.find_elements("css selector", f"{where} details:not([open]) > summary"):
        details.click()
    wait(driver, "return [...document.querySelectorAll('details[open]')].every((d) => d.childElementCount > 1)")


def panel(driver: Any) -> str:
    return str(wait(driver, "const p = document.getElementById('panel'); return p.hidden ? '' : p.innerText"))


def requests(driver: Any) -> list[str]:
    found = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return [url for url in found if not url.startswith(("data:", "about:"))]


@pytest.fixture(scope="module")
def report(builders: ModuleType) -> Report:
    made: Report = builders.a_report("staged", signatures=8, candidates=12)
    return made


def test_find_takes_a_pytest_node_id_to_the_reason(show: Callable[..., Any], report: Report) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = show(report)
    row = next(row for row in report.candidates if row.outcome is Outcome.REJECTED)
    reason = next(
        r.reason for r in report.receipts if r.reason and (r.signature, r.candidate) == (row.signature, row.id)
    )
    driver.switch_to.active_element.send_keys("/")
    box = driver.switch_to.active_element
    assert box.get_attribute("id") == "q"
    box.send_keys(f"certify/test_{row.stopped_by}.py::test_{row.stopped_by}[{row.signature}/{row.id}]", Keys.ENTER)
    text = panel(driver)
    assert f"Rejected by {row.stopped_by}" in text and reason.text in text
    assert run(driver, "return location.hash").endswith(f"/candidate/{row.id}")
    driver.find_element("tag name", "body").send_keys(Keys.ESCAPE)
    wait(driver, "return document.getElementById('panel').hidden")
    assert "candidate" not in run(driver, "return location.hash")


def test_find_by_digest_and_by_nothing_known(show: Callable[..., Any], report: Report) -> None:
    driver = show(report)
    box = driver.find_element("id", "q")
    box.send_keys(report.receipts[5].digest[:10])
    hit = wait(driver, "const l = document.querySelectorAll('#found li'); return l.length === 1 ? l[0].innerText : ''")
    assert "receipt" in hit
    box.clear()
    box.send_keys("no such thing")
    wait(driver, "return document.getElementById('found').innerText.includes('Nothing has that name')")


def visible_rows(driver: Any) -> list[list[str]]:
    found = "[...document.querySelectorAll('.vt tbody tr:not(.gap)')]"
    rows: list[list[str]] = run(driver, f"return {found}.map((r) => [...r.cells].map((c) => c.innerText))")
    return rows


def test_filters_live_in_the_address_and_can_be_cleared(show: Callable[..., Any], report: Report) -> None:
    driver = show(report, "#receipts?check=timing&verdict=rejected")
    expected = sum(row.check == "timing" and row.verdict is Verdict.REJECTED for row in report.receipts)
    count = "return document.querySelector('.count').innerText"
    assert run(driver, count).startswith(f"{expected} of {len(report.receipts)}")
    rows = visible_rows(driver)
    assert len(rows) == expected and {row[1] for row in rows} == {"timing"}
    assert {row[0].strip() for row in rows} == {"rejected"}
    driver.find_element("xpath", "//section[@id='receipts']//button[text()='Clear']").click()
    assert run(driver, count).startswith(f"{len(report.receipts)} receipts")
    chip = driver.find_element("xpath", "//button[contains(@class,'chip')][contains(.,'staged')]")
    chip.click()
    staged = sum(row.executor != "device" and row.verdict is Verdict.PASSED for row in report.receipts)
    assert run(driver, count).startswith(f"{staged} of")
    assert run(driver, "return location.hash") == "#receipts?verdict=staged"
    search = driver.find_element("css selector", "#receipts input[type=search]")
    search.send_keys("zzz")
    wait(driver, "return document.querySelector('.vt').innerText.includes('No receipt matches')")


def test_columns_sort_both_ways(show: Callable[..., Any], report: Report) -> None:
    driver = show(report, "#receipts")
    worst = sorted((row.worst.error_share for row in report.receipts if row.worst), reverse=True)
    head = driver.find_element("xpath", "//th/button[text()='Error / budget']")
    head.click()
    first = float(visible_rows(driver)[0][4].replace(",", ""))
    assert first == pytest.approx(worst[0], rel=0.01)
    assert head.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    head.click()
    assert head.find_element("xpath", "..").get_attribute("aria-sort") == "ascending"
    assert visible_rows(driver)[0][4] in ("—", "0")


def test_the_table_holds_few_rows_and_scrolls_through_all(show: Callable[..., Any], builders: ModuleType) -> None:
    report = builders.a_report(signatures=20, candidates=20)
    driver = show(report, "#receipts")
    assert len(visible_rows(driver)) < 60 < len(report.receipts)
    run(driver, "const b = document.querySelector('.vt'); b.scrollTop = b.scrollHeight")
    last = report.receipts[-1].digest[:12]
    wait(driver, f"return document.querySelector('.vt tbody').innerText.includes('{last}')")


def test_from_a_signature_to_a_candidate_to_a_receipt(show: Callable[..., Any], report: Report) -> None:
    signature = report.signatures[2]
    driver = show(report, f"#signature/{signature.digest[:12]}")
    heading = "return document.querySelector('.sig-head h3').innerText"
    assert run(driver, heading) == signature.id
    driver.find_element("css selector", ".field tbody tr td a").click()
    text = panel(driver)
    assert "Admitted and chosen" in text and str(signature.chosen) in text
    driver.find_element("css selector", "#panel table td a[href^='#receipt/']").click()
    wait(driver, "return document.getElementById('panel').innerText.includes('Worst element')")
    text = panel(driver)
    digest = run(driver, "return location.hash").removeprefix("#receipt/")
    receipt = next(row for row in report.receipts if row.digest.startswith(digest))
    assert receipt.check.capitalize() in text and "Worst element" in text and f"0x{receipt.seed:x}" in text


@pytest.mark.parametrize("width", [1280, 390])
def test_deep_links_open_what_they_name(show: Callable[..., Any], report: Report, width: int) -> None:
    refused = next(row for row in report.receipts if row.verdict is Verdict.REJECTED)
    driver = show(report, f"#receipt/{refused.digest[:12]}", width=width)
    text = panel(driver)
    assert refused.reason is not None and refused.reason.text in text and refused.digest in text
    assert run(driver, "return document.documentElement.scrollWidth") <= width


def test_an_unknown_address_changes_nothing(show: Callable[..., Any], report: Report) -> None:
    driver = show(report)
    before = run(driver, "return document.querySelector('.sig-head h3').innerText")
    for address in ("#receipt/000000000000", "#signature/__proto__", "#receipt/constructor"):
        go(driver, address)
        wait(
            driver, "return document.getElementById('live').textContent === 'Nothing in this report has that address.'"
        )
        run(driver, "document.getElementById('live').textContent = ''")
    assert run(driver, "return document.getElementById('panel').hidden")
    assert run(driver, "return document.querySelector('.sig-head h3').innerText") == before


def test_every_link_to_read_first_leads_somewhere(show: Callable[..., Any], builders: ModuleType) -> None:
    driver = show(builders.a_report("rejected", signatures=8, candidates=14))
    links = run(driver, "return [...document.querySelectorAll('.reads a')].map((a) => a.getAttribute('href'))")
    assert links
    for link in links:
        go(driver, link)
        assert run(driver, "return document.getElementById('live').textContent") == ""


@pytest.mark.parametrize("kind", ["admitted", "rejected", "staged", "all-staged", "empty"])
def test_every_state_draws_without_a_complaint(show: Callable[..., Any], builders: ModuleType, kind: str) -> None:
    made = builders.a_report(kind, signatures=4, candidates=6)
    driver = show(made)
    for width in (1280, 768, 390, 360):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert run(driver, "return document.documentElement.scrollWidth") <= width, width
    assert driver.get_log("browser") == []
    title = {"rejected": "Rejected", "empty": "Nothing to judge", "all-staged": "Staged"}.get(kind, "Admitted")
    assert driver.title == f"{title}: harbour-vl for cpu-x86-64-v3"
    assert "NaN" not in run(driver, "return document.body.innerText")
    assert "undefined" not in run(driver, "return document.body.innerText")
    approve = run(driver, "return document.getElementById('approve').innerText")
    assert ("tribunus approve" in approve) == (kind in ("admitted", "staged"))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_witness_stands_beside_its_program_check(show: Callable[..., Any], builders: ModuleType, width: int) -> None:
    report = builders.with_cases(builders.a_report(signatures=2, candidates=3))
    driver = show(report, "#evidence", width=width)
    code = "return [...document.querySelectorAll('.chain li[data-kind=program]')].map((li) => li.innerText)"
    agrees, disagrees, silent = (text.replace("\u00a0", " ") for text in run(driver, code))
    assert re.search(
        r"case-0\b.*Witness onnxruntime 1\.23\.2\s+agrees\s*: output y is 0\.41 T from golden", agrees, re.S
    )
    assert "2 of 3 outputs compared; it never decides" in agrees
    assert re.search(r"disagrees\s*: output y is 16\.02 T from golden, allowed 16 T", disagrees)
    assert re.search(r"not compared\s*: witness of y has shape \(2, 17\)", silent)
    assert run(driver, "return document.documentElement.scrollWidth") <= width
    overview = run(driver, "return document.getElementById('overview').innerText")
    assert "1 of 3 agree with the float64 program, 1 disagrees, 1 not compared" in overview
    without = show(builders.a_report("rejected", signatures=2, candidates=3))
    assert "Witness" not in run(without, "return document.body.innerText")


@pytest.mark.parametrize("kind", ["staged", "rejected"])
def test_hostile_names_do_nothing(show: Callable[..., Any], builders: ModuleType, kind: str) -> None:
    made: Report = builders.a_report(kind, signatures=10, candidates=10, hostile=True)
    driver = show(made)
    title = driver.title
    open_all(driver, "body")
    for receipt in [row for row in made.receipts if row.reason is not None][:10]:
        go(driver, f"#receipt/{receipt.digest[:12]}")
        panel(driver)
    for signature in made.signatures:
        go(driver, f"#signature/{signature.digest[:12]}")
    box = driver.find_element("id", "q")
    run(driver, "arguments[0].value = '__proto__'; arguments[0].dispatchEvent(new Event('input'))", box)
    assert driver.title == title and title.endswith(": harbour-vl for cpu-x86-64-v3")
    assert run(driver, "return document.scripts.length") == 2
    assert run(driver, "return document.querySelectorAll('script:not([type])').length") == 1
    assert run(driver, "return document.querySelectorAll('img, iframe, object, embed, base, form').length") == 0
    text = run(driver, "return document.body.innerText")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\u0007]", text)
    assert "U+202E" in text
    assert driver.get_log("browser") == []
    assert requests(driver) == [url for url in [driver.current_url.split("#")[0]] if url]


def test_careless_code_is_stopped_by_the_page_itself(show: Callable[..., Any], report: Report) -> None:
    driver = show(report)
    code = """
      const done = arguments[arguments.length - 1];
      setTimeout(async () => {
        const seen = {};
        const attempt = async (name, f) => {
          try { await f(); seen[name] = 'allowed'; } catch { seen[name] = 'refused'; }
        };
        await attempt('markup', () => { document.createElement('div').innerHTML = '<b>x</b>'; });
        await attempt('request', () => fetch('http://127.0.0.1:9/'));
        await attempt('eval', () => eval('1'));
        done(seen);
      });
    """
    assert driver.execute_async_script(code) == {"markup": "refused", "request": "refused", "eval": "refused"}


def test_lines_to_paste_are_safe_to_paste(show: Callable[..., Any], builders: ModuleType) -> None:
    import shlex

    made: Report = builders.a_report("rejected", signatures=3, candidates=6, hostile=True)
    refused = next(row for row in made.receipts if row.verdict is Verdict.REJECTED)
    driver = show(made, f"#receipt/{refused.digest[:12]}")
    panel(driver)
    lines = run(driver, "return [...document.querySelectorAll('#panel .cmd code')].map((c) => c.textContent)")
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line)
        assert words[words.index("--model") + 1] == made.model.file
        assert words[words.index("-k") + 1] == f"{refused.signature}/{refused.candidate}"


def test_the_filter_survives_what_an_address_may_hold(show: Callable[..., Any], report: Report) -> None:
    driver = show(report, "#receipts?q=" + urllib.parse.quote("<img src=x onerror=alert(1)>"))
    wait(driver, "return document.querySelector('.vt').innerText.includes('No receipt matches')")
    assert run(driver, "return document.querySelectorAll('img').length") == 0
    assert driver.get_log("browser") == []


def test_what_is_rare_draws_too(show: Callable[..., Any], builders: ModuleType) -> None:
    made: Report = builders.an_odd_report()
    driver = show(made)
    words = []
    for row in made.candidates:
        go(driver, f"#signature/{made.signatures[0].digest[:12]}/candidate/{row.id}")
        words.append(panel(driver))
    for receipt in made.receipts[-12:] + tuple(row for row in made.receipts if row.verdict is Verdict.MISTRUSTED):
        go(driver, f"#receipt/{receipt.digest[:12]}")
        words.append(panel(driver))
    go(driver, f"#signature/{made.signatures[1].digest[:12]}")
    words.append(run(driver, "return document.body.innerText"))
    text = "\n".join(words)
    assert driver.get_log("browser") == []
    assert "undefined" not in text and "Infinity ulp" not in text and "NaN of" not in text
    for expected in (
        "the build failed: zig exited with 1",
        "Some of its checks did not run.",
        "1, and 13 that could not have said no",
        "∞",
        "another cover is used",
        "Mistrusted in",
        "+11.1",
        "zig 0.15.0 → 0.15.1",
    ):
        assert expected in text, expected


def test_left_out_receipts_are_announced_and_steps_stay_true(
    show: Callable[..., Any], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tribunus_reports.projection.RECEIPT_LIMIT", 10)
    driver = show(report, "#receipts")
    assert "are left out here, report.json has all" in run(driver, "return document.querySelector('.count').innerText")
    signature = report.signatures[0]
    row = next(
        row
        for row in report.candidates
        if row.signature == signature.id and row.outcome is Outcome.ADMITTED and row.id != signature.chosen
    )
    go(driver, f"#signature/{signature.digest[:12]}/candidate/{row.id}")
    assert panel(driver).count("passed") >= 6 and "not reached" not in panel(driver)


NAMED = """
  return [...document.querySelectorAll('[aria-label]:is(button, a, [role=button])')]
    .map((e) => [e.getAttribute('aria-label'), e.textContent.trim()]);
"""


@pytest.mark.parametrize("kind", ["admitted", "rejected"])
def test_who_speaks_what_is_written_on_a_button_reaches_it(
    show: Callable[..., Any], builders: ModuleType, kind: str
) -> None:
    named = run(show(builders.a_report(kind, signatures=4, candidates=6)), NAMED)
    assert len(named) > 2
    assert [pair for pair in named if pair[1].lower() not in pair[0].lower()] == []


@pytest.mark.parametrize("width", [1440, 1280, 1100, 390])
def test_rows_of_the_program_keep_to_one_line(show: Callable[..., Any], report: Report, width: int) -> None:
    driver = show(report, "#program", width=width)
    open_all(driver, "#program")
    code = "return [...document.querySelectorAll('.flow > div > *')].map((e) => [e.textContent, e.scrollHeight])"
    cells = run(driver, code)
    assert len(cells) > 6 and [cell for cell in cells if cell[1] > 31] == []


def test_every_phase_is_called_by_its_whole_name(show: Callable[..., Any], report: Report) -> None:
    driver = show(report)
    names = [phase["name"] for phase in run(driver, "return D.phases")]
    shown = run(driver, "return document.getElementById('program-body').textContent")
    assert names and all(name in shown for name in names)


def test_printing_leaves_the_pictures_whole(show: Callable[..., Any], report: Report) -> None:
    driver = show(report)
    width = "return document.querySelector('#memory svg[role=img]').getAttribute('width')"
    before = run(driver, width)
    drawn = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
    for medium in ("print", ""):
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium})
        driver.execute_async_script(drawn)
        assert run(driver, width) == before
    assert driver.get_log("browser") == []


def test_the_candidates_of_a_signature_fit_on_a_phone(show: Callable[..., Any], report: Report) -> None:
    driver = show(report, "#signatures", width=390)
    code = "const t = document.querySelector('table.field').parentNode; return t.scrollWidth - t.clientWidth"
    assert run(driver, code) <= 0


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_that_is_not_there_is_drawn(show: Callable[..., Any], builders: ModuleType, width: int) -> None:
    made: Report = builders.a_report("rejected", signatures=1, candidates=4)
    driver = show(made, width=width)
    said = run(driver, "return [...document.querySelectorAll('.funnel .bar')].map((bar) => bar.ariaLabel)")
    drawn = run(driver, "return document.querySelectorAll('.funnel .bar i:not([data-state])').length")
    assert drawn == sum(not text.endswith(", 0 passed") for text in said) < 6
    assert "of its budget" not in run(driver, "return document.querySelector('.figures').textContent")
    code = "return [...document.querySelectorAll('.phase > header .num')].map((e) => e.getBoundingClientRect().right)"
    assert max(run(driver, code)) <= width - 15


def test_no_line_of_a_command_ends_within_an_option(show: Callable[..., Any], report: Report) -> None:
    driver = show(report, width=390)
    code = """
      return [...document.querySelectorAll('.facts .word, .cmd .word')].filter((w) => w.textContent.startsWith('--'))
        .map((w) => [w.textContent, w.getBoundingClientRect().height]);
    """
    options = run(driver, code)
    assert len(options) > 3 and [word for word in options if word[1] > 24] == []
    lines = run(driver, "return [...document.querySelectorAll('#approve .cmd code')].map((c) => c.innerText)")
    assert any("\n" not in line and "--report-digest sha256:" in line for line in lines)


def test_launches_are_marked_in_equal_round_steps(show: Callable[..., Any], report: Report) -> None:
    driver = show(report)
    for launches, ticks in ((1, [0, 1]), (6, [0, 1, 2, 3, 4, 5, 6]), (9, [0, 2, 4, 6, 9]), (67, [0, 20, 40, 67])):
        assert run(driver, "return wholeTicks(arguments[0])", launches) == ticks
