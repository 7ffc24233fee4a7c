"""The certification report as one HTML file: no network, no framework, no name of a model that could become code.

Imported by: command.  Imports: projection.  jinja2, and the files in ``page/``.

Five walls against hostile names: the data block cannot end its element (``script_safe``); the static text is escaped by
the template; the page's code makes text nodes only, which Trusted Types enforces; the content security policy allows
exactly this script and this style, by hash; and characters that mislead are shown by number.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Final

import jinja2

from tribunus_reports.codec import Plain
from tribunus_reports.model import Report
from tribunus_reports.projection import PageFacts, page_data

SCRIPTS: Final = ("build.js", "sections.js", "tables.js", "panel.js")
"""Parts of the page's code in the order in which they make one script."""
_UNSAFE: Final = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
_FILLS: Final = {"admitted": ("1a7f4b", "M9 17l5 5 9-11"), "rejected": ("b3372b", "M10 10l12 12M22 10L10 22")}


def html_page(report: Report, facts: PageFacts) -> bytes:
    """The page in UTF-8.  Raises InternalError if two addresses would be the same."""
    data = page_data(report, facts)
    verdict = data["verdict"]
    script = "\n" + "".join(_asset(name) for name in SCRIPTS)
    style = "\n" + _asset("page.css")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    page = environment.from_string(_asset("page.html.j2")).render(
        verdict=verdict,
        name=report.name,
        target=report.regions[0].target,
        icon=_icon(report.state.value),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=script_safe(data),
    )
    return page.encode("utf-8")


def script_safe(data: Plain) -> str:
    """JSON that cannot end its script element, start a comment, or surprise a parser of JavaScript or UTF-8."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _asset(name: str) -> str:
    return files("tribunus_reports").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _icon(state: str) -> str:
    fill, mark = _FILLS.get(state, ("6b7078", "M10 16h12"))
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
        f'<rect width="32" height="32" rx="8" fill="#{fill}"/><path d="{mark}" fill="none" stroke="#fff" '
        'stroke-width="3.4" stroke-linecap="round" stroke-linejoin="round"/></svg>'
    )
    return base64.b64encode(svg.encode("ascii")).decode("ascii")
