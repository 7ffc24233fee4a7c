"""The trust policy: whose signatures make which images run here.  Default: nobody's.

Imported by: image.read, runtime, cli, reports.  Imports: errors, canon, image.{content, folders, keys, marks, media}.

A policy file is canonical JSON of schema ``tribunus.trust/1``.  ``judge_trust`` is a function of the policy, the
verified payloads, the marks and the time.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tribunus.canon import (
    Digest,
    Json,
    JsonObject,
    decode,
    digest_bytes,
    encode,
    int_of,
    is_identifier,
    list_of,
    object_of,
    str_of,
)
from tribunus.errors import (
    EncodingError,
    EnvironmentFault,
    JsonCanonError,
    PolicyError,
    PolicyExpiredError,
    RevokedError,
    RollbackError,
    RuleError,
    StructureError,
    ThresholdError,
    TribunusError,
    UntrustedError,
)
from tribunus.image import media
from tribunus.image.content import oci_digest, parse_oci_digest
from tribunus.image.folders import config_folder, locked, make_private_folder, replace_file, state_folder
from tribunus.image.keys import (
    DEVELOPMENT_KEY,
    Ed25519Signer,
    PublicKey,
    load_private_key,
    make_signer,
    write_private_key,
)
from tribunus.image.marks import HighWaterMarks
from tribunus.records import dataclass

SCHEMA: Final = "tribunus.trust/1"
VARIABLE: Final = "TRIBUNUS_TRUST"
POLICY_FILE: Final = "trust.json"
MARKS_FILE: Final = "trust-marks.json"
MAX_POLICY: Final = media.MIB

_DIGITS_TO_ZERO: Final = str.maketrans("123456789", "0" * 9)
_REWRITE: Final = "canonical form: python3 -m json.tool --compact --sort-keys --no-ensure-ascii FILE NEW_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """A key that rules may name."""

    public: PublicKey
    not_after: str | None
    """UTC, ``2027-06-01T00:00:00Z``; None: no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Who may vouch for images of these names on these targets.

    names, targets: exact, or a prefix followed by one ``*``.
    """

    names: tuple[str, ...]
    targets: tuple[str, ...]
    predicate: str
    keys: tuple[str, ...]
    threshold: int
    """Distinct public keys that must have signed the same statement."""
    min_epoch: int

    def __post_init__(self) -> None:
        if not self.names or not self.targets or not self.keys:
            raise PolicyError("a rule needs names, targets and keys")
        if bad := [text for text in (*self.names, *self.targets) if not _is_pattern(text)]:
            raise PolicyError(f"{bad[0][:80]!r} is no name, nor a prefix with one '*' at its end")
        if len(set(self.keys)) != len(self.keys) or not 1 <= self.threshold <= len(self.keys):
            raise PolicyError("a rule's threshold lies between 1 and the number of its distinct keys")

    def applies_to(self, name: str, target: str) -> bool:
        """Whether the rule speaks about this image name on this target."""
        return _matches(self.names, name) and _matches(self.targets, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    """A trust policy in force."""

    version: int
    expires: str
    keys: Mapping[str, TrustedKey]
    """By keyid."""
    rules: tuple[Rule, ...]
    revoked_keys: frozenset[str]
    revoked_images: frozenset[Digest]
    origin: Digest | None = None
    """SHA-256 of the path that the policy came from; its version never falls there.  None: made in memory."""
    marks: HighWaterMarks | None = None
    """Where versions and epochs already accepted here are kept.  None: made in memory."""

    def __post_init__(self) -> None:
        for rule in self.rules:
            if unknown := sorted(set(rule.keys) - set(self.keys)):
                raise PolicyError(f"a rule names the unknown key {unknown[0][:80]}")

    def encode(self) -> bytes:
        """Canonical bytes of the policy file."""
        keys: dict[str, Json] = {}
        for keyid, key in self.keys.items():
            public = binascii.b2a_base64(key.public.raw, newline=False).decode("ascii")
            entry: JsonObject = {"alg": "ed25519", "public": public}
            keys[keyid] = entry if key.not_after is None else {**entry, "not_after": key.not_after}
        rules: list[Json] = [
            {
                "names": list(rule.names),
                "targets": list(rule.targets),
                "predicate": rule.predicate,
                "keys": list(rule.keys),
                "threshold": rule.threshold,
                "min_epoch": rule.min_epoch,
            }
            for rule in self.rules
        ]
        revoked: JsonObject = {
            "keys": [*sorted(self.revoked_keys)],
            "images": [oci_digest(image) for image in sorted(self.revoked_images)],
        }
        return encode(
            {
                "schema": SCHEMA,
                "version": self.version,
                "expires": self.expires,
                "keys": keys,
                "rules": rules,
                "revoked": revoked,
            }
        )


@dataclass(frozen=True, slots=True)
class SignedPayload:
    """One payload whose signature verified under a key of the policy."""

    evidence: int
    """Index of the evidence manifest that it came from."""
    keyid: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Why an image may run: per target, the evidence that satisfied a rule."""

    name: str
    epoch: int
    keyids: tuple[str, ...]
    """Of the keys that counted, ascending."""
    evidence: Mapping[str, int]
    """Target to index of the evidence manifest that satisfied its rule."""
    policy: TrustPolicy
    rises: bool
    """Whether a high-water mark was lower when this was judged.  Marks never fall, so one that stood stands."""

    def record(self) -> bool:
        """Raise the high-water marks; call it after everything else has passed.  False: there is nowhere to write."""
        marks = self.policy.marks
        if marks is None:
            return False
        if not self.rises:
            return True
        return marks.record(self.policy.origin, self.policy.version, self.name, self.epoch)


def judge_trust(
    policy: TrustPolicy,
    *,
    name: str,
    image_id: Digest,
    epoch: int,
    targets: Sequence[str],
    signed: Sequence[SignedPayload],
    now: str,
) -> Trust:
    """Trust in an image on each of ``targets``, or the refusal.

    signed: payloads that name this image and verified under keys of the policy.  now: UTC time, as in the policy file.
    Keys are counted by public key and only over equal payloads.  Raises UntrustedError, RuleError, ThresholdError,
    RevokedError or RollbackError.
    """
    if not targets:
        raise RuleError(f"image {name!r} was judged for no target")
    if image_id in policy.revoked_images:
        raise RevokedError(f"image {image_id[:12]} is revoked")
    if not signed:
        raise UntrustedError(f"no key that signed image {name!r} is in the trust policy")
    standing = [item for item in signed if item.keyid not in policy.revoked_keys]
    if not standing:
        raise RevokedError(f"key {signed[0].keyid[:16]}, which signed image {name!r}, is revoked")
    alive = [item for item in standing if _is_alive(policy.keys[item.keyid], now)]
    if not alive:
        raise UntrustedError(f"key {standing[0].keyid[:16]}, which signed image {name!r}, has expired")
    chosen: dict[str, int] = {}
    counted: set[str] = set()
    for target in targets:
        evidence, keyids = _judge_target(policy, name, epoch, target, alive)
        chosen[target] = evidence
        counted |= keyids
    rises = policy.marks is not None and policy.marks.check(policy.origin, policy.version, name, epoch)
    return Trust(name=name, epoch=epoch, keyids=tuple(sorted(counted)), evidence=chosen, policy=policy, rises=rises)


def check_expiry(policy: TrustPolicy, now: str) -> None:
    """Raises PolicyExpiredError at and after the policy's end."""
    if now >= policy.expires:
        raise PolicyExpiredError(f"the trust policy expired at {policy.expires}")


def decode_policy(data: bytes) -> TrustPolicy:
    """The policy in a file's bytes; one line feed may follow the canonical form.  Raises PolicyError."""
    try:
        return _policy(decode(data.removesuffix(b"\n"), limit=MAX_POLICY))
    except JsonCanonError as error:
        raise PolicyError(f"trust policy: {error.detail}", remedy=_REWRITE) from None
    except (EncodingError, StructureError) as error:
        raise PolicyError(f"trust policy: {error.detail}") from None


def load_policy(path: Path, marks: HighWaterMarks | None) -> TrustPolicy:
    """The policy in a file.  Raises PolicyError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_POLICY + 2)
    except OSError as error:
        raise PolicyError(f"cannot read trust policy {path}: {error.strerror}", remedy=_FIND) from None
    try:
        policy = decode_policy(data)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error.detail}", remedy=error.remedy) from None
    origin = digest_bytes(os.path.realpath(path).encode("utf-8", "surrogateescape"))
    return _with_origin(policy, origin, marks)


def find_policy(named: Path | None, environ: Mapping[str, str]) -> TrustPolicy:
    """The policy in force: the one named, else ``TRIBUNUS_TRUST``, else the user's own.  Raises PolicyError."""
    marks = HighWaterMarks(state_folder(environ) / MARKS_FILE)
    variable = environ.get(VARIABLE, "")
    if named is None:
        named = Path(variable) if variable else config_folder(environ) / POLICY_FILE
    return load_policy(named, marks)


def ensure_development_key(environ: Mapping[str, str]) -> Ed25519Signer:
    """The user's development key, made on first use together with the rule that trusts it for this user.

    A user who later removes the rule is not overruled: it is written only when the key is new.
    Raises EnvironmentFault, UsageError or PolicyError.
    """
    folder = config_folder(environ)
    path = folder / DEVELOPMENT_KEY
    if path.exists():
        return load_private_key(path)
    make_private_folder(folder)
    try:
        with locked(folder / f"{DEVELOPMENT_KEY}.lock"):
            return load_private_key(path) if path.exists() else _new_development_key(path, folder / POLICY_FILE)
    except OSError as error:
        raise EnvironmentFault(f"cannot write to {folder}: {error.strerror}") from None


def add_key(policy: TrustPolicy | None, public: PublicKey) -> TrustPolicy:
    """``policy`` (None: an empty one) with a rule that trusts ``public`` for all names and targets."""
    rule = Rule(
        names=("*",),
        targets=("*",),
        predicate=media.ADMISSION_PREDICATE,
        keys=(public.keyid,),
        threshold=1,
        min_epoch=0,
    )
    key = TrustedKey(public=public, not_after=None)
    return TrustPolicy(
        version=1 if policy is None else policy.version + 1,
        expires="9999-12-31T23:59:59Z" if policy is None else policy.expires,
        keys={public.keyid: key} if policy is None else {**policy.keys, public.keyid: key},
        rules=(rule,) if policy is None else (*policy.rules, rule),
        revoked_keys=frozenset() if policy is None else policy.revoked_keys,
        revoked_images=frozenset() if policy is None else policy.revoked_images,
    )


_FIND: Final = (
    f"name a policy with --trust or {VARIABLE}; the first `tribunus certify` here makes a policy for its own key"
)


def _new_development_key(path: Path, policy_path: Path) -> Ed25519Signer:
    signer = make_signer()
    earlier = load_policy(policy_path, None) if policy_path.exists() else None
    # The rule first: if the key file cannot be written, a rule for a key that nobody holds harms nobody.
    replace_file(policy_path, add_key(earlier, signer.public).encode() + b"\n", 0o600)
    write_private_key(path, signer)
    return signer


def _with_origin(policy: TrustPolicy, origin: Digest, marks: HighWaterMarks | None) -> TrustPolicy:
    return TrustPolicy(
        version=policy.version,
        expires=policy.expires,
        keys=policy.keys,
        rules=policy.rules,
        revoked_keys=policy.revoked_keys,
        revoked_images=policy.revoked_images,
        origin=origin,
        marks=marks,
    )


def _judge_target(
    policy: TrustPolicy, name: str, epoch: int, target: str, signed: Sequence[SignedPayload]
) -> tuple[int, set[str]]:
    refusal: TribunusError = RuleError(f"the trust policy has no rule for image {name!r} on target {target!r}")
    for rule in policy.rules:
        if not rule.applies_to(name, target) or rule.predicate != media.ADMISSION_PREDICATE:
            continue
        best, evidence, keyids = _best_payload(policy, rule, signed)
        if best == 0:
            refusal = UntrustedError(f"no key of the rule for image {name!r} on {target!r} has signed it")
        elif best < rule.threshold:
            refusal = ThresholdError(f"image {name!r} on {target!r} needs {rule.threshold} keys, {best} signed")
        elif epoch < rule.min_epoch:
            refusal = RollbackError(f"image {name!r} has epoch {epoch}, the policy wants at least {rule.min_epoch}")
        else:
            return evidence, keyids
    raise refusal


def _best_payload(policy: TrustPolicy, rule: Rule, signed: Iterable[SignedPayload]) -> tuple[int, int, set[str]]:
    """Most public keys of the rule over one payload, the first evidence that carries it, and their ids."""
    signers: dict[bytes, set[bytes]] = {}
    carriers: dict[bytes, int] = {}
    keyids: dict[bytes, set[str]] = {}
    for item in signed:
        if item.keyid in rule.keys:
            signers.setdefault(item.payload, set()).add(policy.keys[item.keyid].public.raw)
            carriers.setdefault(item.payload, item.evidence)
            keyids.setdefault(item.payload, set()).add(item.keyid)
    if not signers:
        return 0, 0, set()
    payload = max(signers, key=lambda candidate: len(signers[candidate]))
    return len(signers[payload]), carriers[payload], keyids[payload]


def _matches(patterns: Iterable[str], text: str) -> bool:
    return any(text.startswith(p[:-1]) if p.endswith("*") else text == p for p in patterns)


def _is_alive(key: TrustedKey, now: str) -> bool:
    return key.not_after is None or now < key.not_after


def _policy(value: Json) -> TrustPolicy:
    fields = object_of(value, "policy", frozenset({"schema", "version", "expires", "keys", "rules", "revoked"}))
    if fields["schema"] != SCHEMA:
        raise PolicyError(f"a trust policy of schema {str(fields['schema'])[:60]!r}; {SCHEMA} is read here")
    revoked = object_of(fields["revoked"], "policy revoked", frozenset({"keys", "images"}))
    if not isinstance(fields["keys"], dict):
        raise PolicyError("policy keys: an object was expected")
    return TrustPolicy(
        version=int_of(fields["version"], "policy version", 1),
        expires=_time(fields["expires"], "policy expires"),
        keys={keyid: _key(keyid, item) for keyid, item in fields["keys"].items()},
        rules=tuple(_rule(item) for item in list_of(fields["rules"], "policy rules")),
        revoked_keys=frozenset(_texts(revoked["keys"], "policy revoked keys")),
        revoked_images=frozenset(parse_oci_digest(t) for t in _texts(revoked["images"], "policy revoked images")),
    )


def _key(keyid: str, value: Json) -> TrustedKey:
    where = f"policy key {keyid[:16]}"
    fields = object_of(value, where, frozenset({"alg", "public"}), frozenset({"not_after"}))
    if fields["alg"] != "ed25519":
        raise PolicyError(f"{where}: only ed25519 keys are trusted")
    text = str_of(fields["public"], where)
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise PolicyError(f"{where}: public is not base64") from None
    if binascii.b2a_base64(raw, newline=False).decode("ascii") != text:
        raise PolicyError(f"{where}: public is not canonical base64")
    public = PublicKey(raw)
    if public.keyid != keyid:
        raise PolicyError(f"{where}: the key's id is {public.keyid}")
    not_after = _time(fields["not_after"], f"{where} not_after") if "not_after" in fields else None
    return TrustedKey(public=public, not_after=not_after)


def _rule(value: Json) -> Rule:
    keys = frozenset({"names", "targets", "predicate", "keys", "threshold", "min_epoch"})
    fields = object_of(value, "policy rule", keys)
    return Rule(
        names=_texts(fields["names"], "rule names"),
        targets=_texts(fields["targets"], "rule targets"),
        predicate=str_of(fields["predicate"], "rule predicate"),
        keys=_texts(fields["keys"], "rule keys"),
        threshold=int_of(fields["threshold"], "rule threshold", 1),
        min_epoch=int_of(fields["min_epoch"], "rule min_epoch"),
    )


def _is_pattern(text: str) -> bool:
    """``*``, or an identifier that one ``*`` may follow."""
    return text == "*" or is_identifier(text.removesuffix("*"))


def _texts(value: Json, where: str) -> tuple[str, ...]:
    return tuple(str_of(item, where) for item in list_of(value, where))


def _time(value: Json, where: str) -> str:
    text = str_of(value, where)
    if (
        text.translate(_DIGITS_TO_ZERO) != "0000-00-00T00:00:00Z"
        or not "01" <= text[5:7] <= "12"
        or not "01" <= text[8:10] <= "31"
    ):
        raise PolicyError(f"{where}: {text[:40]!r} is no time like 2027-06-01T00:00:00Z")
    return text
