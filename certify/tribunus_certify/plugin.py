"""The pytest plug-in: options, collection, order, rounds, outcomes, and the post-session hook that seals the image.

Imported by: pytest (the root conftest, or ``-p tribunus_certify.plugin``), never through a pytest11 entry point, so
that ``--model`` cannot break other people's pytest.  Inactive unless ``--model`` is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tribunus.admission.receipt import CHECKS, Check, Verdict
from tribunus.certification.pipeline import Item
from tribunus.certification.sealing import program_cases
from tribunus.errors import Interrupted, TribunusError
from tribunus_certify.clock import ReceiptClock
from tribunus_certify.finishing import finish
from tribunus_certify.options import OPTIONS, Option
from tribunus_certify.runner import Runner, Settings

RUNNER: Final = pytest.StashKey[Runner]()
SUITES: Final = {f"test_{check.value.replace('-', '_')}": check for check in CHECKS}
ADMISSION: Final = ("test_signature", "test_program")
VERDICT: Final = "verdict"
REASON: Final = "reason"
WORDS: Final[Mapping[str, tuple[str, str, str]]] = {
    Verdict.REJECTED.value: ("rejected", "r", "REJECTED"),
    Verdict.CRASHED.value: ("crashed", "c", "CRASHED"),
    Verdict.TIMED_OUT.value: ("timed out", "t", "TIMED OUT"),
    Verdict.MISTRUSTED.value: ("mistrusted", "m", "MISTRUSTED"),
    "not reached": ("not reached", "-", "NOT REACHED"),
}
"""Outcome of our own: category, letter, word."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of certification."""
    group = parser.getgroup("certification", "certification of a model (only with --model)")
    for option in OPTIONS:
        _add(group, option)


def _add(group: pytest.OptionGroup, option: Option) -> None:
    if option.kind == "flag":
        group.addoption(option.name, dest=option.destination, action="store_true", default=False, help=option.help)
    elif option.kind == "list":
        group.addoption(
            option.name,
            dest=option.destination,
            action="append",
            default=[],
            metavar=option.metavar,
            help=option.help.replace("%", "%%"),
        )
    else:
        group.addoption(
            option.name,
            dest=option.destination,
            type=int if option.kind == "number" else str,
            default=option.default,
            metavar=option.metavar,
            help=option.help.replace("%", "%%"),
        )


def settings_of(config: pytest.Config) -> Settings | None:
    """The values of the options; None without ``--model``."""
    value = {option.name: config.getoption(option.destination) for option in OPTIONS}
    if value["--model"] is None:
        return None

    def path(name: str) -> Path | None:
        return None if value[name] is None else Path(str(value[name]))

    return Settings(
        model=Path(str(value["--model"])),
        target=str(value["--target"]),
        dims=tuple(value["--dim"]),
        states=tuple(value["--state"]),
        inputs=path("--inputs"),
        name=str(value["--name"] or ""),
        output=Path(str(value["--output"])),
        compute=str(value["--compute"]),
        effort=str(value["--effort"]),
        backends=tuple(value["--backend"]),
        threads=int(value["--threads"]),
        jobs=int(value["--jobs"]),
        jit_at_open=str(value["--jit-at-open"]),
        key=path("--key"),
        choices=path("--choices"),
        ledger=path("--ledger"),
        epoch=int(value["--epoch"]),
        external_data=bool(value["--external-data"]),
        environ=dict(os.environ),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the certification.  What cannot be done is one message and its exit code."""
    settings = settings_of(config)
    if settings is None:
        return
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("certification walks each candidate through its checks in series: leave -n out")
    if hasattr(config.option, "benchmark_quiet"):
        config.option.benchmark_quiet = config.option.verbose <= 0
    if config.option.collectonly:
        settings_note = "collecting proposals"
    else:
        settings_note = "preparing"
    reporter_say = _speaker(config)
    reporter_say(f"{settings_note} {settings.model.name} for {settings.target}")
    try:
        config.stash[RUNNER] = Runner(settings, reporter_say)
    except TribunusError as error:
        pytest.exit(f"refused: {error}", returncode=error.exit_code)
    except KeyboardInterrupt:
        pytest.exit(str(Interrupted("interrupted while preparing")), returncode=Interrupted.exit_code)


def _speaker(config: pytest.Config) -> _Speaker:
    return _Speaker(config.option.verbose >= 0 and not config.option.collectonly)


class _Speaker:
    """Progress lines on standard error, so that standard output stays pytest's."""

    def __init__(self, talk: bool) -> None:
        self._talk = talk

    def __call__(self, text: str) -> None:
        if self._talk:
            print(f"  {text}", file=sys.stderr, flush=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a candidate and check, one a demand, one a program case."""
    runner = metafunc.config.stash.get(RUNNER, None)
    if "item" in metafunc.fixturenames and metafunc.function.__name__ in SUITES:
        items = [] if runner is None else list(runner.items)
        ids = [] if runner is None else [runner.item_id(item) for item in items]
        metafunc.parametrize("item", items, ids=ids)
    elif metafunc.function.__name__ == "test_signature":
        demands = [] if runner is None else list(runner.certification.demands)
        metafunc.parametrize("demand", demands, ids=[] if runner is None else [runner.demand_id(d) for d in demands])
    elif metafunc.function.__name__ == "test_program":
        cases = [] if runner is None else list(program_cases(runner.certification).items())
        ids = [f"{draft.name}/{name}".replace(" ", ",") for name, (draft, _) in cases]
        metafunc.parametrize("case", [name for name, _ in cases], ids=ids)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Candidate by candidate, each through the checks in their order; admission at the end."""
    runner = config.stash.get(RUNNER, None)
    if runner is None:
        return
    place = {id(item): position for position, item in enumerate(runner.items)}
    items.sort(key=lambda test: _position(test, place))
    for test in items:
        _prepare_benchmark(test)


def _position(test: pytest.Item, place: Mapping[int, int]) -> tuple[int, int, int]:
    name = getattr(test, "originalname", test.name)
    if name in SUITES:
        item = _item_of(test)
        return 0, -1 if item is None else place.get(id(item), len(place)), CHECKS.index(SUITES[name])
    return 1, ADMISSION.index(name) if name in ADMISSION else len(ADMISSION), 0


def _item_of(test: pytest.Item) -> Item | None:
    spec = getattr(test, "callspec", None)
    found = None if spec is None else spec.params.get("item")
    return found if isinstance(found, Item) else None


def _prepare_benchmark(test: pytest.Item) -> None:
    """Timing tests carry the executor's clock: it ticks by recorded samples only."""
    if getattr(test, "originalname", "") == "test_timing":
        clock = ReceiptClock()
        test.stash[ReceiptClock.KEY] = clock
        test.add_marker(pytest.mark.benchmark(timer=clock.read, group="timing"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last candidate of a round: insert the next round behind it."""
    result = yield
    runner = item.config.stash.get(RUNNER, None)
    if runner is not None and _item_of(item) is not None:
        following = None if nextitem is None else _item_of(nextitem)
        if following is None:
            _insert_round(item, runner)
    return result


def _insert_round(last: pytest.Item, runner: Runner) -> None:
    try:
        fresh = runner.more_items()
    except TribunusError as error:
        pytest.exit(f"refused: {error}", returncode=error.exit_code)
    if not fresh:
        return
    session = last.session
    templates: dict[str, pytest.Function] = {}
    for test in session.items:
        if isinstance(test, pytest.Function) and test.originalname in SUITES:
            templates.setdefault(str(test.originalname), test)
    added: list[pytest.Item] = []
    for item in fresh:
        for name in SUITES:
            template = templates.get(name)
            if template is None or template.parent is None:
                continue
            added.extend(_clone(template, name, item, runner))
    position = session.items.index(last) + 1
    session.items[position:position] = added
    session.testscollected += len(added)


def _clone(template: pytest.Function, name: str, item: Item, runner: Runner) -> Sequence[pytest.Item]:
    spec = template.callspec
    made = pytest.Function.from_parent(
        template.parent,
        name=f"{name}[{runner.item_id(item)}]",
        callspec=type(spec)(
            params={"item": item}, indices=dict(spec.indices), _arg2scope=dict(spec._arg2scope), _idlist=[name]
        ),
        callobj=template.obj,
        fixtureinfo=template._fixtureinfo,
        originalname=name,
    )
    _prepare_benchmark(made)
    return [made]


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """A refusal is news, not a failure: an outcome of its own."""
    if not isinstance(report, pytest.TestReport) or report.when != "call":
        return None
    verdict = dict(report.user_properties).get(VERDICT)
    return WORDS.get(str(verdict)) if report.outcome != "failed" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """Seal the image and write the reports; the exit code is the certification's answer."""
    runner = session.config.stash.get(RUNNER, None)
    if runner is None:
        return
    try:
        if not session.config.option.collectonly:
            session.exitstatus = finish(runner, int(exitstatus))
    finally:
        runner.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was decided, in a few lines."""
    runner = config.stash.get(RUNNER, None)
    if runner is None or config.option.collectonly:
        return
    terminalreporter.section("certification")
    for line in runner.summary:
        terminalreporter.line(line)


__all__ = ["CHECKS", "RUNNER", "Check", "settings_of"]
