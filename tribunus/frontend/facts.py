"""What a model says of itself: digest, producer, inputs and outputs with their declared dims.

Imported by: the frontend, certification, cli.  Imports: canon, numerics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tribunus.canon import Digest, Json, int_of, list_of, object_of, parse_digest, str_of
from tribunus.errors import SchemaError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.types import dtype_of

DeclaredDim: TypeAlias = "int | str | None"
"""A number, the label that the model gives the dim, or None for a dim without a usable label."""


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A declared input or output.  Output dims are hearsay: models often declare them wrongly."""

    label: str
    dtype: DType
    dims: tuple[DeclaredDim, ...]

    def __str__(self) -> str:
        return f"{self.label} {self.dtype}[{', '.join('?' if d is None else str(d) for d in self.dims)}]"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of a model file.

    digest: SHA-256 of the file's bytes.  parameters: elements of all stored floating point and 8-bit or narrower
    integer tensors, in initializers and in constant nodes.
    """

    digest: Digest
    producer: str
    opset: int
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    parameters: int

    def input(self, label: str) -> TensorFact | None:
        """The input of this label, or None."""
        for fact in self.inputs:
            if fact.label == label:
                return fact
        return None

    def labels(self) -> tuple[str, ...]:
        """Labels of input dims in order of appearance, each once."""
        return tuple(dict.fromkeys(d for fact in self.inputs for d in fact.dims if isinstance(d, str)))


def facts_to_json(facts: ModelFacts) -> Json:
    """Document form."""
    return {
        "digest": facts.digest,
        "producer": facts.producer,
        "opset": facts.opset,
        "parameters": facts.parameters,
        "inputs": [_tensor_to_json(t) for t in facts.inputs],
        "outputs": [_tensor_to_json(t) for t in facts.outputs],
    }


def facts_from_json(value: Json) -> ModelFacts:
    """Inverse of ``facts_to_json``.  Raises SchemaError."""
    keys = frozenset(("digest", "producer", "opset", "parameters", "inputs", "outputs"))
    document = object_of(value, "facts", keys)
    return ModelFacts(
        parse_digest(str_of(document["digest"], "facts.digest")),
        str_of(document["producer"], "facts.producer"),
        int_of(document["opset"], "facts.opset"),
        tuple(_tensor_from_json(t) for t in list_of(document["inputs"], "facts.inputs")),
        tuple(_tensor_from_json(t) for t in list_of(document["outputs"], "facts.outputs")),
        int_of(document["parameters"], "facts.parameters"),
    )


def _tensor_to_json(tensor: TensorFact) -> Json:
    return {"label": tensor.label, "dtype": tensor.dtype.value, "dims": list(tensor.dims)}


def _tensor_from_json(value: Json) -> TensorFact:
    document = object_of(value, "tensor", frozenset(("label", "dtype", "dims")))
    dims: list[DeclaredDim] = []
    for dim in list_of(document["dims"], "tensor.dims"):
        if dim is None or type(dim) is str or type(dim) is int:
            dims.append(dim)
        else:
            raise SchemaError("tensor.dims: a number, a label or null was expected")
    return TensorFact(str_of(document["label"], "tensor.label"), dtype_of(document["dtype"], "tensor"), tuple(dims))
