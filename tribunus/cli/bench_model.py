"""An ONNX model made fair for other engines: dims bound to the inputs, initializers no longer inputs.

Imported by: bench, the model zoo.  Imports: onnx, when called; errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tribunus.errors import InputError, OnnxSyntaxError, ToolError


def bind_model(path: Path, shapes: Mapping[str, tuple[int, ...]], output: Path) -> tuple[str, ...]:
    """Write the model of ``path`` with fixed input dims to ``output``; returns the names of its outputs.

    An initializer that is an input too may be overridden by the caller, so that engines must not fold it; old files had
    to list them all.  Stated shapes of outputs and inner values belong to the old dims and are dropped.
    Raises ToolError without the package onnx, OnnxSyntaxError, InputError if ``shapes`` are not those of the inputs.
    """
    try:
        import onnx
    except ModuleNotFoundError:
        raise ToolError("--against needs the package onnx", remedy="pip install 'tribunus-compute[certify]'") from None
    try:
        model = onnx.load(str(path))
    except OSError as error:
        raise OnnxSyntaxError(f"{path} cannot be read: {error.strerror}", remedy="name an ONNX file") from None
    except Exception as error:  # protobuf's own class is not part of onnx's interface
        raise OnnxSyntaxError(f"{path} is no ONNX model: {str(error)[:200]}") from error
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    fed = [value for value in graph.input if value.name not in stored]
    if {value.name for value in fed} != shapes.keys():
        names = ", ".join(value.name for value in fed)
        raise InputError(f"{path.name} takes {names}; the image takes {', '.join(shapes)}", remedy="name its own model")
    del graph.input[:]
    for value in fed:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(shapes[value.name]):
            raise InputError(f"input {value.name!r} of {path.name} has rank {len(tensor.shape.dim)}")
        del tensor.shape.dim[:]
        for extent in shapes[value.name]:
            tensor.shape.dim.add().dim_value = extent
        tensor.shape.SetInParent()
        graph.input.append(value)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    model.ir_version = max(model.ir_version, 4)  # from there on an initializer need not be an input
    output.write_bytes(model.SerializeToString())
    return tuple(value.name for value in graph.output)
