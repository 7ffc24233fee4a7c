"""What tests of passes share: goldens as text, models by layers, random programs.

``value %1: f32[2] constant {1.0, -0.0}`` stands for the digest of these numbers, in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from tribunus.numerics.dtypes import DType
from tribunus.phaseir.attributes import F32, Attributes
from tribunus.phaseir.dims import Dim, Symbol
from tribunus.phaseir.parser import parse
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.text import to_text
from tribunus.phaseir.types import TensorType

_SPELT = re.compile(r"(: (\w+)\[([0-9, ]*)\] constant )\{([^}]*)\}")
_DIGEST = re.compile(r"constant ([0-9a-f]{64})")
CASE = "// ====\n"
EXPECTED = "// ----\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what the passes give into the .pir files")


def read_program(text: str, constants: Constants) -> Program:
    """A program whose constants are spelt out; their payloads go into ``constants``."""

    def digest(match: re.Match[str]) -> str:
        dtype = DType(match.group(2))
        shape = [int(d) for d in match.group(3).split(",") if d.strip()]
        numbers = [float(n) if dtype.is_float else int(n) for n in match.group(4).split(",") if n.strip()]
        array = np.array(numbers, dtype=dtype.numpy).reshape(shape)
        return f"{match.group(1)}{constants.add(array, dtype)}"

    return parse(_SPELT.sub(digest, text))


def write_program(program: Program, constants: Constants) -> str:
    """Inverse of ``read_program``."""

    def payload(match: re.Match[str]) -> str:
        array = constants.view()[next(d for d in constants.view() if d == match.group(1))]
        return "constant {" + ", ".join(str(n) for n in array.reshape(-1).tolist()) + "}"

    return _DIGEST.sub(payload, to_text(program))


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[Path, Callable[[Program, Constants], Program]], None]:
    """Compare what a pass does with a .pir file; a file holds cases, each with its input and what is expected."""
    update = bool(request.config.getoption("--update-goldens", default=False))

    def check(path: Path, apply: Callable[[Program, Constants], Program]) -> None:
        cases = [case.partition(EXPECTED) for case in path.read_text().split(CASE)]
        found: list[str] = []
        for source, _, _ in cases:
            constants = Constants()
            found.append(write_program(apply(read_program(source, constants), constants), constants))
        if update:
            joined = CASE.join(f"{s}{EXPECTED}{f}" for (s, _, _), f in zip(cases, found, strict=True))
            path.write_text(joined)
            return
        for (_, _, expected), result in zip(cases, found, strict=True):
            assert result == expected

    return check


@pytest.fixture
def read() -> Callable[[str, Constants], Program]:
    """Reads a program with spelt out constants."""
    return read_program


class Net:
    """Builds models by layers; constants are drawn from one seed."""

    def __init__(self, *symbols: Symbol) -> None:
        self.constants = Constants()
        self.builder = ProgramBuilder(self.constants, symbols)
        self._random = np.random.default_rng(7)
        self._inputs: list[int] = []

    def input(self, *shape: Dim, dtype: DType = DType.F32) -> int:
        self._inputs.append(self.builder.input(TensorType(dtype, shape), f"x{len(self._inputs)}"))
        return self._inputs[-1]

    def weight(self, *shape: int) -> int:
        return self.builder.constant(self._random.standard_normal(shape).astype(np.float32), DType.F32)

    def number(self, value: float, dtype: DType = DType.F32) -> int:
        return self.builder.constant(np.array(value, dtype.numpy), dtype)

    def op(self, kind: str, *inputs: int, **attributes: int | str | F32 | tuple[Dim, ...]) -> int:
        return self.builder.op(kind, inputs, Attributes.of(attributes))[0]

    def conv(self, x: int, outputs: int, kernel: int = 3) -> int:
        channels = self.builder.type_of(x).shape[1]
        assert isinstance(channels, int)
        pad, w, b = kernel // 2, self.weight(outputs, channels, kernel, kernel), self.weight(outputs)
        window: dict[str, tuple[Dim, ...]] = {"strides": (1, 1), "pads": (pad,) * 4, "dilations": (1, 1)}
        return self.op("conv", x, w, b, group=1, **window)

    def linear(self, x: int, rows: int, columns: int) -> int:
        return self.op("add", self.op("matmul", x, self.weight(rows, columns)), self.weight(columns))

    def finish(self, *outputs: int) -> Program:
        return self.builder.finish("main", tuple(self._inputs), outputs)


@pytest.fixture
def net() -> Callable[..., Net]:
    """Makes an empty Net over symbols."""
    return Net


_FORMS = ((2, 3), (2, 1), (1, 3), (3, 2), (6,), (1,))
_BINARY = ("add", "sub", "mul", "minimum", "maximum")
_OTHER = ("number", "transpose", "reshape", "reduce_max", "copy", "cast")
_UNARY = ("relu", "neg", "abs", "floor")


@st.composite
def _dags(draw: st.DrawFn) -> tuple[Program, Constants]:
    """Random programs of exact ops: elementwise with broadcasting, movement, reductions, several outputs."""
    net = Net()
    live = [net.input(*draw(st.sampled_from(_FORMS[:4]))) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(1, 14))):
        x = draw(st.sampled_from(live[-4:]))
        shape = net.builder.type_of(x).numbers()
        kind = draw(
            st.sampled_from([*_BINARY, *_UNARY, "number", "transpose", "reshape", "reduce_max", "copy", "cast"])
        )
        if kind in _BINARY:
            fits = [v for v in live if len(net.builder.type_of(v).shape) == len(shape) and _fits(net, v, shape)]
            live.append(net.op(kind, x, draw(st.sampled_from(fits))))
        elif kind == "number":
            c = net.number(draw(st.sampled_from([0.0, -0.0, 1.0, 2.0, 4.0, 0.5])))
            operands = draw(st.permutations([x, c]))
            live.append(net.op(draw(st.sampled_from(_BINARY)), *operands))
        elif kind == "transpose":
            live.append(net.op(kind, x, perm=tuple(reversed(range(len(shape))))))
        elif kind == "reshape":
            count = int(np.prod(shape))
            forms: list[tuple[Dim, ...]] = [(count,), (1, count), (count, 1), (1, *shape), shape]
            live.append(net.op(kind, x, shape=draw(st.sampled_from(forms))))
        elif kind == "reduce_max":
            live.append(net.op(kind, x, axes=(len(shape) - 1,), keepdims=draw(st.integers(0, 1))))
        elif kind == "cast":
            live.append(net.op("cast", net.op("cast", x, to="f64"), to="f32"))
        else:
            live.append(net.op(kind, x))
    outputs = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3))
    return net.finish(live[-1], *outputs), net.constants


def _fits(net: Net, value: int, shape: tuple[int, ...]) -> bool:
    other = net.builder.type_of(value).numbers()
    return all(a == b or 1 in (a, b) for a, b in zip(shape, other, strict=True))


@pytest.fixture(scope="session")
def dags() -> st.SearchStrategy[tuple[Program, Constants]]:
    """Random programs of exact ops."""
    return _dags()
