"""Export of programs to ONNX: proof that PhaseIR lost nothing, and a way back to other runtimes.

Imported by: cli, tests.  Knows protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx
from onnx import helper

from tribunus.errors import DimError, EnvironmentFault, LoweringError
from tribunus.frontend.element_types import number_of
from tribunus.frontend.export_rules import EXPORTS
from tribunus.frontend.writing import Writer
from tribunus.phaseir.dims import Dim, Sym
from tribunus.phaseir.program import Constants, Program, Role, Value

OPSET: Final = 18
IR_VERSION: Final = 8


def export_onnx(program: Program, constants: Constants, path: Path) -> None:
    """Write a program of one phase as an ONNX model (opset 18).

    Inputs and outputs keep their labels; symbolic input dims carry the symbol's label.  Raises LoweringError that lists
    the ops ONNX has no form for, DimError for a symbol that no input extent shows alone.
    """
    model = to_onnx(program, constants)
    try:
        path.write_bytes(model.SerializeToString(deterministic=True))
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}") from None


def to_onnx(program: Program, constants: Constants) -> onnx.ModelProto:
    """The model that ``export_onnx`` writes.  Raises what it raises."""
    phase = program.only_phase
    if program.states:
        raise LoweringError(
            "a program with states has no ONNX form", remedy="export the program before states are tied"
        )
    if missing := sorted({op.kind for op in phase.ops} - set(EXPORTS)):
        raise LoweringError(f"ops without an ONNX form: {', '.join(missing)}")
    names = _names(program)
    writer = Writer(program, names, _symbol_places(program, names))
    for index, value in enumerate(program.values):
        if value.role is Role.CONSTANT:
            writer.store(names[index], value.type.dtype, constants.of(program, index))
    for op in phase.ops:
        EXPORTS[op.kind](writer, op)
    graph = helper.make_graph(
        writer.nodes,
        phase.name,
        [_info(program, names[i], program.values[i]) for i in phase.inputs],
        [_info(program, names[i], program.values[i]) for i in phase.outputs],
        writer.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tribunus")
    model.ir_version = IR_VERSION
    return model


def _names(program: Program) -> list[str]:
    """A unique ONNX name for every value: its label at the border, a number inside."""
    phase = program.only_phase
    names = [f"v{i}" for i in range(len(program.values))]
    taken: set[str] = set()
    for i in (*phase.inputs, *phase.outputs):
        label = program.values[i].label
        if label and label not in taken:
            names[i] = label
            taken.add(label)
    return [f"v{i}_" if name in taken and program.values[i].label != name else name for i, name in enumerate(names)]


def _symbol_places(program: Program, names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """For each symbol an input and axis whose extent it is.  Raises DimError if there is none."""
    places: dict[str, tuple[str, int]] = {}
    for i in program.only_phase.inputs:
        for axis, dim in enumerate(program.values[i].type.shape):
            if isinstance(dim, Sym):
                places.setdefault(dim.name, (names[i], axis))
    for symbol in program.symbols:
        if symbol.name not in places:
            raise DimError(f"no input extent is {symbol.label} alone", remedy="export with this dim bound to a number")
    return places


def _info(program: Program, name: str, value: Value) -> onnx.ValueInfoProto:
    shape = [_declared(program, dim) for dim in value.type.shape]
    return helper.make_tensor_value_info(name, number_of(value.type.dtype), shape)


def _declared(program: Program, dim: Dim) -> int | str | None:
    if isinstance(dim, int):
        return dim
    return program.scope.symbol(dim.name).label if isinstance(dim, Sym) else None


__all__ = ["IR_VERSION", "OPSET", "export_onnx", "to_onnx"]
