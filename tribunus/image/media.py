"""Media types, URIs and limits of the image format, each defined once.

Imported by: every module of image.  Imports: nothing.
"""

from __future__ import annotations

from typing import Final

OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
REGION: Final = "application/vnd.tribunus.compute.region.v1"
EVIDENCE: Final = "application/vnd.tribunus.compute.evidence.v1"
PLAN: Final = "application/vnd.tribunus.compute.plan.v1+json"
IMAGE: Final = "application/vnd.tribunus.compute.image.v1+json"
PHASEIR: Final = "application/vnd.tribunus.compute.phaseir.v1+json"
KERNELS: Final = "application/vnd.tribunus.compute.kernels.v1"
WEIGHTS: Final = "application/vnd.tribunus.compute.weights.v1"
GOLDENS: Final = "application/vnd.tribunus.compute.goldens.v1"
ADMISSIONS: Final = "application/vnd.tribunus.compute.admissions.v1+jsonl"
RECEIPTS: Final = "application/vnd.tribunus.compute.receipts.v1+jsonl"
ENVELOPE: Final = "application/vnd.dsse.envelope.v1+json"

BIG: Final = frozenset({KERNELS, WEIGHTS, GOLDENS})
"""Types whose blobs start at a multiple of ``tar.ALIGN`` in the file."""

STATEMENT_PAYLOAD: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
ADMISSION_PREDICATE: Final = "https://tribunus.dev/attestation/admission/v1"
IMAGE_SCHEMA: Final = "tribunus.image/1"

TARGET_ANNOTATION: Final = "dev.tribunus.target"
EVIDENCE_ANNOTATION: Final = "dev.tribunus.evidence"

KNOWN_FEATURES: Final[frozenset[str]] = frozenset()
"""Entries of ``requires`` that this release can read; an image that requires anything else is refused."""

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MAX_FILE: Final = 1024 * GIB
MAX_ENTRIES: Final = 4096
MAX_REGIONS: Final = 64
MAX_INDEX_JSON: Final = 64 * KIB
MAX_MANIFEST: Final = MIB
MAX_LINE: Final = MIB

MAX_BLOB: Final[dict[str, int]] = {
    OCI_INDEX: MIB,
    OCI_MANIFEST: MAX_MANIFEST,
    IMAGE: MIB,
    PLAN: 64 * MIB,
    PHASEIR: 256 * MIB,
    ADMISSIONS: 64 * MIB,
    RECEIPTS: 256 * MIB,
    ENVELOPE: 16 * MIB,
    KERNELS: 4 * GIB,
    WEIGHTS: 4 * GIB,
    GOLDENS: 4 * GIB,
}
"""Largest allowed size in bytes of a blob of each type, checked before anything is read or allocated."""
