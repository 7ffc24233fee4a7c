"""Options of certification, the same on ``pytest certify/`` and ``tribunus certify``.

Imported by: plugin, command.  Imports: nothing of pytest, so that the command can print help without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Option:
    """One command line option.  kind: ``text``, ``number``, ``list`` (may be repeated) or ``flag``."""

    name: str
    kind: str
    metavar: str
    help: str
    default: str | int | None = None

    @property
    def destination(self) -> str:
        """Name under which pytest keeps the value."""
        return "tribunus_" + self.name.strip("-").replace("-", "_")


OPTIONS: Final = (
    Option("--model", "text", "M.onnx", "the model to certify"),
    Option("--target", "text", "FAMILY[:ARCH]", "what the image will run on", "cpu"),
    Option(
        "--dim", "list", "NAME=MIN:OPT:MAX[:STEP]", "bounds of a symbolic dim, or one number; 'INPUT[AXIS]=...' too"
    ),
    Option("--state", "list", "INPUT=OUTPUT", "a pair that outlives a replay"),
    Option("--inputs", "text", "PLACE", "folder of CASE.npz, or one; CASE.ref.npz is a witness"),
    Option("--name", "text", "NAME", "name of the image; the model's stem if not given"),
    Option("--output", "text", "FOLDER", "where image and reports are written", "."),
    Option("--compute", "text", "POLICY", "fp32, fp32-strict, fp32-winograd", "fp32"),
    Option("--effort", "text", "EFFORT", "quick, standard, exhaustive, or a number of candidates", "standard"),
    Option("--backend", "list", "NAME", "use this backend only; may be repeated"),
    Option("--threads", "number", "N", "threads that the image's static partition is made for", 1),
    Option("--jobs", "number", "N", "compilers that run at once while candidates are built", 2),
    Option(
        "--jit-at-open", "text", "WHEN", "needed, never, free: use of kernels that generate code when opened", "needed"
    ),
    Option("--key", "text", "FILE", "private key that signs the image; the user's development key if not given"),
    Option("--choices", "text", "FILE", "replay the selections of an earlier certification"),
    Option("--ledger", "text", "FILE", "evidence store; the user's own if not given"),
    Option("--epoch", "number", "N", "raised when older images of this name must no longer run", 0),
    Option("--external-data", "flag", "", "allow the model's external data files, in its own folder"),
)
