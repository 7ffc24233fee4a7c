"""Every released major of the format stays readable for ever; its golden image lies compressed beside this file."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

from tribunus.canon import digest_bytes
from tribunus.image.keys import Ed25519Signer, public_key_to_pem
from tribunus.image.policy import TrustPolicy
from tribunus.image.read import ImageFile
from tribunus.image.source import MemorySource

GOLDEN = {
    1: (
        "3c79e892dbc31014e4313ae9e1b9c556d6e106b8467050a403ebc30be5de56c3",
        "71ba295cda7993cee2d20c9f7dfc5a861763652f1c77051ce2b5a15b898aa29a",
    )
}


def golden(major: int) -> bytes:
    return gzip.decompress((Path(__file__).parent / "golden" / f"image-{major}.tci.gz").read_bytes())


@pytest.mark.parametrize("major", sorted(GOLDEN))
def test_a_golden_image_still_verifies_under_its_id(major: int, policy: TrustPolicy) -> None:
    data = golden(major)
    image = ImageFile(MemorySource(data))
    assert (image.image_id, digest_bytes(data)) == GOLDEN[major]
    assert image.targets == ("cpu-x86-64-v3", "cpu-x86-64-v4")
    image.verify_trust(policy)
    image.verify_all()


def test_the_writer_still_writes_the_newest_golden_image(honest: bytes) -> None:
    assert honest == golden(max(GOLDEN))


def test_openssl_verifies_the_golden_envelope_by_itself(tmp_path: Path, alice: Ed25519Signer) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    image = ImageFile(MemorySource(golden(1)))
    envelope = json.loads(image.blob(image.contents.evidence[0].envelope))
    kind, payload = envelope["payloadType"].encode(), b64decode(envelope["payload"])
    for name, data in (
        ("key.pem", public_key_to_pem(alice.public)),
        ("signature", b64decode(envelope["signatures"][0]["sig"])),
        ("signed", b" ".join((b"DSSEv1", b"%d" % len(kind), kind, b"%d" % len(payload), payload))),
    ):
        (tmp_path / name).write_bytes(data)
    command = [program, "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "key.pem", "-sigfile", "signature"]
    done = subprocess.run([*command, "-in", "signed"], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "signed").write_bytes((tmp_path / "signed").read_bytes() + b"x")
    assert subprocess.run([*command, "-in", "signed"], cwd=tmp_path, check=False, capture_output=True).returncode != 0
