from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tribunus as package
from tests.cli.conftest import Said
from tribunus.cli import exit_codes, tool
from tribunus.cli.command import Command
from tribunus.cli.table import ENTRIES
from tribunus.errors import all_leaves

Tool = Callable[..., Said]
Process = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., int]], None]:
    """Offer a command ``extra`` from another package."""

    def offer(run: Callable[..., int]) -> None:
        def configure(parser: object) -> None:
            parser.add_argument("--json", action="store_true")  # type: ignore[attr-defined]

        command = Command("extra", "a command from elsewhere", configure, run)
        monkeypatch.setattr(
            tool, "plugin_commands", lambda: {"extra": SimpleNamespace(name="extra", load=lambda: command)}
        )

    return offer


def test_help_lists_every_command_with_its_summary(tribunus: Tool) -> None:
    said = tribunus("--help")
    assert said.code == 0
    for entry in ENTRIES:
        assert f"  {entry.name:<11}{entry.summary}" in said.out


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_every_command_explains_itself(tribunus: Tool, name: str) -> None:
    said = tribunus(name, "--help")
    assert said.code == 0 and said.out.startswith(f"usage: tribunus {name}")
    assert tool.find_command(name).name == name


def test_version(tribunus: Tool) -> None:
    assert tribunus("--version").out == f"tribunus {package.__version__}\n"


@pytest.mark.parametrize(
    "words", [[], ["verfy"], ["verify"], ["verify", "--no-such"], ["--no-such"], ["run", "x", "--repeat", "many"]]
)
def test_wrong_words_are_a_usage_error(tribunus: Tool, words: list[str]) -> None:
    said = tribunus(*words)
    assert said.code == 4 and said.err.startswith("refused: E_USAGE: ") and "remedy: " in said.err


def test_a_misspelt_command_is_guessed(tribunus: Tool) -> None:
    assert "did you mean `tribunus verify`?" in tribunus("verfy").err


def test_commands_of_other_packages_are_found(tribunus: Tool, plugin: Callable[..., None]) -> None:
    plugin(lambda arguments: 0)
    assert tribunus("extra").code == 0
    assert "extra      a command from elsewhere" in tribunus("--help").out


@pytest.mark.parametrize(
    ("fault", "code", "name"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/out/y.npz"), 50, "E_IO"),
        (PermissionError(errno.EACCES, "Permission denied", "/out"), 50, "E_IO"),
        (OSError(errno.EROFS, "Read-only file system"), 50, "E_IO"),
        (MemoryError(), 50, "E_IO"),
        (KeyboardInterrupt(), 2, "E_INTERRUPTED"),
        (ZeroDivisionError("division by zero"), 3, "E_INTERNAL"),
        (RecursionError("too deep"), 3, "E_INTERNAL"),
    ],
)
def test_whatever_happens_is_one_message(
    tribunus: Tool, plugin: Callable[..., None], fault: BaseException, code: int, name: str
) -> None:
    def fail(arguments: object) -> int:
        raise fault

    plugin(fail)
    said = tribunus("extra")
    assert said.code == code and said.err.startswith(f"refused: {name}: ") and "Traceback" not in said.err
    assert tribunus("extra", "--json").document["refused"] == name


def test_the_traceback_is_there_for_those_who_ask(
    tribunus: Tool, plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: object) -> int:
        raise ZeroDivisionError("division by zero")

    plugin(fail)
    assert "TRIBUNUS_DEBUG=1" in tribunus("extra").err
    monkeypatch.setenv("TRIBUNUS_DEBUG", "1")
    said = tribunus("extra")
    assert said.code == 3 and "Traceback" in said.err and "ZeroDivisionError" in said.err


def test_a_closed_pipe_is_no_noise(image: Path) -> None:
    words = [sys.executable, "-m", "tribunus", "inspect", str(image)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == b""
    assert started.returncode == 50


def test_a_full_disk_behind_standard_output_is_reported(image: Path) -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "tribunus", "inspect", str(image)]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 50 and done.stderr.startswith("refused: E_IO: ") and "Exception" not in done.stderr


def test_a_full_disk_leaves_the_old_outputs(image: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((16, 4), np.float32))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "y.npz").write_bytes(b"old")
    words = [sys.executable, "-m", "tribunus", "run", str(image)]
    words += ["--inputs", str(tmp_path / "x.npz"), "--outputs", str(folder / "y.npz")]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)),
    )
    assert done.returncode == 50 and done.stderr.startswith("refused: E_IO: ") and "Traceback" not in done.stderr
    assert [path.name for path in folder.iterdir()] == ["y.npz"]
    assert (folder / "y.npz").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user writes everywhere")
def test_a_read_only_folder_is_reported(tribunus: Tool, image: Path, inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    said = tribunus("run", image, "--inputs", inputs, "--outputs", folder / "y.npz")
    assert said.code == 50 and said.err.startswith("refused: E_IO: ") and not list(folder.iterdir())


def test_a_file_system_that_takes_no_files_is_reported(tribunus: Tool, image: Path, inputs: Path) -> None:
    said = tribunus("run", image, "--inputs", inputs, "--outputs", "/proc/y.npz")
    assert said.code == 50 and said.err.startswith("refused: E_IO: ")


def test_a_file_in_the_place_of_the_folder_is_reported(
    tribunus: Tool, image: Path, inputs: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    said = tribunus("run", image, "--inputs", inputs, "--outputs", tmp_path / "file" / "y.npz")
    assert said.code == 50 and said.err.startswith("refused: E_IO: ")


def test_an_interrupt_ends_with_two(image: Path, inputs: Path) -> None:
    script = (
        "import sys, os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell hands it down ignored\n"
        "from tribunus.cli import main, run\n"
        "inner = run._replay\n"
        "def replay(session, repeat):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return inner(session, repeat)\n"
        "run._replay = replay\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", script, "run", str(image), "--inputs", str(inputs)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("refused: E_INTERRUPTED: ")


FORBIDDEN = (
    "onnx", "torch", "triton", "pytest", "ziglang", "capstone", "onnxruntime", "openvino",
    "importlib.metadata", "subprocess", "tribunus_native.backend", "tribunus_native.flat", "tribunus_native.toolchain",
    "tribunus_onednn.backend", "tribunus.candidates", "tribunus.planning", "tribunus.isolation", "tribunus.admission",
    "tribunus.ledger", "tribunus.frontend", "tribunus.passes", "tribunus.oracle", "tribunus.certification",
)  # fmt: skip


@pytest.mark.parametrize("command", ["verify", "inspect", "fits", "selftest", "run", "diff"])
def test_commands_that_only_replay_load_nothing_that_compiles(
    process: Process, image: Path, inputs: Path, command: str
) -> None:
    script = (
        "import sys\n"
        "from tribunus.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print('\\n'.join(['LOADED', *sorted(sys.modules)]))\n"
        "sys.exit(code)\n"
    )
    more = {"run": ["--inputs", str(inputs)], "diff": [str(image)]}.get(command, [])
    done = process(command, image, *more, script=script)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split("LOADED\n")[1].split())
    assert "tribunus.image.read" in loaded
    assert not loaded & set(FORBIDDEN)


def test_the_tool_itself_loads_no_numpy(process: Process) -> None:
    script = "import sys\nfrom tribunus.cli import main\nmain(['--version'])\nprint('numpy' in sys.modules)"
    assert process(script=script).stdout.split()[-1] == "False"


def test_the_committed_page_of_exit_codes_is_that_of_the_error_tree() -> None:
    committed = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert committed == exit_codes.page(), "python -m tribunus.cli.exit_codes > docs/exit-codes.md"


def test_the_page_names_every_error_and_code() -> None:
    text = exit_codes.page()
    tree = [leaf for leaf in all_leaves() if leaf.__module__ == "tribunus.errors"]
    assert len(tree) > 60
    assert all(f"`{leaf.name}`" in text and f"| {leaf.exit_code} |" in text for leaf in tree)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_streams_that_the_caller_closed_are_no_files_of_ours(closed: tuple[int, ...], tmp_path: Path) -> None:
    """With a closed standard output the next file that is opened would be number 1, and answers would go into it."""
    read, write = os.pipe()
    script = (
        "import os, sys\n"
        "from tribunus.cli.command import Command\n"
        "from tribunus.cli import tool\n"
        "def run(arguments):\n"
        f"    with open({str(tmp_path / 'file')!r}, 'wb') as file:\n"
        "        print('an answer', flush=True)\n"
        "        os.system('echo a child')\n"
        f"        os.write({write}, str(file.fileno()).encode())\n"
        "    return 0\n"
        "tool.find_command = lambda name: Command('extra', 'x', lambda parser: None, run)\n"
        "sys.exit(tool.run_tool(['extra']))\n"
    )

    def close() -> None:
        for number in closed:
            os.close(number)

    done = subprocess.run(
        [sys.executable, "-c", script], preexec_fn=close, pass_fds=(write,), capture_output=True, check=False, cwd=ROOT
    )
    os.close(write)
    number = os.read(read, 10)
    os.close(read)
    assert done.returncode == 0, done.stderr
    assert int(number) > 2 and (tmp_path / "file").read_bytes() == b""
    assert (1 in closed) == (done.stdout == b"") and b"Traceback" not in done.stderr
