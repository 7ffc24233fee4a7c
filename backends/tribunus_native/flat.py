"""C source to flat code: bytes that run at any 256-byte aligned address, with no relocation, import or writable byte.

Imported by: the backend, benchmarks, tests.  Imports: toolchain, tribunus.errors.

    kernel.c --zig cc--> kernel.o --zig ld.lld -pie--> kernel.elf --read_flat--> .text | pad to 64 | .rodata

The entry ``void kernel(void *const *buffers, const int64_t *params, int64_t part, int64_t parts)`` is at offset 0.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tribunus.errors import InternalError, ToolError
from tribunus_native.toolchain import (
    Contraction,
    Cpu,
    Toolchain,
    compile_argv,
    compiler_environment,
    link_argv,
)

ALIGNMENT = 256  # of the address that the bytes are copied to
COMPILE_SECONDS = 120

_MACHINES = {62: True, 183: False}  # e_machine: x86-64, aarch64
_SHT_RELOCATIONS = (4, 9, 19)  # RELA, REL, RELR
_SHT_NOBITS = 8
_SHF_WRITE, _SHF_ALLOC = 1, 2
_NULL_SYMBOL_BYTES = 24
# What -pie leaves behind; lies after .rodata and is cut off.
_LEFTOVERS = frozenset({".dynsym", ".gnu.hash", ".hash", ".dynstr", ".dynamic"})


class BuildFailed(InternalError):
    """A template wrote C that does not become flat code: it does not compile, or needs what flat code has not.

    Likely causes: a construct that becomes a library call, static data, a table of pointers, an unsupported width.
    """

    default_remedy = "report the kernel's parameters: the source template wrote code that cannot be built"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatCode:
    """One kernel's machine code and how it was made."""

    code: bytes  # .text, zeros up to a multiple of 64, .rodata
    text_size: int  # bytes of instructions; a disassembler must stop here
    cpu: Cpu
    contraction: Contraction
    source_digest: str  # lower-case hex SHA-256 of the C text
    compiler: str  # "zig VERSION sha256:DIGEST"
    compile_argv: tuple[str, ...]
    link_argv: tuple[str, ...]


def build_flat(source: str, cpu: Cpu, contraction: Contraction, toolchain: Toolchain, scratch: Path) -> FlatCode:
    """Compile and link one kernel inside ``scratch`` (compiler caches live there too) and read the result.

    The bytes depend on source, cpu, contraction and compiler only.  Raises BuildFailed, ToolError.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    cache = scratch / "cache"
    cache.mkdir(exist_ok=True)
    runtime = _runtime_object(cpu, toolchain, scratch)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="build-") as folder:
        place = Path(folder)
        (place / "kernel.c").write_text(source, encoding="utf-8")
        (place / "flat.ld").write_text(_resource("flat.ld"), encoding="utf-8")
        shutil.copyfile(runtime, place / "rt.o")
        compiling, linking = compile_argv(cpu, contraction), link_argv()
        _run(toolchain, compiling, place, cache)
        _run(toolchain, linking, place, cache)
        elf = (place / "kernel.elf").read_bytes()
    code, text_size = read_flat(elf, cpu)
    return FlatCode(
        code=code,
        text_size=text_size,
        cpu=cpu,
        contraction=contraction,
        source_digest=hashlib.sha256(source.encode("utf-8")).hexdigest(),
        compiler=f"zig {toolchain.version} sha256:{toolchain.digest}",
        compile_argv=compiling,
        link_argv=linking,
    )


def _resource(name: str) -> str:
    return resources.files("tribunus_native").joinpath(name).read_text(encoding="utf-8")


def _runtime_object(cpu: Cpu, toolchain: Toolchain, scratch: Path) -> Path:
    """rt.c compiled for this cpu, once per scratch folder."""
    done = scratch / f"rt-{cpu.value}.o"
    if not done.exists():
        with tempfile.TemporaryDirectory(dir=scratch, prefix="rt-") as folder:
            place = Path(folder)
            (place / "kernel.c").write_text(_resource("rt.c"), encoding="utf-8")
            _run(toolchain, compile_argv(cpu, Contraction.SEPARATE), place, scratch / "cache")
            (place / "kernel.o").replace(done)
    return done


def _run(toolchain: Toolchain, arguments: tuple[str, ...], place: Path, cache: Path) -> None:
    command = [str(toolchain.zig), *arguments]
    try:
        answer = subprocess.run(
            command,
            cwd=place,
            env=compiler_environment(cache),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as slow:
        raise BuildFailed(f"zig {arguments[0]} took more than {COMPILE_SECONDS} s") from slow
    except OSError as failure:
        raise ToolError(f"the compiler does not run: {failure}", remedy="reinstall the ziglang package") from failure
    if answer.returncode != 0:
        raise BuildFailed(f"zig {' '.join(arguments[:2])} failed: {answer.stderr.strip()[:2000]}")


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int


def _sections(elf: bytes) -> tuple[_Section, ...]:
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    if entry_size != 64 or table + 64 * count > len(elf) or names_index >= count:
        raise BuildFailed("the linker's file has no readable section table")
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * i) for i in range(count)]
    strings = rows[names_index][4]
    found = []
    for row in rows:
        start = strings + row[0]
        name = elf[start : elf.index(b"\0", start)].decode("ascii", "replace")
        found.append(_Section(name, row[1], row[2], row[3], row[4], row[5]))
    return tuple(found)


def read_flat(elf: bytes, cpu: Cpu) -> tuple[bytes, int]:
    """Code bytes and text size of a linked kernel.  Raises BuildFailed for anything that flat code must not have."""
    if elf[:6] != b"\x7fELF\x02\x01" or len(elf) < 64:
        raise BuildFailed("the linker wrote no 64-bit little-endian ELF file")
    kind, machine = struct.unpack_from("<HH", elf, 16)
    (entry,) = struct.unpack_from("<Q", elf, 24)
    if kind != 3 or _MACHINES.get(machine) is not cpu.is_x86:
        raise BuildFailed(f"the linker wrote type {kind} for machine {machine}, not a pie for {cpu.value}")
    if entry != 0:
        raise BuildFailed(f"the entry is at offset {entry:#x}, not 0")
    text_size = 0
    image = bytearray()
    for section in _sections(elf):
        if section.kind in _SHT_RELOCATIONS and section.size:
            raise BuildFailed(f"relocations in {section.name}: something needs an address at load time")
        if not section.flags & _SHF_ALLOC or not section.size:
            continue
        if section.name == ".dynsym" and section.size != _NULL_SYMBOL_BYTES:
            raise BuildFailed("the code imports or exports symbols")
        if section.name in _LEFTOVERS:
            continue
        if section.name not in (".text", ".rodata"):
            raise BuildFailed(f"section {section.name} of {section.size} bytes: flat code has no data of its own")
        if section.flags & _SHF_WRITE or section.kind == _SHT_NOBITS:
            raise BuildFailed(f"section {section.name} is writable or has no bytes")
        if section.address < len(image) or section.offset + section.size > len(elf):
            raise BuildFailed(f"section {section.name} overlaps another one")
        image.extend(bytes(section.address - len(image)))
        image.extend(elf[section.offset : section.offset + section.size])
        if section.name == ".text":
            if section.address != 0:
                raise BuildFailed(f".text starts at {section.address:#x}, not 0")
            text_size = section.size
    if text_size == 0:
        raise BuildFailed("there is no code")
    return bytes(image), text_size
