"""The launch list as the sequencer walks it: the binary contract between the runtime and the sequencer's code.

Imported by: runtime, isolation, the backend that offers a sequencer.  Imports: nothing.

The sequencer is called like any kernel, ``sequencer(buffers, params, part, parts)``, once by each thread:

    buffers[p], p < parts   address of part p's list: records of five 64-bit words, function, a0, a1, a2, a3.
                            A record whose function is 0 is a barrier among all parts.
    buffers[parts]          address of SYNC_BYTES zeroed bytes, 64-byte aligned, shared by all parts.
    params[p], p < parts    number of records of part p's list.
    params[parts]           mode: RUN or SERVE.

With one part, RUN calls ``function(a0, a1, a2, a3)`` for each record.  With more, part 0 is called with RUN for each
replay: it wakes the others, walks its list, and returns when every part is done.  The other parts are called once with
SERVE: they wait for a wake, walk their list, and wait again, until ``halt`` (the first 32-bit word of the sync block's
second cache line) is not 0: then they return when woken, and RUN only wakes them and returns.  They spin for a bounded
time and then park with the futex system call, the only system call this code may hold.
"""

from __future__ import annotations

from typing import Final

RECORD_WORDS: Final = 5
SYNC_BYTES: Final = 256
HALT_OFFSET: Final = 64
RUN: Final = 0
SERVE: Final = 1
ROLE: Final = "sequencer"
