"""The zygote: a small process without NumPy and without threads that forks one child a session.

Run by: children, as ``python -m tribunus.isolation.zygote DESCRIPTOR [MODULE ...]``.  Imports: child.  MODULE: what to
import before the first fork, so that no child pays for it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys

from tribunus.isolation import wire
from tribunus.isolation.child import run_child
from tribunus.isolation.confinement import die_with_parent


def main(arguments: list[str]) -> int:
    """Serve fork and kill requests until the parent hangs up; every child dies with this process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides what an interrupt ends
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(os.getppid())
    control = socket.socket(fileno=int(arguments[0]))
    for module in arguments[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    handles: dict[int, int] = {}  # pidfd -> pid
    poll = select.poll()
    poll.register(control, select.POLLIN)
    with contextlib.suppress(wire.Hangup):
        while True:
            for descriptor, _ in poll.poll():
                if descriptor in handles:
                    pid = handles.pop(descriptor)
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    _, status = os.waitpid(pid, 0)
                    wire.send(control, {"died": pid, "status": status})
                elif descriptor == control.fileno():
                    _serve(control, handles, poll)
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    return 0


def _serve(control: socket.socket, handles: dict[int, int], poll: select.poll) -> None:
    message, files, _ = wire.receive(control)
    if wire.text(message, "op") == "fork":
        session, record = files
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with_parent(zygote)
            run_child(socket.socket(fileno=session), record)
        os.close(session)
        os.close(record)
        handle = os.pidfd_open(pid)
        handles[handle] = pid
        poll.register(handle, select.POLLIN)
        wire.send(control, {"forked": pid})
    else:
        victim = wire.integer(message, "pid")
        for handle, pid in handles.items():
            if pid == victim:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
