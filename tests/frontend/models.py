"""Builders of small ONNX models, and what their programs compute in float64.

Imported by: the tests beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tribunus.frontend.bindings import bindings_from_inputs, parse_dim_options, resolve
from tribunus.frontend.loading import load_model
from tribunus.frontend.lower import lower
from tribunus.oracle.golden import evaluate
from tribunus.phaseir.program import Constants, Program
from tribunus.phaseir.verifier import verify

Array = np.ndarray
Attribute = int | float | str | Sequence[int] | Sequence[float] | TensorProto | onnx.GraphProto
NodeSpec = tuple[str, Sequence[str], Sequence[str], Mapping[str, Attribute]]


@dataclass
class Lowered:
    """A lowered model and its payloads."""

    program: Program
    constants: Constants

    @property
    def kinds(self) -> list[str]:
        return [op.kind for op in self.program.only_phase.ops]

    def run(self, **inputs: Array) -> list[Array]:
        """Outputs of the program in float64; ``inputs`` by label."""
        phase = self.program.only_phase
        given = {i: inputs[self.program.values[i].label] for i in phase.inputs}
        values = evaluate(self.program, given, self.constants, keep=phase.outputs)
        return [np.asarray(values[o]) for o in phase.outputs]


def a_node(
    name: str, op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Attribute]
) -> onnx.NodeProto:
    """One node; the attribute ``domain`` names its domain."""
    node = helper.make_node(op, inputs, outputs, name=name, domain=str(attributes.get("domain", "")))
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items() if k != "domain")
    return node


def build_model(
    nodes: Sequence[NodeSpec],
    inputs: Mapping[str, tuple[int, Sequence[int | str | None]]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of these nodes.  inputs: label -> (element type, dims).  Outputs are declared wrongly on purpose."""
    made = [a_node(f"n{i}", *spec) for i, spec in enumerate(nodes)]
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, []) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def lower_model(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None, dims: Sequence[str] = ()
) -> Lowered:
    """Lower a model at the shapes of ``shapes``, or under ``dims`` options."""
    loaded = load_model(model.SerializeToString(), None)
    facts = loaded.facts
    bindings = parse_dim_options(dims, facts) if shapes is None else bindings_from_inputs(facts, shapes)
    constants = Constants()
    program = lower(loaded, resolve(facts, bindings), constants)
    verify(program)
    return Lowered(program, constants)


def run_node(
    op: str,
    operands: Mapping[str, Array | None],
    attributes: Mapping[str, Attribute] | None = None,
    constants: Sequence[str] = (),
    outputs: int = 1,
    opset: int = 17,
) -> tuple[list[Array], list[str]]:
    """Outputs and op kinds of one node on arrays; ``constants`` become initializers, in the given operand order."""
    present = {n: a for n, a in operands.items() if a is not None}
    given = {n: a for n, a in present.items() if n not in constants}
    model = build_model(
        [(op, [n if n in present else "" for n in operands], [f"y{i}" for i in range(outputs)], attributes or {})],
        {n: (helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in given.items()},
        [f"y{i}" for i in range(outputs)],
        {n: present[n] for n in constants if n in present},
        opset,
    )
    found = lower_model(model, {n: a.shape for n, a in given.items()})
    return found.run(**given), found.kinds
