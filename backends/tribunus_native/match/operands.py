"""From a template's buffer slots to a recipe: which operand each pointer of the C text is.

Imported by: the families.  Imports: templates.csource, plan.

A template orders its own inputs (x, tensors of the epilogue); the signature orders its own.  Where the two differ the C
text is rebound: ``buffers[i]`` of the template becomes the position in the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tribunus.candidates.model import Signature
from tribunus.errors import InternalError
from tribunus.phaseir.dims import Shape
from tribunus.phaseir.layouts import Layout, row_major
from tribunus.phaseir.program import Role as ValueRole
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import PackedWeight, Packing
from tribunus_native.templates.csource import KernelSource, Role

_BUFFER = re.compile(r"= buffers\[(\d+)\];")
_SPILL_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Bound:
    """C text in recipe order.  extra: weights behind the template's own, for slots that hold constants.

    spill: bytes at the start of the workspace, for results that nobody reads.
    """

    text: str
    extra: tuple[PackedWeight, ...]
    spill: int


def bind(
    source: KernelSource,
    signature: Signature,
    inputs: Sequence[int],
    outputs: Sequence[int],
    layouts: dict[int, Layout] | None = None,
) -> Bound:
    """inputs, outputs: value id of each INPUT and OUTPUT slot in order.  layouts: of constants among the inputs.

    Inputs of the signature that the template does not read keep their place.
    """
    count = len(signature.inputs) + len(signature.outputs)
    own_weights = sum(1 for slot in source.buffers if slot.role is Role.WEIGHT)
    left_inputs, left_outputs = list(inputs), list(outputs)
    extra: list[PackedWeight] = []
    places: list[str] = []
    weight = count
    spill = 0
    scratch: int | None = None
    for position, slot in enumerate(source.buffers):
        if slot.role is Role.INPUT:
            value = left_inputs.pop(0)
            if value in signature.inputs:
                places.append(f"buffers[{signature.inputs.index(value)}]")
            else:
                places.append(f"buffers[{count + own_weights + len(extra)}]")
                extra.append(_constant(signature, value, (layouts or {}).get(value)))
        elif slot.role is Role.OUTPUT:
            value = left_outputs.pop(0)
            if value in signature.outputs:
                places.append(f"buffers[{len(signature.inputs) + signature.outputs.index(value)}]")
            else:
                places.append(f"SPILL + {spill})")
                spill += _padded_bytes(signature.type_of(value))
        elif slot.role is Role.WEIGHT:
            places.append(f"buffers[{weight}]")
            weight += 1
        else:
            scratch = position
            places.append("")
    workspace = f"buffers[{count + own_weights + len(extra)}]"
    if scratch is not None:
        places[scratch] = f"(void *)((char *){workspace} + {spill})" if spill else workspace
    places = [p.replace("SPILL", f"(void *)((char *){workspace}") for p in places]
    if left_inputs or left_outputs:
        raise InternalError(f"{signature.name}: the template has fewer operands than were given")
    text = _BUFFER.sub(lambda match: f"= {places[int(match.group(1))]};", source.text)
    return Bound(text, tuple(extra), spill)


def rebind(source: KernelSource, signature: Signature, inputs: Sequence[int], outputs: Sequence[int]) -> str:
    """``bind`` where every slot is an operand of the signature."""
    bound = bind(source, signature, inputs, outputs)
    if bound.extra or bound.spill:
        raise InternalError(f"{signature.name}: an operand of the template is none of the signature")
    return bound.text


def is_constant(signature: Signature, value: int) -> bool:
    """Whether the bytes of a value are the model's."""
    return signature.program.values[value].role in (ValueRole.WEIGHT, ValueRole.CONSTANT)


def same_shape(signature: Signature, left: Shape, right: Shape) -> bool:
    """Whether two shapes are the same for every value of the symbols, however their dims are written."""
    scope = signature.program.scope
    return len(left) == len(right) and all(scope.equal(a, b) for a, b in zip(left, right, strict=True))


def _constant(signature: Signature, value: int, layout: Layout | None) -> PackedWeight:
    type_ = signature.type_of(value)
    nbytes = 1
    for extent in type_.numbers():
        nbytes *= extent
    packing = Packing("layout", layout=layout or row_major(type_.rank))
    return PackedWeight((value,), packing, nbytes * type_.dtype.itemsize)


def _padded_bytes(type_: TensorType) -> int:
    nbytes = type_.nbytes
    if not isinstance(nbytes, int):
        raise InternalError(f"a result of type {type_} that nobody reads has no fixed size")
    return -(-nbytes // _SPILL_ALIGN) * _SPILL_ALIGN
