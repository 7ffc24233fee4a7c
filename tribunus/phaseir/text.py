"""Text form of programs: one op a line, readable by people, exact for the parser.

Imported by: cli, tests of passes.  Imports: phaseir.  ``parser.parse(to_text(p))`` is ``p`` for every program.

::

    program tribunus.phaseir/1
    symbol s0 "batch" 1:4:8:1
    value %0 "x": f32[s0, 3] input
    value %1 "w": f32[3, 5] constant 5f0c...
    phase "main" (%0) -> (%3)
      %2: f32[s0, 5] = matmul(%0, %1)
      %3 "y": f32[s0, 5] = leaky_relu(%2) {alpha=0.1f}
"""

from __future__ import annotations

import json
import math

import numpy as np

from tribunus.canon import f32_to_text
from tribunus.errors import InternalError
from tribunus.phaseir.attributes import F32, AttributeValue
from tribunus.phaseir.program import SCHEMA, Condition, Op, Program, Role, Value


def to_text(program: Program) -> str:
    """The text form, with a newline at its end."""
    lines = [f"program {SCHEMA}"]
    if (p := program.provenance) is not None:
        passes = ", ".join(map(quote, p.rounding_passes))
        lines.append(
            f"provenance model={quote(p.model)} producer={quote(p.producer)} opset={p.opset}"
            f" converter={quote(p.converter)} rounding_passes=[{passes}]"
        )
    lines += [f"symbol {s.name} {quote(s.label)} {s.lo}:{s.opt}:{s.hi}:{s.step}" for s in program.symbols]
    lines += [f"source {quote(n.name)} {quote(n.op_type)} {quote(n.domain)}" for n in program.sources]
    computed = {v for phase in program.phases for op in phase.ops for v in op.outputs}
    for i, value in enumerate(program.values):
        if i not in computed or value.role is not Role.TEMP:
            digest = "" if value.constant is None else f" {value.constant}"
            lines.append(f"value {_head(i, value)} {value.role.value}{digest}")
    for phase in program.phases:
        lines.append(f"phase {quote(phase.name)} ({_ids(phase.inputs)}) -> ({_ids(phase.outputs)})")
        lines += [f"  {op_line(program, op)}" for op in phase.ops]
    for edge in program.edges:
        predicate = "" if edge.condition is Condition.ALWAYS else f" %{edge.predicate}"
        lines.append(f"edge {edge.source} -> {edge.target} {edge.condition.value}{predicate}")
    lines += [f"state {quote(s.label)} %{s.read} -> %{s.write}" for s in program.states]
    return "\n".join(lines) + "\n"


def op_line(program: Program, op: Op) -> str:
    """One op with its results and their types."""
    results = "; ".join(_head(v, program.values[v]) for v in op.outputs)
    attributes = ", ".join(f"{name}={attribute_text(value)}" for name, value in op.attributes)
    text = f"{results} = {op.kind}({_ids(op.inputs)})"
    if attributes:
        text += f" {{{attributes}}}"
    if op.source:
        text += " from " + ", ".join(map(str, op.source))
    return text


def attribute_text(value: AttributeValue) -> str:
    """An attribute's value: ``3``, ``"text"``, ``0.5f``, ``[1, s0]``, ``[0.5f, 1.0f]``."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, F32):
        return f32_text(value.value)
    return "[" + ", ".join(f32_text(v.value) if isinstance(v, F32) else str(v) for v in value) + "]"


def f32_text(value: float) -> str:
    """The shortest decimal that is this binary32 number, with an ``f``; its bits where no decimal is."""
    if not math.isfinite(value):
        return f32_to_text(value)
    if float(np.float32(value)) != value:
        raise InternalError(f"{value!r} is no binary32 number")
    text = str(np.float32(value))
    return f"{text}f" if float(np.float32(float(text))) == value else f32_to_text(value)


def quote(text: str) -> str:
    """``text`` in double quotes, ASCII, escaped as in JSON."""
    return json.dumps(text)


def _head(index: int, value: Value) -> str:
    label = f" {quote(value.label)}" if value.label else ""
    return f"%{index}{label}: {value.type}"


def _ids(ids: tuple[int, ...]) -> str:
    return ", ".join("_" if i < 0 else f"%{i}" for i in ids)
