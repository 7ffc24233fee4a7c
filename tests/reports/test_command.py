"""``tribunus report``, ``gate`` and ``approve``, as the tool calls them; images and keys are real ones."""

from __future__ import annotations

import argparse
import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from tribunus_reports.command import APPROVE, GATE, REPORT, write_all
from tribunus_reports.model import Report
from tribunus_reports.model_parts import ImageFacts
from tribunus_reports.policy import default_policy
from tribunus_reports.review import see_image
from tribunus_reports.store import load_report, write_report

from tribunus.canon import Digest, JsonObject, digest_bytes, encode
from tribunus.cli.command import Command
from tribunus.errors import ContentsDiffer, EnvironmentFault, GateShut, SignatureError, UsageError
from tribunus.image.content import Platform, to_jsonl
from tribunus.image.keys import Ed25519Signer, make_signer, write_private_key
from tribunus.image.policy import TrustPolicy, add_key
from tribunus.image.read import open_image
from tribunus.image.write import ImageDraft, RegionDraft, write_image


def run(command: Command, *words: object) -> int:
    parser = argparse.ArgumentParser(prog=f"tribunus {command.name}", exit_on_error=False)
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@dataclasses.dataclass(frozen=True)
class Scene:
    """A certified image with its report, the builder's key, and a trust policy of builder and reviewer."""

    folder: Path
    image: Path
    report: Path
    trust: Path
    builder: Ed25519Signer
    reviewer: Ed25519Signer
    key: Path
    model: Report
    facts: ImageFacts


def certified(builders: ModuleType, folder: Path, *, drop_receipt: bool = False, epoch: int = 7) -> Scene:
    """Writes an image whose receipts are the lines that the report's digests are of."""
    report: Report = builders.a_report(signatures=2, candidates=2)
    lines: dict[str, bytes] = {}
    rows = []
    for row in report.receipts:
        document: JsonObject = {"candidate": row.candidate, "check": row.check.value, "signature": row.signature}
        line = encode(document)
        lines[line.decode()] = line
        rows.append(dataclasses.replace(row, digest=digest_bytes(line)))
    chosen = {(row.id, row.chosen) for row in report.signatures}
    carried = [
        line
        for row, line in zip(report.receipts, lines.values(), strict=True)
        if (row.signature, row.candidate) in chosen
    ]
    target = report.regions[0].target
    builder, reviewer = make_signer(), make_signer()
    image = folder / "harbour-vl.cpu.tci"
    region = RegionDraft(
        target=target,
        platform=Platform("amd64", "linux"),
        plan=encode({"schema": "tribunus.plan/1"}),
        phaseir=encode({"schema": "tribunus.phaseir/1"}),
        kernels=b"\xc3" * 64,
        weights=[b"\x00" * 64],
        goldens=None,
        admissions=to_jsonl([encode({"kernel": at}) for at in range(2)]),
        receipts=to_jsonl(carried[1:] if drop_receipt else carried),
        ledger_root=Digest(report.ledger.root),
        ledger_entries=report.ledger.entries,
    )
    image_id = write_image(
        image,
        ImageDraft(
            name=report.name,
            epoch=epoch,
            model={"digest": report.model.digest},
            choices=digest_bytes(b"choices"),
            toolchain={"zig": "0.15.1"},
            requires=(),
            regions=[region],
            policy=digest_bytes(b"policy"),
            signers=[builder],
        ),
    )
    assert isinstance(report.image, ImageFacts)
    signer = dataclasses.replace(report.image.signers[0], keyid=builder.keyid)
    facts = dataclasses.replace(report.image, id=image_id, signers=(signer,))
    started = dataclasses.replace(report.session, started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    model = dataclasses.replace(report, receipts=tuple(rows), image=facts, session=started)
    path = folder / "harbour-vl.cpu.report.json"
    write_report(model, path)
    trust = folder / "trust.json"
    policy: TrustPolicy = add_key(add_key(None, builder.public), reviewer.public)
    trust.write_bytes(policy.encode() + b"\n")
    key = folder / "reviewer.pem"
    write_private_key(key, reviewer)
    return Scene(folder, image, path, trust, builder, reviewer, key, model, facts)


@pytest.fixture
def scene(builders: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TRIBUNUS_TRUST", raising=False)
    return certified(builders, tmp_path)


def gate_policy(folder: Path, text: str = "") -> Path:
    path = folder / "policy.toml"
    path.write_text('schema = "tribunus.gate/1"\n' + text)
    return path


def test_report_writes_what_was_asked_for(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    out = {name: scene.folder / f"out.{name}" for name in ("html", "md", "xml", "schema.json")}
    words = ["--html", out["html"], "--md", out["md"], "--junit", out["xml"], "--schema", out["schema.json"]]
    assert run(REPORT, scene.report, *words) == 0
    assert capsys.readouterr().out.split() == [str(path) for path in out.values()]
    assert out["html"].read_bytes().startswith(b"<!doctype html>")
    assert out["md"].read_text().startswith("# Admitted")
    assert out["xml"].read_bytes().startswith(b"<?xml")
    assert json.loads(out["schema.json"].read_text())["$id"] == "tribunus.report/2"
    assert load_report(scene.report).digest.encode() in out["html"].read_bytes()


def test_report_without_outputs_writes_the_page_beside_it(scene: Scene) -> None:
    assert run(REPORT, scene.report) == 0
    assert (scene.folder / "harbour-vl.cpu.report.html").exists()


def test_report_never_overwrites_its_input_or_one_output_with_another(scene: Scene) -> None:
    out = scene.folder / "same"
    old = scene.folder / "old.json"
    old.write_bytes(scene.report.read_bytes())
    for words in (["--html", scene.report], ["--html", out, "--md", out], ["--html", old, "--baseline", old]):
        with pytest.raises(UsageError):
            run(REPORT, scene.report, *words)
    assert not out.exists() and load_report(scene.report) and load_report(old)


def test_report_compares_with_a_baseline(scene: Scene) -> None:
    out = scene.folder / "out.html"
    assert run(REPORT, scene.report, "--html", out, "--baseline", scene.report) == 0
    assert b'"baseline":{' in out.read_bytes()
    with pytest.raises(EnvironmentFault):
        run(REPORT, scene.report, "--html", out, "--baseline", scene.folder / "none.json")


def test_all_files_of_a_certification(scene: Scene) -> None:
    folder = scene.folder / "all"
    folder.mkdir()
    stored = write_all(scene.model, folder, "x.cpu", default_policy(), now=datetime.now(UTC))
    expected = ["x.cpu.junit.xml", *(f"x.cpu.report.{end}" for end in ("html", "json", "md"))]
    assert sorted(path.name for path in folder.iterdir()) == expected
    assert load_report(folder / "x.cpu.report.json").digest == stored.digest


def test_an_open_gate(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    policy = gate_policy(scene.folder, f'[evidence]\nkeys = ["{scene.builder.keyid}"]')
    words = [scene.report, "--policy", policy, "--image", scene.image, "--trust", scene.trust]
    assert run(GATE, *words) == 0
    assert "FAIL" not in capsys.readouterr().out
    assert run(GATE, *words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["open"] is True and document["report"] == load_report(scene.report).digest
    assert {gate["state"] for gate in document["gates"]} == {"pass"}


def test_a_shut_gate_says_which_rule(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    policy = gate_policy(scene.folder, "[evidence]\nthreshold = 2")
    with pytest.raises(GateShut, match="signatures by allowed keys") as caught:
        run(GATE, scene.report, "--policy", policy, "--image", scene.image, "--trust", scene.trust)
    assert caught.value.exit_code == 1
    assert "FAIL  signatures by allowed keys" in capsys.readouterr().out


def test_a_gate_does_not_believe_a_report_that_overstates(scene: Scene) -> None:
    document = json.loads(scene.report.read_text())
    document["receipts"] = [row for row in document["receipts"] if row["check"] != "replay"]
    scene.report.write_text(json.dumps(document))
    with pytest.raises(ContentsDiffer, match="its receipts say"):
        run(GATE, scene.report, "--policy", gate_policy(scene.folder))


def test_a_gate_counts_only_signatures_that_verify(scene: Scene, builders: ModuleType) -> None:
    strangers = scene.folder / "strangers.json"
    strangers.write_bytes(add_key(None, make_signer().public).encode() + b"\n")
    with pytest.raises(GateShut, match="signatures"):
        run(GATE, scene.report, "--policy", gate_policy(scene.folder), "--image", scene.image, "--trust", strangers)
    other = scene.folder / "other"
    other.mkdir()
    with pytest.raises(GateShut, match="image id"):
        foreign = certified(builders, other, epoch=8)
        words = ["--policy", gate_policy(scene.folder), "--image", foreign.image, "--trust", foreign.trust]
        run(GATE, scene.report, *words)


def test_approval_adds_a_second_signature_over_the_same_statement(scene: Scene) -> None:
    report = load_report(scene.report)
    words = ["--image-id", f"sha256:{scene.facts.id}", "--report-digest", f"sha256:{report.digest}"]
    assert run(APPROVE, scene.image, "--report", scene.report, "--key", scene.key, *words) == 0
    with open_image(scene.image) as image:
        image.verify_all()
        assert image.image_id == scene.facts.id
        envelopes = [image.envelope(at) for at in range(2)]
        assert {envelope.keyid for envelope in envelopes} == {scene.builder.keyid, scene.reviewer.keyid}
        assert len({envelope.payload for envelope in envelopes}) == 1
        reviewed = next(item for item in image.contents.evidence if item.further)
        assert report.digest.encode() in _payload(image.blob(reviewed.further[0]))
    policy = gate_policy(scene.folder, "[evidence]\nthreshold = 2")
    assert run(GATE, scene.report, "--policy", policy, "--image", scene.image, "--trust", scene.trust) == 0
    with pytest.raises(UsageError, match="already"):
        run(APPROVE, scene.image, "--report", scene.report, "--key", scene.key)


def _payload(envelope: bytes) -> bytes:
    import base64

    return base64.b64decode(json.loads(envelope)["payload"])


def test_declining_signs_no_admission_and_shuts_the_gate(scene: Scene) -> None:
    with pytest.raises(UsageError, match="reason"):
        run(APPROVE, scene.image, "--report", scene.report, "--key", scene.key, "--decline")
    words = ["--key", scene.key, "--decline", "--reason", "p99 is too high for us"]
    assert run(APPROVE, scene.image, "--report", scene.report, *words) == 0
    with open_image(scene.image) as image:
        image.verify_all()
        assert len(image.contents.evidence) == 1 and image.envelope(0).keyid == scene.builder.keyid
    with pytest.raises(GateShut, match="declined"):
        run(GATE, scene.report, "--policy", gate_policy(scene.folder), "--image", scene.image, "--trust", scene.trust)


def test_approval_compares_before_it_signs(scene: Scene, builders: ModuleType) -> None:
    before = scene.image.read_bytes()
    cases: dict[str, tuple[Report, list[str]]] = {
        "another image": (
            dataclasses.replace(scene.model, image=dataclasses.replace(scene.facts, id="1" * 64)),
            [],
        ),
        "another ledger": (
            dataclasses.replace(scene.model, ledger=dataclasses.replace(scene.model.ledger, root="2" * 64)),
            [],
        ),
        "another report": (scene.model, ["--report-digest", "sha256:" + "3" * 64]),
        "another id": (scene.model, ["--image-id", "sha256:" + "4" * 64]),
        "an unknown receipt": (
            dataclasses.replace(
                scene.model,
                receipts=tuple(dataclasses.replace(row, digest=row.digest[::-1]) for row in scene.model.receipts),
            ),
            [],
        ),
    }
    for what, (report, words) in cases.items():
        path = scene.folder / "changed.json"
        write_report(report, path)
        with pytest.raises(ContentsDiffer):
            run(APPROVE, scene.image, "--report", path, "--key", scene.key, *words)
        assert scene.image.read_bytes() == before, what


def test_an_image_that_lacks_a_receipt_of_its_kernels_is_not_approved(
    builders: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    scene = certified(builders, tmp_path, drop_receipt=True)
    with pytest.raises(ContentsDiffer, match="lacks receipt"):
        run(APPROVE, scene.image, "--report", scene.report, "--key", scene.key)


def test_a_rejected_report_cannot_be_approved(scene: Scene, builders: ModuleType) -> None:
    path = scene.folder / "rejected.json"
    write_report(builders.a_report("rejected", signatures=2), path)
    with pytest.raises(GateShut, match="rejected"):
        run(APPROVE, scene.image, "--report", path, "--key", scene.key)


def test_a_forged_signature_is_no_missing_signature(scene: Scene) -> None:
    liar = Ed25519Signer(b"\x07" * 32)
    policy = add_key(None, scene.builder.public)
    with open_image(scene.image) as image:
        envelope = image.envelope(0)
        forged = dataclasses.replace(envelope, signature=liar.sign(envelope.signed_bytes()))
    from tribunus_reports import review

    with pytest.raises(SignatureError):
        review._known(forged, policy)
    seen = see_image(scene.image, scene.model, policy, {"XDG_CONFIG_HOME": str(scene.folder)})
    assert [signer.keyid for signer in seen.signers] == [scene.builder.keyid]
