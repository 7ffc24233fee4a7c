"""One-op programs and the ONNX node of the same meaning, run by onnxruntime.

Imported by: the tests beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper

from tribunus.numerics.dtypes import DType, from_numpy
from tribunus.phaseir.attributes import F32, Attributes, AttributeValue
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType

Array = npt.NDArray[np.generic]


def dtype_of(array: Array) -> DType:
    """DType of an array that NumPy holds natively."""
    found = from_numpy(array.dtype)
    assert found is not None
    return found


def attributes(**values: object) -> Attributes:
    """Attributes from plain Python values: floats become binary32."""
    return Attributes.of({k: _attribute(v) for k, v in values.items()})


def _attribute(value: object) -> AttributeValue:
    if isinstance(value, float):
        return F32(float(np.float32(value)))
    if isinstance(value, tuple):
        return tuple(F32(float(np.float32(v))) for v in value) if any(isinstance(v, float) for v in value) else value
    assert isinstance(value, (int, str))
    return value


def one_op(kind: str, operands: Sequence[Array | None], **values: object) -> tuple[Program, dict[int, Array]]:
    """A program of one op, and its operands by value id."""
    builder = ProgramBuilder(Constants())
    ids: list[int] = []
    inputs: dict[int, Array] = {}
    for array in operands:
        if array is None:
            ids.append(-1)
            continue
        ids.append(builder.input(TensorType(dtype_of(array), array.shape), f"x{len(ids)}"))
        inputs[ids[-1]] = array
    outputs = builder.op(kind, tuple(ids), attributes(**values))
    return builder.finish(kind, tuple(inputs), outputs), inputs


def onnx_node(
    op_type: str,
    operands: Sequence[Array | None],
    outputs: int,
    values: Mapping[str, int | float | str | list[int]],
    opset: int = 20,
) -> list[Array]:
    """Results of one ONNX node on onnxruntime."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    given = {n: a for n, a in zip(names, operands, strict=True) if a is not None}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())
    graph = helper.make_graph(
        [node],
        "node",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()],
        [onnx.ValueInfoProto(name=n) for n in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, given)
    return found
