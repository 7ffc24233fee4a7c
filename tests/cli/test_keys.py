from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import ALICE, Said
from tribunus.errors import UsageError
from tribunus.image.keys import load_private_key
from tribunus.image.policy import ensure_development_key

Tool = Callable[..., Said]
Maker = Callable[..., Path]


def test_the_policy_in_force_is_listed(tribunus: Tool) -> None:
    said = tribunus("keys", "list")
    assert said.code == 0 and ALICE.keyid in said.out and "1 of" in said.out
    keys = tribunus("keys", "list", "--json").document["keys"]
    assert isinstance(keys, list) and [key["keyid"] for key in keys] == [ALICE.keyid]


def test_the_development_key_is_marked(tribunus: Tool) -> None:
    own = ensure_development_key(os.environ)
    said = tribunus("keys", "list")
    assert own.keyid in said.out and "development key of this user" in " ".join(said.out.split())
    assert own.keyid in tribunus("keys", "show").out


def test_a_generated_key_signs_and_its_public_half_is_trusted(
    tribunus: Tool, make_image: Maker, tmp_path: Path
) -> None:
    key = tmp_path / "release.key"
    assert tribunus("keys", "generate", key).code == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    signed = make_image(tmp_path / "signed.tci", signer=load_private_key(key))
    assert tribunus("verify", signed).code == 22
    assert tribunus("keys", "trust", tmp_path / "release.key.pub").code == 0
    assert tribunus("verify", signed).code == 0


def test_both_halves_show_the_same_key(tribunus: Tool, tmp_path: Path) -> None:
    key = tmp_path / "release.key"
    tribunus("keys", "generate", key)
    secret, public = tribunus("keys", "show", key).out, tribunus("keys", "show", tmp_path / "release.key.pub").out
    assert secret[secret.index("key id") :] == public[public.index("key id") :]
    assert "PRIVATE" not in secret


def test_an_existing_key_is_never_overwritten(tribunus: Tool, tmp_path: Path) -> None:
    key = tmp_path / "release.key"
    tribunus("keys", "generate", key)
    before = key.read_bytes()
    assert tribunus("keys", "generate", key).code == 4
    (tmp_path / "release.key.pub").unlink()
    assert tribunus("keys", "generate", key).code == 4
    assert key.read_bytes() == before and not (tmp_path / "release.key.pub").exists()


def test_a_secret_key_is_not_put_into_a_policy(tribunus: Tool, tmp_path: Path) -> None:
    tribunus("keys", "generate", tmp_path / "release.key")
    assert tribunus("keys", "trust", tmp_path / "release.key").code == 4


def test_trusting_twice_changes_nothing(tribunus: Tool, tmp_path: Path) -> None:
    tribunus("keys", "generate", tmp_path / "k")
    policy = tmp_path / "policies" / "mine.json"
    assert tribunus("keys", "trust", tmp_path / "k.pub", "--policy", policy).code == 0
    before = policy.read_bytes()
    assert tribunus("keys", "trust", tmp_path / "k.pub", "--policy", policy).code == 23
    assert policy.read_bytes() == before


def test_a_key_that_the_disk_has_no_room_for_leaves_no_half_of_it(
    tribunus: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 1:  # the secret half finds room, the public one does not
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    said = tribunus("keys", "generate", tmp_path / "release.key")
    assert said.code == 50 and len(calls) == 2
    assert not list(tmp_path.glob("*release*"))


def test_what_is_no_private_key_is_called_so_whatever_its_permissions(tribunus: Tool, tmp_path: Path) -> None:
    tribunus("keys", "generate", tmp_path / "release.key")
    with pytest.raises(UsageError, match="holds no private key"):
        load_private_key(tmp_path / "release.key.pub")
