"""Keys: which public ones may be trusted, and how private ones are kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tribunus.canon import digest_bytes
from tribunus.errors import EnvironmentFault, PolicyError, UsageError
from tribunus.image.keys import (
    Ed25519Signer,
    PublicKey,
    check_public_key,
    load_private_key,
    load_public_key,
    make_signer,
    public_key_to_pem,
    write_private_key,
)

PRIME = 2**255 - 19
Y8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
SMALL_ORDER = [
    (y | sign << 255).to_bytes(32, "little")
    for y in (0, 1, PRIME - 1, Y8, PRIME - Y8, PRIME, PRIME + 1)
    for sign in (0, 1)
]


@pytest.mark.parametrize("raw", SMALL_ORDER, ids=bytes.hex)
def test_every_encoding_of_a_small_order_point_is_refused(raw: bytes) -> None:
    with pytest.raises(PolicyError):
        check_public_key(raw)


def test_the_refused_identity_key_would_accept_forgeries() -> None:
    """What the refusal above is for: the library itself loads the key and verifies a signature nobody made."""
    identity = (1).to_bytes(32, "little")
    key = Ed25519PublicKey.from_public_bytes(identity)
    for number in range(8):
        key.verify(identity + bytes(32), b"any message %d" % number)


@pytest.mark.parametrize("y", [PRIME + 2, PRIME + 9, 2**255 - 1])
def test_encodings_above_the_prime_are_refused(y: int) -> None:
    for sign in (0, 1):
        with pytest.raises(PolicyError, match="canonically"):
            PublicKey((y | sign << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_public_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(PolicyError):
        PublicKey(bytes(range(100))[:size])


def test_the_key_id_is_the_digest_of_what_other_tools_print(alice: Ed25519Signer) -> None:
    key = Ed25519PublicKey.from_public_bytes(alice.public.raw)
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert alice.keyid == digest_bytes(der)
    assert public_key_to_pem(alice.public) == key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_a_signature_verifies_under_its_key_over_its_bytes_only(alice: Ed25519Signer, bob: Ed25519Signer) -> None:
    signature = alice.sign(b"message")
    assert alice.public.verifies(signature, b"message")
    assert not alice.public.verifies(signature, b"messagf")
    assert not bob.public.verifies(signature, b"message")
    assert not alice.public.verifies(signature[:-1], b"message")


def test_the_secret_is_not_printed(alice: Ed25519Signer) -> None:
    assert alice.seed.hex() not in repr(alice)
    assert repr(alice.seed) not in repr(alice)


def test_our_key_file_is_what_the_library_writes(alice: Ed25519Signer) -> None:
    key = Ed25519PrivateKey.from_private_bytes(alice.seed)
    assert alice.to_pem() == key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_a_written_key_loads_again_and_is_never_replaced(tmp_path: Path) -> None:
    signer, path = make_signer(), tmp_path / "key.pem"
    write_private_key(path, signer)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_private_key(path) == signer
    with pytest.raises(UsageError, match="exists already"):
        write_private_key(path, make_signer())
    assert load_private_key(path) == signer
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]


def test_raw_and_encrypted_keys_load(tmp_path: Path, alice: Ed25519Signer) -> None:
    raw, locked = tmp_path / "raw", tmp_path / "locked.pem"
    raw.write_bytes(alice.seed)
    locked.write_bytes(
        Ed25519PrivateKey.from_private_bytes(alice.seed).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
    )
    for path in (raw, locked):
        path.chmod(0o600)
    assert load_private_key(raw) == alice
    assert load_private_key(locked, b"open sesame") == alice
    for passphrase in (b"wrong", None):
        with pytest.raises(UsageError):
            load_private_key(locked, passphrase)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_private_key_that_others_can_touch_is_refused(tmp_path: Path, alice: Ed25519Signer, mode: int) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(alice.to_pem())
    path.chmod(mode)
    with pytest.raises(UsageError) as caught:
        load_private_key(path)
    assert "chmod 600" in caught.value.remedy


def test_what_is_no_ed25519_key_is_refused(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "key.pem"
    for content in (other, b"", b"text", bytes(31), b"x" * 100_000):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(UsageError):
            load_private_key(path)
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(EnvironmentFault):
            load_private_key(path)


def test_public_keys_load_raw_and_as_pem_and_nothing_else(tmp_path: Path, alice: Ed25519Signer) -> None:
    path = tmp_path / "key.pub"
    for content in (alice.public.raw, public_key_to_pem(alice.public)):
        path.write_bytes(content)
        assert load_public_key(path) == alice.public
    for content in (b"", b"-----BEGIN PUBLIC KEY-----\nAAA\n-----END PUBLIC KEY-----\n", alice.to_pem()):
        path.write_bytes(content)
        with pytest.raises(UsageError):
            load_public_key(path)
    path.write_bytes(SMALL_ORDER[2])
    with pytest.raises(PolicyError):
        load_public_key(path)


def test_openssl_reads_our_key_and_we_read_its(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl with ed25519 is not installed: {error}")
    path.chmod(0o600)
    signer = load_private_key(path)
    printed = subprocess.run(["openssl", "pkey", "-in", path, "-pubout"], check=True, capture_output=True).stdout
    assert printed == public_key_to_pem(signer.public)
