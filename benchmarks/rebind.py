"""Binds the inputs of an ONNX file to fixed shapes, the way its users do before they run it.

Imported by: benchmarks.zoo.witness, benchmarks.baselines.  Imports: onnx, tribunus.errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from tribunus.errors import EnvironmentFault, InputError, OnnxSyntaxError


@dataclass(frozen=True, slots=True)
class BoundModel:
    """Serialized ONNX with fixed input dims, and the names of its outputs in order."""

    content: bytes
    outputs: tuple[str, ...]


def bound_model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> BoundModel:
    """The model of ``path`` with every dim of its inputs a number, and no initializer among the inputs.

    An initializer that is listed as an input may be overridden by the caller, so that engines must not fold it; files
    of IR version 3 had to list them all.  Shapes that the file states for outputs and inner values are dropped: they
    belong to the old dims, and some are wrong.  Raises InputError if ``shapes`` does not fit the model's inputs.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error}") from error
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own class is not part of onnx's interface
        raise OnnxSyntaxError(f"{path} is not an ONNX model: {error}") from error
    graph = model.graph
    initial = {tensor.name for tensor in graph.initializer}
    fed = [value for value in graph.input if value.name not in initial]
    names = {value.name for value in fed}
    if names != shapes.keys():
        raise InputError(f"{path.name} has inputs {sorted(names)}, given are {sorted(shapes)}")
    del graph.input[:]
    for value in fed:
        tensor = value.type.tensor_type
        given = shapes[value.name]
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(given):
            raise InputError(f"input {value.name!r} of {path.name} has rank {len(tensor.shape.dim)}, given is {given}")
        del tensor.shape.dim[:]
        for size in given:
            tensor.shape.dim.add().dim_value = size
        tensor.shape.SetInParent()
        graph.input.append(value)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    if model.ir_version < 4:
        model.ir_version = 4  # from here on an initializer need not be an input
    return BoundModel(model.SerializeToString(), tuple(value.name for value in graph.output))
