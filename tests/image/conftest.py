"""Builders of small images, honest and forged."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tribunus.canon import Digest, digest_bytes, encode
from tribunus.image import media, tar
from tribunus.image.content import Platform, to_jsonl
from tribunus.image.keys import Ed25519Signer, Signer
from tribunus.image.policy import TrustPolicy, add_key
from tribunus.image.source import MemorySource
from tribunus.image.write import ImageDraft, RegionDraft, write_image

ALICE = Ed25519Signer(bytes(range(32)))
BOB = Ed25519Signer(bytes(range(32, 64)))


def a_region(target: str, *, receipts: str = "first run", weights: tuple[bytes, ...] | None = None) -> RegionDraft:
    name = target.encode()
    return RegionDraft(
        target=target,
        platform=Platform("amd64", "linux"),
        plan=encode({"schema": "tribunus.plan/1", "target": target}),
        phaseir=b'{"program":"shared by all regions"}',
        kernels=b"code of " + name,
        weights=(b"weights of the model" * 40, b"second shard") if weights is None else weights,
        goldens=b"golden vectors",
        admissions=to_jsonl([b"kernel 0 of " + name, b"kernel 1 of " + name]),
        receipts=to_jsonl([f"{receipts}, receipt {number:02d} of {target}".encode() for number in range(12)]),
        ledger_root=Digest("ab" * 32),
        ledger_entries=40,
    )


def a_draft(*regions: RegionDraft, signers: tuple[Signer, ...] = (ALICE,), epoch: int = 3) -> ImageDraft:
    return ImageDraft(
        name="tiny",
        epoch=epoch,
        model={"digest": "sha256:" + "12" * 32},
        choices=Digest("34" * 32),
        toolchain={"zig": "0.15.1"},
        requires=(),
        regions=regions or (a_region("cpu-x86-64-v3"), a_region("cpu-x86-64-v4")),
        policy=Digest("56" * 32),
        signers=signers,
    )


@pytest.fixture
def alice() -> Ed25519Signer:
    return ALICE


@pytest.fixture
def bob() -> Ed25519Signer:
    return BOB


@pytest.fixture
def policy() -> TrustPolicy:
    """Trusts alice for everything."""
    return add_key(None, ALICE.public)


@pytest.fixture
def region() -> Callable[..., RegionDraft]:
    return a_region


@pytest.fixture
def draft() -> Callable[..., ImageDraft]:
    return a_draft


@pytest.fixture
def pack(tmp_path: Path) -> Callable[[ImageDraft], bytes]:
    """Bytes of the image file that a draft becomes."""

    def write(wanted: ImageDraft) -> bytes:
        write_image(tmp_path / "packed.tci", wanted)
        return (tmp_path / "packed.tci").read_bytes()

    return write


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An image of two regions, signed by alice."""
    path = tmp_path_factory.mktemp("honest") / "tiny.tci"
    write_image(path, a_draft())
    return path.read_bytes()


@dataclass
class Forge:
    """An attacker's workbench: all documents of an image, to be altered and packed again consistently.

    Digests are corrected from the leaves up to index.json, so only what the alteration itself breaks can be noticed.
    The documents are what ``json.loads`` gives, because a forged one need not have any type of ours.
    """

    image: dict[str, Any]
    regions: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    blobs: dict[str, bytes]
    big: set[str]
    strangers: list[bytes] = field(default_factory=list)
    edits: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    """Changes to the encoded bytes of ``image``, ``region``, ``index`` or ``index.json``."""
    honest_reference: bool = False
    """Leave the manifests that image.json names as they are."""

    def put(self, data: bytes, kind: str) -> dict[str, Any]:
        """Store a blob and return its descriptor."""
        digest = digest_bytes(data)
        self.blobs[digest] = data
        if kind in media.BIG:
            self.big.add(digest)
        return {"mediaType": kind, "digest": "sha256:" + digest, "size": len(data)}

    def layer(self, manifest: dict[str, Any], kind: str) -> dict[str, Any]:
        """First layer of this kind."""
        found: dict[str, Any] = next(layer for layer in manifest["layers"] if layer["mediaType"] == kind)
        return found

    def data(self, descriptor: dict[str, Any]) -> bytes:
        """Bytes that a descriptor names."""
        return self.blobs[descriptor["digest"][-64:]]

    def replace_layer(self, manifest: dict[str, Any], kind: str, data: bytes) -> None:
        """Put other bytes in the place of the first layer of this kind."""
        self.layer(manifest, kind).update(self.put(data, kind))

    def pack(self) -> bytes:
        """The forged file."""
        lines: list[Any] = []
        for reference, manifest in zip(self.image["regions"], self.regions, strict=False):
            descriptor = self.put(self._edited("region", encode(manifest)), media.OCI_MANIFEST)
            if not self.honest_reference:
                reference |= {"manifest": descriptor["digest"], "size": descriptor["size"]}
            notes = {media.TARGET_ANNOTATION: reference["target"]}
            lines.append({**descriptor, "platform": reference["platform"], "annotations": notes})
        image = self.put(self._edited("image", encode(self.image)), media.IMAGE)
        notes, unknown = {media.EVIDENCE_ANNOTATION: image["digest"]}, {"architecture": "unknown", "os": "unknown"}
        found = []
        for manifest in self.evidence:
            manifest["config"] = image
            descriptor = self.put(encode(manifest), media.OCI_MANIFEST)
            found.append({**descriptor, "platform": unknown, "annotations": notes})
        lines += sorted(found, key=lambda line: line["digest"])
        whole: dict[str, Any] = {"schemaVersion": 2, "mediaType": media.OCI_INDEX}
        index = self.put(self._edited("index", encode({**whole, "manifests": lines})), media.OCI_INDEX)
        named = self._edited("index.json", encode({**whole, "manifests": [index]}))
        wanted = [index, image, *lines, *(self.put(data, media.PLAN) for data in self.strangers)]
        for manifest in (*self.regions, *self.evidence):
            wanted += [manifest["config"], *manifest["layers"]]
        return self._container(named, {item["digest"][-64:] for item in wanted})

    def _edited(self, name: str, data: bytes) -> bytes:
        return self.edits[name](data) if name in self.edits else data

    def _container(self, index_json: bytes, wanted: set[str]) -> bytes:
        kept = {digest: data for digest, data in self.blobs.items() if digest in wanted}
        small = {Digest(digest): len(data) for digest, data in kept.items() if digest not in self.big}
        big = {Digest(digest): len(data) for digest, data in kept.items() if digest in self.big}
        files = {tar.LAYOUT_NAME: tar.LAYOUT_BYTES, tar.INDEX_NAME: index_json}
        files |= {tar.blob_name(Digest(digest)): data for digest, data in kept.items()}
        placed = tar.place(len(index_json), small, big)
        return join([(entry.name, files.get(entry.name, bytes(entry.size))) for entry in placed])


def join(entries: list[tuple[str, bytes]]) -> bytes:
    """A container of these files in this order, each with the canonical header."""
    return b"".join(
        tar.build_header(name, len(data)) + data + bytes(tar.padding(len(data))) for name, data in entries
    ) + bytes(1024)


def split(data: bytes) -> list[tuple[str, bytes]]:
    """Files of a container, in order."""
    return [(e.name, data[e.offset : e.offset + e.size]) for e in tar.walk(MemorySource(data))]


def take_apart(data: bytes) -> Forge:
    blobs = {name[-64:]: content for name, content in split(data)[2:]}
    index_json = json.loads(split(data)[1][1])
    lines = json.loads(blobs[index_json["manifests"][0]["digest"][-64:]])["manifests"]
    manifests = [json.loads(blobs[line["digest"][-64:]]) for line in lines]
    regions = [manifest for manifest in manifests if manifest["artifactType"] == media.REGION]
    evidence = [manifest for manifest in manifests if manifest["artifactType"] == media.EVIDENCE]
    image = json.loads(blobs[evidence[0]["config"]["digest"][-64:]])
    big = {x["digest"][-64:] for m in regions for x in m["layers"] if x["mediaType"] in media.BIG}
    return Forge(image=image, regions=regions, evidence=evidence, blobs=blobs, big=big)


@pytest.fixture
def forge(honest: bytes) -> Forge:
    return copy.deepcopy(take_apart(honest))


@pytest.fixture
def joined() -> Callable[[list[tuple[str, bytes]]], bytes]:
    return join


@pytest.fixture
def parts() -> Callable[[bytes], list[tuple[str, bytes]]]:
    return split
