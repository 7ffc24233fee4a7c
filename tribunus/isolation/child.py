"""The child: loads foreign code, maps the parent's buffers between unmapped pages, calls, and says how long it took.

Imported by: zygote, fresh.  Imports: devices, the replayers that the parent names.  No NumPy of its own: what a format
needs is imported by its replayer.

Whatever it answers is a claim; outputs, untouched poison, damage and deaths are what the parent sees for itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import queue
import resource
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from tribunus.devices.cpu import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_POPULATE,
    MAP_PRIVATE,
    MAP_SHARED,
    PAGE,
    PROT_NONE,
    PROT_READ,
    PROT_WRITE,
    Step,
    Steps,
    System,
    Walker,
    encode_steps,
    pin_thread,
    step_of,
)
from tribunus.devices.replayer import BoundCode, Replayer, Words
from tribunus.errors import DriverError, EnvironmentFault, SchemaError, TribunusError
from tribunus.isolation import wire
from tribunus.isolation.confinement import FaultRecorder, forbid_system_calls, give_up
from tribunus.isolation.wire import Hangup, Message

if TYPE_CHECKING:
    from tribunus.plan.code import Code, Recipe

_CLOCK_MONOTONIC, _CLOCK_PROCESS_CPU, _CLOCK_THREAD_CPU = 1, 2, 3
_TIMESPEC_WORDS: Final = 2
_CLOCK_READS: Final = 6
_PREEMPTIONS: Final = 17  # position of ru_nivcsw among the 64-bit words of a rusage
_RUSAGE_WORDS: Final = 18
_RUSAGE_THREAD: Final = 1
_FAILED: Final = 70
SLOT_OFFSET: Final = 64
"""Where in the shared record the number of the code that is running stands."""
MARK_OFFSET: Final = 128
"""Where in the shared record the marks stand that the parent watches: one when a program starts, one at its end."""


@dataclass(frozen=True, slots=True)
class ShippedCode:
    """What a Replayer reads of a Code, without the types that need NumPy."""

    format: str
    data: bytes
    facts: tuple[tuple[str, int | str], ...]
    digest: str

    def fact(self, name: str) -> int:
        """An integer fact.  Raises SchemaError if it is missing."""
        for key, value in self.facts:
            if key == name and isinstance(value, int):
                return value
        raise SchemaError(f"code of format {self.format} lacks the fact {name!r}")


@dataclass(slots=True)
class _Slot:
    """One loaded code and what is mapped for it."""

    bound: BoundCode
    base: int = 0
    size: int = 0
    parts: int = 1
    launches: list[tuple[Words, ...]] = field(default_factory=list)
    cycles: list[bytes] = field(default_factory=list)  # for each part, encoded steps of one call on every launch


@dataclass(frozen=True, slots=True)
class _Program:
    """Steps of every thread, the first one's between clock readings."""

    slot: int
    threads: tuple[Steps, ...]


class _Team:
    """Threads that run the parts of a launch beside the first one; made before system calls are forbidden."""

    def __init__(self, walker: Walker, count: int, cpus: list[int]) -> None:
        self._walker = walker
        self._done: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._inboxes: list[queue.SimpleQueue[Steps]] = []
        for i in range(count):
            inbox: queue.SimpleQueue[Steps] = queue.SimpleQueue()
            self._inboxes.append(inbox)
            cpu = cpus[i] if i < len(cpus) else None
            threading.Thread(target=self._serve, args=(inbox, cpu), daemon=True).start()
        for _ in range(count):
            self._done.get()

    def _serve(self, inbox: queue.SimpleQueue[Steps], cpu: int | None) -> None:
        if cpu is not None:
            pin_thread(cpu)
        self._done.put(0)
        while True:
            steps = inbox.get()
            self._done.put(self._walker.run(steps)[1])

    def start(self, programs: tuple[Steps, ...]) -> None:
        """Hand one program to each thread."""
        for inbox, program in zip(self._inboxes, programs, strict=False):
            inbox.put(program)

    def finish(self, count: int) -> list[int]:
        """Control words after the programs of ``count`` threads."""
        return [self._done.get() for _ in range(count)]


class Child:
    """One session: serves the parent's messages until it hangs up."""

    def __init__(self, link: socket.socket, record_file: int) -> None:
        self._link = link
        self._system = System()
        self._walker = Walker()
        self._record = self._system.map(PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file=record_file)
        self._recorder = FaultRecorder(self._record)
        self._slots: list[_Slot] = []
        self._team: _Team | None = None
        self._memset = self._system.address_of("memset")
        self._clock = self._system.address_of("clock_gettime")
        self._rusage = self._system.address_of("getrusage")
        self._stamps = (ctypes.c_int64 * (_TIMESPEC_WORDS * _CLOCK_READS))()
        self._usage = (ctypes.c_int64 * (2 * _RUSAGE_WORDS))()
        self._barrier_state = (ctypes.c_int64 * 32)()
        self._program: _Program | None = None

    def serve(self) -> None:
        """Read the specification, load, then answer until the parent hangs up."""
        specification, _, raw = wire.receive(self._link)
        sealed = specification.get("sealed") is True
        if (pin := specification.get("pin")) is not None and isinstance(pin, list):
            cpus = [cpu for cpu in pin if type(cpu) is int]
        else:
            cpus = []
        if cpus:
            pin_thread(cpus[0])
        give_up(
            (self._link.fileno(),),
            memory_bytes=wire.integer(specification, "memory"),
            cpu_seconds=wire.integer(specification, "cpu_seconds"),
            keep_environment=specification.get("environment") is True,
        )
        control = self._walker.control_word()
        try:
            places = self._load(specification, raw)
        except TribunusError as failure:
            ours = isinstance(failure, EnvironmentFault)
            wire.send(self._link, {"failed": f"{failure.name}: {failure.detail}", "environment": ours})
            return
        except (ImportError, OSError, ValueError, LookupError, TypeError, ArithmeticError) as failure:
            wire.send(self._link, {"failed": f"{type(failure).__name__}: {failure}"})
            return
        threads = wire.integer(specification, "threads")
        if threads > 1:
            self._team = _Team(self._walker, threads - 1, cpus[1:])
        confined = sealed and forbid_system_calls(places)
        wire.send(
            self._link, {"control": control, "sealed": confined, "code": [[start, size] for start, size in places]}
        )
        while True:
            message, files, _ = wire.receive(self._link)
            wire.send(self._link, self._answer(message, files))

    def _load(self, specification: Message, raw: bytes) -> list[tuple[int, int]]:
        """Bind every code; returns where each stands, for those formats whose function addresses say so."""
        codes = specification.get("codes")
        if not isinstance(codes, list):
            raise Hangup
        places: list[tuple[int, int]] = []
        position = 0
        for entry in codes:
            if not isinstance(entry, dict):
                raise Hangup
            size = wire.integer(entry, "size")
            code = _shipped(entry, raw[position : position + size])
            position += size
            bound = _replayer(wire.text(entry, "replayer")).bind(cast("Code", code), _recipe(entry))
            self._slots.append(_Slot(bound))
            if entry.get("flat") is True:
                # Flat code starts at its function; a launch on no buffers is only words.
                places.append((bound.launch((), (), 1)[0].function, -(-size // PAGE) * PAGE))
        return places

    def _answer(self, message: Message, files: list[int]) -> Message:
        match wire.text(message, "op"):
            case "map":
                return self._map(message, files)
            case "go":
                return self._go(message)
            case "prepare":
                return self._prepare(message)
            case "start":
                return self._start()
            case "singles":
                return self._singles(message)
            case "thrash":
                return self._thrash(wire.integer(message, "bytes"))
            case "spin":
                return self._spin(wire.integer(message, "bytes"))
            case _:
                raise Hangup

    def _map(self, message: Message, files: list[int]) -> Message:
        """Map regions of the parent's files with nothing mapped around each; prepare the launches."""
        slot = self._slots[wire.integer(message, "slot")]
        if slot.base:
            self._system.unmap(slot.base, slot.size)
        slot.size = wire.integer(message, "size")
        slot.base = self._system.map(slot.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
        extra = MAP_POPULATE if message.get("populate") is True else 0
        for virtual, file, offset, length, writable in wire.rows(message, "regions"):
            protection = PROT_READ | PROT_WRITE if writable else PROT_READ
            self._system.map(
                length,
                protection,
                MAP_SHARED | MAP_FIXED | extra,
                at=slot.base + virtual,
                file=files[file],
                offset=offset,
            )
        for file in files:
            os.close(file)
        slot.parts = wire.integer(message, "parts")
        params = wire.integers(message, "params")
        slot.launches = [
            slot.bound.launch([slot.base + address for address in row], params, slot.parts)
            for row in wire.rows(message, "launches")
        ]
        slot.cycles = []
        for part in range(slot.parts):
            calls = [step_of(words[part]) for words in slot.launches]
            if slot.parts > 1:
                meet = self._meet(slot.parts)
                calls = [step for call in calls for step in (meet, call, meet)]
            slot.cycles.append(encode_steps(calls))
        return {"base": slot.base}

    def _prepare(self, message: Message) -> Message:
        """Lay down the steps of calls that rotate over the launches, beginning at ``start``."""
        number = wire.integer(message, "slot")
        slot = self._slots[number]
        calls, start = wire.integer(message, "calls"), wire.integer(message, "start")
        stamps, usage = ctypes.addressof(self._stamps), ctypes.addressof(self._usage)
        clocks = (_CLOCK_PROCESS_CPU, _CLOCK_THREAD_CPU, _CLOCK_MONOTONIC)
        # The process clock lags behind where a CPU limit is set, until the thread clock is read.
        settle = self._read_clock(_CLOCK_THREAD_CPU, stamps, 0)
        before = [self._read_clock(clock, stamps, i) for i, clock in enumerate(clocks)]
        after = [self._read_clock(clock, stamps, 5 - i) for i, clock in enumerate(clocks)][::-1]
        value = wire.integer(message, "mark")
        marks = [(self._memset, self._record + MARK_OFFSET + i, value, 1, 0, 1) for i in range(2)]
        head = encode_steps([(self._rusage, _RUSAGE_THREAD, usage, 0, 0, 1), settle, *before[:2], marks[0], before[2]])
        last = (self._rusage, _RUSAGE_THREAD, usage + 8 * _RUSAGE_WORDS, 0, 0, 1)
        tail = encode_steps([after[0], marks[1], *after[1:], last])
        if slot.parts == 1 and len(slot.launches) == 1:
            bodies = [encode_steps([step_of(slot.launches[0][0], calls)])]
        else:
            bodies = [_rotated(cycle, len(slot.launches), start, calls) for cycle in slot.cycles]
        meet = encode_steps([self._meet(slot.parts)]) if slot.parts > 1 else b""
        first = Steps(b"".join((meet, head, bodies[0], tail)))
        self._program = _Program(number, (first, *(Steps(meet + body) for body in bodies[1:])))
        return {}

    def _start(self) -> Message:
        """Run what was prepared."""
        program = self._program
        if program is None:
            raise Hangup
        ctypes.c_int64.from_address(self._record + SLOT_OFFSET).value = program.slot
        others = program.threads[1:]
        if others:
            if self._team is None:
                raise Hangup
            self._team.start(others)
        controls = list(self._walker.run(program.threads[0]))
        if others and self._team is not None:
            controls += self._team.finish(len(others))
        ns = [self._stamps[2 * i] * 10**9 + self._stamps[2 * i + 1] for i in range(_CLOCK_READS)]
        switches = self._usage[_RUSAGE_WORDS + _PREEMPTIONS] - self._usage[_PREEMPTIONS]
        return {
            "process": ns[5] - ns[0],
            "cpu": ns[4] - ns[1],
            "wall": ns[3] - ns[2],
            "preempted": int(switches > 0),
            "before": controls[0],
            "after": list(controls[1:]),
        }

    def _go(self, message: Message) -> Message:
        """Prepare and start."""
        self._prepare({**message, "start": 0, "mark": 0})
        return self._start()

    def _meet(self, parts: int) -> Step:
        return (self._walker.barrier, ctypes.addressof(self._barrier_state), parts, 0, 0, 1)

    def _read_clock(self, clock: int, stamps: int, index: int) -> Step:
        return (self._clock, clock, stamps + 8 * _TIMESPEC_WORDS * index, 0, 0, 1)

    def _singles(self, message: Message) -> Message:
        """CPU time of each of so many calls, and whether it lost the processor, read by machine code between them."""
        slot = self._slots[wire.integer(message, "slot")]
        count = wire.integer(message, "calls")
        table = (ctypes.c_int64 * (2 * _TIMESPEC_WORDS * count))()
        usages = (ctypes.c_int64 * (_RUSAGE_WORDS * (count + 1)))()
        stamps, usage = ctypes.addressof(table), ctypes.addressof(usages)
        steps: list[Step] = [(self._rusage, _RUSAGE_THREAD, usage, 0, 0, 1)]
        for i in range(count):
            steps.append(self._read_clock(_CLOCK_THREAD_CPU, stamps, 2 * i))
            steps += [step_of(word) for word in slot.launches[i % len(slot.launches)]]
            steps.append(self._read_clock(_CLOCK_THREAD_CPU, stamps, 2 * i + 1))
            steps.append((self._rusage, _RUSAGE_THREAD, usage + 8 * _RUSAGE_WORDS * (i + 1), 0, 0, 1))
        self._walker.run(Steps(encode_steps(steps)))
        ns = [table[2 * i] * 10**9 + table[2 * i + 1] for i in range(2 * count)]
        switches = usages[_PREEMPTIONS::_RUSAGE_WORDS]
        return {
            "cpu": [after - before for before, after in zip(ns[::2], ns[1::2], strict=True)],
            "preempted": [int(after > before) for before, after in itertools.pairwise(switches)],
        }

    def _thrash(self, size: int) -> Message:
        """Displace the caches: write through that much memory."""
        address = self._system.map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        self._walker.run(Steps(encode_steps([(self._memset, address, 1, size, 0, 2)])))
        self._system.unmap(address, size)
        return {}

    def _spin(self, size: int) -> Message:
        """Keep a processor and the memory busy for ever; answers before it begins."""
        address = self._system.map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        wire.send(self._link, {})
        self._walker.run(Steps(encode_steps([(self._memset, address, 1, size, 0, 1 << 40)])))
        return {}


def _rotated(cycle: bytes, launches: int, start: int, calls: int) -> bytes:
    """So many calls out of an endless repetition of ``cycle``, which holds one call on each of ``launches``."""
    unit = len(cycle) // launches
    begin = start % launches * unit
    end = begin + calls * unit
    return (cycle * (-(-end // max(1, len(cycle))) or 1))[begin:end]


def _shipped(entry: Message, data: bytes) -> ShippedCode:
    facts: list[tuple[str, int | str]] = []
    pairs = entry.get("facts")
    for pair in pairs if isinstance(pairs, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int | str):
            facts.append((pair[0], pair[1]))
    return ShippedCode(wire.text(entry, "format"), data, tuple(facts), wire.text(entry, "digest"))


def _replayer(place: str) -> Replayer:
    """The object that ``module:attribute`` names."""
    module, _, attribute = place.partition(":")
    found: Replayer = getattr(importlib.import_module(module), attribute)
    return found


def _recipe(entry: Message) -> Recipe:
    """The recipe where the format reads one; flat code is called by its words alone."""
    document = entry.get("recipe")
    if document is None:
        return cast("Recipe", None)
    code = importlib.import_module("tribunus.plan.code")
    symbols = entry.get("symbols")
    if not isinstance(symbols, list):
        raise DriverError("the recipe came without its symbols")
    found: Recipe = code.recipe_from_json(document, symbols, "recipe")
    return found


def run_child(link: socket.socket, record_file: int) -> None:
    """Serve until the parent hangs up, then end this process without cleaning up."""
    gc.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = _FAILED
    try:
        Child(link, record_file).serve()
        status = 0
    except Hangup:
        status = 0
    finally:
        # Not even an exception may leave: nothing of a forked copy of the zygote should be cleaned up.
        os._exit(status)
