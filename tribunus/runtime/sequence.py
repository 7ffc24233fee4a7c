"""A bound launch list, the threads that walk it, and the memory that both stand in.

Imported by: runtime.session.  Imports: plan, devices, runtime.region.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tribunus.devices.replayer import BoundCode
from tribunus.errors import DeviceError
from tribunus.plan import launch_list
from tribunus.runtime.region import CALL, LoadedRegion, sequencer_words

if TYPE_CHECKING:
    from threading import Thread

HUGE_BYTES: Final = 4 * 1024 * 1024
"""Memory of at least this size asks for huge pages."""
HUGE_PAGE: Final = 2 * 1024 * 1024
POPULATED_BYTES: Final = 32 * 1024 * 1024
"""From so much on, clearing pages takes longer than starting a thread that does it meanwhile."""
POPULATE_WRITE: Final = 23
"""Linux's MADV_POPULATE_WRITE, since 5.14."""
Record = tuple[int, int, int, int, int]
"""function, a0, a1, a2, a3."""
BARRIER: Final[Record] = (0, 0, 0, 0, 0)


class BoundSequence:
    """The bound launch lists and the threads that walk them.

    function, arguments: the call that replays.
    """

    def __init__(self, region: LoadedRegion, lists: Sequence[Sequence[Record]], parts: int) -> None:
        arrays = [_records_array(entries) for entries in lists]
        sync = zeroed(launch_list.SYNC_BYTES)
        addresses = [ctypes.addressof(words) for words in arrays]
        counts = [len(entries) for entries in lists]
        sequencer = region.new_sequencer()
        run = sequencer_words(sequencer, addresses, counts, address_of(sync), launch_list.RUN, parts)
        self.function: Callable[..., None] = CALL(run[0][0])
        # Made once: what ctypes would otherwise make of four integers at each call.
        buffers, params, part, count = run[0][1:]
        self.arguments: tuple[object, ...] = (
            ctypes.c_void_p(buffers),
            ctypes.c_void_p(params),
            ctypes.c_int64(part),
            ctypes.c_int64(count),
        )
        self._end: Callable[[], object] = _nothing
        self._keep = (region, sequencer, arrays, sync)
        if parts > 1:
            serve = sequencer_words(sequencer, addresses, counts, address_of(sync), launch_list.SERVE, parts)
            from threading import Thread  # needed where a plan has several parts, and only there

            helpers: list[Thread] = []
            # Not a method of this object: it must be able to run when nothing else refers to it any more.
            self._end = weakref.finalize(self, _stop, self.function, self.arguments, helpers, self._keep)
            for words in serve[1:]:
                helper = Thread(
                    target=_help, args=(CALL(words[0]), words[1:], self._keep), name="tribunus-helper", daemon=True
                )
                try:
                    helper.start()
                except RuntimeError as error:
                    self._end()
                    raise DeviceError(
                        f"a thread for part {len(helpers) + 1} of {parts} cannot start: {error}"
                    ) from None
                helpers.append(helper)

    def close(self) -> None:
        """Stop the helpers."""
        self._end()


def _help(serve: Callable[..., None], arguments: tuple[object, ...], _kept: object) -> None:
    """What a helper thread runs; while it does, everything that the machine code reads is kept alive."""
    serve(*arguments)


def _stop(
    run: Callable[..., None],
    arguments: tuple[object, ...],
    helpers: Sequence[Thread],
    kept: tuple[LoadedRegion, BoundCode, list[ctypes.Array[ctypes.c_uint64]], mmap.mmap],
) -> None:
    ctypes.c_int32.from_buffer(kept[3], launch_list.HALT_OFFSET).value = 1
    run(*arguments)  # wakes the helpers, who see the halt
    for helper in helpers:
        helper.join()


def _nothing() -> None:
    """What ends a sequence without helpers."""


def zeroed(size: int, used: Sequence[tuple[int, int]] | None = None) -> mmap.mmap:
    """Zeroed page-aligned memory that lives as long as it, or any view of it.

    used: (begin, end) of what will be touched, in any order; None: all.  Only there are huge pages asked for, since
    the kernel clears a whole one at the first touch.
    """
    huge = size >= HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE")
    # The kernel aligns a mapping to huge pages if its length is a multiple of them.
    length = -(-size // HUGE_PAGE) * HUGE_PAGE if huge else max(size, 1)
    area = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge:
        spans = [(0, length)] if used is None else _whole_pages(used)
        for begin, end in spans:
            with contextlib.suppress(OSError):  # a kernel without huge pages gives small ones: a slower first replay
                area.madvise(mmap.MADV_HUGEPAGE, begin, end - begin)
        if sum(end - begin for begin, end in spans) >= POPULATED_BYTES:
            _populate(area, spans)
    return area


def _populate(area: mmap.mmap, spans: Sequence[tuple[int, int]]) -> None:
    """Have the kernel clear these pages in a thread of its own, ahead of the first replay or beside it.

    The memory reads the same whoever touches a page first.  A kernel that does not know the advice refuses it at once.
    """
    from threading import Thread  # a small arena does without

    advise = ctypes.CDLL(None).madvise

    def clear() -> None:
        address = address_of(area)  # asked for here, so that the memory lives as long as this function is wanted
        for begin, end in spans:
            advise(ctypes.c_void_p(address + begin), ctypes.c_size_t(end - begin), POPULATE_WRITE)

    Thread(target=clear, daemon=True).start()


def _whole_pages(used: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of huge pages of which at least a quarter is used, as (begin, end)."""
    filled: dict[int, int] = {}
    covered = 0
    for begin, end in sorted(used):
        start = max(begin, covered)
        for page in range(start // HUGE_PAGE, -(-end // HUGE_PAGE)):
            part = min(end, (page + 1) * HUGE_PAGE) - max(start, page * HUGE_PAGE)
            filled[page] = filled.get(page, 0) + max(0, part)
        covered = max(covered, end)
    runs: list[tuple[int, int]] = []
    for page in sorted(page for page, count in filled.items() if 4 * count >= HUGE_PAGE):
        begin = page * HUGE_PAGE
        if runs and runs[-1][1] == begin:
            runs[-1] = (runs[-1][0], begin + HUGE_PAGE)
        else:
            runs.append((begin, begin + HUGE_PAGE))
    return runs


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _records_array(entries: Sequence[Record]) -> ctypes.Array[ctypes.c_uint64]:
    flat = [word for entry in entries for word in entry]
    return (ctypes.c_uint64 * max(1, len(flat)))(*flat)
