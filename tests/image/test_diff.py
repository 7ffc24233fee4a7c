"""Differences of two images, content apart from evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tribunus.image.diff import ImageDiff, diff_images
from tribunus.image.keys import Ed25519Signer
from tribunus.image.read import ImageFile
from tribunus.image.source import MemorySource
from tribunus.image.write import ImageDraft, RegionDraft

Packer = Callable[[ImageDraft], bytes]
Drafter = Callable[..., ImageDraft]
Region = Callable[..., RegionDraft]
V3, V4 = "cpu-x86-64-v3", "cpu-x86-64-v4"


def differ(left: bytes, right: bytes) -> ImageDiff:
    return diff_images(ImageFile(MemorySource(left)), ImageFile(MemorySource(right)))


def test_an_image_does_not_differ_from_itself(honest: bytes) -> None:
    found = differ(honest, honest)
    assert found.same_content
    assert not found.evidence


def test_changed_content_is_named_by_its_part(pack: Packer, draft: Drafter, region: Region) -> None:
    one = region(V4)
    other = dataclasses.replace(one, kernels=b"new code", weights=[one.weights[0]], goldens=None)
    changed = dataclasses.replace(draft(other, epoch=4), toolchain={"zig": "0.16.0"})
    found = differ(pack(draft(one)), pack(changed))
    assert not found.same_content
    assert [difference.where for difference in found.content] == [
        "epoch",
        f"regions.{V4}.goldens",
        f"regions.{V4}.kernels",
        f"regions.{V4}.weights[1]",
        "toolchain.zig",
    ]
    assert str(found.content[0]) == "~ epoch: 3 -> 4"
    assert str(found.content[1]).startswith(f"- regions.{V4}.goldens: ")


def test_added_regions_are_named(pack: Packer, draft: Drafter, region: Region) -> None:
    found = differ(pack(draft(region(V4))), pack(draft(region(V3), region(V4))))
    assert {difference.where.split(".")[1] for difference in found.content} == {V3}
    assert all(str(difference).startswith("+ ") for difference in found.content)


def test_another_run_and_another_signer_differ_in_evidence_only(
    pack: Packer, draft: Drafter, region: Region, alice: Ed25519Signer, bob: Ed25519Signer
) -> None:
    first = pack(draft(region(V4)))
    again = differ(first, pack(draft(region(V4, receipts="second"))))
    assert again.same_content
    assert [d.where for d in again.evidence] == [f"signers.{alice.keyid[:16]}.{V4}.receipts"]
    signed = differ(first, pack(draft(region(V4), signers=(alice, bob))))
    assert signed.same_content
    assert all(d.where.startswith(f"signers.{bob.keyid[:16]}") and d.left is None for d in signed.evidence)
    assert signed.evidence
