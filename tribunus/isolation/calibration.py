"""Measures the peaks of one thread of this machine, in about a second.

Imported by: certification, cli.  Imports: devices, peak_loops, targets.

The loops are our own machine code, so they run in this process; the calling thread is kept on one processor meanwhile.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from tribunus.devices.cpu import (
    PAGE,
    Arena,
    ExecutableBytes,
    Step,
    Steps,
    System,
    Walker,
    cpu_features,
    encode_steps,
    usable_cpus,
)
from tribunus.errors import DeviceError
from tribunus.isolation.peak_loops import Loop, PeakLoops, peak_loops
from tribunus.targets.calibrate import Calibration, Samples
from tribunus.targets.detect import Cache, machine_facts

_SAMPLES: Final = 12
_SAMPLE_NS: Final = 4_000_000
_MEMORY_BYTES: Final = 256 << 20
_EMPTY_CALLS: Final = 100_000
_CLOCK_MONOTONIC: Final = 1


class _Bench:
    """Times a loop by a clock that machine code reads before and after."""

    def __init__(self) -> None:
        self._walker = Walker()
        self._clock = System().address_of("clock_gettime")
        self._stamps = (ctypes.c_int64 * 4)()
        self._params = (ctypes.c_int64 * 1)()
        self._buffers = (ctypes.c_void_p * 2)()

    def time(self, code: ExecutableBytes, parameter: int, repeat: int) -> int:
        """Nanoseconds of ``repeat`` calls."""
        self._params[0] = parameter
        stamps = ctypes.addressof(self._stamps)
        buffers, params = ctypes.addressof(self._buffers), ctypes.addressof(self._params)
        steps: list[Step] = [
            (self._clock, _CLOCK_MONOTONIC, stamps, 0, 0, 1),
            (code.address, buffers, params, 0, 1, repeat),
            (self._clock, _CLOCK_MONOTONIC, stamps + 16, 0, 0, 1),
        ]
        self._walker.run(Steps(encode_steps(steps)))
        return (self._stamps[2] - self._stamps[0]) * 10**9 + self._stamps[3] - self._stamps[1]

    def arithmetic(self, name: str, loop: Loop) -> Samples:
        """Samples of a loop that touches no memory."""
        code = ExecutableBytes(loop.code)
        turns = 1 << 12
        while (taken := self.time(code, turns, 1)) < _SAMPLE_NS // 2:
            turns *= max(2, _SAMPLE_NS // max(1, taken) // 2)
        times = tuple(self.time(code, turns, 1) for _ in range(_SAMPLES))
        code.close()
        return Samples(name, loop.work * turns, times)

    def reading(self, loop: Loop, size: int, arena: Arena) -> Samples:
        """Samples of reading ``size`` bytes again and again."""
        self._buffers[0], self._buffers[1] = arena.address + PAGE, arena.address
        code = ExecutableBytes(loop.code)
        size = size // 256 * 256
        repeat = 1
        self.time(code, size, 1)
        while (taken := self.time(code, size, repeat)) < _SAMPLE_NS // 2:
            repeat *= max(2, _SAMPLE_NS // max(1, taken) // 2)
        times = tuple(self.time(code, size, repeat) for _ in range(_SAMPLES if repeat > 1 else _SAMPLES // 3))
        code.close()
        return Samples(f"read {size}", size * repeat, times)

    def launching(self, loop: Loop) -> Samples:
        """Samples of calls that do nothing."""
        code = ExecutableBytes(loop.code)
        times = tuple(self.time(code, 0, _EMPTY_CALLS) for _ in range(_SAMPLES))
        code.close()
        return Samples("launch", _EMPTY_CALLS, times)


def calibrate() -> Calibration:
    """Peaks of arithmetic, of reading from each cache and from memory, and of launching.

    Raises DeviceError for a processor without loops.
    """
    loops = peak_loops(os.uname().machine, cpu_features())
    if loops is None:
        raise DeviceError(
            "there is no calibration for this processor", remedy="certify timing on x86-64-v3 or aarch64 or newer"
        )
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {usable_cpus()[-1]})
    try:
        return _measured(loops, machine_facts().caches)
    finally:
        os.sched_setaffinity(0, before)


def _measured(loops: PeakLoops, caches: tuple[Cache, ...]) -> Calibration:
    bench = _Bench()
    levels = _levels(caches)
    arena = Arena(max(size for _, size in levels) + PAGE)
    ctypes.memset(arena.address, 1, arena.size)  # or every page read is the one page of zeros
    try:
        return Calibration(
            fma=bench.arithmetic("fma", loops.fma),
            dot=bench.arithmetic("dot", loops.dot),
            reads=tuple((level, bench.reading(loops.read, size, arena)) for level, size in levels),
            launch=bench.launching(loops.empty),
        )
    finally:
        arena.close()


def _levels(caches: tuple[Cache, ...]) -> list[tuple[int, int]]:
    """(bytes that the level holds, bytes to read so that all of them come from it), smallest first, memory last."""
    sizes = sorted({c.size for c in caches if c.kind != "Instruction"}) or [32 << 10, 1 << 20, 32 << 20]
    levels = [(size, size * 3 // 4 if i == 0 else size // 2) for i, size in enumerate(sizes)]
    memory = max(2 * sizes[-1], min(4 * sizes[-1], _MEMORY_BYTES))
    return [*levels, (max(memory, sizes[-1] + 1), memory)]
