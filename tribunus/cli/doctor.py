"""``tribunus doctor``: for each target, what can be built and run here, what is missing, and how to get it.

Imported by: cli.tool.  Imports: candidates.registry, targets, devices, image.folders, cli.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import tribunus
from tribunus.cli.command import Command
from tribunus.cli.fits import available_memory
from tribunus.cli.output import Document, bytes_text, clip, field, print_json
from tribunus.devices.cpu import ExecutableBytes, cpu_features, host_machine_code, usable_cpus
from tribunus.errors import EnvironmentFault, TribunusError
from tribunus.image.folders import config_folder, state_folder
from tribunus.targets.detect import host_arch, machine_facts
from tribunus.targets.target import CPU_LEVELS, Target

PR_GET_SECCOMP: Final = 21
PACKAGES: Final = (
    ("onnx", "reading models", "certify"),
    ("pytest", "certifying", "certify"),
    ("pytest_benchmark", "timing evidence", "certify"),
    ("hypothesis", "adversarial inputs", "certify"),
    ("threadpoolctl", "goldens beside each other", "certify"),
    ("jinja2", "HTML reports", "certify"),
    ("ziglang", "building kernels", "native"),
    ("capstone", "auditing machine code", "native"),
)
"""Import name, what needs it, and the extra that brings it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.  needed: for ``run`` (replaying an image), ``build`` (certifying) or ``other``."""

    name: str
    good: bool
    said: str
    needed: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TargetFinding:
    """One target.  backends: (name, whether it can build, what it says)."""

    target: str
    runs: bool
    why: str
    backends: tuple[Finding, ...]

    @property
    def builds(self) -> bool:
        """Whether some backend can build for it here."""
        return any(backend.good for backend in self.backends)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = "Exit code 0: images for some target can run here.  50: none can."


def _run(arguments: argparse.Namespace) -> int:
    findings = [*_system(), *_folders(), *_packages(), *_tools()]
    targets = _targets()
    can_run = all(f.good for f in findings if f.needed == "run") and any(t.runs for t in targets)
    can_build = all(f.good for f in findings if f.needed == "build") and any(t.builds for t in targets)
    if arguments.json:
        print_json(_document(findings, targets, can_run, can_build))
        return 0 if can_run else EnvironmentFault.exit_code
    facts = machine_facts()
    print(field("tribunus", f"{tribunus.__version__}, Python {sys.version.split()[0]}"))
    print(field("machine", f"{clip(facts.model or facts.machine, 60)}, {len(usable_cpus())} usable processors"))
    print(field("system", f"{facts.kernel}, {facts.libc}, {bytes_text(available_memory() or 0)} of memory free"))
    print(field("images", "can run here" if can_run else "cannot run here: see below"))
    print(field("models", "can be certified here" if can_build else "cannot be certified here: see below"))
    print()
    for target in targets:
        build = "build yes" if target.builds else "build no"
        print(
            field(
                target.target,
                f"run {'yes' if target.runs else 'no'}, {build}" + (f"; {target.why}" if target.why else ""),
            )
        )
        for backend in target.backends:
            if not backend.good:
                print(field("", f"{backend.name}: {backend.said}"))
                if backend.remedy:
                    print(field("", f"  -> {backend.remedy}"))
    print()
    for finding in findings:
        print(field("ok" if finding.good else "MISSING", f"{finding.name}: {finding.said}"))
        if not finding.good and finding.remedy:
            print(field("", f"-> {finding.remedy}"))
    if not can_run:
        raise EnvironmentFault("no image can run on this machine", remedy="see the lines marked MISSING above")
    return 0


def _targets() -> tuple[TargetFinding, ...]:
    from tribunus.candidates.registry import ENTRY_POINTS, installed_backends

    try:
        registry = installed_backends()
        backends = list(registry)
        problem = "" if backends else f"no backend is installed (entry points {ENTRY_POINTS})"
    except (TribunusError, ImportError) as error:
        backends, problem = [], f"backends cannot be loaded: {error}"
    own = cpu_features()
    host = os.uname().machine
    found: list[TargetFinding] = []
    for level, features in CPU_LEVELS.items():
        foreign = (level in ("aarch64", "neoverse-v1")) != (host == "aarch64")
        missing = sorted(features - own)
        target = Target("cpu", level, 1)
        answers: list[Finding] = []
        for backend in backends:
            answer = backend.serves(target)
            answers.append(Finding(backend.name, answer.available, answer.reason, "build", answer.remedy))
        if problem:
            answers.append(Finding("backends", False, problem, "build", "pip install 'tribunus-compute[certify]'"))
        why = f"this processor lacks {', '.join(missing)}" if missing else ""
        why = f"this is {host}" if foreign else why
        found.append(TargetFinding(target.name, not why, why, tuple(answers)))
    return tuple(found)


def _system() -> list[Finding]:
    return [
        _try("processor", "run", lambda: f"level {host_arch()}", "use an x86-64-v2 or aarch64 machine"),
        _try("executable memory", "run", _executable, "allow executable memory (SELinux execmem, PaX, W^X policy)"),
        _try("memfd", "build", _memfd, "use Linux 3.17 or newer"),
        _try("seccomp", "other", _seccomp, "candidates run without a system call filter; use a kernel with seccomp"),
    ]


def _try(name: str, needed: str, look: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(name, True, look(), needed)
    except TribunusError as error:
        return Finding(name, False, error.detail, needed, remedy)
    except (OSError, AttributeError) as error:
        return Finding(name, False, str(error), needed, remedy)


def _executable() -> str:
    ExecutableBytes(host_machine_code().walk).close()
    return "private pages can be made executable"


def _memfd() -> str:
    os.close(os.memfd_create("tribunus-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    return "shared buffers without a file"


def _seccomp() -> str:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "the kernel has no seccomp")
    return "candidates run under a system call filter"


def _folders() -> list[Finding]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tribunus"
    return [
        _folder("configuration folder", lambda: config_folder(os.environ), "other"),
        _folder("state folder", lambda: state_folder(os.environ), "other"),
        _folder("evidence folder", lambda: cache, "build"),
        _folder("scratch folder", lambda: Path(tempfile.gettempdir()), "build"),
    ]


def _folder(name: str, find: Callable[[], Path], needed: str) -> Finding:
    """Whether files can be made in a folder, or the folder in its nearest existing parent.  Makes nothing lasting."""
    try:
        folder = find()
        place = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        with tempfile.TemporaryFile(dir=place):
            note = "" if place == folder else ", will be made"
        return Finding(name, True, f"{folder}{note}", needed)
    except TribunusError as error:
        return Finding(name, False, error.detail, needed, error.remedy)
    except OSError as error:
        return Finding(name, False, f"{folder}: {error.strerror}", needed, "make it writable, or set XDG_*_HOME")


def _packages() -> list[Finding]:
    found: list[Finding] = []
    for package, purpose, extra in PACKAGES:
        here = find_spec(package) is not None
        said = f"installed, for {purpose}" if here else f"not installed; needed for {purpose}"
        found.append(Finding(package, here, said, "build", "" if here else f"pip install 'tribunus-compute[{extra}]'"))
    return found


def _tools() -> list[Finding]:
    path = shutil.which("skopeo")
    said = path or "not found; only needed to push and pull images"
    return [Finding("skopeo", path is not None, said, "other", "install skopeo with the system's package manager")]


def _document(findings: list[Finding], targets: tuple[TargetFinding, ...], can_run: bool, can_build: bool) -> Document:
    def row(finding: Finding) -> Document:
        return {
            "name": finding.name,
            "good": finding.good,
            "said": finding.said,
            "needed": finding.needed,
            "remedy": finding.remedy,
        }

    return {
        "schema": "tribunus.doctor/1",
        "version": tribunus.__version__,
        "can_run": can_run,
        "can_certify": can_build,
        "targets": [
            {
                "target": target.target,
                "runs": target.runs,
                "builds": target.builds,
                "why": target.why,
                "backends": [row(backend) for backend in target.backends],
            }
            for target in targets
        ],
        "findings": [row(finding) for finding in findings],
    }


COMMAND = Command("doctor", "say what can be built and run here, what is missing, and how to get it", _configure, _run)
