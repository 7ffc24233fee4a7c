"""Programs for the tests of documents, text and verifier: generated ones, and one of each feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.attributes import F32, Attributes
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.program import (
    Condition,
    Constants,
    Edge,
    Op,
    Phase,
    Program,
    ProgramBuilder,
    Provenance,
    Role,
    SourceNode,
    State,
    Value,
)
from tribunus.phaseir.types import Quantization, TensorType

_SYMBOLS = (Symbol("s0", 'batch "n"', 1, 4, 8), Symbol("s1", "länge\n", 2, 16, 64, 2))
_F32 = st.floats(width=32, allow_nan=False).map(F32)
_LABELS = st.text(st.characters(codec="utf-8"), max_size=8)


def _dim(draw: st.DrawFn) -> Dim:
    a, b = Sym("s0"), Sym("s1")
    choices: list[Dim] = [
        draw(st.integers(1, 9)),
        a,
        b,
        dims.add(dims.mul(a, draw(st.integers(1, 5))), draw(st.integers(0, 7))),
        dims.mul(a, b),
        dims.floordiv(dims.add(b, draw(st.integers(0, 9))), draw(st.integers(2, 5))),
        dims.ceildiv(dims.mul(a, b), draw(st.integers(2, 5))),
        dims.mod(b, draw(st.integers(2, 5))),
        dims.minimum(a, draw(st.integers(1, 9)), b),
        dims.maximum(dims.sub(b, a), 1),
        dims.floordiv(dims.add(b, 1), a),
    ]
    return draw(st.sampled_from(choices))


@st.composite
def _programs(draw: st.DrawFn) -> Program:
    constants = Constants()
    b = ProgramBuilder(constants, _SYMBOLS)
    shape = tuple(_dim(draw) for _ in range(draw(st.integers(0, 3))))
    quantization = draw(st.sampled_from([None, Quantization(None, None, True)]))
    live = [b.input(TensorType(DType.F32, shape), draw(_LABELS))]
    inputs = [live[0], b.input(TensorType(DType.U8, shape, quantization), draw(_LABELS))]
    b.source(SourceNode(draw(_LABELS), "Relu", ""))
    for _ in range(draw(st.integers(1, 8))):
        x = draw(st.sampled_from(live))
        kind = draw(st.sampled_from(["relu", "add", "leaky_relu", "scale", "reshape", "expand", "cast", "resize"]))
        source = draw(st.sampled_from([(), (0,)]))
        label = draw(_LABELS)
        if kind == "add":
            live += b.op("add", (x, x), labels=(label,), source=source)
        elif kind == "scale":
            c = b.constant(np.array(draw(_F32).value, np.float32), DType.F32, draw(_LABELS))
            live += b.op("mul", (x, c))
        elif kind == "leaky_relu":
            live += b.op("leaky_relu", (x,), Attributes.of({"alpha": draw(_F32)}))
        elif kind == "reshape":
            live += b.op("reshape", (x,), Attributes.of({"shape": (1, *b.type_of(x).shape)}))
        elif kind == "cast":
            live += b.op("cast", b.op("cast", (x,), Attributes.of({"to": "f16"})), Attributes.of({"to": "f32"}))
        elif kind == "resize":
            attributes: dict[str, int | str | F32 | tuple[F32, ...] | tuple[Dim, ...]] = {
                "mode": "cubic", "coordinate": "half_pixel", "nearest": "floor", "exclude_outside": 0,
                "sizes": b.type_of(x).shape, "scales": tuple(draw(_F32) for _ in b.type_of(x).shape),
                "cubic_a": F32(-0.75),
            }  # fmt: skip
            live += b.op("resize", (x,), Attributes.of(attributes))
        else:
            live += b.op(kind, (x,), Attributes.of({"shape": b.type_of(x).shape}) if kind == "expand" else Attributes())
    provenance = draw(st.sampled_from([None, Provenance("ab" * 32, 'a "tool"', 17, "us", ("narrow",))]))
    return b.finish(draw(_LABELS), tuple(inputs), (live[-1], live[0]), provenance)


@pytest.fixture(scope="session")
def programs() -> st.SearchStrategy[Program]:
    """Generated well-typed programs of one phase."""
    return _programs()


def _everything() -> Program:
    """Two phases, edges with a predicate, a state, an absent operand, several results."""
    f = TensorType(DType.F32, (2, 3))
    g = TensorType(DType.BOOL, ())
    values = (
        Value(f, Role.INPUT, "x"),
        Value(g, Role.INPUT, "go on"),
        Value(f, Role.STATE, "h"),
        Value(f, Role.TEMP, "sum"),
        Value(f, Role.TEMP, "h'"),
        Value(f, Role.TEMP),
        Value(TensorType(DType.F32, (2, 1)), Role.TEMP),
        Value(TensorType(DType.I64, (2, 1)), Role.TEMP),
    )
    first = Phase("body", (0, 1), (3,), (Op("add", (0, 2), (3,)), Op("relu", (3,), (4,))))
    top = Op("top_k", (5,), (6, 7), Attributes.of({"axis": 1, "k": (1,), "largest": 1, "sorted": 1}))
    second = Phase("tail", (3,), (6, 7), (Op("pad", (3, -1), (5,), _PAD), top))
    edges = (Edge(0, 0, Condition.LOOP, 1), Edge(0, 1))
    return Program(values, (first, second), (), edges, (State(2, 4, "hidden"),), (SourceNode("n", "Add", ""),))


_PAD = Attributes.of({"mode": "constant", "before": (0, 0), "after": (0, 0)})


@pytest.fixture
def everything() -> Program:
    """A program with one of each feature."""
    return _everything()


@pytest.fixture
def with_op() -> Callable[[Program, int, Op], Program]:
    """Replaces one op of the first phase."""

    def change(program: Program, index: int, op: Op) -> Program:
        phase = program.phases[0]
        ops = (*phase.ops[:index], op, *phase.ops[index + 1 :])
        return replace(program, phases=(replace(phase, ops=ops), *program.phases[1:]))

    return change
