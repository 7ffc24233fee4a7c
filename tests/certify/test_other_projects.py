"""An installed tribunus leaves other people's test runs alone."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.certify.conftest import Desk


def test_nothing_is_loaded_into_every_pytest() -> None:
    found = [point.value for point in entry_points(group="pytest11")]
    assert not [value for value in found if "tribunus" in value]


def test_a_project_with_a_model_option_of_its_own_works(fresh: Desk, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--model', default='none')\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_it(request):\n"
        "    assert request.config.getoption('--model') == 'theirs'\n"
        "    assert not [name for name in sys.modules if name.startswith('tribunus')]\n"
    )
    words = [sys.executable, "-m", "pytest", str(tmp_path), "--rootdir", str(tmp_path), "--model", "theirs"]
    said = fresh.run(words, tmp_path, {})
    assert said.code == 0, said.text


def test_our_own_tests_do_not_load_what_only_a_certification_needs(fresh: Desk) -> None:
    script = (
        "import sys, pytest\n"
        "code = pytest.main(['--collect-only', '-q', 'tests/test_canon.py', '-p', 'no:cacheprovider'])\n"
        "loaded = [name for name in ('plugin', 'runner') if f'tribunus_certify.{name}' in sys.modules]\n"
        "sys.exit(int(code) or loaded != ['plugin'])\n"
    )
    said = fresh.run([sys.executable, "-c", script], fresh.folder, {})
    assert said.code == 0, said.text
