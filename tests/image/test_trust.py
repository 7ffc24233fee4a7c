"""Who may vouch for what: default deny, counted by public key, never older than before."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tribunus.canon import Digest, Json, encode
from tribunus.errors import (
    EnvelopeError,
    PolicyError,
    PolicyExpiredError,
    PolicyVersionError,
    RevokedError,
    RollbackError,
    RuleError,
    SignatureError,
    SubjectError,
    ThresholdError,
    TribunusError,
    UntrustedError,
)
from tribunus.image import media
from tribunus.image.dsse import Envelope, Statement, decode_statement
from tribunus.image.keys import Ed25519Signer, PublicKey, load_development_key, make_signer
from tribunus.image.marks import HighWaterMarks
from tribunus.image.policy import (
    Rule,
    SignedPayload,
    TrustedKey,
    TrustPolicy,
    add_key,
    decode_policy,
    ensure_development_key,
    find_policy,
    judge_trust,
    load_policy,
)
from tribunus.image.read import ImageFile, open_image
from tribunus.image.source import MemorySource
from tribunus.image.write import ImageDraft, RegionDraft, countersign, write_image

Packer = Callable[[ImageDraft], bytes]
Drafter = Callable[..., ImageDraft]
V3, V4 = "cpu-x86-64-v3", "cpu-x86-64-v4"
NOW = "2027-01-01T00:00:00Z"


def a_policy(
    *keys: PublicKey,
    names: tuple[str, ...] = ("tiny",),
    targets: tuple[str, ...] = ("cpu-*",),
    threshold: int = 1,
    min_epoch: int = 0,
    not_after: str | None = None,
    predicate: str = media.ADMISSION_PREDICATE,
) -> TrustPolicy:
    ids = tuple(key.keyid for key in keys)
    rule = Rule(names=names, targets=targets, predicate=predicate, keys=ids, threshold=threshold, min_epoch=min_epoch)
    return TrustPolicy(
        version=7,
        expires="2030-01-01T00:00:00Z",
        keys={key.keyid: TrustedKey(public=key, not_after=not_after) for key in keys},
        rules=(rule,),
        revoked_keys=frozenset(),
        revoked_images=frozenset(),
    )


def read(data: bytes) -> ImageFile:
    return ImageFile(MemorySource(data))


@dataclasses.dataclass(frozen=True)
class Liar:
    """Signs another statement than the one it is asked to."""

    key: Ed25519Signer
    keyid: str

    def sign(self, data: bytes) -> bytes:
        return self.key.sign(data)


# Rules --------------------------------------------------------------------------------------------------------------


def test_a_trusted_signature_is_accepted_and_named(honest: bytes, alice: Ed25519Signer) -> None:
    trust = read(honest).verify_trust(a_policy(alice.public), now=NOW)
    assert (trust.name, trust.epoch, trust.keyids, dict(trust.evidence)) == ("tiny", 3, (alice.keyid,), {V3: 0, V4: 0})
    assert not trust.record()


@pytest.mark.parametrize("names", [("tiny2",), ("tin",), ("t", "other*")])
def test_a_name_without_rule_is_refused(honest: bytes, alice: Ed25519Signer, names: tuple[str, ...]) -> None:
    with pytest.raises(RuleError):
        read(honest).verify_trust(a_policy(alice.public, names=names), now=NOW)


@pytest.mark.parametrize("names", [("tiny",), ("ti*",), ("*",), ("other", "tiny*")])
def test_a_name_is_matched_exactly_or_by_its_beginning(
    honest: bytes, alice: Ed25519Signer, names: tuple[str, ...]
) -> None:
    read(honest).verify_trust(a_policy(alice.public, names=names), now=NOW)


def test_a_key_for_one_target_says_nothing_about_another(honest: bytes, alice: Ed25519Signer) -> None:
    policy = a_policy(alice.public, targets=(V4,))
    assert dict(read(honest).verify_trust(policy, targets=[V4], now=NOW).evidence) == {V4: 0}
    with pytest.raises(RuleError):
        read(honest).verify_trust(policy, targets=[V3], now=NOW)
    with pytest.raises(RuleError):
        read(honest).verify_trust(policy, now=NOW)


def test_trust_in_no_target_is_no_trust(honest: bytes, alice: Ed25519Signer) -> None:
    with pytest.raises(RuleError):
        read(honest).verify_trust(a_policy(alice.public), targets=[], now=NOW)


def test_a_rule_for_another_predicate_does_not_count(honest: bytes, alice: Ed25519Signer) -> None:
    with pytest.raises(RuleError):
        read(honest).verify_trust(a_policy(alice.public, predicate="https://slsa.dev/provenance/v1"), now=NOW)


def test_an_unknown_key_is_refused(honest: bytes, bob: Ed25519Signer) -> None:
    with pytest.raises(UntrustedError):
        read(honest).verify_trust(a_policy(bob.public), now=NOW)


def test_an_unknown_key_under_a_trusted_id_is_a_bad_signature(
    pack: Packer, draft: Drafter, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    data = pack(draft(signers=(Liar(bob, alice.keyid),)))
    with pytest.raises(SignatureError) as caught:
        read(data).verify_trust(a_policy(alice.public), now=NOW)
    assert caught.value.name == "E_SIG"


def test_a_signature_with_a_group_order_added_to_its_scalar_is_refused(
    pack: Packer, draft: Drafter, alice: Ed25519Signer
) -> None:
    order = 2**252 + 27742317777372353535851937790883648493

    @dataclasses.dataclass(frozen=True)
    class Malleable:
        keyid: str

        def sign(self, data: bytes) -> bytes:
            honest = alice.sign(data)
            scalar = int.from_bytes(honest[32:], "little") + order
            return honest[:32] + scalar.to_bytes(32, "little")

    with pytest.raises(SignatureError):
        read(pack(draft(signers=(Malleable(alice.keyid),)))).verify_trust(a_policy(alice.public), now=NOW)


def test_two_keys_are_needed_where_the_rule_says_two(
    pack: Packer, draft: Drafter, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    policy = a_policy(alice.public, bob.public, threshold=2)
    with pytest.raises(ThresholdError):
        read(pack(draft())).verify_trust(policy, now=NOW)
    trust = read(pack(draft(signers=(alice, bob)))).verify_trust(policy, now=NOW)
    assert trust.keyids == tuple(sorted((alice.keyid, bob.keyid)))


def test_one_key_under_two_ids_counts_once(alice: Ed25519Signer) -> None:
    """Ids are hints; the policy file refuses a false id, and the count does not rely on that."""
    key = TrustedKey(public=alice.public, not_after=None)
    rule = Rule(
        names=("*",), targets=("*",), predicate=media.ADMISSION_PREDICATE, keys=("one", "two"), threshold=2, min_epoch=0
    )
    policy = dataclasses.replace(a_policy(alice.public), keys={"one": key, "two": key}, rules=(rule,))
    signed = [SignedPayload(0, "one", b"payload"), SignedPayload(1, "two", b"payload")]
    with pytest.raises(ThresholdError):
        judge_trust(policy, name="tiny", image_id=Digest("0" * 64), epoch=3, targets=[V4], signed=signed, now=NOW)


def test_signatures_over_different_statements_do_not_add_up(alice: Ed25519Signer, bob: Ed25519Signer) -> None:
    policy = a_policy(alice.public, bob.public, threshold=2)
    signed = [SignedPayload(0, alice.keyid, b"one"), SignedPayload(1, bob.keyid, b"other")]
    with pytest.raises(ThresholdError):
        judge_trust(policy, name="tiny", image_id=Digest("0" * 64), epoch=3, targets=[V4], signed=signed, now=NOW)


def test_a_revoked_image_is_refused(honest: bytes, alice: Ed25519Signer) -> None:
    image = read(honest)
    policy = dataclasses.replace(a_policy(alice.public), revoked_images=frozenset({image.image_id}))
    with pytest.raises(RevokedError):
        image.verify_trust(policy, now=NOW)


def test_a_revoked_key_is_refused_and_does_not_count_beside_another(
    pack: Packer, draft: Drafter, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    policy = a_policy(alice.public, bob.public)
    revoked = dataclasses.replace(policy, revoked_keys=frozenset({alice.keyid}))
    with pytest.raises(RevokedError):
        read(pack(draft())).verify_trust(revoked, now=NOW)
    assert read(pack(draft(signers=(alice, bob)))).verify_trust(revoked, now=NOW).keyids == (bob.keyid,)


def test_an_expired_key_is_refused(honest: bytes, alice: Ed25519Signer) -> None:
    read(honest).verify_trust(a_policy(alice.public, not_after="2027-01-01T00:00:01Z"), now=NOW)
    with pytest.raises(UntrustedError):
        read(honest).verify_trust(a_policy(alice.public, not_after=NOW), now=NOW)


def test_an_expired_policy_is_refused_unless_that_is_allowed(honest: bytes, alice: Ed25519Signer) -> None:
    policy, late = a_policy(alice.public), "2030-01-01T00:00:00Z"
    with pytest.raises(PolicyExpiredError):
        read(honest).verify_trust(policy, now=late)
    read(honest).verify_trust(policy, now=late, allow_expired=True)


def test_an_epoch_below_the_rules_minimum_is_refused(honest: bytes, alice: Ed25519Signer) -> None:
    read(honest).verify_trust(a_policy(alice.public, min_epoch=3), now=NOW)
    with pytest.raises(RollbackError):
        read(honest).verify_trust(a_policy(alice.public, min_epoch=4), now=NOW)


# Statements ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda s: dataclasses.replace(s, subjects=s.subjects[1:]), SubjectError),
        (lambda s: dataclasses.replace(s, subjects=(s.subjects[1], s.subjects[0], *s.subjects[2:])), SubjectError),
        (lambda s: dataclasses.replace(s, subjects=()), SubjectError),
        (lambda s: dataclasses.replace(s, predicate_type="https://slsa.dev/provenance/v1"), UntrustedError),
        (lambda s: dataclasses.replace(s, predicate={**s.predicate, "epoch": 4}), SubjectError),
        (lambda s: dataclasses.replace(s, predicate={**s.predicate, "regions": []}), SubjectError),
        (lambda s: dataclasses.replace(s, predicate={**s.predicate, "more": 1}), EnvelopeError),
        (lambda s: dataclasses.replace(s, predicate={"epoch": 3}), EnvelopeError),
    ],
)
def test_a_signed_statement_about_something_else_is_refused(
    honest: bytes,
    tmp_path: Path,
    alice: Ed25519Signer,
    change: Callable[[Statement], Statement],
    error: type[TribunusError],
) -> None:
    image = read(honest)
    statement = decode_statement(image.envelope(0).payload)
    data = with_envelope(tmp_path, image, alice, change(statement).encode(), media.STATEMENT_PAYLOAD)
    with pytest.raises(error) as caught:
        read(data).verify_trust(a_policy(alice.public), now=NOW)
    assert type(caught.value) is error


def test_a_signed_payload_of_another_type_is_refused(honest: bytes, tmp_path: Path, alice: Ed25519Signer) -> None:
    image = read(honest)
    data = with_envelope(tmp_path, image, alice, image.envelope(0).payload, "application/json")
    with pytest.raises(EnvelopeError):
        read(data).verify_trust(a_policy(alice.public), now=NOW)


def test_a_type_that_was_altered_after_signing_is_a_bad_signature(
    honest: bytes, tmp_path: Path, alice: Ed25519Signer
) -> None:
    image = read(honest)
    signed = image.envelope(0)
    forged = Envelope(signed.payload, "application/json", signed.keyid, signed.signature)
    with pytest.raises(SignatureError) as caught:
        read(rewritten(tmp_path, image, forged)).verify_trust(a_policy(alice.public), now=NOW)
    assert caught.value.name == "E_SIG"


def test_the_envelope_of_another_image_is_refused(
    pack: Packer, draft: Drafter, honest: bytes, tmp_path: Path, alice: Ed25519Signer
) -> None:
    other = read(pack(draft(epoch=2)))
    data = rewritten(tmp_path, other, read(honest).envelope(0))
    with pytest.raises(SubjectError):
        read(data).verify_trust(a_policy(alice.public), now=NOW)


def test_receipts_of_another_run_beside_a_signed_envelope_are_refused(
    pack: Packer, draft: Drafter, region: Callable[..., RegionDraft], tmp_path: Path, alice: Ed25519Signer
) -> None:
    first = read(pack(draft(region(V4, receipts="first"))))
    second = read(pack(draft(region(V4, receipts="second"))))
    assert first.image_id == second.image_id
    data = rewritten(tmp_path, second, first.envelope(0))
    with pytest.raises(SubjectError):
        read(data).verify_trust(a_policy(alice.public), now=NOW)


def test_admissions_that_were_not_signed_are_refused(
    pack: Packer, draft: Drafter, region: Callable[..., RegionDraft], tmp_path: Path, alice: Ed25519Signer
) -> None:
    first = read(pack(draft(region(V4))))
    second = read(pack(draft(dataclasses.replace(region(V4), admissions=b"kernel that was not admitted\n"))))
    data = rewritten(tmp_path, second, first.envelope(0))
    with pytest.raises(SubjectError, match="beside the envelope"):
        read(data).verify_trust(a_policy(alice.public), now=NOW)


@pytest.mark.parametrize(
    "field, value", [("target", "cpu-x86-64-v9"), ("manifest", "sha256:" + "ab" * 32), ("size", 1)]
)
def test_a_signed_admission_of_other_regions_is_refused(
    honest: bytes, tmp_path: Path, alice: Ed25519Signer, field: str, value: Json
) -> None:
    image = read(honest)
    statement = json.loads(image.envelope(0).payload)
    statement["predicate"]["regions"][1][field] = value
    data = with_envelope(tmp_path, image, alice, encode(statement), media.STATEMENT_PAYLOAD)
    with pytest.raises(SubjectError):
        read(data).verify_trust(a_policy(alice.public), now=NOW)


def test_a_signed_merkle_root_that_is_not_that_of_the_lines_is_refused(
    honest: bytes, tmp_path: Path, alice: Ed25519Signer
) -> None:
    image = read(honest)
    statement = json.loads(image.envelope(0).payload)
    for change in ({"root": "00" * 32}, None):
        altered = json.loads(json.dumps(statement))
        if change is None:
            altered["predicate"]["regions"][0]["kernels"] = 3
        else:
            altered["predicate"]["regions"][0]["receipts"] |= change
        data = with_envelope(tmp_path, image, alice, encode(altered), media.STATEMENT_PAYLOAD)
        forged = read(data)
        forged.verify_trust(a_policy(alice.public), now=NOW)
        with pytest.raises(SubjectError):
            forged.verify_all()


def rewritten(folder: Path, image: ImageFile, envelope: Envelope) -> bytes:
    """The image with ``envelope`` in the place of its own."""
    from tribunus.image.write import image_blobs, make_blob, write_contents

    contents = image.contents
    blob = make_blob(media.ENVELOPE, envelope.encode())
    evidence = dataclasses.replace(contents.evidence[0], envelope=blob.descriptor)
    kept = [b for b in image_blobs(image) if b.descriptor != contents.evidence[0].envelope]
    path = folder / "rewritten.tci"
    write_contents(path, contents.document, contents.image, contents.regions, [evidence], [*kept, blob])
    return path.read_bytes()


def with_envelope(folder: Path, image: ImageFile, signer: Ed25519Signer, payload: bytes, kind: str) -> bytes:
    """The image with a properly signed envelope around another payload."""
    unsigned = Envelope(payload, kind, signer.keyid, bytes(64))
    signature = signer.sign(unsigned.signed_bytes())
    return rewritten(folder, image, Envelope(payload, kind, signer.keyid, signature))


# Several signers ----------------------------------------------------------------------------------------------------


def test_a_second_signer_keeps_the_image_id_and_either_key_suffices(
    pack: Packer, draft: Drafter, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    one, two = read(pack(draft())), read(pack(draft(signers=(alice, bob))))
    assert one.image_id == two.image_id
    for key in (alice, bob):
        assert two.verify_trust(a_policy(key.public), now=NOW).keyids == (key.keyid,)


def test_a_countersigned_image_meets_a_threshold_of_two(
    draft: Drafter, tmp_path: Path, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    path = tmp_path / "tiny.tci"
    image_id = write_image(path, draft())
    review = Statement((), "https://tribunus.dev/attestation/review/v1", {"report": "ab"})
    with open_image(path) as image:
        countersign(image, path, bob, 0, [review])
    with open_image(path) as image:
        assert image.image_id == image_id
        image.verify_trust(a_policy(alice.public, bob.public, threshold=2), now=NOW)
        image.verify_all()
        further = [blob for item in image.contents.evidence for blob in item.further]
        assert len(further) == 1


def test_the_region_shows_the_evidence_that_was_accepted(
    draft: Drafter, region: Callable[..., RegionDraft], tmp_path: Path, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    """Two certifications of one content: each key's evidence has its own receipts."""
    from tribunus.image.write import image_blobs, write_contents

    files = []
    for number, signer in enumerate((alice, bob)):
        write_image(tmp_path / f"{number}.tci", draft(region(V4, receipts=f"run {number}"), signers=(signer,)))
        files.append(open_image(tmp_path / f"{number}.tci"))
    first, second = (image.contents for image in files)
    evidence = [*first.evidence, *second.evidence]
    blobs = [*image_blobs(files[0]), *image_blobs(files[1])]
    write_contents(tmp_path / "both.tci", first.document, first.image, first.regions, evidence, blobs)
    for number, signer in enumerate((alice, bob)):
        with open_image(tmp_path / "both.tci") as image:
            image.verify_trust(a_policy(signer.public), now=NOW)
            assert f"run {number}, receipt 00".encode() in image.region(V4).receipts()
    for image in files:
        image.close()


# High-water marks ---------------------------------------------------------------------------------------------------


def test_an_epoch_that_was_exceeded_before_is_refused(
    pack: Packer, draft: Drafter, tmp_path: Path, alice: Ed25519Signer
) -> None:
    marks = HighWaterMarks(tmp_path / "state" / "marks.json")
    policy = dataclasses.replace(a_policy(alice.public), marks=marks)
    new, old = read(pack(draft(epoch=5))), read(pack(draft(epoch=4)))
    old.verify_trust(policy, now=NOW)
    trust = new.verify_trust(policy, now=NOW)
    old.verify_trust(policy, now=NOW)  # judging alone raises no mark
    assert trust.record()
    new.verify_trust(policy, now=NOW)
    with pytest.raises(RollbackError):
        old.verify_trust(policy, now=NOW)


def test_an_older_policy_from_the_same_place_is_refused(honest: bytes, tmp_path: Path, alice: Ed25519Signer) -> None:
    marks, path = HighWaterMarks(tmp_path / "marks.json"), tmp_path / "trust.json"
    newer = a_policy(alice.public)
    path.write_bytes(newer.encode())
    assert read(honest).verify_trust(load_policy(path, marks), now=NOW).record()
    path.write_bytes(dataclasses.replace(newer, version=6).encode())
    with pytest.raises(PolicyVersionError):
        read(honest).verify_trust(load_policy(path, marks), now=NOW)
    path.rename(tmp_path / "other.json")
    read(honest).verify_trust(load_policy(tmp_path / "other.json", marks), now=NOW)


def test_marks_never_fall_and_are_written_only_when_they_rise(tmp_path: Path) -> None:
    marks = HighWaterMarks(tmp_path / "marks.json")
    origin = Digest("ab" * 32)
    assert marks.record(origin, 3, "tiny", 9)
    before = marks.path.stat().st_mtime_ns, marks.path.stat().st_ino
    assert marks.record(origin, 2, "tiny", 4)
    assert (marks.path.stat().st_mtime_ns, marks.path.stat().st_ino) == before
    assert marks.record(origin, 2, "other", 1)
    with pytest.raises(RollbackError):
        marks.check(origin, 3, "tiny", 8)
    with pytest.raises(PolicyVersionError):
        marks.check(origin, 2, "tiny", 9)
    assert not marks.check(origin, 3, "tiny", 9)
    assert marks.check(origin, 4, "tiny", 9) and marks.check(origin, 3, "tiny", 10) and marks.check(None, 1, "new", 1)
    assert not marks.check(None, 99, "tiny", 9)


def test_what_raises_no_mark_reads_and_writes_nothing_when_recorded(
    honest: bytes, tmp_path: Path, alice: Ed25519Signer
) -> None:
    marks = HighWaterMarks(tmp_path / "marks.json")
    policy = dataclasses.replace(a_policy(alice.public), marks=marks, origin=Digest("ab" * 32))
    assert read(honest).verify_trust(policy, now=NOW).record()
    again = read(honest).verify_trust(policy, now=NOW)
    marks.path.unlink()
    assert again.record() and not marks.path.exists()


def test_where_nothing_can_be_written_there_are_no_marks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    marks = HighWaterMarks(tmp_path / "file" / "marks.json")
    assert not marks.record(None, 1, "tiny", 2)
    marks.check(None, 1, "tiny", 0)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"epochs":[],"schema":"tribunus.trust-marks/1","versions":{}}'])
def test_damaged_marks_are_refused_not_forgotten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "marks.json").write_bytes(content)
    with pytest.raises(PolicyError):
        HighWaterMarks(tmp_path / "marks.json").check(None, 1, "tiny", 0)


# The policy file ----------------------------------------------------------------------------------------------------


def test_a_policy_survives_its_own_encoding_and_one_line_feed(alice: Ed25519Signer, bob: Ed25519Signer) -> None:
    policy = dataclasses.replace(
        a_policy(alice.public, bob.public, threshold=2, not_after="2029-01-01T00:00:00Z"),
        revoked_keys=frozenset({"cd" * 32}),
        revoked_images=frozenset({Digest("ef" * 32)}),
    )
    assert decode_policy(policy.encode()) == policy
    assert decode_policy(policy.encode() + b"\n") == policy
    with pytest.raises(PolicyError, match="canonical"):
        decode_policy(json.dumps(json.loads(policy.encode()), indent=2, sort_keys=True).encode())


@pytest.mark.parametrize(
    "path, value",
    [
        (("schema",), "tribunus.trust/2"),
        (("version",), 0),
        (("version",), True),
        (("expires",), "tomorrow"),
        (("expires",), "2027-13-01T00:00:00Z"),
        (("expires",), "2027-01-01T00:00:00+00:00"),
        (("unknown",), 1),
        (("rules", 0, "names"), []),
        (("rules", 0, "names"), ["a*b"]),
        (("rules", 0, "names"), ["**"]),
        (("rules", 0, "names"), ["[a-z]*"]),
        (("rules", 0, "targets"), ["^cpu"]),
        (("rules", 0, "keys"), ["00" * 32]),
        (("rules", 0, "threshold"), 0),
        (("rules", 0, "threshold"), 2),
        (("rules", 0, "min_epoch"), -1),
        (("revoked", "images"), ["ab" * 32]),
        (("keys", "ID", "alg"), "ecdsa"),
        (("keys", "ID", "public"), "AAAA"),
        (("keys", "ID", "public"), "A" * 43 + "="),
        (("keys", "ID", "not_after"), None),
    ],
)
def test_a_faulty_policy_is_refused(alice: Ed25519Signer, path: tuple[str | int, ...], value: Json) -> None:
    document = json.loads(a_policy(alice.public).encode())
    place = document
    steps = [alice.keyid if step == "ID" else step for step in path]
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    with pytest.raises(PolicyError):
        decode_policy(encode(document))


def test_a_key_under_a_foreign_id_is_refused(alice: Ed25519Signer, bob: Ed25519Signer) -> None:
    document = json.loads(a_policy(alice.public).encode())
    document["keys"][bob.keyid] = document["keys"][alice.keyid]
    with pytest.raises(PolicyError, match=r"the key.s id is"):
        decode_policy(encode(document))


def test_the_policy_is_found_by_name_then_variable_then_folder(tmp_path: Path, alice: Ed25519Signer) -> None:
    files = {}
    for number, name in enumerate(("named", "variable", "folder/tribunus/trust"), start=1):
        files[name] = tmp_path / f"{name}.json"
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].write_bytes(dataclasses.replace(a_policy(alice.public), version=number).encode())
    folder = {"XDG_CONFIG_HOME": str(tmp_path / "folder"), "HOME": str(tmp_path)}
    both = {**folder, "TRIBUNUS_TRUST": str(files["variable"])}
    assert find_policy(files["named"], both).version == 1
    assert find_policy(None, both).version == 2
    assert find_policy(None, folder).version == 3
    assert find_policy(None, {**folder, "TRIBUNUS_TRUST": ""}).version == 3
    with pytest.raises(PolicyError, match="cannot read trust policy"):
        find_policy(None, {"HOME": str(tmp_path)})
    with pytest.raises(PolicyError):
        find_policy(None, {**folder, "TRIBUNUS_TRUST": str(tmp_path / "absent.json")})


# The development key ------------------------------------------------------------------------------------------------


def test_the_development_key_is_made_once_and_trusted_by_this_user(
    tmp_path: Path, pack: Packer, draft: Drafter
) -> None:
    environ = {"HOME": str(tmp_path)}
    assert load_development_key(environ) is None
    signer = ensure_development_key(environ)
    assert ensure_development_key(environ) == signer == load_development_key(environ)
    folder = tmp_path / ".config" / "tribunus"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "development.pem").stat().st_mode & 0o777 == 0o600
    trust = read(pack(draft(signers=(signer,)))).verify_trust(find_policy(None, environ))
    assert trust.record()
    assert (tmp_path / ".local/state/tribunus/trust-marks.json").exists()


def test_a_removed_development_rule_is_not_written_again(tmp_path: Path, alice: Ed25519Signer) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    ensure_development_key(environ)
    (tmp_path / "tribunus" / "trust.json").write_bytes(a_policy(alice.public).encode())
    ensure_development_key(environ)
    assert find_policy(None, environ).keys.keys() == {alice.keyid}


def test_a_new_development_key_joins_an_existing_policy(tmp_path: Path, alice: Ed25519Signer) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    (tmp_path / "tribunus").mkdir()
    (tmp_path / "tribunus" / "trust.json").write_bytes(a_policy(alice.public).encode())
    signer = ensure_development_key(environ)
    policy = find_policy(None, environ)
    assert policy.version == 8
    assert policy.keys.keys() == {alice.keyid, signer.keyid}


def test_the_home_folder_is_found_without_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pwd

    from tribunus.image.folders import config_folder, state_folder

    entry = pwd.struct_passwd(("user", "x", 1, 1, "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    empty: Mapping[str, str] = {}
    assert config_folder(empty) == tmp_path / ".config/tribunus"
    assert state_folder({"HOME": "", "XDG_STATE_HOME": "relative"}) == tmp_path / ".local/state/tribunus"


def test_adding_a_key_keeps_earlier_rules(alice: Ed25519Signer) -> None:
    first = add_key(None, alice.public)
    second = add_key(first, make_signer().public)
    assert second.rules[0] == first.rules[0]
    assert (second.version, len(second.rules), len(second.keys)) == (2, 2, 2)
