"""The sequencer walks launch lists in order, alone and with helper threads, and halts."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
from tribunus_native.backend import BACKEND, NativeBackend, cpu_of
from tribunus_native.flat import build_flat
from tribunus_native.toolchain import Contraction, Toolchain, find_toolchain

from tribunus.admission.flat_audit import audit_flat
from tribunus.devices.cpu import ExecutableBytes
from tribunus.plan.launch_list import HALT_OFFSET, RECORD_WORDS, ROLE, RUN, SERVE, SYNC_BYTES
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
TARGET = Target("cpu", host_arch(), 2)
# a step that appends its number to a log of its own part: log[part][count[part]++] = number
STEP = """
#include <stdint.h>
__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(
    int64_t *log, int64_t number, int64_t unused, int64_t also_unused) {
  (void)unused; (void)also_unused;
  log[++log[0]] = number;
}
"""
# doubles what the other part left behind the barrier before: wrong unless barriers order the parts
EXCHANGE = """
#include <stdint.h>
__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(
    int64_t *mine, const int64_t *other, int64_t unused, int64_t also_unused) {
  (void)unused; (void)also_unused;
  *mine = *other + 1;
}
"""


class Rig:
    """The sequencer and two steps in executable memory."""

    def __init__(self, scratch: object, toolchain: Toolchain) -> None:
        from pathlib import Path

        place = Path(str(scratch))
        code = BACKEND.host_code(ROLE, TARGET, place)
        cpu = cpu_of(TARGET)
        assert code is not None and cpu is not None
        self.code = code
        self._kept = [ExecutableBytes(code.data)]
        self.call = ENTRY(self._kept[0].address)
        for source in (STEP, EXCHANGE):
            flat = build_flat(source, cpu, Contraction.SEPARATE, toolchain, place)
            self._kept.append(ExecutableBytes(flat.code))
        self.step, self.exchange = self._kept[1].address, self._kept[2].address


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    found = find_toolchain()
    if not isinstance(found, Toolchain):
        pytest.skip(found.reason)
    yield Rig(tmp_path_factory.mktemp("sequencer"), found)


def _list(records: list[tuple[int, int, int]]) -> ctypes.Array[ctypes.c_int64]:
    words = [w for function, a0, a1 in records for w in (function, a0, a1, 0, 0)]
    assert len(words) == RECORD_WORDS * len(records)
    return (ctypes.c_int64 * max(1, len(words)))(*words)


def test_one_part_calls_every_record_in_order(rig: Rig) -> None:
    log = (ctypes.c_int64 * 16)()
    words = _list([(rig.step, ctypes.addressof(log), n) for n in (5, 7, 11)] + [(0, 0, 0)])
    buffers = (ctypes.c_void_p * 2)(ctypes.addressof(words), None)
    params = (ctypes.c_int64 * 2)(4, RUN)
    rig.call(ctypes.addressof(buffers), ctypes.addressof(params), 0, 1)
    assert list(log[:4]) == [3, 5, 7, 11]


def test_barriers_order_the_parts_over_many_replays(rig: Rig) -> None:
    cells = (ctypes.c_int64 * 32)()
    mine, other = ctypes.addressof(cells), ctypes.addressof(cells) + 8 * 16
    # part 0 reads part 1's cell and writes its own, then part 1 does the reverse; between them everybody waits
    first = _list([(rig.exchange, mine, other), (0, 0, 0), (0, 0, 0)])
    second = _list([(0, 0, 0), (rig.exchange, other, mine), (0, 0, 0)])
    memory = (ctypes.c_uint8 * (SYNC_BYTES + 64))()
    sync = ctypes.addressof(memory) + (-ctypes.addressof(memory) % 64)
    buffers = (ctypes.c_void_p * 3)(ctypes.addressof(first), ctypes.addressof(second), sync)
    run, serve = (ctypes.c_int64 * 3)(3, 3, RUN), (ctypes.c_int64 * 3)(3, 3, SERVE)
    helper = threading.Thread(
        target=rig.call, args=(ctypes.addressof(buffers), ctypes.addressof(serve), 1, 2), daemon=True
    )
    helper.start()
    for _ in range(200):
        rig.call(ctypes.addressof(buffers), ctypes.addressof(run), 0, 2)
    ctypes.c_uint32.from_address(sync + HALT_OFFSET).value = 1
    helper.join(20)
    assert not helper.is_alive()
    assert (cells[0], cells[16]) == (399, 400)


def test_a_replay_after_the_halt_returns(rig: Rig) -> None:
    memory = (ctypes.c_uint8 * (SYNC_BYTES + 64))()
    sync = ctypes.addressof(memory) + (-ctypes.addressof(memory) % 64)
    ctypes.c_uint32.from_address(sync + HALT_OFFSET).value = 1
    empty = _list([])
    buffers = (ctypes.c_void_p * 3)(ctypes.addressof(empty), ctypes.addressof(empty), sync)
    params = (ctypes.c_int64 * 3)(0, 0, RUN)
    rig.call(ctypes.addressof(buffers), ctypes.addressof(params), 0, 2)


def test_the_only_system_call_is_futex(rig: Rig) -> None:
    cpu = cpu_of(TARGET)
    assert cpu is not None
    found = audit_flat(rig.code.data, rig.code.fact("text_size"), is_arm=not cpu.is_x86)
    names = {offence.split()[1] for offence in found}
    assert names <= {"syscall", "svc", "call", "jmp", "blr"}  # steps are called through their records


def test_other_roles_and_other_processors_get_no_code(rig: Rig, tmp_path: object) -> None:
    from pathlib import Path

    backend = NativeBackend()
    assert backend.host_code("conductor", TARGET, Path(str(tmp_path))) is None
    arm = backend.host_code(ROLE, Target("cpu", "aarch64", 2), Path(str(tmp_path)))
    assert arm is not None and arm.fact("text_size") > 0
