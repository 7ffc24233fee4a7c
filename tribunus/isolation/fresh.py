"""One session in a process of its own: another environment, another address layout, nothing inherited.

Run by: children, as ``python -m tribunus.isolation.fresh LINK RECORD``.  Imports: child.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from tribunus.isolation.child import run_child
from tribunus.isolation.confinement import die_with_parent


def main(arguments: list[str]) -> None:
    """Serve one session."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides what an interrupt ends
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(os.getppid())
    run_child(socket.socket(fileno=int(arguments[0])), int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
