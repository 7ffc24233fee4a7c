"""No child outlives its parent, its executor, or an interrupt; messages are read whole or not at all."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation.toys import HONEST, FlatBackend, Workshop, add_artifact, operands
from tribunus.isolation import wire
from tribunus.isolation.executor import RunTerms
from tribunus.isolation.worker import CpuExecutor

_PARENT = """
import sys
from tribunus.isolation.children import Child, Limits, Zygote, module_path
zygote = Zygote(["tribunus.devices.flat"], module_path(["tribunus.devices.flat:REPLAYER"]))
child = Child.forked(zygote)
child.load([], {}, Limits())
print(child.pid, flush=True)
sys.stdin.read()
"""


def ends(handle: int) -> bool:
    """Whether the process of this pidfd ends within ten seconds."""
    try:
        return bool(select.select([handle], [], [], 10)[0])
    finally:
        os.close(handle)


def test_a_child_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        handle = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        assert ends(handle)


def test_closing_the_executor_ends_the_child(workshop: Workshop) -> None:
    made = CpuExecutor({"toy": FlatBackend()})
    artifact = add_artifact(workshop.code(HONEST))
    made.run(artifact, {}, operands(artifact), RunTerms())
    handle = os.pidfd_open(made.child_pid)
    made.close()
    assert ends(handle)
    made.run(artifact, {}, operands(artifact), RunTerms())  # and it can be used again
    made.close()


_SIGNALS = """
import os
from pathlib import Path
from tribunus.isolation.children import Child, Limits, Zygote, module_path
path = module_path(["tribunus.devices.flat:REPLAYER"])
zygote = Zygote(["tribunus.devices.flat"], path)
forked, executed = Child.forked(zygote), Child.executed(path, {}, True)
for child in (forked, executed):
    child.load([], {}, Limits())
    print(Path(f"/proc/{child.pid}/status").read_text().partition("SigIgn:")[2].split()[0])
"""


def test_signals_that_end_a_session_do_not_end_its_children() -> None:
    """They reach the whole group, and a child that dies of one would look like a candidate that crashed."""
    done = subprocess.run([sys.executable, "-c", _SIGNALS], capture_output=True, text=True, check=True)
    ignored = [int(mask, 16) for mask in done.stdout.split()]
    assert len(ignored) == 2
    for number in (signal.SIGINT, signal.SIGTERM):
        assert all(mask >> (number - 1) & 1 for mask in ignored)


def test_a_child_has_no_files_of_the_parent_and_no_environment(workshop: Workshop, executor: CpuExecutor) -> None:
    artifact = add_artifact(workshop.code(HONEST))
    executor.renew()
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        executor.run(artifact, {}, operands(artifact), RunTerms())
        pid = executor.child_pid
        targets = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        assert {target.partition(":")[0] for target in targets} == {"/dev/null", "socket"}
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        with open(f"/proc/{pid}/maps", encoding="ascii") as file:
            assert not [line for line in file if " rwx" in line]
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            limits = {line[:26].strip(): line[26:].split()[0] for line in file}
        assert limits["Max core file size"] == "0"
        assert limits["Max file size"] == "0"
    finally:
        os.close(read)
        os.close(write)


def test_frames_arrive_whole_with_descriptors_and_raw_bytes() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        null = os.open(os.devnull, os.O_RDONLY)
        wire.send(ours, {"op": "x", "numbers": [1, 2]}, (null,), b"raw" * 1000)
        message, files, raw = wire.receive(theirs)
        os.close(null)
        assert message == {"op": "x", "numbers": [1, 2]}
        assert raw == b"raw" * 1000
        assert len(files) == 1
        os.close(files[0])
        with pytest.raises(wire.Deadline):
            wire.receive(theirs, 1)
        theirs.settimeout(None)
        ours.send(b"\xff" * 8)
        with pytest.raises(wire.Hangup):
            wire.receive(theirs)


@pytest.mark.parametrize("message", [{}, {"n": "1"}, {"n": True}, {"n": [[1], ["x"]]}, {"n": [1.5]}])
def test_a_field_of_another_type_is_no_answer(message: wire.Message) -> None:
    for read in (wire.integer, wire.rows, wire.integers):
        with pytest.raises(wire.Hangup):
            read(message, "n")
