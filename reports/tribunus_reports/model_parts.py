"""Parts of the report model: the words that verdicts use, and the facts around the rows.

Imported by: model and, through it, every module of this package; certification's plug-in.  Imports: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Check(StrEnum):
    """The six checks, in the order in which a candidate meets them."""

    ORACLE = "oracle"
    SHAPE = "shape"
    LAYOUT = "layout"
    TIMING = "timing"
    REPLAY = "replay"
    CACHE_KEY = "cache-key"


class Verdict(StrEnum):
    """Of a receipt.  ``mistrusted``: too few cases could have said no, so nothing was judged."""

    PASSED = "passed"
    REJECTED = "rejected"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    MISTRUSTED = "mistrusted"


class WitnessVerdict(StrEnum):
    """Of a witness, about the golden.  ``not compared``: nothing of it could have disagreed; the reason says why."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    NOT_COMPARED = "not compared"


class Outcome(StrEnum):
    """Of a candidate.  ``mistrusted`` and ``not reached`` say that it was not judged, and by whose fault."""

    ADMITTED = "admitted"
    REJECTED = "rejected"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    STAGED = "staged"
    MISTRUSTED = "mistrusted"
    NOT_REACHED = "not reached"


class ReportState(StrEnum):
    """Of a certification or a region.  ``staged``: complete but for the device's own timing and replay."""

    ADMITTED = "admitted"
    REJECTED = "rejected"
    STAGED = "staged"
    NOT_REACHED = "not reached"


class BufferRole(StrEnum):
    VALUE = "value"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """When and by what this report was made."""

    at: str  # UTC, "2026-11-29T18:42:07Z"
    tool: str  # "tribunus 0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of a refusal: what was looked at, what was seen, what is allowed.  Numbers with their units."""

    what: str
    seen: str
    allowed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a receipt did not pass."""

    kind: str  # one of a small set, for counting: "element beyond its budget"
    text: str  # one sentence without the full stop
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The element with the largest error in units of its own budget."""

    index: tuple[int, ...]  # within the output
    output: int  # which output
    golden: float  # may be infinite or NaN
    got: float  # may be infinite or NaN
    error_share: float  # error / budget, dimensionless; inf where the budget is 0 or the classes differ
    ulp: float  # error in units in the last place of the output dtype
    budget_ulp: float  # the element's budget in the same unit


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """One target's part of the image."""

    target: str  # "cpu-x86-64-v3"; identifier
    staged: bool  # judged by a stand-in: no runtime activates it yet
    note: str  # for people: "54 signatures, device"


@dataclass(frozen=True, slots=True, kw_only=True)
class DimFacts:
    """Bounds of one symbol; low, opt and high are equal where it is fixed."""

    name: str  # hostile text
    low: int
    opt: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model that was certified."""

    file: str  # base name; hostile text
    digest: str
    program: str  # digest of its PhaseIR, "" if it was not lowered
    producer: str  # "pytorch 2.13.0, opset 23"; hostile text
    parameters: int
    dims: tuple[DimFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """The run that made the receipts."""

    started: str  # UTC
    seconds: int
    effort: str
    seed: int
    suite: str  # digest of the suite of checks
    command: str  # as typed, for people
    target_option: str  # what --target was: goes into the lines that repeat a receipt
    machine: tuple[tuple[str, str], ...]  # host, cpu, features, memory, peak, kernel, governor, ...
    toolchain: tuple[tuple[str, str], ...]  # name and version of each compiler and library


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """Which numbers a kernel may use."""

    compute: str  # "fp32", or a line such as "vision fp32, lm bf16"
    budgets: str  # digest of the budget rules


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One operation of a block."""

    signature: str  # SignatureRow.id
    reads: tuple[int, ...]  # earlier rows of the block whose values it reads; -1 is what enters the block
    note: str  # "writes KV pages"; hostile text


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """Rows that repeat: the layers of a network."""

    name: str  # hostile text
    repeat: int
    rows: tuple[LaunchRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """One straight-line region of the program, under one profile."""

    name: str
    region: str  # target
    profile: str  # "" if the region has one profile
    dims: str  # for people: "S = 128"
    p50_ns: int  # of one replay; 0 if a launch has no kernel or it was not measured
    p99_ns: int
    budget_ns: int  # sum of the budgets of its launches; 0 if never timed
    blocks: tuple[BlockFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One live range in the arena."""

    label: str  # hostile text
    offset_bytes: int
    size_bytes: int
    first: int  # first launch at which it is live
    last: int  # last launch
    role: BufferRole
    signature: str  # SignatureRow.id of the launch that writes it, "" for an input


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """A value that outlives a replay; it lies outside the arena."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """The arena of one phase under one profile."""

    region: str
    phase: str
    profile: str
    launches: int
    arena_bytes: int
    lower_bound_bytes: int  # the most bytes that are live at one launch
    states: tuple[StateFacts, ...]
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """Phases, the only ways between them (by phase name), and memory."""

    phases: tuple[PhaseFacts, ...]
    edges: tuple[tuple[str, str], ...]
    memory: tuple[MemoryFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFacts:
    """The evidence store of the certification."""

    file: str  # base name
    root: str  # RFC 6962 root over all receipts, refused ones included
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """One envelope over the admission statement."""

    name: str
    keyid: str  # SHA-256 of the public key's SubjectPublicKeyInfo
    at: str  # UTC
    role: str  # "builder", "reviewer"
    development: bool  # made on the fly by the tool, for this user only
    envelope: str  # digest of the envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionEvidence:
    """What the signed statement says about one region."""

    target: str
    manifest: str  # digest
    admissions_root: str  # Merkle root of the admission lines
    receipts_root: str  # Merkle root of the receipts that the image carries
    receipts: int
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """The signed file."""

    id: str  # digest of image.json
    file: str  # base name
    bytes: int
    epoch: int
    statement: str  # digest of the statement's payload
    regions: tuple[RegionEvidence, ...]
    signers: tuple[Signer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something around the kernels that differs from the baseline."""

    what: str
    was: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRow:
    """A signature that both reports have, by digest."""

    signature: str  # SignatureRow.id in this report
    old: str  # candidate chosen then
    new: str  # candidate chosen now
    old_ns: int
    new_ns: int
    old_error: float
    new_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """This report against an earlier one."""

    image: str  # image id then, "" if none
    at: str
    tool: str
    changed: tuple[Change, ...]
    gone: tuple[str, ...]  # signature ids of then
    new: tuple[str, ...]  # signature ids of now
    rows: tuple[BaselineRow, ...]
