"""Setting up a session: backends, executor, ledger, peaks, facts of the machine.

Imported by: certify, cli, tests.  Imports: everything that a session works with.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tribunus.admission.context import Adversary
from tribunus.admission.flat_audit import audit_artifact, features_used
from tribunus.admission.key import Machine
from tribunus.candidates.registry import Registry
from tribunus.canon import Json, digest_bytes, digest_of
from tribunus.certification.peaks import PeakMeter
from tribunus.certification.pipeline import Bench, toolchain_digest
from tribunus.isolation.calibration import calibrate
from tribunus.isolation.worker import CpuExecutor
from tribunus.ledger.artifacts import ArtifactStore
from tribunus.ledger.documents import DocumentStore
from tribunus.ledger.goldens import GoldenStore
from tribunus.ledger.store import Ledger
from tribunus.targets.detect import facts_to_json, machine_facts
from tribunus.targets.target import Target
from tribunus.version import VERSION

TOOLS: Final = ("numpy", "onnx", "ziglang", "capstone", "onednn-cpu-gomp")


def open_bench(
    registry: Registry, target: Target, ledger: Path, say: Callable[[str], None], adversary: Adversary | None = None
) -> Bench:
    """Everything a certification needs on this machine.  Raises LedgerError, ToolError, EnvironmentFault."""
    facts = machine_facts()
    tools = tool_versions()
    serving = registry.serving(target)
    machine_digest = digest_of(facts_to_json(facts))
    store = Ledger(ledger)
    try:
        documents = DocumentStore(ledger.parent / "documents")
        artifacts = ArtifactStore(ledger.parent / "artifacts")
        goldens = GoldenStore(ledger.parent / "goldens")
        executor = CpuExecutor(serving.backends)
    except BaseException:
        store.close()
        raise
    return Bench(
        registry=serving,
        executor=executor,
        ledger=store,
        artifacts=artifacts,
        documents=documents,
        goldens=goldens,
        meter=PeakMeter(lambda: calibrate().peaks, documents, machine_digest),
        cache_bytes=facts.last_level_cache,
        machine=Machine("none", facts.model, frozenset(facts.features)),
        machine_digest=machine_digest,
        versions=(("tribunus", VERSION), ("python", platform.python_version()), *tools),
        tools=tools,
        toolchain=toolchain_digest(serving, (("tribunus", VERSION), *tools, *backend_sources(serving))),
        audit=audit_artifact,
        used_features=features_used,
        clock_ns=time.time_ns,
        say=say,
        adversary=adversary,
    )


def backend_sources(registry: Registry) -> tuple[tuple[str, str], ...]:
    """(backend, digest of its source text), so that what an edited backend built before is not used again."""
    found: list[tuple[str, str]] = []
    for name, backend in registry.backends.items():
        file = getattr(sys.modules.get(type(backend).__module__), "__file__", None)
        if file is not None:
            folder = Path(file).parent
            texts: list[Json] = [
                [str(path.relative_to(folder)), digest_bytes(path.read_bytes())]
                for path in sorted(folder.rglob("*.py"))
            ]
            found.append((name, digest_of(texts)))
    return tuple(found)


def tool_versions(names: Sequence[str] = TOOLS) -> tuple[tuple[str, str], ...]:
    """(name, version) of the installed tools; tools that are absent are left out."""
    found: list[tuple[str, str]] = []
    for name in names:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def default_ledger() -> Path:
    """The user's ledger: ``$XDG_CACHE_HOME/tribunus/ledger.sqlite``, or below the home folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base) if base else Path.home() / ".cache"
    return folder / "tribunus" / "ledger.sqlite"
