"""``tribunus bench``: times of an image's replay, alone or in turns with other engines on the same inputs.

Imported by: cli.tool.  Imports: bench_turns, bench_model, opening, cli.  The command itself computes nothing: every
subject has a process of its own.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from tribunus.certification.scratch import Scratch
from tribunus.cli.bench_model import bind_model
from tribunus.cli.bench_turns import Measured, Rounds, Worker, measure_in_turns
from tribunus.cli.bench_worker import Subject
from tribunus.cli.command import Command
from tribunus.cli.opening import opened_image
from tribunus.cli.output import Document, clip, field, print_json, table, time_text
from tribunus.errors import InputError, ToolError
from tribunus.image.arrays import Array, read_arrays, write_arrays

TURNS: Final = Rounds(20, 20)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE.tci")
    parser.add_argument("--against", type=Path, metavar="M.onnx", help="time other engines on this model, in turns")
    engines = [Subject.ONNXRUNTIME.value, Subject.OPENVINO.value]
    parser.add_argument("--engine", action="append", default=[], choices=engines, help="default: all that are here")
    parser.add_argument("--inputs", type=Path, metavar="X.npz", help="default: the image's first recorded case")
    parser.add_argument(
        "--rounds", type=int, default=TURNS.count, metavar="N", help=f"turns each (default {TURNS.count})"
    )
    parser.add_argument(
        "--calls", type=int, default=TURNS.calls, metavar="N", help=f"calls a turn (default {TURNS.calls})"
    )
    parser.add_argument("--trust", type=Path, metavar="POLICY.json", help="trust policy; TRIBUNUS_TRUST or the user's")
    parser.add_argument("--json", action="store_true", help="print one JSON document, samples included")
    parser.epilog = (
        "Fair: one process each, turns interleaved, as many threads as the image's plan\n"
        "has, no spinning, dims fixed, inputs and outputs bound once, initializers no\n"
        "inputs.  p50 and p99 are of all calls; spread: how far the turns' medians lie\n"
        "apart; a difference below the spread means nothing."
    )


def _run(arguments: argparse.Namespace) -> int:
    rounds = Rounds(arguments.rounds, arguments.calls)
    given = None if arguments.inputs is None else read_arrays(arguments.inputs)
    with opened_image(arguments.image, arguments.trust) as image:
        feeds = given if given is not None else _first_case([case.inputs for case in image.recorded()])
        threads = image.region.plan.threads
        image.session(feeds).close()
    engines = [] if arguments.against is None else _engines(arguments.engine)
    with ExitStack() as stack:
        folder = stack.enter_context(Scratch("bench")).path
        inputs, model = folder / "inputs.npz", folder / "model.onnx"
        write_arrays(inputs, feeds)
        trust = [] if arguments.trust is None else [str(arguments.trust.resolve())]
        workers = [Worker(Subject.IMAGE, arguments.image.resolve(), inputs, trust, threads)]
        stack.push(workers[0])
        if engines:
            shapes = {name: array.shape for name, array in feeds.items()}
            names = bind_model(arguments.against, shapes, model)
            for engine in engines:
                words = [str(threads), *names]
                workers.append(stack.enter_context(Worker(engine, model, inputs, words, threads)))
        measured = measure_in_turns(workers, rounds)
        distances = _distances([worker.outputs() for worker in workers])
    if arguments.json:
        print_json(_document(measured, distances, threads, feeds))
    else:
        _print(measured, distances, threads, feeds)
    return 0


def _first_case(recorded: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
    if not recorded:
        raise InputError("the image carries no recorded case", remedy="give inputs: --inputs X.npz")
    return recorded[0]


def _engines(wanted: Sequence[str]) -> list[Subject]:
    remedy = "pip install onnxruntime openvino"
    engines = [Subject(name) for name in wanted] or [Subject.ONNXRUNTIME, Subject.OPENVINO]
    found = [engine for engine in dict.fromkeys(engines) if find_spec(engine.value) is not None]
    if missing := [engine for engine in engines if engine not in found and wanted]:
        raise ToolError(f"{missing[0]} is not installed", remedy=remedy)
    if not found:
        raise ToolError("neither onnxruntime nor openvino is installed", remedy=remedy)
    return found


def _distances(outputs: Sequence[Mapping[str, Array]]) -> list[float | None]:
    """Largest absolute difference of each subject's outputs from the image's; None where they do not compare."""
    first = outputs[0]
    found: list[float | None] = []
    for other in outputs:
        if other.keys() != first.keys() or any(other[n].shape != first[n].shape for n in first):
            found.append(None)
            continue
        largest = 0.0
        for name, array in first.items():
            left, right = array.astype(np.float64), other[name].astype(np.float64)
            unequal = ~((left == right) | (np.isnan(left) & np.isnan(right)))
            if unequal.any():
                largest = max(largest, float(np.max(np.abs(left - right)[unequal], initial=0.0)))
        found.append(largest if np.isfinite(largest) else None)
    return found


def _print(
    measured: Sequence[Measured], distances: Sequence[float | None], threads: int, feeds: Mapping[str, Array]
) -> None:
    shapes = ", ".join(f"{clip(name, 24)} {list(array.shape)}" for name, array in feeds.items())
    print(field("inputs", shapes))
    print(field("threads", f"{threads}; {len(os.sched_getaffinity(0))} usable processors"))
    calls = sum(len(times) for times in measured[0].wall_ns)
    print(field("calls", f"{calls} each, in {len(measured[0].wall_ns)} turns"))
    print()
    heads = ("subject", "CPU p50", "CPU p99", "wall p50", "wall p99", "spread")
    rows = [
        (
            f"{m.subject} {m.version}",
            *(time_text(ns) for ns in (m.cpu(50), m.cpu(99), m.wall(50), m.wall(99))),
            f"{m.spread:.1%}",
        )
        for m in measured
    ]
    for line in table(heads, rows):
        print(line)
    print()
    heads = ("subject", "library", "open", "first call", "to answer", "distance")
    rows = [
        (
            f"{m.subject} {m.version}",
            *(time_text(ns) for ns in (m.load_ns, m.open_ns, m.first_ns, m.load_ns + m.open_ns + m.first_ns)),
            "?" if distance is None else f"{distance:.1e}",
        )
        for m, distance in zip(measured, distances, strict=True)
    ]
    for line in table(heads, rows):
        print(line)
    if len(measured) > 1:
        print()
        own = measured[0].cpu(50)
        for other in measured[1:]:
            print(field("CPU time", f"the image needs {own / max(1, other.cpu(50)):.2f} of {other.subject}'s"))
    print("distance: largest absolute difference from the image's outputs")


def _document(
    measured: Sequence[Measured], distances: Sequence[float | None], threads: int, feeds: Mapping[str, Array]
) -> Document:
    return {
        "schema": "tribunus.bench/1",
        "threads": threads,
        "inputs": {name: list(array.shape) for name, array in feeds.items()},
        "subjects": [
            {
                "subject": m.subject.value,
                "version": m.version,
                "load_ns": m.load_ns,
                "open_ns": m.open_ns,
                "first_ns": m.first_ns,
                "clock_ns": m.clock_ns,
                "cpu_p50_ns": m.cpu(50),
                "cpu_p99_ns": m.cpu(99),
                "wall_p50_ns": m.wall(50),
                "wall_p99_ns": m.wall(99),
                "spread": m.spread,
                "distance": distance,
                "wall_ns": [list(times) for times in m.wall_ns],
                "cpu_ns": [list(times) for times in m.cpu_ns],
            }
            for m, distance in zip(measured, distances, strict=True)
        ],
    }


COMMAND = Command("bench", "time an image's replay, alone or in turns with other engines", _configure, _run)
