"""The error tree: each family one exit code, each leaf one stable name and one remedy.

Imported by: every room.  Imports: nothing.

The exit codes are shared by ``pytest certify/`` and every ``tribunus`` command (docs/exit-codes.md is generated
from this module).  0 to 5 keep pytest's meaning.  A rejected candidate is a verdict, never an exception: an
exception means that something could not be done or judged.
"""

from __future__ import annotations

from typing import ClassVar


class TribunusError(Exception):
    """Base of all failures.  ``detail`` says what and where, ``remedy`` what to do about it.

    detail: one sentence, no line breaks needed.  remedy: overrides the leaf's own remedy where the place of the
    failure knows a better one.
    """

    exit_code: ClassVar[int] = 3
    family: ClassVar[str] = "our fault: a bug, or machinery that could not judge"
    name: ClassVar[str] = "E_INTERNAL"
    default_remedy: ClassVar[str] = "report this together with the command that was run"

    def __init__(self, detail: str, *, remedy: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.remedy = self.default_remedy if remedy is None else remedy

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}\n  remedy: {self.remedy}"


# 1: the answer is no ------------------------------------------------------------------------------------------------
class RefusedError(TribunusError):
    exit_code = 1
    family = "the answer is no"
    name = "E_REJECTED"
    default_remedy = "open the report: every refusal there has its reason and a line that repeats it"


class CertificationRejected(RefusedError):
    """Some signature has no admitted candidate, or the program check refused the assembled image."""


class GateShut(RefusedError):
    name = "E_GATE"
    default_remedy = "read which rule failed; change the model or, knowingly, the policy"


class ContentsDiffer(RefusedError):
    name = "E_DIFFERS"
    default_remedy = "the listed fields differ; re-certify, or compare the right files"


class SelftestDiffers(RefusedError):
    name = "E_SELFTEST"
    default_remedy = "this machine does not reproduce the certified outputs; re-certify here before using the image"


# 2: interrupted -----------------------------------------------------------------------------------------------------
class Interrupted(TribunusError):
    exit_code = 2
    family = "interrupted; the same command resumes"
    name = "E_INTERRUPTED"
    default_remedy = "run the same command again; finished work is kept"


# 3: our fault -------------------------------------------------------------------------------------------------------
class InternalError(TribunusError):
    """A law of our own was broken."""


class VerifierError(InternalError):
    """A program breaks a law of PhaseIR."""

    name = "E_VERIFIER"
    default_remedy = "report the model: a pass or the importer made a program that is not well formed"


class Mistrusted(InternalError):
    """Too few cases could have said no, so nothing was judged."""

    name = "E_MISTRUSTED"
    default_remedy = "add captured inputs with --inputs, or report the signature: its vectors are too weak"


class GoldenUnstable(InternalError):
    name = "E_GOLDEN_UNSTABLE"
    default_remedy = "report the signature and vector: the float64 golden disagrees with its second evaluation"


class TimingUntrusted(InternalError):
    name = "E_TIMING"
    default_remedy = "the clock could not be trusted; run again on a quieter machine"


# 4: usage -----------------------------------------------------------------------------------------------------------
class UsageError(TribunusError):
    exit_code = 4
    family = "usage"
    name = "E_USAGE"
    default_remedy = "see --help"


# 5: nothing to judge ------------------------------------------------------------------------------------------------
class NothingToJudge(TribunusError):
    exit_code = 5
    family = "nothing to judge (all deselected)"
    name = "E_NOTHING"
    default_remedy = "select at least one candidate"


# 10: container ------------------------------------------------------------------------------------------------------
class ContainerError(TribunusError):
    exit_code = 10
    family = "container"
    name = "E_LAYOUT"
    default_remedy = "fetch the image again; if it came from a registry or another tool, run `tribunus normalize`"


class TarHeaderError(ContainerError):
    name = "E_TAR_HEADER"


class TarNameError(ContainerError):
    name = "E_TAR_NAME"


class TarOrderError(ContainerError):
    name = "E_TAR_ORDER"


class TarPaddingError(ContainerError):
    name = "E_TAR_PADDING"


class TarTruncatedError(ContainerError):
    name = "E_TAR_TRUNC"


class TarEndError(ContainerError):
    name = "E_TAR_END"


class TarSizeError(ContainerError):
    name = "E_TAR_SIZE"


class PadError(ContainerError):
    name = "E_PAD"


class UnreferencedError(ContainerError):
    name = "E_UNREFERENCED"


class AlignError(ContainerError):
    name = "E_ALIGN"


# 11: metadata encoding ----------------------------------------------------------------------------------------------
class EncodingError(TribunusError):
    exit_code = 11
    family = "metadata encoding"
    name = "E_JSON_SYNTAX"
    default_remedy = "the file was not written by this tool, or was altered; fetch or build it again"


class JsonCanonError(EncodingError):
    name = "E_JSON_CANON"


class JsonDuplicateKeyError(EncodingError):
    name = "E_JSON_DUP"


class JsonIntegerError(EncodingError):
    name = "E_JSON_INT"


class JsonFloatError(EncodingError):
    name = "E_JSON_FLOAT"


class JsonSizeError(EncodingError):
    name = "E_JSON_SIZE"


class SchemaError(EncodingError):
    name = "E_SCHEMA"


# 12: structure ------------------------------------------------------------------------------------------------------
class StructureError(TribunusError):
    exit_code = 12
    family = "structure"
    name = "E_INDEX"
    default_remedy = "fetch or build the image again"


class RegionSetError(StructureError):
    name = "E_REGION_SET"


class MediaTypeError(StructureError):
    name = "E_MEDIATYPE"


class DescriptorError(StructureError):
    name = "E_DESC_FIELDS"


class DigestSyntaxError(StructureError):
    name = "E_DIGEST_SYNTAX"


class BlobMissingError(StructureError):
    name = "E_BLOB_MISSING"


class BlobSizeError(StructureError):
    name = "E_BLOB_SIZE"


class VersionError(StructureError):
    name = "E_VERSION"
    default_remedy = "install a release of tribunus that reads this schema"


class RequiresError(StructureError):
    name = "E_REQUIRES"
    default_remedy = "install a release of tribunus that knows the required feature"


# 13: integrity ------------------------------------------------------------------------------------------------------
class IntegrityError(TribunusError):
    exit_code = 13
    family = "integrity"
    name = "E_DIGEST"
    default_remedy = "the bytes are not the signed ones; fetch the image again"


class ChangedError(IntegrityError):
    name = "E_CHANGED"
    default_remedy = "the file changed while it was read; copy it to a place that nobody writes to"


# 14: limits ---------------------------------------------------------------------------------------------------------
class LimitError(TribunusError):
    exit_code = 14
    family = "limits"
    name = "E_LIMIT"
    default_remedy = "the file exceeds a limit of the format; it cannot be a valid image"


# 20 to 25: trust ----------------------------------------------------------------------------------------------------
class NoEvidenceError(TribunusError):
    exit_code = 20
    family = "no evidence"
    name = "E_NO_EVIDENCE"
    default_remedy = "copy images with `skopeo copy --all`: without --all the evidence is lost"


class SignatureError(TribunusError):
    exit_code = 21
    family = "bad signature"
    name = "E_SIG"
    default_remedy = "the evidence was altered or belongs to another image; fetch the image again"


class EnvelopeError(SignatureError):
    name = "E_DSSE"


class SubjectError(SignatureError):
    name = "E_SUBJECT"


class UntrustedError(TribunusError):
    exit_code = 22
    family = "not trusted"
    name = "E_UNTRUSTED"
    default_remedy = "add the signer's key to the policy (tribunus keys trust FILE.pub), or have a trusted key sign"


class ThresholdError(UntrustedError):
    name = "E_THRESHOLD"


class RuleError(UntrustedError):
    name = "E_RULE"


class PolicyError(TribunusError):
    exit_code = 23
    family = "policy"
    name = "E_POLICY"
    default_remedy = "correct the trust policy file"


class PolicyExpiredError(PolicyError):
    name = "E_POLICY_EXPIRED"
    default_remedy = "install a current trust policy"


class RevokedError(PolicyError):
    name = "E_REVOKED"
    default_remedy = "this image or key was revoked; use a newer image"


class RollbackError(TribunusError):
    exit_code = 24
    family = "rollback"
    name = "E_EPOCH"
    default_remedy = "a newer image of this name is required"


class PolicyVersionError(RollbackError):
    name = "E_POLICY_VERSION"
    default_remedy = "a newer trust policy was already in force here; install that one"


class LedgerError(TribunusError):
    exit_code = 25
    family = "ledger and time"
    name = "E_LEDGER"
    default_remedy = "the ledger is damaged or held by another session; see the message"


# 30 to 32: plan, receipts, target -----------------------------------------------------------------------------------
class PlanError(TribunusError):
    exit_code = 30
    family = "plan unsound"
    name = "E_PLAN"
    default_remedy = "do not use this image; report it to who built it"


class OverlapError(PlanError):
    name = "E_OVERLAP"


class ArenaBoundsError(PlanError):
    name = "E_ARENA_BOUNDS"


class KernelBoundsError(PlanError):
    name = "E_KERNEL_BOUNDS"


class TensorBoundsError(PlanError):
    name = "E_TENSOR_BOUNDS"


class ReadBeforeWriteError(PlanError):
    name = "E_READ_BEFORE_WRITE"


class OrderError(PlanError):
    name = "E_ORDER"


class AliasError(PlanError):
    name = "E_ALIAS"


class UnusedError(PlanError):
    name = "E_UNUSED"


class ReceiptError(TribunusError):
    exit_code = 31
    family = "receipts"
    name = "E_RECEIPT_SET"
    default_remedy = "do not use this image; its evidence does not cover its kernels"


class ReceiptMissingError(ReceiptError):
    name = "E_RECEIPT_MISSING"


class ReceiptExtraError(ReceiptError):
    name = "E_RECEIPT_EXTRA"


class ReceiptFailError(ReceiptError):
    name = "E_RECEIPT_FAIL"


class ReceiptOrderError(ReceiptError):
    name = "E_RECEIPT_ORDER"


class TargetError(TribunusError):
    exit_code = 32
    family = "target: this machine, or these dims, do not fit"
    name = "E_NO_REGION"
    default_remedy = "certify for this target, or use a machine that the image names"


class DeviceError(TargetError):
    name = "E_DEVICE"


class DriverError(TargetError):
    name = "E_DRIVER"
    default_remedy = "install the library or driver version that the image names"


class FeatureError(TargetError):
    name = "E_FEATURE"


class ProfileError(TargetError):
    name = "E_PROFILE"
    default_remedy = "use dims that the image was certified for (tribunus inspect lists them), or certify these"


# 40 to 42: the model and its inputs ---------------------------------------------------------------------------------
class ModelError(TribunusError):
    exit_code = 40
    family = "ONNX input"
    name = "E_ONNX"
    default_remedy = "export the model again; `python -m onnx.checker` may say more"


class OnnxSyntaxError(ModelError):
    name = "E_ONNX_SYNTAX"


class OnnxExternalDataError(ModelError):
    name = "E_ONNX_EXTERNAL"
    default_remedy = "keep external data in the model's own folder as regular files and pass --external-data"


class OnnxTensorError(ModelError):
    name = "E_ONNX_TENSOR"


class OnnxLimitError(ModelError):
    name = "E_ONNX_LIMIT"


class OnnxFieldError(ModelError):
    name = "E_ONNX_FIELD"


class LoweringError(TribunusError):
    exit_code = 41
    family = "lowering: unsupported nodes, ops that no backend covers"
    name = "E_UNSUPPORTED"
    default_remedy = "replace the listed nodes in the model, or ask for the op"


class UncoveredError(LoweringError):
    name = "E_UNCOVERED"
    default_remedy = "add a backend that covers the listed ops (--backend), or change the target"


class InputError(TribunusError):
    exit_code = 42
    family = "dims and inputs"
    name = "E_INPUT"
    default_remedy = "give an input of the name, dtype, shape and range that the message states"


class DimError(InputError):
    name = "E_DIM"
    default_remedy = "give bounds: --dim NAME=min:opt:max[:step], or one number"


# 50: environment ----------------------------------------------------------------------------------------------------
class EnvironmentFault(TribunusError):
    exit_code = 50
    family = "environment"
    name = "E_IO"
    default_remedy = "check free space and permissions, then run the same command again"


class NoExecError(EnvironmentFault):
    name = "E_NOEXEC"
    default_remedy = "this system forbids executable memory to this process; allow it for the runtime"


class ToolError(EnvironmentFault):
    name = "E_TOOL"
    default_remedy = "install the named tool"


def all_leaves() -> tuple[type[TribunusError], ...]:
    """Every class of the tree in definition order, families included; the source of docs/exit-codes.md."""
    found: list[type[TribunusError]] = []

    def walk(cls: type[TribunusError]) -> None:
        found.append(cls)
        for sub in cls.__subclasses__():
            walk(sub)

    walk(TribunusError)
    return tuple(found)
