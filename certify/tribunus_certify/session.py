"""A certification in pytest: collection, order, rounds, outcomes, and the post-session hook that seals the image.

Imported by: plugin, which registers this module only where ``--model`` is given; walking.  Imports: runner, finishing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import pytest

from tribunus.admission.receipt import CHECKS, Verdict
from tribunus.certification.pipeline import Item
from tribunus.certification.sealing import program_cases
from tribunus.errors import TribunusError
from tribunus.planning.schedule import Demand
from tribunus_certify.asking import Settings, require_output
from tribunus_certify.clock import ReceiptClock
from tribunus_certify.finishing import finish
from tribunus_certify.guard import DEBUG, guarded
from tribunus_certify.options import OPTIONS
from tribunus_certify.runner import Runner

RUNNER: Final = pytest.StashKey[Runner]()
SUITES: Final = {f"test_{check.value.replace('-', '_')}": check for check in CHECKS}
SIGNATURE, PROGRAM = "test_signature", "test_program"
ADMISSION: Final = (SIGNATURE, PROGRAM)
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


def begin(config: pytest.Config) -> None:
    """Open the certification and register these hooks."""
    if hasattr(config.option, "benchmark_quiet"):
        config.option.benchmark_quiet = config.option.verbose <= 0
    settings = settings_of(config)
    say = _Speaker(config.option.verbose >= 0 and not config.option.collectonly)
    _end_as_interrupted(config)
    say(f"preparing {settings.model.name} for {settings.target}")
    try:
        runner = guarded(lambda: _opened(settings, say, is_dry=config.option.collectonly))
    except TribunusError as error:
        stop(error)
    config.stash[RUNNER] = runner
    config.add_cleanup(runner.close)
    config.pluginmanager.register(sys.modules[__name__], "tribunus-certification")


def _end_as_interrupted(config: pytest.Config) -> None:
    """SIGTERM ends the session as Ctrl-C does: a report of what was judged, the code of an interrupt, nothing left.

    Who started pytest with SIGTERM ignored, or handles it, is left alone.
    """

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, lambda *_: None)  # ``timeout`` sends two, and the second would break into the report
        raise KeyboardInterrupt

    def restore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    is_main = threading.current_thread() is threading.main_thread()  # elsewhere Python sets no handlers
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        config.add_cleanup(restore)
        signal.signal(signal.SIGTERM, interrupt)


def _opened(settings: Settings, say: Callable[[str], None], *, is_dry: bool) -> Runner:
    if not is_dry:
        require_output(settings.output)
    runner = Runner(settings, say)
    if is_dry:
        return runner
    try:
        runner.require_signer()
    except BaseException:
        runner.close()
        raise
    return runner


def stop(error: TribunusError) -> NoReturn:
    """End the session with the message and exit code of ``error``."""
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    pytest.exit(f"refused: {error}", returncode=error.exit_code)


def settings_of(config: pytest.Config) -> Settings:
    """The values of the options."""
    value = {option.name: config.getoption(option.destination) for option in OPTIONS}

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


class _Speaker:
    """Progress lines on standard error, so that standard output stays pytest's."""

    def __init__(self, talk: bool) -> None:
        self._talk = talk

    def __call__(self, text: str) -> None:
        if self._talk:
            print(f"  {text}", file=sys.stderr, flush=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a candidate and check, one a demand, one a program case."""
    runner = metafunc.config.stash[RUNNER]
    name = metafunc.function.__name__
    if "item" in metafunc.fixturenames and name in SUITES:
        metafunc.parametrize("item", list(runner.items), ids=[runner.item_id(item) for item in runner.items])
    elif name == SIGNATURE:
        demands = runner.certification.demands
        metafunc.parametrize("demand", list(demands), ids=[runner.demand_id(demand) for demand in demands])
    elif name == PROGRAM:
        cases = list(program_cases(runner.certification).items())
        ids = [f"{draft.name}/{case}".replace(" ", ",") for case, (draft, _) in cases]
        metafunc.parametrize("case", [case for case, _ in cases], ids=ids)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Candidate by candidate, each through the checks in their order; admission at the end."""
    place = {id(item): position for position, item in enumerate(config.stash[RUNNER].items)}
    items.sort(key=lambda test: _position(test, place))
    for test in items:
        _prepare_benchmark(test)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what was selected, before the first check."""
    if session.config.option.collectonly:
        return
    selected = {id(item): item for test in session.items if (item := _item_of(test)) is not None}
    _build(session.config.stash[RUNNER], list(selected.values()))


def _build(runner: Runner, items: Sequence[Item]) -> None:
    try:
        guarded(lambda: runner.build(items))
    except TribunusError as error:
        stop(error)


def _position(test: pytest.Item, place: Mapping[int, int]) -> tuple[int, int, int]:
    name = getattr(test, "originalname", test.name)
    if name in SUITES:
        item = _item_of(test)
        return 0, -1 if item is None else place.get(id(item), len(place)), CHECKS.index(SUITES[name])
    return 1, ADMISSION.index(name) if name in ADMISSION else len(ADMISSION), 0


def _parameter(test: pytest.Item, name: str) -> object:
    spec = getattr(test, "callspec", None)
    return None if spec is None else spec.params.get(name)


def _item_of(test: pytest.Item) -> Item | None:
    found = _parameter(test, "item")
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
    if _item_of(item) is not None and (nextitem is None or _item_of(nextitem) is None):
        _insert_round(item, item.config.stash[RUNNER])
    return result


def _insert_round(last: pytest.Item, runner: Runner) -> None:
    try:
        fresh = guarded(runner.more_items)
    except TribunusError as error:
        stop(error)
    if not fresh:
        return
    _build(runner, fresh)
    session = last.session
    templates: dict[str, pytest.Function] = {}
    known: set[int] = set()
    for test in session.items:
        if isinstance(test, pytest.Function) and test.originalname in (*SUITES, SIGNATURE):
            templates.setdefault(str(test.originalname), test)
            known.add(id(_parameter(test, "demand")))
    added = [
        _clone(templates[name], name, "item", item, runner.item_id(item))
        for item in fresh
        for name in SUITES
        if name in templates
    ]
    demands: dict[int, Demand] = {id(item.demand): item.demand for item in fresh if id(item.demand) not in known}
    if SIGNATURE in templates:
        added += [_clone(templates[SIGNATURE], SIGNATURE, "demand", d, runner.demand_id(d)) for d in demands.values()]
    position = session.items.index(last) + 1
    session.items[position:position] = added
    session.testscollected += len(added)


def _clone(template: pytest.Function, name: str, parameter: str, value: Item | Demand, label: str) -> pytest.Item:
    spec = template.callspec
    made = pytest.Function.from_parent(
        template.parent,
        name=f"{name}[{label}]",
        callspec=type(spec)(
            params={parameter: value}, indices=dict(spec.indices), _arg2scope=dict(spec._arg2scope), _idlist=[name]
        ),
        callobj=template.obj,
        fixtureinfo=template._fixtureinfo,
        originalname=name,
    )
    _prepare_benchmark(made)
    return made


def remember_candidates(session: pytest.Session, demand: Demand) -> None:
    """``--lf`` repeats an unserved demand together with its candidates: alone it would have nothing to judge."""
    last = session.config.pluginmanager.getplugin("lfplugin")
    failed: object = getattr(last, "lastfailed", None)
    if isinstance(failed, dict):
        found = [test for test in session.items if (item := _item_of(test)) is not None and item.demand == demand]
        failed.update((test.nodeid, True) for test in found)


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """A refusal is news, not a failure: an outcome of its own."""
    if not isinstance(report, pytest.TestReport) or report.when != "call":
        return None
    verdict = dict(report.user_properties).get(VERDICT)
    return WORDS.get(str(verdict)) if report.outcome != "failed" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """Seal the image and write the reports; the exit code is the certification's answer."""
    runner = session.config.stash[RUNNER]
    try:
        if not session.config.option.collectonly:
            session.exitstatus = finish(runner, int(exitstatus))
    finally:
        runner.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was decided, in a few lines."""
    if config.option.collectonly:
        return
    terminalreporter.section("certification")
    for line in config.stash[RUNNER].summary:
        terminalreporter.line(line)
