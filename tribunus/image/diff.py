"""How two images differ, by digest: content first, then evidence.

Imported by: cli, reports.  Imports: canon, image.{content, read}.

Equal digests are equal bytes, so nothing equal is read.  Signatures are not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tribunus.canon import Json, encode
from tribunus.image.content import Descriptor, ImageDocument, RegionManifest
from tribunus.image.read import ImageFile


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in both images."""

    where: str
    """Dotted path, such as ``regions.cpu-x86-64-v4.weights[0]``."""
    left: str | None
    """None: absent there."""
    right: str | None

    def __str__(self) -> str:
        if self.left is None:
            return f"+ {self.where}: {self.right}"
        if self.right is None:
            return f"- {self.where}: {self.left}"
        return f"~ {self.where}: {self.left} -> {self.right}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDiff:
    """All differences of two images."""

    content: tuple[Difference, ...]
    evidence: tuple[Difference, ...]

    @property
    def same_content(self) -> bool:
        """Whether both are the same image; evidence may still differ."""
        return not self.content


def diff_images(left: ImageFile, right: ImageFile) -> ImageDiff:
    """Differences between two open images.  Raises IntegrityError or EnvelopeError if evidence cannot be read."""
    return ImageDiff(
        content=tuple(_compare(dict(_content(left)), dict(_content(right)))),
        evidence=tuple(_compare(dict(_evidence(left)), dict(_evidence(right)))),
    )


def _compare(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for where in sorted(left.keys() | right.keys()):
        if left.get(where) != right.get(where):
            yield Difference(where, left.get(where), right.get(where))


def _content(image: ImageFile) -> Iterator[tuple[str, str]]:
    document = image.document
    yield from _facts(document)
    for reference in document.regions:
        where = f"regions.{reference.target}"
        yield f"{where}.platform", f"{reference.platform.os}/{reference.platform.architecture}"
        manifest = image.contents.regions.get(reference.target)
        if manifest is None:
            yield f"{where}.manifest", f"{reference.manifest[:12]} (not in this file)"
        else:
            yield from _region(where, manifest)


def _facts(document: ImageDocument) -> Iterator[tuple[str, str]]:
    yield "name", document.name
    yield "epoch", str(document.epoch)
    yield "choices", document.choices[:12]
    yield "requires", ", ".join(document.requires) or "nothing"
    yield from _leaves("model", document.model)
    yield from _leaves("toolchain", document.toolchain)


def _leaves(where: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _leaves(f"{where}.{key}", value[key])
    else:
        yield where, encode(value).decode("utf-8")


def _region(where: str, manifest: RegionManifest) -> Iterator[tuple[str, str]]:
    yield f"{where}.plan", _blob(manifest.plan)
    yield f"{where}.phaseir", _blob(manifest.phaseir)
    yield f"{where}.kernels", _blob(manifest.kernels)
    for number, shard in enumerate(manifest.weights):
        yield f"{where}.weights[{number}]", _blob(shard)
    if manifest.goldens is not None:
        yield f"{where}.goldens", _blob(manifest.goldens)


def _evidence(image: ImageFile) -> Iterator[tuple[str, str]]:
    for number, manifest in enumerate(image.contents.evidence):
        where = f"signers.{image.envelope(number).keyid[:16]}"
        for further, envelope in enumerate(manifest.further):
            yield f"{where}.further[{further}]", _blob(envelope)
        admission = image.admission(number)
        yield f"{where}.policy", admission.policy[:12]
        for region in admission.regions:
            yield f"{where}.{region.target}.kernels", str(region.kernels)
            yield f"{where}.{region.target}.admissions", region.admissions.digest[:12]
            yield f"{where}.{region.target}.receipts", region.receipts.digest[:12]
            yield f"{where}.{region.target}.ledger", f"{region.ledger_entries} entries, root {region.ledger_root[:12]}"


def _blob(descriptor: Descriptor) -> str:
    return f"{descriptor.digest[:12]} ({descriptor.size} bytes)"
