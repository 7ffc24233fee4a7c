from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import ALICE, Array, Said, a_phaseir, expected
from tribunus.canon import digest_bytes
from tribunus.errors import (
    BlobMissingError,
    EnvironmentFault,
    FeatureError,
    InputError,
    IntegrityError,
    NothingToJudge,
    OverlapError,
    PlanError,
    PolicyError,
    ProfileError,
    ReceiptFailError,
    SchemaError,
    SelftestDiffers,
    TargetError,
    TarTruncatedError,
    TribunusError,
    UntrustedError,
    UsageError,
)
from tribunus.image.admissions import decode_lines, encode_lines
from tribunus.image.arrays import write_arrays
from tribunus.image.content import to_jsonl
from tribunus.image.keys import Ed25519Signer
from tribunus.plan.plan import Plan

Tool = Callable[..., Said]
Maker = Callable[..., Path]


def refused(said: Said, error: type[TribunusError]) -> bool:
    return said.code == error.exit_code and said.err.startswith(f"refused: {error.name}: ") and "remedy: " in said.err


def test_an_honest_image_is_verified(tribunus: Tool, image: Path) -> None:
    said = tribunus("verify", image)
    assert (said.code, said.err) == (0, "")
    assert ALICE.keyid[:16] in said.out and "in the policy" in said.out
    assert "1 kernel, each passed the six checks" in said.out


def test_verify_says_the_same_as_a_document(tribunus: Tool, image: Path) -> None:
    document = tribunus("verify", image, "--json").document
    assert document["verified"] is True and document["signed_by"] == [ALICE.keyid]
    regions = document["regions"]
    assert isinstance(regions, list) and regions[0]["receipts"] == 6 and regions[0]["launches"] == 2


def test_verify_names_the_development_key(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    from tribunus.image.policy import ensure_development_key

    signer = ensure_development_key(os.environ)
    said = tribunus("verify", make_image(tmp_path / "own.tci", signer=signer))
    assert said.code == 0 and "the development key of this user" in " ".join(said.out.split())


def test_an_unknown_key_is_not_trusted(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    stranger = make_image(tmp_path / "other.tci", signer=Ed25519Signer(bytes(32)))
    for command in ("verify", "selftest"):
        assert refused(tribunus(command, stranger), UntrustedError)


def test_without_a_policy_nobody_is_trusted(tribunus: Tool, image: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "CONFIG" / "tribunus" / "trust.json").unlink()
    assert refused(tribunus("verify", image), PolicyError)


def test_a_refusal_is_a_document_too(tribunus: Tool, image: Path) -> None:
    image.write_bytes(image.read_bytes()[:-512])
    said = tribunus("verify", image, "--json")
    assert said.document["refused"] == TarTruncatedError.name or said.document["exit_code"] == 10
    assert said.document["exit_code"] == said.code


@pytest.mark.parametrize("command", ["verify", "selftest"])
def test_a_flipped_bit_in_weights_code_or_cases_is_refused(tribunus: Tool, image: Path, command: str) -> None:
    data = bytearray(image.read_bytes())
    place = data.rindex(np.array([1.0, -2.0, 0.5, 3.0], dtype=np.float32).tobytes())
    data[place] ^= 1
    image.write_bytes(data)
    assert refused(tribunus(command, image), IntegrityError)


def overlapping(plan: Plan) -> Plan:
    profile = plan.profiles[0]
    buffers = (profile.buffers[0], dataclasses.replace(profile.buffers[1], offset=0), profile.buffers[2])
    return dataclasses.replace(plan, profiles=(dataclasses.replace(profile, buffers=buffers),))


@pytest.mark.parametrize("command", ["verify", "selftest"])
def test_an_unsound_plan_is_refused_though_it_is_signed(
    tribunus: Tool, make_image: Maker, tmp_path: Path, command: str
) -> None:
    assert refused(tribunus(command, make_image(tmp_path / "bad.tci", overlapping)), OverlapError)


def test_a_check_that_did_not_pass_is_refused(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    def fail(admissions: bytes, receipts: bytes) -> tuple[bytes, bytes]:
        (line,) = decode_lines(admissions)
        checks = {**line.checks, "oracle": ("rejected", line.checks["oracle"][1])}
        return encode_lines([dataclasses.replace(line, checks=checks)]), receipts

    assert refused(tribunus("verify", make_image(tmp_path / "bad.tci", lines=fail)), ReceiptFailError)


def test_an_admission_whose_receipt_says_otherwise_is_refused(
    tribunus: Tool, make_image: Maker, tmp_path: Path
) -> None:
    def forge(admissions: bytes, receipts: bytes) -> tuple[bytes, bytes]:
        honest = next(text for text in receipts.splitlines() if b'"timing"' in text)
        forged = honest.replace(b'"passed"', b'"rejected"')
        (line,) = decode_lines(admissions)
        checks = {**line.checks, "timing": ("passed", digest_bytes(forged))}
        return encode_lines([dataclasses.replace(line, checks=checks)]), to_jsonl([*receipts.splitlines(), forged])

    said = tribunus("verify", make_image(tmp_path / "bad.tci", lines=forge))
    assert refused(said, ReceiptFailError) and "timing" in said.err


def test_inspect_shows_profiles_and_kernels_without_judging(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    said = tribunus("inspect", make_image(tmp_path / "other.tci", signer=Ed25519Signer(bytes(32))))
    assert said.code == 0
    for text in ("'x' f32[rows, 4]", "rows: 1 to 16, expected 4", "add-0a1b2c3d/toy-5c1e7a", "1.50 us", "three rows"):
        assert text in said.out
    assert "not judged" in said.out


def test_inspect_gives_a_document(tribunus: Tool, image: Path) -> None:
    regions = tribunus("inspect", image, "--json").document["regions"]
    assert isinstance(regions, list) and regions[0]["kernels"][0]["launches"] == 2


def test_an_image_of_this_machine_fits(tribunus: Tool, image: Path) -> None:
    said = tribunus("fits", image)
    assert said.code == 0 and "yes" in said.out


def test_every_missing_feature_is_named(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    def future(plan: Plan) -> Plan:
        return dataclasses.replace(plan, features=("quantum", "warp"))

    path = make_image(tmp_path / "future.tci", future)
    said = tribunus("fits", path)
    assert refused(said, FeatureError) and "cpu feature quantum" in said.out and "cpu feature warp" in said.out
    document = tribunus("fits", path, "--json")
    assert document.code == 32 and document.document["fits"] is False
    assert refused(tribunus("selftest", path), FeatureError)


def test_another_family_does_not_fit(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    said = tribunus("fits", make_image(tmp_path / "gpu.tci", target="cuda-sm_90"))
    assert refused(said, TargetError) and "no device for cuda-sm_90" in said.out


def test_run_writes_the_outputs(tribunus: Tool, image: Path, inputs: Path, tmp_path: Path) -> None:
    said = tribunus("run", image, "--inputs", inputs, "--outputs", tmp_path / "y.npz", "--repeat", "3")
    assert (said.code, said.err) == (0, "") and "median" in said.out
    with np.load(inputs) as given, np.load(tmp_path / "y.npz") as got:
        assert list(got.files) == ["y"]
        np.testing.assert_array_equal(got["y"], expected(given["x"]))


def test_equal_outputs_make_equal_files(tribunus: Tool, image: Path, inputs: Path, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        assert tribunus("run", image, "--inputs", inputs, "--outputs", tmp_path / name).code == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("arrays", "error"),
    [
        ({}, InputError),
        ({"x": np.zeros((2, 4))}, InputError),
        ({"x": np.zeros((2, 4), np.float32), "z": np.zeros(1)}, InputError),
        ({"x": np.zeros(4, np.float32)}, InputError),
        ({"x": np.zeros((2, 5), np.float32)}, ProfileError),
        ({"x": np.zeros((17, 4), np.float32)}, ProfileError),
    ],
)
def test_wrong_inputs_are_refused(
    tribunus: Tool, image: Path, tmp_path: Path, arrays: dict[str, Array], error: type[TribunusError]
) -> None:
    write_arrays(tmp_path / "x.npz", arrays)
    assert refused(tribunus("run", image, "--inputs", tmp_path / "x.npz"), error)


@pytest.mark.parametrize("content", [None, b"", b"not a zip", b"PK\x03\x04 but no more"])
def test_a_file_that_is_no_archive_is_refused(
    tribunus: Tool, image: Path, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    assert refused(tribunus("run", image, "--inputs", tmp_path / "x.npz"), InputError)


def test_a_dim_that_is_insisted_on_must_be_that_of_the_inputs(tribunus: Tool, image: Path, inputs: Path) -> None:
    assert tribunus("run", image, "--inputs", inputs, "--dim", "rows=2").code == 0
    assert refused(tribunus("run", image, "--inputs", inputs, "--dim", "rows=3"), InputError)
    assert refused(tribunus("run", image, "--inputs", inputs, "--dim", "columns=4"), ProfileError)
    assert refused(tribunus("run", image, "--inputs", inputs, "--dim", "rows"), UsageError)


def test_an_output_folder_that_is_not_there_is_refused(
    tribunus: Tool, image: Path, inputs: Path, tmp_path: Path
) -> None:
    said = tribunus("run", image, "--inputs", inputs, "--outputs", tmp_path / "none" / "y.npz")
    assert refused(said, EnvironmentFault)


def test_the_recorded_cases_are_replayed_bit_for_bit(tribunus: Tool, image: Path) -> None:
    said = tribunus("selftest", image)
    assert said.code == 0 and "three rows: 12 elements equal" in said.out


def test_one_other_bit_fails_the_selftest(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    path = make_image(tmp_path / "other.tci", goldens=lambda blob: blob[:-4] + bytes([blob[-4] ^ 1]) + blob[-3:])
    said = tribunus("selftest", path)
    assert refused(said, SelftestDiffers) and "1 of 12 elements differ" in said.out and "element 11" in said.out
    document = tribunus("selftest", path, "--json")
    assert (document.code, document.document["equal"]) == (1, False)


def test_an_image_without_cases_has_nothing_to_judge(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    def without(plan: Plan) -> Plan:
        return dataclasses.replace(plan, profiles=(dataclasses.replace(plan.profiles[0], goldens=()),))

    assert refused(tribunus("selftest", make_image(tmp_path / "bare.tci", without)), NothingToJudge)


def test_cases_outside_the_recorded_bytes_are_refused(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    path = make_image(tmp_path / "short.tci", goldens=lambda blob: blob[:64])

    def far(plan: Plan) -> Plan:
        profile = plan.profiles[0]
        golden = dataclasses.replace(profile.goldens[0], outputs=((1 << 20, 48),))
        return dataclasses.replace(plan, profiles=(dataclasses.replace(profile, goldens=(golden,)),))

    path = make_image(tmp_path / "far.tci", far)
    for command in ("verify", "selftest"):
        assert refused(tribunus(command, path), PlanError)


def test_equal_images_do_not_differ(tribunus: Tool, image: Path, make_image: Maker, tmp_path: Path) -> None:
    other = make_image(tmp_path / "signed-by-another.tci", signer=Ed25519Signer(bytes(32)))
    said = tribunus("diff", image, other)
    assert said.code == 0 and "content: equal" in said.out and "evidence: " in said.out


def test_other_contents_are_listed(tribunus: Tool, image: Path, make_image: Maker, tmp_path: Path) -> None:
    other = make_image(tmp_path / "other.tci", goldens=lambda blob: bytes(len(blob)))
    said = tribunus("diff", image, other)
    assert said.code == 1 and said.err.startswith("refused: E_DIFFERS") and ".goldens" in said.out
    document = tribunus("diff", image, other, "--json")
    assert (document.code, document.document["same_content"]) == (1, False)


def test_a_copy_of_another_tool_is_normalized(tribunus: Tool, image: Path, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(image) as archive:
        archive.extractall(tmp_path / "layout", filter="data")
    said = tribunus("normalize", tmp_path / "layout", tmp_path / "again.tci")
    assert said.code == 0 and (tmp_path / "again.tci").read_bytes() == image.read_bytes()


def test_a_plan_for_another_target_is_refused(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    path = make_image(tmp_path / "bad.tci", lambda plan: dataclasses.replace(plan, target="cpu-other"))
    assert refused(tribunus("verify", path), PlanError)
    assert tribunus("inspect", path).code == 0


def test_a_program_that_breaks_a_law_is_refused(tribunus: Tool, make_image: Maker, tmp_path: Path) -> None:
    phaseir = a_phaseir()
    programs = phaseir["programs"]
    assert isinstance(programs, list) and isinstance(programs[0], dict)
    phases = programs[0]["phases"]
    assert isinstance(phases, list) and isinstance(phases[0], dict)
    ops = phases[0]["ops"]
    assert isinstance(ops, list)
    ops.reverse()  # the second sum now reads what nothing has computed
    said = tribunus("verify", make_image(tmp_path / "bad.tci", phaseir=phaseir))
    assert refused(said, SchemaError) and "breaks a law" in said.err


def test_a_file_without_receipts_is_good_but_not_complete(
    tribunus: Tool, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tribunus.image import media
    from tribunus.image.read import open_image
    from tribunus.image.write import image_blobs, write_contents

    with open_image(image) as source:
        contents = source.contents
        kept = [blob for blob in image_blobs(source) if blob.descriptor.media_type != media.RECEIPTS]
        partial = tmp_path / "partial.tci"
        write_contents(partial, contents.document, contents.image, contents.regions, contents.evidence, kept)
    said = tribunus("verify", partial)
    assert said.code == 0 and "not in this file" in said.out
    assert refused(tribunus("verify", partial, "--complete"), BlobMissingError)
    assert tribunus("verify", image, "--complete").code == 0


@pytest.mark.parametrize("target", ["image", "inputs", "link"])
def test_run_never_overwrites_what_it_reads(
    tribunus: Tool, image: Path, inputs: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "link").symlink_to(inputs)
    output = {"image": image, "inputs": inputs, "link": tmp_path / "link"}[target]
    before = output.read_bytes()
    assert refused(tribunus("run", image, "--inputs", inputs, "--outputs", output), UsageError)
    assert output.read_bytes() == before
