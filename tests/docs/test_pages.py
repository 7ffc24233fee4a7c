"""The pages are true where a machine can tell: links, commands, options, code, error names, generated parts."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from tribunus_certify.options import OPTIONS

import tribunus.errors
from tribunus.cli.table import ENTRIES, PLUGIN_GROUPS
from tribunus.cli.tool import find_command
from tribunus.errors import TribunusError

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
QUESTIONS = tuple(page for page in PAGES if page.parent.name == "docs")
PYTEST_OPTIONS = frozenset(("--collect-only", "--lf", "--junitxml", "-k", "-x", "-q", "-v", "-m", "-n"))
PIP_OPTIONS = frozenset(("-c", "-e"))
COMMANDS = frozenset((*(entry.name for entry in ENTRIES), *PLUGIN_GROUPS))
FORBIDDEN = re.compile(
    r"/work\b|/root\b|/home/|DESIGN\.md|NUMERICS\.md|IMAGE\.md|FAULTS\.md|STYLE\.md|PACKAGING\.md|BRIEF\.md"
    r"|\b(?:TODO|FIXME|XXX)\b|\bissue #|\bpull request #",
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(tribunus [^`\n]+)`")

of_each_page = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found.groups()) for found in FENCE.finditer(page.read_text(encoding="utf-8"))]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> frozenset[str]:
    """Fragments of the page's headings, as code hosts make them."""
    found = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found)


def command_lines(page: Path) -> Iterator[list[str]]:
    """Words of every command of the page's shell blocks, and of inline code that begins with the tool's name."""
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _commands(line)
    for found in INLINE.findall(prose(page)):
        yield from _commands(found)


def _commands(line: str) -> Iterator[list[str]]:
    words = shlex.split(line, comments=True)
    while words:
        cut = next((i for i, word in enumerate(words) if word in ("&&", ";", "|") or word.endswith(";")), len(words))
        command = [word.rstrip(";") for word in words[: cut + 1] if word not in ("&&", ";", "|")]
        if command:
            yield command
        words = words[cut + 1 :]


def options_of(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Every option of a parser and of the parsers below it."""
    found: set[str] = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= options_of(below)
    return frozenset(found)


def known_options(name: str) -> frozenset[str]:
    command = find_command(name)
    parser = argparse.ArgumentParser()
    command.configure(parser)
    passes_on = parser.get_default("passed_on") is not None
    return options_of(parser) | (PYTEST_OPTIONS if passes_on else frozenset())


def used_options(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    return load(ROOT / "docs" / "make_pictures.py")


@of_each_page
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"https?://", target):
            continue
        name, _, fragment = target.partition("#")
        place = page if not name else (page.parent / name).resolve()
        assert place.is_file(), f"{page.name} links to {target}"
        assert place.is_relative_to(ROOT), target
        assert not fragment or fragment in anchors(place), f"{page.name} links to {target}"


@of_each_page
def test_commands_of_the_tool_and_their_options_exist(page: Path) -> None:
    for words in command_lines(page):
        if words[0] != "tribunus" or len(words) < 2 or words[1].startswith("-"):
            continue
        assert words[1] in COMMANDS, f"{page.name}: {' '.join(words)}"
        used = [option for option in used_options(words[2:]) if option not in ("-h", "--help")]
        unknown = set(used) - known_options(words[1]) if used else set()
        assert not unknown, f"{page.name}: {' '.join(words)} has {sorted(unknown)}"


@of_each_page
def test_options_of_pytest_certify_exist(page: Path) -> None:
    known = PYTEST_OPTIONS | {option.name for option in OPTIONS}
    for words in command_lines(page):
        if words[0] == "pytest" and "certify/" in words:
            assert set(used_options(words)) <= known, f"{page.name}: {' '.join(words)}"


@of_each_page
def test_files_of_the_repository_that_commands_name_exist(page: Path) -> None:
    for words in command_lines(page):
        for word in words:
            if re.match(r"(?:examples|tests|docs|certify)/", word):
                assert (ROOT / word).exists(), f"{page.name}: {word}"


@of_each_page
def test_code_blocks_compile(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, page.name, "exec")
        elif block.language == "toml":
            tomllib.loads(block.text)


@of_each_page
def test_what_code_blocks_import_exists(page: Path) -> None:
    for block in blocks(page):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tribunus"):
                module = importlib.import_module(node.module or "")
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{page.name}: {node.module} has no {missing}"


@of_each_page
def test_error_names_exist(page: Path) -> None:
    names = {
        found.name
        for found in vars(tribunus.errors).values()
        if isinstance(found, type) and issubclass(found, TribunusError)
    }
    used = set(re.findall(r"\bE_[A-Z][A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8"))) - {"E_NAME"}
    assert used <= names, sorted(used - names)


@of_each_page
def test_paths_of_the_source_exist(page: Path) -> None:
    for found in re.findall(r"`((?:tribunus|tests|certify|reports|backends)/[\w./]+)`", prose(page)):
        assert (ROOT / found).exists(), f"{page.name}: {found}"


@of_each_page
def test_a_page_speaks_of_the_project_alone(page: Path) -> None:
    found = FORBIDDEN.search(page.read_text(encoding="utf-8"))
    assert found is None, f"{page.name}: {found.group() if found else ''}"


@pytest.mark.parametrize("page", QUESTIONS, ids=[page.name for page in QUESTIONS])
def test_a_page_asks_a_question_and_begins_with_a_picture_and_a_command(page: Path) -> None:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n")
    assert title.startswith("# ")
    assert title.endswith("?")
    first, second = blocks(page)[:2]
    assert first.language == "", "a text diagram comes first"
    assert second.language == "sh", "a command comes second"
    assert rest.lstrip().startswith("```")


def test_the_two_lines_that_set_up_are_one_command_line_each() -> None:
    lines = [block.text.strip() for block in blocks(ROOT / "README.md") if block.language == "sh"][:2]
    assert all("\n" not in line and line.startswith("pip install -c constraints.txt -e ") for line in lines)
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert all(extra in extras for line in lines for extra in re.findall(r"\.\[(\w+)\]", line))


def test_the_readme_links_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in QUESTIONS if f"docs/{page.name}" not in text]
    assert not missing


def test_the_list_of_ops_is_current(pictures: ModuleType) -> None:
    assert (ROOT / "docs" / "ops.md").read_text(encoding="utf-8") == pictures.op_page(), (
        "run python docs/make_pictures.py"
    )


def test_the_floors_are_those_that_are_enforced(pictures: ModuleType) -> None:
    drawn = pictures.draw_floors(pictures.read_floors(ROOT / "pyproject.toml"))
    assert (ROOT / "docs" / "images" / "floors.svg").read_text(encoding="utf-8") == drawn, (
        "run python docs/make_pictures.py"
    )


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs" / "images").iterdir()}
    assert sizes
    assert all(size < 300_000 for size in sizes.values()), sizes
