"""The pytest plug-in: options, and the start of a certification.  Everything else is loaded only with ``--model``.

Imported by: pytest (the root conftest, or ``-p tribunus_certify.plugin``), never through a pytest11 entry point, so
that ``--model`` cannot break other people's pytest.
"""

from __future__ import annotations

import pytest

from tribunus_certify.options import OPTIONS, Option

SUITES = "tribunus_certify."
PARAMETERS = ("item", "demand", "case")
MODEL = next(option.destination for option in OPTIONS if option.name == "--model")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of certification."""
    group = parser.getgroup("certification", "certification of a model (only with --model)")
    for option in OPTIONS:
        _add(group, option)


def _add(group: pytest.OptionGroup, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.kind == "flag":
        group.addoption(option.name, dest=option.destination, action="store_true", default=False, help=text)
    elif option.kind == "list":
        group.addoption(
            option.name, dest=option.destination, action="append", default=[], metavar=option.metavar, help=text
        )
    else:
        group.addoption(
            option.name,
            dest=option.destination,
            type=int if option.kind == "number" else str,
            default=option.default,
            metavar=option.metavar,
            help=text,
        )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the certification.  What cannot be done is one message and its exit code."""
    if config.getoption(MODEL) is None:
        return
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("certification walks each candidate through its checks in series: leave -n out")
    from tribunus_certify import session

    session.begin(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Without a model the suites have nothing to check."""
    if metafunc.module.__name__.startswith(SUITES) and metafunc.config.getoption(MODEL) is None:
        for name in metafunc.fixturenames:
            if name in PARAMETERS:
                metafunc.parametrize(name, [None], ids=["no model"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Suites without a model are a mistake of the command line."""
    if config.getoption(MODEL) is None and any("[no model]" in item.name for item in items):
        raise pytest.UsageError("certifying needs a model: pytest certify/ --model M.onnx")
