"""The runtime alone: nothing on PATH, none of the compile-time packages, no network; and what importing it loads."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.conftest import Toy, rows

Fresh = Callable[..., subprocess.CompletedProcess[str]]

BLOCKED = ("torch", "onnx", "onnxruntime", "triton", "pytest", "ziglang", "capstone", "hypothesis")
OURS_BLOCKED = (
    "tribunus.candidates", "tribunus.planning", "tribunus.isolation", "tribunus.admission", "tribunus.ledger",
    "tribunus.frontend", "tribunus.passes", "tribunus.oracle", "tribunus.certification", "tribunus.cli",
    "tribunus_certify", "tribunus_reports", "tribunus_native.backend", "tribunus_native.flat",
)  # fmt: skip
OPEN = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        for blocked in {blocked!r}:
            if name == blocked or name.startswith(blocked + "."):
                raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
import numpy, tribunus
x = numpy.load(sys.argv[2])
image = tribunus.open(sys.argv[1])
numpy.save(sys.argv[3], image.run({{"x": x}})["y"])
print("done")
"""


def script() -> str:
    return OPEN.format(blocked=BLOCKED + OURS_BLOCKED)


def check(done: subprocess.CompletedProcess[str], out: Path, count: int) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    np.testing.assert_array_equal(np.load(out), Toy().expected(rows(count)))


def test_an_image_runs_with_an_empty_path_and_without_compile_time_packages(
    path: Path, tmp_path: Path, fresh: Fresh
) -> None:
    np.save(tmp_path / "x.npy", rows(5))
    done = fresh(script(), path, tmp_path / "x.npy", tmp_path / "y.npy", PATH="")
    check(done, tmp_path / "y.npy", 5)


def test_an_image_runs_without_a_network(path: Path, tmp_path: Path, fresh: Fresh) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system makes no network namespace for us")
    np.save(tmp_path / "x.npy", rows(3))
    # root of the namespace, so that files of this user are still this user's
    done = fresh(script(), path, tmp_path / "x.npy", tmp_path / "y.npy", wrapper=(unshare, "-rn"))
    check(done, tmp_path / "y.npy", 3)


def test_importing_tribunus_imports_next_to_nothing(fresh: Fresh) -> None:
    done = fresh(
        "import sys; before = set(sys.modules); import tribunus; tribunus.__version__;"
        "print(sorted(m for m in set(sys.modules) - before if m.startswith(('tribunus', 'numpy', 'cryptography'))))"
    )
    assert done.stdout.strip() == "['tribunus', 'tribunus.version']"


def test_importing_the_runtime_brings_in_nothing_that_is_slow_or_not_needed(fresh: Fresh) -> None:
    done = fresh(
        "import sys, json, numpy; from cryptography.hazmat.primitives.asymmetric import ed25519;"
        "before = set(sys.modules); import tribunus.runtime.session; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    found = json.loads(done.stdout)
    slow = {
        "dataclasses", "decimal", "fractions", "numpy.typing", "inspect", "importlib.metadata", "subprocess",
        "tempfile", "zipfile", "tarfile", "sqlite3", "asyncio", "socket", "ssl", "email", "http", "logging", "urllib",
        "cryptography.hazmat.primitives.serialization.ssh", "numpy.random", "hashlib", "threading", "base64",
    }  # fmt: skip
    assert slow.isdisjoint(found)
    ours = [name for name in found if name.startswith("tribunus")]
    assert not [name for name in ours if name.startswith((*OURS_BLOCKED, "tribunus.image.write", "tribunus_onednn"))]
    assert len(found) < 70
