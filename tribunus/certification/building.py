"""Builds artifacts in a pool, from the store where it has them.

Imported by: certification.  Imports: candidates, ledger.artifacts, scratch.

Work folders live as long as the pool, one for each build that may run at a time, so that a compiler finds what it left
there for the build before.
"""

from __future__ import annotations

import concurrent.futures
import os
import queue
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.candidates.backend import Backend
from tribunus.candidates.model import Artifact, Candidate, Signature
from tribunus.canon import Digest
from tribunus.certification.scratch import Scratch
from tribunus.errors import EnvironmentFault, InternalError, TribunusError
from tribunus.ledger.artifacts import ArtifactStore
from tribunus.plan.code import Code
from tribunus.targets.target import Target

TOLD_EVERY: Final = 50
LEAST_BYTES: Final = 16 << 20
"""Free bytes below which a failed build is the disk's fault; a build writes less than a tenth of it."""
SPACE_REMEDY: Final = "make room there, or name another folder for temporary files with TMPDIR"


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built, and who builds it."""

    backend: Backend
    candidate: Candidate
    signature: Signature


class BuildPool:
    """Builds for one target, ``jobs`` at a time; each runs a compiler."""

    def __init__(
        self, target: Target, artifacts: ArtifactStore, toolchain: Digest, jobs: int, say: Callable[[str], None]
    ) -> None:
        self._target = target
        self._artifacts = artifacts
        self._toolchain = toolchain
        self._jobs = max(1, jobs)
        self._say = say
        self._folder: Scratch | None = None
        self._places: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def build(self, orders: Sequence[Order]) -> list[Artifact | str]:
        """The artifact of each order, or why there is none."""
        self._open()
        found: list[Artifact | str] = []
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=self._jobs)
        try:
            for position, made in enumerate(pool.map(self._build, orders), start=1):
                found.append(made)
                if position % TOLD_EVERY == 0 or position == len(orders):
                    self._say(f"built {position} of {len(orders)} candidates")
        finally:
            pool.shutdown(wait=True, cancel_futures=True)  # who interrupts waits for running compilers only
        return found

    def host_code(self, role: str, backends: Iterable[Backend]) -> Code:
        """Code that serves a plan, from the first backend that offers any.  Raises InternalError."""
        self._open()
        for backend in backends:
            place = self._places.get()
            try:
                code = backend.host_code(role, self._target, _own(place, backend))
            finally:
                self._places.put(place)
            if code is not None:
                return code
        raise InternalError(f"no backend offers a {role}", remedy="install the native backend")

    def close(self) -> None:
        """Remove the work folders."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None
            self._places = queue.SimpleQueue()

    def _open(self) -> None:
        if self._folder is not None:
            return
        self._folder = Scratch("build")
        for number in range(self._jobs):
            self._places.put(self._folder.path / str(number))

    def _build(self, order: Order) -> Artifact | str:
        stored = self._artifacts.get(order.candidate, order.signature, self._toolchain)
        if stored is not None:
            return stored
        place = self._places.get()
        try:
            made = order.backend.build(order.candidate, order.signature, self._target, _own(place, order.backend))
        except TribunusError as error:
            self._require_space(place)
            return f"the build failed: {error.detail}"
        except OSError as error:
            raise EnvironmentFault(f"a build cannot write to {place}: {error.strerror}", remedy=SPACE_REMEDY) from None
        finally:
            self._places.put(place)
        self._artifacts.put(made, self._toolchain)
        return made

    @staticmethod
    def _require_space(place: Path) -> None:
        """A compiler on a full disk fails in words of its own: that says nothing about the candidate.

        Raises EnvironmentFault.
        """
        facts = os.statvfs(place.parent)
        if facts.f_bavail * facts.f_frsize < LEAST_BYTES:
            raise EnvironmentFault(f"the disk that holds {place.parent} is full", remedy=SPACE_REMEDY)


def _own(place: Path, backend: Backend) -> Path:
    """The backend's own folder in ``place``."""
    folder = place / backend.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
