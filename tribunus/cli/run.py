"""``tribunus run``: outputs of an image for inputs in a file.

Imported by: cli.tool.  Imports: runtime, cli.  No compiler, no onnx.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from tribunus.cli.command import Command
from tribunus.cli.opening import opened_image, parse_numbers
from tribunus.cli.output import bytes_text, clip, field, time_text
from tribunus.cli.places import require_place
from tribunus.errors import InputError, ProfileError, SelftestDiffers, UsageError
from tribunus.image.arrays import read_arrays, write_arrays
from tribunus.runtime.session import Array, Session


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--inputs", type=Path, required=True, metavar="X.npz", help="arrays by input name")
    parser.add_argument("--outputs", type=Path, metavar="Y.npz", help="written whole or not at all")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="replay N times and print the median time")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="insist on this dim")
    parser.add_argument("--trust", type=Path, metavar="POLICY.json", help="trust policy; TRIBUNUS_TRUST or the user's")
    parser.epilog = (
        "The dims follow from the shapes of the inputs.  Make inputs in Python:\n"
        "  numpy.savez('x.npz', **{'input name': array})\n"
        "tribunus inspect lists names, types and shapes."
    )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.repeat < 1:
        raise UsageError(f"--repeat {arguments.repeat}", remedy="a number of at least 1")
    if arguments.outputs is not None:
        require_place(arguments.outputs, arguments.image, arguments.inputs, arguments.trust)
    dims = parse_numbers(arguments.dim)
    inputs = read_arrays(arguments.inputs)
    with opened_image(arguments.image, arguments.trust) as image:
        session = image.session(inputs)
        try:
            _insist(session, dims)
            outputs, times = _replay(session, arguments.repeat)
        finally:
            session.close()
    if arguments.outputs is not None:
        write_arrays(arguments.outputs, outputs)
    for name, array in outputs.items():
        print(field("output", f"{clip(repr(name), 50)} {array.dtype}{list(array.shape)}, {bytes_text(array.nbytes)}"))
    if arguments.repeat > 1:
        print(field("replay", f"median {time_text(sorted(times)[len(times) // 2])} of {len(times)}"))
    if arguments.outputs is not None:
        print(field("written", str(arguments.outputs)))
    return 0


def _insist(session: Session, wanted: Mapping[str, int]) -> None:
    for name, number in wanted.items():
        if name not in session.dims:
            known = ", ".join(session.dims) or "none: the shapes are fixed"
            raise ProfileError(f"the profile of these inputs has no dim {name!r}", remedy=f"its dims: {known}")
        if session.dims[name] != number:
            raise InputError(f"--dim {name}={number}, but the inputs have {name} = {session.dims[name]}")


def _replay(session: Session, repeat: int) -> tuple[dict[str, Array], list[int]]:
    """Outputs of the last replay, and times; where nothing outlives a replay, all must give the same bits."""
    first: dict[str, bytes] = {}
    times: list[int] = []
    for number in range(repeat):
        begin = time.perf_counter_ns()
        session.replay()
        times.append(time.perf_counter_ns() - begin)
        if session.profile.states or repeat == 1:
            continue
        bits = {name: view.tobytes() for name, view in session.outputs.items()}
        if number and bits != first:
            raise SelftestDiffers(f"replay {number + 1} gave other bits than the first")
        first = bits
    return {name: view.copy() for name, view in session.outputs.items()}, times


COMMAND = Command("run", "compute outputs from inputs with an image", _configure, _run)
