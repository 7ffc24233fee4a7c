"""Ed25519 keys: public ones that a policy may name, private ones that sign, and the user's development key.

Imported by: image.policy, image.write, certification, cli.  Imports: errors, image.folders; cryptography.

Verification needs raw 32-byte public keys only, so the library's key file parsers are imported where a private key is
read and nowhere else.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tribunus.errors import EnvironmentFault, PolicyError, UsageError
from tribunus.image.folders import config_folder, temporary_beside, write_new_file
from tribunus.records import dataclass, field
from tribunus.sha256 import sha256

DEVELOPMENT_KEY: Final = "development.pem"

_PRIME: Final = 2**255 - 19
_ORDER_8: Final = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_SMALL_ORDER: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
_SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
_PKCS8_PREFIX: Final = bytes.fromhex("302e020100300506032b657004220420")
_MAX_KEY_FILE: Final = 16384
_PRIVATE: Final = b"PRIVATE KEY-----"


class Signer(Protocol):
    """Whatever can sign: a key in memory, or a service that never shows its key."""

    @property
    def keyid(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key that may be trusted: canonical encoding, not of small order."""

    raw: bytes

    def __post_init__(self) -> None:
        check_public_key(self.raw)

    @property
    def keyid(self) -> str:
        """SHA-256 of the SubjectPublicKeyInfo in DER, lowercase hexadecimal."""
        return sha256(_SPKI_PREFIX + self.raw).hex()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether ``signature`` is this key's over ``data``."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Ed25519Signer:
    """A private key in memory."""

    seed: bytes = field(repr=False)
    """32 secret bytes."""

    @property
    def public(self) -> PublicKey:
        """The key that others verify with."""
        return PublicKey(Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    @property
    def keyid(self) -> str:
        return self.public.keyid

    def sign(self, data: bytes) -> bytes:
        """Pure Ed25519 signature, 64 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(data)

    def to_pem(self) -> bytes:
        """Unencrypted PKCS#8."""
        return _pem(b"PRIVATE KEY", _PKCS8_PREFIX + self.seed)


def check_public_key(raw: bytes) -> None:
    """Refuse keys under which forged signatures verify.

    A key of small order accepts signatures made without any secret (the identity key accepts all messages); a
    non-canonical encoding would give one key two ids.  Raises PolicyError.
    """
    if len(raw) != 32:
        raise PolicyError(f"an Ed25519 public key has 32 bytes, this one {len(raw)}")
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= _PRIME:
        raise PolicyError("public key is not canonically encoded")
    if y in _SMALL_ORDER:
        raise PolicyError("public key is of small order: anyone could sign with it")


def public_key_to_pem(key: PublicKey) -> bytes:
    """SubjectPublicKeyInfo in PEM, as openssl and cosign read it."""
    return _pem(b"PUBLIC KEY", _SPKI_PREFIX + key.raw)


def load_public_key(path: Path) -> PublicKey:
    """A public key file: 32 raw bytes, or PEM.  Raises EnvironmentFault, UsageError or PolicyError."""
    data = _read_key_file(path, private=False)
    if len(data) == 32:
        return PublicKey(data)
    import base64
    import re

    found = re.fullmatch(rb"\s*-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*", data)
    if found:
        body = b"".join(found[1].split())
        der = base64.b64decode(body) if len(body) % 4 == 0 else b""
        if len(der) == 44 and der.startswith(_SPKI_PREFIX):
            return PublicKey(der[12:])
    raise UsageError(f"{path} holds no Ed25519 public key", remedy="give 32 raw bytes or PEM (BEGIN PUBLIC KEY)")


def load_private_key(path: Path, passphrase: bytes | None = None) -> Ed25519Signer:
    """A private key file: 32 raw bytes, or PKCS#8 PEM, encrypted if ``passphrase`` is given.

    Refuses files that others can read.  Raises EnvironmentFault or UsageError.
    """
    data = _read_key_file(path, private=True)
    if len(data) == 32 and passphrase is None:
        return Ed25519Signer(data)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UsageError(
            f"{path} holds no private key that can be read, or the passphrase is missing, wrong or superfluous",
            remedy="give 32 raw bytes or PKCS#8 PEM: openssl genpkey -algorithm ed25519",
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is no Ed25519 key", remedy="openssl genpkey -algorithm ed25519")
    return Ed25519Signer(key.private_bytes_raw())


def write_private_key(path: Path, signer: Ed25519Signer) -> None:
    """Write a new unencrypted key file that only the user can read; an existing one is kept and refused.

    Raises UsageError or EnvironmentFault.
    """
    temporary = temporary_beside(path)
    try:
        try:
            write_new_file(temporary, signer.to_pem(), 0o600)
            # A link, unlike a rename, never replaces a key that another process has just made.
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        raise UsageError(f"{path} exists already", remedy="remove it first, if that key is no longer needed") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from None


def make_signer() -> Ed25519Signer:
    """A new random key."""
    return Ed25519Signer(os.urandom(32))


def load_development_key(environ: Mapping[str, str]) -> Ed25519Signer | None:
    """The user's development key, or None if there is none yet.  Raises EnvironmentFault or UsageError."""
    path = config_folder(environ) / DEVELOPMENT_KEY
    return load_private_key(path) if path.exists() else None


def _read_key_file(path: Path, *, private: bool) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is no regular file", remedy="name a key file")
            data = file.read(_MAX_KEY_FILE + 1)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot read key {path}: {error.strerror}", remedy="name an existing key file"
        ) from None
    if len(data) > _MAX_KEY_FILE:
        raise UsageError(f"{path} is too long for a key", remedy="name a key file")
    if private and len(data) != 32 and _PRIVATE not in data:
        raise UsageError(f"{path} holds no private key", remedy="name the secret file of `tribunus keys generate`")
    if private and stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"{path} can be read or written by others", remedy=f"chmod 600 {shlex.quote(str(path))}")
    return data


def _pem(label: bytes, der: bytes) -> bytes:
    import base64

    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label, base64.b64encode(der), label)
