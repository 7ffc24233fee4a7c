"""``tribunus keys``: list, make, show and trust signing keys.

Imported by: cli.tool.  Imports: image.{folders, keys, policy}, cli.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tribunus.cli.command import Command
from tribunus.cli.output import field, print_json
from tribunus.errors import EnvironmentFault, PolicyError, TribunusError, UsageError
from tribunus.image.folders import config_folder, make_private_folder, replace_file, write_new_file
from tribunus.image.keys import (
    DEVELOPMENT_KEY,
    PublicKey,
    load_development_key,
    load_private_key,
    load_public_key,
    make_signer,
    public_key_to_pem,
    write_private_key,
)
from tribunus.image.policy import POLICY_FILE, VARIABLE, TrustPolicy, add_key, load_policy


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the trust policy in force here: its keys and rules")
    listing.add_argument("--trust", type=Path, metavar="POLICY.json", help="TRIBUNUS_TRUST, else the user's policy")
    listing.add_argument("--json", action="store_true", help="print one JSON document")
    making = actions.add_parser("generate", help="make a signing key: FILE (secret) and FILE.pub")
    making.add_argument("file", type=Path, metavar="FILE")
    showing = actions.add_parser("show", help="id and public half of a key; without FILE: the development key")
    showing.add_argument("file", type=Path, metavar="FILE", nargs="?")
    trusting = actions.add_parser("trust", help="trust a public key for all images of this user")
    trusting.add_argument("file", type=Path, metavar="FILE.pub")
    trusting.add_argument("--policy", type=Path, metavar="POLICY.json", help="the policy to add to; default the user's")
    parser.epilog = (
        "  tribunus keys generate release.key\n"
        "  tribunus certify --model M.onnx --key release.key\n"
        "and on the machines that run the image:\n"
        "  tribunus keys trust release.key.pub"
    )


def _run(arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "list":
            _list(arguments.trust, arguments.json)
        case "generate":
            _generate(arguments.file)
        case "show":
            _show(arguments.file)
        case _:
            _trust(arguments.file, arguments.policy)
    return 0


def policy_path(named: Path | None) -> Path:
    """Where the policy in force lies: as named, else TRIBUNUS_TRUST, else the user's configuration folder."""
    variable = os.environ.get(VARIABLE, "")
    return named or (Path(variable) if variable else config_folder(os.environ) / POLICY_FILE)


def _list(trust: Path | None, as_json: bool) -> None:
    path = policy_path(trust)
    policy = load_policy(path, None)
    try:
        own = load_development_key(os.environ)
    except TribunusError:  # the policy can be listed without it
        own = None
    development = None if own is None else own.keyid
    if as_json:
        print_json(
            {
                "schema": "tribunus.keys/1",
                "policy": str(path),
                "version": policy.version,
                "expires": policy.expires,
                "keys": [
                    {
                        "keyid": keyid,
                        "not_after": key.not_after,
                        "revoked": keyid in policy.revoked_keys,
                        "development": keyid == development,
                    }
                    for keyid, key in policy.keys.items()
                ],
                "rules": [
                    {
                        "names": list(rule.names),
                        "targets": list(rule.targets),
                        "keys": list(rule.keys),
                        "threshold": rule.threshold,
                        "min_epoch": rule.min_epoch,
                    }
                    for rule in policy.rules
                ],
            }
        )
        return
    print(field("policy", str(path)))
    print(field("version", f"{policy.version}, expires {policy.expires}"))
    for keyid, key in policy.keys.items():
        notes = ["development key of this user"] if keyid == development else []
        notes += [f"until {key.not_after}"] if key.not_after else []
        notes += ["REVOKED"] if keyid in policy.revoked_keys else []
        print(field("key", keyid + (f" ({', '.join(notes)})" if notes else "")))
    for rule in policy.rules:
        keys = ", ".join(keyid[:12] for keyid in rule.keys)
        epoch = f", epoch {rule.min_epoch} or newer" if rule.min_epoch else ""
        what = f"names {', '.join(rule.names)}; targets {', '.join(rule.targets)}"
        print(field("rule", f"{what}: {rule.threshold} of {keys}{epoch}"))


def _generate(path: Path) -> None:
    public_path = path.with_name(path.name + ".pub")
    if public_path.exists():
        raise UsageError(f"{public_path} exists already", remedy="remove it first, or name another file")
    signer = make_signer()
    write_private_key(path, signer)
    try:
        write_new_file(public_path, public_key_to_pem(signer.public), 0o644)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise EnvironmentFault(f"cannot write {public_path}: {error.strerror}") from None
    print(field("secret", f"{path}: whoever has this file can sign as you"))
    print(field("public", str(public_path)))
    print(field("key id", signer.keyid))
    print(field("next", f"tribunus keys trust {public_path}"))


def _show(path: Path | None) -> None:
    if path is None:
        own = load_development_key(os.environ)
        if own is None:
            raise UsageError(
                f"there is no development key in {config_folder(os.environ)}",
                remedy="the first `tribunus certify` makes one; or name a key file",
            )
        path, public = config_folder(os.environ) / DEVELOPMENT_KEY, own.public
    else:
        public = load_any(path)
    print(field("file", str(path)))
    print(field("key id", public.keyid))
    print(public_key_to_pem(public).decode("ascii"), end="")


def load_any(path: Path) -> PublicKey:
    """The public key of a public or an unencrypted private key file.  Raises what loading a key raises."""
    try:
        return load_public_key(path)
    except UsageError:
        return load_private_key(path).public


def _trust(path: Path, named: Path | None) -> None:
    try:
        public = load_public_key(path)
    except UsageError as error:
        raise UsageError(error.detail, remedy="give the public half: FILE.pub of `tribunus keys generate`") from None
    target = policy_path(named)
    earlier: TrustPolicy | None = None
    if target.exists():
        earlier = load_policy(target, None)
        if public.keyid in earlier.keys:
            raise PolicyError(f"{target} knows key {public.keyid[:16]} already", remedy="nothing needs to be done")
    else:
        make_private_folder(target.parent)
    replace_file(target, add_key(earlier, public).encode() + b"\n", 0o600)
    print(field("trusted", f"{public.keyid}, for all image names and targets"))
    print(field("policy", str(target)))


COMMAND = Command("keys", "list, make, show and trust signing keys", _configure, _run)
