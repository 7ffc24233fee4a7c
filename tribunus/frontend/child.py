"""The parsing process: ``python -m tribunus.frontend.child MODEL RESULT FOLDER``, three descriptor numbers.

Imported by: nobody; started by model.  Reads the request from standard input and the model from its descriptor, writes
the result to another; FOLDER is -1 where external data is not allowed.  It limits itself before it looks at the model.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from tribunus import canon
from tribunus.canon import list_of, object_of
from tribunus.errors import DimError, EncodingError, OnnxLimitError, TribunusError
from tribunus.frontend import limits
from tribunus.frontend.bindings import DimBindings, Profile, bindings_from_json, resolve
from tribunus.frontend.graph import Model
from tribunus.frontend.loading import load_model
from tribunus.frontend.lower import UnsupportedNodes, at_optimum, lower, with_step
from tribunus.frontend.transport import Failure, write_failure, write_lowered
from tribunus.phaseir import dims
from tribunus.phaseir.program import Constants, Program

_STEPS: Final = (2, 4, 8, 16, 32, 64)
_PROBES: Final = 65
"""Values of a range that are tried one by one to name the least bad one; any period up to 64 shows within them."""


def main(arguments: Sequence[str]) -> int:
    """Serve one request.  Returns 0 whenever a result, be it an error, was written."""
    model_fd, result_fd, folder_fd = (int(a) for a in arguments)
    size = os.fstat(model_fd).st_size
    _limit(size)
    request = object_of(
        canon.decode(sys.stdin.buffer.read(1 << 24), limit=1 << 24), "request", frozenset(("profiles",))
    )
    profiles = [bindings_from_json(p) for p in list_of(request["profiles"], "profiles")]
    try:
        model = load_model(_read(model_fd, size), None if folder_fd < 0 else folder_fd)
        constants = Constants()
        programs = [lower_profile(model, bindings, constants) for bindings in profiles]
        write_lowered(result_fd, model.facts, programs, constants)
    except EncodingError as error:  # documents hold integers within +-(2**53 - 1) only
        big = OnnxLimitError(f"a number or name in the model has no canonical form: {error.detail}")
        write_failure(result_fd, Failure(big.name, big.detail, big.remedy))
    except TribunusError as error:
        write_failure(result_fd, Failure(error.name, error.detail, error.remedy))
    except (MemoryError, RecursionError) as error:
        limit = OnnxLimitError(f"the model needs more than the parser may use ({type(error).__name__})")
        write_failure(result_fd, Failure(limit.name, limit.detail, limit.remedy))
    return 0


def lower_profile(model: Model, bindings: DimBindings, constants: Constants) -> Program:
    """The program of one profile.

    Raises DimError where shapes hold at the expected dims but not over the whole range, naming a step that would do;
    UnsupportedNodes for everything else that stands in the way.
    """
    profile = resolve(model.facts, bindings)
    try:
        return lower(model, profile, constants)
    except UnsupportedNodes as error:
        if not profile.symbols or not all(p.is_shape_law for p in error.problems):
            raise
        raise _range_error(model, profile, error) or error from None


def _range_error(model: Model, profile: Profile, error: UnsupportedNodes) -> DimError | None:
    """What is wrong with the range; None if the expected dims fail as well, so that the range is not to blame."""
    if not _lowers(model, at_optimum(profile)):
        return None
    labels = ", ".join(s.label for s in profile.symbols)
    least = "".join(f"; {bad} is the least value that fails" for bad in _least_bad_values(model, profile))
    detail = f"the shapes of the model do not hold over the whole range of {labels}{least}: {error.problems[0]}"
    for step in _STEPS:
        stepped = with_step(profile, step)
        if stepped is not None and _lowers(model, stepped):
            bounds = " ".join(f"--dim '{s.label}={s.lo}:{s.opt}:{s.hi}:{s.step}'" for s in stepped.symbols)
            return DimError(detail, remedy=f"a step of {step} holds throughout: {bounds}")
    return DimError(detail, remedy="no step up to 64 cures it: bind the dims to numbers, one profile a shape")


def _least_bad_values(model: Model, profile: Profile) -> Iterator[str]:
    """For each symbol the least value that fails while the others have their expected values, where it is near."""
    at = {s.name: s.opt for s in profile.symbols}
    for symbol in profile.symbols:
        for value in symbol.values()[:_PROBES]:
            numbers = {**at, symbol.name: value}
            shapes = tuple(dims.evaluate_shape(shape, numbers) for shape in profile.shapes)
            if not _lowers(model, Profile((), shapes)):
                yield f"{symbol.label}={value}"
                break


def _lowers(model: Model, profile: Profile) -> bool:
    try:
        lower(model, profile, Constants())
    except UnsupportedNodes:
        return False
    return True


def _limit(size: int) -> None:
    memory = limits.PARSER_MEMORY_BYTES + 8 * size
    for kind, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, limits.PARSER_CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.DOCUMENT_BYTES + 4 * limits.MODEL_BYTES),
    ):
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (ceiling, ceiling))
        except (OSError, ValueError):  # a system without this limit keeps the wall clock of the parent
            continue


def _read(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.pread(descriptor, min(size - len(data), 1 << 26), len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
