"""The parent's side of a child: starting it, talking to it against a deadline, and learning how it died.

Imported by: worker, timing, replaying, calibration.  Imports: wire, devices, errors.
"""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tribunus.candidates.model import Artifact
from tribunus.devices.cpu import PAGE, usable_cpus
from tribunus.errors import InternalError, NoExecError
from tribunus.isolation import wire
from tribunus.isolation.executor import Death, Fate
from tribunus.isolation.wire import Message
from tribunus.plan.code import recipe_to_json

FLAT: Final = "flat"
"""The one format whose code needs no system call, so that its children are sealed."""
GUARD: Final = 1 << 20
"""Bytes of address space without memory between two buffers."""
MARK_OFFSET: Final = 128
"""Where in the shared record the marks of start and finish stand; the child writes them."""
_SHORT_NS: Final = 400_000
_SLEPT_SHARE: Final = 0.7
_START_NS: Final = 30 * 10**9
_END_NS: Final = 5 * 10**9
_WRITE_FAULT: Final = 2  # bit of the page fault error code
_NO_ADDRESS: Final = 0x80  # si_code of a fault for which the processor gives no address


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may use."""

    memory_bytes: int = 48 << 30
    cpu_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class Region:
    """A buffer in the child's address space, relative to its base: what a fault address is compared with.

    start, size: of the buffer itself.  mapped_start, mapped_end: of its pages.
    """

    name: str
    start: int
    size: int
    mapped_start: int
    mapped_end: int
    writable: bool


class Died(Exception):
    """The child ended instead of answering."""

    def __init__(self, fate: Fate, death: Death, slot: int) -> None:
        super().__init__(death.cause)
        self.fate = fate
        self.death = death
        self.slot = slot


@dataclass(frozen=True, slots=True)
class Fault:
    """signal: 0 where none was noted.  address: None where the processor named none.  access: what was tried there."""

    signal: int
    address: int | None
    counter: int
    access: str


class Record:
    """The page that a child's signal handlers write to."""

    def __init__(self) -> None:
        self.file = os.memfd_create("tribunus-record", os.MFD_CLOEXEC)
        os.ftruncate(self.file, PAGE)
        self._map = mmap.mmap(self.file, PAGE)

    def fault(self) -> Fault:
        """What the handlers noted."""
        number, code = (int.from_bytes(self._map[i : i + 4], "little") for i in (0, 4))
        address, counter, bits = (int.from_bytes(self._map[i : i + 8], "little") for i in (8, 16, 24))
        if os.uname().machine != "x86_64":
            access = "access"
        else:
            access = "write" if bits & _WRITE_FAULT else "read"
        return Fault(number, address if code != _NO_ADDRESS else None, counter, access)

    @property
    def slot(self) -> int:
        """Which code ran last."""
        return int.from_bytes(self._map[64:72], "little")

    def mark(self, position: int) -> int:
        """The byte that the child's machine code writes when it starts (0) or finishes (1) a program."""
        return self._map[MARK_OFFSET + position]

    def close(self) -> None:
        """Release the page."""
        self._map.close()
        os.close(self.file)


class Zygote:
    """The process that forks children; started on first use."""

    def __init__(self, modules: Sequence[str], path: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._path = tuple(path)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._statuses: dict[int, int] = {}

    def fork(self, session: int, record: int) -> int:
        """Pid of a new child that serves ``session``.  Raises InternalError."""
        control = self._started()
        try:
            wire.send(control, {"op": "fork"}, (session, record))
            while True:
                answer = self._next(time.monotonic_ns() + _START_NS)
                if "forked" in answer:
                    return wire.integer(answer, "forked")
        except (wire.Hangup, wire.Deadline) as gone:
            self.close()
            raise InternalError("the process that forks children has ended or does not answer") from gone

    def kill(self, pid: int) -> None:
        """SIGKILL a child; harmless if it has ended."""
        if self._control is not None:
            with contextlib.suppress(wire.Hangup):
                wire.send(self._control, {"op": "kill", "pid": pid})

    def wait(self, pid: int) -> int:
        """Wait status of a child that ends now.  Raises InternalError if it does not."""
        until = time.monotonic_ns() + _END_NS
        try:
            while pid not in self._statuses:
                self._next(until)
        except (wire.Hangup, wire.Deadline) as gone:
            raise InternalError(f"child {pid} cannot be ended") from gone
        return self._statuses.pop(pid)

    def close(self) -> None:
        """End the process and every child."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._statuses.clear()

    def _next(self, until_ns: int) -> Message:
        if self._control is None:
            raise wire.Hangup
        message, _, _ = wire.receive(self._control, until_ns)
        if "died" in message:
            self._statuses[wire.integer(message, "died")] = wire.integer(message, "status")
        return message

    def _started(self) -> socket.socket:
        if self._control is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-S",
                        "-s",
                        "-m",
                        "tribunus.isolation.zygote",
                        str(theirs.fileno()),
                        *self._modules,
                    ],
                    pass_fds=(theirs.fileno(),),
                    env=child_environment(self._path),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            self._control = ours
        return self._control


def child_environment(path: Sequence[str]) -> dict[str, str]:
    """The whole environment of a child: where modules are, and one thread for libraries that ask."""
    return {
        "PYTHONPATH": os.pathsep.join(path),
        **({"PYTHONDONTWRITEBYTECODE": "1"} if sys.dont_write_bytecode else {}),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "LC_ALL": "C",
    }


def module_path(replayers: Sequence[str]) -> tuple[str, ...]:
    """Folders from which a child imports: this package's, the replayers', then the parent's own path."""
    folders = [str(Path(__file__).parents[2])]
    for place in replayers:
        top = place.partition(":")[0].partition(".")[0]
        spec = importlib.util.find_spec(top)
        if spec is None:
            continue
        if spec.submodule_search_locations:
            folders.append(str(Path(next(iter(spec.submodule_search_locations))).parent))
        elif spec.origin:
            folders.append(str(Path(spec.origin).parent))
    return tuple(dict.fromkeys([*folders, *(p for p in sys.path if p)]))


class Child:
    """A live child with some artifacts loaded; slots number them.  ``control`` was read before any code was loaded."""

    def __init__(self, link: socket.socket, record: Record, pid: int, zygote: Zygote | None) -> None:
        self._link = link
        self._record = record
        self._zygote = zygote
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = pid
        self.control = 0
        self.sealed = False
        self._code: list[list[int]] = []
        self._fault = Fault(0, None, 0, "access")
        self._slot = 0
        self._regions: dict[int, tuple[int, tuple[Region, ...]]] = {}

    @staticmethod
    def forked(zygote: Zygote) -> Child:
        """A child of ``zygote``."""
        record = Record()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            pid = zygote.fork(theirs.fileno(), record.file)
        return Child(ours, record, pid, zygote)

    @staticmethod
    def executed(path: Sequence[str], extra: Mapping[str, str], isolated: bool) -> Child:
        """A child in a process of its own, with ``extra`` in its environment."""
        record = Record()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        flags = ["-S", "-s"] if isolated else ["-s"]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, *flags, "-m", "tribunus.isolation.fresh", str(theirs.fileno()), str(record.file)],
                pass_fds=(theirs.fileno(), record.file),
                env={**child_environment(path), **extra},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        child = Child(ours, record, process.pid, None)
        child._process = process
        return child

    def load(
        self,
        artifacts: Sequence[Artifact],
        replayers: Mapping[str, str],
        limits: Limits,
        *,
        pin: Sequence[int] = (),
        environment: bool = False,
    ) -> None:
        """Bind every artifact's code, then forbid what need not be allowed.  Raises Died, NoExecError."""
        entries: list[wire.Field] = []
        for artifact in artifacts:
            code = artifact.code
            place = replayers.get(code.format)
            if place is None:
                self.close()
                raise InternalError(f"no replayer for the code format {code.format}")
            entry: dict[str, wire.Field] = {
                "format": code.format,
                "size": len(code.data),
                "digest": code.digest,
                "facts": [[k, v] for k, v in code.facts],
                "replayer": place,
                "flat": code.format == FLAT,
            }
            if code.format != FLAT:
                entry["recipe"] = recipe_to_json(artifact.recipe, artifact.signature.symbols)
                entry["symbols"] = list(artifact.signature.symbols)
            entries.append(entry)
        specification: Message = {
            "codes": entries,
            "sealed": all(a.code.format == FLAT for a in artifacts),
            "threads": max((a.recipe.split.parts for a in artifacts), default=1),
            "memory": limits.memory_bytes,
            "cpu_seconds": limits.cpu_seconds,
            "pin": list(pin),
            "environment": environment or any(a.code.format != FLAT for a in artifacts),
        }
        answer = self.ask(specification, time.monotonic_ns() + _START_NS, raw=b"".join(a.code.data for a in artifacts))
        failed = answer.get("failed")
        if isinstance(failed, str):
            self.close()
            if answer.get("environment") is True:
                raise NoExecError(f"no child can load code here: {failed}")
            raise Died(Fate.CRASHED, Death(f"the code could not be loaded: {failed}", 0, ""), 0)
        self.control = wire.integer(answer, "control")
        self.sealed = answer.get("sealed") is True
        self._code = wire.rows(answer, "code")

    def map(self, slot: int, message: Message, files: Sequence[int], regions: Sequence[Region]) -> None:
        """Give the child its buffers."""
        answer = self.ask({"op": "map", "slot": slot, **message}, time.monotonic_ns() + _START_NS, files)
        self._regions[slot] = (wire.integer(answer, "base"), tuple(regions))

    def ask(self, message: Message, until_ns: int, files: Sequence[int] = (), raw: bytes = b"") -> Message:
        """The answer to a message.  Raises Died, with the child ended."""
        try:
            wire.send(self._link, message, files, raw)
        except wire.Hangup as gone:
            raise Died(*self._explain(self._reap()), self._slot) from gone
        return self._answer(until_ns)

    def _answer(self, until_ns: int) -> Message:
        try:
            answer, _, _ = wire.receive(self._link, until_ns)
        except wire.Deadline as late:
            self._kill()
            self._reap()
            raise Died(
                Fate.TIMED_OUT, Death("no answer before the deadline", int(signal.SIGKILL), ""), self._slot
            ) from late
        except wire.Hangup as gone:
            status = self._reap()
            raise Died(*self._explain(status), self._slot) from gone
        except BaseException:
            self.close()  # its answer would be taken for the next one
            raise
        return answer

    def watch(self, message: Message, mark: int, expected_ns: int, until_ns: int) -> tuple[Message, int]:
        """The answer to a message that runs a prepared program, and the parent's time from its start to its end.

        mark: the byte that the program writes at both ends; the parent sees it in shared memory and reads its own
        clock, so that no message is timed.  It sleeps through most of ``expected_ns``: who spins all the time is soon
        sent away by the scheduler.  Raises Died.
        """
        answered = select.poll()
        answered.register(self._link, select.POLLIN)
        try:
            wire.send(self._link, message)
        except wire.Hangup as gone:
            raise Died(*self._explain(self._reap()), self._slot) from gone
        edges: list[int] = []
        for position in (0, 1):
            while self._record.mark(position) != mark and time.monotonic_ns() < until_ns and not answered.poll(0):
                os.sched_yield()
            edges.append(time.monotonic_ns())
            if position == 0 and expected_ns > _SHORT_NS:
                time.sleep(_SLEPT_SHARE * expected_ns / 1e9)
        return self._answer(until_ns), edges[1] - edges[0]

    @property
    def threads(self) -> int:
        """Threads of the child as the system counts them; 0 once it is gone."""
        try:
            return sum(1 for _ in Path(f"/proc/{self.pid}/task").iterdir())
        except OSError:
            return 0

    def close(self) -> None:
        """End the child."""
        if self.pid:
            self._kill()
            self._reap()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        elif self._zygote is not None:
            self._zygote.kill(self.pid)

    def _reap(self) -> int:
        """Wait status; afterwards only the record is left to read."""
        if self._process is not None:
            code = self._process.wait(_END_NS / 1e9)
            status = -code if code < 0 else code << 8
        elif self._zygote is not None:
            status = self._zygote.wait(self.pid)
        else:
            raise InternalError("a child without a parent")
        self.pid = 0
        self._link.close()
        self._fault = self._record.fault()
        self._slot = self._record.slot
        self._record.close()
        return status

    def _explain(self, status: int) -> tuple[Fate, Death]:
        if os.WIFEXITED(status):
            return Fate.CRASHED, Death(f"the process ended itself with status {os.WEXITSTATUS(status)}", 0, "")
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.Signals._value2member_map_ else f"signal {number}"
        if number == signal.SIGXCPU:
            return Fate.TIMED_OUT, Death("the limit of CPU time", number, "")
        if number == signal.SIGSYS:
            return Fate.CRASHED, Death(f"{name}: a system call", number, "")
        fault = self._fault
        if fault.signal != number:
            return Fate.CRASHED, Death(name, number, "")
        at = self._code_place(fault.counter)
        if number not in (signal.SIGSEGV, signal.SIGBUS):
            return Fate.CRASHED, Death(name, number, at)
        if fault.address is None:
            where = "access at a misaligned or impossible address"
        else:
            where = f"{fault.access} {self._place(self._slot, fault.address)}"
        return Fate.CRASHED, Death(name, number, f"{where}, {at}" if at else where)

    def _code_place(self, counter: int) -> str:
        for start, size in self._code:
            if start <= counter < start + size:
                return f"at code offset {counter - start:#x}"
        return ""

    def _place(self, slot: int, address: int) -> str:
        """A fault address relative to the nearest buffer, in words that do not depend on where things were mapped."""
        base, regions = self._regions.get(slot, (0, ()))
        position = address - base
        if not regions or address < PAGE:
            return "at a null pointer" if address < PAGE else "outside every buffer"
        best = min(regions, key=lambda r: max(r.mapped_start - position, position - r.mapped_end, 0))
        distance = max(best.mapped_start - position, position - best.mapped_end)
        if distance >= GUARD:
            return "outside every buffer"
        size = f"{best.name} ({best.size} bytes)"
        if position < best.start:
            return f"{best.start - position} bytes before the start of {size}"
        if position >= best.start + best.size:
            return f"{position - best.start - best.size} bytes past the end of {size}"
        kind = "" if best.writable else ", which is read-only"
        return f"at byte {position - best.start} of {size}{kind}"


def timing_cpus(threads: int) -> tuple[int, ...]:
    """Processors for a timed child's threads, the last ones first; empty where there are too few to choose."""
    cpus = usable_cpus()[::-1]
    return cpus[:threads] if threads <= len(cpus) else ()
