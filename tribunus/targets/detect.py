"""What machine this is: processor features, named level, model, caches, kernel.

Imported by: devices, isolation, certification, cli.  Imports: canon (for the document), target; no NumPy.

Linux lists in /proc/cpuinfo only features whose registers it saves: the flags are already those code may use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tribunus.errors import DeviceError
from tribunus.records import dataclass
from tribunus.targets.target import CPU_LEVELS

if TYPE_CHECKING:
    from tribunus.canon import Json

_CPUINFO: Final = Path("/proc/cpuinfo")
_CPU_FOLDER: Final = Path("/sys/devices/system/cpu")
_X86_LEVELS: Final = ("znver4", "x86-64-v4", "x86-64-v3", "x86-64-v2")
_MAKERS: Final[dict[str, frozenset[str]]] = {"znver4": frozenset(("sse4a", "clzero"))}
"""Features that only the maker of such a processor has: what is compiled for it may use them."""
_ARM_LEVELS: Final = ("neoverse-v1", "aarch64")


def cpu_flags(cpuinfo: str | None = None) -> frozenset[str]:
    """Feature names of the first processor, as the operating system lists them; empty where it lists none.

    cpuinfo: text to read instead of /proc/cpuinfo.
    """
    for line in _raw_lines() if cpuinfo is None else cpuinfo.encode("ascii", "replace").splitlines():
        key, _, value = line.partition(b":")
        if key.strip() in (b"flags", b"Features"):
            return frozenset(value.decode("ascii", "replace").split())
    return frozenset()


def level_of(machine: str, flags: frozenset[str]) -> str:
    """Highest named level of ``machine`` (``os.uname().machine``) that ``flags`` allow.  Raises DeviceError."""
    names = _X86_LEVELS if machine in ("x86_64", "AMD64") else _ARM_LEVELS if machine == "aarch64" else ()
    for name in names:
        if name in CPU_LEVELS and CPU_LEVELS[name] | _MAKERS.get(name, frozenset()) <= flags:
            return name
    raise DeviceError(
        f"no named cpu level fits this machine ({machine})", remedy=f"known levels: {', '.join(CPU_LEVELS)}"
    )


def host_arch() -> str:
    """Highest named level of this machine.  Raises DeviceError."""
    return level_of(os.uname().machine, cpu_flags())


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of the first processor.  kind: Data, Instruction, Unified.  size: bytes."""

    level: int
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """A machine as a receipt names it.  processors: usable by this process.  microcode: empty where it is hidden."""

    machine: str
    vendor: str
    model: str
    family: str
    stepping: str
    microcode: str
    features: tuple[str, ...]
    caches: tuple[Cache, ...]
    processors: int
    kernel: str
    libc: str

    @property
    def last_level_cache(self) -> int:
        """Bytes of the largest cache; 32 MiB where the system names none."""
        return max((c.size for c in self.caches), default=32 << 20)


def machine_facts() -> MachineFacts:
    """Facts of this machine."""
    system = os.uname()
    found: dict[str, str] = {}
    for key, value in _entries(_read_cpuinfo()):
        if key == "processor" and found.get("processor", value) != value:
            break
        found.setdefault(key, value)
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    return MachineFacts(
        machine=system.machine,
        vendor=found.get("vendor_id", found.get("CPU implementer", "")),
        model=found.get("model name", found.get("CPU part", "")),
        family="/".join(found[k] for k in ("cpu family", "model") if k in found),
        stepping=found.get("stepping", found.get("CPU revision", "")),
        microcode=found.get("microcode", ""),
        features=tuple(sorted((found.get("flags") or found.get("Features") or "").split())),
        caches=_caches(),
        processors=len(os.sched_getaffinity(0)),
        kernel=f"{system.sysname} {system.release}",
        libc=libc,
    )


def facts_to_json(facts: MachineFacts) -> Json:
    """Document form."""
    return {
        "machine": facts.machine,
        "vendor": facts.vendor,
        "model": facts.model,
        "family": facts.family,
        "stepping": facts.stepping,
        "microcode": facts.microcode,
        "features": list(facts.features),
        "caches": [{"level": c.level, "kind": c.kind, "size": c.size} for c in facts.caches],
        "processors": facts.processors,
        "kernel": facts.kernel,
        "libc": facts.libc,
    }


def _raw_lines() -> Iterator[bytes]:
    """Lines of /proc/cpuinfo as they are wanted: the kernel makes its text while it is read, slowly."""
    try:
        with open(_CPUINFO, "rb", buffering=4096) as stream:
            yield from stream
    except OSError:
        return


def _read_cpuinfo() -> str:
    try:
        return _CPUINFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _entries(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in text.splitlines())
    return [(key.strip(), value.strip()) for key, _, value in pairs if key.strip()]


def _caches() -> tuple[Cache, ...]:
    found = []
    for folder in sorted((_CPU_FOLDER / "cpu0" / "cache").glob("index*")):
        try:
            level = int((folder / "level").read_text())
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
        number = size.rstrip("KMG")
        if number.isdigit():
            found.append(Cache(level, kind, int(number) * units.get(size[-1], 1)))
    return tuple(found)
