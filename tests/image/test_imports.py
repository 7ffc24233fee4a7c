"""What reading an image may load: a fresh interpreter, because this one has loaded everything already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from tribunus.image.policy import add_key
from tribunus.image.read import open_image
from tribunus.image.keys import PublicKey
policy = add_key(None, PublicKey(bytes.fromhex(sys.argv[2])))
with open_image(sys.argv[1]) as image:
    image.verify_trust(policy)
    region = image.region(image.targets[0])
    region.plan(), region.kernels(), region.weights(0), region.admissions()
    image.verify_all()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def loaded(honest: bytes, tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    from tribunus.image.keys import Ed25519Signer

    path = tmp_path_factory.mktemp("imports") / "tiny.tci"
    path.write_bytes(honest)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), Ed25519Signer(bytes(range(32))).public.raw.hex()],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        capture_output=True,
    )
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize(
    "module",
    [
        "numpy",
        "hashlib",
        "threading",
        "tarfile",
        "zipfile",
        "gzip",
        "importlib.metadata",
        "requests",
        "urllib.request",
        "socket",
        "subprocess",
        "securesystemslib",
        "onnx",
        "pytest",
        "cryptography.hazmat.primitives.serialization",
        "tribunus.image.write",
        "tribunus.image.normalize",
    ],
)
def test_opening_and_verifying_an_image_does_not_load(loaded: frozenset[str], module: str) -> None:
    assert module not in loaded


def test_the_listing_is_that_of_the_reader(loaded: frozenset[str]) -> None:
    assert {"tribunus.image.read", "tribunus.sha256", "json"} <= loaded
